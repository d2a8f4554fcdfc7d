/* The first join of a job: ranks that were given different things, that die or never come, and what
 * the first list says. */
#include "gradientflow.h"
#include "drivers/link.h"
#include "firmware-tests/support/control_suite.h"
#include "lib/control/coordinator_state.h"

static struct control_world world;

TEST(ranks_that_were_given_different_things_all_hear_of_it)
{
    control_world_open(&world, 3, 1);
    control_world_kill(&world, 2);
    world.tensors_hash = 1;
    (void)control_world_start(&world, 2, false);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 4; i++) {
        if (i == 2) continue;
        assert_int_equal(control_world_state(&world, i), GF_MEMBER_ENDED);
        assert_int_equal(gf_member_error(world.procs[i].member)->code, GF_ERR_MISMATCH);
        assert_int_equal(gf_member_error(world.procs[i].member)->peer, 2);
    }
    control_world_close(&world);
}

/* .. also who comes when the join has failed already: where rank 0 hosts the coordinator it would
 * find nobody. Who does not come is not awaited for long. */
TEST(a_rank_that_is_late_for_a_join_that_has_failed_hears_why)
{
    for (uint32_t comes = 0; comes < 2; comes++) {
        control_world_open_hosted(&world, 3, 1, 0);
        control_world_kill(&world, 1);
        world.procs[2].stopped = true;
        world.tensors_hash = 1;
        (void)control_world_start(&world, 1, false);
        control_world_quiet(&world, 3 * SECOND);
        assert_int_equal(gf_member_error(world.procs[0].member)->code, GF_ERR_MISMATCH);
        assert_int_equal(gf_coordinator_poll(world.coordinator, world.now_ns), GF_AGAIN);
        world.procs[2].stopped = (comes == 0);
        world.procs[2].now_ns = world.now_ns;
        control_world_quiet(&world, comes ? SECOND / 10 : SECOND + SECOND / 10);
        gf_status code = gf_member_error(world.procs[2].member)->code;
        assert_int_equal(code, comes ? GF_ERR_MISMATCH : GF_OK);
        if (comes) assert_int_equal(gf_member_error(world.procs[2].member)->peer, 1);
        assert_int_equal(gf_coordinator_poll(world.coordinator, world.now_ns), GF_ERR_MISMATCH);
        control_world_close(&world);
    }
}

