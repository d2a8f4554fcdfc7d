/* When a rank that waits yields and when it sleeps: lib/core/idle.h, fed with times. */
#include "firmware-tests/support/suite.h"
#include "lib/context.h"
#include "lib/core/accessors.h"
#include "ops/node/direct.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

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

/* So many yields of a slice each, apart_ns between them. Returns when the last one ended. */
static uint64_t slices(struct gf_idling *idling, uint32_t count, uint64_t begin_ns,
                       uint64_t apart_ns)
{
    for (uint32_t i = 0; i < count; i++, begin_ns += SLICE_NS + apart_ns) {
        assert_true(gf_idle_yields(idling, 1, begin_ns));
        gf_idle_yielded(idling, begin_ns, begin_ns + SLICE_NS);
    }
    return begin_ns - apart_ns;
}

TEST(yields_to_somebody_who_computes_bar_the_next)
{
    struct gf_idling idling = {0};
    uint64_t now_ns = slices(&idling, GF_IDLE_SLICES, 1000 * MS, MS / 10);
    assert_false(gf_idle_yields(&idling, 1, now_ns));
    assert_false(gf_idle_yields(&idling, 1, now_ns + GF_IDLE_BAN_NS - 1));
    assert_true(gf_idle_yields(&idling, 1, now_ns + GF_IDLE_BAN_NS));
    now_ns = slices(&idling, 1, now_ns + GF_IDLE_BAN_NS, 0); /* he is still there */
    assert_false(gf_idle_yields(&idling, 1, now_ns + 2 * GF_IDLE_BAN_NS - 1));
    assert_true(gf_idle_yields(&idling, 1, now_ns + 2 * GF_IDLE_BAN_NS));
}

TEST(a_few_long_yields_are_an_accident)
{
    struct gf_idling idling = {0};
    uint64_t now_ns = slices(&idling, GF_IDLE_SLICES - 1, 1000 * MS, MS / 10);
    assert_true(gf_idle_yields(&idling, 1, now_ns));
    now_ns = slices(&idling, GF_IDLE_SLICES - 1, now_ns + GF_IDLE_NEAR_NS + 1, MS / 10);
    assert_true(gf_idle_yields(&idling, 1, now_ns));
}

TEST(long_yields_far_from_each_other_bar_nothing)
{
    struct gf_idling idling = {0};
    uint64_t now_ns = slices(&idling, 10 * GF_IDLE_SLICES, 1000 * MS, GF_IDLE_NEAR_NS + 1);
    assert_true(gf_idle_yields(&idling, 1, now_ns));
}

/* Yields whenever it may, beside a neighbour who computes up to until_ns. Returns the time lost to
 * it. */
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
    now_ns = slices(&idling, GF_IDLE_SLICES, now_ns, MS / 10);
    assert_true(gf_idle_yields(&idling, 1, now_ns + GF_IDLE_BAN_NS));
}

/* ---- gf_wait() on drivers of which the link always has something to say ---- */

static uint32_t arms, flag_arms;
static int pipe_ends[2];

static bool link_arm(struct gf_link *link)
{
    arms++;
    return false;
}

/* A coordinator that is never reached, and a descriptor on which it would be heard. */
static size_t channel_bytes(const struct gf_channel_setup *setup)
{
    return sizeof(struct gf_channel);
}

static gf_status channel_open(const struct gf_channel_setup *setup, void *state, uint64_t now_ns,
                              struct gf_channel **channel_out, struct gf_fault *fault_out);

static bool channel_poll(struct gf_channel *channel, uint64_t now_ns,
                         struct gf_channel_event *event_out)
{
    return false;
}

static void channel_dial(struct gf_channel *channel, uint64_t now_ns)
{
}

static bool channel_flushed(struct gf_channel *channel)
{
    return true;
}

static int channel_fd(struct gf_channel *channel)
{
    return pipe_ends[0];
}

static const struct gf_channel_driver channel_driver = {.state_bytes = channel_bytes,
                                                        .open = channel_open,
                                                        .poll = channel_poll,
                                                        .dial = channel_dial,
                                                        .flushed = channel_flushed,
                                                        .wake_fd = channel_fd};

