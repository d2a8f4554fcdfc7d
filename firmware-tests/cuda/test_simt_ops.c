/* Each kernel, run by the SIMT emulator, against the host's op: every byte, whatever the order of
 * threads.
 * suite: slow */
#include <sys/mman.h>

#include "firmware-tests/support/suite.h"
#include "ops/element/cuda/kernels.h"
#include "ops/element/cuda/ops_cuda.h"
#include "firmware-tests/support/ops_pair.h"
#include "firmware-tests/cuda/simt_device.h"
#include "firmware-tests/cuda/simt_gpu.h"

static void upload(struct ops_pair *pair, gf_mem dst, const void *src, uint64_t size_bytes)
{
    memcpy((void *)(uintptr_t)dst, src, size_bytes);
}

static void download(struct ops_pair *pair, void *dst, gf_mem src, uint64_t size_bytes)
{
    memcpy(dst, (const void *)(uintptr_t)src, size_bytes);
}

/* Kernels may touch the device's areas and nothing else. */
static bool in_device(void *user, const void *address, size_t size_bytes, bool is_write)
{
    const struct ops_pair *pair = user;
    uint64_t at = (uint64_t)(uintptr_t)address;
    for (uint32_t a = 0; (a < OPS_PAIR_AREAS) && (pair->areas[a] != 0); a++)
        if ((at >= pair->areas[a]) &&
            (at + size_bytes <= pair->areas[a] + ops_pair_area_bytes(pair->elems_max, a)))
            return true;
    if (pair->device == 0) return false;
    return (at >= pair->device) &&
           (at + size_bytes <= pair->device + ops_pair_bytes(pair->elems_max));
}

/* A backend that looks at what its kernels touch. */
static struct ops_pair begin(uint64_t elems_max)
{
    struct ops_pair pair = {.ops = &gf_element_ops_cuda,
                            .any_nan = true,
                            .elems_max = elems_max,
                            .upload = upload,
                            .download = download};
    void *device = aligned_alloc(256, (ops_pair_bytes(elems_max) + 255) / 256 * 256);
    assert_non_null(device);
    pair.device = (gf_mem)(uintptr_t)device;
    ops_pair_begin(&pair);
    return pair;
}

static void end(struct ops_pair *pair)
{
    ops_pair_end(pair);
    free((void *)(uintptr_t)pair->device);
}

static void run(struct ops_pair *pair, uint64_t count, uint32_t blocks_max, uint32_t turn)
{
    pair->queue = simt_gpu_queue(blocks_max);
    gf_simt_seed(turn);
    gf_simt_allow(in_device, pair);
    bool same = ops_pair_run(pair, count, turn % 9, turn);
    gf_simt_allow(NULL, NULL);
    if (!same)
        fail_msg("count %llu, blocks %u, turn %u", (unsigned long long)count, blocks_max, turn);
}

TEST(test_small_counts)
{
    static const uint64_t counts[] = {0,  1,  2,  3,  4,  5,  7,   8,   9,   15,  16,
                                      17, 31, 33, 63, 64, 65, 127, 130, 511, 1000};
    struct ops_pair pair = begin(1000);
    for (uint32_t turn = 0; turn < 2 * LENGTH(counts); turn++)
        run(&pair, counts[turn / 2], 8 + turn % 3 * 8, turn);
    end(&pair);
}

/* Counts from the grid: every loop of each kernel, the main one too, is met with every type. The
 * turn chooses which of an op's ranges are given, how they lie and which of them holds special
 * values. */
TEST(test_every_loop_of_every_kernel)
{
    const uint64_t count = ops_pair_long_count(1);
    struct ops_pair pair = begin(count + 3);
    for (uint32_t i = 0; i < 6; i++) {
        const uint32_t turn = i + i / 3 * 3; /* those whose ranges lie alike in their packs */
        run(&pair, count + i % 4, 1, turn);
    }
    end(&pair);
}

/* Each area ends at a page that may not be touched, and each range with it. In as few blocks and
 * elements as gpu-check --small has: they enter every main loop of every kernel. */
