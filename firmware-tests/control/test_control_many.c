/* The coordinator and 512 members over the simulated channel, without links: how long a death and a
 * coordinator that begins anew take, and that nobody is lost on the way. */
#include "firmware-tests/support/suite.h"

#include "drivers/sim/sim.h"
#include "lib/control/coordinator.h"
#include "lib/control/member.h"

#define RANKS 512u
#define MS UINT64_C(1000000)
#define NAP_NS (5 * MS)
#define ENDPOINT_BYTES 12u /* as the simulated link's */

struct many_member {
    struct gf_member *member; /* NULL: its process has ended */
    struct gf_channel *channel;
    void *state, *channel_state;
    uint64_t nap_ns;
};

static struct many {
    struct gf_sim *sim;
    struct many_member members[RANKS];
    struct gf_coordinator *coordinator;
    struct gf_channel *channel;
    void *state, *channel_state;
    uint64_t nap_ns;
} many;

static uint64_t now(void)
{
    return gf_sim_now_ns(many.sim);
}

static void *take(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    assert_non_null(memory);
    return memory;
}

static void channel_open(uint32_t proc, struct gf_channel_setup *setup, void **state,
                         struct gf_channel **channel)
{
    const struct gf_drivers *drivers = gf_sim_drivers(many.sim, proc);
    struct gf_fault fault = {.code = GF_OK};
    setup->keepalive_ns = 5000 * MS;
    setup->arg = drivers->channel_arg;
    *state = take(drivers->channel->state_bytes(setup));
    assert_int_equal(drivers->channel->open(setup, *state, now(), channel, &fault), GF_OK);
}

static void member_open(uint32_t id)
{
    struct many_member *self = &many.members[id];
    struct gf_channel_setup channel = {.connections_max = 1};
    struct gf_member_setup setup = {.id = id,
                                    .world = RANKS,
                                    .id_count = RANKS,
                                    .host_id = GF_RANK_NONE,
                                    .process = 1000 + id,
                                    .terms = {.elastic = true,
                                              .join_timeout_ns = 60000 * MS,
                                              .keepalive_ns = 5000 * MS,
                                              .exchange_timeout_ns = 30000 * MS},
                                    .values = {.version = 1, .node = id},
                                    .endpoint_bytes_max = ENDPOINT_BYTES,
                                    .address = "sim"};
    channel_open(id, &channel, &self->channel_state, &self->channel);
    self->state = take(gf_member_state_bytes(&setup));
    self->member = gf_member_open(&setup, self->state, self->channel, now());
}

static void member_close(uint32_t id)
{
    struct many_member *self = &many.members[id];
    if (self->member == NULL) return;
    self->channel->driver->close(self->channel);
    free(self->state);
    free(self->channel_state);
    self->member = NULL;
}

static void coordinator_open(void)
{
    struct gf_channel_setup channel = {.listens = true,
                                       .connections_max = GF_COORDINATOR_CONNECTIONS(RANKS)};
    struct gf_coordinator_setup setup = {.world = RANKS,
                                         .id_count = RANKS,
                                         .host_id = GF_RANK_NONE,
                                         .join_timeout_ns = 60000 * MS,
                                         .endpoint_bytes_max = ENDPOINT_BYTES};
    channel_open(RANKS, &channel, &many.channel_state, &many.channel);
    many.state = take(gf_coordinator_state_bytes(&setup));
    many.coordinator = gf_coordinator_open(&setup, many.state, many.channel, now());
    gf_sim_wake_at(many.sim, RANKS, now());
}

static void coordinator_close(void)
{
    many.channel->driver->close(many.channel);
    free(many.state);
    free(many.channel_state);
}

static void nap(uint32_t proc, uint64_t *nap_ns)
{
    if (*nap_ns > now()) return;
    *nap_ns = now() + NAP_NS;
    gf_sim_wake_at(many.sim, proc, *nap_ns);
}

