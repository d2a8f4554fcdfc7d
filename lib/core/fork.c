/* Is this still the process that opened the context? Each call asks, and a system call would take as long as a small
 * operation through shared memory. So one page of the control region is marked and the kernel told to hand children a
 * zeroed copy of it. Where it cannot (memory of a file, another page size), the process number is asked for. */
#include <sys/mman.h>
#include <unistd.h>

#include "lib/context.h"
#include "lib/core/arena.h"

void gf_fork_guard(gf_context *gf)
{
    uint64_t *mark = (uint64_t *)(void *)gf->fork.page;
    if ((gf->fork.mark != NULL) || (sysconf(_SC_PAGESIZE) != (long)GF_PAGE_BYTES)) return;
    if (madvise(mark, GF_PAGE_BYTES, MADV_WIPEONFORK) != 0) return;
    *mark = GF_FORK_MARK;
    gf->fork.mark = mark;
}

void gf_fork_unguard(gf_context *gf)
{
    if (gf->fork.mark != NULL) (void)madvise(gf->fork.page, GF_PAGE_BYTES, MADV_KEEPONFORK); /* the caller's again */
    gf->fork.mark = NULL;
}
