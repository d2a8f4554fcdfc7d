/* One training step, from begin to whole (step.c). */
#ifndef GF_STEP_H
#define GF_STEP_H

#include "lib/core/op.h"

struct gf_loss_scale {
    float value;
    float asked;        /* what gf_loss_scale() returned last; 0: it was not called */
    uint32_t good, bad; /* steps in a row */
};
#define GF_SCALE_MAX 16777216.0f /* 2^24: fp32 gradients keep room above it */

typedef enum gf_step_state {
    GF_STEP_NONE = 0, /* none was begun since open, a load of a state or a regroup */
    GF_STEP_BEGUN,
    GF_STEP_VOTED,     /* this rank's vote is posted */
    GF_STEP_AGREED,    /* all ranks' are here */
    GF_STEP_COMMITTED, /* what depends on it is queued */
    GF_STEP_WHOLE,
    GF_STEP_UPDATED /* its gradient was applied, or never will be */
} gf_step_state;

struct gf_step {
    gf_step_state state;
    uint64_t number; /* counts steps since open, or since the state that was loaded */
    uint64_t samples;
    bool samples_set;  /* by the program; else it is 1 */
    uint32_t declared; /* tensors ready or skipped */
    uint32_t next;     /* index in buffers.order of the next buffer to start */
    uint32_t buffers_ended;
    uint32_t buffer_count; /* of this step */
    bool sparse;           /* this step sends chunks */
    bool skipped;
    uint64_t first_ns;      /* first collective started; 0: none */
    uint32_t commit_tensor; /* how far the commit pass is */
    uint64_t commit_elems;
    uint64_t wire_before; /* link bytes when it began */
    uint64_t declared_ns; /* its last tensor was declared */
    /* the rank that declared its last tensor last, or did not poll for longer, by the vote */
    uint32_t last_rank;
    /* for so long it was after the first one; for so long it stood still */
    uint64_t late_ns;
    uint64_t samples_all;       /* of all ranks */
    double metrics[GF_METRICS]; /* this rank's; once the step is whole, the sums over all */
    /* what gradients that keep their scale (gf_keeps_scale()) are to be multiplied with */
    float gradient_scale;
    bool update_scales; /* those are all: gf_update() multiplies while it reads them */
    bool norm_known;    /* norm and clip_factor hold (lib/optimizer/clip.c) */
    float norm, clip_factor;
    struct gf_loss_scale scale_before; /* as it was before it counted this step as a good one */
};

/* A gradient is declared. GF_ERR_STATE: the program has not asked for the loss scale, so it cannot
 * have multiplied its loss with it. */
gf_status gf_scale_check(gf_context *gf, const char *call);
gf_status gf_scale_step(gf_context *gf, bool skipped); /* loss_scale.c: a step has ended */
/* The step that ended last counted as a good one, and was a bad one. */
gf_status gf_scale_drop(gf_context *gf);
/* Skips a step that the vote did not skip, on each rank that knows the norm: `what` is `norm`, to
 * which gradients cannot be clipped. It is whole already; with sparse exchange not yet, nor
 * committed. */
gf_status gf_step_drop(gf_context *gf, const char *what, double norm);
/* A failure found this rank in a commit. Writes the next slice of the rest; GF_AGAIN: there is
 * more. */
bool gf_step_is_cut(const gf_context *gf);
gf_status gf_step_write(gf_context *gf);
/* Moves everything under way in a step, failing too; for gf_wait(). arg is not used. Inside of a
 * step this, gf_request_poll() and gf_heartbeat() alone move operations (gf_ops_progress()). */
gf_status gf_step_progress(gf_context *gf, void *arg);
void gf_buffers_order(gf_context *gf); /* fills buffers.order */
void gf_dense_begin(gf_context *gf);   /* buffers of a dense step */

#endif
