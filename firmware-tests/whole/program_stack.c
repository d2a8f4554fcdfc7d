/* program_stack [BYTES]: an appliance in a thread of its own with a painted stack; opens, steps,
 * saves and closes, and prints "stack N": how much of it was used, by the library, UCX and libc
 * together. BYTES: its size (1 MiB).
 *     gf-run -n 2 program_stack */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "config.h"
#include "gradientflow.h"

#define PAINT 0x5a
#define STEPS 50u

static struct gf_config config;
static const struct gf_tensor tensors[] = {{.name = "a", .elem_count = 70000},
                                           {.name = "b", .elem_count = 300}};

static gf_status steps(gf_context *gf)
{
    gf_status status = GF_OK;
    for (uint32_t step = 0; (step < STEPS) && (status == GF_OK); step++) {
        if ((status = gf_step_begin(gf)) != GF_OK) break;
        for (uint32_t i = 0; (i < 2) && (status == GF_OK); i++) {
            memset((void *)(uintptr_t)gf_gradient(gf, i), 0, tensors[i].elem_count * sizeof(float));
            status = gf_tensor_ready(gf, i, 0);
        }
        if (status == GF_OK) status = gf_step_wait(gf);
        if (status == GF_OK) status = gf_update(gf, 0.1f);
    }
    return status;
}

static void *run(void *result)
{
    struct gf_footprint need;
    gf_context *gf = NULL;
    gf_status status = gf_measure(&config, tensors, 2, &need);
    void *memory = (status == GF_OK) ? aligned_alloc(64, need.control_bytes) : NULL;
    void *state;
    if (status == GF_OK) status = gf_open(&config, tensors, 2, memory, need.control_bytes, &gf);
    if (status == GF_OK) status = gf_open_wait(gf);
    if (status == GF_OK) status = steps(gf);
    if (status == GF_OK) {
        state = aligned_alloc(8, gf_state_bytes(gf));
        status = gf_state_save(gf, state, gf_state_bytes(gf));
        if (status == GF_OK) status = gf_state_load(gf, state, gf_state_bytes(gf));
        free(state);
    }
    if (status != GF_OK)
        fprintf(stderr, "error: %s: %s\n", gf_status_name(status), gf_error_last(gf)->text);
    (void)gf_close(gf);
    free(memory);
    *(gf_status *)result = status;
    return NULL;
}

int main(int argc, char **argv)
{
    char error[GF_CONFIG_ERROR_BYTES];
    size_t bytes = (argc > 1) ? strtoull(argv[1], NULL, 10) : 1u << 20;
    size_t unused = 0;
    gf_status status = GF_ERR_SYSTEM;
    pthread_attr_t attributes;
    pthread_t thread;
    unsigned char *stack =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (gf_config_load("config/local.cfg", &config, error) != GF_OK)
        return fprintf(stderr, "%s\n", error), 1;
    if (stack == MAP_FAILED) return 1;
    memset(stack, PAINT, bytes);
    if ((pthread_attr_init(&attributes) != 0) ||
        (pthread_attr_setstack(&attributes, stack, bytes) != 0) ||
        (pthread_create(&thread, &attributes, run, &status) != 0))
        return 1;
    (void)pthread_join(thread, NULL);
    while ((unused < bytes) && (stack[unused] == PAINT)) unused++;
    printf("stack %zu\n", bytes - unused);
    return status != GF_OK;
}
