/* How a rank waits for other ranks: it polls, and idles between polls so that it takes no core
 * from a rank that needs one. */
#include <poll.h>
#include <sched.h>

#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/choose.h"

#define SLEEP_NS UINT64_C(10000000)     /* longest sleep: deadlines are looked at this often */
#define QUIET_SLEEP_NS UINT64_C(100000) /* the same where something is awaited that wakes nobody */
/* how often one poll looks for a flag: about ten microseconds, then it looks at link and control
 * channel */
#define SPINS 400u
/* the same where ranks share cores: these looks take a part of the time that giving the core away
 * takes */
#define SPINS_OVERSUBSCRIBED 32u

/* A sleep is a gap between two polls. All of it must count, or deadlines would pass more slowly
 * than the system's time; half of what counts leaves room for a sleep that ends late. */
static uint64_t sleep_ns(const gf_context *gf, uint64_t longest_ns)
{
    if (longest_ns > gf_gap_most_ns(gf) / 2) longest_ns = gf_gap_most_ns(gf) / 2;
    return (gf->wait_state.left_ns < longest_ns) ? gf->wait_state.left_ns : longest_ns;
}

static void sleep_on_drivers(gf_context *gf, uint64_t longest_ns)
{
    const struct timespec longest = {.tv_nsec = (long)sleep_ns(gf, longest_ns)};
    struct pollfd fds[1 + GF_CONTROL_FDS];
    int control_fds[GF_CONTROL_FDS];
    nfds_t count = 0;
    /* On the way to a generation nobody polls what it still says. A link that has failed says
     * nothing more, and its arm() would keep this rank awake while the finding is awaited. */
    bool link_rests = (gf->phase == GF_PHASE_FAILED) ||
                      ((gf->phase == GF_PHASE_FAILING) && (gf->link->failed != GF_OK));
    int link_fd = link_rests ? -1 : gf->link->wake_fd;
    uint32_t control_count = gf_control_wake_fds(gf->control, control_fds);
    if (link_fd >= 0) {
        if (!gf->link->driver->arm(gf->link)) return; /* events are waiting: poll first */
        fds[count++] = (struct pollfd){.fd = link_fd, .events = POLLIN};
    }
    for (uint32_t i = 0; i < control_count; i++)
        fds[count++] = (struct pollfd){.fd = control_fds[i], .events = POLLIN};
    if ((link_fd < 0) && !link_rests && (gf->phase != GF_PHASE_JOIN)) {
        (void)sched_yield(); /* a link without a wake-up cannot be slept on */
        return;
    }
    gf->polled.control_skip = 0;
    gf->polled.link_ns = 0;
    (void)ppoll(fds, count, &longest, NULL);
}

/* The word in its region by which rank `index` of those that share memory shows that it sleeps
 * (gf_link_driver.flag_arm). */
static size_t sleep_at(const gf_context *gf, uint32_t index)
{
    const struct gf_direct shared = {.flag_ranks = gf->flag_ranks};
    return gf_direct_sleep_at(&shared, index);
}

void gf_wake(gf_context *gf)
{
    if (gf->algorithm == GF_ALGORITHM_DIRECT)
        gf_direct_wake(gf->link, gf->world, gf->rank, gf->flag_ranks);
}

static uint32_t shared_index(const gf_context *gf)
{
    return gf->nodes.used ? gf->nodes.of.local_index : gf->rank;
}

/* Two calls, with a poll between them: a flag that was set before the sleep was announced wakes no
 * rank, so the poll checks for it. */
static void sleep_on_flags(gf_context *gf)
{
    size_t at = sleep_at(gf, shared_index(gf));
    gf->wait_state.armed = !gf->wait_state.armed;
    if (gf->wait_state.armed) {
        gf->link->driver->flag_arm(gf->link, at);
        return;
    }
    gf->link->driver->flag_sleep(gf->link, at, sleep_ns(gf, SLEEP_NS));
    gf->polled.control_skip = 0; /* it may be news of a failure that has woken it: gf_wake() */
    gf->polled.link_ns = 0;
}

