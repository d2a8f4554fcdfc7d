/* Short answers about a context. */
#ifndef GF_ACCESSORS_H
#define GF_ACCESSORS_H

#include "lib/context.h"

/* Of rank `rank`, to the link; and back, GF_RANK_NONE where it is of this epoch no longer. */
static inline uint32_t gf_member_id_of(const gf_context *gf, uint32_t rank)
{
    return gf_member_at(gf->ids, rank);
}
static inline uint32_t gf_rank_of(const gf_context *gf, uint32_t member_id)
{
    return ((gf->ids == NULL) || (member_id == GF_RANK_NONE)) ? member_id : gf_members_rank(gf->members, member_id);
}

/* Ranks of a node sum in each other's memory. */
static inline bool gf_is_in_node(gf_algorithm algorithm)
{
    return (algorithm == GF_ALGORITHM_DIRECT) || (algorithm == GF_ALGORITHM_HIERARCHY);
}

gf_path gf_path_of(const gf_context *gf);
/* This algorithm adds buffers up where the device has put them: in reach of the other devices, or of the link. */
static inline bool gf_sums_late(const gf_context *gf, gf_algorithm algorithm)
{
    if (!gf->on_device) return false;
    return gf->ipc.agreed ? (gf_is_in_node(algorithm) || gf->link->reaches_device) : (gf_path_of(gf) == GF_PATH_WIRE);
}
/* What this rank alone owes lies in sparse.history: of so many elements. */
static inline bool gf_is_quantized(const gf_context *gf) { return gf->quantized.form.elems > 0; }
static inline uint64_t gf_history_elems(const gf_context *gf)
{
    return gf_is_quantized(gf) ? gf->pool.elem_count : gf->sparse.elem_count;
}
static inline bool gf_aborted(const gf_context *gf) /* gf_abort() was called */
{
    return atomic_load_explicit(&gf->aborted, memory_order_relaxed) != 0;
}
static inline bool gf_is_well(const gf_context *gf)
{
    return (gf != NULL) && (gf->magic == GF_CONTEXT_MAGIC) && !gf_forked(&gf->fork) && (gf->error.code == GF_OK) &&
           !gf_aborted(gf);
}
/* Looks at abort, fork and failure: GF_OK, or what the call must answer. */
static inline gf_status gf_enter(gf_context *gf) { return gf_is_well(gf) ? GF_OK : gf_enter_ill(gf); }
/* The same for calls that poll: GF_OK while failing goes on, because they are what makes it end. */
static inline gf_status gf_enter_poll(gf_context *gf)
{
    gf_status status = gf_enter(gf);
    return ((status < 0) && (gf_own(gf) == GF_OK) && (gf->phase == GF_PHASE_FAILING)) ? GF_OK : status;
}
/* A record of its own, which the caller fills; of no meaning without the observe module. */
static inline struct gf_trace_record *gf_trace_next(gf_context *gf)
{
    struct gf_trace *trace = &gf->observed.trace;
    uint32_t at = trace->next;
    if (trace->record_max == 0) return &trace->none;
    trace->next = (at + 1 < trace->record_max) ? at + 1 : 0; /* a division takes as long as filling it */
    trace->written++;
    return &trace->records[at];
}

/* The system's time, for what is measured. */
static inline uint64_t gf_now(const gf_context *gf) { return gf->drivers.clock->now_ns(gf->drivers.clock); }
/* The time that counts in deadlines, as of the poll under way: that in which this rank ran. */
static inline uint64_t gf_awake(const gf_context *gf) { return gf->polled.at_ns - gf->polled.away_ns; }

#endif
