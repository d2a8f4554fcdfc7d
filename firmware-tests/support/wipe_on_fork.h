/* Does what a forked child is told by work here? */
#ifndef WIPE_ON_FORK_H
#define WIPE_ON_FORK_H

#include "firmware-tests/support/suite.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* An emulator of user programs takes madvise() for a hint and says that it went well. */
static inline bool kernel_wipes_on_fork(void)
{
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int status = 1;
    pid_t pid;
    assert_ptr_not_equal(page, MAP_FAILED);
    *page = 1;
    if ((madvise(page, 4096, MADV_WIPEONFORK) == 0) && ((pid = fork()) >= 0)) {
        if (pid == 0) _exit(*page);
        assert_int_equal(waitpid(pid, &status, 0), pid);
    }
    assert_int_equal(munmap(page, 4096), 0);
    return status == 0;
}

#endif
