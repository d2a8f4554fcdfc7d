/* Death, abort and fault attribution: all ranks end with the same error, and it names the
 * culprit. */
#include "firmware-tests/support/suite.h"
#include "lib/membership/members_state.h"
#include "firmware-tests/support/members_world.h"

TEST(a_dead_rank_is_named_with_where_it_was)
{
    for (int over_tcp = 0; over_tcp < 2; over_tcp++) {
        members_world_open(4, over_tcp != 0, 0);
        members_world_until(GF_OK);
        place(2, 7, 30, GF_OPERATION_STEP, 1);
        for (int turn = 0; turn < 300; turn++) assert_true(members_world_progress(GF_OK));
        world.ranks[2].stopped = true;
        if (over_tcp)
            tcp_world_end_close(&tcp, 2);
        else
            fake_cut(&fake, 2, "connection closed by peer");
        members_world_until(GF_ERR_PEER);
        assert_all_failed(
            GF_ERR_PEER, 2,
            "rank 2 died: connection closed by peer in step 7, operation step, buffer 2, tensor 5");
        assert_int_equal(error_of(3)->step, 7);
        assert_int_equal(error_of(3)->operation, GF_OPERATION_STEP);
        assert_int_equal(error_of(3)->tensor, 5);
        members_world_end();
    }
}

/* Its last word is of step 175; by then all ranks have had its votes in 200. */
TEST(a_dead_rank_is_named_with_the_step_that_the_coordinator_has_reached)
{
    members_world_open(3, false, 0);
    members_world_until(GF_OK);
    place(2, 175, 30, GF_OPERATION_STEP, GF_RANK_NONE);
    for (int turn = 0; turn < 300; turn++) assert_true(members_world_progress(GF_OK));
    place(0, 200, 60, GF_OPERATION_NONE, GF_RANK_NONE);
    world.ranks[2].stopped = true;
    fake_cut(&fake, 2, "closed");
    members_world_until(GF_ERR_PEER);
    assert_all_failed(GF_ERR_PEER, 2,
                      "rank 2 died: closed; rank 0 was in step 200, between operations");
    for (uint32_t rank = 0; rank < 2; rank++) assert_int_equal(error_of(rank)->step, 200);
    members_world_end();
}

static const char *name_of(void *unused, uint32_t tensor)
{
    return (tensor == 5) ? "conv1.weight" : "";
}

TEST(a_tensor_with_a_name_is_told_by_it)
{
    members_world_open(3, false, 0);
    members_world_until(GF_OK);
    for (uint32_t rank = 0; rank < 3; rank++)
        world.ranks[rank].members->setup.tensor_name = name_of;
    place(2, 7, 30, GF_OPERATION_STEP, 1);
    for (int turn = 0; turn < 300; turn++) assert_true(members_world_progress(GF_OK));
    world.ranks[2].stopped = true;
    fake_cut(&fake, 2, "closed");
    members_world_until(GF_ERR_PEER);
    assert_all_failed(GF_ERR_PEER, 2, "buffer 2, tensor 5 \"conv1.weight\" (as of");
    members_world_end();
}

/* "Died" is what its kernel has said. */
TEST(the_end_of_a_connection_is_told_and_no_death_that_nobody_saw)
{
    static const char *const words[] = {[GF_END_GONE] = "rank 2 died: how",
                                        [GF_END_LEFT] = "rank 2 left: how",
                                        [GF_END_SILENT] = "rank 2 says nothing: how",
                                        [GF_END_CUT] = "rank 2 is cut off: how",
                                        [GF_END_RESET] = "rank 2 lost its connection: how"};
    for (size_t end = 0; end < LENGTH(words); end++) {
        members_world_open(3, false, 0);
        members_world_until(GF_OK);
        world.ranks[2].stopped = true;
        (void)fake_push(&fake.ends[0], (struct gf_rendezvous_event){.kind = GF_RENDEZVOUS_ENDED,
                                                                    .rank = 2,
                                                                    .end = (gf_rendezvous_end)end,
                                                                    .text = "how"});
        members_world_until(GF_ERR_PEER);
        assert_all_failed(GF_ERR_PEER, 2, words[end]);
        assert_true((strstr(error_of(1)->text, "died") != NULL) == (end == GF_END_GONE));
        members_world_end();
    }
}

TEST(the_coordinators_death_is_seen_by_all)
{
    for (int over_tcp = 0; over_tcp < 2; over_tcp++) {
        members_world_open(3, over_tcp != 0, 0);
        members_world_until(GF_OK);
        world.ranks[0].stopped = true;
        if (over_tcp) tcp_world_end_close(&tcp, 0);
        for (uint32_t rank = 1; (rank < 3) && !over_tcp; rank++)
            fake_cut(&fake, rank, "connection closed by peer");
        members_world_until(GF_ERR_PEER);
        for (uint32_t rank = 1; rank < 3; rank++) {
            assert_int_equal(error_of(rank)->peer, 0);
            assert_non_null(strstr(error_of(rank)->text, "rank 0 died: connection closed by peer"));
        }
        members_world_end();
    }
}

