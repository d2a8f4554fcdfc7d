/* See progress.h. */
#include "lib/context.h"

/* A look at the control channel is a system call: not at each poll of one that spins, but soon for one that polls only
 * between layers. */
#define MEMBERS_EVERY 64u
#define MEMBERS_EVERY_NS UINT64_C(1000000)
/* The same for the link while no message is awaited: one look takes as long as a small operation through memory. */
#define PROGRESS_EVERY_NS UINT64_C(200000)

gf_status gf_progress(gf_context *gf, uint64_t now_ns)
{
    gf_status status;
    if (gf_aborted(gf) && ((status = gf_enter(gf)) < 0)) return status; /* also in the middle of a wait */
    if ((gf->algorithm == GF_ALGORITHM_DIRECT) && (now_ns - gf->polled.link_ns < PROGRESS_EVERY_NS) &&
        !gf_ops_await_messages(gf))
        return GF_OK;
    gf->polled.link_ns = now_ns;
    for (unsigned i = 0; i < 4; i++) {
        status = gf->link->driver->progress(gf->link);
        if (status < 0) return gf_fail_fault(gf, &gf->link->fault, gf_doing(gf));
        if (status == GF_AGAIN) break;
        gf->waiting.moved_ns = now_ns;
    }
    if ((gf->polled.members_skip > 0) && (now_ns - gf->polled.members_ns < MEMBERS_EVERY_NS)) {
        gf->polled.members_skip--;
        return GF_OK;
    }
    gf->polled.members_skip = MEMBERS_EVERY;
    gf->polled.members_ns = now_ns;
    status = gf_members_poll(gf->members, now_ns);
    return (status < 0) ? gf_fail_from(gf, gf_members_error(gf->members)) : GF_OK;
}
