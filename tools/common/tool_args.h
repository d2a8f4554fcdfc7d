/* Options for the tools, strictly: "--name value", "--name=value", or "-n value" where there is a
 * letter. What is wrong is said in one line on stderr that names the option, what was given and
 * what is allowed. All have --help, --version, --quiet, and --completion, which prints what bash
 * completes them by. */
#ifndef TOOL_ARGS_H
#define TOOL_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradientflow.h"

typedef enum tool_option_kind {
    TOOL_FLAG,   /* bool *; no value */
    TOOL_TEXT,   /* const char **; not empty */
    TOOL_NUMBER, /* uint64_t *; low..high */
    TOOL_SIZE,   /* uint64_t *; bytes with K, M, G (or KiB ..), low..high */
    TOOL_REAL,   /* double *; low_real..high_real */
    /* struct tool_settings *; GROUP.KEY=VALUE, may be repeated: gf_config_set_all() */
    TOOL_SETTINGS
} tool_option_kind;

#define TOOL_SETTINGS_MAX 64u
struct tool_settings {
    uint32_t count;
    const char *text[TOOL_SETTINGS_MAX];
};

struct tool_option {
    const char *name; /* without the dashes */
    tool_option_kind kind;
    void *value_out;        /* left alone where the option is not given: put the default there */
    const char *value_name; /* "FILE", for the usage text */
    const char *help;
    uint64_t low, high; /* high 0: no upper bound */
    double low_real, high_real;
    const char *allowed; /* text: "fp32|fp16|bf16", or NULL for any */
    bool *given_out;     /* NULL, or set where the option is there; twice is refused */
    /* text: the value may be missing, and what follows is one if it begins as a number does, or,
     * of a program without operands, if it is no option */
    bool optional;
    char letter; /* 0, or 'b': "-b" is the same */
};

struct tool_args {
    const char *program; /* "gf-check" */
    const char *usage;   /* what stands after the program's name: "FILE [options]" */
    const char *about;   /* a line or two */
    const struct tool_option *options;
    size_t option_count;
    uint32_t operands_min, operands_max;
    /* the first operand ends the options: what follows belongs to another program */
    bool operands_end;
};

#define TOOL_EXIT_USAGE 2
#define TOOL_EXIT_LEFT 75 /* to gf-run: this rank has left, the others go on */
/* --quiet was given: what goes to stdout is lost, and progress is not shown */
extern bool tool_quiet;
/* from a tool's own reader of options: they are right, but a file that they name is not */
#define TOOL_FAILED -2

/* At most 64 options. The four that all tools have are answered here.
 *     0: go on; operands_out[operands_max] points into argv. With operands_end it may be NULL, and
 *         what is left begins
 *        at argv[argc - *operand_count_out].
 *     1: what was asked for has been printed; exit with 0.
 *    -1: refused, and said why; exit with TOOL_EXIT_USAGE. */
int tool_args_read(const struct tool_args *args, int argc, char **argv, const char **operands_out,
                   uint32_t *operand_count_out);
/* The exit code for what that returned, 0 excepted, or TOOL_FAILED. */
int tool_args_exit(int read);

#endif
