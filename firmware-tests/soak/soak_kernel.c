/* What the ranks of each job ask the kernel for anew, and one process may keep: a third of a small
 * job's time. soak_main is linked with these in the place of libc's (--wrap). */
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define CLASSES 64u
#define KEPT_MAX 32u

void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t size);
int __real_open(const char *path, int flags, int mode);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *at, size_t size);
int __wrap_open(const char *path, int flags, int mode);

/* Mappings that were given back, by the power of two that they have room for. */
static struct {
    void *all[KEPT_MAX];
    unsigned count;
} kept[CLASSES];
static unsigned class_of(size_t size)
{
    return 64u - (unsigned)__builtin_clzl(size | 4095);
}

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    unsigned class = class_of(size);
    if ((at != NULL) || (fd != -1)) return __real_mmap(at, size, protection, flags, fd, offset);
    if (kept[class].count > 0) return kept[class].all[--kept[class].count];
    return __real_mmap(NULL, (size_t)1 << class, protection, flags | MAP_NORESERVE, -1, 0);
}

/* Zeroes for whoever is next. */
int __wrap_munmap(void *at, size_t size)
{
    unsigned class = class_of(size);
    if (kept[class].count == KEPT_MAX) return __real_munmap(at, (size_t)1 << class);
    kept[class].all[kept[class].count++] = at;
    return madvise(at, size, MADV_DONTNEED);
}

/* How much memory the process has: the same for all its ranks, and nobody asks them. */
int __wrap_open(const char *path, int flags, int mode)
{
    return (strcmp(path, "/proc/self/statm") == 0) ? -1 : __real_open(path, flags, mode);
}
