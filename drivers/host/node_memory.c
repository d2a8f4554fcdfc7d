/* The memory of a rank: the limits of this host, the memfd and its pages, and how a peer maps
 * it. */
#include "drivers/host/node_state.h"
#include "drivers/base/descriptors.h"
#include "drivers/base/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* No process may shrink or grow a memfd that others have mapped, nor change its seals. */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* ---- limits of this host ---- */

/* A number of a file: of the line that begins with `name`. "max" is none. */
struct number {
    const char *name;
    uint64_t value;
    bool found;
};

static bool number_line_read(void *arg, char *line)
{
    struct number *number = arg;
    unsigned long long value;
    size_t length = strlen(number->name);
    if ((strncmp(line, number->name, length) != 0) || (sscanf(line + length, "%llu", &value) != 1))
        return true;
    number->value = value;
    number->found = true;
    return false;
}

static bool number_read(const char *folder, const char *file, const char *name, uint64_t *value_out)
{
    struct number number = {.name = name};
    char path[400];
    int length = snprintf(path, sizeof path, "%s/%s", folder, file);
    if ((length < 0) || ((size_t)length >= sizeof path)) return false;
    (void)gf_lines_visit(path, number_line_read, &number);
    if (number.found) *value_out = number.value;
    return number.found;
}

static unsigned long long mib(uint64_t bytes)
{
    return (unsigned long long)((bytes + (1u << 20) - 1) >> 20);
}

/* A request for memory, and the text of the limit that it would exceed. */
struct lack {
    size_t bytes;
    char *text_out;
    size_t text_bytes;
};

static bool folder_lacks(const struct lack *lack, const char *folder, const char *limit_name,
                         const char *used_name)
{
    uint64_t limit;
    uint64_t used;
    uint64_t cache = 0;
    if (!number_read(folder, limit_name, "", &limit) || !number_read(folder, used_name, "", &used))
        return false;
    for (int i = 0; i < 2; i++) { /* files that were read: the kernel gives them up */
        uint64_t bytes;
        if (number_read(folder, "memory.stat", (i == 0) ? "inactive_file " : "active_file ",
                        &bytes))
            cache += bytes;
    }
    used -= (cache < used) ? cache : used;
    if (limit >= used + lack->bytes) return false;
    (void)snprintf(lack->text_out, lack->text_bytes,
                   "its control group has %llu of %llu MiB of memory in use (%.80s/%s), "
                   "%llu more are needed",
                   mib(used), mib(limit), folder, limit_name, mib(lack->bytes));
    return true;
}

/* The limits of this process's group and of all groups that contain it. */
static bool group_lacks(const struct lack *lack, const char *root, const char *group,
                        const char *limit_name, const char *used_name)
{
    char folder[320];
    int length = snprintf(folder, sizeof folder, "%s%s", root, group);
    if ((length < 0) || ((size_t)length >= sizeof folder)) return false;
    for (;;) {
        char *slash;
        if (folder_lacks(lack, folder, limit_name, used_name)) return true;
        slash = strrchr(folder, '/');
        if ((slash == NULL) || ((size_t)(slash - folder) < strlen(root))) return false;
        *slash = '\0';
    }
}

/* Version 2 has one line "0::/group", version 1 one for each controller, "4:memory:/group". */
static bool group_line_read(void *arg, char *line)
{
    const struct lack *lack = arg;
    char *controllers = strchr(line, ':');
    char *group = (controllers == NULL) ? NULL : strchr(controllers + 1, ':');
    if (group == NULL) return true;
    *group++ = '\0';
    if (controllers[1] == '\0')
        return !group_lacks(lack, "/sys/fs/cgroup", group, "memory.max", "memory.current");
    if (strcmp(controllers + 1, "memory") != 0) return true;
    return !group_lacks(lack, "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes",
                        "memory.usage_in_bytes");
}

