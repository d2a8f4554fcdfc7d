/* program_embed: an appliance that fills struct gf_config by hand and is linked without libconfig.
 * A world of one, one step; prints the averaged gradient. Then a child that is forked does the same
 * in the same memory, and may not open a network: for that it would need UCX's thread, which its
 * parent has. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradientflow.h"

static const struct gf_tensor tensor = {.name = "w", .elem_count = 4};
static void *memory;

static gf_status opened(const struct gf_config *config, gf_context **gf)
{
    struct gf_footprint need;
    gf_status status = gf_measure(config, &tensor, 1, &need);
    if ((status == GF_OK) && (memory == NULL)) memory = aligned_alloc(64, need.control_bytes);
    if (status == GF_OK) status = gf_open(config, &tensor, 1, memory, need.control_bytes, gf);
    return (status == GF_OK) ? gf_open_wait(*gf) : status;
}

static gf_status one_step(gf_context *gf)
{
    gf_status status = gf_step_begin(gf);
    if (status != GF_OK) return status;
    float *gradient = (float *)(uintptr_t)gf_gradient(gf, 0);
    for (int i = 0; i < 4; i++) gradient[i] = (float)i;
    status = gf_tensor_ready(gf, 0, 0);
    if (status == GF_OK) status = gf_step_wait(gf);
    if (status == GF_OK)
        printf("%g %g %g %g\n", (double)gradient[0], (double)gradient[1], (double)gradient[2],
               (double)gradient[3]);
    return status;
}

int main(void)
{
    struct gf_config config = {.job = {.world = 1, .ignore_environment = true}};
    gf_context *gf = NULL;
    config.link.private_memory = true; /* and so with a network */
    gf_status status = opened(&config, &gf);
    if (status == GF_OK) status = one_step(gf);
    if (status < 0) fprintf(stderr, "error: %s\n", gf_error_last(gf)->text);
    fflush(stdout);
    pid_t child = (status == GF_OK) ? fork() : -1;
    if (child == 0) {
        config.link.private_memory = false;
        if (((status = opened(&config, &gf)) == GF_OK) && ((status = one_step(gf)) == GF_OK))
            status = gf_close(gf);
        config.link.private_memory = true;
        if (status == GF_OK) printf("%s\n", gf_status_name(opened(&config, &gf)));
    } else if (child > 0) {
        (void)waitpid(child, NULL, 0);
    }
    (void)gf_close(gf);
    free(memory);
    return status != GF_OK;
}
