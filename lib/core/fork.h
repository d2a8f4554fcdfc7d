/* Whether this is the process that opened the context. */
#ifndef GF_FORK_H
#define GF_FORK_H

#include "gradientflow.h"

struct gf_fork {
    int32_t pid;          /* that opened it */
    char *page;           /* of the control region, whole */
    const uint64_t *mark; /* NULL: the process number tells */
};

void gf_fork_guard(gf_context *gf);
void gf_fork_unguard(gf_context *gf);
bool gf_forked(const gf_context *gf); /* a child that fork() made of the context's process */

#endif
