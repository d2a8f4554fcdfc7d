/* Addresses and indices beyond 2^32: ranges of many GiB of which almost nothing is touched. Memory
 * is reserved but not backed, and of a grid that has a thread for each pack only the first, some
 * middle and the last blocks are run.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "ops/element/host/half.h"
#include "ops/element/cuda/kernels.h"
#include "ops/element/cuda/ops_cuda.h"
#include "firmware-tests/cuda/simt.h"
#include "firmware-tests/cuda/simt_gpu.h"

#include <sys/mman.h>

#define ELEMS (UINT64_C(5) << 30) /* + some: more than 2^32 elements */
#define EXTRA 13u
#define RESERVED ((ELEMS + EXTRA) * sizeof(float))
#define THREADS GF_KERNEL_THREADS

static void *reserve(void)
{
    void *at = mmap(NULL, RESERVED, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) skip();
    return at;
}

static void give_back(void *at)
{
    assert_int_equal(munmap(*(void **)at, RESERVED), 0);
}

/* Room for ELEMS and EXTRA floats until the end of the block. */
#define WIDE(type, name) type *name __attribute__((cleanup(give_back))) = reserve()

static uint32_t chosen[4];

/* Those that reach elements 0, 2^32, some between and the last. */
static uint32_t blocks_choose(uint64_t elem_count, uint32_t pack)
{
    uint64_t each = (uint64_t)THREADS * pack;
    uint64_t blocks = elem_count / each + 1;
    assert_true(blocks < UINT32_MAX);
    chosen[0] = 0;
    chosen[1] = (uint32_t)((UINT64_C(1) << 32) / each);
    chosen[2] = (uint32_t)((elem_count - EXTRA) / 2 / each);
    chosen[3] = (uint32_t)((elem_count / pack - 1) / THREADS); /* of the last whole pack */
    gf_simt_blocks(chosen, 4);
    return (uint32_t)blocks;
}

static void launch(const char *kernel, uint64_t elem_count, uint32_t pack, void *args)
{
    void *list[] = {args};
    if (gf_simt_launch(kernel, blocks_choose(elem_count, pack), THREADS, 0, list) != 0)
        fail_msg("%s", gf_simt_error());
    gf_simt_blocks(NULL, 0);
}

/* Elements that are looked at: in the first block, beyond 2^32, in the last pack, and the tail
 * (block 0 takes it). */
static const uint64_t places[] = {0, 100, (UINT64_C(1) << 32) + 5, ELEMS + 2, ELEMS + EXTRA - 1};
#define PLACES (LENGTH(places))

TEST(test_cast_sum_check)
{
    uint64_t count = ELEMS + EXTRA;
    WIDE(uint16_t, src);
    WIDE(uint16_t, dst);
    struct gf_check found = {0, UINT64_MAX};
    struct gf_cast_args cast = {.dst = (uint64_t)(uintptr_t)dst,
                                .src = (uint64_t)(uintptr_t)src,
                                .elem_count = count,
                                .base = 7,
                                .check = (uint64_t)(uintptr_t)&found,
                                .scale = 0.5f,
                                .dst_type = GF_KERNEL_BF16,
                                .src_type = GF_KERNEL_F16};
    struct gf_sum_args sum = {.dst = (uint64_t)(uintptr_t)dst,
                              .src = (uint64_t)(uintptr_t)dst,
                              .elem_count = count,
                              .type = GF_KERNEL_BF16};
    struct gf_sum_args look = {.src = (uint64_t)(uintptr_t)src,
                               .elem_count = count,
                               .base = 1,
                               .check = (uint64_t)(uintptr_t)&found,
                               .type = GF_KERNEL_F16};
    for (size_t p = 0; p < PLACES; p++) src[places[p]] = gf_f16_of_f32(2.0f * (float)(p + 1));
    launch("gf_kernel_cast_bf16_f16", count, 8, &cast);
    for (size_t p = 0; p < PLACES; p++)
        assert_int_equal(dst[places[p]], gf_bf16_of_f32((float)(p + 1)));
    launch("gf_kernel_sum_bf16", count, 8, &sum);
    for (size_t p = 0; p < PLACES; p++)
        assert_int_equal(dst[places[p]], gf_bf16_of_f32(2.0f * (float)(p + 1)));
    assert_int_equal(found.bad_count, 0);
    src[places[2]] = src[places[4]] = 0x7c00;
    launch("gf_kernel_check_f16", count, 8, &look);
    assert_int_equal(found.bad_count, 2);
    assert_true(found.bad_first == places[2] + 1);
}

