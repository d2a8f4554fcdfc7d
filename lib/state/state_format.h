/* The bytes of a saved state, little-endian, every part on 8 bytes:
 *     head        struct gf_state_head
 *     selection   uint32 [chunk_count], zeroes after selected_count
 *     weight      fp32 [elem_count], as the pool lies; none without an optimizer
 *     extra       each config.state_extra, on 8 bytes; its hash (extra.h) is xored into the head's
 *                 tensors_hash
 *     momentum    fp32 [elem_count - sparse_elem_count] of the dense part, then [sparse_elem_count]
 *                 of the sparse part
 *     moment2     fp32 [elem_count], of adamw, whose momentum is the first moment
 *     history     fp32 [sparse_elem_count]
 *     checksum    gf_fnv_words() of all before it
 * Common to all ranks is all of it but the head's rank, history and, once GF_STATE_LOCAL is set,
 * the sparse part's momentum. What is left out can be computed: half weights, buffers, norms. */
#ifndef GF_STATE_FORMAT_H
#define GF_STATE_FORMAT_H

#include "gradientflow.h"

#define GF_STATE_MAGIC UINT64_C(0x0a45544154534647) /* "GFSTATE\n" */
/* Version 2: the momentum of LARS includes the learning rates, and there are second moments.
 * Version 1 is not read, because it lacks the ratios that would convert it. Version 3: the checksum
 * is FNV-1a. */
#define GF_STATE_VERSION 3u

#define GF_STATE_KNOWN 0x1u   /* selected_count is not 0 */
#define GF_STATE_WAITING 0x2u /* something waits in a history: not gf_sparse.history_empty */
#define GF_STATE_LOCAL 0x4u   /* gf_sparse.local_begun */
#define GF_STATE_SCALING 0x8u /* loss_scale.enabled */
#define GF_STATE_FLAGS 0xfu

/* The largest values that a save writes. Steps: more than any run has, since steps of a microsecond
 * each would take nine years. Samples: what gf_step_samples() allows on all ranks. Loss scale: what
 * loss_scale.growth_interval and hysteresis may be. */
#define GF_STATE_STEPS_MAX (UINT64_C(1) << 48)
#define GF_STATE_SAMPLES_MAX (GF_WORLD_MAX * ((UINT64_C(1) << 51) - 1))
#define GF_STATE_STREAK_MAX 1000000u

struct gf_state_head {
    uint64_t magic;
    uint32_t version;
    uint32_t head_bytes;
    uint64_t total_bytes;
    uint64_t tensors_hash;
    uint64_t elem_count; /* of the pool */
    uint64_t sparse_elem_count;
    uint64_t step;
    uint64_t samples_before;
    uint32_t tensor_count;
    uint32_t optimizer; /* gf_optimizer */
    uint32_t has_momentum;
    /* gf_sparse_momentum; 0 without a sparse part, like the next three */
    uint32_t sparse_momentum;
    /* gf_average - GF_AVERAGE_SUM: what a history is divided by once it is sent */
    uint32_t average;
    uint32_t chunk_elems;
    uint32_t chunk_count;
    uint32_t world;
    uint32_t flags; /* GF_STATE_.. */
    uint32_t selected_count;
    uint32_t scale_bits; /* the loss scale, fp32 */
    uint32_t scale_good;
    uint32_t scale_bad;
    uint32_t rank;
    uint64_t updates; /* gf_update() was applied so often */
    /* of what is common, the head's rank and this taken for 0: all ranks of a save agree */
    uint64_t common_hash;
};
_Static_assert(sizeof(struct gf_state_head) == 136, "no padding: the head is written as it lies");

#endif
