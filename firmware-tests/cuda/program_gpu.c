/* The element ops on a real GPU, through the library's own driver: `check` holds each against the host's, byte by byte, and
 * whole steps of several ranks on one GPU against those of the host (gpu_steps.c); `bench` times the kernels beside a
 * device-to-device copy, those that only read beside a sweep that only reads (gpu_sweep.c), in the same
 * rounds. `make gpu-check`, `make gpu-bench`.
 *     program_gpu check|bench [LIBRARY [MIB]]      LIBRARY: that CUDA driver (a test's own); MIB: of a bench's range
 * Ends with 0; 1: a difference or a failure, said on stderr; 2: bad arguments; 77: there is no GPU, or no kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drivers/clock.h"
#include "drivers/gpu.h"
#include "firmware-tests/cuda/gpu_steps.h"
#include "firmware-tests/cuda/gpu_sweep.h"
#include "ops/element/cuda/ops_cuda.h"
#include "firmware-tests/support/ops_pair.h"

#define SKIPPED 77
#define ELEMS_MAX 3000000u /* of check: several turns of a grid, more than 64 runs of norm */
#define ELEMS_QUICK 4097u
#define ROUNDS 7

extern const struct gf_gpu_driver gf_gpu_cuda;

struct program {
    struct gf_gpu *gpu;
    struct gf_queue queue;
    uint8_t *staging; /* registered with the driver */
    size_t staging_bytes;
};
static struct program program;

static void say(void *user, gf_log_level level, const char *text)
{
    (void)user;
    if (level <= GF_LOG_WARN) fprintf(stderr, "%s\n", text);
}

static void must(gf_status status)
{
    if (status == GF_OK) return;
    fprintf(stderr, "gpu: status %d: %s %s\n", (int)status, program.gpu->fault.foreign_call, program.gpu->fault.text);
    exit(1);
}

static void drain(void)
{
    gf_status status;
    while ((status = gf_gpu_cuda.finished(&program.queue)) == GF_AGAIN) {}
    must(status);
}

/* ---- check ---- */

static void upload(struct ops_pair *pair, gf_mem dst, const void *src, uint64_t size_bytes)
{
    (void)pair;
    drain(); /* nothing reads the staging any more */
    memcpy(program.staging, src, size_bytes);
    must(gf_gpu_cuda.copy(&program.queue, dst, (gf_mem)(uintptr_t)program.staging, size_bytes));
    drain();
}

static void download(struct ops_pair *pair, void *dst, gf_mem src, uint64_t size_bytes)
{
    (void)pair;
    must(gf_gpu_cuda.copy(&program.queue, (gf_mem)(uintptr_t)program.staging, src, size_bytes));
    drain();
    memcpy(dst, program.staging, size_bytes);
}

/* Through a CUDA driver without a GPU that is slow, and the slower the more memory it guards. */
static uint64_t check_elems(bool is_quick) { return is_quick ? ELEMS_QUICK : ELEMS_MAX; }

static int check(bool is_quick)
{
    static const uint64_t counts[] = {0, 1, 2, 3, 5, 8, 17, 31, 64, 65, 127, 130, 1000, 4097, 70001, 1000003, ELEMS_MAX};
    uint64_t elems_max = check_elems(is_quick);
    struct ops_pair pair = {.ops = &gf_ops_cuda, .queue = &program.queue, .device = gf_gpu_cuda.arena(program.gpu),
                            .elems_max = elems_max, .upload = upload, .download = download};
    uint32_t runs = 0;
    ops_pair_begin(&pair);
    for (size_t c = 0; (c < sizeof counts / sizeof counts[0]) && (counts[c] <= elems_max); c++)
        for (uint32_t seed = 0; seed < (is_quick ? 1u : 4u); seed++, runs++)
            if (!ops_pair_run(&pair, counts[c], (uint32_t)(c + seed) % 9, (uint32_t)c + 100 * seed)) return 1;
    ops_pair_end(&pair);
    printf("gpu-check: every op has the host's bytes, in %u rounds of counts up to %llu (%u multiprocessors)\n", runs,
           (unsigned long long)elems_max, program.gpu->multiprocessors);
    return 0;
}

/* ---- bench ---- */

