/* Frames that are wrong cost their sender its connection, and nobody else anything. */
#include "gradientflow.h"
#include "drivers/link.h"
#include "firmware-tests/support/control_suite.h"
#include "lib/control/coordinator_state.h"

static struct control_world world;

/* Shorter than any frame that would be taken. */
static void nonsense_send(struct gf_channel *channel, uint32_t connection, uint32_t number)
{
    unsigned char payload[36];
    for (uint32_t i = 0; i < sizeof payload; i++)
        payload[i] = (unsigned char)control_world_draw(&world, 256);
    memcpy(payload, &number, sizeof number);
    (void)channel->driver->send(channel, connection, 1 + control_world_draw(&world, 20), payload,
                                control_world_draw(&world, sizeof payload));
}

TEST(malformed_frames_cost_their_sender_a_connection)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 2000; i++) {
        nonsense_send(&world.procs[1].channel, 0, i % 3);
        control_world_quiet(&world, 10 * CONTROL_MS);
        if (control_world_state(&world, 1) != GF_MEMBER_WORKS) break; /* it said BYE */
    }
    assert_null(world.broken);
    assert_int_equal(control_world_state(&world, 0), GF_MEMBER_WORKS);
    assert_int_equal(control_world_state(&world, 2), GF_MEMBER_WORKS);
    control_world_close(&world);
}

TEST(a_malformed_frame_of_the_coordinator_ends_one_member)
{
    for (uint32_t i = 0; i < 200; i++) {
        control_world_open(&world, 3, 1 + i);
        control_world_quiet(&world, 100 * CONTROL_MS);
        for (uint32_t n = 0; n < 20; n++) nonsense_send(&world.channel, 1, 1);
        control_world_quiet(&world, 100 * CONTROL_MS);
        assert_null(world.broken);
        control_world_close(&world);
    }
}

/* A frame of whoever has not said who it is. */
TEST(a_connection_that_begins_with_another_word_is_closed)
{
    struct gf_channel_event event;
    control_world_open(&world, 2, 1);
    control_world_quiet(&world, SECOND);
    struct gf_channel *channel = control_world_stranger(&world);
    channel->driver->dial(channel, 0);
    assert_true(channel->driver->poll(channel, 0, &event));
    assert_int_equal(channel->driver->send(channel, 0, CONTROL_STATUS, "", 0), GF_OK);
    control_world_coordinate(&world);
    assert_true(channel->driver->poll(channel, 0, &event));
    assert_int_equal(event.kind, GF_CHANNEL_ENDED);
    control_world_close(&world);
}

/* Pieces of GO for a list of three, endpoints of 16 bytes at most; the second one where `first` is
 * right. */
static const struct piece_row {
    const char *name;
    struct control_piece first, second;
    bool is_good;
    uint32_t lead;
} piece_rows[] = {
    {"whole", {0, 8, 0, 8}, {1, 8, 0, 8}, true, 0},
    {"in_two", {0, 8, 0, 3}, {0, 8, 3, 5}, true, 0},
    {"of_none", {0, 0, 0, 0}, {1, 16, 0, 16}, true, 0},
    {"of_another_rank", {1, 8, 0, 8}, {0}, false, 0},
    {"of_a_rank_that_is_not_next", {0, 8, 0, 8}, {2, 8, 0, 8}, false, 0},
    {"larger_than_any", {0, 17, 0, 8}, {0}, false, 0},
    {"not_from_its_begin", {0, 8, 1, 7}, {0}, false, 0},
    {"with_a_gap", {0, 8, 0, 3}, {0, 8, 4, 4}, false, 0},
    {"behind_its_end", {0, 8, 0, 9}, {0}, false, 0},
    {"second_behind_its_end", {0, 8, 0, 3}, {0, 8, 3, 6}, false, 0},
    {"that_grows_meanwhile", {0, 8, 0, 3}, {0, 16, 3, 13}, false, 0},
    {"that_shrinks_meanwhile", {0, 8, 0, 3}, {0, 2, 3, 0}, false, 0},
    {"led_by_the_last", {0, 8, 0, 8}, {1, 8, 0, 8}, true, 2},
    {"led_by_a_rank_beyond_it", {0, 8, 0, 8}, {1, 8, 0, 8}, false, 3},
};