#define LETTERS_40 "aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd"
#define DIGITS_40 "1111111111222222222233333333334444444444"
static const struct offer_row {
    const char *name;
    struct control_offer first, second;
    const char *text; /* NULL: nothing differs */
} offer_rows[] = {
    {"nothing", {.id = 0}, {.id = 2}, NULL},
    {"version",
     {.values.version = 0x0009},
     {.id = 2, .values.version = 0x1000a},
     "library versions differ: 0.9 at rank 0, 1.10 at rank 2"},
    {"world",
     {.first_world = 3},
     {.id = 2, .first_world = 4},
     "world sizes differ: 3 at rank 0, 4 at rank 2"},
    {"a_key",
     {.id = 1, .values = {.config_hash = 1, .summary = "exchange.fuse_bytes=8KiB a=1"}},
     {.id = 2, .values = {.config_hash = 2, .summary = "exchange.fuse_bytes=4MiB a=1"}},
     "configurations differ: exchange.fuse_bytes is 8KiB at rank 1, 4MiB at rank 2"},
    {"a_key_that_one_does_not_name",
     {.values.config_hash = 1},
     {.id = 2, .values = {.config_hash = 2, .summary = "b=4"}},
     "configurations differ: b is nothing at rank 0, 4 at rank 2"},
    {"no_key_is_known",
     {.values.config_hash = 1},
     {.id = 2, .values.config_hash = 2},
     "configurations differ: hash 0000000000000001 at rank 0, 0000000000000002 at rank 2"},
    {"elastic",
     {.terms.elastic = true},
     {.id = 2},
     "configurations differ: job.elastic is true at rank 0, false at rank 2"},
    {"a_time",
     {.terms.keepalive_ns = SECOND},
     {.id = 2, .terms.keepalive_ns = 2 * SECOND},
     "configurations differ: rendezvous.keepalive is 1.000 s at rank 0, 2.000 s at rank 2"},
    {"another_time",
     {.terms.join_timeout_ns = SECOND / 2},
     {.id = 2},
     "configurations differ: rendezvous.join_timeout is 0.500 s at rank 0, 0.000 s at rank 2"},
    {"the_last_time",
     {.terms.exchange_timeout_ns = SECOND},
     {.id = 2, .terms.elastic = false},
     "configurations differ: exchange.timeout is 1.000 s at rank 0, 0.000 s at rank 2"},
    {"elastic_at_the_second",
     {.id = 0},
     {.id = 2, .terms.elastic = true},
     "configurations differ: job.elastic is false at rank 0, true at rank 2"},
    {"tensor_count",
     {.values.tensor_count = 1},
     {.id = 2, .values.tensor_count = 2},
     "tensor tables differ: 1 tensors at rank 0, 2 at rank 2"},
    {"elem_count",
     {.values.elem_count = 1},
     {.id = 2, .values.elem_count = 2},
     "tensor tables differ: 1 elements at rank 0, 2 at rank 2"},
    {"tensors_hash",
     {.values.tensors_hash = 1},
     {.id = 2, .values.tensors_hash = 2},
     "tensor tables differ in names, sizes, flags, types or order, with 0 tensors of 0 elements in "
     "both: hash 0000000000000001 at rank 0, 0000000000000002 at rank 2"},
    {"keys_of_which_not_all_fit",
     {.values = {.config_hash = 1, .summary = "key1=" LETTERS_40 " key2=" LETTERS_40 " key3=1"}},
     {.id = 2,
      .values = {.config_hash = 2, .summary = "key1=" DIGITS_40 " key2=" DIGITS_40 " key3=2"}},
     "configurations differ: key1 is " LETTERS_40 " at rank 0, " DIGITS_40 " at rank 2"},
    {"a_fabric",
     {.values.network = GF_NETWORK_FABRIC},
     {.id = 2},
     "the nodes of this job are joined by a fabric, which rank 2 cannot use; its log says why"},
};

TEST(what_must_be_equal_is_named_where_it_is_not)
{
    for (uint32_t i = 0; i < LENGTH(offer_rows); i++) {
        const struct offer_row *row = &offer_rows[i];
        char text[256] = "";
        bool differs =
            gf_coordinator_offer_difference(&row->first, &row->second, text, sizeof text);
        if ((differs != (row->text != NULL)) || (differs && (strcmp(text, row->text) != 0)))
            fail_msg("%s: %s", row->name, text);
    }
}

TEST(a_rank_that_dies_before_the_job_begins_is_named)
{
    for (uint32_t i = 0; i < 6; i++) {
        const bool elastic = (i >= 3);
        const uint32_t dies = i % 3;
        control_world_open_fixed(&world, 3, 1, !elastic);
        world.procs[(dies + 1) % 3].stopped = true;
        control_world_quiet(&world, 50 * CONTROL_MS);
        world.procs[(dies + 1) % 3].stopped = false;
        control_world_kill(&world, dies);
        control_world_quiet(&world, elastic ? 9 * SECOND : SECOND);
        const struct gf_error *error = gf_member_error(world.procs[(dies + 2) % 3].member);
        assert_int_equal(error->peer, dies);
        assert_int_equal(error->code, elastic ? GF_ERR_TIMEOUT : GF_ERR_PEER);
        assert_non_null(strstr(error->text, "while ranks were joining"));
        control_world_close(&world);
    }
}

