/* When a rank that waits yields and when it sleeps: lib/core/idle.h, fed with times. */
#include "firmware-tests/support/suite.h"
#include "lib/core/idle.h"

#define MS UINT64_C(1000000)
#define SLICE_NS (4 * MS) /* what a yield gives to somebody who computes */

TEST(a_short_wait_yields_and_a_long_one_sleeps)
{
    const struct gf_idling idling = {0};
    assert_true(gf_idle_yields(&idling, 1, 5 * MS));
    assert_true(gf_idle_yields(&idling, GF_IDLE_YIELDS, 5 * MS));
    assert_false(gf_idle_yields(&idling, GF_IDLE_YIELDS + 1, 5 * MS));
}

TEST(yields_that_come_back_are_never_barred)
{
    struct gf_idling idling = {0};
    uint64_t now_ns = 1;
    for (uint32_t i = 0; i < 10000; i++) {
        gf_idle_yielded(&idling, now_ns, now_ns + GF_IDLE_LONG_NS);
        now_ns += GF_IDLE_LONG_NS;
        assert_true(gf_idle_yields(&idling, 1, now_ns));
    }
}

/* Two yields of a slice each, apart_ns between them. Returns when the second one ended. */
static uint64_t two_slices(struct gf_idling *idling, uint64_t begin_ns, uint64_t apart_ns)
{
    uint64_t second_ns = begin_ns + SLICE_NS + apart_ns;
    gf_idle_yielded(idling, begin_ns, begin_ns + SLICE_NS);
    assert_true(gf_idle_yields(idling, 1, begin_ns + SLICE_NS));
    gf_idle_yielded(idling, second_ns, second_ns + SLICE_NS);
    return second_ns + SLICE_NS;
}

TEST(two_yields_to_somebody_who_computes_bar_the_next)
{
    struct gf_idling idling = {0};
    uint64_t now_ns = two_slices(&idling, 1000 * MS, MS / 10);
    assert_false(gf_idle_yields(&idling, 1, now_ns));
    assert_false(gf_idle_yields(&idling, 1, now_ns + GF_IDLE_BAN_NS - 1));
    assert_true(gf_idle_yields(&idling, 1, now_ns + GF_IDLE_BAN_NS));
}

TEST(long_yields_far_from_each_other_bar_nothing)
{
    struct gf_idling idling = {0};
    uint64_t now_ns = two_slices(&idling, 1000 * MS, GF_IDLE_NEAR_NS + 1);
    assert_true(gf_idle_yields(&idling, 1, now_ns));
}

/* Yields whenever it may, beside a neighbour who computes up to until_ns. Returns the time lost to it. */
static uint64_t lost_ns(struct gf_idling *idling, uint64_t *now_ns, uint64_t until_ns)
{
    uint64_t lost = 0;
    for (; *now_ns < until_ns; *now_ns += MS / 10) {
        if (!gf_idle_yields(idling, 1, *now_ns)) continue;
        gf_idle_yielded(idling, *now_ns, *now_ns + SLICE_NS);
        *now_ns += SLICE_NS;
        lost += SLICE_NS;
    }
    return lost;
}

TEST(beside_a_neighbour_who_computes_under_a_hundredth_of_the_time_is_lost)
{
    struct gf_idling idling = {0};
    uint64_t now_ns = 1000 * MS;
    assert_true(lost_ns(&idling, &now_ns, 61000 * MS) * 100 < 60000 * MS);
}

TEST(no_ban_outlasts_its_cause)
{
    struct gf_idling idling = {0};
    uint64_t now_ns = MS;
    (void)lost_ns(&idling, &now_ns, 60000 * MS);
    now_ns += GF_IDLE_BAN_MAX_NS + MS;
    assert_true(gf_idle_yields(&idling, 1, now_ns));
    gf_idle_yielded(&idling, now_ns, now_ns + MS / 100);
    assert_true(gf_idle_yields(&idling, 1, now_ns + MS));
    now_ns += 2 * GF_IDLE_BAN_MAX_NS; /* and long after it, the first ban is a short one again */
    now_ns = two_slices(&idling, now_ns, MS / 10);
    assert_true(gf_idle_yields(&idling, 1, now_ns + GF_IDLE_BAN_NS));
}
