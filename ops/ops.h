/* Element ops: what is done to data, a flat loop each. The host backend is the definition; others
 * are tested against it, bit by bit where rounding matters. Counts are elements, addresses are the
 * queue's (host or device). Empty ranges are valid. Unless said, ranges of one call are the same or
 * do not overlap. All return GF_OK, or GF_ERR_DEVICE. */
#ifndef GF_OPS_H
#define GF_OPS_H

#include "drivers/gpu.h"
#include "ops/element_args.h"

static inline uint64_t gf_runs(uint64_t elem_count)
{
    return elem_count / GF_RUN_ELEMS + (elem_count % GF_RUN_ELEMS != 0);
}

_Static_assert(GF_TYPE_COUNT == 3, "a new type: CONTRIBUTING.md has the list of its places");
/* Size of one element; 0: there is no such type. gf_type_size_bytes() is this as a public call. */
static inline size_t gf_type_bytes(gf_type type)
{
    switch (type) {
    case GF_TYPE_F32: return 4;
    case GF_TYPE_F16:
    case GF_TYPE_BF16: return 2;
    case GF_TYPE_COUNT: break;
    }
    return 0;
}

extern const char *const gf_type_names[GF_TYPE_COUNT]; /* "fp32": ops/types.c */

/* Non-finite values met, added to by each element op that takes one (host memory on the host;
 * device memory on a GPU). `first` is the lowest index met, counted from `base` of the call;
 * UINT64_MAX: none. */
struct gf_check {
    uint64_t bad_count;
    uint64_t bad_first;
};

#define GF_DIRECT_RANKS_MAX 64u /* of one node; sources of sum_n(), at most */

/* The order of adding in score() and, in double, norm(): l += l + 32, then l + 16, .. l + 1. */
#define GF_LANES 64u
static inline double gf_lanes_tree_f64(double lanes[GF_LANES])
{
    for (uint32_t half = GF_LANES / 2; half > 0; half /= 2) {
        for (uint32_t l = 0; l < half; l++) lanes[l] += lanes[l + half];
    }
    return lanes[0];
}
static inline float gf_lanes_tree(float lanes[GF_LANES])
{
    for (uint32_t half = GF_LANES / 2; half > 0; half /= 2) {
        for (uint32_t l = 0; l < half; l++) lanes[l] += lanes[l + half];
    }
    return lanes[0];
}

/* One table an instruction set of the host, or a device. */
struct gf_element_ops {
    const char *name;        /* "avx2", "cuda" */
    bool (*supported)(void); /* by this CPU; NULL: by any */

    /* ---- every step ---- */

    /* dst[i] = round(src[i] * scale), to nearest even; the product is made in fp32. NULL check: not
     * looked at; else each result that is not finite is counted, base is the index of element 0.
     * Same range valid if types agree. */
    gf_status (*cast)(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src,
                      gf_type src_type, uint64_t elem_count, float scale, uint64_t base,
                      struct gf_check *check);
    /* dst[i] = round(dst[i] + src[i]), added in fp32; check as above, on the result. */
    gf_status (*sum)(struct gf_queue *queue, gf_mem dst, gf_mem src, gf_type type,
                     uint64_t elem_count, uint64_t base, struct gf_check *check);
    /* Only looks. */
    gf_status (*check)(struct gf_queue *queue, gf_mem src, gf_type type, uint64_t elem_count,
                       uint64_t base, struct gf_check *check);
    gf_status (*copy)(struct gf_queue *queue, gf_mem dst, gf_mem src, uint64_t size_bytes);
    gf_status (*zero)(struct gf_queue *queue, gf_mem dst, uint64_t size_bytes);

    /* ---- ranks of one node, in memory that all of them reach ---- */

    /* dst[d][i] = round(src[0][i] + src[1][i] + ..) for all d < dst_count: added in fp32 in this
     * order and rounded once, so that with 16-bit types more than two sources are not the same as
     * sums in turn. The tables dst and src are host memory, read during the call; src_count is at
     * least 1. A dst is one of the sources or overlaps none. Check as in sum(), on the result;
     * sources, valid only with it, counts the sources' values that were not finite, and its
     * `bad_first` is the lowest (source << GF_SOURCE_SHIFT) + index met. */
    gf_status (*sum_n)(struct gf_queue *queue, const gf_mem *dst, uint32_t dst_count,
                       const gf_mem *src, uint32_t src_count, gf_type type, uint64_t elem_count,
                       uint64_t base, struct gf_check *check, struct gf_check *sources);
    /* dst[i][size_bytes[i]] = src[i] for all i < count, at once: no dst overlaps another range.
     * Addresses and sizes are multiples of 2; the tables are host memory, read during the call. */
    gf_status (*copy_n)(struct gf_queue *queue, const gf_mem *dst, const gf_mem *src,
                        const uint64_t *size_bytes, uint32_t count);

    /* ---- sparse communication: scores, histories, listed chunks ---- */

