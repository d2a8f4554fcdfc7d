/* See descriptors.h. */
#include "drivers/base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define STREAMS 3 /* stdin, stdout, stderr */

void gf_descriptors_hold(void)
{
    for (int number = 0; number < STREAMS; number++) {
        if (fcntl(number, F_GETFD) >= 0) continue;
        /* The lowest that is free, so this one, or another of them; above them a thread of the
         * program was faster. */
        const int held = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (held >= STREAMS) (void)close(held);
    }
}

int gf_descriptor_keep(int fd)
{
    if ((fd < 0) || (fd >= STREAMS)) return fd;
    const int kept = fcntl(fd, F_DUPFD_CLOEXEC, STREAMS);
    const int error = errno;
    (void)close(fd);
    errno = error;
    return kept;
}