static gf_status channel_open(const struct gf_channel_setup *setup, void *state, uint64_t now_ns,
                              struct gf_channel **channel_out, struct gf_fault *fault_out)
{
    *channel_out = state;
    **channel_out = (struct gf_channel){.driver = &channel_driver, .connections_max = 1};
    return GF_OK;
}

static void flag_arm(struct gf_link *link, size_t offset_bytes)
{
    flag_arms++;
}

static void flag_sleep(struct gf_link *link, size_t offset_bytes, uint64_t timeout_ns)
{
    flag_arm(link, offset_bytes);
}

static gf_status third(gf_context *gf, void *arg)
{
    uint32_t *turns = arg;
    return (++*turns < 3) ? GF_AGAIN : GF_OK;
}

static gf_status next_state(gf_context *gf, void *arg)
{
    switch (gf->phase) {
    case GF_PHASE_FAILED:
        gf->change.state = GF_CHANGE_AWAIT;
        gf->phase = GF_PHASE_AGREE;
        return GF_AGAIN;
    case GF_PHASE_AGREE:
        gf->change.state = GF_CHANGE_JOIN;
        gf->phase = GF_PHASE_JOIN;
        return GF_AGAIN;
    case GF_PHASE_JOIN:
        gf->phase = GF_PHASE_WARM;
        gf->warm.state = GF_WARM_BEGIN;
        return GF_AGAIN;
    default: break;
    }
    if (gf->warm.state == GF_WARM_NODES) gf->change.state = GF_CHANGE_SYNC;
    if (gf->warm.state < GF_WARM_NODES)
        gf->warm.state++;
    else
        gf->requests.posted++;
    return (gf->requests.posted < 2) ? GF_AGAIN : GF_OK;
}

static gf_context *waiter(struct gf_link *link)
{
    static gf_context gf;
    static _Alignas(64) unsigned char state[65536];
    const struct gf_control_setup setup = {.id = 1,
                                           .world = 2,
                                           .id_count = 2,
                                           .process = 1,
                                           .driver = &channel_driver,
                                           .channel.connections_max = 1};
    struct gf_fault fault = {.code = GF_OK};
    memset(&gf, 0, sizeof gf);
    gf.link = link;
    assert_true(gf_control_state_bytes(&setup) <= sizeof state);
    assert_int_equal(gf_control_open(&setup, state, 0, &gf.control, &fault), GF_OK);
    gf.config.link.idle = GF_IDLE_SLEEP;
    gf.config.exchange.timeout_ns = 1000 * MS;
    gf_ticks_begin(&gf.ticks, &gf_clock_monotonic);
    arms = flag_arms = 0;
    return &gf;
}

static const struct gf_link_driver link_driver = {
    .arm = link_arm, .flag_arm = flag_arm, .flag_sleep = flag_sleep};

static uint64_t flags[1 << 13];

static bool core_unknown;

/* In the place of libc's. */
int sched_getcpu(void)
{
    unsigned core;
    return (core_unknown || (syscall(SYS_getcpu, &core, NULL, NULL) != 0)) ? -1 : (int)core;
}

/* A link that has failed has no events to arm for: its arm() is false until it is reset, and would
 * have the rank spin until the finding is here. */
TEST(a_failing_rank_whose_link_failed_sleeps_until_the_control_channel_wakes_it)
{
    assert_int_equal(pipe(pipe_ends), 0);
    struct gf_link link = {.driver = &link_driver, .wake_fd = pipe_ends[0]};
    for (uint32_t failed = 0; failed < 2; failed++) {
        uint32_t turns = 0;
        gf_context *gf = waiter(&link);
        gf->phase = GF_PHASE_FAILING;
        link.failed = (failed != 0) ? GF_ERR_LINK : GF_OK;
        assert_int_equal(gf_wait(gf, third, &turns), GF_OK);
        assert_int_equal(arms, (failed != 0) ? 0 : 2);
    }
    (void)close(pipe_ends[0]);
    (void)close(pipe_ends[1]);
}

