/* The simulator's connections of frames: what each end hears of a death, a cut, a stop, a close and
 * a restart, and when. */
#include "firmware-tests/support/suite.h"

#include "drivers/sim/sim.h"

#define MS UINT64_C(1000000)
#define KEEPALIVE_NS (400 * MS)
#define DETECT_NS (10 * MS)
#define RANKS 3u
#define COORDINATOR RANKS /* its process */
#define ENDS_MAX 8u

struct end {
    struct gf_channel *channel; /* NULL: not open */
    void *state;
};

struct channels {
    struct gf_sim *sim;
    struct end listener;
    struct end members[RANKS];
};

static void end_open(struct channels *c, struct end *end, uint32_t proc, bool listens,
                     uint32_t connections)
{
    const struct gf_drivers *drivers = gf_sim_drivers(c->sim, proc);
    struct gf_fault fault = {.code = GF_OK};
    struct gf_channel_setup setup = {.listens = listens,
                                     .connections_max = connections,
                                     .keepalive_ns = KEEPALIVE_NS,
                                     .arg = drivers->channel_arg};
    size_t bytes = (drivers->channel->state_bytes(&setup) + 63) & ~(size_t)63;
    end->state = aligned_alloc(64, bytes);
    assert_non_null(end->state);
    memset(end->state, 0xa5, bytes);
    assert_int_equal(
        drivers->channel->open(&setup, end->state, gf_sim_now_ns(c->sim), &end->channel, &fault),
        GF_OK);
}

static void end_close(struct end *end)
{
    if (end->channel == NULL) return;
    end->channel->driver->close(end->channel);
    free(end->state);
    *end = (struct end){.channel = NULL};
}

static void channels_open(struct channels *c)
{
    struct gf_sim_setup setup = {.world = RANKS, .seed = 1, .detect_ns = DETECT_NS};
    *c = (struct channels){.sim = gf_sim_create(&setup)};
    assert_non_null(c->sim);
    assert_int_equal(gf_sim_coordinator(c->sim), COORDINATOR);
    end_open(c, &c->listener, COORDINATOR, true, ENDS_MAX);
    for (uint32_t rank = 0; rank < RANKS; rank++) end_open(c, &c->members[rank], rank, false, 1);
}

static void channels_close(struct channels *c)
{
    end_close(&c->listener);
    for (uint32_t rank = 0; rank < RANKS; rank++) end_close(&c->members[rank]);
    gf_sim_destroy(c->sim);
}

#define CHANNELS(c)                                             \
    struct channels c __attribute__((cleanup(channels_close))); \
    channels_open(&c)

static void later(struct channels *c, uint64_t span_ns)
{
    gf_sim_advance_to(c->sim, gf_sim_now_ns(c->sim) + span_ns);
}

static void dial(struct channels *c, uint32_t rank)
{
    c->members[rank].channel->driver->dial(c->members[rank].channel, gf_sim_now_ns(c->sim));
}

static bool next(struct end *end, struct gf_channel_event *event)
{
    return end->channel->driver->poll(end->channel, 0, event);
}

static void expect_nothing(struct end *end)
{
    struct gf_channel_event event;
    assert_false(next(end, &event));
    assert_int_equal(end->channel->fault.code, GF_OK);
}

static uint32_t expect(struct end *end, gf_channel_event_kind kind)
{
    struct gf_channel_event event;
    assert_true(next(end, &event));
    assert_int_equal(event.kind, kind);
    return event.connection;
}

static void expect_end(struct end *end, gf_channel_end how)
{
    struct gf_channel_event event;
    assert_true(next(end, &event));
    assert_int_equal(event.kind, GF_CHANNEL_ENDED);
    assert_int_equal(event.end, how);
    assert_true(event.text[0] != '\0');
    expect_nothing(end);
}

static gf_status say(struct end *end, uint32_t connection, uint32_t word)
{
    return end->channel->driver->send(end->channel, connection, word, &word, sizeof word);
}

static void expect_word(struct end *end, uint32_t connection, uint32_t word)
{
    struct gf_channel_event event;
    assert_true(next(end, &event));
    assert_int_equal(event.kind, GF_CHANNEL_FRAME);
    assert_int_equal(event.connection, connection);
    assert_int_equal(event.frame_kind, word);
    assert_int_equal(event.size_bytes, sizeof word);
    assert_memory_equal(event.payload, &word, sizeof word);
}

