/* gpu-check: each element op held against the host's, byte by byte; then whole steps
 * (gpu_steps.c). */
#include <stdio.h>
#include <string.h>

#include "firmware-tests/cuda/gpu_program.h"
#include "firmware-tests/support/ops_pair.h"
#include "ops/element/cuda/ops_cuda.h"

#define ELEMS_SMALL 4097u  /* --small: for compute-sanitizer, which is slow */
#define ELEMS_MANY 100000u /* the host takes seconds for each round of so many */
/* a driver without a GPU is slow: it has these, and the count from its grid */
#define ELEMS_FAKE 8192u
#define NAMES_MAX 32u

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

/* On each of these counts, of which the last is the largest. */
static bool counts_check(const uint64_t *counts, size_t length, uint32_t seeds)
{
    struct ops_pair pair = {.ops = &gf_element_ops_cuda,
                            .any_nan = true,
                            .queue = &gpu_program.queue,
                            .elems_max = counts[length - 1],
                            .upload = upload,
                            .download = download,
                            .device = gpu_program.gpu->arena,
                            .seen = op_seen};
    bool same = true;
    ops_pair_begin(&pair);
    for (size_t c = 0; (c < length) && same; c++) {
        const uint32_t rounds = (counts[c] > ELEMS_MANY) ? 1 : seeds; /* a minute's worth */
        for (uint32_t seed = 0; (seed < rounds) && same; seed++)
            same =
                ops_pair_run(&pair, counts[c], (uint32_t)(c + seed) % 9, (uint32_t)c + 100 * seed);
    }
    ops_pair_end(&pair);
    return same;
}

/* On counts of up to counts_max, and on elems_max apart: whatever the count, all memory of a pair is
 * compared. */
static bool ops_check(uint64_t elems_max, uint64_t counts_max, uint32_t seeds)
{
    const uint64_t counts[] = {0,  1,  2,   3,   5,    8,    17,    31,
                               64, 65, 127, 130, 1000, 4097, 70001, 1000003};
    size_t length = sizeof counts / sizeof counts[0];
    bool same;
    while (counts[length - 1] > counts_max) length--;
    same = counts_check(counts, length, seeds);
    if (same && (elems_max != counts[length - 1])) same = counts_check(&elems_max, 1, seeds);
    for (uint32_t i = 0; (i < NAMES_MAX) && (seen[i].op != NULL); i++) {
        printf("  %-20s %s, %u times\n", seen[i].op,
               (seen[i].other == 0) ? "the host's bytes" : "NOT the host's bytes",
               seen[i].same + seen[i].other);
        gpu_json_row("\"op\":\"%s\",\"same\":%s,\"times\":%u", seen[i].op,
                     (seen[i].other == 0) ? "true" : "false", seen[i].same + seen[i].other);
    }
    return same;
}

static bool ops_all(bool is_small)
{
    uint64_t elems_max = gpu_program.is_small ? ELEMS_SMALL : grid_elems();
    uint64_t counts_max = gpu_program.is_fake ? ELEMS_FAKE : elems_max;
    gpu_open(ops_pair_bytes(elems_max), ops_pair_bytes(elems_max));
    gpu_json_device();
    printf("gpu-check: each op on counts up to %llu (%s, %u multiprocessors)\n",
           (unsigned long long)elems_max, gpu_program.gpu->name, gpu_program.gpu->multiprocessors);
    bool same = ops_check(elems_max, counts_max, is_small ? 1 : 4);
    gpu_close();
    return same;
}

int gpu_check(void)
{
    bool is_small = gpu_program.is_small || gpu_program.is_fake;
    uint32_t runs;
    if (!gpu_program.only_steps && !ops_all(is_small)) return 1;
    if (gpu_program.only_ops) {
        gpu_json_status("passed");
        return 0;
    }
    runs = gpu_steps_check(is_small);
    printf("gpu-check: whole steps of several ranks on one GPU end as on the host, in %u runs: "
           "dense and sparse, fp32, "
           "fp16 and bf16 on the wire, through host memory, from device to device, to the wire\n",
           runs);
    gpu_json_row("\"op\":\"steps\",\"same\":true,\"times\":%u", runs);
    gpu_json_status("passed");
    return 0;
}
