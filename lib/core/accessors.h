/* What other files ask of a context: small functions, most of them inline. */
#ifndef GF_ACCESSORS_H
#define GF_ACCESSORS_H

#include "lib/context.h"

/* Ranks may come and go. */
static inline bool gf_is_elastic(const gf_context *gf)
{
    return gf->config.job.elastic;
}

/* Ranks of a node sum in each other's memory. */
static inline bool gf_is_in_node(gf_algorithm algorithm)
{
    return (algorithm == GF_ALGORITHM_DIRECT) || (algorithm == GF_ALGORITHM_HIERARCHY);
}

gf_path gf_path_of(const gf_context *gf);
/* Does this algorithm add buffers in device memory, where the device has put them? It does where
 * the other devices or the link reach that memory, and where there is nothing to add. */
static inline bool gf_sums_async(const gf_context *gf, gf_algorithm algorithm)
{
    if (!gf->on_device || (gf->world == 1)) return gf->on_device;
    return gf->ipc.agreed ? (gf_is_in_node(algorithm) || gf->link->reaches_device)
                          : (gf_path_of(gf) == GF_PATH_WIRE);
}
static inline bool gf_device_holds(const gf_context *gf, gf_mem data)
{
    return gf->on_device && (data >= gf->device.base) &&
           (data - gf->device.base < gf->device.bytes);
}
static inline bool gf_joins(const gf_context *gf)
{
    return (gf->phase == GF_PHASE_JOIN) || (gf->phase == GF_PHASE_WARM);
}
/* The link may still be made anew, which moves what lies in its region. That is so in a join, and
 * before the first join has ended. */
static inline bool gf_region_moves(const gf_context *gf)
{
    return gf_joins(gf) || (gf->together_ns == 0);
}
static inline bool gf_step_is_whole(const gf_context *gf)
{
    return gf->step.state >= GF_STEP_WHOLE;
}
/* Do averaged gradients of this type still have loss scale, pre-scale and the number of ranks or
 * samples in them, which gf_update() takes out? 16-bit gradients could underflow if they were taken
 * out before. A trainer with an optimizer of its own gets the average in every type. */
static inline bool gf_keeps_scale(const gf_context *gf, gf_type type)
{
    if (gf->config.optimizer.kind == GF_OPTIMIZER_NONE) return false;
    return (type != GF_TYPE_F32) || gf->step.update_scales;
}
/* May there be another generation with this rank? The failure is not its own, and its drivers are
 * open. */
static inline bool gf_may_go_on(const gf_context *gf)
{
    if ((gf->control == NULL) || gf_control_is_final(gf->control)) return false;
    return (gf->error.code == GF_ERR_PEER) || (gf->error.code == GF_ERR_LINK) ||
           (gf->error.code == GF_ERR_TIMEOUT);
}
/* This rank goes on by a regroup, which has not yet asked how far it is: what the program says that
 * it has written still counts. */
static inline bool gf_regroup_is_next(const gf_context *gf)
{
    return (gf_own(gf) == GF_OK) && (gf->change.state == GF_CHANGE_NONE) && gf_may_go_on(gf);
}
/* Where the copy of weight `elem` in optimizer.half_weights lies; 0: there is no copy. */
static inline gf_mem gf_half_at(const gf_context *gf, uint64_t elem)
{
    if (gf->optimizer.half == 0) return 0;
    return gf->optimizer.half + elem * gf_type_bytes(gf->config.optimizer.half_weights);
}
static inline bool gf_aborted(const gf_context *gf) /* gf_abort() was called */
{
    return atomic_load_explicit(&gf->aborted, memory_order_relaxed) != 0;
}
/* Is this a child of the process that opened it? */
static inline bool gf_forked(const gf_context *gf)
{
    return gf->forks != gf_forks;
}
/* No abort, fork or failure. */
static inline bool gf_is_well(const gf_context *gf)
{
    return (gf != NULL) && (gf->magic == GF_CONTEXT_MAGIC) && !gf_forked(gf) &&
           (gf->error.code == GF_OK) && !gf_aborted(gf);
}
/* GF_OK where all is well, or what the call must answer. */
gf_status gf_enter(gf_context *gf);
/* The same for calls that poll: GF_OK while failing goes on, because they are what makes it end. */
gf_status gf_enter_poll(gf_context *gf);
/* The system's time, for what is measured. */
static inline uint64_t gf_now(gf_context *gf)
{
    return gf_ticks_now(&gf->ticks);
}
/* The time that deadlines count, as of the poll under way: only time in which this rank ran. */
static inline uint64_t gf_awake(const gf_context *gf)
{
    return gf->polled.at_ns - gf->polled.away_ns;
}
/* Moves member and coordinator, and tells them this rank's position. */
static inline gf_control_state gf_poll_control(gf_context *gf)
{
    gf->position.step = gf_steps(gf);
    return gf_control_poll(gf->control, gf_awake(gf), gf->polled.away_ns, &gf->position);
}

#endif