/* As if the coordinator had sent it, to process 1. */
static void frame_send(uint32_t kind, const void *payload, uint32_t bytes)
{
    uint32_t connection = 0;
    while (world.conns[connection].proc != 1) connection++;
    (void)world.channel.driver->send(&world.channel, connection, kind, payload, bytes);
}

static void go_send(const struct piece_row *row, uint32_t number)
{
    static const unsigned char bytes[16];
    unsigned char payload[128];
    struct gf_put put = {payload, sizeof payload};
    struct control_go go = {.number = number, .lead = row->lead};
    struct control_piece pieces[2] = {row->first, row->second};
    gf_frame_go_walk(&(struct gf_walk){.put = &put}, &go);
    for (uint32_t i = 0; i < 2; i++) {
        gf_frame_piece_walk(&(struct gf_walk){.put = &put}, &pieces[i]);
        gf_put_bytes(&put, bytes, pieces[i].bytes);
    }
    frame_send(CONTROL_GO, payload, (uint32_t)(sizeof payload - put.left));
}

TEST(a_piece_of_an_endpoint_that_lies_beyond_it_is_refused)
{
    for (uint32_t i = 0; i < LENGTH(piece_rows); i++) {
        control_world_open(&world, 3, 1);
        control_wait_for(&world, 1, GF_MEMBER_LISTED);
        go_send(&piece_rows[i], 1);
        gf_member_state state = control_world_state(&world, 1);
        const char *text = gf_member_error(world.procs[1].member)->text;
        bool is_refused = (state == GF_MEMBER_ENDED) && (strstr(text, "malformed (kind") != NULL);
        if (is_refused == piece_rows[i].is_good)
            fail_msg("%s: state %d: %s", piece_rows[i].name, state, text);
        control_world_close(&world);
    }
}

TEST(a_list_of_a_network_that_there_is_not_is_refused)
{
    for (uint32_t network = 0; network < GF_NETWORKS + 1; network++) {
        unsigned char payload[128];
        struct gf_put put = {payload, sizeof payload};
        struct control_list list = {.number = 1, .rank = 1, .world = 3, .network = network};
        control_world_open(&world, 3, 1);
        control_wait_for(&world, 1, GF_MEMBER_LISTED);
        gf_frame_list_walk(&(struct gf_walk){.put = &put}, &list);
        frame_send(CONTROL_LIST, payload, (uint32_t)(sizeof payload - put.left));
        control_world_turn(&world, 1);
        bool is_refused = (control_world_state(&world, 1) == GF_MEMBER_ENDED);
        assert_int_equal(is_refused, network == GF_NETWORKS);
        control_world_close(&world);
    }
}

/* Where a process says that it stands, and what it says it was given. */
static const struct standing_row {
    const char *name;
    struct control_standing standing;
    bool is_good;
    uint64_t time_ns;  /* its keepalive */
    uint32_t is_short; /* a piece is missing */
} standing_rows[] = {
    {"of_a_generation", {.generation = 1, .rank = 1, .world = 3, .listed = 1}, true, 0, 0},
    {"of_the_last_list", {.listed = CONTROL_NUMBER_MAX}, true, 0, 0},
    {"of_the_last_generation", {.generation = CONTROL_NUMBER_MAX, .world = 3}, true, 0, 0},
    {"of_a_list_beyond_it", {.listed = CONTROL_NUMBER_MAX + 1}, false, 0, 0},
    {"of_a_generation_beyond_it", {.generation = CONTROL_NUMBER_MAX + 1, .world = 3}, false, 0, 0},
    {"of_a_world_that_is_too_large", {.generation = 1, .rank = 1, .world = 4}, false, 0, 0},
    {"of_a_rank_that_its_world_has_not", {.generation = 1, .rank = 3, .world = 3}, false, 0, 0},
    {"of_a_world_of_none", {.generation = 1}, false, 0, 0},
    {"with_a_time_that_is_long", {.generation = 0}, true, CONTROL_TIME_NS_MAX, 0},
    {"with_a_time_beyond_any_clock", {.generation = 0}, false, UINT64_MAX, 0},
    {"cut_short", {.generation = 0}, false, 0, 9},
};

