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
/* Names of files, hosts, clusters and tensors may hold any byte. Terminals, JSON and XML get valid
 * UTF-8: letters stay, each other byte is written as \xNN. */
#define TOOL_LETTER_BYTES 5u /* "\xNN" and its end */
/* How the letter that text begins with is written; returns how many bytes of text that were. */
size_t tool_letter(const char *text, char letter_out[static TOOL_LETTER_BYTES]);
/* The whole text, cut where out[out_bytes] is full; 4 bytes for each of the text's suffice. */
void tool_plain_text(const char *text, char *out, size_t out_bytes);
void tool_json_text(FILE *out, const char *text); /* in quotes; a backslash of \xNN is escaped */

/* main() of a tool, around program(argc, argv), which gives the exit code. */
#define TOOL_MAIN(name, program)                           \
    int main(int argc, char **argv)                        \
    {                                                      \
        tool_output_begin();                               \
        return tool_output_end(name, program(argc, argv)); \
    }

#endif