TEST(who_gives_up_is_heard_by_all)
{
    for (uint32_t teller = 0; teller < 3; teller++) {
        const struct gf_error error = {.code = GF_ERR_DEVICE,
                                       .peer = GF_RANK_NONE,
                                       .operation = GF_OPERATION_UPDATE,
                                       .step = 9,
                                       .tensor = GF_TENSOR_NONE,
                                       .foreign_code = -700,
                                       .foreign_call = "cuLaunchKernel",
                                       .text = "the GPU fell off the bus"};
        char text[64];
        members_world_open(3, false, 2);
        members_world_until(GF_OK);
        gf_members_tell(world.ranks[teller].members, &error);
        assert_int_equal(gf_members_poll(world.ranks[teller].members, world.now_ns), GF_ERR_DEVICE);
        assert_string_equal(error_of(teller)->text, error.text);
        for (int turn = 0; turn < 20; turn++) (void)members_world_progress(GF_ERR_PEER);
        world.ranks[teller].stopped = true;
        (void)snprintf(text, sizeof text, "rank %u gave up: the GPU fell off the bus", teller);
        assert_all_failed(GF_ERR_PEER, teller, text);
        assert_int_equal(error_of((teller + 1) % 3)->foreign_code, -700);
        assert_string_equal(error_of((teller + 1) % 3)->foreign_call, "cuLaunchKernel");
        members_world_end();
    }
}

TEST(a_coordinator_that_closes_at_once_is_still_heard)
{
    const struct gf_error error = {.code = GF_ERR_DEVICE,
                                   .peer = GF_RANK_NONE,
                                   .tensor = GF_TENSOR_NONE,
                                   .text = "out of memory"};
    members_world_open(3, true, 0);
    members_world_until(GF_OK);
    world.ranks[1].stopped = true;
    place(1, 4, 9, GF_OPERATION_NONE, GF_RANK_NONE);
    gf_members_tell(world.ranks[2].members, &error);
    for (int turn = 0; (turn < 100000) && (error_of(0)->code == GF_OK); turn++)
        (void)members_world_progress(GF_ERR_PEER);
    assert_int_equal(error_of(0)->code, GF_ERR_PEER);
    tcp_world_end_close(&tcp, 0);
    world.ranks[0].stopped = true;
    world.ranks[2].stopped = true;
    world.now_ns += SECOND;
    for (int i = 0; i < 3; i++) { /* what it sends now meets a reset */
        world.now_ns += SECOND;
        gf_members_heartbeat(world.ranks[1].members, world.now_ns);
        place(1, 4, 10 + (uint64_t)i, GF_OPERATION_STEP, GF_RANK_NONE);
    }
    world.ranks[1].stopped = false;
    members_world_until(GF_ERR_PEER);
    assert_all_failed(GF_ERR_PEER, 2, "rank 2 gave up: out of memory");
}

static const struct gf_error late = {.code = GF_ERR_TIMEOUT,
                                     .peer = GF_RANK_NONE,
                                     .tensor = GF_TENSOR_NONE,
                                     .text = "nothing moved for 30 s"};

/* Rank `asker` asks until it is answered; the others poll. Gives how long it took. */
static uint64_t attribute(uint32_t asker, const struct gf_error *seen, struct gf_error *error_out)
{
    uint64_t begin_ns = world.now_ns;
    for (int turn = 0; turn < 100000; turn++) {
        gf_status status =
            gf_members_attribute(world.ranks[asker].members, world.now_ns, seen, error_out);
        if (status != GF_AGAIN) {
            assert_int_equal(status, GF_OK);
            return world.now_ns - begin_ns;
        }
        world.now_ns += MS;
        for (uint32_t rank = 0; rank < world.size; rank++) {
            if ((rank != asker) && !world.ranks[rank].stopped) {
                (void)gf_members_poll(world.ranks[rank].members, world.now_ns);
            }
        }
    }
    fail_msg("no error");
    return 0;
}

struct where {
    uint64_t step, sequence;
    gf_operation operation;
    uint32_t waits_for;
};