/* Between a failure and the next generation nobody polls the link: what it has to say would keep a
 * rank from sleeping. Nor does a flag wake it: an operation that was under way when its peer died
 * moves no more. */
TEST(a_failed_rank_that_waits_for_a_generation_sleeps_until_the_control_channel_wakes_it)
{
    static const gf_phase phases[] = {GF_PHASE_READY, GF_PHASE_FAILED};
    assert_int_equal(pipe(pipe_ends), 0);
    struct gf_link link = {.driver = &link_driver, .wake_fd = pipe_ends[0]};
    for (uint32_t ops = 0; ops < 3; ops++) { /* none, one that runs, one that has failed */
        for (size_t i = 0; i < LENGTH(phases); i++) {
            uint32_t turns = 0;
            gf_context *gf = waiter(&link);
            gf->phase = phases[i];
            gf->under_way.ops[0] =
                (struct gf_op){.state = GF_OP_RUN,
                               .plan.algorithm = GF_ALGORITHM_DIRECT,
                               .coll.state = (ops == 1) ? GF_COLL_RUN : GF_COLL_DRAIN};
            gf->under_way.busy = (ops > 0) ? 1 : 0;
            assert_int_equal(gf_wait(gf, third, &turns), GF_OK);
            bool sleeps_on_flags = (phases[i] == GF_PHASE_READY) && (ops == 1);
            assert_int_equal(flag_arms, sleeps_on_flags ? 2 : 0);
            assert_int_equal(arms, (phases[i] == GF_PHASE_FAILED) || sleeps_on_flags ? 0 : 2);
        }
    }
    (void)close(pipe_ends[0]);
    (void)close(pipe_ends[1]);
}

/* What the new state has to send is sent by the next poll alone. */
TEST(nobody_sleeps_between_two_states_on_the_way_into_a_generation)
{
    assert_int_equal(pipe(pipe_ends), 0);
    struct gf_link link = {.driver = &link_driver, .wake_fd = pipe_ends[0]};
    gf_context *gf = waiter(&link);
    gf->phase = GF_PHASE_FAILED;
    assert_int_equal(gf_wait(gf, next_state, NULL), GF_OK);
    assert_int_equal(arms, 0);
    (void)close(pipe_ends[0]);
    (void)close(pipe_ends[1]);
}

static gf_status never(gf_context *gf, void *turns)
{
    gf->polled.at_ns = gf_now(gf);
    ++*(uint32_t *)turns;
    return GF_AGAIN;
}

/* A wait with a bound ends at it, not when the sleep would have ended in which it passes. The least
 * of tries for a minute: other processes may have the core. */
TEST(a_wait_ends_at_its_bound)
{
    static const uint64_t bounds_ns[] = {0, 2000000, 25000000};
    assert_int_equal(pipe(pipe_ends), 0);
    struct gf_link link = {.driver = &link_driver, .wake_fd = pipe_ends[0]};
    gf_context *gf = waiter(&link);
    gf->phase = GF_PHASE_FAILED;
    for (size_t i = 0; i < LENGTH(bounds_ns); i++) {
        uint64_t least_ns = UINT64_MAX;
        uint64_t since_ns = gf_now(gf);
        while ((least_ns > bounds_ns[i] + 2500000) && (gf_now(gf) - since_ns < 60000 * MS)) {
            uint64_t begin_ns = gf_now(gf);
            uint64_t took_ns;
            uint32_t turns = 0;
            assert_int_equal(gf_wait_for(gf, never, &turns, bounds_ns[i]), GF_AGAIN);
            took_ns = gf_now(gf) - begin_ns;
            assert_true(took_ns >= bounds_ns[i]);
            if (took_ns < least_ns) least_ns = took_ns;
            if (bounds_ns[i] == 0) assert_int_equal(turns, 1);
        }
        if (least_ns > bounds_ns[i] + 2500000)
            fail_msg("%llu ns for %llu", (unsigned long long)least_ns,
                     (unsigned long long)bounds_ns[i]);
    }
    (void)close(pipe_ends[0]);
    (void)close(pipe_ends[1]);
}

