/* A tool's standard streams, so that a full disk or a reader that has gone is an error of the tool,
 * not of the job. */
#ifndef TOOL_OUTPUT_H
#define TOOL_OUTPUT_H

#include <stdio.h>

/* First of all: a broken pipe, or a file over ulimit -f, is an error of the write, not a signal,
 * and a stream that was closed stays unusable: nothing else that is opened takes its number. */
void tool_output_begin(void);
/* Last: `code`, or EXIT_FAILURE, with a line on stderr, where stdout did not take all that was
 * printed. */
int tool_output_end(const char *program, int code);
/* Bytes of the letter that text begins with; 0: it is none of UTF-8, or a control character. Names
 * of files, hosts and clusters may hold both, JSON and XML must not: '?' is written instead. */
int tool_letter_bytes(const char *text);
void tool_json_text(FILE *out, const char *text); /* in quotes */

/* main() of a tool, around program(argc, argv), which gives the exit code. */
#define TOOL_MAIN(name, program)                           \
    int main(int argc, char **argv)                        \
    {                                                      \
        tool_output_begin();                               \
        return tool_output_end(name, program(argc, argv)); \
    }

#endif
