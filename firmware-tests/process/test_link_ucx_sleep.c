/* Sleeping on flags in the exchange region: whoever sets one ends the sleep, whenever it comes. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/ucx_ranks.h"

#include <time.h>

#define FLAG_AT 0u
#define SLEEP_AT 64u

static void sleep_round(struct ranks_one *one, uint64_t round)
{
    const struct gf_link_driver *driver = one->link->driver;
    while (gf_flag_load(one->link, FLAG_AT) != round) {
        driver->flag_arm(one->link, SLEEP_AT);
        if (gf_flag_load(one->link, FLAG_AT) != round)
            driver->flag_sleep(one->link, SLEEP_AT, UINT64_C(8000000000));
    }
}

static void wake_round(struct ranks_one *one, uint64_t round, uint32_t pause_ms)
{
    const struct timespec pause = {.tv_nsec = (long)pause_ms * 1000000};
    (void)nanosleep(&pause, NULL);
    one->link->driver->flag_store(one->link, 1, FLAG_AT, round);
    gf_flag_wake(one->link->driver->map(one->link, 1), SLEEP_AT);
}

/* Rank 1 sleeps; rank 0 sets the flag at once, where it races with the announcement, or while rank
 * 1 sleeps. */
RANKS_TEST_OVER(a_flag_ends_a_sleep, 2, 0, "node")
{
    struct timespec begin;
    struct timespec end;
    ranks_begin(one);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (uint64_t round = 1; round <= 200; round++) {
        ranks_meet(one);
        if (one->rank == 0)
            wake_round(one, round, (round % 10 == 0) ? 3 : 0);
        else
            sleep_round(one, round);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    RANK_CHECK(one, end.tv_sec - begin.tv_sec < 7); /* none ran out */
    ranks_meet(one);
}

RANKS_TEST_OVER(a_sleep_that_nobody_ends_times_out_and_takes_its_announcement_back, 2, 0, "node")
{
    const struct gf_link_driver *driver;
    ranks_begin(one);
    driver = one->link->driver;
    /* not announced, or taken back by a waker: no sleep */
    driver->flag_sleep(one->link, SLEEP_AT, UINT64_C(8000000000));
    driver->flag_arm(one->link, SLEEP_AT);
    driver->flag_sleep(one->link, SLEEP_AT, UINT64_C(20000000)); /* nobody wakes it */
    RANK_CHECK(one, gf_flag_load(one->link, SLEEP_AT) == 0);
    ranks_meet(one);
}
