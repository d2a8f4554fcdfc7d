/* The clock that polls ask: between two looks at the system's the CPU's counter tells. */
#include "firmware-tests/support/suite.h"
#include "drivers/base/ticks.h"

#define OFF_NS 20000u /* at most */

static uint64_t looks, stands_ns;
static bool interrupted; /* each other look, behind it */

static uint64_t counting_now_ns(const struct gf_clock *clock)
{
    uint64_t now_ns = gf_clock_monotonic.now_ns(clock);
    bool late = interrupted && (looks % 2 == 0);
    looks++;
    while (late && (gf_clock_monotonic.now_ns(clock) - now_ns < 2 * OFF_NS)) {
    }
    return now_ns;
}
static const struct gf_clock counting = {.now_ns = counting_now_ns, .is_real = true};

static uint64_t virtual_now_ns(const struct gf_clock *clock)
{
    return stands_ns;
}
static const struct gf_clock virtual = {.now_ns = virtual_now_ns};

/* For so long, and a thousand times, it is where the system's clock is, and never goes back.
 * Returns how often it was asked. */
static uint64_t follows(struct gf_ticks *ticks, uint64_t for_ns)
{
    uint64_t begin_ns = gf_clock_monotonic.now_ns(NULL);
    uint64_t before_ns = begin_ns;
    uint64_t returned_ns = 0;
    uint64_t asked = 0;
    for (; (before_ns - begin_ns < for_ns) || (asked < 1000); asked++) {
        uint64_t now_ns = gf_ticks_now(ticks);
        uint64_t after_ns = gf_clock_monotonic.now_ns(NULL);
        assert_true((now_ns >= returned_ns) && (now_ns + OFF_NS >= before_ns) &&
                    (now_ns <= after_ns + OFF_NS));
        returned_ns = now_ns;
        before_ns = after_ns;
    }
    return asked;
}

/* It knows the counter's rate: so soon, unless others had this core. */
static void begin(struct gf_ticks *ticks)
{
    gf_ticks_begin(ticks, &counting);
    for (uint32_t i = 0; (i < 10) && ((i == 0) || (ticks->steady && (ticks->rate == 0))); i++)
        (void)follows(ticks, 15000000);
}

TEST(between_two_looks_the_counter_tells)
{
    struct gf_ticks ticks;
    uint64_t asked;
    begin(&ticks);
    looks = 0;
    asked = follows(&ticks, 20000000);
    if (ticks.steady)
        assert_true(looks * 10 < asked);
    else
        assert_int_equal(looks, asked);
}

TEST(a_counter_that_jumps_is_off_for_no_longer_than_a_look)
{
    struct gf_ticks ticks;
    uint64_t returned_ns;
    begin(&ticks);
    ticks.tick -= UINT64_C(1) << 24; /* it has gone on without this process */
    (void)follows(&ticks, 2000000);
    ticks.tick += UINT64_C(1) << 40; /* it begins anew */
    ticks.rate_tick += UINT64_C(1) << 40;
    (void)follows(&ticks, 15000000);
    ticks.returned_ns += 1000000000;
    returned_ns = ticks.returned_ns;
    assert_true(gf_ticks_now(&ticks) == returned_ns);
}

TEST(a_counter_that_goes_back_tells_no_rate)
{
    struct gf_ticks ticks;
    uint64_t begin_ns;
    begin(&ticks);
    ticks.rate_tick += (ticks.tick - ticks.rate_tick) / 2;
    (void)follows(&ticks, 15000000);
    gf_ticks_begin(&ticks, &counting);
    begin_ns = gf_ticks_now(&ticks);
    ticks.rate_ns -= 900000000; /* before there was a rate, it went back to where it was then */
    while (gf_clock_monotonic.now_ns(NULL) - begin_ns < 2000000) (void)gf_ticks_now(&ticks);
    assert_true(gf_ticks_now(&ticks) <= gf_clock_monotonic.now_ns(NULL) + 9000000);
}

TEST(a_look_that_is_interrupted_says_nothing_of_the_counter)
{
    struct gf_ticks ticks;
    begin(&ticks);
    interrupted = true;
    (void)follows(&ticks, 15000000);
    interrupted = false;
}

TEST(another_clock_is_asked_each_time)
{
    struct gf_ticks ticks;
    gf_ticks_begin(&ticks, &virtual);
    for (stands_ns = 1; stands_ns < UINT64_C(1) << 62; stands_ns *= 3)
        assert_true(gf_ticks_now(&ticks) == stands_ns);
}
