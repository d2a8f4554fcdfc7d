/* Whether this is the process that opened the context. */
#ifndef GF_FORK_H
#define GF_FORK_H

#include <stdbool.h>
#include <stdint.h>

extern uint32_t gf_forks; /* this process's forefathers, from the one that opened its first context on */
void gf_fork_watch(void);

#endif
