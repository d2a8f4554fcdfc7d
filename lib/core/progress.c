/* See progress.h. */
#include "lib/context.h"
#include "lib/core/accessors.h"

/* A look at the control channel is a system call: not at each poll of one that spins, but soon for
 * one that polls only between layers. */
#define MEMBERS_EVERY 64u
#define MEMBERS_EVERY_NS UINT64_C(1000000)
/* The same for the link while no message is awaited: one look takes as long as a small operation
 * through memory. */
#define PROGRESS_EVERY_NS UINT64_C(200000)

gf_status gf_enter(gf_context *gf)
{
    return gf_is_well(gf) ? GF_OK : gf_enter_ill(gf);
}

gf_status gf_enter_poll(gf_context *gf)
{
    gf_status status = gf_enter(gf);
    return ((status < 0) && (gf_own(gf) == GF_OK) && (gf->phase == GF_PHASE_FAILING)) ? GF_OK
                                                                                      : status;
}

/* The longest of about the last exchange.timeout. */
static void gap_note(gf_context *gf, uint64_t gap_ns)
{
    struct gf_polled *polled = &gf->polled;
    bool is_old = polled->at_ns - polled->gap_at_ns > gf->config.exchange.timeout_ns;
    if ((gap_ns <= gf->position->unpolled_ns) && !is_old) return;
    gf->position->unpolled_ns = gap_ns;
    polled->gap_at_ns = polled->at_ns;
}

uint64_t gf_poll_begin(gf_context *gf)
{
    uint64_t now_ns = gf_now(gf);
    uint64_t most_ns = gf->config.exchange.timeout_ns / 4;
    uint64_t gap_ns = now_ns - gf->polled.at_ns;
    gf->polled.at_ns = now_ns;
    if (gf->position != NULL) gap_note(gf, gap_ns);
    if (most_ns > GF_GAP_NS) most_ns = GF_GAP_NS;
    if (gap_ns <= most_ns) return now_ns;
    gf->polled.away_ns += gap_ns - most_ns;
    gf->polled.came_ns += gap_ns - most_ns;
    gf_ops_forgive(gf, gap_ns - most_ns);
    return now_ns;
}

/* A rank has called gf_heartbeat(): to whoever waits for it that is as if something had moved
 * then. */
static void patience_have(gf_context *gf, uint64_t now_ns)
{
    uint64_t from = 0;
    uint64_t left_ns = gf_members_patience(gf->members, gf_awake(gf), &from);
    uint64_t timeout_ns = gf->config.exchange.timeout_ns;
    if ((left_ns > 0) && (now_ns + left_ns > timeout_ns))
        gf_ops_patient(gf, from, now_ns + left_ns - timeout_ns);
}

gf_status gf_progress(gf_context *gf, uint64_t now_ns)
{
    gf_status status;
    /* also in the middle of a wait */
    if (gf_aborted(gf) && ((status = gf_enter(gf)) < 0)) return status;
    if ((gf->algorithm == GF_ALGORITHM_DIRECT) &&
        (now_ns - gf->polled.link_ns < PROGRESS_EVERY_NS) && !gf_ops_await_messages(gf))
        return GF_OK;
    gf->polled.link_ns = now_ns;
    /* once: a system call over tcp, and what came may be awaited */
    status = gf->link->driver->progress(gf->link);
    if (status < 0) return gf_fail_fault(gf, &gf->link->fault, gf_doing(gf));
    if (status == GF_OK) gf->waiting.moved_ns = now_ns;
    if (gf->link->came != gf->polled.came) gf->polled.came_ns = now_ns;
    gf->polled.came = gf->link->came;
    if ((gf->polled.members_skip > 0) && (now_ns - gf->polled.members_ns < MEMBERS_EVERY_NS)) {
        gf->polled.members_skip--;
        return GF_OK;
    }
    gf->polled.members_skip = MEMBERS_EVERY;
    gf->polled.members_ns = now_ns;
    status = gf_members_poll(gf->members, gf_awake(gf));
    if (status < 0) return gf_fail_from(gf, gf_members_error(gf->members));
    patience_have(gf, now_ns);
    return GF_OK;
}