static void idle_sleep(gf_context *gf)
{
    bool failed = (gf->phase == GF_PHASE_FAILED); /* what was under way moves no more */
    gf_wake_source what = failed ? GF_WAKE_DESCRIPTORS : gf_ops_wake_source(gf);
    if ((what == GF_WAKE_FLAGS) && (gf->link->driver->flag_sleep != NULL))
        sleep_on_flags(gf);
    else
        sleep_on_drivers(gf, (what == GF_WAKE_DESCRIPTORS) ? SLEEP_NS : QUIET_SLEEP_NS);
}

/* Returns when the poll before a yield began; 0: it did not yield. The next poll reads the clock in
 * any case, and so measures the yield: two more readings would take a tenth of a yield that returns
 * at once. */
static uint64_t idle_auto(gf_context *gf, uint32_t polls)
{
    if (!gf_idle_yields(&gf->wait_state.idling, polls, gf->polled.at_ns)) {
        idle_sleep(gf);
        return 0;
    }
    (void)sched_yield();
    return gf->polled.at_ns;
}

static uint64_t idle(gf_context *gf, uint32_t polls)
{
    switch (gf->config.link.idle) {
    case GF_IDLE_SPIN: break;
    case GF_IDLE_SLEEP: idle_sleep(gf); break;
    case GF_IDLE_YIELD: (void)sched_yield(); break;
    case GF_IDLE_AUTO: return idle_auto(gf, polls);
    }
    return 0;
}

/* The states of the context in one word: a poll that has changed it may have left something that
 * the next poll is to send. */
static uint64_t state_word(const gf_context *gf)
{
    return ((uint64_t)gf->requests.posted << 12) | ((uint64_t)gf->phase << 8) |
           ((uint64_t)gf->change.state << 4) | (uint64_t)gf->warm.state;
}

/* How often a poll may look for a flag before it returns: not at all where the program asked for
 * sleep or yield; seldom where the rank that is awaited may need this core. */
static uint32_t spins_of(const gf_context *gf)
{
    gf_idle how = gf->config.link.idle;
    if (how == GF_IDLE_SPIN) return SPINS;
    if (how != GF_IDLE_AUTO) return 0;
    return gf->wait_state.oversubscribed ? SPINS_OVERSUBSCRIBED : SPINS;
}

gf_status gf_wait_for(gf_context *gf, gf_status (*progress)(gf_context *gf, void *arg), void *arg,
                      uint64_t bound_ns)
{
    const uint64_t begin_ns = (bound_ns == GF_WAIT_UNBOUNDED) ? 0 : gf_now(gf);
    const uint32_t spins = spins_of(gf);
    uint64_t moved_ns = gf->wait_state.moved_ns;
    uint64_t before = state_word(gf);
    uint64_t yielded_ns = 0;
    uint32_t polls = 0; /* in a row that moved nothing */
    gf->wait_state.armed = false;
    for (;;) {
        gf_status status;
        gf->wait_state.spins = gf->wait_state.armed ? 0 : spins;
        gf->wait_state.awaits_core = false;
        status = progress(gf, arg);
        gf->wait_state.spins = 0;
        if (yielded_ns != 0) gf_idle_yielded(&gf->wait_state.idling, yielded_ns, gf->polled.at_ns);
        yielded_ns = 0;
        if (status != GF_AGAIN) return status;
        if (gf->polled.at_ns - begin_ns >= bound_ns) return GF_AGAIN;
        gf->wait_state.left_ns = bound_ns - (gf->polled.at_ns - begin_ns);
        polls++;
        if ((gf->wait_state.moved_ns != moved_ns) || (state_word(gf) != before)) polls = 0;
        moved_ns = gf->wait_state.moved_ns;
        before = state_word(gf);
        if ((polls > 0) || gf->wait_state.awaits_core) yielded_ns = idle(gf, polls);
    }
}
