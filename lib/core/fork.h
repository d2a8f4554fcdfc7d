/* Whether this is the process that opened the context. */
#ifndef GF_FORK_H
#define GF_FORK_H

#include <stdbool.h>
#include <stdint.h>

/* this process's forefathers, from the one that opened its first context on */
extern uint32_t gf_forks;
void gf_fork_watch(void);

#endif
