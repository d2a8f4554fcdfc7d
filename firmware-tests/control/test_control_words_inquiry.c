/* What a coordinator asks after a fault, and what it finds from the answers. */
#include "firmware-tests/support/control_words_suite.h"

/* What was said as an answer is not changed by what is said later. */
TEST(an_answer_is_of_one_moment)
{
    struct control_report report = {
        .inquiry = 1, .step = 5, .waits_for = 1, .tensor = GF_TENSOR_NONE};
    words_all_begun(3, 3, true);
    words_say_fault(0, 1);
    words_turn();
    words_discard();
    report.edges.count = 1;
    report.edges.peers[0] = 1;
    control_words_status(&words.peers[0], 1, &report);
    words_turn();
    words_say_status(0, 1, 6, 0);
    words_turn();
    assert_int_equal(words.world.coordinator->rows[0].report.edges.count, 1);
    assert_int_equal(words.world.coordinator->rows[0].report.step, 5);
    control_world_close(&words.world);
}

/* Four ranks of which one has died: the generation of the other three has begun. */
static void three_of_four_begun(void)
{
    static const uint32_t ids[3] = {0, 2, 3};
    words_all_begun(4, 4, true);
    words_dies(1);
    for (uint32_t i = 0; i < 3; i++) words_say_ready(ids[i], 1, 5, false, false);
    words_turn();
    words_discard();
    words_all_endpoints(2, ids, 3);
}

TEST(a_generation_of_fewer_ranks_counts_each_once)
{
    three_of_four_begun();
    control_words_bye(&words.peers[0], 2, 6);
    words_spend(1010 * CONTROL_MS);
    words_heard(0, "closed 0 step 6; waiting 0 awaits 1 and 2 in all, step 0, between operations");
    control_world_close(&words.world);
    three_of_four_begun();
    words_spend(3 * SECOND);
    words_say_status(3, 2, 5, 0);
    words_turn();
    words_say_fault(0, 2);
    words_turn();
    words_say_position(0, 2, 1);
    words_say_position(2, 2, 1);
    words_spend(800 * CONTROL_MS);
    words_found(
        "rank 2 (started as rank 3) does not answer (asked 0.8 s ago): it is stopped or does not "
        "poll; last heard of "
        "0.8 s ago in step 5, between operations");
    struct gf_coordinator_status status;
    gf_coordinator_status(words.world.coordinator, &status);
    assert_null(strstr(status.error.text, "silent ranks"));
    control_world_close(&words.world);
}

/* All answer until there is a finding. */
static void all_answer(const uint32_t *ids, uint32_t count, uint32_t number)
{
    struct gf_coordinator_status status = {.state = GF_COORDINATOR_INQUIRE};
    for (uint32_t i = 0; (i < 1000) && (status.state == GF_COORDINATOR_INQUIRE); i++) {
        for (uint32_t rank = 0; rank < count; rank++) {
            struct control_report report = {.inquiry = words.world.coordinator->inquiry,
                                            .sequence = 9,
                                            .waits_for = (rank + 1) % count,
                                            .tensor = GF_TENSOR_NONE};
            control_words_status(&words.peers[ids[rank]], number, &report);
        }
        words_turn();
        words_discard();
        gf_coordinator_status(words.world.coordinator, &status);
    }
}

TEST(nobody_is_at_fault_twice_in_a_step)
{
    static const uint32_t ids[3] = {0, 2, 3};
    three_of_four_begun();
    words_say_fault(0, 2);
    words_turn();
    all_answer(ids, 3, 2);
    assert_int_equal(words.world.coordinator->inquiry, 25); /* they were asked again and again */
    words_found(
        "ranks wait for each other, and no way is known to be cut (rank 0 asked; 0 for 1, 1 for "
        "2, 2 for 0)");
    for (uint32_t i = 0; i < 3; i++) words_say_ready(ids[i], 2, 5, false, false);
    words_turn();
    words_discard();
    words_all_endpoints(3, ids, 3);
    words_say_fault(2, 3);
    words_turn();
    all_answer(ids, 3, 3);
    words_found("ranks wait for each other, in this step for the second time");
    words_turn();
    assert_int_equal(words.polled, GF_ERR_TIMEOUT);
    control_world_close(&words.world);
}

