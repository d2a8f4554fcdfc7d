/* See tool_args.h. */
#include "tools/common/tool_args.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "config/config_keys.h" /* the same numbers and sizes as in configuration files */

#define KEY_BYTES 64

bool tool_quiet;

__attribute__((format(printf, 2, 3))) static int refuse(const struct tool_args *args,
                                                        const char *format, ...)
{
    va_list arguments;
    (void)fprintf(stderr, "%s: ", args->program);
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fprintf(stderr, "\nusage: %s %s   (--help says more)\n", args->program, args->usage);
    return -1;
}

static void help_print(const struct tool_args *args)
{
    (void)printf("usage: %s %s\n%s\n\n", args->program, args->usage, args->about);
    for (size_t i = 0; i < args->option_count; i++) {
        const struct tool_option *option = &args->options[i];
        char left[64];
        char letter[8] = "";
        if (option->letter != '\0') (void)snprintf(letter, sizeof letter, ", -%c", option->letter);
        (void)snprintf(left, sizeof left, "--%s%s %s", option->name, letter,
                       option->value_name ? option->value_name : "");
        (void)printf("  %-24s %s", left, option->help);
        if (option->allowed != NULL) (void)printf("; %s", option->allowed);
        (void)printf("\n");
    }
    (void)printf("  %-24s %s\n  %-24s %s\n  %-24s %s\n", "--quiet",
                 "nothing on stdout, and no progress", "--help, -h", "this text", "--version",
                 "of the library");
}

/* For bash: names of options, values where they are a list, else files, or a program where one
 * follows. */
static void completion_print(const struct tool_args *args)
{
    (void)printf(
        "_%1$.2s_%2$s()\n{\n    local word=${COMP_WORDS[COMP_CWORD]} "
        "before=${COMP_WORDS[COMP_CWORD-1]}\n"
        "    [ \"$word\" = = ] && word=\n"
        "    [ \"$before\" = = ] && before=${COMP_WORDS[COMP_CWORD-2]}\n    case $before in\n",
        args->program, args->program + 3);
    for (size_t i = 0; i < args->option_count; i++) {
        const struct tool_option *option = &args->options[i];
        if (option->kind == TOOL_FLAG) continue;
        (void)printf("    --%s", option->name);
        if (option->letter != '\0') (void)printf("|-%c", option->letter);
        (void)printf(")");
        if (option->allowed != NULL) (void)printf(" COMPREPLY=($(compgen -W '");
        for (const char *at = option->allowed; (at != NULL) && (*at != '\0'); at++)
            (void)putchar((*at == '|') ? ' ' : *at);
        if (option->allowed != NULL) (void)printf("' -- \"$word\"));");
        (void)printf(" return;;\n");
    }
    (void)printf("    esac\n    case $word in\n    -*) COMPREPLY=($(compgen -W '");
    for (size_t i = 0; i < args->option_count; i++) (void)printf("--%s ", args->options[i].name);
    (void)printf("--quiet --help --version' -- \"$word\"));;\n");
    if (args->operands_end) (void)printf("    *) COMPREPLY=($(compgen -c -- \"$word\"));;\n");
    (void)printf("    esac\n}\ncomplete -o default -F _%.2s_%s %s\n", args->program,
                 args->program + 3, args->program);
}

/* Is `text` one of "a|b|c"? */
static bool text_allowed(const char *allowed, const char *text)
{
    size_t length = strlen(text);
    for (; *allowed != '\0'; allowed += strcspn(allowed, "|"), allowed += (*allowed == '|'))
        if ((strcspn(allowed, "|") == length) && (strncmp(allowed, text, length) == 0)) return true;
    return false;
}

static int number_refuse(const struct tool_args *args, const struct tool_option *option,
                         const char *text)
{
    const char *what =
        (option->kind == TOOL_SIZE) ? "a size, as 4096, 4K or 4M," : "a whole number";
    if (option->high == 0)
        return refuse(args, "--%s %s: allowed is %s from %llu", option->name, text, what,
                      (unsigned long long)option->low);
    return refuse(args, "--%s %s: allowed is %s from %llu to %llu", option->name, text, what,
                  (unsigned long long)option->low, (unsigned long long)option->high);
}

static int value_read(const struct tool_args *args, const struct tool_option *option,
                      const char *text)
{
    uint64_t number;
    double real;
    bool read;
    switch (option->kind) {
    case TOOL_FLAG: break;
    case TOOL_TEXT:
        if (text[0] == '\0') return refuse(args, "--%s: its value is empty", option->name);
        if ((option->allowed != NULL) && !text_allowed(option->allowed, text))
            return refuse(args, "--%s %s: allowed is %s", option->name, text, option->allowed);
        *(const char **)option->value_out = text;
        return 0;
    case TOOL_NUMBER:
    case TOOL_SIZE:
        read = (option->kind == TOOL_SIZE) ? gf_bytes_read(text, &number)
                                           : gf_number_read(text, &number);
        if (!read || (number < option->low) || ((option->high != 0) && (number > option->high)))
            return number_refuse(args, option, text);
        *(uint64_t *)option->value_out = number;
        return 0;
    case TOOL_REAL:
        if (!gf_real_read(text, &real) || !(real >= option->low_real) ||
            !(real <= option->high_real))
            return refuse(args, "--%s %s: allowed is a number from %g to %g", option->name, text,
                          option->low_real, option->high_real);
        *(double *)option->value_out = real;
        return 0;
    case TOOL_SETTINGS: {
        struct tool_settings *settings = option->value_out;
        size_t key_bytes = strcspn(text, "=");
        if ((text[key_bytes] == '\0') || (key_bytes == 0) || (key_bytes >= KEY_BYTES))
            return refuse(args, "--%s %s: allowed is GROUP.KEY=VALUE", option->name, text);
        if (settings->count == TOOL_SETTINGS_MAX)
            return refuse(args, "--%s: allowed are %u of them", option->name, TOOL_SETTINGS_MAX);
        settings->text[settings->count++] = text;
        return 0;
    }
    }
    return refuse(args, "--%s takes no value", option->name);
}