static const struct fault_case {
    const char *name;
    uint32_t asker;
    uint32_t stopped; /* bits */
    struct where at[4];
    uint32_t peer;
    const char *text;
} faults[] = {
    {"who_does_not_poll_is_the_culprit",
     1,
     0x8,
     {{8, 40, GF_OPERATION_STEP, 3},
      {8, 40, GF_OPERATION_STEP, 0},
      {8, 40, GF_OPERATION_STEP, 1},
      {8, 39, GF_OPERATION_NONE, GF_RANK_NONE}},
     3,
     "rank 3 does not answer"},
    {"the_coordinator_asks_too",
     0,
     0x4,
     {{8, 40, GF_OPERATION_STEP, 2},
      {8, 40, GF_OPERATION_STEP, 0},
      {8, 39, GF_OPERATION_NONE, GF_RANK_NONE},
      {8, 40, GF_OPERATION_STEP, 2}},
     2,
     "rank 2 does not answer"},
    {"of_two_silent_ranks_the_one_behind",
     1,
     0xc,
     {{8, 40, GF_OPERATION_STEP, 3},
      {8, 40, GF_OPERATION_STEP, 3},
      {8, 40, GF_OPERATION_STEP, 3},
      {7, 33, GF_OPERATION_NONE, GF_RANK_NONE}},
     3,
     "in step 7, between operations; silent ranks: 2"},
    {"of_two_equal_silent_ranks_the_one_that_is_awaited",
     1,
     0xc,
     {{8, 40, GF_OPERATION_STEP, 3},
      {8, 40, GF_OPERATION_STEP, 3},
      {8, 39, GF_OPERATION_NONE, GF_RANK_NONE},
      {8, 39, GF_OPERATION_NONE, GF_RANK_NONE}},
     3,
     "rank 3 does not answer"},
    {"the_laggard_that_computes",
     3,
     0,
     {{8, 40, GF_OPERATION_STEP, 3},
      {8, 40, GF_OPERATION_STEP, 2},
      {7, 39, GF_OPERATION_NONE, GF_RANK_NONE},
      {8, 40, GF_OPERATION_STEP, 2}},
     2,
     "rank 2 is behind in step 7, between operations: computing; last moved"},
    {"the_laggard_may_be_the_coordinator",
     3,
     0,
     {{8, 39, GF_OPERATION_NONE, GF_RANK_NONE},
      {8, 40, GF_OPERATION_STEP, 0},
      {8, 40, GF_OPERATION_STEP, 1},
      {8, 40, GF_OPERATION_STEP, 2}},
     0,
     "rank 0 is behind in step 8"},
    {"the_laggard_may_be_who_asks",
     2,
     0,
     {{8, 40, GF_OPERATION_STEP, 3},
      {8, 40, GF_OPERATION_STEP, 0},
      {8, 39, GF_OPERATION_NONE, GF_RANK_NONE},
      {8, 40, GF_OPERATION_STEP, 2}},
     2,
     "rank 2 is behind"},
    {"of_equals_the_one_that_waits_for_nobody",
     1,
     0,
     {{8, 40, GF_OPERATION_STEP, 3},
      {8, 40, GF_OPERATION_STEP, 0},
      {8, 40, GF_OPERATION_STEP, GF_RANK_NONE},
      {8, 40, GF_OPERATION_STEP, 2}},
     2,
     "rank 2 is behind in step 8, operation step, buffer 2, tensor 5: computing"},
    {"who_asks_where_nobody_waits_for_anybody",
     2,
     0,
     {{8, 40, GF_OPERATION_NONE, GF_RANK_NONE},
      {8, 39, GF_OPERATION_NONE, GF_RANK_NONE},
      {8, 40, GF_OPERATION_STEP, GF_RANK_NONE},
      {8, 40, GF_OPERATION_NONE, GF_RANK_NONE}},
     2,
     "rank 2 is behind in step 8, operation step, buffer 2, tensor 5: computing"},
};

#define NOBODY GF_RANK_NONE
#define LONG_AGO (10 * SECOND)

/* What its operations say of a rank that is there: the last one is under way, or has ended. */
static struct gf_waits waits_at(const struct where *at)
{
    bool is_under_way = (at->operation != GF_OPERATION_NONE);
    struct gf_waits waits = {.taken = at->sequence,
                             .still_ns = LONG_AGO,
                             .quiet_ns = LONG_AGO,
                             .count = is_under_way ? 1 : 0};
    waits.rows[0] = (struct gf_wait){.order = at->sequence - 1,
                                     .posted = 7,
                                     .lacked = 7,
                                     .from = at->waits_for,
                                     .to = NOBODY,
                                     .memory = NOBODY,
                                     .still_ns = LONG_AGO};
    return waits;
}

TEST(the_culprit_is_the_same_for_all)
{
    for (size_t i = 0; i < 2 * LENGTH(faults); i++) {
        const struct fault_case *c = &faults[i / 2];
        struct gf_error error = {0};
        members_world_open(4, (i % 2) != 0, (i % 2 == 0) ? 2 : 0);
        members_world_until(GF_OK);
        for (uint32_t rank = 0; rank < 4; rank++) {
            place(rank, c->at[rank].step, c->at[rank].sequence, c->at[rank].operation,
                  c->at[rank].waits_for);
            world.ranks[rank].waits = waits_at(&c->at[rank]);
        }
        for (int turn = 0; turn < 3000; turn++) assert_true(members_world_progress(GF_OK));
        for (uint32_t rank = 0; rank < 4; rank++)
            world.ranks[rank].stopped = ((c->stopped >> rank & 1) != 0);
        assert_true(attribute(c->asker, &late, &error) <= 2 * SECOND);
        if (error.peer != c->peer) print_error("%s: %s\n", c->name, error.text);
        assert_int_equal(error.code, GF_ERR_TIMEOUT);
        assert_int_equal(error.peer, c->peer);
        assert_int_equal(error.step, c->at[c->peer].step);
        for (int turn = 0; turn < 20; turn++) (void)members_world_progress(GF_ERR_TIMEOUT);
        assert_all_failed(GF_ERR_TIMEOUT, c->peer, c->text);
        /* The stopped rank runs on: it hears the same. */
        for (uint32_t rank = 0; rank < 4; rank++) world.ranks[rank].stopped = false;
        for (int turn = 0; turn < 20; turn++) (void)members_world_progress(GF_ERR_TIMEOUT);
        assert_all_failed(GF_ERR_TIMEOUT, c->peer, c->text);
        members_world_end();
    }
}