/* Both ends have heard of it; the listener's number of the connection. */
static uint32_t join(struct channels *c, uint32_t rank)
{
    uint32_t connection;
    dial(c, rank);
    later(c, 1 * MS);
    connection = expect(&c->listener, GF_CHANNEL_CONNECTED);
    later(c, 1 * MS);
    assert_int_equal(expect(&c->members[rank], GF_CHANNEL_CONNECTED), 0);
    return connection;
}

TEST(frames_come_in_their_order_both_ways)
{
    CHANNELS(c);
    uint32_t numbers[RANKS];
    for (uint32_t rank = 0; rank < RANKS; rank++) numbers[rank] = join(&c, rank);
    assert_true((numbers[0] != numbers[1]) && (numbers[1] != numbers[2]));
    for (uint32_t word = 0; word < 5; word++) {
        assert_int_equal(say(&c.members[1], 0, word), GF_OK);
        assert_int_equal(say(&c.listener, numbers[1], 10 + word), GF_OK);
    }
    later(&c, 1 * MS);
    for (uint32_t word = 0; word < 5; word++) {
        expect_word(&c.listener, numbers[1], word);
        expect_word(&c.members[1], 0, 10 + word);
    }
    expect_nothing(&c.listener);
    expect_nothing(&c.members[0]);
    assert_int_equal(say(&c.listener, 7, 1), GF_ERR_PEER);
}

TEST(a_death_is_told_after_what_was_sent)
{
    CHANNELS(c);
    uint32_t number = join(&c, 2);
    assert_int_equal(say(&c.members[2], 0, 5), GF_OK);
    gf_sim_kill(c.sim, 2);
    later(&c, DETECT_NS - 1 * MS);
    expect_word(&c.listener, number, 5);
    expect_nothing(&c.listener);
    later(&c, 1 * MS);
    expect_end(&c.listener, GF_CHANNEL_DIED);
    assert_int_equal(say(&c.listener, number, 1), GF_ERR_PEER);
    /* started again: a connection of its own */
    end_close(&c.members[2]);
    gf_sim_restart(c.sim, 2);
    end_open(&c, &c.members[2], 2, false, 1);
    (void)join(&c, 2);
}

/* However soon the next process dials. */
TEST(a_restart_is_seen_after_the_death)
{
    CHANNELS(c);
    (void)join(&c, 1);
    gf_sim_kill(c.sim, 1);
    end_close(&c.members[1]);
    gf_sim_restart(c.sim, 1);
    end_open(&c, &c.members[1], 1, false, 1);
    dial(&c, 1);
    later(&c, 2 * DETECT_NS);
    (void)expect(&c.listener, GF_CHANNEL_ENDED);
    (void)expect(&c.listener, GF_CHANNEL_CONNECTED);
    expect_nothing(&c.listener);
}

TEST(a_close_a_drop_and_another_dial_are_told_apart)
{
    CHANNELS(c);
    uint32_t number = join(&c, 0);
    assert_int_equal(say(&c.listener, number, 3), GF_OK);
    c.listener.channel->driver->drop(c.listener.channel, number);
    later(&c, 1 * MS);
    expect_word(&c.members[0], 0, 3);
    expect_end(&c.members[0], GF_CHANNEL_CLOSED);
    (void)join(&c, 0);
    dial(&c, 0); /* it takes the other one for broken */
    later(&c, 1 * MS);
    struct gf_channel_event event;
    assert_true(next(&c.listener, &event));
    assert_true((event.kind == GF_CHANNEL_ENDED) && (event.end == GF_CHANNEL_BROKE));
    (void)expect(&c.listener, GF_CHANNEL_CONNECTED);
    end_close(&c.members[0]);
    later(&c, 1 * MS);
    expect_end(&c.listener, GF_CHANNEL_CLOSED);
}

