/* UCX's segments of shared memory without names. UCX makes a file in /dev/shm, fills it, and only then takes its name
 * away: a process that is killed in between leaves it there until the host starts again. Peers map a segment
 * through /proc/PID/fd, so it needs no name at any time. UCX's calls are led here (ucx.mk, dynamic_calls.c). */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int __real_shm_open(const char *name, int flags, mode_t mode) __attribute__((weak));
int __real_shm_unlink(const char *name) __attribute__((weak));
int __wrap_shm_open(const char *name, int flags, mode_t mode);
int __wrap_shm_unlink(const char *name);

static bool is_ucx(const char *name) { return strncmp(name, "/ucx_shm_posix_", 15) == 0; }

int __wrap_shm_open(const char *name, int flags, mode_t mode)
{
    const char *by_name = getenv("UCX_POSIX_USE_PROC_LINK"); /* UCX's own setting: n is for peers without /proc */
    int fd = -1;
    if (is_ucx(name) && ((flags & O_CREAT) != 0) && (by_name == NULL))
        fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
    return (fd >= 0) ? fd : __real_shm_open(name, flags, mode);
}

int __wrap_shm_unlink(const char *name)
{
    int result = __real_shm_unlink(name);
    return ((result != 0) && (errno == ENOENT) && is_ucx(name)) ? 0 : result; /* it had no name */
}
