/* See gpu_bench.h. */
#include <stdlib.h>

#include "firmware-tests/cuda/gpu_bench.h"
#include "firmware-tests/cuda/gpu_program.h"
#include "ops/element/cuda/ops_cuda.h"

#define CHUNK_ELEMS UINT64_C(32768)
#define FEW 1024u /* elements of what is launch-bound */
enum {
    CHECK_AT = 0,
    MEETINGS_AT = 16,
    NORM_AT = 64,
    RATIO_AT = 80,
    LIST_AT = 4096,
    SCORES_AT = 256 << 10,
    SCRATCH_AT = 640 << 10,
    LARS_AT = 7 << 20
};

uint64_t bench_range_bytes;

gf_mem bench_range(uint32_t which)
{
    return gpu_program.gpu->arena + which * bench_range_bytes;
}
static gf_mem rest(uint32_t at)
{
    return bench_range(BENCH_RANGES) + at;
}
gf_mem bench_check(void)
{
    return rest(CHECK_AT);
}
gf_mem bench_meetings(void)
{
    return rest(MEETINGS_AT);
}

static struct gf_queue *queue(void)
{
    return &gpu_program.queue;
}
static uint64_t elems(void)
{
    return bench_range_bytes / 4;
}
static struct gf_check *found(void)
{
    return (struct gf_check *)(uintptr_t)bench_check();
}

static gf_status run_copy(void)
{
    return gf_element_ops_cuda.copy(queue(), bench_range(BENCH_OUT), bench_range(BENCH_GRADIENT),
                                    bench_range_bytes);
}

static gf_status narrow(gf_type type, uint64_t count)
{
    return gf_element_ops_cuda.cast(queue(), bench_range(BENCH_OUT), type,
                                    bench_range(BENCH_GRADIENT), GF_TYPE_F32, count, 1, 0, found());
}
static gf_status run_f16(void)
{
    return narrow(GF_TYPE_F16, elems());
}
static gf_status run_bf16(void)
{
    return narrow(GF_TYPE_BF16, elems());
}
static gf_status run_few(void)
{
    return narrow(GF_TYPE_F16, FEW);
}
static gf_status run_widen(void)
{
    return gf_element_ops_cuda.cast(queue(), bench_range(BENCH_OUT), GF_TYPE_F32,
                                    bench_range(BENCH_HALF), GF_TYPE_F16, elems(), 1, 0, NULL);
}
static gf_status run_sum(void)
{
    return gf_element_ops_cuda.sum(queue(), bench_range(BENCH_B), bench_range(BENCH_GRADIENT),
                                   GF_TYPE_F32, elems(), 0, found());
}
static gf_status run_sum_f16(void)
{
    return gf_element_ops_cuda.sum(queue(), bench_range(BENCH_HALF_SUM), bench_range(BENCH_HALF),
                                   GF_TYPE_F16, 2 * elems(), 0, NULL);
}
static gf_status run_sum_n(void)
{
    const gf_mem dst = bench_range(BENCH_OUT);
    const gf_mem src[] = {bench_range(BENCH_GRADIENT), bench_range(BENCH_B)};
    return gf_element_ops_cuda.sum_n(queue(), &dst, 1, src, 2, GF_TYPE_F32, elems(), 0, found(),
                                     NULL);
}
/* As of the ranks of a node, each with its own quarter of a range. */
static gf_status run_sum_of_8(void)
{
    const gf_mem dst = bench_range(BENCH_OUT);
    const uint64_t part = elems() / 4;
    gf_mem src[8];
    for (uint32_t s = 0; s < 8; s++)
        src[s] = bench_range((s < 4) ? BENCH_GRADIENT : BENCH_B) + s % 4 * part * sizeof(float);
    return gf_element_ops_cuda.sum_n(queue(), &dst, 1, src, 8, GF_TYPE_F32, part, 0, found(), NULL);
}
/* In the blocks that device.multiprocessors gives what goes between devices. */
static gf_status in_few_blocks(gf_status (*run)(void))
{
    struct gf_queue *const of = &gpu_program.queue;
    of->blocks_max = BENCH_BLOCKS;
    of->block_threads = GF_GPU_CHANNEL_THREADS;
    gf_status status = run();
    of->blocks_max = of->block_threads = 0;
    return status;
}
static gf_status run_sum_n_few(void)
{
    return in_few_blocks(run_sum_n);
}
static gf_status run_sum_of_8_few(void)
{
    return in_few_blocks(run_sum_of_8);
}
static gf_status run_copy_n(void)
{
    const uint64_t part_bytes = bench_range_bytes / 8;
    gf_mem dst[8];
    gf_mem src[8];
    uint64_t bytes[8];
    for (uint32_t i = 0; i < 8; i++) {
        dst[i] = bench_range(BENCH_OUT) + i * part_bytes;
        src[i] = bench_range(BENCH_GRADIENT) + i * part_bytes;
        bytes[i] = part_bytes;
    }
    return gf_element_ops_cuda.copy_n(queue(), dst, src, bytes, 8);
}
static gf_status run_copy_n_few(void)
{
    return in_few_blocks(run_copy_n);
}
static gf_status run_check(void)
{
    return gf_element_ops_cuda.check(queue(), bench_range(BENCH_GRADIENT), GF_TYPE_F32, elems(), 0,
                                     found());
}
static gf_status run_score(void)
{
    return gf_element_ops_cuda.score(queue(), rest(SCORES_AT), bench_range(BENCH_GRADIENT), elems(),
                                     CHUNK_ELEMS, 65536);
}
static gf_status norm(uint64_t count)
{
    const struct gf_norm range = {rest(NORM_AT), bench_range(BENCH_GRADIENT), count};
    return gf_element_ops_cuda.norm(queue(), rest(SCRATCH_AT), GF_TYPE_F32, &range, 1);
}
static gf_status run_norm(void)
{
    return norm(elems());
}
static gf_status run_norm_few(void)
{
    return norm(FEW);
}
static gf_status run_ratio(void)
{
    const struct gf_ratio ratio = {rest(RATIO_AT), rest(NORM_AT), rest(NORM_AT), 0.25f,
                                   0.02f,          5e-4f,         1e-6f};
    return gf_element_ops_cuda.ratio(queue(), &ratio, 1);
}

