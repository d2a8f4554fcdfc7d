/* What pages the kernel really gave for a mapping, read from /proc/self/smaps with a small buffer and no allocation. */
#include "drivers/ucx/link_ucx.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct pages {
    unsigned long base;
    bool inside; /* between the header of our mapping and the next one */
    unsigned long page_kib, huge_kib;
};

static void line_read(struct pages *pages, const char *line)
{
    unsigned long first = 0, last = 0, kib = 0;
    if (sscanf(line, "%lx-%lx ", &first, &last) == 2) {
        pages->inside = (first <= pages->base) && (pages->base < last);
    } else if (pages->inside) {
        if (sscanf(line, "KernelPageSize: %lu kB", &kib) == 1) pages->page_kib = kib;
        else if (sscanf(line, "AnonHugePages: %lu kB", &kib) == 1) pages->huge_kib += kib;
        else if (sscanf(line, "ShmemPmdMapped: %lu kB", &kib) == 1) pages->huge_kib += kib;
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
        char *line = buffer, *end;
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
        (void)snprintf(text_out, text_bytes, "pages of %lu KiB, and %lu KiB of it in transparent huge pages",
                       pages.page_kib, pages.huge_kib);
    return text_out;
}
