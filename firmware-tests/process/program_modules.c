/* program_modules: an appliance with the core and at most one module (-DGF_PICK=\"sparse\" and -DGF_ENTRY=its entry in
 * struct gf_modules; "core": none), for test_modules.sh and `make size`.
 *     gf-run -n 2 program_modules_X [KEY]      steps on 2 ranks that use the module, KEY: a key file
 *     program_modules_X refuse SETTING         opens with a configuration that asks for a module; prints the error
 * It prints "NAME VALUE" lines. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GF_MODULES picked
#include "gradientflow.h"
#include "lib/modules/modules.h"

#define STEPS 4
#define ELEMS 4096u

#ifndef GF_ENTRY
#define GF_ENTRY
#endif
const struct gf_modules picked = {GF_MODULES_CORE, .name = "picked", GF_ENTRY};

static char error[256];

static void log_line(void *user, gf_log_level level, const char *text)
{
    (void)user;
    if (level == GF_LOG_ERROR) (void)snprintf(error, sizeof error, "%s", text);
}

static struct gf_config config = {.log = log_line};
static const struct gf_tensor tensors[] = {
    {.name = "b", .elem_count = 16, .flags = GF_TENSOR_DENSE | GF_TENSOR_NO_DECAY},
    {.name = "w", .elem_count = ELEMS},
};
static gf_context *gf;
static void *memory;

static bool picked_is(const char *name) { return strcmp(GF_PICK, name) == 0; }

static gf_status job_open(void)
{
    struct gf_footprint need;
    gf_status status = gf_measure(&config, tensors, 2, &need);
    if (status < 0) return status;
    printf("control_bytes %llu\n", (unsigned long long)need.control_bytes);
    memory = aligned_alloc(64, need.control_bytes);
    if (memory == NULL) return GF_ERR_SYSTEM;
    status = gf_open(&config, tensors, 2, memory, need.control_bytes, &gf);
    return (status < 0) ? status : gf_open_wait(gf);
}

/* Sums are exact: small integers. In a sparse step what is not sent stays as it was written. */
static gf_status step(unsigned number)
{
    float sum = (float)(gf_world(gf) * (gf_world(gf) + 1)) / 2.0f * (float)number;
    gf_status status = gf_step_begin(gf);
    for (uint32_t t = 0; (t < 2) && (status == GF_OK); t++) {
        float *gradient = (float *)(uintptr_t)gf_gradient(gf, t);
        for (uint64_t i = 0; i < tensors[t].elem_count; i++) gradient[i] = (float)((gf_rank(gf) + 1) * number);
        status = gf_tensor_ready(gf, t, 0);
    }
    if (status == GF_OK) status = gf_step_wait(gf);
    if (status < 0) return status;
    for (uint32_t t = 0; t < (picked_is("sparse") ? 1 : 2); t++) {
        const float *gradient = (const float *)(uintptr_t)gf_gradient(gf, t);
        for (uint64_t i = 0; i < tensors[t].elem_count; i++)
            if (fabsf(gradient[i] - sum) > (picked_is("quantize") ? 0.02f * sum : 0)) return GF_ERR_DATA;
    }
    return GF_OK;
}

static gf_status module_use(void)
{
#if defined(GF_USE_UPDATE)
    gf_status status = gf_update(gf, 0.5f);
    if (status == GF_OK) printf("weight %g\n", (double)*(float *)(uintptr_t)gf_weight(gf, 1));
    return status;
#elif defined(GF_USE_SHRINK)
    printf("joiners %u\nshrink %s\nadmit %s\n", gf_joiners(gf), gf_status_name(gf_shrink(gf, NULL, 0)),
           gf_status_name(gf_admit(gf)));
    return GF_OK;
#elif defined(GF_USE_STATE)
    uint64_t bytes = gf_state_bytes(gf);
    void *state = aligned_alloc(8, (bytes + 7) & ~(uint64_t)7);
    gf_status status = (state == NULL) ? GF_ERR_SYSTEM : gf_state_save(gf, state, bytes);
    if (status == GF_OK) status = gf_state_load(gf, state, bytes);
    free(state);
    if (status == GF_OK) printf("steps %llu\n", (unsigned long long)gf_steps(gf));
    return status;
#elif defined(GF_USE_TRACE)
    struct gf_trace_record records[8];
    struct gf_stats stats = {.size_bytes = sizeof stats};
    gf_status status = gf_stats(gf, &stats);
    printf("records %d\nstats %llu\n", gf_trace_read(gf, records, 8) > 0, (unsigned long long)stats.steps);
    return status;
#else
    return GF_OK;
#endif
}

static void ask(const char *setting)
{
    if (strcmp(setting, "sparse") == 0) config.sparse.enabled = true;
    if (strcmp(setting, "quantize") == 0) config.exchange.quantize = GF_QUANTIZE_INT8;
    if (strcmp(setting, "optimizer") == 0) config.optimizer.kind = GF_OPTIMIZER_SGD;
    if (strcmp(setting, "elastic") == 0) config.rendezvous.rejoin = true;
    if (strcmp(setting, "authentication") == 0) memcpy(config.rendezvous.key_file, "key", 4);
    if (strcmp(setting, "integrity") == 0) config.link.integrity = true;
    if (strcmp(setting, "hardware") == 0) memcpy(config.link.devices, "auto", 5);
    if (strcmp(setting, "device") == 0) memcpy(config.device.driver, "cuda", 5);
    if (strcmp(setting, "server") == 0) config.exchange.algorithm = GF_ALGORITHM_SERVER;
    if (strcmp(setting, "direct") == 0) config.exchange.algorithm = GF_ALGORITHM_DIRECT;
    if (strcmp(setting, "hierarchy") == 0) config.exchange.algorithm = GF_ALGORITHM_HIERARCHY;
}

int main(int argc, char **argv)
{
    gf_status status;
    bool refuse = (argc == 3) && (strcmp(argv[1], "refuse") == 0);
    if (refuse) {
        ask(argv[2]);
    } else {
        config.sparse.chunk_elems = 64;
        if (!picked_is("elastic") && !picked_is("device") && !picked_is("authentication")) ask(GF_PICK);
        if (argc == 2) (void)snprintf(config.rendezvous.key_file, sizeof config.rendezvous.key_file, "%s", argv[1]);
    }
    status = job_open();
    for (unsigned number = 1; (number <= STEPS) && (status == GF_OK); number++) {
        status = step(number);
        if (status == GF_OK) status = module_use();
    }
    if (status < 0) printf("error %s\n", (gf != NULL) ? gf_error_last(gf)->text : error);
    else printf("whole %d of %u\n", STEPS, gf_world(gf));
    (void)gf_close(gf);
    free(memory);
    return (status < 0) ? 1 : 0;
}