/* Rank 2 of 4 is asked for message 7 of operation 5 by others, in most rows. */
struct told {
    uint64_t taken; /* 0: it says nothing */
    uint64_t posted, lacked;
    uint32_t from, to, memory;
    uint64_t still_ns, quiet_ns;
    bool ended;      /* operation 5: no row */
    uint64_t age_ns; /* all this was so long ago */
};
#define ENDED(still)                                              \
    {                                                             \
        6, 0, 0, NOBODY, NOBODY, NOBODY, still, LONG_AGO, true, 0 \
    }
#define FAILED_AGO(rank, still, age)                               \
    {                                                              \
        6, 7, 7, rank, NOBODY, NOBODY, still, LONG_AGO, false, age \
    }
#define DOES_NOT_ANSWER \
    {                   \
        0               \
    }
#define POSTED(place)                                                     \
    {                                                                     \
        6, place, 0, NOBODY, NOBODY, NOBODY, LONG_AGO, LONG_AGO, false, 0 \
    }
#define NOT_BEGUN                                                    \
    {                                                                \
        5, 0, 0, NOBODY, NOBODY, NOBODY, LONG_AGO, LONG_AGO, true, 0 \
    }
#define LACKS(rank)                                                 \
    {                                                               \
        6, 7, 7, rank, NOBODY, NOBODY, LONG_AGO, LONG_AGO, false, 0 \
    }
#define HEARS(rank)                                          \
    {                                                        \
        6, 7, 7, rank, NOBODY, NOBODY, LONG_AGO, 0, false, 0 \
    }
#define SENDS(rank)                                                 \
    {                                                               \
        6, 8, 0, NOBODY, rank, NOBODY, LONG_AGO, LONG_AGO, false, 0 \
    }
#define IN_MEMORY(rank)                                             \
    {                                                               \
        6, 0, 0, NOBODY, NOBODY, rank, LONG_AGO, LONG_AGO, false, 0 \
    }

static struct gf_waits waits_told(const struct told *told)
{
    struct gf_waits waits = {.taken = told->taken,
                             .still_ns = told->still_ns,
                             .quiet_ns = told->quiet_ns,
                             .age_ns = told->age_ns,
                             .count = told->ended ? 0 : 1};
    waits.rows[0] = (struct gf_wait){.order = 5,
                                     .posted = told->posted,
                                     .lacked = told->lacked,
                                     .from = told->from,
                                     .to = told->to,
                                     .memory = told->memory,
                                     .still_ns = told->still_ns};
    return waits;
}

static const struct edge_case {
    const char *name;
    struct told told[4];
    uint32_t peer;
    const char *text;
} edge_cases[] = {
    {"sent_and_lacked",
     {LACKS(1), LACKS(2), ENDED(LONG_AGO), IN_MEMORY(1)},
     2,
     "messages of rank 2 do not reach rank 1: it lacks one that was sent, and nothing has come for "
     "10.0 s; rank 2 is the one to go"},
    {"not_the_coordinator", {LACKS(1), ENDED(LONG_AGO), LACKS(0), LACKS(0)}, 1, "of rank 1 do not"},
    {"whoever_has_most",
     {LACKS(3), ENDED(LONG_AGO), LACKS(1), LACKS(1)},
     1,
     "broken connections: 2"},
    {"the_place_is_passed", {LACKS(1), LACKS(2), POSTED(8), LACKS(1)}, 2, "of rank 2 do not reach"},
    {"the_place_is_next",
     {LACKS(1), LACKS(2), POSTED(7), LACKS(1)},
     2,
     "rank 2 is behind in step 8, operation step, buffer 2, tensor 5: it waits"},
    {"not_begun", {LACKS(1), LACKS(2), NOT_BEGUN, LACKS(1)}, 2, "rank 2 is behind"},
    {"who_does_not_take", {SENDS(3), SENDS(3), SENDS(3), NOT_BEGUN}, 3, "rank 3 is behind"},
    {"a_wait_in_memory_is_inherited",
     {IN_MEMORY(1), IN_MEMORY(2), LACKS(3), ENDED(LONG_AGO)},
     3,
     "messages of rank 3 do not reach rank 2"},
    {"sent_a_moment_ago",
     {LACKS(1), LACKS(2), ENDED(MS), LACKS(1)},
     NOBODY,
     "ranks wait for each other"},
    {"bytes_come",
     {LACKS(1), LACKS(2), ENDED(LONG_AGO), HEARS(1)},
     NOBODY,
     "ranks wait for each other"},
    {"an_edge_beside_who_does_not_answer",
     {LACKS(1), LACKS(2), ENDED(LONG_AGO), DOES_NOT_ANSWER},
     2,
     "messages of rank 2 do not reach rank 1"},
    {"who_does_not_answer_is_awaited",
     {LACKS(1), LACKS(2), LACKS(3), DOES_NOT_ANSWER},
     3,
     "rank 3 does not answer"},
    {"who_does_not_answer_is_awaited_by_nobody",
     {LACKS(1), LACKS(2), LACKS(0), DOES_NOT_ANSWER},
     NOBODY,
     "ranks wait for each other"},
    {"sent_after_the_one_that_lacks_it_had_failed",
     {LACKS(1), FAILED_AGO(2, 2 * SECOND, 2 * SECOND), ENDED(5 * SECOND / 2), LACKS(1)},
     NOBODY,
     "ranks wait for each other"},
    {"sent_before_the_one_that_lacks_it_failed",
     {LACKS(1), FAILED_AGO(2, 2 * SECOND, 2 * SECOND), ENDED(4 * SECOND), LACKS(1)},
     2,
     "messages of rank 2 do not reach rank 1"},
    {"sent_when_it_failed_itself",
     {LACKS(1), LACKS(2), FAILED_AGO(0, MS, 9 * SECOND), LACKS(1)},
     NOBODY,
     "ranks wait for each other"},
    {"a_cover_of_more_than_one",
     {LACKS(3), LACKS(2), ENDED(LONG_AGO), ENDED(LONG_AGO)},
     3,
     "broken connections: 2; rank 3 and 1 more are to go"},
    {"a_circle",
     {LACKS(1), LACKS(2), LACKS(3), LACKS(0)},
     NOBODY,
     "0 for 1, 1 for 2, 2 for 3, 3 for 0"},
};

