/* Files of the kernel, such as /proc/meminfo, read line by line. */
#ifndef GF_LINES_H
#define GF_LINES_H

#include <stdbool.h>

/* Gives each line to visit(), until that gives false; of a longer one than 767 bytes the end.
 * false: the file cannot be read. */
bool gf_lines_visit(const char *path, bool (*visit)(void *arg, char *line), void *arg);

#endif
