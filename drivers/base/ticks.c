/* The CPU's counter of ticks, which tells the time between two looks at a clock. */
#include "drivers/base/ticks.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define SPAN_TICKS (UINT64_C(1) << 21) /* since a reading, at most */
/* a reading that took longer was interrupted: it says nothing of ticks */
#define NEAR_TICKS (UINT64_C(1) << 11)
#define RATE_NS UINT64_C(1000000)        /* the rate is taken over so long, .. */
#define RATE_MAX_NS UINT64_C(1000000000) /* .. and at most */
#define RATE_MOST (UINT64_C(4) << 32)    /* a counter of 250 MHz */

/* Not in order with what is around it, which would take as long as the clock. */
static inline uint64_t counter(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return 0;
#endif
}

/* At one rate whatever the CPU's own is, and while it sleeps. */
static bool counter_is_steady(void)
{
#if defined(__x86_64__)
    unsigned a;
    unsigned b;
    unsigned c;
    unsigned d;
    return (__get_cpuid(0x80000007u, &a, &b, &c, &d) != 0) && ((d & (1u << 8)) != 0);
#else
    return false;
#endif
}

void gf_ticks_begin(struct gf_ticks *ticks, const struct gf_clock *clock)
{
    *ticks = (struct gf_ticks){.clock = clock, .steady = clock->is_real && counter_is_steady()};
}

static uint64_t clock_read(struct gf_ticks *ticks)
{
    uint64_t before = ticks->steady ? counter() : 0;
    uint64_t ns = ticks->clock->now_ns(ticks->clock);
    uint64_t tick;
    uint64_t span_ns;
    bool anew;
    if (!ticks->steady || ((tick = counter()) - before > NEAR_TICKS)) return ns;
    span_ns = ns - ticks->rate_ns;
    anew = span_ns >= RATE_MAX_NS;
    if (!anew && (span_ns >= RATE_NS)) {
        uint64_t rate = (span_ns << 32) / ((tick - ticks->rate_tick) | 1);
        uint64_t was = ticks->rate;
        /* the counter has jumped */
        anew = (rate > RATE_MOST) || ((was != 0) && (rate - was + was / 256 > was / 128));
        ticks->rate = anew ? 0 : rate;
    }
    if (anew) {
        ticks->rate_tick = tick;
        ticks->rate_ns = ns;
    }
    ticks->tick = tick;
    ticks->ns = ns;
    return ns;
}

uint64_t gf_ticks_now(struct gf_ticks *ticks)
{
    uint64_t ns;
    if (ticks->rate == 0) {
        ns = clock_read(ticks);
    } else {
        uint64_t passed = counter() - ticks->tick;
        ns = (passed < SPAN_TICKS) ? ticks->ns + ((passed * ticks->rate) >> 32) : clock_read(ticks);
    }
    if (ns > ticks->returned_ns) ticks->returned_ns = ns;
    return ticks->returned_ns;
}