TEST(a_message_that_was_sent_and_did_not_come_breaks_an_edge)
{
    for (size_t i = 0; i < LENGTH(edge_cases); i++) {
        const struct edge_case *c = &edge_cases[i];
        struct gf_error error = {0};
        members_world_open(4, false, 0);
        members_world_until(GF_OK);
        for (uint32_t rank = 0; rank < 4; rank++) {
            const struct told *told = &c->told[rank];
            world.ranks[rank].stopped = (told->taken == 0);
            place(rank, 8, 40, GF_OPERATION_STEP, (rank + 1) % 4);
            world.ranks[rank].waits = waits_told(told);
        }
        (void)attribute(0, &late, &error);
        if ((error.peer != c->peer) || (strstr(error.text, c->text) == NULL))
            fail_msg("%s: peer %d: %s", c->name, (int)error.peer, error.text);
        assert_int_equal(error.code, GF_ERR_TIMEOUT);
        members_world_end();
    }
}

/* Either end may say that its large packets do not come to the other; of another pair it means
 * nothing here. */
TEST(an_edge_that_only_large_packets_do_not_pass_names_the_mtu)
{
    static const struct large_case {
        uint32_t by, to, bytes;
        bool named;
    } cases[] = {{2, 1, 9000, true}, {1, 2, 1500, true}, {2, 3, 9000, false}, {2, 1, 0, false}};
    static const struct told at[4] = {LACKS(1), LACKS(2), ENDED(LONG_AGO), IN_MEMORY(1)};
    for (size_t i = 0; i < LENGTH(cases); i++) {
        const struct large_case *c = &cases[i];
        struct gf_error error = {0};
        char text[80];
        members_world_open(4, false, 0);
        members_world_until(GF_OK);
        for (uint32_t rank = 0; rank < 4; rank++) {
            place(rank, 8, 40, GF_OPERATION_STEP, (rank + 1) % 4);
            world.ranks[rank].waits = waits_told(&at[rank]);
        }
        world.ranks[c->by].waits.large_to = c->to;
        world.ranks[c->by].waits.large_bytes = c->bytes;
        (void)attribute(0, &late, &error);
        (void)snprintf(text, sizeof text, "10.0 s; rank 2 is the one to go");
        if (c->named)
            (void)snprintf(text, sizeof text,
                           " (small messages pass, packets of %u bytes do not: MTU?); rank 2",
                           c->bytes);
        if (strstr(error.text, text) == NULL) fail_msg("%zu: %s", i, error.text);
        members_world_end();
    }
}

/* What the coordinator finds out when rank 0 asks: ranks lack a message of a neighbour, but those that have
 * ended all (bits). */
static void edges_make(uint32_t ended, struct gf_error *error_out)
{
    for (uint32_t rank = 0; rank < world.size; rank++) {
        bool has_ended = ((ended >> rank & 1) != 0);
        uint32_t from = (ended == 0) ? (rank + 1) % world.size : rank ^ 1;
        world.ranks[rank].waits = (struct gf_waits){
            .taken = 6, .still_ns = LONG_AGO, .quiet_ns = LONG_AGO, .count = has_ended ? 0 : 1};
        world.ranks[rank].waits.rows[0] = (struct gf_wait){.order = 5,
                                                           .posted = 7,
                                                           .lacked = 7,
                                                           .from = from,
                                                           .to = NOBODY,
                                                           .memory = NOBODY,
                                                           .still_ns = LONG_AGO};
        place(rank, 8, 40, GF_OPERATION_STEP, from);
    }
    (void)attribute(0, &late, error_out);
    for (int turn = 0; turn < 20; turn++) (void)members_world_progress(GF_ERR_TIMEOUT);
}

