/* A restarted rank comes back: from its gf_open(), and from the others' gf_admit(), into the turns of shrink.c. Neither has
 * failed; the joiner's weights are worth nothing, so all that is common reaches it as it reaches a rank that is behind.
 * recovering.c has the protocol. */
#include "lib/context.h"
#include "lib/core/accessors.h"

#define REJOIN_GRACE_NS UINT64_C(100000000) /* so that the control channel says first why it did not get through */

/* As a shrink begins it once the epoch has failed. */
static void agree_begin(gf_context *gf, uint64_t grace_ns)
{
    gf->shrink.final = gf->shrink.in_step = false;
    (void)gf_poll_begin(gf);
    gf->shrink.deadline_ns = gf_awake(gf) + gf->config.rendezvous.join_timeout_ns + grace_ns;
    gf->shrink.state = GF_SHRINK_AGREE;
    gf->phase = GF_PHASE_AGREE;
}

void gf_rejoin_begin(gf_context *gf)
{
    gf->shrink.own = (struct gf_members_standing){.applied = 1, .torn = 1};
    agree_begin(gf, REJOIN_GRACE_NS);
    gf_members_rejoin(gf->members, gf_awake(gf), gf->config.rendezvous.join_timeout_ns / GF_SETTLE_PARTS);
}

uint32_t gf_joiners(const gf_context *gf)
{
    return ((gf == NULL) || (gf->phase != GF_PHASE_READY)) ? 0 : gf->shrink.joiners;
}

bool gf_rejoined(const gf_context *gf)
{
    return (gf != NULL) && gf->config.rendezvous.rejoin;
}

gf_status gf_admit(gf_context *gf)
{
    gf_status status = gf_enter(gf);
    uint64_t settle_ns, most_ns;
    if (status < 0) return status;
    if ((gf->phase != GF_PHASE_READY) || !gf_requests_idle(gf))
        return gf_refuse(gf, GF_ERR_STATE, "gf_admit: %s; allowed is a call between steps",
                         (gf->phase == GF_PHASE_READY) ? "requests are under way" : "the context is not between steps");
    if (gf->shrink.joiners == 0) return gf_refuse(gf, GF_ERR_STATE, "gf_admit: nobody waits, says the last step's verdict");
    gf->shrink.own = gf_standing(gf);
    if (gf->shrink.own.applied == 0)
        return gf_refuse(gf, GF_ERR_STATE, "gf_admit: step %llu was not applied; gf_update() is first",
                         (unsigned long long)gf->step.number);
    settle_ns = gf->config.exchange.timeout_ns;
    most_ns = gf->config.rendezvous.join_timeout_ns / 2;
    agree_begin(gf, 0);
    gf_members_admit(gf->members, gf_awake(gf), &gf->shrink.own, (settle_ns < most_ns) ? settle_ns : most_ns,
                     gf->config.rendezvous.join_timeout_ns / GF_SETTLE_PARTS);
    return GF_OK;
}
