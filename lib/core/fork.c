/* Is this still the process that opened the context? Each call asks, and a system call would take
 * as long as a small operation through shared memory: so each fork() counts in the child. What
 * clone() makes by itself is not noticed. */
#include "lib/core/fork.h"

#include <pthread.h>

uint32_t gf_forks;

static void forked(void)
{
    gf_forks++;
}

void gf_fork_watch(void)
{
    static bool watches;
    if (!watches) watches = pthread_atfork(NULL, NULL, forked) == 0;
}