/* ResNet-50's elements in its 54 tensors that have a ratio, of one size, and a part between any
 * two. */
static gf_status run_lars(void)
{
    enum { TENSORS = 54 };
    struct gf_norm norms[2 * TENSORS];
    struct gf_ratio ratios[TENSORS];
    struct gf_update_part parts[2 * TENSORS];
    struct gf_update some = {.weight_f32 = bench_range(BENCH_B),
                             .momentum_f32 = bench_range(BENCH_C),
                             .gradient = bench_range(BENCH_GRADIENT),
                             .gradient_scale = 1,
                             .rate_in = 0.1f,
                             .rate_out = 1,
                             .momentum = 0.9f};
    uint64_t all = (elems() < 25557032) ? elems() : 25557032;
    uint64_t each = all / TENSORS / 64 * 64;
    for (uint32_t i = 0; i < TENSORS; i++) {
        gf_mem at = rest(LARS_AT) + 8 * i;
        gf_mem first = i * each;
        norms[i] = (struct gf_norm){at, some.weight_f32 + 4 * first, each - 64};
        norms[TENSORS + i] = (struct gf_norm){at + 1024, some.gradient + 4 * first, each - 64};
        ratios[i] = (struct gf_ratio){at + 2048, at, at + 1024, 1, 0.001f, 5e-5f, 1e-6f};
        parts[2 * i] = (struct gf_update_part){first, each - 64, at + 2048, 5e-5f, 0};
        parts[2 * i + 1] = (struct gf_update_part){first + each - 64, 64, 0, 0, 0};
    }
    gf_status status = gf_element_ops_cuda.zero(queue(), rest(LARS_AT), 2048);
    if (status >= 0)
        status =
            gf_element_ops_cuda.norm(queue(), rest(SCRATCH_AT), GF_TYPE_F32, norms, 2 * TENSORS);
    if (status >= 0) status = gf_element_ops_cuda.ratio(queue(), ratios, TENSORS);
    return (status < 0) ? status
                        : gf_element_ops_cuda.update_parts(queue(), &some, parts, 2 * TENSORS);
}