static void *area_map(uint64_t size_bytes, gf_mem *area_out)
{
    const uint64_t page = 4096;
    const uint64_t bytes = (size_bytes + page - 1) / page * page;
    char *at = mmap(NULL, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    assert_int_equal(mprotect(at + bytes, page, PROT_NONE), 0);
    *area_out = (gf_mem)(uintptr_t)(at + bytes - size_bytes);
    return at;
}

static uint32_t main_loops_of(const char *kernel)
{
    if (strstr(kernel, "_norm_end") || strstr(kernel, "_ratio")) return 0; /* a few elements */
    return strstr(kernel, "_sum_n_") ? 3 : 1; /* of few sources, some and many */
}

TEST(test_every_main_loop_and_nothing_behind_the_end)
{
    static const uint64_t counts[] = {OPS_PAIR_FEW_ELEMS, 1, 8, 257, 1000};
    gf_simt_loops_forget();
    for (uint32_t turn = 0; turn < LENGTH(counts); turn++) {
        struct ops_pair pair = {.ops = &gf_element_ops_cuda,
                                .any_nan = true,
                                .elems_max = counts[turn],
                                .upload = upload,
                                .download = download};
        void *maps[OPS_PAIR_AREAS];
        for (uint32_t a = 0; a < OPS_PAIR_AREAS; a++)
            maps[a] = area_map(ops_pair_area_bytes(counts[turn], a), &pair.areas[a]);
        ops_pair_begin(&pair);
        run(&pair, counts[turn], OPS_PAIR_FEW_BLOCKS, 9 * turn); /* on no offset */
        ops_pair_end(&pair);
        for (uint32_t a = 0; a < OPS_PAIR_AREAS; a++) {
            const uint64_t bytes = ops_pair_area_bytes(counts[turn], a);
            assert_int_equal(munmap(maps[a], (bytes + 4095) / 4096 * 4096 + 4096), 0);
        }
        for (uint32_t k = 0; (turn == 0) && (k < gf_gpu_cuda_kernels.count); k++)
            if (gf_simt_loops(gf_gpu_cuda_kernels.names[k]) <
                main_loops_of(gf_gpu_cuda_kernels.names[k]))
                fail_msg("%s: %u main loops were entered, there are %u",
                         gf_gpu_cuda_kernels.names[k], gf_simt_loops(gf_gpu_cuda_kernels.names[k]),
                         main_loops_of(gf_gpu_cuda_kernels.names[k]));
    }
}

/* More blocks than a count has work for, and sums of several levels. */
TEST(test_large_counts)
{
    static const uint64_t counts[] = {4097, 32769, 66001};
    struct ops_pair pair = begin(counts[2]);
    for (uint32_t turn = 0; turn < LENGTH(counts); turn++) run(&pair, counts[turn], 24, turn);
    end(&pair);
}

/* Ranges of other lengths, whose packs lie alike or not, in every loop. */
TEST(test_copies_at_once)
{
    enum { RANGES = 4, MOST = GF_KERNEL_THREADS * GF_KERNEL_PACK_MAX * (GF_KERNEL_AHEAD_MAX + 2) };
    static _Alignas(64) uint16_t src[RANGES][MOST];
    static _Alignas(64) uint16_t dst[RANGES][MOST];
    static _Alignas(64) uint16_t want[RANGES][MOST];
    for (uint32_t turn = 0; turn < 24; turn++) {
        gf_mem to[RANGES];
        gf_mem from[RANGES];
        uint64_t bytes[RANGES];
        /* a block a range, or several */
        struct gf_queue *queue = simt_gpu_queue(RANGES * (1 + turn % 3));
        memset(dst, 0xee, sizeof dst);
        memset(want, 0xee, sizeof want);
        for (uint32_t r = 0; r < RANGES; r++) {
            uint32_t elems = (turn * 211 + r * 997) % 5000;
            uint32_t at = (turn + r) % 9;
            uint32_t other = (turn % 2) ? at : r;
            if ((r == 1) && (turn < 6)) elems = MOST - 16 - turn; /* the main loop, too */
            for (uint32_t i = 0; i < MOST; i++) src[r][i] = (uint16_t)(i * 7 + r * 31 + turn);
            to[r] = (gf_mem)(uintptr_t)&dst[r][at];
            from[r] = (gf_mem)(uintptr_t)&src[r][other];
            bytes[r] = (r == 2) ? 0 : elems * sizeof(uint16_t);
            memcpy(&want[r][at], &src[r][other], bytes[r]);
        }
        gf_simt_seed(turn);
        assert_int_equal(gf_element_ops_cuda.copy_n(queue, to, from, bytes, RANGES), GF_OK);
        assert_memory_equal(dst, want, sizeof dst);
    }
}

/* Sums of every number of sources that a kernel loads in its own way, of each type: few of them
 * with several packs under way, many in rounds of eight. In blocks of 256 threads, and of 1,024. */
TEST(test_sums_of_many_sources)
{
    enum { SOURCES = 18, ELEMS = 8192 + 1024 * 4 + 3 };
    static _Alignas(64) uint16_t src[SOURCES][2 * ELEMS];
    static _Alignas(64) uint16_t dst[2 * ELEMS];
    static _Alignas(64) uint16_t want[2 * ELEMS];
    const gf_mem to = (gf_mem)(uintptr_t)dst;
    const gf_mem to_host = (gf_mem)(uintptr_t)want;
    static const uint32_t counts[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, SOURCES};
    gf_mem from[SOURCES];
    for (uint32_t s = 0; s < SOURCES; s++) {
        from[s] = (gf_mem)(uintptr_t)src[s];
        for (uint32_t i = 0; i < 2 * ELEMS; i++)
            src[s][i] = (uint16_t)(0x3800u + (i * 37 + s * 101) % 1024); /* finite in each type */
    }
    for (uint32_t turn = 0; turn < LENGTH(counts) * GF_TYPE_COUNT; turn++) {
        const gf_type type = (gf_type)(turn / LENGTH(counts));
        const uint32_t sources = counts[turn % LENGTH(counts)];
        const bool is_wide = (sources % 3 == 2);
        struct gf_queue *queue = simt_gpu_queue(is_wide ? 4 : 1);
        queue->block_threads = is_wide ? GF_GPU_CHANNEL_THREADS : 0;
        memset(dst, 0xee, sizeof dst);
        memset(want, 0xee, sizeof want);
        assert_int_equal(
            gf_element_ops_cuda.sum_n(queue, &to, 1, from, sources, type, ELEMS, 0, NULL, NULL),
            GF_OK);
        queue->block_threads = 0;
        assert_int_equal(gf_element_ops_best()->sum_n(NULL, &to_host, 1, from, sources, type, ELEMS,
                                                      0, NULL, NULL),
                         GF_OK);
        assert_memory_equal(dst, want, sizeof dst);
    }
}

/* The largest value of each 16-bit type, and what rounds to infinity with it: the one just below
 * half a unit does not, half a unit does. Random numbers do not meet the edge in a sum. */
TEST(test_sums_at_the_edge_of_their_type)
{
    static const struct edge {
        gf_type type;
        uint16_t most, below, half;
    } edges[] = {{GF_TYPE_F16, 0x7bff, 0x4bff, 0x4c00}, {GF_TYPE_BF16, 0x7f7f, 0x7aff, 0x7b00}};
    enum { ELEMS = 40 };
    static _Alignas(64) uint16_t src[2][ELEMS];
    static _Alignas(64) uint16_t dst[ELEMS];
    for (uint32_t row = 0; row < 2 * LENGTH(edges); row++) {
        const struct edge *edge = &edges[row / 2];
        const gf_mem from[] = {(gf_mem)(uintptr_t)src[0], (gf_mem)(uintptr_t)src[1]};
        const gf_mem to = (gf_mem)(uintptr_t)dst;
        struct gf_check check = {0, UINT64_MAX};
        struct gf_queue *queue = simt_gpu_queue(1);
        for (uint32_t i = 0; i < ELEMS; i++) {
            src[0][i] = dst[i] = edge->most;
            src[1][i] = (i == 33) ? edge->half : edge->below;
        }
        assert_int_equal(
            (row % 2 == 0)
                ? gf_element_ops_cuda.sum_n(queue, &to, 1, from, 2, edge->type, ELEMS, 0, &check,
                                            NULL)
                : gf_element_ops_cuda.sum(queue, to, from[1], edge->type, ELEMS, 0, &check),
            GF_OK);
        assert_int_equal(check.bad_count, 1);
        assert_int_equal(check.bad_first, 33);
        for (uint32_t i = 0; i < ELEMS; i++)
            assert_int_equal(dst[i], (i == 33) ? edge->most + 1 : edge->most);
    }
}

/* Nothing is launched for nothing: an empty grid is not valid. */
TEST(test_empty_ranges_launch_nothing)
{
    struct gf_queue *queue = simt_gpu_queue(1);
    struct gf_update update = {.gradient_type = GF_TYPE_F32};
    struct gf_adam adam = {.gradient_type = GF_TYPE_F32};
    struct gf_chunks chunks = {.chunk_elems = 1};
    gf_mem none = 0;
    uint64_t before = simt_gpu_launches;
    assert_int_equal(gf_element_ops_cuda.cast(queue, 0, GF_TYPE_F16, 0, GF_TYPE_F32, 0, 1, 0, NULL),
                     GF_OK);
    assert_int_equal(gf_element_ops_cuda.sum(queue, 0, 0, GF_TYPE_F32, 0, 0, NULL), GF_OK);
    assert_int_equal(
        gf_element_ops_cuda.sum_n(queue, &none, 1, &none, 1, GF_TYPE_F32, 0, 0, NULL, NULL), GF_OK);
    assert_int_equal(gf_element_ops_cuda.check(queue, 0, GF_TYPE_F32, 0, 0, NULL), GF_OK);
    assert_int_equal(gf_element_ops_cuda.copy(queue, 0, 0, 0), GF_OK);
    assert_int_equal(gf_element_ops_cuda.copy_n(queue, &none, &none, &none, 1), GF_OK);
    assert_int_equal(gf_element_ops_cuda.zero(queue, 0, 0), GF_OK);
    assert_int_equal(gf_element_ops_cuda.score(queue, 0, 0, 0, 0, 0), GF_OK);
    assert_int_equal(
        gf_element_ops_cuda.norm(queue, 0, GF_TYPE_F32, &(struct gf_norm){.elem_count = 0}, 1),
        GF_OK);
    assert_int_equal(gf_element_ops_cuda.ratio(queue, NULL, 0), GF_OK);
    assert_int_equal(gf_element_ops_cuda.update_parts(queue, &update,
                                                      &(struct gf_update_part){.elem_count = 0}, 1),
                     GF_OK);
    assert_int_equal(gf_element_ops_cuda.accumulate(queue, &(struct gf_accumulate){.scale = 1}, 0),
                     GF_OK);
    assert_int_equal(
        gf_element_ops_cuda.cast_chunks(queue, 0, GF_TYPE_F32, 0, GF_TYPE_F32, &chunks, 1, 0, NULL),
        GF_OK);
    assert_int_equal(
        gf_element_ops_cuda.accumulate_chunks(queue, &(struct gf_accumulate){.scale = 1}, &chunks),
        GF_OK);
    assert_int_equal(gf_element_ops_cuda.zero_chunks(queue, 0, GF_TYPE_F32, &chunks), GF_OK);
    assert_int_equal(gf_element_ops_cuda.update(queue, &update, 0), GF_OK);
    assert_int_equal(gf_element_ops_cuda.update_chunks(queue, &update, &chunks), GF_OK);
    assert_int_equal(gf_element_ops_cuda.adam(queue, &adam, 0), GF_OK);
    assert_int_equal(simt_gpu_launches, before);
}

/* LARS: `count` tensors with a ratio, as many parts without one between them. Every `empty`th has
 * no element. */
static void update_many(uint32_t count, uint32_t empty, uint64_t launches)
{
    enum { TENSORS = 130, ELEMS = 33 };
    static float weight[2 * TENSORS * ELEMS];
    static float gradient[2 * TENSORS * ELEMS];
    static double squares[2 * TENSORS];
    static float ratios[TENSORS];
    static double scratch[2 * TENSORS];
    static float want_weight[2 * TENSORS * ELEMS];
    static float want_ratios[TENSORS];
    static double want_squares[2 * TENSORS];
    static struct gf_norm norms[2 * TENSORS];
    static struct gf_ratio ratio[TENSORS];
    static struct gf_update_part parts[2 * TENSORS];
    struct gf_queue *queue = simt_gpu_queue(1);
    struct gf_update update = {.weight_f32 = (gf_mem)(uintptr_t)weight,
                               .gradient = (gf_mem)(uintptr_t)gradient,
                               .gradient_scale = 1,
                               .rate_in = 0.5f,
                               .rate_out = 1};
    for (uint32_t i = 0; i < 2 * TENSORS * ELEMS; i++) gradient[i] = weight[i] = (float)(i % 17);
    for (uint32_t i = 0; i < count; i++) {
        gf_mem square = (gf_mem)(uintptr_t)&squares[i];
        gf_mem other = (gf_mem)(uintptr_t)&squares[count + i];
        uint64_t at = 2 * i * ELEMS;
        uint64_t elems = (i % empty == empty - 1) ? 0 : ELEMS;
        norms[i] = (struct gf_norm){square, (gf_mem)(uintptr_t)&weight[at], elems};
        norms[count + i] = (struct gf_norm){other, (gf_mem)(uintptr_t)&gradient[at], elems};
        ratio[i] =
            (struct gf_ratio){(gf_mem)(uintptr_t)&ratios[i], square, other, 1, 0.02f, 5e-4f, 1e-6f};
        parts[2 * i] = (struct gf_update_part){at, elems, ratio[i].ratio_f32, 5e-4f, 0};
        parts[2 * i + 1] = (struct gf_update_part){at + ELEMS, ELEMS, 0, 0, 0};
    }
    for (uint32_t on_host = 0; on_host < 2; on_host++) {
        const struct gf_element_ops *ops = on_host ? gf_element_ops_best() : &gf_element_ops_cuda;
        const struct gf_element_ops *optimizer = ops;
        uint64_t before = simt_gpu_launches;
        memset(squares, 0, sizeof squares);
        for (uint32_t i = 0; i < 2 * TENSORS * ELEMS; i++) weight[i] = (float)(i % 17);
        assert_int_equal(
            optimizer->norm(queue, (gf_mem)(uintptr_t)scratch, GF_TYPE_F32, norms, 2 * count),
            GF_OK);
        assert_int_equal(optimizer->ratio(queue, ratio, count), GF_OK);
        assert_int_equal(optimizer->update_parts(queue, &update, parts, 2 * count), GF_OK);
        assert_int_equal(simt_gpu_launches - before, on_host ? 0 : launches);
        if (!on_host) {
            memcpy(want_weight, weight, sizeof weight);
            memcpy(want_ratios, ratios, sizeof ratios);
            memcpy(want_squares, squares, sizeof squares);
        }
    }
    assert_memory_equal(want_squares, squares, sizeof squares);
    assert_memory_equal(want_ratios, ratios, sizeof ratios);
    assert_memory_equal(want_weight, weight, sizeof weight);
}

/* ResNet-50 has 54; of more than a kernel's table holds there are several tables. */
TEST(test_an_update_of_many_tensors_is_few_launches)
{
    _Static_assert((GF_KERNEL_NORMS_MAX == 120) && (GF_KERNEL_RATIOS_MAX == 96) &&
                       (GF_KERNEL_PARTS_MAX == 116),
                   "tables");
    update_many(54, 1000, 2 + 1 + 1);
    update_many(130, 1000, 3 * 2 + 2 + 3);
    update_many(120, 40, 2 * 2 + 2 + 3); /* the last of a table without an element */
    update_many(59, 59, 2 + 1 + 2);
}

/* A tensor whose weights or gradients are all 0 has none: 1. */
TEST(test_ratios_of_norms_that_are_zero)
{
    static double squares[] = {0.0, 4.0};
    static float ratios[4];
    static float want[4];
    struct gf_ratio ratio[4];
    for (uint32_t on_host = 0; on_host < 2; on_host++) {
        const struct gf_element_ops *ops = on_host ? gf_element_ops_best() : &gf_element_ops_cuda;
        for (uint32_t i = 0; i < 4; i++)
            ratio[i] = (struct gf_ratio){(gf_mem)(uintptr_t)(on_host ? &want[i] : &ratios[i]),
                                         (gf_mem)(uintptr_t)&squares[i % 2],
                                         (gf_mem)(uintptr_t)&squares[i / 2],
                                         1,
                                         0.5f,
                                         0.25f,
                                         0};
        assert_int_equal(ops->ratio(simt_gpu_queue(1), ratio, 4), GF_OK);
    }
    assert_memory_equal(ratios, want, sizeof want);
    assert_true((ratios[0] == 1) && (ratios[1] == 1) && (ratios[2] == 1) && (ratios[3] == 0.4f));
}

/* More of them than a block has threads: a tensor of millions of elements. Whole numbers, so that
 * the order does not matter. */
TEST(test_runs_of_a_large_range_are_all_added)
{
    enum { RUNS = 3 * GF_KERNEL_LANES + 5 };
    static double runs[RUNS];
    static double squares[2] = {1.0, 2.0};
    struct gf_norm_args norm = {.runs = (uint64_t)(uintptr_t)runs, .count = 2, .run_count = RUNS};
    void *list[] = {&norm};
    double want = 0;
    for (uint32_t r = 0; r < RUNS; r++) runs[r] = r + 1;
    for (uint32_t r = 3; r < RUNS; r++) want += runs[r];
    for (uint32_t i = 0; i < 2; i++)
        norm.ranges[i].of.square_f64 = (uint64_t)(uintptr_t)&squares[i];
    norm.ranges[1].first_run = 3;
    if (gf_simt_launch("gf_kernel_norm_end", 2, GF_KERNEL_LANES, 0, list) != 0)
        fail_msg("%s", gf_simt_error());
    assert_true((squares[0] == 1 + 1 + 2 + 3) && (squares[1] == 2 + want));
}

/* ---- the emulator sees mistakes: no other row here could fail by one ---- */

enum { MISTAKE_SHARED, MISTAKE_BLOCKS, MISTAKE_ATOMIC, MISTAKE_BARRIER, MISTAKE_SHUFFLE };
struct gf_mistake_args {
    uint32_t what;
};
/* as the compiler says it for kernels */
void __tsan_read4(void *at), __tsan_read8(void *at), __tsan_write4(void *at);

GF_KERNEL_BOUNDS(mistake, mistake, 8, 1)
{
    __shared__ uint32_t part[8];
    static uint32_t words[8];
    static unsigned long long counter;
    switch (args.what) {
    case MISTAKE_SHARED:
        __tsan_write4(&part[threadIdx.x]);
        __tsan_read4(&part[7 - threadIdx.x]);
        break;
    case MISTAKE_BLOCKS: __tsan_write4(&words[threadIdx.x]); break;
    case MISTAKE_ATOMIC:
        (void)atomicAdd(&counter, 1ull);
        if (threadIdx.x == 0) __tsan_read8(&counter);
        break;
    case MISTAKE_BARRIER:
        if (threadIdx.x != 3) __syncthreads();
        break;
    default:
        if (threadIdx.x != 3) (void)__shfl_down_sync(0xffu, 1.0f, 1, 8);
    }
}

static void expect_mistake(const char *kernel, uint32_t blocks, uint32_t threads, void *args,
                           const char *error)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        gf_simt_seed(seed);
        if (gf_simt_launch(kernel, blocks, threads, 0, &args) == 0)
            fail_msg("%s: expected \"%s\"", kernel, error);
        if (strstr(gf_simt_error(), error) == NULL)
            fail_msg("\"%s\", expected \"%s\"", gf_simt_error(), error);
    }
}

