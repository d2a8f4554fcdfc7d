/* What a coordinator says to a process that connects again: to the same coordinator, and to a
 * new one that takes the generation over. */
#include "firmware-tests/support/control_words_suite.h"

TEST(who_comes_again_hears_the_last_word_once_more)
{
    words_all_begun(4, 4, true);
    words.peers[1].offer.standing =
        (struct control_standing){.generation = 1, .rank = 1, .world = 4};
    words_breaks_and_comes(1);
    words_heard(1, "waiting 0");
    words_say_status(0, 1, 5, 1500 * CONTROL_MS);
    words_turn();
    words_discard();
    words_breaks_and_comes(1);
    words_heard(1, "waiting 0; patience 1490 from 42");
    words_say_fault(2, 1);
    words_turn();
    words_discard();
    words_breaks_and_comes(1);
    words_heard(1, "waiting 0; ask 1; patience 1475 from 42");
    words_say_position(1, 1, 1);
    words_dies(3);
    words_heard(1,
                "error -7 peer 3 step 5 goes on: rank 3 died: ended; rank 0 was in step 5, between "
                "operations");
    words_breaks_and_comes(1);
    words_heard(
        1, "waiting 0; error -7 peer 3 step 5 goes on: rank 3 died: ended; rank 0 was in step 5, "
           "between operations; patience 1460 from 42");
    words_say_ready(1, 1, 5, false, false);
    words_turn();
    words.peers[1].offer.standing.said = CONTROL_SAID_READY;
    words_breaks_and_comes(1);
    words_heard(1, "waiting 0; patience 1445 from 42");
    words_say_ready(0, 1, 5, false, false);
    words_say_ready(2, 1, 5, false, false);
    words_turn();
    words_heard(1, "list 2 rank 1 of 3");
    control_words_endpoint(&words.peers[1], 2, 1);
    words_turn();
    words_breaks_and_comes(1);
    words_heard(1, "list 2 rank 1 of 3; waiting 0; patience 1425 from 42");
    control_words_endpoint(&words.peers[0], 2, 0);
    control_words_endpoint(&words.peers[2], 2, 2);
    words_turn();
    words_discard();
    control_words_endpoint(&words.peers[1], 2, 1);
    words_turn();
    words_breaks_and_comes(1); /* before GO arrives */
    words_heard(1, "go 2 lead 0 steps 5 pieces 3; waiting 0");
    words.peers[1].offer.standing =
        (struct control_standing){.generation = 2, .rank = 1, .world = 3};
    words_breaks_and_comes(1);
    words_heard(1, "waiting 0");
    control_world_close(&words.world);
}

/* Of a generation whose ranks 0 to 2 are the ids from `first` on. */
static void take_over_begin_from(uint32_t first, uint32_t id_count)
{
    words_open(3, id_count, true);
    control_world_coordinator_end(&words.world);
    control_world_coordinator_begin(&words.world);
    uint64_t list = CONTROL_LIST_START;
    for (uint32_t id = first; id < first + 3; id++)
        list = gf_frame_list_hash(list, id, words.peers[id].offer.process);
    for (uint32_t id = first; id < first + 3; id++)
        words.peers[id].offer.standing = (struct control_standing){
            .generation = 4, .rank = id - first, .world = 3, .list_hash = list, .listed = 4};
}

static void take_over_begin_of(uint32_t id_count)
{
    take_over_begin_from(0, id_count);
}

static void take_over_begin(void)
{
    take_over_begin_of(3);
}

TEST(a_generation_is_taken_over)
{
    take_over_begin();
    words.peers[2].offer.standing.listed = 6;
    words_come(0);
    words_heard(0, "waiting 0");
    words_come(1);
    words_say_status(0, 4, 5, 0);
    words_turn();
    words_heard(1, "waiting 0");
    words_come(2);
    words_heard(0, "");
    words_heard(1, "");
    words_heard(2, "waiting 0");
    words_say_fault(1, 4);
    words_turn();
    words_heard(0, "ask 1");
    words_heard(1, "ask 1");
    words_heard(2, "ask 1");
    for (uint32_t id = 0; id < 3; id++) words_say_position(id, 4, 1);
    words_spend(2 * SECOND);
    words_discard();
    for (uint32_t id = 0; id < 3; id++) words_say_ready(id, 4, 5, false, false);
    words_turn();
    words_heard(0, "list 7 rank 0 of 3");
    words_heard(1, "list 7 rank 1 of 3");
    words_heard(2, "list 7 rank 2 of 3");
    control_world_close(&words.world);
}

static const struct said_row {
    control_said said;
    const char *heard[3];
} said_rows[] = {
    {CONTROL_SAID_FAULT, {"ask 1", "ask 1", "waiting 0; ask 1"}},
    {CONTROL_SAID_READY,
     {"error -7 peer -1 step 0 goes on: rank 1 begins a regroup after a failure", "",
      "waiting 0; error -7 peer -1 step 0 goes on: rank 1 begins a regroup after a failure"}},
    {CONTROL_SAID_BYE, {"closed 1 step 5", "closed 1 step 5", "waiting 0; closed 1 step 5"}},
};