static struct gf_accumulate history(void)
{
    return (struct gf_accumulate){.dst_h_f32 = bench_range(BENCH_B),
                                  .h_f32 = bench_range(BENCH_B),
                                  .dst_u_f32 = bench_range(BENCH_C),
                                  .u_f32 = bench_range(BENCH_C),
                                  .src = bench_range(BENCH_GRADIENT),
                                  .scale = 1,
                                  .momentum = 0.5f,
                                  .ahead = 0.5f};
}
static struct gf_update sgd(void)
{
    return (struct gf_update){.weight_f32 = bench_range(BENCH_B),
                              .momentum_f32 = bench_range(BENCH_C),
                              .gradient = bench_range(BENCH_GRADIENT),
                              .gradient_scale = 1,
                              .rate_in = 1,
                              .rate_out = 0.1f,
                              .momentum = 0.9f,
                              .decay = 1e-4f};
}
static gf_status run_accumulate(void)
{
    const struct gf_accumulate some = history();
    return gf_element_ops_cuda.accumulate(queue(), &some, elems());
}
static gf_status run_update(void)
{
    const struct gf_update some = sgd();
    return gf_element_ops_cuda.update(queue(), &some, elems());
}
static gf_status run_update_half(void)
{
    struct gf_update some = sgd();
    some.half = bench_range(BENCH_OUT);
    some.half_type = GF_TYPE_BF16;
    return gf_element_ops_cuda.update(queue(), &some, elems());
}
static gf_status run_adam(void)
{
    const struct gf_adam some = {.weight_f32 = bench_range(BENCH_B),
                                 .moment1_f32 = bench_range(BENCH_C),
                                 .moment2_f32 = bench_range(BENCH_SQUARES),
                                 .gradient = bench_range(BENCH_GRADIENT),
                                 .gradient_scale = 1,
                                 .rate = 1e-3f,
                                 .decay = 0.01f,
                                 .epsilon = 1e-8f,
                                 .beta1 = 0.9f,
                                 .keep1 = 0.1f,
                                 .beta2 = 0.999f,
                                 .keep2 = 0.001f,
                                 .correct1 = 1,
                                 .correct2 = 1};
    return gf_element_ops_cuda.adam(queue(), &some, elems());
}

/* Every second chunk of a range. */
static uint32_t listed(void)
{
    return (uint32_t)(elems() / CHUNK_ELEMS / 2);
}
static struct gf_chunks chunks(bool dst_packed, bool src_packed)
{
    return (struct gf_chunks){.list_u32 = rest(LIST_AT),
                              .count = listed(),
                              .chunk_elems = CHUNK_ELEMS,
                              .elems = elems(),
                              .dst_packed = dst_packed,
                              .src_packed = src_packed};
}
static gf_status run_gather(void)
{
    const struct gf_chunks some = chunks(true, false);
    return gf_element_ops_cuda.cast_chunks(queue(), bench_range(BENCH_OUT), GF_TYPE_F16,
                                           bench_range(BENCH_GRADIENT), GF_TYPE_F32, &some, 1, 0,
                                           found());
}
static gf_status run_scatter(void)
{
    const struct gf_chunks some = chunks(false, true);
    return gf_element_ops_cuda.cast_chunks(queue(), bench_range(BENCH_OUT), GF_TYPE_F32,
                                           bench_range(BENCH_HALF), GF_TYPE_F16, &some, 1, 0, NULL);
}
static gf_status run_accumulate_chunks(void)
{
    const struct gf_chunks some = chunks(false, false);
    const struct gf_accumulate all = history();
    return gf_element_ops_cuda.accumulate_chunks(queue(), &all, &some);
}
static gf_status run_zero_chunks(void)
{
    const struct gf_chunks some = chunks(false, false);
    return gf_element_ops_cuda.zero_chunks(queue(), bench_range(BENCH_OUT), GF_TYPE_F32, &some);
}
static gf_status run_update_chunks(void)
{
    const struct gf_chunks some = chunks(false, false);
    const struct gf_update all = sgd();
    return gf_element_ops_cuda.update_chunks(queue(), &all, &some);
}