static bool below(void *user, const void *address, size_t size_bytes, bool is_write)
{
    return (const char *)address + size_bytes <= (const char *)user;
}

TEST(test_each_mistake_ends_a_launch)
{
    static const char *const errors[] = {"shared memory", "of another block", "conflict",
                                         "divergent", "has ended"};
    static _Alignas(16) float word[4096];
    const uint64_t at = (uint64_t)(uintptr_t)word;
    struct gf_sum_args sum = {.dst = at + 4, .src = at, .elem_count = 4000};
    gf_simt_add(&gf_simt_kernel_mistake);
    for (uint32_t what = 0; what < LENGTH(errors); what++)
        expect_mistake("gf_kernel_mistake", (what == MISTAKE_BLOCKS) ? 2 : 1, 8,
                       &(struct gf_mistake_args){what}, errors[what]);
    /* And the compiler tells of a kernel's accesses: they overlap, lie wrongly, are forbidden. */
    expect_mistake("gf_kernel_sum_f32", 1, GF_KERNEL_THREADS, &sum, "conflict: thread ");
    sum.src = at + 2, sum.dst = at + 8192, sum.elem_count = 2000;
    expect_mistake("gf_kernel_sum_f32", 1, GF_KERNEL_THREADS, &sum, "is not a multiple of them");
    sum.src = at, sum.elem_count = 64;
    gf_simt_allow(below, &word[2048 + 63]);
    expect_mistake("gf_kernel_sum_f32", 1, GF_KERNEL_THREADS, &sum, "may not");
    gf_simt_allow(NULL, NULL);
    assert_null(gf_simt_find("gf_kernel_su"));
}

/* Every kernel that the driver asks the image for is there, by the same name. */
TEST(test_every_kernel_is_known)
{
    assert_true(gf_gpu_cuda_kernels.count >= 14);
    for (uint32_t k = 0; k < gf_gpu_cuda_kernels.count; k++)
        assert_non_null(gf_simt_find(gf_gpu_cuda_kernels.names[k]));
}