TEST(test_update_and_accumulate)
{
    uint64_t count = ELEMS + EXTRA;
    WIDE(float, weight);
    WIDE(float, momentum);
    WIDE(uint16_t, gradient);
    struct gf_update_args update = {.of = {.weight_f32 = (uint64_t)(uintptr_t)weight,
                                           .gradient_scale = 1,
                                           .rate_in = 1,
                                           .momentum_f32 = (uint64_t)(uintptr_t)momentum,
                                           .rate_out = 0.5f,
                                           .gradient = (uint64_t)(uintptr_t)gradient,
                                           .momentum = 0.5f,
                                           .gradient_type = GF_KERNEL_F16},
                                    .part_count = 1,
                                    .parts = {{.elem_count = count}}};
    struct gf_accumulate_args accumulate = {.of = {.dst_h_f32 = (uint64_t)(uintptr_t)weight,
                                                   .scale = 1,
                                                   .h_f32 = (uint64_t)(uintptr_t)weight,
                                                   .src = (uint64_t)(uintptr_t)gradient,
                                                   .src_type = GF_KERNEL_F16},
                                            .elem_count = count};
    for (size_t p = 0; p < PLACES; p++) {
        gradient[places[p]] = gf_f16_of_f32((float)(p + 1));
        momentum[places[p]] = 2;
    }
    launch("gf_kernel_update_f16", count, 4, &update);
    for (size_t p = 0; p < PLACES; p++) {
        assert_true(momentum[places[p]] == (float)(p + 2));
        assert_true(weight[places[p]] == -0.5f * (float)(p + 2));
    }
    launch("gf_kernel_accumulate_f16", count, 4, &accumulate);
    for (size_t p = 0; p < PLACES; p++)
        assert_true(weight[places[p]] == -0.5f * (float)(p + 2) + (float)(p + 1));
}

/* Two sources, one of them where the sum goes. */
TEST(test_sum_n)
{
    uint64_t count = ELEMS + EXTRA;
    WIDE(uint16_t, first);
    WIDE(uint16_t, second);
    struct gf_check found = {0, UINT64_MAX};
    struct gf_check sources = {0, UINT64_MAX};
    struct gf_sum_n_args sum = {.dst = {(uint64_t)(uintptr_t)second},
                                .src = {(uint64_t)(uintptr_t)first, (uint64_t)(uintptr_t)second},
                                .elem_count = count,
                                .check = (uint64_t)(uintptr_t)&found,
                                .sources = (uint64_t)(uintptr_t)&sources,
                                .dst_count = 1,
                                .src_count = 2,
                                .type = GF_KERNEL_F16};
    for (size_t p = 0; p < PLACES; p++) {
        first[places[p]] = gf_f16_of_f32((float)(p + 1));
        second[places[p]] = gf_f16_of_f32(0.5f);
    }
    first[places[3]] = 0x7c00;
    launch("gf_kernel_sum_n_f16", count, 8, &sum);
    for (size_t p = 0; p < PLACES; p++)
        if (p != 3) assert_int_equal(second[places[p]], gf_f16_of_f32((float)(p + 1) + 0.5f));
    assert_int_equal(found.bad_count, 1);
    assert_true(found.bad_first == places[3]);
    assert_int_equal(sources.bad_count, 1);
    assert_true(sources.bad_first == places[3]); /* source 0 */
}

/* Chunks that lie beyond: a launch touches only those that are listed, so it is run whole. */
TEST(test_chunks)
{
    uint64_t count = ELEMS;
    uint64_t chunk_elems = 1000;
    uint32_t list[] = {0, (uint32_t)((UINT64_C(1) << 32) / 1000 + 1), (uint32_t)(count / 1000)};
    float packed[3000] = {0};
    WIDE(uint16_t, pool);
    struct gf_check found = {0, UINT64_MAX};
    struct gf_chunks chunks = {.list_u32 = (gf_mem)(uintptr_t)list,
                               .count = 3,
                               .chunk_elems = chunk_elems,
                               .elems = count,
                               .dst_packed = true};
    for (uint32_t c = 0; c < 3; c++)
        pool[list[c] * chunk_elems + 7] = gf_f16_of_f32((float)(c + 1));
    pool[list[2] * chunk_elems + 9] = 0x7e00;
    assert_int_equal(gf_element_ops_cuda.cast_chunks(simt_gpu_queue(1), (gf_mem)(uintptr_t)packed,
                                                     GF_TYPE_F32, (gf_mem)(uintptr_t)pool,
                                                     GF_TYPE_F16, &chunks, 1, 0, &found),
                     GF_OK);
    for (uint32_t c = 0; c < 3; c++) assert_true(packed[c * 1000 + 7] == (float)(c + 1));
    assert_int_equal(found.bad_count, 1);
    assert_true(found.bad_first == list[2] * chunk_elems + 9);
    chunks.dst_packed = false;
    chunks.src_packed = true;
    packed[2007] = 5;
    assert_int_equal(gf_element_ops_cuda.cast_chunks(simt_gpu_queue(1), (gf_mem)(uintptr_t)pool,
                                                     GF_TYPE_F16, (gf_mem)(uintptr_t)packed,
                                                     GF_TYPE_F32, &chunks, 1, 0, NULL),
                     GF_OK);
    assert_int_equal(pool[list[2] * chunk_elems + 7], gf_f16_of_f32(5));
    assert_int_equal(gf_element_ops_cuda.zero_chunks(simt_gpu_queue(1), (gf_mem)(uintptr_t)pool,
                                                     GF_TYPE_F16, &chunks),
                     GF_OK);
    assert_int_equal(pool[list[2] * chunk_elems + 7], 0);
}

