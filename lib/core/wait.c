/* Waiting: poll, and idle between polls without taking a core from a rank that needs it. Nothing else in the library
 * blocks. */
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>

#include "lib/context.h"

#define SPIN_POLLS 2000u          /* a few microseconds each at most: below a context switch's worth of time */
#define YIELD_POLLS 20000u        /* then give the core away, and at last sleep */
#define SLEEP_NS UINT64_C(10000000) /* longest sleep: deadlines are looked at this often */
#define QUIET_SLEEP_NS UINT64_C(100000) /* the same while flags or a device are awaited, which wake nobody */
#define SPINS 400u /* a turn's looks for a flag: ten microseconds, then link and control channel again */
#define SPINS_CROWDED 50u /* about a context switch: on another core a rank may make room for the one that is awaited */

/* Asleep until the link or the control channel has news, or SLEEP_NS have passed. */
static void sleep_on_drivers(gf_context *gf)
{
    const struct timespec longest = {.tv_nsec = (long)(gf_ops_await_quietly(gf) ? QUIET_SLEEP_NS : SLEEP_NS)};
    struct pollfd fds[2];
    nfds_t count = 0;
    int link_fd = gf->link->driver->wake_fd(gf->link);
    int control_fd = gf->rendezvous->driver->wake_fd(gf->rendezvous);
    if (link_fd >= 0) {
        if (gf->link->driver->arm(gf->link) != GF_OK) return; /* events are waiting: poll first */
        fds[count++] = (struct pollfd){.fd = link_fd, .events = POLLIN};
    }
    if (control_fd >= 0) fds[count++] = (struct pollfd){.fd = control_fd, .events = POLLIN};
    if ((link_fd < 0) && (gf->phase != GF_PHASE_JOIN) && (gf->phase != GF_PHASE_FAILED)) { /* failed: it was dropped */
        (void)sched_yield(); /* a link without a wake-up cannot be slept on */
        return;
    }
    gf->members_skip = 0;
    gf->progress_ns = 0;
    (void)ppoll(fds, count, &longest, NULL);
}

/* Spins on a core of its own; yields where others want it; sleeps after a while. */
static void idle_auto(gf_context *gf, uint32_t polls)
{
    bool gives = gf->awaits_core || gf->crowded;
    uint64_t begin_ns;
    struct rusage usage;
    if (gf_crowd_poll(&gf->crowd) && (getrusage(RUSAGE_THREAD, &usage) == 0))
        gf_crowd_seen(&gf->crowd, (uint64_t)usage.ru_nivcsw);
    if (!gives && !gf->crowd.wanted && (polls < SPIN_POLLS)) return;
    begin_ns = gf_now(gf);
    if (!gives && !gf_crowd_yields(&gf->crowd, begin_ns) && (polls < SPIN_POLLS)) return;
    if (polls >= YIELD_POLLS) {
        sleep_on_drivers(gf);
        return;
    }
    (void)sched_yield();
    gf_crowd_yielded(&gf->crowd, begin_ns, gf_now(gf));
}

static void idle(gf_context *gf, uint32_t polls)
{
    switch (gf->config.link.idle) {
    case GF_IDLE_SPIN:  return;
    case GF_IDLE_SLEEP: sleep_on_drivers(gf); return;
    case GF_IDLE_YIELD: (void)sched_yield(); return;
    case GF_IDLE_AUTO:  idle_auto(gf, polls); return;
    }
}

gf_status gf_wait(gf_context *gf, gf_status (*turn)(gf_context *gf, void *arg), void *arg)
{
    uint64_t moved_ns = gf->moved_ns;
    uint32_t polls = 0;
    bool spins = ((gf->config.link.idle == GF_IDLE_AUTO) || (gf->config.link.idle == GF_IDLE_SPIN));
    for (;;) {
        gf_status status;
        gf->spins = spins ? ((gf->crowded || gf->crowd.wanted) ? SPINS_CROWDED : SPINS) : 0;
        gf->awaits_core = false;
        status = turn(gf, arg);
        gf->spins = 0;
        if (status != GF_AGAIN) return status;
        polls = (gf->moved_ns != moved_ns) ? 0 : polls + 1;
        moved_ns = gf->moved_ns;
        if ((polls > 0) || gf->awaits_core) idle(gf, polls);
    }
}
