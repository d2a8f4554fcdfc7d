/* Weights that one rank gives to all between steps, and what a regroup has to know of them. */
#ifndef GF_CORE_WEIGHTS_H
#define GF_CORE_WEIGHTS_H

#include "gradientflow.h"
#include "lib/control/control.h"

struct gf_given {
    /* Broadcasts of weights since the last whole step. The root counts one as it calls, for it has
     * all values, also where it has failed before; another rank as it ends. */
    uint32_t broadcasts;
    /* Those of another root that this rank called after a failure. They count with its own next
     * one, so that of several roots the last is ahead. */
    uint32_t missed;
    /* Weights are partly another rank's: a broadcast has begun here, or in a regroup before the
     * first step the common state, and has not ended. */
    bool torn;
    /* gf_broadcast_weights() was called, or is to be: no step begins before somebody's values are
     * here. What is torn is owed. */
    bool owed;
};
#define GF_GIVE_FIRST                                                                    \
    "a death has cut the first broadcast short, and nobody is left who has all values; " \
    "gf_broadcast_weights() or gf_state_load() is first, on all ranks"

/* One broadcast of weights, while it is under way. */
struct gf_weights_broadcast {
    uint32_t root;
    bool posted; /* `request` is under way */
    enum {
        GF_BROADCAST_WEIGHTS,
        GF_BROADCAST_BULK,
        GF_BROADCAST_RESTS
    } part;              /* what is posted next */
    uint32_t first, end; /* regions: the next one; those whose rests travel end here */
    struct gf_request request;
};

/* GF_AGAIN: its first message is posted. A refusal has changed nothing. */
gf_status gf_weights_broadcast_begin(gf_context *gf, uint32_t root,
                                     struct gf_weights_broadcast *broadcast_out);
gf_status gf_weights_broadcast_poll(gf_context *gf, void *broadcast);

/* How often this rank's weights were changed since its last whole step, and whether they are whole:
 * `applied` and `partial` of a regroup. */
void gf_own_applied_set(const gf_context *gf, struct gf_control_progress *own);
/* A regroup begins to overwrite the weights of this rank, which lag those of `common`. */
void gf_given_lags(gf_context *gf, const struct gf_control_progress *common);
/* A regroup has ended: all ranks have the weights that this describes. */
void gf_given_take(gf_context *gf, const struct gf_control_progress *common);

#endif
