/* Inside the host backend: each element op is written once, in *_host.h, over a vector of VEC_ELEMS
 * floats, and compiled for each width that a vec_*.h describes. ops_host.c picks the widest that
 * the CPU runs. */
#ifndef GF_OPS_HOST_H
#define GF_OPS_HOST_H

#include "ops/ops.h"

extern const struct gf_element_ops gf_element_ops_scalar; /* a vector of one: the definition */
#if defined(__x86_64__)
extern const struct gf_element_ops gf_element_ops_avx2;   /* and F16C */
extern const struct gf_element_ops gf_element_ops_avx512; /* F, BW, DQ, VL */
#elif defined(__aarch64__)
extern const struct gf_element_ops gf_element_ops_neon;
#endif

/* Slowest first. Calling one that is not supported here is an illegal instruction. */
extern const struct gf_element_ops *const gf_element_ops_variants[];
extern const uint32_t gf_element_ops_variant_count;

/* From this size on the result of a cast from or to fp32 is stored past the cache (non-temporal
 * stores), which saves reading it first; below, whoever looks at it next finds it in the cache, as
 * the wire does with a slice. Of ordinary stores, fp32 to fp16 with the result read back at once:
 * 0.94 at 1 MiB, 1.0 at 2, 1.1 to 1.2 from 4 on (Xeon, family 6 model 207, with 2 MiB of
 * second-level cache). Twice that, because a fused buffer of 4 MiB may be on the wire next. */
#define GF_STREAM_BYTES ((uint64_t)8 << 20)
#define GF_LINE_BYTES 64u

/* cast() and sum() ask for what they read ahead of time, into the second-level cache and then into
 * the first: the hardware's own looking ahead stops at the end of each page. Past the cache, of not
 * asking: cast fp32 to fp16 1.25, to bf16 1.45, sum of fp16 1.28; twice or half as far is no
 * better. Within the first two levels 0.7 (sum of fp32) to 1.05, a loss of less time. score() and
 * norm() store nothing, gain less and would lose more (0.65): they ask once, two lines ahead, which
 * on an EPYC (family 25 model 1) is 1.2 of not asking and 1.1 of asking 4 KiB ahead. update() and
 * accumulate() have streams enough without (update with half weights: 0.8). The others on a Xeon,
 * family 6 model 207; all with bench-ops. */
#define GF_AHEAD_FAR_BYTES 8192u
#define GF_AHEAD_NEAR_BYTES 1024u
#define GF_AHEAD_READER_BYTES 128u

static inline uint8_t *gf_host_at(gf_mem mem)
{
    return (uint8_t *)(uintptr_t)mem;
}

/* Into the first two cache levels, or the second alone. The sum is made of integers: it may leave
 * the range. */
static inline void gf_ahead_near(const uint8_t *base, uint64_t offset)
{
    __builtin_prefetch((const void *)((uintptr_t)base + offset), 0, 3);
}

static inline void gf_ahead_far(const uint8_t *base, uint64_t offset)
{
    __builtin_prefetch((const void *)((uintptr_t)base + offset), 0, 2);
}

/* A result of at least this magnitude, before it is rounded to the type, rounds to infinity.
 * Halfway between the largest finite value and the next power of two is a tie, and the largest
 * finite mantissa is odd. */
static inline float gf_type_overflow(gf_type type)
{
    switch (type) {
    case GF_TYPE_F16: return 65520.0f;
    case GF_TYPE_BF16: return 0x1.ffp+127f;
    case GF_TYPE_F32:
    case GF_TYPE_COUNT: break;
    }
    return __builtin_inff();
}

/* Bit b of bad: element `first` + b is not finite. Seldom reached. */
static inline void gf_check_note(struct gf_check *check, uint64_t first, uint32_t bad)
{
    if (check == NULL) return;
    check->bad_count += (uint64_t)__builtin_popcount(bad);
    first += (uint64_t)__builtin_ctz(bad);
    if (first < check->bad_first) check->bad_first = first;
}

#endif