TEST(what_was_said_before_a_takeover_counts)
{
    for (uint32_t i = 0; i < LENGTH(said_rows); i++) {
        const struct said_row *row = &said_rows[i];
        take_over_begin();
        words.peers[1].offer.standing.said = row->said;
        words_come(0);
        words_come(1);
        if (row->said == CONTROL_SAID_FAULT) words_say_fault(1, 4);
        if (row->said == CONTROL_SAID_READY) words_say_ready(1, 4, 5, false, false);
        if (row->said == CONTROL_SAID_BYE) control_words_bye(&words.peers[1], 4, 5);
        words_turn();
        words_discard();
        words_come(2);
        for (uint32_t id = 0; id < 3; id++) words_heard(id, row->heard[id]);
        control_world_close(&words.world);
    }
}

/* .. though that process has ended since, and another one has come in its place: one that is of no
 * generation, or of an earlier one. What that says counts for itself. */
static const struct ended_row {
    control_said said;   /* by the first one, */
    control_said second; /* and by the one after it, */
    uint32_t generation; /* .. which is of this */
    const char *heard[2];
} ended_rows[] = {
    {CONTROL_SAID_BYE, CONTROL_SAID_FAULT, 0, {"closed 1 step 5", ""}},
    {CONTROL_SAID_NOTHING,
     CONTROL_SAID_BYE,
     0,
     {"error -7 peer 1 step 0 goes on: rank 1 died: ended", ""}},
    {CONTROL_SAID_READY,
     CONTROL_SAID_NOTHING,
     3,
     {"error -7 peer 1 step 0 goes on: rank 1 died: ended",
      "error -7 peer -1 step 0 goes on: the other ranks went on without this one, as nothing was "
      "hea"}},
};

TEST(what_was_said_by_one_that_has_ended_before_a_takeover_counts)
{
    for (uint32_t i = 0; i < LENGTH(ended_rows); i++) {
        const struct ended_row *row = &ended_rows[i];
        take_over_begin();
        words_come(0);
        words_come(1);
        if (row->said == CONTROL_SAID_READY) words_say_ready(1, 4, 5, false, false);
        if (row->said == CONTROL_SAID_BYE) control_words_bye(&words.peers[1], 4, 5);
        words_turn();
        words_dies(1);
        words.peers[1].offer.process += 100;
        words.peers[1].offer.rejoins = true;
        words.peers[1].offer.standing =
            (struct control_standing){.generation = row->generation, .rank = 1, .world = 3};
        words_come(1);
        if (row->second == CONTROL_SAID_FAULT) words_say_end(1, 0);
        if (row->second == CONTROL_SAID_BYE) control_words_bye(&words.peers[1], 0, 7);
        words_turn();
        words_discard();
        words_come(2);
        words_turn();
        for (uint32_t id = 0; id < 2; id++) words_heard(id, row->heard[id]);
        control_world_close(&words.world);
    }
}

TEST(a_takeover_that_fails_names_the_older_of_two_generations)
{
    take_over_begin();
    words.peers[0].offer.standing.generation = 5;
    words_come(0);
    words_come(1);
    words_spend(8100 * CONTROL_MS);
    words_found("not connected after 8.0 s: 2 of the 3 ranks of generation 4, rank 0 first");
    words_discard();
    control_world_close(&words.world);
}

/* All are here, and two of them name other processes of the same number. */
TEST(a_takeover_that_fails_says_that_lists_differ)
{
    take_over_begin();
    words.peers[2].offer.standing.list_hash++;
    for (uint32_t id = 0; id < 3; id++) words_come(id);
    words_spend(8100 * CONTROL_MS);
    words_found("the 3 ranks of generation 4 do not say that it is of the same processes. Begin");
    assert_null(strstr(words.world.coordinator->error.text, "rank -1"));
    assert_int_equal(words.world.coordinator->error.peer, GF_RANK_NONE);
    words_discard();
    control_world_close(&words.world);
}

/* .. also where all name the same list, and it is not that of these processes. */
TEST(a_list_of_other_processes_is_not_taken_over)
{
    take_over_begin();
    for (uint32_t id = 0; id < 3; id++) {
        words.peers[id].offer.standing.list_hash++;
        words_come(id);
    }
    assert_int_equal(words.world.coordinator->number, 0);
    words_spend(8100 * CONTROL_MS);
    words_found("the 3 ranks of generation 4 do not say that it is of the same processes. Begin");
    assert_int_equal(words.world.coordinator->error.peer, GF_RANK_NONE);
    control_world_close(&words.world);
}

/* A process that is of no generation gives up beside one whose generation is to be taken over. */
TEST(a_newcomer_that_gives_up_does_not_wait)
{
    struct control_fault fault = {.ends = true,
                                  .error = {.code = GF_ERR_DATA,
                                            .peer = GF_RANK_NONE,
                                            .tensor = GF_TENSOR_NONE,
                                            .text = "its file is broken"}};
    take_over_begin_of(4);
    words_come(0);
    words_come(3);
    words_heard(3, "waiting 0");
    control_words_fault(&words.peers[3], 0, &fault);
    words_turn();
    words_come(1);
    words_come(2);
    words_heard(0, "waiting 0");
    words_heard(
        3, "error -7 peer -1 step 0: the other ranks went on without this one, as nothing was hea");
    assert_int_equal(gf_coordinator_joiner_count(words.world.coordinator), 0);
    control_world_close(&words.world);
}