TEST(a_cut_holds_frames_and_breaks_both_ends_after_keepalive)
{
    for (uint32_t heals = 0; heals < 2; heals++) {
        CHANNELS(c);
        uint32_t number = join(&c, 1);
        gf_sim_partition(c.sim, 1, COORDINATOR, true);
        assert_int_equal(say(&c.members[1], 0, 1), GF_OK);
        assert_int_equal(say(&c.listener, number, 2), GF_OK);
        later(&c, KEEPALIVE_NS / 2);
        expect_nothing(&c.listener);
        expect_nothing(&c.members[1]);
        if (heals == 1) {
            gf_sim_partition(c.sim, 1, COORDINATOR, false);
            later(&c, 2 * KEEPALIVE_NS);
            expect_word(&c.listener, number, 1);
            expect_word(&c.members[1], 0, 2);
            expect_nothing(&c.listener);
            continue;
        }
        later(&c, KEEPALIVE_NS / 2);
        expect_end(&c.listener, GF_CHANNEL_BROKE);
        expect_end(&c.members[1], GF_CHANNEL_BROKE);
        gf_sim_partition(c.sim, 1, COORDINATOR, false);
        later(&c, 1 * MS);
        expect_nothing(&c.listener); /* what was held has nobody any more */
        (void)join(&c, 1);
    }
}

/* The end that has given up first tells the other one as soon as it can. */
TEST(a_cut_that_heals_when_one_end_has_given_up_leaves_nothing_half_open)
{
    bool was_half_open = false;
    for (uint32_t i = 0; i < 64; i++) {
        CHANNELS(c);
        struct gf_channel_event event;
        (void)join(&c, 1);
        gf_sim_partition(c.sim, 1, COORDINATOR, true);
        later(&c, KEEPALIVE_NS / 8 * 7 + i * KEEPALIVE_NS / 512);
        bool here = next(&c.listener, &event);
        bool there = next(&c.members[1], &event);
        gf_sim_partition(c.sim, 1, COORDINATOR, false);
        later(&c, 1 * MS);
        if (here != there) expect_end(here ? &c.members[1] : &c.listener, GF_CHANNEL_RESET);
        was_half_open = was_half_open || (here != there);
    }
    assert_true(was_half_open);
}

/* The kernel of a process that ends with words unread resets its connection. */
TEST(a_death_with_words_unread_is_a_reset)
{
    CHANNELS(c);
    uint32_t number = join(&c, 2);
    assert_int_equal(say(&c.listener, number, 5), GF_OK);
    later(&c, 1 * MS);
    gf_sim_kill(c.sim, 2);
    later(&c, DETECT_NS);
    expect_end(&c.listener, GF_CHANNEL_RESET);
}

TEST(a_death_behind_a_cut_is_heard_when_it_heals)
{
    CHANNELS(c);
    (void)join(&c, 1);
    gf_sim_partition(c.sim, 1, COORDINATOR, true);
    gf_sim_kill(c.sim, 1);
    later(&c, 2 * DETECT_NS);
    expect_nothing(&c.listener);
    gf_sim_partition(c.sim, 1, COORDINATOR, false);
    later(&c, 1 * MS);
    expect_end(&c.listener, GF_CHANNEL_DIED);
}

TEST(who_dials_is_refused_unanswered_or_taken_later)
{
    CHANNELS(c);
    gf_sim_stop(c.sim, COORDINATOR, true);
    dial(&c, 0); /* a stopped listener takes it when it goes on */
    dial(&c, 1);
    later(&c, KEEPALIVE_NS / 2);
    expect_nothing(&c.members[0]);
    gf_sim_kill(c.sim, 1); /* .. and does not see who has gone meanwhile */
    later(&c, KEEPALIVE_NS / 4);
    gf_sim_stop(c.sim, COORDINATOR, false);
    (void)expect(&c.listener, GF_CHANNEL_CONNECTED);
    expect_nothing(&c.listener);
    later(&c, 1 * MS);
    (void)expect(&c.members[0], GF_CHANNEL_CONNECTED);
    gf_sim_stop(c.sim, COORDINATOR, true);
    dial(&c, 2); /* nor who has given up */
    later(&c, KEEPALIVE_NS + 1 * MS);
    expect_end(&c.members[2], GF_CHANNEL_BROKE);
    gf_sim_stop(c.sim, COORDINATOR, false);
    expect_nothing(&c.listener);
    gf_sim_kill(c.sim, COORDINATOR);
    later(&c, DETECT_NS);
    expect_end(&c.members[0], GF_CHANNEL_DIED);
    dial(&c, 2);
    later(&c, 1 * MS);
    expect_end(&c.members[2], GF_CHANNEL_DIED); /* refused */
    gf_sim_partition(c.sim, 2, COORDINATOR, true);
    dial(&c, 2); /* nothing comes back */
    later(&c, KEEPALIVE_NS + 1 * MS);
    expect_end(&c.members[2], GF_CHANNEL_BROKE);
    gf_sim_partition(c.sim, 2, COORDINATOR, false);
    end_close(&c.listener);
    gf_sim_restart(c.sim, COORDINATOR);
    end_open(&c, &c.listener, COORDINATOR, true, ENDS_MAX);
    (void)join(&c, 2);
}