static uint64_t range_bytes;
static uint32_t rounds; /* at most ROUNDS; one through a CUDA driver without a GPU, whose times mean nothing */
static gf_mem range(uint32_t which) { return gf_gpu_cuda.arena(program.gpu) + which * range_bytes; }
static gf_mem rest(void) { return range(4); }
static uint64_t elems(void) { return range_bytes / 4; }

static gf_status run_copy(void) { return gf_ops_cuda.copy(&program.queue, range(1), range(0), range_bytes); }
static gf_status run_narrow(gf_type type)
{
    return gf_ops_cuda.cast(&program.queue, range(1), type, range(0), GF_TYPE_F32, elems(), 1, 0,
                            (struct gf_check *)(uintptr_t)rest());
}
static gf_status run_f16(void) { return run_narrow(GF_TYPE_F16); }
static gf_status run_bf16(void) { return run_narrow(GF_TYPE_BF16); }
static gf_status run_widen(void)
{
    return gf_ops_cuda.cast(&program.queue, range(1), GF_TYPE_F32, range(2), GF_TYPE_F16, elems(), 1, 0, NULL);
}
static gf_status run_sum(void)
{
    return gf_ops_cuda.sum(&program.queue, range(1), range(0), GF_TYPE_F32, elems(), 0,
                           (struct gf_check *)(uintptr_t)rest());
}
static gf_status run_sum_f16(void)
{
    return gf_ops_cuda.sum(&program.queue, range(1), range(2), GF_TYPE_F16, 2 * elems(), 0, NULL);
}
static gf_mem meetings(void) { return rest() + 16; } /* behind the check */
static gf_status run_sweep(void)
{
    return gpu_sweep(program.queue.stream, range(0), range_bytes, meetings());
}
static gf_status run_check(void)
{
    return gf_ops_cuda.check(&program.queue, range(0), GF_TYPE_F32, elems(), 0, (struct gf_check *)(uintptr_t)rest());
}
static gf_status run_score(void)
{
    return gf_ops_cuda.score(&program.queue, range(3), range(0), elems(), 32768, 65536);
}
static gf_status run_norm(void)
{
    return gf_ops_cuda.norm(&program.queue, rest() + 64, rest() + 256, range(0), GF_TYPE_F32, elems());
}
static gf_status run_accumulate(void)
{
    const struct gf_accumulate some = {.dst_h_f32 = range(1), .h_f32 = range(1), .dst_u_f32 = range(2), .u_f32 = range(2),
                                       .src = range(0), .scale = 1, .momentum = 0.5f, .ahead = 0.5f};
    return gf_ops_cuda.accumulate(&program.queue, &some, elems());
}
static gf_status run_update(void)
{
    struct gf_update update = {.weight_f32 = range(1), .momentum_f32 = range(2), .gradient = range(0),
                               .gradient_scale = 1, .rate_in = 1, .rate_out = 0.1f, .momentum = 0.9f, .decay = 1e-4f};
    return gf_ops_cuda.update(&program.queue, &update, elems());
}