TEST(a_failure_of_another_generation_is_not_asked_about_after_a_takeover)
{
    take_over_begin_of(4);
    words.peers[3].offer.standing = words.peers[2].offer.standing;
    words.peers[3].offer.standing.generation = words.peers[3].offer.standing.listed = 5;
    words_come(3);
    words_say_fault(3, 5);
    for (uint32_t id = 0; id < 3; id++) words_come(id);
    words_heard(0, "waiting 0");
    assert_int_equal(words.world.coordinator->state, GF_COORDINATOR_RUN);
    control_world_close(&words.world);
}

/* A number may stand for two lists: who knows it as the other one is not of this generation. */
TEST(a_generation_is_taken_over_beside_one_that_knows_its_number_as_another_list)
{
    take_over_begin_from(1, 4);
    words.peers[0].offer.standing = words.peers[1].offer.standing;
    words.peers[0].offer.standing.list_hash++;
    for (uint32_t id = 0; id < 4; id++) words_come(id);
    assert_int_equal(words.world.coordinator->number, 4);
    words_heard(0, "waiting 0; error -7 peer -1 step 0 goes on: the other ranks went on without "
                   "this one, as nothing was hea");
    words_heard(1, "waiting 0");
    words_heard(3, "waiting 0");
    control_world_close(&words.world);
}

/* The job runs, whoever of it is here: a process that was given other things ends alone. */
TEST(a_newcomer_that_differs_is_refused_before_a_takeover)
{
    for (uint32_t id = 0; id < 3; id++) {
        take_over_begin_of(4);
        words.peers[3].offer.values.tensors_hash = 5;
        words_come(id);
        words_come(3);
        words_heard(3, "refused -8 peer -1: tensor tables differ in names, sizes, fl; ended");
        const char *heard = control_words_heard(words.peers[id].channel);
        if (strstr(heard, "waiting 0; waiting 0 refused: tensor tables differ") != heard)
            fail_msg("%s", heard);
        assert_int_equal(words.world.coordinator->state, GF_COORDINATOR_GATHER);
        control_world_close(&words.world);
    }
}

TEST(a_takeover_that_fails_names_the_first_that_is_missing)
{
    for (uint32_t missing = 0; missing < 3; missing++) {
        char text[120];
        take_over_begin_of(4);
        for (uint32_t id = 0; id < 3; id++)
            if (id != missing) words_come(id);
        words_come(3); /* it is of no generation, and ends no job */
        words_spend(7970 * CONTROL_MS);
        assert_int_equal(words.world.coordinator->state, GF_COORDINATOR_GATHER);
        words_spend(50 * CONTROL_MS);
        (void)snprintf(
            text, sizeof text,
            "not connected after 8.0 s: 1 of the 3 ranks of generation 4, rank %u first. "
            "Begin the job anew",
            missing);
        words_found(text);
        assert_int_equal(words.world.coordinator->error.code, GF_ERR_PEER);
        assert_int_equal(words.world.coordinator->error.peer, missing);
        assert_int_equal(words.world.coordinator->error.operation, GF_OPERATION_JOIN);
        assert_int_equal(words.world.coordinator->state, GF_COORDINATOR_OVER);
        control_world_close(&words.world);
    }
}

/* Rank 1 failed in step 7, and its connections to rank 0 are broken. Where a process of another
 * generation failed after it, what that one said is not told of rank 1: its step is. */
TEST(a_failure_before_a_takeover_keeps_its_step_and_its_own_words)
{
    for (uint32_t another = 0; another < 2; another++) {
        struct control_fault fault = {.error = {.code = GF_ERR_LINK,
                                                .step = 7,
                                                .peer = GF_RANK_NONE,
                                                .tensor = GF_TENSOR_NONE,
                                                .text = "the cable is out"}};
        take_over_begin_of(4);
        words.peers[3].offer.standing = words.peers[2].offer.standing;
        words.peers[3].offer.standing.generation = words.peers[3].offer.standing.listed = 5;
        words_come(1);
        words_come(3);
        control_words_fault(&words.peers[1], 4, &fault);
        words_turn();
        if (another == 1) words_say_fault(3, 5);
        words_come(0);
        words_come(2);
        words_say_edges(0, 4, 1, 1, 9);
        words_say_edges(1, 4, 1, 0, 9);
        words_say_position(2, 4, 1);
        words_spend(1600 * CONTROL_MS);
        words_found((another == 1) ? "the connection between ranks 0 and 1 is broken: it failed "
                                     "before the coordinator was begun anew; rank 1 is to go"
                                   : "the connection between ranks 0 and 1 is broken: the cable "
                                     "is out; rank 1 is to go");
        assert_int_equal(words.world.coordinator->error.step, 7);
        control_world_close(&words.world);
    }
}