char *gf_node_limits_text(size_t bytes, bool shared, char *text_out, size_t text_bytes)
{
    const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    struct lack lack = {bytes, text_out, text_bytes};
    struct rlimit limit;
    uint64_t value;
    text_out[0] = '\0';
    if (shared && (getrlimit(RLIMIT_FSIZE, &limit) == 0) && (limit.rlim_cur < bytes)) {
        (void)snprintf(
            text_out, text_bytes,
            "a file may have %llu KiB here (ulimit -f); shared memory is one, of %llu KiB",
            (unsigned long long)limit.rlim_cur / 1024, (unsigned long long)(bytes + 1023) / 1024);
        return text_out;
    }
    if ((getrlimit(RLIMIT_AS, &limit) == 0) && (limit.rlim_cur != RLIM_INFINITY) &&
        number_read("/proc/self", "statm", "", &value) &&
        (limit.rlim_cur < value * page_bytes + bytes)) {
        (void)snprintf(
            text_out, text_bytes,
            "this process may map %llu MiB (ulimit -v) and has %llu; %llu more are needed",
            mib(limit.rlim_cur), mib(value * page_bytes), mib(bytes));
        return text_out;
    }
    (void)gf_lines_visit("/proc/self/cgroup", group_line_read, &lack);
    if (text_out[0] != '\0') return text_out;
    if (number_read("/proc", "meminfo", "MemAvailable:", &value) && (value * 1024 < bytes))
        (void)snprintf(text_out, text_bytes,
                       "this host has %llu MiB of memory available, %llu are needed",
                       mib(value * 1024), mib(bytes));
    return text_out;
}

/* ---- the memory ---- */

static gf_status no_room(struct gf_node *node, size_t bytes, const char *call, int code)
{
    char limits[200];
    (void)gf_node_limits_text(bytes, node->shared, limits, sizeof limits);
    if (limits[0] == '\0') (void)snprintf(limits, sizeof limits, "%s: %s", call, strerror(code));
    return gf_node_fault(node, GF_ERR_SYSTEM, GF_RANK_NONE, call,
                         "an exchange region of %zu bytes: %.140s", node->region_bytes, limits);
}

/* What one call reserves, and how often one call may be interrupted in a row. */
#define RESERVE_BYTES ((size_t)1 << 20)
#define RESERVE_TRIES 1000u

/* Linux 6.1 ends fallocate() with EINTR for any pending signal, and gives back what the call had
 * taken: under a timer of 10 ms no call for more than about ten MiB would ever succeed. So pages
 * are taken `once` bytes a call, and fewer after each signal. Signals that arrive faster than one
 * page can be taken are an error. */
static bool reserve(int fd, size_t bytes, size_t page_bytes)
{
    const size_t once_most = node_round_up(RESERVE_BYTES, page_bytes);
    size_t once = once_most;
    uint32_t tries = 0;
    for (size_t done = 0; done < bytes;) {
        const size_t size = (bytes - done < once) ? bytes - done : once;
        if (fallocate(fd, 0, (off_t)done, (off_t)size) == 0) {
            done += size;
            tries = 0;
            if (once < once_most) once *= 2;
        } else {
            if ((errno != EINTR) || (++tries == RESERVE_TRIES)) return false;
            if (once / 2 % page_bytes == 0) once /= 2;
        }
    }
    return true;
}

/* A memfd of at least so many bytes, all of whose pages are taken; -1: there is none. The owner
 * takes them, so that they lie on its NUMA node, and by fallocate(), which fails if they are
 * lacking: a first store to a lacking page would kill the process. */