TEST(an_edge_that_both_ends_say_is_one_edge)
{
    words_all_begun(4, 4, true);
    words_say_fault(0, 1);
    words_turn();
    words_discard();
    words_say_edges(0, 1, 1, 9, 1); /* there is no rank 9 */
    words_say_edges(1, 1, 1, 1, 0); /* nor an edge to itself */
    words_say_edges(2, 1, 1, 3, 9);
    words_say_edges(3, 1, 1, 9, 9);
    words_spend(1600 * CONTROL_MS);
    words_found(
        "the connection between ranks 2 and 3 is broken: no step ends; rank 3 and 1 more is to go");
    control_world_close(&words.world);
}

/* Ranks 0 and 1 came in with the generation, and lose the one that was there before. */
TEST(the_last_one_that_has_the_weights_stays)
{
    static const uint32_t ids[3] = {0, 1, 2};
    words_all_begun(3, 3, true);
    words_dies(0);
    words_dies(1);
    words_say_ready(2, 1, 5, false, false);
    for (uint32_t id = 0; id < 2; id++) {
        words.peers[id].channel = NULL;
        words.peers[id].offer.process = 800 + id;
        control_words_come(&words.world, &words.peers[id]);
    }
    words_turn();
    words_discard();
    words_all_endpoints(2, ids, 3);
    words_say_fault(2, 2);
    words_turn();
    words_discard();
    words_say_edges(0, 2, 1, 2, 9);
    words_say_edges(1, 2, 1, 2, 9);
    words_say_edges(2, 2, 1, 0, 1);
    words_spend(1600 * CONTROL_MS);
    words_found("; rank 1 and 1 more is to go");
    control_world_close(&words.world);
}

/* Who comes back while it is asked has a quarter of exchange.timeout to answer. */
TEST(who_comes_back_in_an_inquiry_is_asked_anew)
{
    struct gf_coordinator_status status;
    words_all_begun(3, 3, true);
    words.peers[1].offer.standing =
        (struct control_standing){.generation = 1, .rank = 1, .world = 3};
    words_say_fault(0, 1);
    words_turn();
    words_say_position(0, 1, 1);
    words_say_position(2, 1, 1);
    words_spend(600 * CONTROL_MS);
    words_breaks_and_comes(1);
    words_spend(400 * CONTROL_MS);
    gf_coordinator_status(words.world.coordinator, &status);
    assert_int_equal(status.state, GF_COORDINATOR_INQUIRE);
    words_spend(150 * CONTROL_MS);
    gf_coordinator_status(words.world.coordinator, &status);
    assert_int_equal(status.state, GF_COORDINATOR_REGROUP);
    assert_int_equal(status.error.peer, 1);
    control_world_close(&words.world);
}

TEST(what_a_rank_lacks_is_its_own_fault)
{
    for (uint32_t i = 0; i < 6; i++) {
        const bool host = (i >= 3);
        const uint32_t rank = i % 3;
        char text[32];
        struct control_report report = {
            .inquiry = 1,
            .tensor = GF_TENSOR_NONE,
            .edges = {.code = GF_ERR_SYSTEM, .peer = GF_RANK_NONE, .text = "no descriptors"}};
        struct gf_coordinator_status status;
        words_all_begun(3, 4, true);
        if (host) words.world.coordinator->setup.host_id = rank;
        words_say_fault((rank + 1) % 3, 1);
        words_turn();
        words_say_position((rank + 1) % 3, 1, 1);
        words_say_position((rank + 2) % 3, 1, 1);
        control_words_status(&words.peers[rank], 1, &report);
        words_turn();
        (void)snprintf(text, sizeof text, "rank %u: no descriptors", rank);
        words_found(text);
        gf_coordinator_status(words.world.coordinator, &status);
        assert_int_equal(status.error.code, GF_ERR_SYSTEM);
        assert_int_equal(status.error.peer, rank);
        assert_int_equal(status.state, host ? GF_COORDINATOR_OVER : GF_COORDINATOR_REGROUP);
        assert_int_equal(words.world.coordinator->rows[rank].cut, !host);
        control_world_close(&words.world);
    }
}