    /* scores_f32[c] = sum of |src[i]| over chunk c of chunk_elems (the last may be short). One
     * order of adding, the same in every backend: 64 lanes (lane l adds elements l, l+64, ..), then
     * a fixed tree over the lanes (l += l+32, then l+16, .. l+1); so for each run of GF_RUN_ELEMS
     * of a segment of segment_elems of a chunk, then the runs' sums one after the other, then the
     * segments'. */
    gf_status (*score)(struct gf_queue *queue, gf_mem scores_f32, gf_mem src_f32,
                       uint64_t elem_count, uint64_t chunk_elems, uint64_t segment_elems);
    /* Sparse history. g = scale*src[i] (+ decay*weight[i]).
     *     with u:     u' = momentum*u[i] + g
     *                 h' = h[i] + (ahead*u' + g)
     *     where u 0:  h' = h[i] + g
     * dst_h may be h, dst_u may be u. No fused multiply-add. */
    gf_status (*accumulate)(struct gf_queue *queue, const struct gf_accumulate *accumulate,
                            uint64_t elem_count);
    /* Gather and scatter: cast() of each listed chunk. What is not finite is counted with base plus
     * its index in src. In place: only with the same types, and none packed. */
    gf_status (*cast_chunks)(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src,
                             gf_type src_type, const struct gf_chunks *chunks, float scale,
                             uint64_t base, struct gf_check *check);
    /* accumulate() of each listed chunk: h, u, src and weight are the source, dst_h and dst_u the
     * other. */
    gf_status (*accumulate_chunks)(struct gf_queue *queue, const struct gf_accumulate *accumulate,
                                   const struct gf_chunks *chunks);
    /* Zeroes each listed chunk. */
    gf_status (*zero_chunks)(struct gf_queue *queue, gf_mem dst, gf_type type,
                             const struct gf_chunks *chunks);

    /* ---- optimizers: norms, trust ratios, updates ---- */

    /* Of each range, *square_f64 += sum of src[i]^2 in double: each run of GF_RUN_ELEMS in 64 lanes
     * and the tree of score(), then the runs' sums in the same order again. Double, because in fp32
     * the square of a finite value overflows from 1.8e19 on and is 0 below 2.6e-23: a square of any
     * fp32 value is exact in double, and no sum of them leaves its range. (Scaling by the largest
     * magnitude would read everything twice.) No two have one square. scratch_f64 has gf_runs() of
     * all ranges, is overwritten, and serves one queue; the host wants none (0). These and other
     * tables of count entries are host memory, read during the call. */
    gf_status (*norm)(struct gf_queue *queue, gf_mem scratch_f64, gf_type type,
                      const struct gf_norm *ranges, uint32_t count);
    /* With w = sqrt(weight square) and g = sqrt(gradient square) * gradient_scale: *ratio_f32 = 1
     * unless both are above 0, else eta*w / (g + decay*w + epsilon). In double, which no norm
     * leaves; nothing fused, each step rounded, the ratio to fp32 last. */
    gf_status (*ratio)(struct gf_queue *queue, const struct gf_ratio *ratios, uint32_t count);
    /* One pass, in this order, all in fp32 without fused multiply-add:
     *     g = rate_in*(gradient_scale*gradient[i] + decay*weight[i])
     *     v = momentum*v[i] + g
     *     d = nesterov ? momentum*v + g : v
     *     weight[i] = weight[i] - rate_out*d
     * momentum_f32 0: d = g; with ratio_f32, rate_in * *ratio_f32 takes the place of rate_in. Then
     * half[i] = round(weight[i]). */
    gf_status (*update)(struct gf_queue *queue, const struct gf_update *update,
                        uint64_t elem_count);
    /* update() of each part, with addresses of the whole range; ratio and decay are the part's. */
    gf_status (*update_parts)(struct gf_queue *queue, const struct gf_update *update,
                              const struct gf_update_part *parts, uint32_t count);
    /* update() of each listed chunk, with addresses of the whole ranges. */
    gf_status (*update_chunks)(struct gf_queue *queue, const struct gf_update *update,
                               const struct gf_chunks *chunks);
    /* One pass, in this order, all in fp32 without fused multiply-add:
     *     g = gradient_scale*gradient[i]
     *     m[i] = beta1*m[i] + keep1*g
     *     v[i] = beta2*v[i] + (keep2*g)*g
     *     r = (correct1*m[i]) / (correct2*sqrt(v[i]) + epsilon) + decay*weight[i]
     *     weight[i] = weight[i] - rate*r
     * Then half[i] = round(weight[i]). */
    gf_status (*adam)(struct gf_queue *queue, const struct gf_adam *adam, uint64_t elem_count);
};

/* The host's fastest versions that this CPU runs, by CPUID; the same at each call. */
const struct gf_element_ops *gf_element_ops_best(void);
static inline bool gf_element_ops_supported(const struct gf_element_ops *ops)
{
    return (ops->supported == NULL) || ops->supported();
}

#endif