/* All ranks know whom the next epoch is to be without. */
TEST(without_those_that_are_cut_no_broken_edge_is_left_and_the_others_are_enough)
{
    static const struct {
        const char *name;
        uint32_t world, ended, cut; /* bits */
    } rows[] = {
        {"one_of_two", 2, 2, 2},
        {"one_of_each", 5, 0x1a, 0xa},
        {"half_with_the_lowest_stay", 4, 0xa, 0xa},
        {"none_of_a_circle", 4, 0, 0},
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct gf_error error = {0};
        members_world_open_epoch(rows[i].world, 1);
        members_world_until(GF_OK);
        edges_make(rows[i].ended, &error);
        for (uint32_t rank = 0; rank < rows[i].world; rank++) {
            const struct members_cut *cut = &world.ranks[rank].members->cut;
            uint32_t bits = 0;
            for (uint32_t n = 0; n < cut->count; n++) bits |= 1u << cut->ranks[n];
            if (!cut->told || (bits != rows[i].cut))
                fail_msg("%s, rank %u: %x: %s", rows[i].name, rank, bits, error.text);
        }
        members_world_end();
    }
}

/* All ask at once. To the others go the question and the answer, from each of them what it saw, if it
 * asks, and where it is. */
TEST(a_question_costs_a_rank_two_frames_each_way)
{
    static const uint32_t sizes[] = {2, 3, 8, 16};
    for (size_t i = 0; i < LENGTH(sizes); i++) {
        const uint32_t others = sizes[i] - 1;
        struct gf_error error = {0};
        bool is_over = false;
        members_world_open_epoch(sizes[i], 1);
        members_world_until(GF_OK);
        for (uint32_t rank = 0; rank < sizes[i]; rank++) {
            const struct where at = {8, 40, GF_OPERATION_STEP, (rank + 1) % sizes[i]};
            world.ranks[rank].waits = waits_at(&at);
            place(rank, at.step, at.sequence, at.operation, at.waits_for);
        }
        memset(fake.frames, 0, sizeof fake.frames);
        for (uint32_t turn = 0; (turn < 10000) && !is_over; turn++) {
            world.now_ns += MS;
            is_over = true;
            for (uint32_t rank = 0; rank < sizes[i]; rank++)
                is_over = (gf_members_attribute(world.ranks[rank].members, world.now_ns, &late,
                                                &error) == GF_OK) &&
                          is_over;
        }
        assert_true(is_over);
        assert_int_equal(fake.frames[MEMBERS_ASK], others);
        assert_int_equal(fake.frames[MEMBERS_ERROR], others);
        assert_int_equal(fake.frames[MEMBERS_POSITION], others);
        assert_true(fake.frames[MEMBERS_FAULT] <= others);
        assert_int_equal(fake.frames[MEMBERS_GIVES_UP], 0);
        members_world_end();
    }
}

/* Rank 0 of two lags: without it rank 1 could not go on. */
TEST(nobody_is_cut_where_the_others_would_be_too_few)
{
    struct gf_error error = {0};
    members_world_open_epoch(2, 1);
    members_world_until(GF_OK);
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct where at = {8, 39 + rank, (rank == 0) ? GF_OPERATION_NONE : GF_OPERATION_STEP,
                                 (rank == 0) ? NOBODY : 0};
        world.ranks[rank].waits = waits_at(&at);
        place(rank, at.step, at.sequence, at.operation, at.waits_for);
    }
    (void)attribute(1, &late, &error);
    assert_int_equal(error.peer, 0);
    assert_non_null(strstr(error.text, "it stays: without it the others are too few"));
    assert_true(world.ranks[1].members->cut.told);
    assert_int_equal(world.ranks[1].members->cut.count, 0);
}

TEST(a_circle_is_an_error_that_ends_the_job_the_second_time)
{
    struct gf_error error = {0};
    members_world_open_epoch(3, 1);
    members_world_until(GF_OK);
    edges_make(0, &error);
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_false(gf_members_is_final(world.ranks[rank].members));
    uint64_t step = world.ranks[0].members->circle_step; /* as an epoch later */
    members_world_end();
    members_world_open_epoch(3, 2);
    members_world_until(GF_OK);
    world.ranks[0].members->circle_step = step;
    edges_make(0, &error);
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_true(gf_members_is_final(world.ranks[rank].members));
    assert_non_null(strstr(error.text, "for the second time"));
    assert_non_null(strstr(error.text, "0 for 1, 1 for 2, 2 for 0"));
}

TEST(a_stopped_coordinator_is_found_by_each_rank)
{
    struct gf_error error = {0};
    members_world_open(3, false, 0);
    members_world_until(GF_OK);
    world.ranks[0].stopped = true;
    assert_true(attribute(1, &late, &error) == SECOND);
    assert_int_equal(error.code, GF_ERR_TIMEOUT);
    assert_int_equal(error.peer, 0);
    assert_non_null(strstr(error.text, "did not answer for 1.0 s"));
    world.ranks[0].stopped = false; /* runs on and is told */
    for (int turn = 0; turn < 20; turn++) (void)members_world_progress(GF_ERR_PEER);
    assert_int_equal(error_of(0)->code, GF_ERR_PEER);
    assert_int_equal(error_of(0)->peer, 1);
    assert_int_equal(error_of(2)->code, GF_ERR_PEER);
}