TEST(a_report_with_a_code_of_no_link_is_malformed)
{
    struct control_report report = {.inquiry = 1, .edges = {.code = GF_ERR_DATA}};
    words_all_begun(2, 2, true);
    control_words_status(&words.peers[1], 1, &report);
    words_turn();
    words_heard(1, "ended");
    control_world_close(&words.world);
}

/* Two answer at once, and rank 1 the first question, and one in `every` of the first `questions`.
 * It asks for that patience with its first answer. */
static gf_status rank_1_is_asked(uint32_t number, uint32_t questions, uint32_t every,
                                 uint64_t patience_ns)
{
    struct gf_coordinator_status status = {.state = GF_COORDINATOR_INQUIRE};
    struct control_fault fault = {.error = {.code = GF_ERR_TIMEOUT,
                                            .peer = GF_RANK_NONE,
                                            .step = number,
                                            .tensor = GF_TENSOR_NONE,
                                            .text = "no step ends"}};
    control_words_fault(&words.peers[0], number, &fault);
    words_turn();
    const uint32_t before = words.world.coordinator->inquiry - 1;
    struct control_report first = {.inquiry = before + 1,
                                   .step = 5,
                                   .sequence = 9,
                                   .patience_ns = patience_ns,
                                   .waits_for = 2,
                                   .tensor = GF_TENSOR_NONE};
    control_words_status(&words.peers[1], number, &first);
    for (uint32_t i = 0; (i < 1000) && (status.state == GF_COORDINATOR_INQUIRE); i++) {
        const uint32_t inquiry = words.world.coordinator->inquiry;
        const uint32_t question = inquiry - before;
        words_say_position(0, number, inquiry);
        words_say_position(2, number, inquiry);
        if ((question % every == 0) && (question <= questions))
            words_say_position(1, number, inquiry);
        words_turn();
        words_discard();
        gf_coordinator_status(words.world.coordinator, &status);
    }
    return (status.error.peer == 1) ? GF_OK : GF_AGAIN;
}

static gf_status rank_1_answers(uint32_t questions, uint32_t every)
{
    words_all_begun(3, 3, true);
    return rank_1_is_asked(1, questions, every, 0);
}

TEST(who_is_late_in_nearly_all_answers_does_not_poll)
{
    assert_int_equal(rank_1_answers(0, 1), GF_OK);
    words_found("rank 1 is behind in step 5, between operations: computing");
    assert_true(words.world.coordinator->rows[1].cut);
    control_world_close(&words.world);
    assert_int_equal(rank_1_answers(100, 2), GF_AGAIN);
    control_world_close(&words.world);
    assert_int_equal(rank_1_answers(9, 1), GF_AGAIN); /* of 24, of which 18 are nearly all */
    control_world_close(&words.world);
    assert_int_equal(rank_1_answers(5, 1), GF_OK);
    control_world_close(&words.world);
}

/* A rank was late in two thirds of the rounds of two inquiries each: in neither in nearly all. */
TEST(late_answers_of_an_inquiry_before_do_not_count)
{
    static const uint32_t ids[3] = {0, 1, 2};
    assert_int_equal(rank_1_answers(9, 1), GF_AGAIN);
    for (uint32_t id = 0; id < 3; id++) words_say_ready(id, 1, 5, false, false);
    words_turn();
    words_all_endpoints(2, ids, 3);
    assert_int_equal(rank_1_is_asked(2, 9, 1, 0), GF_AGAIN);
    words_found("ranks wait for each other, and no way is known to be cut (rank 0 asked");
    assert_false(words.world.coordinator->rows[1].cut);
    control_world_close(&words.world);
}

