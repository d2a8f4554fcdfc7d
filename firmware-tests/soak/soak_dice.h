/* Draws of a plan: a stream of its own for each thing that is drawn for itself, so that what else a
 * seed is stays. */
#ifndef SOAK_DICE_H
#define SOAK_DICE_H

#include "firmware-tests/soak/soak.h"

struct dice {
    uint64_t state;
};

/* What was drawn, or what the job has in its place: soak_seed.c. */
uint64_t soak_changed(uint64_t drawn);
static inline uint64_t roll(struct dice *dice)
{
    return soak_changed(soak_scramble(dice->state += UINT64_C(0x9e3779b97f4a7c15)));
}
static inline uint32_t below(struct dice *dice, uint32_t bound)
{
    return soak_below(roll(dice), bound);
}
static inline uint32_t between(struct dice *dice, uint32_t low, uint32_t high)
{
    return low + below(dice, high - low + 1);
}
static inline bool percent(struct dice *dice, uint32_t share)
{
    return below(dice, 100) < share;
}
static inline uint64_t time_between(struct dice *dice, uint64_t low_ns, uint64_t high_ns)
{
    return low_ns + (uint64_t)(((unsigned __int128)roll(dice) * (high_ns - low_ns + 1)) >> 64);
}

void soak_plan_draw_more(struct soak_plan *plan); /* soak_plan_more.c */

#endif
