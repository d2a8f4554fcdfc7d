/* Element ops: what is done to data, a flat loop each. The host backend is the definition; others are tested against
 * it, bit by bit where rounding matters. Counts are elements, addresses are the queue's (host or device). Empty ranges
 * are valid. Unless said, ranges of one call are the same or do not overlap. All return GF_OK, or GF_ERR_DEVICE. */
#ifndef GF_OPS_H
#define GF_OPS_H

#include "drivers/gpu.h"
#include "ops/element_args.h"

struct gf_node_ops;
struct gf_sparse_ops;
struct gf_optimizer_ops;
struct gf_quantize_ops;

static inline uint64_t gf_runs(uint64_t elem_count)
{
    return elem_count / GF_RUN_ELEMS + (elem_count % GF_RUN_ELEMS != 0);
}

static inline size_t gf_type_bytes(gf_type type) { return (type == GF_TYPE_F32) ? 4 : 2; }

/* Non-finite values met, added to by each element op that takes one (host memory on the host; device memory on a GPU).
 * `first` is the lowest index met, counted from `base` of the call; UINT64_MAX: none. */
struct gf_check {
    uint64_t bad_count;
    uint64_t bad_first;
};

/* The host's instruction sets, of which each element op has a version. */
typedef enum gf_element_ops_set {
    GF_ELEMENT_OPS_SCALAR,
    GF_ELEMENT_OPS_AVX2,
    GF_ELEMENT_OPS_AVX512,
    GF_ELEMENT_OPS_NEON,
    GF_ELEMENT_OPS_SETS
} gf_element_ops_set;

/* What a dense step needs. A module finds its own (module_ops.h) by it. */
struct gf_element_ops {
    const char *name; /* "host", "cuda" */
    gf_element_ops_set set;                   /* of the host */
    const struct gf_node_ops *node;           /* NULL on the host, */
    const struct gf_sparse_ops *sparse;       /* where modules bring a table for each set; */
    const struct gf_optimizer_ops *optimizer; /* a device's are its own */
    const struct gf_quantize_ops *quantize;
    bool (*supported)(void); /* by this CPU; NULL: by any */

    /* dst[i] = round(src[i] * scale), to nearest even; the product is made in fp32. NULL check: not looked at; else
     * each result that is not finite is counted, base is the index of element 0. Same range valid if types agree. */
    gf_status (*cast)(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src, gf_type src_type,
                      uint64_t elem_count, float scale, uint64_t base, struct gf_check *check);
    /* dst[i] = round(dst[i] + src[i]), added in fp32; check as above, on the result. */
    gf_status (*sum)(struct gf_queue *queue, gf_mem dst, gf_mem src, gf_type type, uint64_t elem_count, uint64_t base,
                     struct gf_check *check);
    /* Only looks. */
    gf_status (*check)(struct gf_queue *queue, gf_mem src, gf_type type, uint64_t elem_count, uint64_t base,
                       struct gf_check *check);
    gf_status (*copy)(struct gf_queue *queue, gf_mem dst, gf_mem src, uint64_t size_bytes);
    gf_status (*zero)(struct gf_queue *queue, gf_mem dst, uint64_t size_bytes);
};

/* The host's fastest versions that this CPU runs, by CPUID; the same at each call. */
const struct gf_element_ops *gf_element_ops_best(void);
static inline bool gf_element_ops_supported(const struct gf_element_ops *ops)
{
    return (ops->supported == NULL) || ops->supported();
}

#endif
