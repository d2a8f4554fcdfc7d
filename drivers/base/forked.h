/* What a fork() means to the library. A child must not keep the library's descriptors: it would
 * hold connections open, and nobody would hear that its parent has died. Each public call also
 * asks whether this is still the process that opened the context. A system call for that would
 * take as long as a small operation in shared memory, so a handler counts each fork() in the
 * child. A child made by clone() alone is not noticed.
 *
 * The table is one for the process, so a lock guards it: threads may open, close and fork() at
 * any time. */
#ifndef GF_FORKED_H
#define GF_FORKED_H

#include <stdint.h>

/* Lies in the state of what has such descriptors. */
struct gf_forked {
    struct gf_forked *next;                  /* of those that this process has open */
    void (*close)(struct gf_forked *forked); /* in the child, whose memory may be shared with the
                                                parent: it writes nothing */
};

void gf_forked_add(struct gf_forked *forked);
void gf_forked_remove(const struct gf_forked *forked);

/* This process's forefathers, from the one that first called gf_forked_watch() on. */
extern uint32_t gf_forks;
void gf_forked_watch(void);

/* The lock, for what else is the process's. A fork() waits for it, so a child finds it free; nobody
 * forks with it. */
void gf_forked_lock(void);
void gf_forked_unlock(void);

#endif
