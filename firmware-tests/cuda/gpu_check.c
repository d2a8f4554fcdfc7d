/* gpu-check: each element op held against the host's, byte by byte; then whole steps
 * (gpu_steps.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "firmware-tests/cuda/gpu_program.h"
#include "firmware-tests/support/ops_pair.h"
#include "ops/element/cuda/ops_cuda.h"

#define ELEMS_SMALL 4097u  /* up to here each count is met in several rounds */
#define ELEMS_MANY 100000u /* the host takes seconds for each round of so many */
#define NAMES_MAX 32u
#define ELEMS_APART OPS_PAIR_FEW_ELEMS /* of ranges that end where their memory does */
#define ARENA_UNIT (UINT64_C(2) << 20) /* the pages of an arena */

extern const struct gf_gpu_driver gf_gpu_cuda;

static struct seen {
    const char *op;
    uint32_t same, other;
} seen[NAMES_MAX];

static void op_seen(struct ops_pair *pair, const char *op, bool same)
{
    uint32_t at = 0;
    while ((at < NAMES_MAX) && (seen[at].op != NULL) && (strcmp(seen[at].op, op) != 0)) at++;
    GF_ASSERT(at < NAMES_MAX);
    seen[at].op = op;
    if (same)
        seen[at].same++;
    else
        seen[at].other++;
}

static void upload(struct ops_pair *pair, gf_mem dst, const void *src, uint64_t size_bytes)
{
    gpu_upload(dst, src, size_bytes);
}

static void download(struct ops_pair *pair, void *dst, gf_mem src, uint64_t size_bytes)
{
    gpu_download(dst, src, size_bytes);
}

/* From this count on every kernel meets its main loop on this device. */
static uint64_t grid_elems(void)
{
    uint32_t most = 0;
    gpu_open(4096, 4096);
    for (uint32_t k = 0; k < gf_gpu_cuda_kernels.count; k++)
        if (gpu_program.gpu->blocks[k] > most) most = gpu_program.gpu->blocks[k];
    gpu_close();
    return ops_pair_long_count(most);
}

/* Memory of its own for each area of a pair, with nothing behind it: an arena is whole pages of its
 * own, and the addresses after it, where drivers go on, are reserved for nothing. */
static struct {
    struct gf_gpu *gpu;
    void *state;
    uint64_t hole;
} apart[OPS_PAIR_AREAS];
static struct {
    int (*reserve)(uint64_t *at_out, size_t bytes, size_t alignment, uint64_t wish, uint64_t flags);
    int (*give)(uint64_t at, size_t bytes);
} holes;

static void apart_open(uint64_t area_bytes)
{
    const bool has_holes = gpu_driver_call("cuMemAddressReserve", &holes.reserve) &&
                           gpu_driver_call("cuMemAddressFree", &holes.give);
    struct gf_fault fault = {.peer = GF_RANK_NONE};
    for (uint32_t a = 0; a < OPS_PAIR_AREAS; a++) {
        struct gf_gpu_setup setup = {.library =
                                         (gpu_program.library != NULL) ? gpu_program.library : "",
                                     .device_bytes = area_bytes,
                                     .log = {gpu_log, NULL}};
        apart[a].state = calloc(1, gf_gpu_cuda.state_bytes(&setup));
        if (apart[a].state == NULL) exit(1);
        if (gf_gpu_cuda.open(&setup, apart[a].state, &apart[a].gpu, &fault) != GF_OK) {
            fprintf(stderr, "gpu: memory of its own for area %u: %s\n", a, fault.text);
            exit(1);
        }
        if (!has_holes) continue;
        gpu_must(gf_gpu_cuda.enter(apart[a].gpu));
        if (holes.reserve(&apart[a].hole, ARENA_UNIT, 0, 0, 0) != 0) apart[a].hole = 0;
        gpu_must(gf_gpu_cuda.leave(apart[a].gpu));
    }
}

static void apart_close(void)
{
    for (uint32_t a = 0; a < OPS_PAIR_AREAS; a++) {
        gpu_must(gf_gpu_cuda.enter(apart[a].gpu));
        if (apart[a].hole != 0) (void)holes.give(apart[a].hole, ARENA_UNIT);
        gpu_must(gf_gpu_cuda.leave(apart[a].gpu));
        gf_gpu_cuda.close(apart[a].gpu);
        free(apart[a].state);
    }
}

static uint64_t area_bytes_of(uint64_t elems_max)
{
    const uint64_t large = ops_pair_area_bytes(elems_max, 0);
    const uint64_t small = ops_pair_area_bytes(elems_max, OPS_PAIR_AREAS - 1);
    return (((large > small) ? large : small) + ARENA_UNIT - 1) / ARENA_UNIT * ARENA_UNIT;
}

/* On so many elements, in a pair that is no larger: whatever the count, all of its memory is
 * compared. at_end: each range ends where its memory does. */
