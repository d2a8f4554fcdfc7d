/* An elastic appliance that knows nothing of outages: steps of a millisecond, gf_regroup_begin()
 * where one fails or somebody waits to come in. It ends with all others once the file STOP is
 * there, and says what it has come to. program_outage CONFIGURATION STOP
 * SIGUSR1 lets the rank leave. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "config/config.h"
#include "lib/gradientflow.h"

#define ELEMS 20000u

static const struct gf_tensor tensors[] = {{.name = "weight", .elem_count = ELEMS}};
static unsigned left_out;
static volatile sig_atomic_t leaves;

static void leave_ask(int number)
{
    (void)number;
    leaves = 1;
}

static bool exists(const char *path)
{
    return (path != NULL) && (access(path, F_OK) == 0);
}

static gf_status step(gf_context *gf, const char *stop)
{
    const struct timespec pace = {.tv_nsec = 1000000};
    if (leaves) (void)gf_leave(gf);
    gf_status status = gf_step_begin(gf);
    if (status != GF_OK) return status;
    float *gradient = (float *)(uintptr_t)gf_gradient(gf, 0);
    uint64_t number = gf_steps(gf);
    (void)nanosleep(&pace, NULL);
    for (unsigned i = 0; i < ELEMS; i++)
        gradient[i] = (float)((number * 31 + i * 17 + gf_rank(gf)) % 64) / 64 - 0.5f;
    status = gf_step_metric(gf, 0, exists(stop) ? 1.0 : 0.0);
    if (status == GF_OK) status = gf_tensor_ready(gf, 0, 0);
    if (status == GF_OK) status = gf_step_wait(gf);
    return (status == GF_OK) ? gf_update(gf, 0.01f) : status;
}

/* Until a generation has begun, or no other can. */
static gf_status change(gf_context *gf, gf_status status)
{
    while ((status < 0) || (gf_regroup_due(gf) > 0)) {
        if (gf_regroup_begin(gf) < 0) return status;
        status = gf_regroup_wait(gf);
        if ((status == GF_OK) && gf_left(gf)) return GF_OK;
        if (status == GF_OK) left_out += gf_left_out(gf) ? 1u : 0u;
    }
    return status;
}

static unsigned weights_hash(gf_context *gf)
{
    const unsigned char *bytes = (const unsigned char *)(uintptr_t)gf_weight(gf, 0);
    unsigned hash = 2166136261u;
    for (size_t i = 0; i < ELEMS * sizeof(float); i++) hash = (hash ^ bytes[i]) * 16777619u;
    return hash;
}

int main(int argc, char **argv)
{
    const struct gf_config own = {.job.elastic = true,
                                  .exchange.average = GF_AVERAGE_RANKS,
                                  .optimizer.kind = GF_OPTIMIZER_SGD,
                                  .log = gf_log_stderr};
    void *memory = NULL;
    gf_context *gf = NULL;
    if (argc != 3) return fprintf(stderr, "program_outage CONFIGURATION STOP\n"), 2;
    (void)signal(SIGUSR1, leave_ask);
    gf_status status = gf_open_file(argv[1], &own, 0, tensors, 1, aligned_alloc, &memory, &gf);
    if (status == GF_OK) status = gf_open_wait(gf);
    if (status == GF_OK) fprintf(stderr, "ready\n");
    while (status == GF_OK) {
        status = step(gf, argv[2]);
        if ((status == GF_OK) && (gf_metric(gf, 0) > 0)) break;
        status = change(gf, status);
        if ((status == GF_OK) && gf_left(gf)) break;
    }
    if ((status == GF_OK) && !gf_left(gf))
        fprintf(stderr, "end: %u ranks, step %llu, weights %08x, left out %u times\n", gf_world(gf),
                (unsigned long long)gf_steps(gf), weights_hash(gf), left_out);
    gf_close(gf);
    free(memory);
    return status != GF_OK;
}