TEST(who_asked_for_patience_is_not_late)
{
    words_all_begun(3, 3, true);
    assert_int_equal(rank_1_is_asked(1, 0, 1, 2 * SECOND), GF_AGAIN);
    words_found("ranks wait for each other, and no way is known to be cut (rank 0 asked");
    assert_false(words.world.coordinator->rows[1].cut);
    control_world_close(&words.world);
}

TEST(nobody_was_at_fault_is_forgotten_once_one_is_cut)
{
    words_all_begun(3, 3, true);
    words.world.coordinator->nobody_step = 6;
    words_dies(2);
    words_say_ready(0, 1, 5, false, false);
    words_say_ready(1, 1, 5, false, false);
    words_turn();
    for (uint32_t id = 0; id < 2; id++) control_words_endpoint(&words.peers[id], 2, id);
    words_turn();
    assert_int_equal(words.world.coordinator->number, 2);
    assert_int_equal(words.world.coordinator->nobody_step, 0);
    control_world_close(&words.world);
}

/* What three ranks answer, and who is behind; GF_RANK_NONE: nobody is known to be. */
static const struct lag_row {
    const char *name;
    uint32_t free_ms[3]; /* for so long it has waited for nobody, */
    uint32_t begun[3];   /* and it has begun so many operations */
    uint32_t culprit;
} lag_rows[] = {
    {"the_first", {1000, 0, 0}, {8, 9, 9}, 0},
    {"the_last", {0, 0, 1000}, {9, 9, 8}, 2},
    {"the_one_that_has_begun_fewest", {1500, 2000, 1000}, {8, 7, 9}, 1},
    {"of_equals_the_first", {0, 1000, 1000}, {9, 7, 7}, 1},
    {"one_that_waited_a_moment_ago", {999, 0, 0}, {8, 9, 9}, GF_RANK_NONE},
    {"nobody_is_further", {1000, 1000, 1000}, {9, 9, 9}, GF_RANK_NONE},
};

/* .. is told with where it is, and not where the one was that asked. */
TEST(who_computes_and_is_behind_is_at_fault)
{
    for (uint32_t i = 0; i < LENGTH(lag_rows); i++) {
        const struct lag_row *row = &lag_rows[i];
        char text[120];
        struct gf_coordinator_status status;
        words_all_begun(3, 4, true);
        words_say_fault(2, 1);
        words_turn();
        for (uint32_t rank = 0; rank < 3; rank++) {
            struct control_report report = {.inquiry = 1,
                                            .step = 7 + rank,
                                            .operation = GF_OPERATION_ALLREDUCE,
                                            .tensor = rank,
                                            .sequence = row->begun[rank],
                                            .unmoved_ns = 1200 * CONTROL_MS,
                                            .free_ns = row->free_ms[rank] * CONTROL_MS,
                                            .waits_for = (rank + 1) % 3};
            control_words_status(&words.peers[rank], 1, &report);
        }
        words_turn();
        gf_coordinator_status(words.world.coordinator, &status);
        bool is_found = (status.state == GF_COORDINATOR_REGROUP);
        if (is_found != (row->culprit != GF_RANK_NONE)) fail_msg("%s", row->name);
        control_world_close(&words.world);
        if (!is_found) continue;
        (void)snprintf(text, sizeof text,
                       "rank %u is behind in step %u, operation allreduce, buffer 0, tensor %u: "
                       "computing; last moved 1.2 s ago (rank 2 asked)",
                       row->culprit, 7 + row->culprit, row->culprit);
        if (strcmp(status.error.text, text) != 0) fail_msg("%s: %s", row->name, status.error.text);
        assert_int_equal(status.error.code, GF_ERR_TIMEOUT);
        assert_int_equal(status.error.peer, row->culprit);
        assert_int_equal(status.error.step, 7 + row->culprit);
        assert_int_equal(status.error.operation, GF_OPERATION_ALLREDUCE);
        assert_int_equal(status.error.tensor, row->culprit);
    }
}