TEST(who_gives_up_before_the_job_begins_is_named)
{
    control_world_open(&world, 3, 1);
    world.procs[2].stopped = true;
    control_world_quiet(&world, 100 * CONTROL_MS);
    gf_member_fault(world.procs[1].member, &control_stuck, true);
    control_world_quiet(&world, 100 * CONTROL_MS);
    assert_int_equal(control_world_state(&world, 0), GF_MEMBER_ENDED);
    const struct gf_error *error = gf_member_error(world.procs[0].member);
    assert_int_equal(error->code, GF_ERR_PEER);
    assert_int_equal(error->peer, 1);
    assert_string_equal(error->text, "rank 1 gave up: it stands");
    control_world_close(&world);
}

TEST(a_rank_that_never_comes_is_named)
{
    control_world_open(&world, 3, 1);
    control_world_kill(&world, 1);
    control_world_quiet(&world, 9 * SECOND);
    for (uint32_t i = 0; i < 3; i += 2) {
        assert_int_equal(control_world_state(&world, i), GF_MEMBER_ENDED);
        assert_int_equal(gf_member_error(world.procs[i].member)->code, GF_ERR_TIMEOUT);
        assert_int_equal(gf_member_error(world.procs[i].member)->peer, 1);
    }
    control_world_close(&world);
}

/* A coordinator alone, to which nobody comes but those that a row says. */
static bool nothing_comes(struct gf_channel *channel, uint64_t now_ns,
                          struct gf_channel_event *event_out)
{
    (void)channel;
    (void)now_ns;
    (void)event_out;
    return false;
}

static gf_status all_is_taken(struct gf_channel *channel, uint32_t connection, uint32_t frame_kind,
                              const void *payload, uint32_t size_bytes)
{
    (void)channel;
    (void)connection;
    (void)frame_kind;
    (void)payload;
    (void)size_bytes;
    return GF_OK;
}

static bool all_has_left(struct gf_channel *channel)
{
    (void)channel;
    return true;
}

/* Of 48 ranks: who is missing at the deadline, in as many words as fit. */
static const struct missing_row {
    const char *name;
    uint64_t missing; /* bits of ranks */
    uint32_t first;
    const char *text;
} missing_rows[] = {
    {"all", UINT64_MAX, 0, "rank 0-47 of 48 did not join within 1.0 s"},
    {"some", 0x80000000002e, 1, "rank 1-3, 5, 47 of 48 did not join within 1.0 s"},
    {"the_last", UINT64_C(1) << 47, 47, "rank 47 of 48 did not join within 1.0 s"},
    {"more_than_fit", 0x555555555405, 0,
     "rank 0, 2, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42, 44, .. of 48 "
     "did not join within 1.0 s"},
};

TEST(all_ranks_that_never_come_are_named_as_far_as_they_fit)
{
    const struct gf_coordinator_setup setup = {.world = 48,
                                               .id_count = 48,
                                               .host_id = GF_RANK_NONE,
                                               .join_timeout_ns = SECOND,
                                               .endpoint_bytes_max = 16};
    const struct gf_channel_driver nobody = {
        .poll = nothing_comes, .send = all_is_taken, .flushed = all_has_left};
    void *memory = malloc(gf_coordinator_state_bytes(&setup));
    for (uint32_t i = 0; i < LENGTH(missing_rows); i++) {
        const struct missing_row *row = &missing_rows[i];
        struct gf_channel channel = {.driver = &nobody, .connections_max = 1};
        struct gf_coordinator *coordinator = gf_coordinator_open(&setup, memory, &channel, SECOND);
        for (uint32_t id = 0; id < 48; id++) {
            if ((row->missing >> id & 1) != 0) continue;
            coordinator->rows[id].waits = true;
            coordinator->rows[id].process = 100 + id;
            coordinator->rows[id].connection = 0;
        }
        for (uint32_t n = 1; n < 6; n++) {
            assert_int_equal(coordinator->state, GF_COORDINATOR_GATHER);
            (void)gf_coordinator_poll(coordinator, SECOND + n * SECOND / 4);
            if (coordinator->state == GF_COORDINATOR_OVER) break;
        }
        if (strcmp(coordinator->error.text, row->text) != 0)
            fail_msg("%s: %s", row->name, coordinator->error.text);
        assert_int_equal(coordinator->error.code, GF_ERR_TIMEOUT);
        assert_int_equal(coordinator->error.peer, row->first);
        assert_int_equal(coordinator->error.operation, GF_OPERATION_JOIN);
    }
    free(memory);
}

