/* program_embed: an appliance that fills struct gf_config by hand and is linked without libconfig. A world of one, one
 * step; prints the averaged gradient. */
#include <stdio.h>
#include <stdlib.h>

#include "gradientflow.h"

int main(void)
{
    const struct gf_tensor tensor = {.name = "w", .elem_count = 4};
    const struct gf_config config = {.job = {.world = 1, .ignore_environment = true}};
    struct gf_footprint need;
    gf_context *gf = NULL;
    void *memory;
    float *gradient;
    gf_status status = gf_measure(&config, &tensor, 1, &need);
    if (status < 0) return 1;
    memory = aligned_alloc(64, need.control_bytes);
    if (memory == NULL) return 1;
    status = gf_open(&config, &tensor, 1, memory, need.control_bytes, &gf);
    if (status == GF_OK) status = gf_open_wait(gf);
    if (status == GF_OK) status = gf_step_begin(gf);
    if (status == GF_OK) {
        gradient = (float *)(uintptr_t)gf_gradient(gf, 0);
        for (int i = 0; i < 4; i++) gradient[i] = (float)i;
        status = gf_tensor_ready(gf, 0, 0);
        if (status == GF_OK) status = gf_step_wait(gf);
        if (status == GF_OK)
            printf("%g %g %g %g\n", (double)gradient[0], (double)gradient[1], (double)gradient[2], (double)gradient[3]);
    }
    if (status < 0) fprintf(stderr, "error: %s\n", gf_error_last(gf)->text);
    (void)gf_close(gf);
    free(memory);
    return status != GF_OK;
}