/* It computed in its step, as it said last, and has ended it since: the others stand still. */
TEST(who_is_ready_is_not_behind)
{
    struct gf_coordinator_status status = {.state = GF_COORDINATOR_INQUIRE};
    struct control_report report = {
        .step = 5, .sequence = 8, .free_ns = SECOND, .waits_for = GF_RANK_NONE};
    words_all_begun(3, 4, true);
    control_words_status(&words.peers[1], 1, &report);
    words_say_ready(1, 1, 5, true, true);
    words_say_fault(0, 1);
    words_turn();
    for (uint32_t i = 0; (i < 1000) && (status.state == GF_COORDINATOR_INQUIRE); i++) {
        words_say_position(0, 1, words.world.coordinator->inquiry);
        words_say_position(2, 1, words.world.coordinator->inquiry);
        words_turn();
        words_discard();
        gf_coordinator_status(words.world.coordinator, &status);
    }
    words_found("ranks wait for each other, and no way is known to be cut (rank 0 asked");
    assert_int_equal(status.error.peer, GF_RANK_NONE);
    assert_false(words.world.coordinator->rows[1].cut);
    control_world_close(&words.world);
}

TEST(who_is_silent_is_told_with_where_it_was)
{
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct control_report report = {
            .step = 7, .operation = GF_OPERATION_BARRIER, .tensor = 2, .waits_for = GF_RANK_NONE};
        struct gf_coordinator_status status;
        char text[240];
        words_all_begun(3, 4, true);
        control_words_status(&words.peers[rank], 1, &report);
        words_say_fault((rank + 1) % 3, 1);
        words_turn();
        for (uint32_t i = 1; i < 3; i++) words_say_position((rank + i) % 3, 1, 1);
        words_spend(800 * CONTROL_MS);
        gf_coordinator_status(words.world.coordinator, &status);
        (void)snprintf(text, sizeof text,
                       "rank %u does not answer (asked 0.8 s ago): it is stopped or does not poll; "
                       "last heard of 0.8 s ago in step 7, operation barrier, buffer 0, tensor 2",
                       rank);
        assert_string_equal(status.error.text, text);
        assert_int_equal(status.error.code, GF_ERR_TIMEOUT);
        assert_int_equal(status.error.peer, rank);
        assert_int_equal(status.error.step, 7);
        assert_int_equal(status.error.operation, GF_OPERATION_BARRIER);
        assert_int_equal(status.error.tensor, 2);
        assert_true(words.world.coordinator->rows[rank].out);
        control_world_close(&words.world);
    }
}

/* Two ranks tell of their edges to rank 2: what a kernel said is told, of two such the first. */
static const struct reporter_row {
    int64_t codes[2]; /* errno, or 0 */
    const char *text;
} reporter_rows[] = {
    {{0, 0}, "rank 0 lost rank 2; rank 2 is to go"},
    {{0, 111}, "rank 1 lost rank 2; rank 2 is to go"},
    {{104, 111}, "rank 0 lost rank 2; rank 2 is to go"},
};

TEST(of_what_links_say_of_a_culprit_that_of_a_kernel_is_told)
{
    for (uint32_t i = 0; i < LENGTH(reporter_rows); i++) {
        const struct reporter_row *row = &reporter_rows[i];
        const struct gf_error *error;
        words_all_begun(3, 4, true);
        words_say_fault(0, 1);
        words_turn();
        for (uint32_t rank = 0; rank < 2; rank++) {
            struct control_report report = {.inquiry = 1, .tensor = GF_TENSOR_NONE};
            report.edges = (struct control_edges){.count = 1,
                                                  .peers = {2},
                                                  .code = GF_ERR_LINK,
                                                  .peer = 2,
                                                  .foreign_code = row->codes[rank],
                                                  .foreign_call = "connect"};
            (void)snprintf(report.edges.text, sizeof report.edges.text, "rank %u lost rank 2",
                           rank);
            control_words_status(&words.peers[rank], 1, &report);
        }
        words_say_position(2, 1, 1);
        words_turn();
        error = &words.world.coordinator->error;
        assert_string_equal(error->text, row->text);
        assert_int_equal(error->code, GF_ERR_LINK);
        assert_int_equal(error->peer, 2);
        assert_int_equal(error->foreign_code, row->codes[0] ? row->codes[0] : row->codes[1]);
        assert_string_equal(error->foreign_call, "connect");
        control_world_close(&words.world);
    }
}