/* Over the bus, as gradients do where ranks cannot reach each other's device memory. */
static gf_mem pinned(void)
{
    return (gf_mem)(uintptr_t)gpu_program.staging;
}
static gf_status run_down(void)
{
    return gf_element_ops_cuda.copy(queue(), pinned(), bench_range(BENCH_GRADIENT),
                                    bench_range_bytes);
}
static gf_status run_up(void)
{
    return gf_element_ops_cuda.copy(queue(), bench_range(BENCH_OUT), pinned(), bench_range_bytes);
}

/* A buffer of fp32 gradients as a step stages it, on an fp16 wire: cast, to the host, back, cast;
 * the exchange between takes no time here. On one queue: the two ways do not overlap, those of
 * different buffers in a step may. */
static gf_status run_staged(void)
{
    gf_status status = run_f16();
    gf_mem out = bench_range(BENCH_OUT);
    if (status >= 0)
        status = gf_element_ops_cuda.copy(queue(), pinned(), out, bench_range_bytes / 2);
    if (status >= 0)
        status = gf_element_ops_cuda.copy(queue(), out, pinned(), bench_range_bytes / 2);
    if (status >= 0)
        status = gf_element_ops_cuda.cast(queue(), bench_range(BENCH_GRADIENT), GF_TYPE_F32, out,
                                          GF_TYPE_F16, elems(), 1, 0, NULL);
    return status;
}

#define A BENCH_GRADIENT
#define B BENCH_B
#define C BENCH_C
#define H BENCH_HALF
#define P BENCH_HALF_SUM
#define OUT BENCH_OUT
#define SWEEP(r, w, ...) .reads = (r), .writes = (w), __VA_ARGS__
#define BUS "copy, device to pinned"
/* What an NVLink of 450 GB/s each way wants of it: as much from each source, or of all peers
 * together (7 of 8 sources), and as much written as one source has. Memory of this device is nearer
 * than a peer's, so that less is too little, and as much may still be. */
