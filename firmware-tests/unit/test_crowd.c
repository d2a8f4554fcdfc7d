/* When a rank that waits gives its core away: lib/core/crowd.h, fed with what the kernel would say. */
#include "firmware-tests/support/suite.h"
#include "lib/core/crowd.h"

static uint32_t polls_until_look(struct gf_crowd *crowd)
{
    uint32_t polls = 1;
    while (!gf_crowd_poll(crowd)) polls++;
    return polls;
}

TEST(a_rank_alone_on_its_core_never_yields)
{
    struct gf_crowd crowd = {0};
    for (uint32_t look = 0; look < 1000; look++) {
        assert_int_equal(polls_until_look(&crowd), GF_CROWD_POLLS);
        gf_crowd_seen(&crowd, 0);
        assert_false(gf_crowd_yields(&crowd, look));
    }
}

TEST(a_switch_makes_it_yield_until_nobody_came_for_a_while)
{
    struct gf_crowd crowd = {0};
    gf_crowd_seen(&crowd, 7);
    assert_true(gf_crowd_yields(&crowd, 1));
    for (uint32_t look = 1; look < GF_CROWD_QUIET; look++) {
        gf_crowd_seen(&crowd, 7);
        assert_true(gf_crowd_yields(&crowd, 1));
    }
    gf_crowd_seen(&crowd, 8); /* counted anew from each */
    for (uint32_t look = 1; look < GF_CROWD_QUIET; look++) gf_crowd_seen(&crowd, 8);
    assert_true(gf_crowd_yields(&crowd, 1));
    gf_crowd_seen(&crowd, 8);
    assert_false(gf_crowd_yields(&crowd, 1));
}

TEST(a_yield_to_somebody_who_computes_is_the_last_for_a_while)
{
    struct gf_crowd crowd = {0};
    uint64_t end_ns = 50 + GF_CROWD_LONG_NS + 1;
    gf_crowd_seen(&crowd, 1);
    gf_crowd_yielded(&crowd, 50, 50 + GF_CROWD_LONG_NS);
    assert_true(gf_crowd_yields(&crowd, 50 + GF_CROWD_LONG_NS));
    gf_crowd_yielded(&crowd, 50, end_ns);
    assert_false(gf_crowd_yields(&crowd, end_ns));
    assert_false(gf_crowd_yields(&crowd, end_ns + GF_CROWD_KEEP_NS - 1));
    assert_true(gf_crowd_yields(&crowd, end_ns + GF_CROWD_KEEP_NS));
}