/* .. nor less: its rows come first, the endpoints of the list and of the generation last. */
TEST(a_coordinator_wants_no_more_memory_than_it_uses)
{
    control_world_open_growing(&world, 3, 1, 5, GF_RANK_NONE);
    const struct gf_coordinator *c = world.coordinator;
    assert_ptr_equal(c->endpoints + 2 * c->setup.id_count * c->setup.endpoint_bytes_max,
                     (const unsigned char *)c + gf_coordinator_state_bytes(&world.setup));
    control_world_close(&world);
}

/* Its channel refused one of another key or version: who waits for that one hears so. */
TEST(a_rank_that_was_refused_and_is_missed_is_told_of)
{
    control_world_open(&world, 3, 1);
    control_world_kill(&world, 1);
    world.channel.refused_count = 1;
    (void)snprintf(world.channel.refused_text, sizeof world.channel.refused_text,
                   "library version 0.10 at the coordinator, 0.9 at this process");
    control_world_quiet(&world, 9 * SECOND);
    const struct gf_error *error = gf_member_error(world.procs[0].member);
    assert_int_equal(error->code, GF_ERR_TIMEOUT);
    assert_non_null(strstr(error->text, "did not join"));
    assert_non_null(strstr(error->text, "; a process was refused: library version 0.10 at"));
    control_world_close(&world);
}

/* ---- the first list ---- */

/* All are on the first list; then a host is gone, and no kernel says so. */
TEST(a_rank_that_vanishes_behind_the_first_list_is_named)
{
    for (uint32_t told = 0; told < 2; told++) { /* its endpoint */
        control_world_open(&world, 3, 1);
        control_wait_for(&world, 2, GF_MEMBER_LISTED);
        world.procs[0].stopped = true; /* else the generation begins */
        if (told) control_world_quiet(&world, 10 * CONTROL_MS);
        control_world_cut(&world, 2);
        world.procs[2].stopped = true;
        control_world_quiet(&world, 10 * CONTROL_MS);
        world.procs[0].stopped = false;
        control_world_quiet(&world, 9 * SECOND);
        for (uint32_t i = 0; i < 2; i++) {
            const struct gf_error *error = gf_member_error(world.procs[i].member);
            assert_int_equal(error->code, GF_ERR_TIMEOUT);
            assert_int_equal(error->peer, 2);
            assert_non_null(strstr(error->text, "rank 2 of 3 did not join within 8.0 s"));
        }
        control_world_close(&world);
    }
}

/* The first list was given up, and one of it is away for a moment: it is awaited. */
TEST(a_first_list_is_of_all_ranks)
{
    control_world_open(&world, 3, 1);
    control_wait_for(&world, 2, GF_MEMBER_LISTED);
    control_world_cut(&world, 2);
    world.procs[2].stopped = true;
    control_world_kill(&world, 1);
    control_world_quiet(&world, 50 * CONTROL_MS);
    (void)control_world_start(&world, 1, true);
    control_world_quiet(&world, 4 * SECOND);
    assert_int_equal(world.procs[0].number, 0);
    control_wake(&world, 2);
    control_world_quiet(&world, 2 * SECOND);
    control_all_work(&world, 3);
    assert_int_equal(world.procs[0].number, 2); /* a number for each list */
    control_world_close(&world);
}

