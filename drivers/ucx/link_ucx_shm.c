/* What this host must have for UCX's shared memory, looked at before UCX is opened: UCX itself
 * would say "Shared memory error", or fill the file system first to find out. */
#include "drivers/ucx/link_ucx.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Of UCX's share the largest file takes so much. */
#define UCX_FILE_BYTES ((uint64_t)4 << 20)
/* Segments of a rank: receive queue, buffers, region (df -i, 2 and 4 ranks, direct and ring). */
#define INODES 3u

/* A segment is a file, too: beyond the limit the kernel refuses it, and UCX says "Out of
 * memory". */
static gf_status file_size_check(struct gf_ucx *ucx)
{
    uint64_t need_bytes = (ucx->mapped_bytes > UCX_FILE_BYTES) ? ucx->mapped_bytes : UCX_FILE_BYTES;
    struct rlimit file;
    if ((getrlimit(RLIMIT_FSIZE, &file) != 0) || (file.rlim_cur >= need_bytes)) return GF_OK;
    return gf_ucx_refuse(
        ucx, GF_ERR_SYSTEM,
        "a file may have %llu KiB here (ulimit -f); shared memory takes files of %llu KiB in %s",
        (unsigned long long)file.rlim_cur / 1024, (unsigned long long)(need_bytes + 1023) / 1024,
        gf_ucx_shm_directory());
}

static gf_status directory_check(struct gf_ucx *ucx)
{
    const char *directory = gf_ucx_shm_directory();
    uint64_t need_bytes =
        GF_UCX_SHARE_BYTES + ((ucx->memory == NULL) ? (uint64_t)ucx->mapped_bytes : 0);
    uint64_t free_bytes;
    uint64_t whole_bytes;
    struct statvfs space;
    if (statvfs(directory, &space) != 0)
        return gf_ucx_refuse(ucx, GF_ERR_SYSTEM, "%s: %s; shared memory lies there", directory,
                             strerror(errno));
    if ((space.f_flag & ST_RDONLY) != 0)
        return gf_ucx_refuse(ucx, GF_ERR_SYSTEM, "%s is read-only; shared memory lies there",
                             directory);
    if (access(directory, W_OK | X_OK) != 0)
        return gf_ucx_refuse(ucx, GF_ERR_SYSTEM, "%s: this user may not write there", directory);
    if ((space.f_files != 0) && (space.f_favail < INODES))
        return gf_ucx_refuse(ucx, GF_ERR_SYSTEM, "%u inodes are free on %s, %u are needed",
                             (unsigned)space.f_favail, directory, INODES);
    if (file_size_check(ucx) != GF_OK) return GF_ERR_SYSTEM;
    free_bytes = (uint64_t)space.f_bavail * space.f_frsize;
    whole_bytes = (uint64_t)space.f_blocks * space.f_frsize;
    /* no blocks: a tmpfs without a limit */
    if ((space.f_blocks == 0) || (free_bytes >= need_bytes)) return GF_OK;
    return gf_ucx_refuse(
        ucx, GF_ERR_SYSTEM,
        "%s has %llu of %llu MiB free, %llu are needed: the exchange region, and UCX's %llu",
        directory, (unsigned long long)(free_bytes >> 20), (unsigned long long)(whole_bytes >> 20),
        (unsigned long long)((need_bytes + (1u << 20) - 1) >> 20),
        (unsigned long long)(GF_UCX_SHARE_BYTES >> 20));
}

gf_status gf_ucx_shm_check(struct gf_ucx *ucx)
{
    uint64_t host_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (ucx->setup.region_bytes > host_bytes)
        return gf_ucx_refuse(
            ucx, GF_ERR_SYSTEM,
            "an exchange region of %zu bytes is needed, the host has %llu bytes of memory",
            ucx->setup.region_bytes, (unsigned long long)host_bytes);
    if (access("/proc/self/fd", X_OK) != 0)
        return gf_ucx_refuse(ucx, GF_ERR_SYSTEM,
                             "/proc is not mounted, or hidden: UCX reaches peers and settings of "
                             "the kernel through it");
    return gf_ucx_list_has(ucx->transports, "posix") ? directory_check(ucx) : GF_OK;
}

char *gf_ucx_shm_text(const struct gf_ucx *ucx, char *text_out, size_t text_bytes)
{
    struct statvfs space;
    text_out[0] = '\0';
    if (!gf_ucx_list_has(ucx->transports, "posix") ||
        (statvfs(gf_ucx_shm_directory(), &space) != 0))
        return text_out;
    (void)snprintf(text_out, text_bytes, "; %.60s has %llu of %llu MiB free, %llu of %llu inodes",
                   gf_ucx_shm_directory(),
                   (unsigned long long)(((uint64_t)space.f_bavail * space.f_frsize) >> 20),
                   (unsigned long long)(((uint64_t)space.f_blocks * space.f_frsize) >> 20),
                   (unsigned long long)space.f_favail, (unsigned long long)space.f_files);
    return text_out;
}

/* ---- what pages the kernel really gave for a mapping, read from /proc/self/smaps with a small
 * buffer ---- */

struct pages {
    unsigned long base;
    bool inside; /* between the header of our mapping and the next one */
    unsigned long page_kib, huge_kib;
};

static void line_read(struct pages *pages, const char *line)
{
    unsigned long first = 0;
    unsigned long last = 0;
    unsigned long kib = 0;
    if (sscanf(line, "%lx-%lx ", &first, &last) == 2) {
        pages->inside = (first <= pages->base) && (pages->base < last);
    } else if (pages->inside) {
        if (sscanf(line, "KernelPageSize: %lu kB", &kib) == 1)
            pages->page_kib = kib;
        else if (sscanf(line, "AnonHugePages: %lu kB", &kib) == 1)
            pages->huge_kib += kib;
        else if (sscanf(line, "ShmemPmdMapped: %lu kB", &kib) == 1)
            pages->huge_kib += kib;
    }
}

char *gf_ucx_pages_text(const void *base, char *text_out, size_t text_bytes)
{
    struct pages pages = {.base = (unsigned long)(uintptr_t)base};
    char buffer[1024];
    size_t have = 0;
    ssize_t got;
    int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    (void)snprintf(text_out, text_bytes, "pages of unknown size");
    if (fd < 0) return text_out;
    while ((got = read(fd, buffer + have, sizeof buffer - 1 - have)) > 0) {
        char *line = buffer;
        char *end;
        have += (size_t)got;
        buffer[have] = '\0';
        while ((end = strchr(line, '\n')) != NULL) {
            *end = '\0';
            line_read(&pages, line);
            line = end + 1;
        }
        have -= (size_t)(line - buffer);
        if (have == sizeof buffer - 1) have = 0; /* a path longer than the buffer: read on in it */
        memmove(buffer, line, have);
    }
    (void)close(fd);
    if (pages.page_kib != 0)
        (void)snprintf(text_out, text_bytes,
                       "pages of %lu KiB, and %lu KiB of it in transparent huge pages",
                       pages.page_kib, pages.huge_kib);
    return text_out;
}