static gf_status poll_only(gf_context *gf, void *arg)
{
    (void)gf_poll_begin(gf);
    return GF_AGAIN;
}

/* Else a deadline would take several times as long as it says. The most of tries for a minute:
 * other processes may have the core. */
TEST(a_sleep_of_the_library_counts_for_deadlines_however_short_the_timeout_is)
{
    static const uint64_t timeouts_ns[] = {10 * MS, 20 * MS, 1000 * MS};
    const uint64_t bound_ns = 50 * MS;
    assert_int_equal(pipe(pipe_ends), 0);
    struct gf_link link = {.driver = &link_driver, .wake_fd = pipe_ends[0]};
    gf_context *gf = waiter(&link);
    gf->phase = GF_PHASE_FAILED;
    for (size_t i = 0; i < LENGTH(timeouts_ns); i++) {
        uint64_t most_ns = 0;
        uint64_t since_ns = gf_now(gf);
        gf->config.exchange.timeout_ns = timeouts_ns[i];
        while ((most_ns < bound_ns * 9 / 10) && (gf_now(gf) - since_ns < 60000 * MS)) {
            (void)gf_poll_begin(gf);
            uint64_t begin_ns = gf_awake(gf);
            assert_int_equal(gf_wait_for(gf, poll_only, NULL, bound_ns), GF_AGAIN);
            if (gf_awake(gf) - begin_ns > most_ns) most_ns = gf_awake(gf) - begin_ns;
        }
        if (most_ns < bound_ns * 9 / 10)
            fail_msg("exchange.timeout %u ms: of 50 ms of sleep %u us counted",
                     (unsigned)(timeouts_ns[i] / MS), (unsigned)(most_ns / 1000));
    }
    (void)close(pipe_ends[0]);
    (void)close(pipe_ends[1]);
}

static void *link_map(struct gf_link *link, uint32_t peer)
{
    return (peer == 2) ? NULL : flags; /* rank 2 is on another node, say */
}

/* Ranks that sleep on flags do not look at the control channel: the first to hear of a failure
 * wakes them. */
TEST(whoever_fails_wakes_those_that_sleep_on_flags)
{
    static const struct gf_link_driver driver = {.map = link_map, .flag_sleep = flag_sleep};
    struct gf_link link = {.driver = &driver};
    gf_context *gf = waiter(&link);
    gf->phase = GF_PHASE_STEP;
    gf->algorithm = GF_ALGORITHM_DIRECT;
    gf->world = 4;
    gf->rank = 1;
    const struct gf_direct shared = {.flag_ranks = gf->flag_ranks};
    for (uint32_t rank = 0; rank < gf->world; rank++)
        flags[gf_direct_sleep_at(&shared, rank) / sizeof *flags] = 1;
    assert_int_equal(gf_fail(gf, GF_ERR_PEER, GF_OPERATION_STEP, 0, GF_TENSOR_NONE, "rank 0 died"),
                     GF_ERR_PEER);
    for (uint32_t rank = 0; rank < gf->world; rank++)
        assert_int_equal(flags[gf_direct_sleep_at(&shared, rank) / sizeof *flags],
                         (rank == 1) || (rank == 2));
}

TEST(a_rank_that_cannot_ask_where_it_runs_shares_no_core)
{
    static const struct gf_link_driver driver = {.name = "flags"};
    struct gf_link link = {
        .driver = &driver, .region = (void *)flags, .region_bytes = sizeof flags};
    struct gf_direct direct = {.flag_ranks = 2, .state = {.barriers = 1}};
    struct gf_coll coll = {
        .link = &link, .size = 2, .publishes_core = true, .own = {.direct = &direct}};
    memset(flags, 0, sizeof flags);
    core_unknown = true;
    assert_int_equal(gf_direct_flags_poll(&coll, 1), GF_AGAIN);
    core_unknown = false;
    assert_false(coll.awaits_core);
}