/* An edge may be either end's, until no other one has come for 1.5 s: a host may lose several. */
TEST(each_edge_that_comes_is_given_time_for_the_next)
{
    words_all_begun(5, 6, true);
    words_say_fault(4, 1);
    words_turn();
    for (uint32_t i = 0; i < 48; i++) { /* 2.4 s, of which the second edge takes 1 s to come */
        const uint32_t inquiry = words.world.coordinator->inquiry;
        words_say_edges(0, 1, inquiry, 1, 9);
        words_say_edges(1, 1, inquiry, 0, 9);
        words_say_edges(2, 1, inquiry, (i < 20) ? 9 : 3, 9);
        words_say_edges(3, 1, inquiry, (i < 20) ? 9 : 2, 9);
        words_say_edges(4, 1, inquiry, 9, 9);
        words_spend(50 * CONTROL_MS);
        words_discard();
        assert_int_equal(words.world.coordinator->state, GF_COORDINATOR_INQUIRE);
    }
    words_spend(200 * CONTROL_MS);
    words_found("the connection between ranks 2 and 3 is broken: no step ends; rank 3 and 1 more");
    assert_true(words.world.coordinator->rows[1].cut && words.world.coordinator->rows[3].cut);
    control_world_close(&words.world);
}

/* A question that did not leave is not asked once there is a finding. */
TEST(nobody_is_asked_after_a_finding)
{
    words_all_begun(3, 4, true);
    words.world.room = 1;
    words_say_ready(1, 1, 5, true, false);
    words_spend(1010 * CONTROL_MS); /* WAITING fills it */
    words_say_fault(0, 1);
    words_turn();
    words_dies(2);
    words_heard(1, "waiting 0");
    words_turn();
    words_heard(1, "");
    control_world_close(&words.world);
}

/* Once a link knows something the others have four more rounds for it. An edge to a rank that is
 * not there is no edge, so no further ones are awaited. */
TEST(an_edge_that_explains_nothing_ends_the_rounds_sooner)
{
    static const uint32_t nobody[] = {9, 3}; /* three ranks: 3 is the first that is not there */
    for (uint32_t row = 0; row < LENGTH(nobody); row++) {
        struct gf_coordinator_status status = {.state = GF_COORDINATOR_INQUIRE};
        words_all_begun(3, 4, true);
        words_say_fault(0, 1);
        words_turn();
        for (uint32_t i = 0; (i < 1000) && (status.state == GF_COORDINATOR_INQUIRE); i++) {
            for (uint32_t rank = 0; rank < 3; rank++)
                words_say_edges(rank, 1, words.world.coordinator->inquiry, nobody[row],
                                (rank == 2) ? 8 : 9);
            words_turn();
            words_discard();
            gf_coordinator_status(words.world.coordinator, &status);
        }
        assert_int_equal(words.world.coordinator->inquiry, 6);
        words_found("ranks wait for each other, and no way is known to be cut (rank 0 asked; 0 for "
                    "0");
        control_world_close(&words.world);
    }
}

/* All ranks answer that they wait for nobody, and are as far; `seen` is what rank 1 saw. */
static void nobody_is_found(const struct gf_error *seen)
{
    struct control_fault fault = {.error = *seen};
    words_all_begun(3, 4, true);
    control_words_fault(&words.peers[1], 1, &fault);
    words_turn();
    for (uint32_t i = 0; (i < 1000) && (words.world.coordinator->error.code == GF_OK); i++) {
        struct control_report report = {.inquiry = words.world.coordinator->inquiry,
                                        .waits_for = GF_RANK_NONE,
                                        .tensor = GF_TENSOR_NONE};
        for (uint32_t id = 0; id < 3; id++) control_words_status(&words.peers[id], 1, &report);
        words_turn();
        words_discard();
    }
}

