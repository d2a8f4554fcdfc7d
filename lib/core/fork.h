/* Whether this is the process that opened the context. */
#ifndef GF_FORK_H
#define GF_FORK_H

#include <unistd.h>

#include "gradientflow.h"

#define GF_FORK_MARK UINT64_C(0x70617265)

struct gf_fork {
    int32_t pid;          /* that opened it */
    char *page;           /* of the control region, whole */
    const uint64_t *mark; /* NULL: the process number tells */
};

void gf_fork_guard(gf_context *gf);
void gf_fork_unguard(gf_context *gf);
/* A child that fork() made of the context's process? */
static inline bool gf_forked(const struct gf_fork *fork)
{
    return (fork->mark != NULL) ? *fork->mark != GF_FORK_MARK : fork->pid != (int32_t)getpid();
}

#endif