/* .. and hears so: one that was only dropped would try again until its join's deadline. */
TEST(a_process_that_stands_where_nobody_can_is_refused)
{
    for (uint32_t i = 0; i < LENGTH(standing_rows); i++) {
        struct gf_channel_event event;
        unsigned char payload[1024];
        struct gf_put put = {payload, sizeof payload};
        control_world_open(&world, 3, 1);
        for (uint32_t id = 0; id < 3; id++) control_world_kill(&world, id);
        struct control_offer offer = {
            .id = 1,
            .id_count = 3,
            .first_world = 3,
            .process = 77,
            .standing = standing_rows[i].standing,
            .terms = {.join_timeout_ns = 8 * SECOND, .keepalive_ns = standing_rows[i].time_ns}};
        gf_frame_offer_walk(&(struct gf_walk){.put = &put}, &offer);
        struct gf_channel *channel = control_world_stranger(&world);
        channel->driver->dial(channel, 0);
        assert_true(channel->driver->poll(channel, 0, &event));
        uint32_t bytes = (uint32_t)(sizeof payload - put.left) - standing_rows[i].is_short;
        assert_int_equal(channel->driver->send(channel, 0, CONTROL_OFFER, payload, bytes), GF_OK);
        control_world_coordinate(&world);
        assert_true(channel->driver->poll(channel, 0, &event));
        bool is_refused = (event.kind == GF_CHANNEL_FRAME) && (event.frame_kind == CONTROL_REFUSED);
        if (is_refused == standing_rows[i].is_good)
            fail_msg("%s: event %d, frame %u", standing_rows[i].name, event.kind, event.frame_kind);
        control_world_close(&world);
    }
}

TEST(what_is_shown_has_no_more_ids_than_there_can_be)
{
    for (uint32_t over = 0; over < 2; over++) {
        unsigned char payload[1024];
        struct gf_put put = {payload, sizeof payload};
        struct control_status shown = {.id_count = 8};
        gf_frame_status_walk(&(struct gf_walk){.put = &put}, &shown);
        const uint32_t wrong = GF_WORLD_MAX + 1;
        if (over) memcpy(payload + 24, &wrong, sizeof wrong);
        struct gf_get get = {.at = payload, .left = sizeof payload - put.left};
        gf_frame_status_walk(&(struct gf_walk){.get = &get}, &shown);
        assert_int_equal(get.bad, over);
    }
}

/* As many broken edges as fit are read as they were written; one more is malformed. */
TEST(a_fault_has_no_more_edges_than_fit)
{
    unsigned char payload[GF_CHANNEL_PAYLOAD_MAX];
    struct gf_put put = {payload, sizeof payload};
    const size_t behind = CONTROL_EDGES_MAX * sizeof(uint16_t) + 4; /* and no text */
    struct control_fault read = {.edges.count = 0};
    struct control_fault written = {.error.code = GF_ERR_LINK, .edges.count = CONTROL_EDGES_MAX};
    for (uint32_t i = 0; i < CONTROL_EDGES_MAX; i++) written.edges.peers[i] = (uint16_t)(100 + i);
    gf_frame_fault_walk(&(struct gf_walk){.put = &put}, &written);
    const size_t bytes = sizeof payload - put.left;
    struct gf_get get = {.at = payload, .left = bytes};
    gf_frame_fault_walk(&(struct gf_walk){.get = &get}, &read);
    assert_false(get.bad);
    assert_int_equal(get.left, 0);
    assert_int_equal(read.edges.count, CONTROL_EDGES_MAX);
    assert_memory_equal(read.edges.peers, written.edges.peers, sizeof read.edges.peers);
    assert_int_equal(read.edges.code, GF_OK);
    assert_int_equal(payload[bytes - behind - 4], CONTROL_EDGES_MAX);
    payload[bytes - behind - 4]++;
    get = (struct gf_get){.at = payload, .left = sizeof payload};
    gf_frame_fault_walk(&(struct gf_walk){.get = &get}, &read);
    assert_true(get.bad);
}