#define NVLINK 450.0
/* A row's sweep has the mix of reads and writes that is nearest to its own. */
const struct bench_row bench_rows[] = {
    {.name = "copy, device to device",
     .run = run_copy,
     .ranges = 2,
     SWEEP(1, 1, .src = {A}, .dst = {OUT})},
    {.name = "cast fp32 to fp16, checked",
     .run = run_f16,
     .ranges = 1.5,
     SWEEP(2, 1, .src = {A, B}, .dst = {OUT})},
    {.name = "cast fp32 to bf16, checked",
     .run = run_bf16,
     .ranges = 1.5,
     SWEEP(2, 1, .src = {A, B}, .dst = {OUT})},
    {.name = "cast fp16 to fp32",
     .run = run_widen,
     .ranges = 1.5,
     SWEEP(1, 2, .src = {H}, .dst = {OUT, OUT})},
    {.name = "sum fp32, checked",
     .run = run_sum,
     .ranges = 3,
     SWEEP(2, 1, .src = {B, A}, .dst = {B})},
    {.name = "sum fp16", .run = run_sum_f16, .ranges = 3, SWEEP(2, 1, .src = {P, H}, .dst = {P})},
    {.name = "sum of 2 ranks, checked",
     .run = run_sum_n,
     .ranges = 3,
     SWEEP(2, 1, .src = {A, B}, .dst = {OUT})},
    {.name = "sum of 8 ranks, checked",
     .run = run_sum_of_8,
     .ranges = 2.25,
     SWEEP(2, 1, .src = {A, B}, .dst = {OUT})},
    {.name = "copies of 8 ranges at once",
     .run = run_copy_n,
     .ranges = 2,
     SWEEP(1, 1, .src = {A}, .dst = {OUT})},
    {.name = "sum of 2 ranks, 20 blocks",
     .run = run_sum_n_few,
     .ranges = 3,
     .goal_gbps = 3 * NVLINK},
    {.name = "sum of 8 ranks, 20 blocks",
     .run = run_sum_of_8_few,
     .ranges = 2.25,
     .goal_gbps = 9 * NVLINK / 7},
    {.name = "copies of 8, 20 blocks", .run = run_copy_n_few, .ranges = 2, .goal_gbps = 2 * NVLINK},
    {.name = "accumulate",
     .run = run_accumulate,
     .ranges = 5,
     SWEEP(3, 2, .src = {B, C, A}, .dst = {B, C})},
    {.name = "update",
     .run = run_update,
     .ranges = 5,
     SWEEP(3, 2, .src = {B, C, A}, .dst = {B, C})},
    {.name = "update, with a bf16 copy",
     .run = run_update_half,
     .ranges = 5.5,
     SWEEP(3, 2, .src = {B, C, A}, .dst = {B, C})},
    {.name = "adam", .run = run_adam, .ranges = 7, SWEEP(3, 2, .src = {B, C, A}, .dst = {B, C})},
    {.name = "gather fp32 to fp16, checked",
     .run = run_gather,
     .ranges = 0.75,
     SWEEP(2, 1, .src = {A, B}, .dst = {OUT})},
    {.name = "scatter fp16 to fp32",
     .run = run_scatter,
     .ranges = 0.75,
     SWEEP(1, 2, .src = {H}, .dst = {OUT, OUT})},
    {.name = "accumulate, listed chunks",
     .run = run_accumulate_chunks,
     .ranges = 2.5,
     SWEEP(3, 2, .src = {B, C, A}, .dst = {B, C})},
    {.name = "zero, listed chunks",
     .run = run_zero_chunks,
     .ranges = 0.5,
     SWEEP(0, 1, .dst = {OUT})},
    {.name = "update, listed chunks",
     .run = run_update_chunks,
     .ranges = 2.5,
     SWEEP(3, 2, .src = {B, C, A}, .dst = {B, C})},
    {.name = "check fp32", .run = run_check, .ranges = 1, SWEEP(1, 0, .src = {A})},
    {.name = "score", .run = run_score, .ranges = 1, SWEEP(1, 0, .src = {A})},
    {.name = "norm", .run = run_norm, .ranges = 1, SWEEP(1, 0, .src = {A})},
    {.name = "cast of 1024 elements", .run = run_few, .bound_us = 10},
    {.name = "norm of 1024 elements", .run = run_norm_few, .bound_us = 20},
    {.name = "ratio", .run = run_ratio, .bound_us = 10},
    {.name = "LARS on ResNet-50", .run = run_lars, .bound_us = 300},
    {.name = BUS, .run = run_down, .ranges = 1},
    {.name = "copy, pinned to device", .run = run_up, .ranges = 1, .than = BUS},
    {.name = "staged buffer, fp16 wire", .run = run_staged, .ranges = 1, .than = BUS},
};
const size_t bench_row_count = sizeof bench_rows / sizeof bench_rows[0];

void bench_fill(void)
{
    static const struct gf_check none = {0, UINT64_MAX};
    float *numbers = (float *)(void *)gpu_program.staging;
    uint32_t random = 1;
    uint32_t *list = calloc(listed() + 1, sizeof *list);
    if (list == NULL) abort();
    for (uint64_t i = 0; i < elems(); i++) {
        random = random * 1664525u + 1013904223u;
        numbers[i] = ((float)(random >> 8) - 0x1p23f) * 0x1p-23f;
    }
    gpu_must(gf_element_ops_cuda.copy(queue(), bench_range(A), pinned(), bench_range_bytes));
    for (uint32_t which = B; which <= C; which++)
        gpu_must(gf_element_ops_cuda.cast(queue(), bench_range(which), GF_TYPE_F32, bench_range(A),
                                          GF_TYPE_F32, elems(), 0.5f, 0, NULL));
    for (uint32_t half = 0; half < 4; half++)
        gpu_must(gf_element_ops_cuda.cast(
            queue(), bench_range(H + half / 2) + half % 2 * bench_range_bytes / 2, GF_TYPE_F16,
            bench_range(A), GF_TYPE_F32, elems(), 0.25f, 0, NULL));
    gpu_must(gf_element_ops_cuda.zero(queue(), bench_range(BENCH_SQUARES),
                                      2 * bench_range_bytes + BENCH_REST_BYTES));
    for (uint32_t i = 0; i < listed(); i++) list[i] = 2 * i;
    gpu_upload(rest(LIST_AT), list, listed() * sizeof *list);
    gpu_upload(bench_check(), &none, sizeof none);
    free(list);
}
