/* What a rank costs that waits: mean and median time of an operation, over all of a run. For
 * firmware-tests/bench/bench_idle.sh.
 *
 *     bench_idle CONFIG BYTES SECONDS [LAYERS COMPUTE_US]
 *
 * Allreduces of BYTES, one after the other; with LAYERS, training steps of so many tensors of BYTES
 * each instead, and COMPUTE_US of arithmetic before each (so long it takes on a core of its own,
 * rank 1 twice as long). The mean counts what a median hides: a core given away for a time slice.
 * Rank 0 prints both, in us. */
#include "config/config.h"
#include "firmware-tests/bench/bench_peer.h"
#include "lib/gradientflow.h"

enum { LAYERS_MAX = 64, SAMPLES_MAX = 1 << 20 };

/* Arithmetic of about a microsecond a round on a core of its own: work, not a span of time. */
static void compute(uint64_t rounds)
{
    volatile double sink = 1;
    for (uint64_t i = 0; i < rounds; i++) {
        double x = sink;
        for (int k = 0; k < 250; k++) x = x * 0.999 + 1e-3;
        sink = x;
    }
}

static uint64_t rounds_a_ms(void)
{
    double best_us = 1e9;
    for (int i = 0; i < 5; i++) {
        double begin_us = bench_now_us();
        compute(1000);
        if (bench_now_us() - begin_us < best_us) best_us = bench_now_us() - begin_us;
    }
    return (uint64_t)(1e6 / best_us);
}

/* One operation. Element 0 of the sum says whether any rank has had enough: all stop at the same
 * one. */
static gf_status allreduce(gf_context *gf, float *data, uint64_t elem_count)
{
    struct gf_request request = {0};
    gf_status status = gf_allreduce(gf, (gf_mem)(uintptr_t)data, elem_count, GF_TYPE_F32, &request);
    return (status < 0) ? status : gf_request_wait(gf, &request);
}

static gf_status step(gf_context *gf, uint32_t layers, uint64_t rounds)
{
    gf_status status = gf_step_begin(gf);
    for (uint32_t i = 0; (status == GF_OK) && (i < layers); i++) {
        compute(rounds);
        status = gf_tensor_ready(gf, i, 0);
    }
    return (status < 0) ? status : gf_step_wait(gf);
}

int main(int argc, char **argv)
{
    static struct gf_config config;
    static char error[GF_CONFIG_ERROR_BYTES];
    static struct gf_tensor tensors[LAYERS_MAX];
    static char names[LAYERS_MAX][16];
    static double times_us[SAMPLES_MAX];
    struct gf_footprint need;
    gf_context *gf = NULL;
    uint64_t bytes;
    uint64_t elem_count;
    uint64_t rounds;
    uint64_t done = 0;
    uint32_t layers;
    double seconds;
    double begin_us;
    double last_us;
    float *data;
    if (((argc != 4) && (argc != 6)) || (gf_config_load(argv[1], &config, error) != GF_OK)) {
        fprintf(stderr, "%s\n",
                error[0] ? error : "usage: bench_idle CONFIG BYTES SECONDS [LAYERS COMPUTE_US]");
        return 2;
    }
    bytes = strtoull(argv[2], NULL, 10);
    elem_count = bytes / sizeof(float);
    seconds = strtod(argv[3], NULL);
    layers = (argc == 6) ? (uint32_t)strtoul(argv[4], NULL, 10) : 1;
    rounds = (argc == 6) ? strtoull(argv[5], NULL, 10) * rounds_a_ms() / 1000 : 0;
    if ((elem_count == 0) || (layers == 0) || (layers > LAYERS_MAX)) return 2;
    for (uint32_t i = 0; i < layers; i++) {
        snprintf(names[i], sizeof names[i], "layer.%u", i);
        tensors[i] = (struct gf_tensor){.name = names[i], .elem_count = elem_count};
    }
    if (config.exchange.user_bytes < bytes + 4096) config.exchange.user_bytes = bytes + 4096;
    if (gf_measure(&config, tensors, layers, &need) != GF_OK) return 1;
    void *memory = aligned_alloc(64, need.control_bytes);
    gf_status status = gf_open(&config, tensors, layers, memory, need.control_bytes, &gf);
    if (status == GF_OK) status = gf_open_wait(gf);
    if (status != GF_OK) {
        fprintf(stderr, "error: %s\n", gf_error_last(gf)->text);
        return 1;
    }
    data = (float *)(uintptr_t)gf_exchange_take(gf, bytes);
    if (gf_rank(gf) == 1) rounds *= 2;
    begin_us = last_us = bench_now_us();
    for (uint64_t i = 0; status == GF_OK; i++) {
        double now;
        float *vote = (argc == 6) ? (float *)(uintptr_t)gf_gradient(gf, 0) : data;
        memset(data, 0, bytes);
        vote[0] = (last_us - begin_us > seconds * 1e6) ? 1.0f : 0.0f;
        status = (argc == 6) ? step(gf, layers, rounds) : allreduce(gf, data, elem_count);
        now = bench_now_us();
        if (i < SAMPLES_MAX) times_us[i] = now - last_us;
        last_us = now;
        done = i + 1;
        if (vote[0] > 0) break;
    }
    if (status != GF_OK)
        fprintf(stderr, "error: rank %u: %s\n", gf_rank(gf), gf_error_last(gf)->text);
    if ((status == GF_OK) && (gf_rank(gf) == 0)) {
        int samples = (done < SAMPLES_MAX) ? (int)done : SAMPLES_MAX;
        printf("%.3f %.3f\n", (last_us - begin_us) / (double)done, bench_median(times_us, samples));
    }
    gf_close(gf);
    free(memory);
    return (status == GF_OK) ? 0 : 1;
}