TEST(a_rank_that_dies_during_the_inquiry_is_the_culprit)
{
    struct gf_error error = {0};
    members_world_open(3, false, 0);
    members_world_until(GF_OK);
    world.ranks[2].stopped = true;
    assert_int_equal(gf_members_attribute(world.ranks[1].members, world.now_ns, &late, &error),
                     GF_AGAIN);
    assert_false(members_world_progress(GF_ERR_PEER));
    fake_cut(&fake, 2, "timed out");
    (void)attribute(1, &late, &error);
    assert_int_equal(error.code, GF_ERR_PEER);
    assert_int_equal(error.peer, 2);
}

/* One end of it is named: not the coordinator, else the higher one. */
TEST(a_failed_link_between_live_ranks_is_told_as_seen)
{
    static const struct {
        uint32_t asker, peer, named;
    } rows[] = {{1, 2, 2}, {2, 1, 2}, {2, 0, 2}, {0, 1, 1}, {1, 1, 1}, {1, NOBODY, NOBODY}};
    for (size_t i = 0; i < LENGTH(rows); i++) {
        const struct gf_error seen = {.code = GF_ERR_LINK,
                                      .peer = rows[i].peer,
                                      .operation = GF_OPERATION_ALLREDUCE,
                                      .step = 3,
                                      .tensor = GF_TENSOR_NONE,
                                      .text = "send: Input/output error"};
        struct gf_error error = {0};
        char text[64];
        members_world_open(3, false, 0);
        members_world_until(GF_OK);
        (void)attribute(rows[i].asker, &seen, &error);
        for (int turn = 0; turn < 20; turn++) (void)members_world_progress(GF_ERR_LINK);
        (void)snprintf(text, sizeof text, "rank %u: send: Input/output error", rows[i].asker);
        assert_all_failed(GF_ERR_LINK, rows[i].named, text);
        assert_int_equal(error.operation, GF_OPERATION_ALLREDUCE);
        members_world_end();
    }
}

TEST(a_world_of_one_names_what_it_saw)
{
    struct gf_error error = {0};
    members_world_open(1, false, 0);
    assert_int_equal(gf_members_attribute(world.ranks[0].members, world.now_ns, &late, &error),
                     GF_OK);
    assert_int_equal(error.code, GF_ERR_TIMEOUT);
    assert_string_equal(error.text, late.text);
    /* errors stick */
    assert_int_equal(gf_members_leave(world.ranks[0].members, world.now_ns), GF_ERR_TIMEOUT);
    assert_int_equal(gf_members_poll(world.ranks[0].members, world.now_ns), GF_ERR_TIMEOUT);
}

TEST(malformed_frames_name_their_sender)
{
    for (uint32_t kind = 0; kind < 20; kind++) {
        for (uint32_t to = 0; to < 2; to++) {
            unsigned char junk[7] = {0};
            uint32_t from = 1 - to;
            /* of an ended view: not read */
            bool late = (kind >= MEMBERS_START_VIEW) && (kind <= MEMBERS_ACCEPT);
            bool valid =
                late || ((to == 0) && (kind == 10)) || ((to == 1) && ((kind == 3) || (kind == 5)));
            members_world_open(2, false, 0);
            members_world_until(GF_OK);
            struct gf_rendezvous *end = &fake.ends[from].base;
            assert_int_equal(end->driver->send(end, to, kind, junk, sizeof junk), GF_OK);
            gf_status status = gf_members_poll(world.ranks[to].members, world.now_ns);
            assert_int_equal(status, valid ? GF_OK : GF_ERR_PEER);
            if (!valid) assert_int_equal(error_of(to)->peer, from);
            members_world_end();
        }
    }
}

/* Found by fuzz_members. */
TEST(an_error_that_comes_without_a_text_gets_one)
{
    const struct gf_error silent = {.code = GF_ERR_ABORTED, .peer = 1};
    members_world_open(3, false, 0);
    members_world_until(GF_OK);
    gf_members_tell(world.ranks[1].members, &silent);
    world.ranks[1].stopped = true;
    members_world_until(GF_ERR_PEER);
    assert_all_failed(GF_ERR_PEER, 1, "rank 1 gave up: no reason was given");
    members_world_end();
    members_world_open(3, false, 0);
    members_world_until(GF_OK);
    gf_members_fail(world.ranks[0].members, &silent, &silent);
    world.ranks[0].stopped = true;
    (void)gf_members_poll(world.ranks[0].members, world.now_ns);
    members_world_until(GF_ERR_ABORTED);
    assert_string_equal(error_of(2)->text, "no reason was given");
}

/* ---- who comes in ---- */