TEST(test_accumulate_and_update_chunks)
{
    uint64_t count = ELEMS;
    uint64_t chunk_elems = 1000;
    uint32_t list[] = {(uint32_t)((UINT64_C(1) << 32) / 1000 + 1), (uint32_t)(count / 1000 - 1)};
    WIDE(float, history);
    WIDE(uint16_t, gradient);
    struct gf_chunks chunks = {.list_u32 = (gf_mem)(uintptr_t)list,
                               .count = 2,
                               .chunk_elems = chunk_elems,
                               .elems = count};
    for (uint32_t c = 0; c < 2; c++) {
        history[list[c] * chunk_elems + 11] = 3;
        gradient[list[c] * chunk_elems + 11] = gf_f16_of_f32((float)(c + 1));
    }
    const struct gf_accumulate some = {.dst_h_f32 = (gf_mem)(uintptr_t)history,
                                       .h_f32 = (gf_mem)(uintptr_t)history,
                                       .src = (gf_mem)(uintptr_t)gradient,
                                       .src_type = GF_TYPE_F16,
                                       .scale = 2};
    assert_int_equal(gf_element_ops_cuda.accumulate_chunks(simt_gpu_queue(1), &some, &chunks),
                     GF_OK);
    for (uint32_t c = 0; c < 2; c++)
        assert_true(history[list[c] * chunk_elems + 11] == 3.0f + 2.0f * (float)(c + 1));
    struct gf_update update = {.weight_f32 = (gf_mem)(uintptr_t)history,
                               .gradient = (gf_mem)(uintptr_t)gradient,
                               .gradient_type = GF_TYPE_F16,
                               .gradient_scale = 1,
                               .rate_in = 1,
                               .rate_out = 2}; /* and back again */
    assert_int_equal(gf_element_ops_cuda.update_chunks(simt_gpu_queue(1), &update, &chunks), GF_OK);
    for (uint32_t c = 0; c < 2; c++) assert_true(history[list[c] * chunk_elems + 11] == 3.0f);
}

/* Runs and chunks of sums that begin beyond 2^32. */
TEST(test_score_and_norm)
{
    uint64_t count = ELEMS;
    uint64_t groups_fp32 = THREADS / 16;
    uint64_t groups_half = THREADS / 8;
    uint32_t block;
    WIDE(float, src);
    WIDE(float, sums);
    WIDE(double, runs);
    struct gf_score_args score = {.scores = (uint64_t)(uintptr_t)sums,
                                  .src = (uint64_t)(uintptr_t)src,
                                  .elem_count = count,
                                  .chunk_count = count / 64,
                                  .chunk_elems = 64,
                                  .segment_elems = 64,
                                  .segment_runs = 1};
    struct gf_norm_args norm = {.runs = (uint64_t)(uintptr_t)runs,
                                .count = 1,
                                .run_count = (uint32_t)(count / GF_RUN_ELEMS)};
    void *score_list[] = {&score};
    void *norm_list[] = {&norm};
    norm.ranges[0].of.src = (uint64_t)(uintptr_t)src;
    norm.ranges[0].of.elem_count = count;
    src[count - 1] = -3;
    block = (uint32_t)(count / 64 / groups_fp32 - 1);
    gf_simt_blocks(&block, 1);
    if (gf_simt_launch("gf_kernel_score", block + 1, THREADS, 0, score_list) != 0)
        fail_msg("%s", gf_simt_error());
    assert_true(sums[count / 64 - 1] == 3);
    ((uint16_t *)src)[count - 1] = gf_bf16_of_f32(-3);
    block = (uint32_t)(count / GF_RUN_ELEMS / groups_half - 1);
    if (gf_simt_launch("gf_kernel_norm_runs_bf16", block + 1, THREADS, 0, norm_list) != 0)
        fail_msg("%s", gf_simt_error());
    gf_simt_blocks(NULL, 0);
    assert_true(runs[count / GF_RUN_ELEMS - 1] == 9);
}