/* .. and for as long as before, however late it was given up. */
TEST(a_first_list_that_is_given_up_late_is_awaited_once_more)
{
    control_world_open(&world, 3, 1);
    world.procs[2].stopped = true;
    control_world_quiet(&world, 7 * SECOND);
    control_wake(&world, 2);
    control_wait_for(&world, 2, GF_MEMBER_LISTED);
    control_world_kill(&world, 1);
    control_world_quiet(&world, 4 * SECOND);
    (void)control_world_start(&world, 1, true);
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 3);
    control_world_close(&world);
}

/* .. but once: who ends on each list keeps nobody waiting for ever, and is named. */
TEST(a_rank_that_ends_on_each_first_list_is_named)
{
    control_world_open(&world, 3, 1);
    uint32_t last = 2;
    for (uint32_t i = 0; (i < 10) && (control_world_state(&world, 0) != GF_MEMBER_ENDED); i++) {
        if (i > 0) last = control_world_start(&world, 2, true);
        control_wait_for(&world, last, GF_MEMBER_LISTED);
        control_world_kill(&world, last);
        control_world_quiet(&world, SECOND);
    }
    const struct gf_error *error = gf_member_error(world.procs[0].member);
    assert_int_equal(error->code, GF_ERR_TIMEOUT);
    assert_int_equal(error->peer, 2);
    control_world_close(&world);
}

/* Of three ranks: what the list says that they need. */
static const struct network_row {
    const char *name;
    struct gf_offer offers[2]; /* of two ranks, and of one, whichever it is */
    gf_network network;
} network_rows[] = {
    {"one_node", {{.node = 7}, {.node = 7}}, GF_NETWORK_NONE},
    {"two_nodes", {{.node = 7}, {.node = 8}}, GF_NETWORK_LINK},
    {"a_fabric",
     {{.node = 7, .fabric = GF_FABRIC_FOUND}, {.node = 8, .fabric = GF_FABRIC_FOUND}},
     GF_NETWORK_FABRIC},
    {"a_fabric_that_one_has_not",
     {{.node = 7, .fabric = GF_FABRIC_FOUND}, {.node = 8}},
     GF_NETWORK_LINK},
};

TEST(a_list_says_which_network_its_ranks_need)
{
    for (uint32_t i = 0; i < 3 * LENGTH(network_rows); i++) {
        const struct network_row *row = &network_rows[i / 3];
        control_world_open(&world, 3, 1);
        for (uint32_t id = 0; id < 3; id++) {
            world.offer = row->offers[id == i % 3];
            control_world_kill(&world, id);
            (void)control_world_start(&world, id, false);
        }
        control_world_quiet(&world, SECOND);
        control_all_work(&world, 3);
        uint32_t network = gf_member_generation(world.procs[3].member)->network;
        if (network != (uint32_t)row->network) fail_msg("%s: %u", row->name, network);
        control_world_close(&world);
    }
}

/* Endpoints of several frames, through a channel with room for one or for many. */
TEST(endpoints_that_take_several_frames_arrive_whole)
{
    for (uint32_t room = 0; room < 2; room++) {
        control_world_open_large(&world, 3, 10001);
        world.room = room;
        control_world_quiet(&world, SECOND);
        control_all_work(&world, 3);
        control_world_kill(&world, 0);
        control_world_quiet(&world, SECOND);
        control_all_work(&world, 2);
        control_world_close(&world);
    }
}

/* .. where the last piece is of a byte, too, of what a member sends or the coordinator. */
TEST(endpoints_of_about_a_frame_arrive_whole)
{
    for (uint32_t less = 10; less < 90; less++) {
        control_world_open_large(&world, 2, GF_CHANNEL_PAYLOAD_MAX - less);
        control_world_quiet(&world, 50 * CONTROL_MS);
        control_all_work(&world, 2);
        control_world_close(&world);
    }
}
