/* Opening and closing, and the phases of a context between them. */
#ifndef GF_OPEN_H
#define GF_OPEN_H

#include "drivers/drivers.h"
#include "gradientflow.h"
#include "lib/control/control.h"

/* A connection on which nothing has moved for so long counts as broken. */
uint64_t gf_grace_ns(uint64_t timeout_ns);
#define GF_FLUSH_NS UINT64_C(200000000) /* for last words on the control channel at close */

/*     JOIN -> WARM -> READY <-> STEP -> READY .. -> LEAVE -> CLOSED, or LEFT -> CLOSED
 *     any failure -> FAILING -> FAILED
 * FAILING: the error is known, the culprit is being asked for, a step that was half written is
 * written, and what is under way is being ended; polls give GF_AGAIN, because buffers may still be
 * written to. FAILED: nothing is under way, every call answers with the error. */
typedef enum gf_phase {
    GF_PHASE_JOIN = 1,
    GF_PHASE_WARM,
    GF_PHASE_READY,
    GF_PHASE_AGREE, /* on the way into another generation without a failure */
    GF_PHASE_STEP,
    GF_PHASE_LEAVE, /* waits until the others leave too */
    GF_PHASE_LEFT,  /* gf_leave(): the others continue without it */
    GF_PHASE_FAILING,
    GF_PHASE_FAILED,
    GF_PHASE_CLOSED
} gf_phase;

struct gf_opening {
    uint64_t foreign_before;          /* resident bytes before */
    uint64_t wire_base, message_base; /* link counters when it ended */
    uint64_t leave_ns;                /* LEAVE waits for the others until then, */
    bool leave_logged;                /* .. but longer where the coordinator runs here: logged */
    uint64_t join_ns;                 /* JOIN waits for a generation until then */
    struct gf_link_setup link_setup;  /* of each link that the context opens */
    void *link_state;
    uint32_t link_generation; /* that the link is for, */
    bool renewed;             /* and not that in which this rank has worked */
};

/* One poll of join and warm-up: GF_OK once the context could be used. A failure is the
 * context's. */
gf_status gf_join_progress(gf_context *gf, uint64_t now_ns);
/* The context failed before it could reach another rank: it holds nothing but its error. */
gf_status gf_open_fail(gf_context *gf, gf_status status, const struct gf_fault *fault);
void gf_drivers_close(gf_context *gf); /* those that are open */

/* Squares of tensors that a device brings to the host at a time (lib/optimizer/clip.c). */
#define GF_SQUARES_READ 64u
/* Offsets in the exchange region. */
struct gf_exchange_parts {
    /* and small data of direct, in all worlds that it serves; at the same offset on all ranks */
    uint64_t flags;
    uint64_t gradient, pack_host, user, staging;
    uint64_t lists;   /* uint32_t[] */
    uint64_t seen;    /* struct gf_check[] */
    uint64_t vote;    /* uint64_t[] */
    uint64_t squares; /* double[GF_SQUARES_READ], on a device only */
};

#endif
