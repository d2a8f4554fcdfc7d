/* program_own_drivers: defines gf_drivers_default, has the simulator's drivers alone, and is linked
 * without UCX, libsodium and libconfig. Two ranks in this thread, one step; prints what each
 * holds. */
#include <stdio.h>
#include <stdlib.h>

#include "drivers/sim/sim.h"
#include "gradientflow.h"

/* In the library's place: nothing of it is left to link but what the simulator hands in. */
static const struct gf_drivers none;
const struct gf_drivers *const gf_drivers_default = &none;

#define RANKS 2u

static gf_context *ranks[RANKS];

/* Polls both until both have answered; virtual time goes on when neither has anything to do. */
static int both(struct gf_sim *sim, gf_status (*poll)(gf_context *gf))
{
    for (unsigned turn = 0; turn < 100000; turn++) {
        unsigned done = 0;
        for (uint32_t r = 0; r < RANKS; r++) {
            gf_status status = poll(ranks[r]);
            if (status < 0) return -1;
            done += (status == GF_OK);
        }
        if (done == RANKS) return 0;
        (void)gf_sim_advance(sim);
    }
    return -1;
}

int main(void)
{
    const struct gf_tensor tensor = {.name = "w", .elem_count = 1};
    const struct gf_sim_setup setup = {.world = RANKS, .latency_ns = 1000};
    struct gf_sim *sim = gf_sim_create(&setup);
    void *memory[RANKS] = {NULL, NULL};
    if (sim == NULL) return 1;
    for (uint32_t r = 0; r < RANKS; r++) {
        const struct gf_config config = {
            .job = {.world = RANKS, .rank = r, .ignore_environment = true},
            .drivers = gf_sim_drivers(sim, r)};
        struct gf_footprint need;
        if (gf_measure(&config, &tensor, 1, &need) != GF_OK) return 1;
        memory[r] = aligned_alloc(64, need.control_bytes);
        if (gf_open(&config, &tensor, 1, memory[r], need.control_bytes, &ranks[r]) != GF_OK)
            return 1;
    }
    if (both(sim, gf_open_poll) < 0) return 1;
    for (uint32_t r = 0; r < RANKS; r++) {
        if (gf_step_begin(ranks[r]) != GF_OK) return 1;
        *(float *)(uintptr_t)gf_gradient(ranks[r], 0) = (float)(r + 1);
        if (gf_tensor_ready(ranks[r], 0, 0) != GF_OK) return 1;
    }
    if (both(sim, gf_step_poll) < 0) return 1;
    printf("%g %g\n", (double)*(float *)(uintptr_t)gf_gradient(ranks[0], 0),
           (double)*(float *)(uintptr_t)gf_gradient(ranks[1], 0));
    if (both(sim, gf_close_poll) < 0) return 1;
    for (uint32_t r = 0; r < RANKS; r++) {
        (void)gf_close(ranks[r]);
        free(memory[r]);
    }
    gf_sim_destroy(sim);
    return 0;
}