static int memfd_take(size_t *bytes, unsigned flags, bool reserves)
{
    struct stat at;
    int fd =
        memfd_create("gradientflow", flags | MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    int code;
    if ((fd < 0) && (errno == EINVAL))
        fd = memfd_create("gradientflow", flags | MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if ((fd = gf_descriptor_keep(fd)) < 0) return -1;
    if (fstat(fd, &at) == 0) {
        if ((flags & MFD_HUGETLB) != 0) *bytes = node_round_up(*bytes, (size_t)at.st_blksize);
        if ((ftruncate(fd, (off_t)*bytes) == 0) &&
            (!reserves || reserve(fd, *bytes, (size_t)at.st_blksize)) &&
            (fcntl(fd, F_ADD_SEALS, SEALS) == 0))
            return fd;
    }
    code = errno;
    (void)close(fd);
    errno = code;
    return -1;
}

unsigned char *gf_node_fd_map(int fd, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return (memory == MAP_FAILED) ? NULL : memory;
}

/* Advised memory gets transparent huge pages at its first touch; fallocate() would take small
 * ones. */
static bool populate(unsigned char *memory, size_t bytes)
{
    for (uint32_t tries = 0; tries < RESERVE_TRIES; tries++) {
        if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0) return true;
        if (errno == EINVAL) return true; /* an older kernel: fallocate() then */
        if (errno != EINTR) break;        /* pages that are there stay */
    }
    return false;
}

static bool huge_take(struct gf_node *node, size_t bytes)
{
    size_t huge_bytes = bytes;
    int fd = memfd_take(&huge_bytes, MFD_HUGETLB, true);
    unsigned char *memory = (fd < 0) ? NULL : gf_node_fd_map(fd, huge_bytes);
    if ((memory == NULL) && (fd >= 0)) (void)close(fd);
    if (memory == NULL) return false;
    node->memory_fd = fd;
    node->memory = memory;
    node->memory_bytes = huge_bytes;
    return true;
}

/* GF_OK, and node->memory is still NULL: this host has none that can be shared, and *why_out says
 * why. */
static gf_status shared_take(struct gf_node *node, size_t bytes, const char **why_out)
{
    unsigned char *memory;
    int fd;
    if (node->huge_pages && huge_take(node, bytes)) return GF_OK;
    fd = memfd_take(&bytes, 0, !node->huge_pages);
    if ((fd < 0) && ((errno == ENOSYS) || (errno == EPERM) || (errno == EACCES))) {
        *why_out = "memfd_create() is refused";
        return GF_OK;
    }
    if (fd < 0) return no_room(node, bytes, "fallocate", errno);
    memory = gf_node_fd_map(fd, bytes);
    if (memory != NULL) {
        node->memory_fd = fd;
        node->memory = memory;
        node->memory_bytes = bytes;
        if (!node->huge_pages) return GF_OK;
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
        if (populate(memory, bytes) && reserve(fd, bytes, (size_t)sysconf(_SC_PAGESIZE)))
            return GF_OK;
        return no_room(node, bytes, "madvise", errno);
    }
    const int code = errno;
    (void)close(fd);
    if ((code != EPERM) && (code != EACCES)) return no_room(node, bytes, "mmap", code);
    *why_out = "shared memory cannot be mapped: mmap() is refused";
    return GF_OK;
}

static gf_status private_take(struct gf_node *node, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return no_room(node, bytes, "mmap", errno);
    node->memory = memory;
    node->memory_bytes = bytes;
    if (node->huge_pages) (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return GF_OK;
}

gf_status gf_node_memory_take(struct gf_node *node, const char **why_out)
{
    char text[200];
    size_t bytes;
    gf_status status = GF_OK;
    if (node->region_bytes > SIZE_MAX / 4) return no_room(node, SIZE_MAX / 4, "mmap", ENOMEM);
    if (node->plan.bytes == 0) return GF_OK;
    if ((node->memory != NULL) && (node->shared == (node->memory_fd >= 0))) {
        memset(node->memory, 0, node->memory_bytes);
        return GF_OK;
    }
    gf_node_memory_give(node);
    bytes = node->plan.bytes;
    if (gf_node_limits_text(bytes, node->shared, text, sizeof text)[0] != '\0')
        return no_room(node, bytes, "getrlimit", ENOMEM);
    if (node->shared) status = shared_take(node, bytes, why_out);
    if ((status == GF_OK) && (node->memory == NULL)) {
        node->shared = false;
        status = private_take(node, bytes);
    }
    if (status < 0) return status;
    if (madvise(node->memory, node->memory_bytes, MADV_POPULATE_WRITE) != 0)
        memset(node->memory, 0, node->memory_bytes); /* no faults later */
    if (node->huge_pages)
        gf_log_line(&node->log, GF_LOG_INFO,
                    "link: huge pages were asked for, the exchange region has %s",
                    gf_node_pages_text(node->memory, text, sizeof text));
    return GF_OK;
}

static bool in_room(const struct gf_node *node, const unsigned char *memory)
{
    return (node->room != NULL) && (memory >= node->room) &&
           (memory < node->room + node->room_bytes);
}

void gf_node_memory_unmap(const struct gf_node *node, unsigned char *memory, size_t bytes)
{
    if (memory == NULL) return;
    if (in_room(node, memory)) /* its place is kept */
        (void)mmap(memory, bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    else
        (void)munmap(memory, bytes);
}

void gf_node_memory_give(struct gf_node *node)
{
    gf_node_memory_unmap(node, node->memory, node->memory_bytes);
    if (node->memory_fd >= 0) (void)close(node->memory_fd);
    node->memory = node->link->region = node->peers[node->rank].region = NULL;
    node->memory_bytes = 0;
    node->memory_fd = -1;
}

/* ---- the memory of peers ---- */

/* Reserves the room, and maps this rank's own memory into it once for each peer, without access. A
 * limit, or a rule that refuses mappings, shows here. */
bool gf_node_room_take(struct gf_node *node)
{
    const size_t bytes = node->memory_bytes;
    struct stat at;
    size_t room_bytes;
    bool all = true;
    if (node->memory_fd < 0) return true; /* there is none */
    if (fstat(node->memory_fd, &at) != 0) return false;
    const size_t page_bytes = (size_t)at.st_blksize; /* perhaps a huge one */
    if (__builtin_mul_overflow((size_t)node->plan.slots, bytes, &room_bytes) ||
        __builtin_add_overflow(room_bytes, page_bytes, &room_bytes))
        return false;
    unsigned char *room =
        mmap(NULL, room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return false;
    unsigned char *first = room + (page_bytes - (uintptr_t)room % page_bytes) % page_bytes;
    unsigned char *next = first;
    for (uint32_t i = 0; all && (i < node->plan.slots); i++, next += bytes)
        all =
            mmap(next, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, node->memory_fd, 0) != MAP_FAILED;
    if (!all) {
        (void)munmap(room, room_bytes);
        return false;
    }
    (void)madvise(first, node->plan.slots * bytes, MADV_DONTDUMP);
    node->room = room;
    node->room_bytes = room_bytes;
    node->room_first = first;
    return true;
}

static unsigned char *range_of(const struct gf_node *node, uint32_t slot)
{
    if (node->room == NULL) return NULL;
    unsigned char *range = node->room_first + slot * node->memory_bytes;
    return in_room(node, range + node->memory_bytes - 1) ? range : NULL;
}

void gf_node_room_trim(struct gf_node *node, uint32_t slots)
{
    if (node->room == NULL) return;
    unsigned char *end = node->room_first + slots * node->memory_bytes;
    if (!in_room(node, end)) return;
    (void)munmap(end, (size_t)(node->room + node->room_bytes - end));
    node->room_bytes = (size_t)(end - node->room);
}

void gf_node_room_give(struct gf_node *node)
{
    for (uint32_t slot = 0; slot < node->pair_count; slot++)
        if (in_room(node, node->pairs[slot].memory)) node->pairs[slot].memory = NULL;
    if (node->room_bytes > 0) (void)munmap(node->room, node->room_bytes);
    node->room = node->room_first = NULL;
    node->room_bytes = 0;
}

/* Maps it at the address of its slot in the reserved space, or anywhere if its pages are of another
 * size. */
static unsigned char *range_map(const struct gf_node *node, uint32_t slot, int fd, size_t bytes)
{
    unsigned char *range = (bytes == node->memory_bytes) ? range_of(node, slot) : NULL;
    if ((range != NULL) &&
        (mmap(range, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED))
        return range;
    return gf_node_fd_map(fd, bytes);
}

unsigned char *gf_node_memory_map(const struct gf_node *node, uint32_t slot,
                                  const struct node_offer *offer, int fd, const char **why_out)
{
    const struct node_plan plan =
        gf_node_plan_of(offer->region_bytes, offer->slots, offer->entries);
    struct stat at;
    unsigned char *memory;
    int seals = fcntl(fd, F_GET_SEALS);
    if ((seals < 0) || ((seals & SEALS) != SEALS) || (fstat(fd, &at) != 0) || (at.st_size < 0) ||
        ((uint64_t)at.st_size != offer->memory_bytes)) {
        *why_out = "what came is not the memory that was offered";
        return NULL;
    }
    memory = range_map(node, slot, fd, offer->memory_bytes);
    if (memory == NULL) {
        *why_out = (errno == ENOMEM)
                       ? "its memory cannot be mapped: Cannot allocate memory (ulimit -v?)"
                       : "its memory cannot be mapped";
        return NULL;
    }
    if (__atomic_load_n(&node_head_of(memory, &plan)->canary, __ATOMIC_ACQUIRE) == offer->canary)
        return memory;
    gf_node_memory_unmap(node, memory, offer->memory_bytes);
    *why_out = "what came is not the memory that was offered (its canary is another)";
    return NULL;
}

/* ---- what pages the kernel really gave for a mapping ---- */

struct pages {
    unsigned long base;
    bool inside; /* between the header of our mapping and the next one */
    unsigned long page_kib;
    unsigned long huge_kib;
};

static bool page_line_read(void *arg, char *line)
{
    struct pages *pages = arg;
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
    return true;
}

char *gf_node_pages_text(const void *base, char *text_out, size_t text_bytes)
{
    struct pages pages = {.base = (unsigned long)(uintptr_t)base};
    (void)snprintf(text_out, text_bytes, "pages of unknown size");
    (void)gf_lines_visit("/proc/self/smaps", page_line_read, &pages);
    if (pages.page_kib != 0)
        (void)snprintf(text_out, text_bytes,
                       "pages of %lu KiB, and %lu KiB of it in transparent huge pages",
                       pages.page_kib, pages.huge_kib);
    return text_out;
}
