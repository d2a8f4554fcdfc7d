/* Files of the user's: what is opened by name, and files that are there whole or not at all:
 * written under another name beside it, forced to the disk, renamed. Results, traces and
 * checkpoints are written this way. */
#ifndef TOOL_FILE_H
#define TOOL_FILE_H

#include <stdint.h>
#include <stdio.h>

#define TOOL_FILE_PATH_BYTES 1024u

/* Opens a regular file and nothing else, as a configuration is opened: a FIFO would wait for its
 * other end, and a device does what opening it does. `flags` are O_RDONLY and the like. -1: errno
 * (ENOENT: there is none), and why_out[TOOL_FILE_WHY_BYTES], to stand behind "PATH: ". */
#define TOOL_FILE_WHY_BYTES 128u
int tool_file_open(const char *path, int flags, char *why_out);
/* Up to max bytes of it; -1 likewise. */
int64_t tool_file_read(const char *path, void *data, uint64_t max, char *why_out);

struct tool_file {
    FILE *stream; /* between begin and end: for fprintf() and fwrite(), whose errors end finds */
    char path[TOOL_FILE_PATH_BYTES];
    char part[TOOL_FILE_PATH_BYTES + 8u]; /* PATH.part */
    char error[TOOL_FILE_PATH_BYTES + 192u];
};

/* All give 0, or -1 with "PATH: call: why" in `error`, and then nothing of it is left. What is
 * there already must be a regular file: the rename would replace a device or a link. */
int tool_file_begin(struct tool_file *file, const char *path);
int tool_file_end(struct tool_file *file);
/* End in two parts, for who does something between them: PATH.part is whole; it becomes PATH. */
int tool_file_close(struct tool_file *file);
int tool_file_rename(struct tool_file *file);
/* Instead of end. */
void tool_file_drop(struct tool_file *file);
/* Could it be written? A long run asks before it begins. NULL: nothing is asked, 0. */
int tool_file_check(struct tool_file *file, const char *path);
/* Names that were changed last only once their folder is on the disk. 0, or -1 and errno. */
int tool_file_folder_sync(const char *path);

#endif
