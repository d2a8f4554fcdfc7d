/* A tool's standard streams, so that a full disk or a reader that has gone is an error of the tool, not of the job. */
#ifndef TOOL_OUTPUT_H
#define TOOL_OUTPUT_H

/* First in main(): a broken pipe, or a file over ulimit -f, is an error of the write, not a signal, and a stream that
 * was closed stays unusable: nothing else that is opened takes its number. */
void tool_output_begin(void);
/* Last in main(): `code`, or EXIT_FAILURE, with a line on stderr, where stdout did not take all that was printed. */
int tool_output_end(const char *program, int code);

#endif