/* "; did you mean --iters?" where a name is near. */
static const char *option_hint(const struct tool_args *args, const char *name, size_t length,
                               char *text_out)
{
    char given[48];
    unsigned best = GF_SLIPS_MAX + 1;
    (void)snprintf(given, sizeof given, "%.*s", (int)length, name);
    text_out[0] = '\0';
    for (size_t i = 0; i < args->option_count; i++) {
        unsigned slips = gf_word_slips(given, args->options[i].name);
        if (slips >= best) continue;
        best = slips;
        (void)snprintf(text_out, GF_KEY_HINT_BYTES, "; did you mean --%s?", args->options[i].name);
    }
    return text_out;
}

static size_t option_find(const struct tool_args *args, const char *name, size_t length)
{
    size_t i = 0;
    for (; i < args->option_count; i++)
        if ((strlen(args->options[i].name) == length) &&
            (strncmp(args->options[i].name, name, length) == 0))
            break;
    return i;
}

/* What follows an option whose value may be missing: an operand begins with no digit. */
static bool may_be_value(const struct tool_args *args, const char *text)
{
    bool has_operands = (args->operands_max > 0) || args->operands_end;
    return has_operands ? (strchr("0123456789.", text[0]) != NULL) : (text[0] != '-');
}

/* "-b" alone: what follows a letter is not its value. */
static size_t letter_find(const struct tool_args *args, const char *letter)
{
    size_t i = 0;
    for (; i < args->option_count; i++)
        if ((args->options[i].letter != '\0') && (letter[0] == args->options[i].letter) &&
            (letter[1] == '\0'))
            break;
    return i;
}

/* The option in argv[*at]: "--name" or a letter; moves *at to the last argument it used. */
static int option_read(const struct tool_args *args, int argc, char **argv, int *at, uint64_t *seen)
{
    bool is_letter = argv[*at][1] != '-';
    const char *name = argv[*at] + (is_letter ? 1 : 2);
    size_t length = strcspn(name, "=");
    size_t index = is_letter ? letter_find(args, name) : option_find(args, name, length);
    const struct tool_option *option = &args->options[index];
    bool attached = name[length] == '=';
    char hint[GF_KEY_HINT_BYTES];
    if (is_letter && (index == args->option_count))
        return refuse(args, "unknown option %s", argv[*at]);
    if (index == args->option_count)
        return refuse(args, "unknown option --%.*s%s", (int)length, name,
                      option_hint(args, name, length, hint));
    if ((*seen & (1ull << index)) && (option->kind != TOOL_SETTINGS))
        return refuse(args, "--%s is given twice", option->name);
    *seen |= 1ull << index;
    if (option->given_out != NULL) *option->given_out = true;
    if (option->kind == TOOL_FLAG) {
        if (attached) return refuse(args, "--%s takes no value", option->name);
        *(bool *)option->value_out = true;
        return 0;
    }
    bool follows = !attached && (*at + 1 < argc);
    if (option->optional && !attached && !(follows && may_be_value(args, argv[*at + 1]))) return 0;
    if (!attached && !follows) return refuse(args, "--%s needs a value", option->name);
    return value_read(args, option, attached ? name + length + 1 : argv[++*at]);
}

/* What every tool answers by itself. */
static bool own_option(const struct tool_args *args, const char *text)
{
    bool help = (strcmp(text, "--help") == 0) || (strcmp(text, "-h") == 0),
         version = strcmp(text, "--version") == 0;
    bool completion = strcmp(text, "--completion") == 0;
    if (help) help_print(args);
    if (version) (void)printf("%s %d.%d\n", args->program, GF_VERSION_MAJOR, GF_VERSION_MINOR);
    if (completion) completion_print(args);
    return help || version || completion;
}

int tool_args_read(const struct tool_args *args, int argc, char **argv, const char **operands_out,
                   uint32_t *operand_count_out)
{
    uint64_t seen = 0;
    uint32_t count = 0;
    bool options_end = false;
    for (int i = 1; i < argc; i++) {
        bool is_option = !options_end && (argv[i][0] == '-') && (argv[i][1] != '\0');
        if (is_option && own_option(args, argv[i])) return 1;
        if (is_option && (strcmp(argv[i], "--quiet") == 0)) {
            tool_quiet = true;
        } else if (is_option && (strcmp(argv[i], "--") == 0)) {
            options_end = true;
        } else if (is_option) {
            int read = option_read(args, argc, argv, &i, &seen);
            if (read != 0) return read;
        } else if (args->operands_end) {
            count = (uint32_t)(argc - i);
            break;
        } else {
            if (count == args->operands_max)
                return refuse(args, "%s is one argument too many", argv[i]);
            operands_out[count++] = argv[i];
        }
    }
    if (count < args->operands_min) return refuse(args, "an argument is missing");
    *operand_count_out = count;
    if (tool_quiet && (freopen("/dev/null", "w", stdout) == NULL))
        return refuse(args, "--quiet: no /dev/null");
    return 0;
}

int tool_args_exit(int read)
{
    return (read > 0) ? EXIT_SUCCESS : (read == TOOL_FAILED) ? EXIT_FAILURE : TOOL_EXIT_USAGE;
}