TEST(who_rejoins_waits_where_all_fits)
{
    static const struct {
        const char *name;
        bool joins, begun, leaves;
        uint32_t id_count, first_world;
        bool same, is_new, unused, valid, waits;
    } rows[] = {
        {"valid", true, true, false, 3, 3, true, false, false, true, true},
        {"a_connection_that_did_not_say_so", false, true, false, 3, 3, true, false, false, false,
         false},
        {"told_of_another_world", true, true, false, 3, 2, true, false, false, true, false},
        {"told_of_another_most", true, true, false, 4, 3, true, false, false, true, false},
        {"before_the_job_has_begun", true, false, false, 3, 3, true, false, false, true, false},
        {"while_the_job_ends", true, true, true, 3, 3, true, false, false, true, false},
        {"given_other_things", true, true, false, 3, 3, false, false, false, true, false},
        {"new", true, true, false, 3, 3, true, true, true, true, true},
        {"new_with_an_id_that_was_used", true, true, false, 3, 3, true, true, false, true, false},
        {"started_anew_before_an_epoch_had_it", true, true, false, 3, 3, true, false, true, true,
         true},
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        unsigned char payload[1024];
        struct gf_put put = {payload, sizeof payload};
        struct gf_get get = {.at = payload};
        members_world_open_epoch(3, 1);
        members_world_until(GF_OK);
        struct gf_members *members = world.ranks[0].members;
        struct gf_members *other = world.ranks[1].members;
        if (!rows[i].same) other->setup.offer.config_hash++;
        if (!rows[i].begun) members->view.epoch.epoch = 0;
        members->leaving = rows[i].leaves;
        members->table[1].state = rows[i].joins ? MEMBER_RECOVERING : MEMBER_EXPECTED;
        if (rows[i].unused) memset(members->view.used, 0, sizeof members->view.used);
        /* what was used is known all the same */
        members->view.epoch.bits[0] &= (unsigned char)~(1u << 1);
        gf_put_u32(&put, rows[i].id_count);
        gf_put_u32(&put, rows[i].first_world);
        gf_put_u32(&put, rows[i].is_new ? 1 : 0);
        gf_members_offer_put(&put, other);
        gf_put_u32(&put, other->incarnation);
        gf_put_u32(&put, 0); /* the view that it answers: epoch and number */
        gf_put_u32(&put, 0);
        get.left = (uint32_t)(sizeof payload - put.left);
        bool valid = gf_view_frame(members, 1, MEMBERS_JOIN, &get);
        bool waits = (members->table[1].state == MEMBER_WAITS);
        if ((valid != rows[i].valid) || (waits != rows[i].waits)) print_error("%s\n", rows[i].name);
        assert_int_equal(valid, rows[i].valid);
        assert_int_equal(waits, rows[i].waits);
        members_world_end();
    }
}

/* A commit took in a process of member id 1: this epoch's, or that of the one before, which is not
 * of this. Is it the one that waits here? */
TEST(who_waits_is_told_or_refused_by_the_process_that_a_commit_names)
{
    static const struct {
        const char *name;
        bool same, is_new, before;
        member_state then;
        bool owed;
    } rows[] = {
        {"the_one_that_it_names", true, true, false, MEMBER_EXPECTED, true},
        {"started_anew_since", false, false, false, MEMBER_WAITS, false},
        {"another_that_claims_the_id", false, true, false, MEMBER_RECOVERING, false},
        {"the_one_that_the_last_named", true, true, true, MEMBER_WAITS, false},
        {"another_than_the_last_named", false, true, true, MEMBER_RECOVERING, false},
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        members_world_open_epoch(3, 1);
        members_world_until(GF_OK);
        struct gf_members *members = world.ranks[0].members;
        struct member *member = &members->table[1];
        struct members_list *list = &members->view.current.list;
        *list = members->view.epoch;
        list->taken_count = 1;
        list->taken[0] = 1;
        list->incarnation[0] = 7;
        if (rows[i].before) {
            gf_view_epoch_take(members);
            list->taken_count = 0;
            list->bits[0] &= (unsigned char)~(1u << 1);
        }
        member->state = MEMBER_WAITS;
        member->is_new = rows[i].is_new;
        member->incarnation = rows[i].same ? 7 : 9;
        members->view.state = VIEW_COLLECT;
        gf_view_epoch_take(members);
        bool owed = (member->owed & (1u << MEMBERS_COMMIT)) != 0;
        if ((member->state != rows[i].then) || (owed != rows[i].owed))
            print_error("%s\n", rows[i].name);
        assert_int_equal(member->state, rows[i].then);
        assert_int_equal(owed, rows[i].owed);
        members_world_end();
    }
}

/* Whatever its kind: neither side fails, for it is no mistake of the peer's to be late. */
TEST(a_frame_of_another_epoch_is_dropped)
{
    static const struct {
        uint32_t to, kind;
    } rows[] = {{0, MEMBERS_OFFER},
                {0, MEMBERS_GIVES_UP},
                {0, MEMBERS_BYE},
                {1, MEMBERS_ERROR},
                {1, MEMBERS_ALL_GONE}};
    members_world_open_epoch(3, 1);
    members_world_until(GF_OK);
    for (size_t i = 0; i < LENGTH(rows); i++) {
        for (uint32_t epoch = 0; epoch < 3; epoch += 2)
            assert_true(fake_push(&fake.ends[rows[i].to],
                                  (struct gf_rendezvous_event){
                                      .kind = GF_RENDEZVOUS_FRAME,
                                      .rank = 1 - rows[i].to,
                                      .frame_kind = rows[i].kind | (epoch << MEMBERS_KIND_BITS)}));
        assert_true(members_world_progress(GF_OK));
    }
    assert_false(world.ranks[0].members->table[1].leaves);
}

TEST_EACH(NULL, members_world_end)