/* Where nobody is at fault it is told where the first one was, and what a link saw. */
TEST(where_nobody_is_at_fault_what_was_seen_is_told)
{
    static const struct {
        struct gf_error seen;
        const char *text;
    } rows[] = {
        {{.code = GF_ERR_TIMEOUT, .peer = 2, .text = "no step ends"},
         "ranks wait for each other, and no way is known to be cut (rank 1 asked; )"},
        {{.code = GF_ERR_LINK, .peer = GF_RANK_NONE, .text = "the device is gone"},
         "rank 1: the device is gone"},
    };
    for (uint32_t i = 0; i < LENGTH(rows); i++) {
        struct gf_error seen = rows[i].seen;
        const struct gf_error *error;
        seen.step = 5;
        seen.operation = GF_OPERATION_ALLREDUCE;
        seen.tensor = 3;
        nobody_is_found(&seen);
        error = &words.world.coordinator->error;
        assert_string_equal(error->text, rows[i].text);
        assert_int_equal(error->code, seen.code);
        assert_int_equal(error->peer, GF_RANK_NONE);
        assert_int_equal(error->step, 5);
        assert_int_equal(error->operation, GF_OPERATION_ALLREDUCE);
        assert_int_equal(error->tensor, 3);
        assert_int_equal(words.world.coordinator->state, GF_COORDINATOR_REGROUP);
        control_world_close(&words.world);
    }
}

/* A rank has closed after five steps: who is in a step after these can't end it. */
TEST(who_has_closed_is_at_fault_for_a_later_step)
{
    for (uint32_t step = 4; step < 7; step++) {
        struct control_fault fault = {.error = {.code = GF_ERR_TIMEOUT,
                                                .peer = GF_RANK_NONE,
                                                .step = step,
                                                .tensor = GF_TENSOR_NONE,
                                                .text = "no step ends"}};
        struct control_report report = {
            .inquiry = 1, .step = step, .waits_for = 1, .tensor = GF_TENSOR_NONE};
        struct gf_coordinator_status status;
        char text[120];
        words_all_begun(3, 4, true);
        control_words_bye(&words.peers[1], 1, 5);
        control_words_fault(&words.peers[2], 1, &fault);
        words_turn();
        words_say_position(0, 1, 1);
        control_words_status(&words.peers[2], 1, &report);
        words_turn();
        gf_coordinator_status(words.world.coordinator, &status);
        control_world_close(&words.world);
        assert_int_equal(status.error.code, (step < 5) ? GF_OK : GF_ERR_PEER);
        if (step < 5) continue;
        (void)snprintf(text, sizeof text,
                       "rank 1 closed its context after 5 steps, and rank 2 is in step %u, between "
                       "operations",
                       step);
        assert_string_equal(status.error.text, text);
        assert_int_equal(status.error.peer, 1);
        assert_int_equal(status.error.step, step);
    }
}

/* Its connection breaks in an inquiry: it may dial again for exchange.timeout after its last word,
 * where others are given three eighths of that. */