/* Every second chunk of a range, as many as 128 KiB of fp32 hold. */
#define CHUNK_ELEMS UINT64_C(32768)
#define LIST_AT 4096u /* in rest(), which holds REST_BYTES */
#define REST_BYTES (UINT64_C(1) << 20)
static uint32_t listed(void) { return (uint32_t)(elems() / CHUNK_ELEMS / 2); }
static struct gf_chunks chunks(bool dst_is_listed, bool src_is_listed)
{
    return (struct gf_chunks){.dst_list_u32 = dst_is_listed ? rest() + LIST_AT : 0,
                              .src_list_u32 = src_is_listed ? rest() + LIST_AT : 0, .count = listed(),
                              .chunk_elems = CHUNK_ELEMS, .dst_elems = elems(), .src_elems = elems()};
}
static gf_status run_gather(void)
{
    const struct gf_chunks some = chunks(false, true);
    return gf_ops_cuda.cast_chunks(&program.queue, range(1), GF_TYPE_F16, range(0), GF_TYPE_F32, &some, 1, 0,
                                   (struct gf_check *)(uintptr_t)rest());
}
static gf_status run_scatter(void)
{
    const struct gf_chunks some = chunks(true, false);
    return gf_ops_cuda.cast_chunks(&program.queue, range(1), GF_TYPE_F32, range(2), GF_TYPE_F16, &some, 1, 0, NULL);
}
static gf_status run_accumulate_chunks(void)
{
    const struct gf_chunks some = chunks(true, true);
    const struct gf_accumulate all = {.dst_h_f32 = range(1), .h_f32 = range(1), .dst_u_f32 = range(2), .u_f32 = range(2),
                                      .src = range(0), .scale = 1, .momentum = 0.5f, .ahead = 0.5f};
    return gf_ops_cuda.accumulate_chunks(&program.queue, &all, &some);
}
static gf_status run_zero_chunks(void)
{
    const struct gf_chunks some = chunks(true, false);
    return gf_ops_cuda.zero_chunks(&program.queue, range(1), GF_TYPE_F32, &some);
}
static gf_status run_update_chunks(void)
{
    const struct gf_chunks some = chunks(true, false);
    struct gf_update update = {.weight_f32 = range(1), .momentum_f32 = range(2), .gradient = range(0),
                               .gradient_scale = 1, .rate_in = 1, .rate_out = 0.1f, .momentum = 0.9f};
    return gf_ops_cuda.update_chunks(&program.queue, &update, &some);
}
static gf_status run_sum_n(void)
{
    const gf_mem dst = range(1), src[] = {range(0), range(2)};
    return gf_ops_cuda.sum_n(&program.queue, &dst, 1, src, 2, GF_TYPE_F32, elems(), 0,
                             (struct gf_check *)(uintptr_t)rest(), NULL);
}
static void list_write(void)
{
    for (uint32_t i = 0; i < listed(); i++) {
        uint32_t chunk = 2 * i;
        upload(NULL, rest() + LIST_AT + i * sizeof chunk, &chunk, sizeof chunk);
    }
}

/* Over the bus, as gradients do where ranks cannot reach each other's device memory. */
static gf_mem pinned(void) { return (gf_mem)(uintptr_t)program.staging; }
static gf_status run_down(void) { return gf_ops_cuda.copy(&program.queue, pinned(), range(0), range_bytes); }
static gf_status run_up(void) { return gf_ops_cuda.copy(&program.queue, range(1), pinned(), range_bytes); }

/* A buffer of fp32 gradients as a step stages it, on an fp16 wire: cast, to the host, back, cast; the exchange between takes
 * no time here. On one queue: the two ways do not overlap, those of different buffers in a step may. */
static gf_status run_staged(void)
{
    gf_status status = run_f16();
    if (status >= 0) status = gf_ops_cuda.copy(&program.queue, pinned(), range(1), range_bytes / 2);
    if (status >= 0) status = gf_ops_cuda.copy(&program.queue, range(1), pinned(), range_bytes / 2);
    if (status >= 0)
        status = gf_ops_cuda.cast(&program.queue, range(0), GF_TYPE_F32, range(1), GF_TYPE_F16, elems(), 1, 0, NULL);
    return status;
}

#define COPY "copy, device to device"
#define SWEEP "read-only sweep"
#define BUS "copy, device to pinned"
#define GOAL 0.9            /* what is aimed at, from GOAL_BYTES a range on */
#define GOAL_BYTES (UINT64_C(256) << 20)

