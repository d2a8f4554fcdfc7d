/* Waiting for other ranks. Nothing else in the core blocks. */
#ifndef GF_WAIT_H
#define GF_WAIT_H

#include "lib/core/idle.h"
#include "gradientflow.h"

struct gf_wait_state {
    uint64_t moved_ns; /* something last moved */
    /* more ranks than cores on this machine; after the warm-up, on some rank's */
    bool oversubscribed;
    struct gf_idling idling;
    /* inside of gf_wait(): the other ranks know that this rank sleeps until a flag comes */
    bool armed;
    bool awaits_core; /* what this rank waits for needs this core: it yields at once */
    /* inside of gf_wait(): how often a poll may look for a flag before it returns */
    uint32_t spins;
    uint64_t left_ns; /* inside of gf_wait(): no sleep is longer */
};

/* Polls until poll() gives anything but GF_AGAIN, idling as the configuration says; for bound_ns at
 * most, after which it gives GF_AGAIN itself. */
#define GF_WAIT_UNBOUNDED UINT64_MAX
gf_status gf_wait_for(gf_context *gf, gf_status (*poll)(gf_context *gf, void *arg), void *arg,
                      uint64_t bound_ns);
static inline gf_status gf_wait(gf_context *gf, gf_status (*poll)(gf_context *gf, void *arg),
                                void *arg)
{
    return gf_wait_for(gf, poll, arg, GF_WAIT_UNBOUNDED);
}

/* Wakes the ranks that sleep until a flag comes: they look at the control channel at once. */
void gf_wake(gf_context *gf);

#endif
