#include "drivers/base/lines.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

bool gf_lines_visit(const char *path, bool (*visit)(void *arg, char *line), void *arg)
{
    char buffer[768];
    size_t have = 0;
    ssize_t got = 0;
    bool more = true;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    while (more && ((got = read(fd, buffer + have, sizeof buffer - 1 - have)) > 0)) {
        char *line = buffer;
        char *end;
        have += (size_t)got;
        buffer[have] = '\0';
        while (more && ((end = strchr(line, '\n')) != NULL)) {
            *end = '\0';
            more = visit(arg, line);
            line = end + 1;
        }
        have -= (size_t)(line - buffer);
        if (have == sizeof buffer - 1) have = 0; /* a line longer than the buffer: read on in it */
        memmove(buffer, line, have);
    }
    (void)close(fd);
    return got >= 0;
}