static void turn(uint32_t id)
{
    struct many_member *self = &many.members[id];
    struct gf_generation listed;
    unsigned char endpoint[ENDPOINT_BYTES] = {(unsigned char)id};
    const struct control_ready ready = {.progress = {.steps = 1, .applied = 1}};
    if (self->member == NULL) return;
    gf_member_state state = gf_member_poll(self->member, now());
    if ((state == GF_MEMBER_LISTED) && gf_member_list_due(self->member, &listed)) {
        gf_member_endpoint_set(self->member, endpoint, sizeof endpoint);
        (void)gf_member_poll(self->member, now());
    }
    if ((state == GF_MEMBER_FAILED) && gf_member_is_found(self->member))
        gf_member_ready(self->member, &ready);
    if (state == GF_MEMBER_ENDED) fail_msg("%u: %s", id, gf_member_error(self->member)->text);
    nap(id, &self->nap_ns);
}

static void turns(void)
{
    uint32_t proc;
    while ((proc = gf_sim_woken_next(many.sim)) != GF_RANK_NONE) {
        if (proc < RANKS)
            turn(proc);
        else if (gf_coordinator_poll(many.coordinator, now()) == GF_AGAIN)
            nap(RANKS, &many.nap_ns);
    }
}

/* Until all that live are of this generation; how long that took. */
static uint64_t run_to(uint32_t number)
{
    uint64_t begin_ns = now();
    for (uint32_t there = 0; there < RANKS;) {
        turns();
        there = 0;
        for (uint32_t id = 0; id < RANKS; id++) {
            const struct gf_member *member = many.members[id].member;
            there += (member == NULL) || ((gf_member_generation(member)->number == number) &&
                                          (gf_member_current_state(member) == GF_MEMBER_WORKS));
        }
        if (there == RANKS) break;
        assert_true(gf_sim_advance(many.sim));
        if (now() - begin_ns > 10000 * MS) fail_msg("%u of %u are there", there, RANKS);
    }
    return now() - begin_ns;
}

static void run_for(uint64_t span_ns)
{
    for (uint64_t until_ns = now() + span_ns; now() < until_ns;) {
        turns();
        assert_true(gf_sim_advance(many.sim));
    }
}

static void kill_member(uint32_t id)
{
    gf_sim_kill(many.sim, id);
    member_close(id);
}

static void many_open(void)
{
    const struct gf_sim_setup setup = {.world = RANKS, .seed = 1};
    many = (struct many){.sim = gf_sim_create(&setup)};
    assert_non_null(many.sim);
    coordinator_open();
    for (uint32_t id = 0; id < RANKS; id++) member_open(id);
}

static void many_close(void)
{
    for (uint32_t id = 0; id < RANKS; id++) member_close(id);
    coordinator_close();
    gf_sim_destroy(many.sim);
}

TEST(any_one_death_of_512_ranks_takes_15_ms)
{
    static const uint32_t victims[] = {0, 511, 255, 1};
    (void)run_to(1);
    for (uint32_t i = 0; i < LENGTH(victims); i++) {
        kill_member(victims[i]);
        uint64_t took_ns = run_to(2 + i);
        if (took_ns > 15 * MS)
            fail_msg("rank %u: %.1f ms", victims[i], (double)took_ns / (double)MS);
    }
}

/* None of them fails, and the one that was begun anew has the generation. */
TEST(many_members_dial_one_that_was_begun_anew_at_once)
{
    struct gf_coordinator_status status;
    (void)run_to(1);
    gf_sim_kill(many.sim, RANKS);
    run_for(3000 * MS);
    coordinator_close();
    gf_sim_restart(many.sim, RANKS);
    coordinator_open();
    run_for(300 * MS);
    gf_coordinator_status(many.coordinator, &status);
    assert_int_equal(status.generation, 1);
    assert_int_equal(status.here, RANKS);
    assert_int_equal(status.state, GF_COORDINATOR_RUN);
    kill_member(17);
    assert_true(run_to(2) < 15 * MS);
}

/* gf-run ends no job that they may go on with. */
TEST(who_waits_for_a_coordinator_begun_anew_to_take_over_is_counted)
{
    struct gf_coordinator_status status;
    (void)run_to(1);
    gf_sim_kill(many.sim, RANKS);
    kill_member(17); /* so that the generation is not whole */
    coordinator_close();
    gf_sim_restart(many.sim, RANKS);
    coordinator_open();
    run_for(300 * MS);
    gf_coordinator_status(many.coordinator, &status);
    assert_int_equal(status.generation, 0);
    assert_int_equal(status.here, 0);
    assert_int_equal(status.present, RANKS - 1);
}

TEST_EACH(many_open, many_close)