/* A stopped member's connection stands; what was sent to it waits, up to what kernels take. */
TEST(a_stopped_reader_takes_as_much_as_its_kernel_has_room)
{
    static const unsigned char payload[GF_CHANNEL_PAYLOAD_MAX];
    CHANNELS(c);
    uint32_t number = join(&c, 0), sent = 0, read = 0;
    gf_sim_stop(c.sim, 0, true);
    gf_status status;
    while ((status = c.listener.channel->driver->send(c.listener.channel, number, 1, payload,
                                                      sizeof payload)) == GF_OK)
        sent++;
    assert_int_equal(status, GF_FULL);
    assert_in_range(sent, 16, 1000);
    later(&c, 2 * KEEPALIVE_NS);
    expect_nothing(&c.listener);
    while (gf_sim_woken_next(c.sim) != GF_RANK_NONE) continue;
    gf_sim_stop(c.sim, 0, false);
    struct gf_channel_event event;
    while (next(&c.members[0], &event)) read++;
    assert_int_equal(read, sent);
    bool woken = false; /* there is room */
    for (uint32_t proc; (proc = gf_sim_woken_next(c.sim)) != GF_RANK_NONE;)
        woken = woken || (proc == COORDINATOR);
    assert_true(woken);
    assert_int_equal(say(&c.listener, number, 1), GF_OK);
}

TEST(a_listener_in_a_ranks_process_ends_with_it)
{
    CHANNELS(c);
    end_close(&c.listener);
    end_open(&c, &c.listener, 0, true, ENDS_MAX);
    (void)join(&c, 0);
    (void)join(&c, 1);
    gf_sim_kill(c.sim, 0);
    later(&c, DETECT_NS);
    expect_end(&c.members[1], GF_CHANNEL_DIED);
    struct gf_channel_event event;
    assert_false(next(&c.listener, &event));
    assert_int_equal(c.listener.channel->fault.code, GF_ERR_ABORTED);
    assert_false(next(&c.members[0], &event));
    assert_int_equal(c.members[0].channel->fault.code, GF_ERR_ABORTED);
}

TEST(a_full_listener_and_a_second_one_are_refused)
{
    CHANNELS(c);
    struct gf_fault fault = {.code = GF_OK};
    const struct gf_drivers *drivers = gf_sim_drivers(c.sim, 1);
    struct gf_channel_setup setup = {
        .listens = true, .connections_max = 1, .arg = drivers->channel_arg};
    struct gf_channel *second;
    void *memory = aligned_alloc(64, (drivers->channel->state_bytes(&setup) + 63) & ~(size_t)63);
    assert_int_equal(drivers->channel->open(&setup, memory, 0, &second, &fault), GF_ERR_SYSTEM);
    assert_non_null(strstr(fault.text, "taken"));
    free(memory);
    end_close(&c.listener);
    end_open(&c, &c.listener, COORDINATOR, true, 1);
    (void)join(&c, 0);
    dial(&c, 1);
    later(&c, 1 * MS);
    expect_end(&c.members[1], GF_CHANNEL_BROKE);
    gf_sim_give_up(c.sim, 0, COORDINATOR); /* a reset, and nothing is cut */
    later(&c, 1 * MS);
    expect_end(&c.members[0], GF_CHANNEL_BROKE);
    expect_end(&c.listener, GF_CHANNEL_BROKE);
    (void)join(&c, 1);
}