static const struct bench_row {
    const char *name;
    gf_status (*run)(void);
    double ranges; /* read and written, of range_bytes; over the bus: those that cross it */
    const char *than; /* the row that it is held against; NULL: none */
    bool has_goal;    /* GOAL of that row */
} rows[] = {
    {.name = COPY, .run = run_copy, .ranges = 2},
    {.name = SWEEP, .run = run_sweep, .ranges = 1, .than = COPY},
    {.name = "cast fp32 to fp16, checked", .run = run_f16, .ranges = 1.5, .than = COPY, .has_goal = true},
    {.name = "cast fp32 to bf16, checked", .run = run_bf16, .ranges = 1.5, .than = COPY, .has_goal = true},
    {.name = "cast fp16 to fp32", .run = run_widen, .ranges = 1.5, .than = COPY, .has_goal = true},
    {.name = "sum fp32, checked", .run = run_sum, .ranges = 3, .than = COPY, .has_goal = true},
    {.name = "sum fp16", .run = run_sum_f16, .ranges = 3, .than = COPY, .has_goal = true},
    {.name = "accumulate", .run = run_accumulate, .ranges = 5, .than = COPY, .has_goal = true},
    {.name = "update", .run = run_update, .ranges = 5, .than = COPY, .has_goal = true},
    {.name = "sum of 2 ranks, checked", .run = run_sum_n, .ranges = 3, .than = COPY, .has_goal = true},
    {.name = "gather fp32 to fp16, checked", .run = run_gather, .ranges = 0.75, .than = COPY, .has_goal = true},
    {.name = "scatter fp16 to fp32", .run = run_scatter, .ranges = 0.75, .than = COPY, .has_goal = true},
    {.name = "accumulate, listed chunks", .run = run_accumulate_chunks, .ranges = 2.5, .than = COPY, .has_goal = true},
    {.name = "zero, listed chunks", .run = run_zero_chunks, .ranges = 0.5, .than = COPY, .has_goal = true},
    {.name = "update, listed chunks", .run = run_update_chunks, .ranges = 2.5, .than = COPY, .has_goal = true},
    {.name = "check fp32", .run = run_check, .ranges = 1, .than = SWEEP, .has_goal = true},
    {.name = "score", .run = run_score, .ranges = 1, .than = SWEEP, .has_goal = true},
    {.name = "norm", .run = run_norm, .ranges = 1, .than = SWEEP, .has_goal = true},
    {.name = BUS, .run = run_down, .ranges = 1},
    {.name = "copy, pinned to device", .run = run_up, .ranges = 1, .than = BUS},
    {.name = "staged buffer, fp16 wire", .run = run_staged, .ranges = 1, .than = BUS},
};
#define ROWS (sizeof rows / sizeof rows[0])

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double rate_of(size_t row, double (*took)[ROUNDS])
{
    return rows[row].ranges * (double)range_bytes / took[row][rounds / 2];
}

static void row_print(size_t row, double (*took)[ROUNDS])
{
    double rate = rate_of(row, took), share;
    size_t than = 0;
    printf("  %-28s %8.1f GB/s", rows[row].name, rate);
    if (rows[row].than != NULL) {
        while (strcmp(rows[than].name, rows[row].than) != 0) than++;
        share = rate / rate_of(than, took);
        printf("  %5.2f of \"%s\"", share, rows[than].name);
        if (rows[row].has_goal) printf(", aimed at %.2f%s", GOAL,
                                     ((share < GOAL) && (range_bytes >= GOAL_BYTES)) ? ": missed" : "");
    }
    printf("\n");
}

/* That the sweep reads: one bit in the last word is met by one thread. Else what is fast may be nothing. */
static void sweep_prove(void)
{
    static const uint32_t bit = 0x80000000u, none = 0;
    uint64_t met = 0;
    upload(NULL, range(0) + range_bytes - 4, &bit, sizeof bit);
    must(run_sweep());
    download(NULL, &met, meetings(), sizeof met);
    upload(NULL, range(0) + range_bytes - 4, &none, sizeof none);
    if (met == 1) return;
    fprintf(stderr, "gpu-bench: a bit in the last word was met by %llu threads of the sweep, not by one\n",
            (unsigned long long)met);
    exit(1);
}

/* Each row alone on the device, its launch included; interleaved, so that all meet the same clocks. */
static int bench(void)
{
    static double took[ROWS][ROUNDS];
    struct gf_check none = {0, UINT64_MAX}, found;
    must(gf_gpu_cuda.zero(&program.queue, range(0), 4 * range_bytes + REST_BYTES));
    list_write();
    sweep_prove();
    upload(NULL, rest(), &none, sizeof none);
    for (uint32_t round = 0; round < rounds + 1; round++)
        for (size_t r = 0; r < ROWS; r++) {
            uint64_t begin_ns = gf_clock_monotonic.now_ns(NULL);
            must(rows[r].run());
            drain();
            if (round > 0) took[r][round - 1] = (double)(gf_clock_monotonic.now_ns(NULL) - begin_ns);
        }
    download(NULL, &found, rest(), sizeof found);
    if (found.bad_count != 0) {
        fprintf(stderr, "gpu-bench: zeroes became %llu values that are not finite\n", (unsigned long long)found.bad_count);
        return 1;
    }
    printf("%llu MiB a range, %u rounds, medians; GB/s of bytes read and written; aimed at is %.0f %% from %llu MiB on"
           "%s\n", (unsigned long long)(range_bytes >> 20), rounds, 100 * GOAL, (unsigned long long)(GOAL_BYTES >> 20),
           (range_bytes < GOAL_BYTES) ? ", which these are not" : "");
    for (size_t r = 0; r < ROWS; r++) qsort(took[r], rounds, sizeof took[r][0], compare);
    for (size_t r = 0; r < ROWS; r++) row_print(r, took);
    return 0;
}