static bool count_check(uint64_t count, uint32_t turn, uint32_t seeds, bool at_end)
{
    struct ops_pair pair = {.ops = &gf_element_ops_cuda,
                            .any_nan = true,
                            .queue = &gpu_program.queue,
                            .elems_max = count,
                            .upload = upload,
                            .download = download,
                            .device = gpu_program.gpu->arena,
                            .seen = op_seen};
    const uint32_t rounds = (count > ELEMS_MANY) ? 1 : seeds; /* a minute's worth */
    bool same = true;
    for (uint32_t a = 0; at_end && (a < OPS_PAIR_AREAS); a++)
        pair.areas[a] =
            apart[a].gpu->arena + area_bytes_of(ELEMS_APART) - ops_pair_area_bytes(count, a);
    ops_pair_begin(&pair);
    for (uint32_t seed = 0; (seed < rounds) && same; seed++)
        same = ops_pair_run(&pair, count, at_end ? 0 : (turn + seed) % 9, turn + 100 * seed);
    ops_pair_end(&pair);
    return same;
}

/* In few blocks, so that few elements meet every main loop; then in those of
 * device.multiprocessors. */
static bool loops_check(void)
{
    struct gf_queue *queue = &gpu_program.queue;
    queue->blocks_max = OPS_PAIR_FEW_BLOCKS;
    bool same = count_check(OPS_PAIR_FEW_ELEMS, 9, 1, true);
    if (!gpu_program.is_fake) same = same && count_check(OPS_PAIR_FEW_ELEMS - 3, 0, 1, false);
    queue->blocks_max = OPS_PAIR_FEW_BLOCKS * GF_GPU_BLOCK_THREADS / GF_GPU_CHANNEL_THREADS;
    queue->block_threads = GF_GPU_CHANNEL_THREADS;
    if (!gpu_program.is_fake) same = same && count_check(OPS_PAIR_FEW_ELEMS - 3, 3, 1, false);
    queue->blocks_max = queue->block_threads = 0;
    return same;
}

static bool small_counts_check(void)
{
    const uint64_t counts[] = {0, 1, 2, 3, 5, 8, 17, 31, 64, 65, 127, 130, 1000, ELEMS_SMALL};
    const uint32_t seeds = gpu_program.is_small || gpu_program.is_fake ? 1 : 4;
    bool same = true;
    for (uint32_t c = 0; (c < sizeof counts / sizeof counts[0]) && same; c++)
        same = count_check(counts[c], c, seeds, false) &&
               (gpu_program.is_fake || count_check(counts[c], c + 9, 1, true));
    return same;
}

static void seen_print(void)
{
    for (uint32_t i = 0; (i < NAMES_MAX) && (seen[i].op != NULL); i++) {
        printf("  %-20s %s, %u times\n", seen[i].op,
               (seen[i].other == 0) ? "the host's bytes" : "NOT the host's bytes",
               seen[i].same + seen[i].other);
        gpu_json_row("\"op\":\"%s\",\"same\":%s,\"times\":%u", seen[i].op,
                     (seen[i].other == 0) ? "true" : "false", seen[i].same + seen[i].other);
    }
}

/* Small counts, and every main loop in few blocks; with is_small no more. A driver without a GPU is
 * slow: of large counts it has that of its own grid. */
static bool ops_all(bool is_small)
{
    const uint64_t large[] = {70001, 1000003, is_small ? 0 : grid_elems()};
    const uint64_t most = is_small                ? OPS_PAIR_FEW_ELEMS
                          : (large[2] > large[1]) ? large[2]
                                                  : large[1];
    gpu_open(ops_pair_bytes(most), ops_pair_bytes(most));
    apart_open(area_bytes_of(ELEMS_APART));
    gpu_json_device();
    printf("gpu-check: each op on counts up to %llu (%s, %u multiprocessors)\n",
           (unsigned long long)(gpu_program.is_fake && !is_small ? large[2] : most),
           gpu_program.gpu->name, gpu_program.gpu->multiprocessors);
    bool same = small_counts_check() && loops_check();
    for (uint32_t i = gpu_program.is_fake ? 2 : 0; !is_small && (i < 3) && same; i++)
        same = count_check(large[i], i, 4, false);
    seen_print();
    apart_close();
    gpu_close();
    return same;
}

int gpu_check(void)
{
    uint32_t runs;
    if (!gpu_program.only_ops) gpu_peer_fork();
    if (!gpu_program.only_steps && !ops_all(gpu_program.is_small)) return 1;
    if (gpu_program.only_ops) {
        gpu_json_status("passed");
        return 0;
    }
    gpu_peer_check();
    runs = gpu_steps_check(gpu_program.is_small || gpu_program.is_fake);
    printf("gpu-check: whole steps of several ranks on one GPU end as on the host, in %u runs: "
           "dense and sparse, fp32, "
           "fp16 and bf16 on the wire, through host memory, from device to device, to the wire\n",
           runs);
    gpu_json_row("\"op\":\"steps\",\"same\":true,\"times\":%u", runs);
    gpu_json_status("passed");
    return 0;
}
