/* What the CUDA backend and its kernels agree on: their names and, for each, the one struct it is
 * given by value. The kernels see nothing else of the library. Addresses are the device's and
 * aligned to their elements. */
#ifndef GF_KERNELS_H
#define GF_KERNELS_H

#include "ops/element_args.h"

/* In the order of launch()'s numbers. The kernel is gf_kernel_NAME and takes a struct gf_NAME_args,
 * without types. */
#define GF_KERNELS_TYPES(X, name) X(name##_f32) X(name##_f16) X(name##_bf16) /* NAME + a type */
/* clang-format off */
#define GF_KERNELS(X) \
    GF_KERNELS_TYPES(X, cast_f32) GF_KERNELS_TYPES(X, cast_f16) \
    GF_KERNELS_TYPES(X, cast_bf16) GF_KERNELS_TYPES(X, sum) GF_KERNELS_TYPES(X, sum_n) \
    GF_KERNELS_TYPES(X, check) GF_KERNELS_TYPES(X, norm_runs) \
    GF_KERNELS_TYPES(X, accumulate) GF_KERNELS_TYPES(X, update) GF_KERNELS_TYPES(X, adam) \
    X(score) X(norm_end) X(ratio) X(zero_chunks) X(copy_n)
/* clang-format on */

#define GF_KERNEL_F32 0u /* gf_type, in numbers */
#define GF_KERNEL_F16 1u
#define GF_KERNEL_BF16 2u
#define GF_KERNEL_RANKS_MAX 64u /* of sum_n and copy_n: the tables are part of their arguments */
#define GF_KERNEL_THREADS 256u  /* of a block, but for norm_end and ratio, .. */
/* .. and for sum_n and copy_n between devices, which take up to so many */
#define GF_KERNEL_CHANNEL_THREADS 1024u
#define GF_KERNEL_PACK_MAX 8u  /* elements that a thread takes at once, .. */
#define GF_KERNEL_AHEAD_MAX 4u /* .. and so many times that under way */
/* in the order of adding of score and norm; threads of norm_end */
#define GF_KERNEL_LANES 64u
/* a block's share of what is listed or in parts */
#define GF_KERNEL_TILE_ELEMS (GF_KERNEL_THREADS * 16u)
/* tables are part of the arguments, of which a kernel has 4096 bytes: of norm, */
#define GF_KERNEL_NORMS_MAX 120u
#define GF_KERNEL_RATIOS_MAX 96u /* of ratio, */
#define GF_KERNEL_PARTS_MAX 116u /* of update */

/* Of chunks, count 0: elements 0 .. elem_count-1, and no chunks. */
struct gf_cast_args {
    uint64_t dst, src, elem_count, base;
    uint64_t check; /* 0: none */
    float scale;
    uint32_t dst_type, src_type;
    struct gf_chunks chunks;
};

/* And of check, which has no dst: 0. */
struct gf_sum_args {
    uint64_t dst, src, elem_count, base, check;
    uint32_t type;
};

struct gf_sum_n_args {
    uint64_t dst[GF_KERNEL_RANKS_MAX], src[GF_KERNEL_RANKS_MAX];
    uint64_t elem_count, base, check, sources;
    uint32_t dst_count, src_count, type;
};

/* Range b % count by block b; blocks are a multiple of count. Of 16 bits, as all elements are that
 * or twice that. */
struct gf_copy_n_args {
    uint64_t dst[GF_KERNEL_RANKS_MAX], src[GF_KERNEL_RANKS_MAX], bytes[GF_KERNEL_RANKS_MAX];
    uint32_t count;
};

struct gf_score_args {
    uint64_t scores, src, elem_count, chunk_count;
    uint32_t chunk_elems, segment_elems, segment_runs; /* a segment is no more than a chunk */
};

/* Of norm_runs, which leaves the sum of run r in runs[r], and of norm_end, which adds each range's
 * to its square. */
struct gf_norm_args {
    uint64_t runs;
    uint32_t count, run_count;
    struct {
        struct gf_norm of;
        uint32_t first_run, unused;
    } ranges[GF_KERNEL_NORMS_MAX];
};

struct gf_ratio_args {
    uint32_t count, unused;
    struct gf_ratio of[GF_KERNEL_RATIOS_MAX];
};

struct gf_accumulate_args {
    struct gf_accumulate of;
    uint64_t elem_count;
    struct gf_chunks chunks;
};

struct gf_zero_chunks_args {
    uint64_t dst;
    struct gf_chunks chunks; /* of 16-bit elements */
};

/* One part: flat, or of listed chunks. Several: a block a tile. */
struct gf_update_args {
    struct gf_update of;        /* but ratio and decay */
    uint32_t part_count, tiles; /* of all parts */
    struct gf_chunks chunks;
    struct gf_update_part parts[GF_KERNEL_PARTS_MAX];
};

struct gf_adam_args {
    struct gf_adam of;
    uint64_t elem_count;
};

#endif
