/* gf-train that a test holds: linked from its objects, with gf_regroup_due(), which it asks behind
 * each step, wrapped by the linker; the language model of the examples likewise. While the file
 * GF_HOLD is there, from step GF_HOLD_FROM on, a step takes GF_HOLD_MS (100), however fast the
 * machine is: one rank after the other, a step each, is late, and the others wait for it in the
 * exchange. So a job of some hundred steps trains until the test has seen what it waits for and
 * removes the file; then it goes on at once, to the weights that it has without. */
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "gradientflow.h"

uint32_t __real_gf_regroup_due(const gf_context *gf);

static uint64_t held_by(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return (text != NULL) ? strtoull(text, NULL, 10) : otherwise;
}

static bool is_late(const gf_context *gf)
{
    uint64_t steps = gf_steps(gf);
    return (steps >= held_by("GF_HOLD_FROM", 0)) && (steps % gf_world(gf) == gf_rank(gf));
}

uint32_t __wrap_gf_regroup_due(const gf_context *gf)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    const char *file = getenv("GF_HOLD");
    uint64_t late_ms = ((file != NULL) && is_late(gf)) ? held_by("GF_HOLD_MS", 100) : 0;
    for (uint64_t i = 0; (i < late_ms) && (access(file, F_OK) == 0); i++)
        (void)nanosleep(&ms, NULL);
    return __real_gf_regroup_due(gf);
}