TEST(who_is_away_in_an_inquiry_is_awaited)
{
    static const struct {
        uint64_t silent_ms, away_ms; /* before it broke, and then */
    } rows[] = {{0, 2000}, {1000, 1000}, {100, 1900}};
    for (uint32_t i = 0; i < 3 * LENGTH(rows); i++) {
        const uint32_t away = i % 3;
        words_all_begun(3, 4, true);
        words_spend(3 * SECOND);
        words_say_status(away, 1, 5, 0);
        words_turn();
        if (rows[i / 3].silent_ms > 0) words_spend(rows[i / 3].silent_ms * CONTROL_MS);
        words_say_fault((away + 1) % 3, 1);
        words_turn();
        words_breaks(away);
        words_say_position((away + 1) % 3, 1, 1);
        words_say_position((away + 2) % 3, 1, 1);
        words_spend((rows[i / 3].away_ms - 20) * CONTROL_MS);
        assert_int_equal(words.world.coordinator->state, GF_COORDINATOR_INQUIRE);
        words_spend(100 * CONTROL_MS);
        assert_int_equal(words.world.coordinator->state, GF_COORDINATOR_REGROUP);
        assert_int_equal(words.world.coordinator->error.peer, away);
        control_world_close(&words.world);
    }
}

/* .. nor is a finding told to who is on the next list: it has READY behind it. */
TEST(who_is_listed_hears_no_finding_that_had_no_room)
{
    words_all_begun(3, 4, true);
    words.world.room = 1;
    words_say_fault(1, 1);
    words_turn(); /* the question fills it */
    words_dies(2);
    words_say_ready(0, 1, 5, false, false);
    words_say_ready(1, 1, 5, false, false);
    words_turn();
    words_heard(1, "ask 1");
    words_turn();
    words_heard(1, "list 2 rank 1 of 2");
    words_turn();
    words_heard(1, "");
    control_world_close(&words.world);
}

TEST(ranks_that_do_not_answer_are_counted)
{
    words_all_begun(4, 4, true);
    words_say_fault(0, 1);
    words_turn();
    words_say_position(0, 1, 1);
    words_say_position(1, 1, 1);
    words_spend(800 * CONTROL_MS);
    words_found("rank 2 does not answer (asked 0.8 s ago): it is stopped or does not poll; last "
                "heard of 0.8 s ago in it has not said where; silent ranks: 2");
    control_world_close(&words.world);
}

/* Which end of an edge is to go others may show, which are awaited from when the last edge was
 * known, and not from when it was asked. */
TEST(the_first_broken_edge_that_is_known_is_given_time)
{
    for (uint32_t ranks = 3; ranks < 5; ranks++) {
        const uint32_t last = ranks - 1;
        char text[120];
        words_all_begun(ranks, ranks, true);
        words_say_fault(0, 1);
        words_turn();
        for (uint32_t id = 0; id < last; id++) words_say_position(id, 1, 1);
        words_spend(700 * CONTROL_MS);
        words_say_edges(last, 1, 1, last - 1, 9);
        words_spend(1450 * CONTROL_MS);
        assert_int_equal(words.world.coordinator->state, GF_COORDINATOR_INQUIRE);
        words_spend(100 * CONTROL_MS);
        assert_int_equal(words.world.coordinator->state, GF_COORDINATOR_REGROUP);
        (void)snprintf(text, sizeof text,
                       "the connection between ranks %u and %u is broken: no step ends; rank %u is "
                       "to go",
                       last - 1, last, last);
        words_found(text);
        control_world_close(&words.world);
    }
}

/* .. but for 3 s in all, though edges come one after the other. */
TEST(broken_edges_that_come_one_after_the_other_are_awaited_for_three_seconds)
{
    words_all_begun(6, 6, true);
    words_say_fault(0, 1);
    words_turn();
    for (uint32_t id = 0; id < 5; id++) words_say_position(id, 1, 1);
    words_say_edges(5, 1, 1, 4, 9);
    words_spend(1200 * CONTROL_MS);
    words_say_edges(3, 1, words.world.coordinator->inquiry, 2, 9);
    words_spend(1200 * CONTROL_MS);
    words_say_edges(1, 1, words.world.coordinator->inquiry, 0, 9);
    words_spend(550 * CONTROL_MS);
    assert_int_equal(words.world.coordinator->state, GF_COORDINATOR_INQUIRE);
    words_spend(100 * CONTROL_MS);
    assert_int_equal(words.world.coordinator->state, GF_COORDINATOR_REGROUP);
    words_found("and 2 more is to go");
    control_world_close(&words.world);
}