/* ---- opening ---- */

static int skip(const char *why)
{
    printf("skipped: %s\n", why);
    return SKIPPED;
}

static void open_gpu(const char *library, uint64_t device_bytes)
{
    struct gf_gpu_setup setup = {.library = (library != NULL) ? library : "", .device_bytes = device_bytes,
                                 .events_max = 1, .image = gf_cuda_image, .kernels = gf_cuda_kernels,
                                 .kernel_count = gf_cuda_kernel_count, .ops = &gf_ops_cuda, .log = {say, NULL}};
    struct gf_fault fault = {.peer = GF_RANK_NONE};
    void *state = calloc(1, gf_gpu_cuda.state_bytes(&setup));
    program.staging = aligned_alloc(4096, program.staging_bytes);
    if ((state == NULL) || (program.staging == NULL)) exit(1);
    if (gf_gpu_cuda.open(&setup, state, &program.gpu, &fault) != GF_OK) {
        fprintf(stderr, "gpu: %s\n", fault.text);
        exit(1);
    }
    program.queue = (struct gf_queue){program.gpu, gf_gpu_cuda.stream(program.gpu, GF_STREAM_MAIN)};
    must(gf_gpu_cuda.host_register(program.gpu, program.staging, program.staging_bytes));
}

int main(int argc, char **argv)
{
    bool is_check = (argc > 1) && (strcmp(argv[1], "check") == 0), is_bench = (argc > 1) && (strcmp(argv[1], "bench") == 0);
    const char *library = ((argc > 2) && (argv[2][0] != '\0')) ? argv[2] : NULL;
    char *end = NULL;
    unsigned long long mib = (argc > 3) ? strtoull(argv[3], &end, 10) : 256;
    int result;
    if ((!is_check && !is_bench) || (argc > 4) || (mib == 0) || (mib > 8192) || ((end != NULL) && (*end != '\0'))) {
        fprintf(stderr, "usage: program_gpu check|bench [LIBRARY [MIB, 1 to 8192]]\n");
        return 2;
    }
    if (gf_cuda_image == NULL) return skip("this build has no GPU kernels (no nvcc)");
    if ((library == NULL) && (access("/dev/nvidiactl", F_OK) != 0) && (access("/dev/dxg", F_OK) != 0)) return skip("no GPU");
    range_bytes = (uint64_t)mib << 20;
    rounds = (library == NULL) ? ROUNDS : 1;
    program.staging_bytes = is_check ? (ops_pair_bytes(check_elems(library != NULL)) + 4095) / 4096 * 4096 : range_bytes;
    open_gpu(library, is_check ? ops_pair_bytes(check_elems(library != NULL)) : 4 * range_bytes + REST_BYTES);
    GF_ASSERT(LIST_AT + (UINT64_C(8192) << 20) / 4 / CHUNK_ELEMS / 2 * 4 <= REST_BYTES);
    if (is_bench) gpu_sweep_open(library, (struct gf_log){say, NULL});
    result = is_check ? check(library != NULL) : bench();
    if (is_bench) gpu_sweep_close();
    gf_gpu_cuda.host_unregister(program.gpu, program.staging);
    gf_gpu_cuda.close(program.gpu);
    if (is_bench && (result == 0)) gpu_steps_bench(library, range_bytes, library != NULL);
    if (is_check && (result == 0))
        printf("gpu-check: whole steps of several ranks on one GPU end as on the host, in %u runs: dense and sparse, fp32, "
               "fp16 and bf16 on the wire, through host memory, from device to device, to the wire\n",
               gpu_steps_check(library, library != NULL));
    return result;
}
