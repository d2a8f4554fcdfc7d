/* What a coordinator says to a process that it left out of a generation, or cut off, and to the
 * others. */
#include "firmware-tests/support/control_words_suite.h"

TEST(who_does_not_answer_is_left_out_and_waits)
{
    words_all_begun(3, 3, true);
    words_spend(100 * CONTROL_MS);
    words_say_status(1, 1, 5, 0);
    words_say_fault(0, 1);
    words_turn();
    words_heard(0, "ask 1");
    words_heard(1, "ask 1");
    words_heard(2, "ask 1");
    words_say_fault(1, 1);
    words_say_position(0, 1, 1);
    words_say_position(1, 1, 1);
    words_spend(700 * CONTROL_MS);
    words_heard(0, "");
    words_spend(60 * CONTROL_MS);
    words_heard(0,
                "error -6 peer 2 step 0 goes on: rank 2 does not answer (asked 0.8 s ago): it is "
                "stopped or d");
    words_heard(1,
                "error -6 peer 2 step 0 goes on: rank 2 does not answer (asked 0.8 s ago): it is "
                "stopped or d");
    words_heard(2,
                "error -6 peer 2 step 0 goes on: rank 2 does not answer (asked 0.8 s ago): it is "
                "stopped or d");
    words_say_ready(1, 1, 4, false, false);
    words_turn();
    words_heard(1, "");
    words_say_ready(0, 1, 5, false, false);
    words_turn();
    words_heard(0, "list 2 rank 0 of 2");
    words_heard(1, "list 2 rank 1 of 2");
    words_heard(2, "");
    words_two_endpoints(2, 0, 1);
    words_heard(0, "go 2 lead 0 steps 5 lags pieces 2; waiting 0");
    words_heard(1, "go 2 lead 0 steps 5 lags pieces 2; waiting 0");
    words_heard(2, "error -7 peer -1 step 0 goes on: the other ranks went on without this one, as "
                   "nothing was hea");
    /* it polls again, and goes through the same */
    words_say_status(2, 1, 5, 0);
    words_turn();
    words_heard(2, "error -7 peer -1 step 0 goes on: the other ranks went on without this one, as "
                   "nothing was hea");
    words_say_fault(2, 1);
    words_turn();
    words_heard(2, "error -7 peer -1 step 0 goes on: the other ranks went on without this one, as "
                   "nothing was hea");
    words_say_ready(2, 1, 4, false, false);
    words_turn();
    words_heard(2, "waiting 1");
    words_heard(0, "waiting 1");
    words_say_status(2, 1, 5, 0); /* it waits: nothing more is said */
    words_turn();
    words_heard(2, "");
    /* a word of the generation before changes nothing */
    words_say_fault(0, 1);
    words_turn();
    words_heard(0, "");
    words_discard();
    words_say_ready(0, 2, 7, true, false);
    words_say_ready(1, 2, 7, true, false);
    words_turn();
    words_heard(0, "");
    words_heard(1, "");
    words_heard(2, "");
    words_turn();
    words_heard(0, "list 3 rank 0 of 3");
    words_heard(1, "list 3 rank 1 of 3");
    words_heard(2, "list 3 rank 2 of 3 comes in");
    control_world_close(&words.world);
}

/* Rank 2 does not answer, and generation 2 has begun without it. */
static void one_is_left_out(void)
{
    words_all_begun(3, 3, true);
    words_say_fault(0, 1);
    words_turn();
    words_say_position(0, 1, 1);
    words_say_position(1, 1, 1);
    words_spend(800 * CONTROL_MS);
    words_say_ready(0, 1, 5, false, false);
    words_say_ready(1, 1, 5, false, false);
    words_turn();
    words_two_endpoints(2, 0, 1);
    words_discard();
}

TEST(who_was_left_out_may_wait_or_leave)
{
    one_is_left_out();
    words_say_ready(2, 1, 5, false, false);
    words_turn();
    words_heard(2, "waiting 1");
    words_heard(0, "waiting 1");
    control_words_bye(&words.peers[2], 1, 5); /* .. and gives it up */
    words_turn();
    words_heard(2, "waiting 0; all gone");
    words_turn();
    words_heard(0, "waiting 0");
    control_world_close(&words.world);
    one_is_left_out();
    control_words_bye(&words.peers[2], 1, 5);
    words_turn();
    words_heard(2, "all gone");
    words_heard(0, "");
    control_world_close(&words.world);
    one_is_left_out();
    words_say_ready(2, 1, 5, false, true);
    words_turn();
    words_heard(2, "all gone");
    words_heard(0, "");
    control_world_close(&words.world);
}

TEST(who_was_left_out_and_comes_again_hears_so)
{
    one_is_left_out();
    words_breaks(2);
    words.peers[2].offer.standing =
        (struct control_standing){.generation = 1, .rank = 2, .world = 3};
    words_come(2);
    words_heard(2,
                "waiting 0; error -7 peer -1 step 0 goes on: the other ranks went on without this "
                "one, as nothing was hea");
    words_heard(0, "");
    words_say_ready(2, 1, 5, false, false);
    words_turn();
    words_heard(2, "waiting 1");
    words_heard(0, "waiting 1");
    words_breaks(2); /* while it waits */
    words_turn();
    words_heard(0, "waiting 0");
    control_world_close(&words.world);
}

TEST(who_was_left_out_takes_no_part_until_it_is_ready)
{
    struct gf_coordinator_status status;
    one_is_left_out();
    gf_coordinator_status(words.world.coordinator, &status);
    assert_int_equal(status.connected, 3);
    assert_int_equal(status.here, 2);
    assert_int_equal(status.present, 2);
    words_say_ready(2, 1, 5, false, false);
    words_turn();
    gf_coordinator_status(words.world.coordinator, &status);
    assert_int_equal(status.here, 2);
    assert_int_equal(status.present, 3);
    control_world_close(&words.world);
}

TEST(a_word_of_one_that_was_left_out_is_whole)
{
    one_is_left_out();
    (void)words.peers[2].channel->driver->send(words.peers[2].channel, 0, CONTROL_READY,
                                               "\1\0\0\0\1", 5);
    words_turn();
    words_heard(2, "ended");
    control_world_close(&words.world);
}

/* It has a part of GO, or none of it, as the generation after that begins without it. Its
 * connection is no longer its own: who comes next, and has it, hears nothing of that. */
TEST(who_has_not_read_go_and_is_left_out_begins_anew)
{
    words_open(3, 4, true);
    words_all_listed(3);
    words_spend(1010 * CONTROL_MS);
    (void)control_words_heard(words.peers[0].channel);
    (void)control_words_heard(words.peers[1].channel);
    words.world.room = 1;
    for (uint32_t id = 0; id < 3; id++) control_words_endpoint(&words.peers[id], 1, id);
    words_turn();
    words_heard(0, "go 1 lead 0 steps 0 pieces 3");
    words_heard(1, "go 1 lead 0 steps 0 pieces 3");
    words_turn();
    words_heard(0, "waiting 0");
    words_heard(1, "waiting 0");
    words_say_fault(0, 1);
    words_turn();
    words_heard(0, "ask 1");
    words_heard(1, "ask 1");
    words_say_position(0, 1, 1);
    words_say_position(1, 1, 1);
    words_spend(800 * CONTROL_MS);
    (void)control_words_heard(words.peers[0].channel);
    (void)control_words_heard(words.peers[1].channel);
    words_say_ready(0, 1, 5, false, false);
    words_say_ready(1, 1, 5, false, false);
    words_turn();
    words_heard(0, "list 2 rank 0 of 2");
    words_heard(1, "list 2 rank 1 of 2");
    words_two_endpoints(2, 0, 1);
    words_heard(2, "waiting 0; ended");
    words.world.room = 0;
    words_come(3);
    words_turn();
    words_heard(3, "waiting 1");
    control_world_close(&words.world);
}

/* .. also where its connection broke before GO, and the others go on meanwhile. */
TEST(who_is_away_before_go_and_is_left_out_comes_in)
{
    words_open(3, 4, true);
    words_all_listed(3);
    words_spend(1010 * CONTROL_MS); /* WAITING fills its connection */
    (void)control_words_heard(words.peers[0].channel);
    (void)control_words_heard(words.peers[1].channel);
    words.world.room = 1;
    for (uint32_t id = 0; id < 3; id++) control_words_endpoint(&words.peers[id], 1, id);
    words_turn();
    words.world.room = 0;
    words_breaks(2);
    words_say_ready(0, 1, 5, true, false);
    words_say_ready(1, 1, 5, true, false);
    words_spend(3100 * CONTROL_MS); /* keepalive and 2 s are 3 s */
    words_discard();
    words_two_endpoints(2, 0, 1);
    words_heard(0, "go 2 lead 0 steps 5 pieces 2; waiting 0");
    words_heard(1, "go 2 lead 0 steps 5 pieces 2; waiting 0");
    words_come(2);
    words_heard(2, "waiting 1");
    control_world_close(&words.world);
}

TEST(who_was_cut_hears_so_and_stays_out)
{
    struct control_report report = {.inquiry = 1, .waits_for = 0, .tensor = GF_TENSOR_NONE};
    words_all_begun(3, 3, true);
    words_say_fault(0, 1);
    words_turn();
    words_discard();
    report.edges.count = 2;
    report.edges.peers[1] = 1;
    words_say_position(0, 1, 1);
    words_say_position(1, 1, 1);
    control_words_status(&words.peers[2], 1, &report);
    words_turn();
    words_heard(
        0, "error -5 peer 2 step 0 goes on: the connection between ranks 1 and 2 is broken: no "
           "step ends");
    words_heard(
        1, "error -5 peer 2 step 0 goes on: the connection between ranks 1 and 2 is broken: no "
           "step ends");
    words_heard(
        2, "error -5 peer 2 step 0: the connection between ranks 1 and 2 is broken: no step ends");
    words_say_ready(2, 1, 5, false, false);
    words_say_ready(0, 1, 5, false, false);
    words_say_ready(1, 1, 5, false, false);
    words_turn();
    words_heard(0, "list 2 rank 0 of 2");
    words_heard(1, "list 2 rank 1 of 2");
    words_heard(2, "");
    words_two_endpoints(2, 0, 1);
    words_heard(0, "go 2 lead 0 steps 5 pieces 2; waiting 0");
    words_heard(1, "go 2 lead 0 steps 5 pieces 2; waiting 0");
    words_heard(
        2, "error -7 peer -1 step 0: the other ranks went on without this one: a connection to it");
    words_breaks(2);
    words.peers[2].offer.standing =
        (struct control_standing){.generation = 1, .rank = 2, .world = 3};
    words_come(2);
    words_heard(
        2, "error -7 peer -1 step 0: the other ranks went on without this one: a connection to it");
    words_heard(0, "");
    control_world_close(&words.world);
}

TEST(who_waits_and_ends_is_of_no_list)
{
    words_all_begun(2, 3, true);
    words_come(2);
    words_discard();
    words_say_end(2, 0);
    words_turn();
    assert_int_equal(gf_coordinator_joiner_count(words.world.coordinator), 0);
    words_say_ready(0, 1, 5, true, false);
    words_say_ready(1, 1, 5, true, false);
    words_turn();
    words_turn();
    assert_true(words.world.coordinator->listing);
    assert_int_equal(words.world.coordinator->next_world, 2);
    control_world_close(&words.world);
}

/* What was under way as a generation ended is of no use to the next one, and harms nobody. */
TEST(a_late_word_of_the_generation_before_changes_nothing)
{
    one_is_left_out();
    words_say_status(0, 1, 9, SECOND);
    words_say_position(0, 1, 1);
    words_say_ready(1, 1, 5, true, true);
    control_words_bye(&words.peers[1], 1, 5);
    words_turn();
    words_heard(0, "");
    words_heard(1, "");
    assert_int_equal(words.world.coordinator->state, GF_COORDINATOR_RUN);
    assert_int_equal(words.world.coordinator->rows[0].report.step, 0);
    assert_int_equal(words.world.coordinator->rows[1].said, CONTROL_SAID_NOTHING);
    control_world_close(&words.world);
}

/* Its endpoint is awaited for keepalive and 2 s; then the list is made without it. */
TEST(who_is_late_on_a_list_is_left_out)
{
    for (uint32_t late = 0; late < 4; late++) { /* id 3 comes in */
        words_all_begun(3, 4, true);
        words_come(3);
        for (uint32_t id = 0; id < 3; id++) words_say_ready(id, 1, 5, true, false);
        words_turn();
        words_turn();
        assert_true(words.world.coordinator->listing);
        for (uint32_t id = 0; id < 4; id++)
            if (id != late) control_words_endpoint(&words.peers[id], 2, id);
        words_spend(2950 * CONTROL_MS);
        assert_int_equal(words.world.coordinator->next, 2);
        words_discard();
        words_spend(50 * CONTROL_MS);
        assert_int_equal(words.world.coordinator->next, 3);
        assert_int_equal(words.world.coordinator->next_world, 3);
        const char *heard = control_words_heard(words.peers[(late == 0) ? 1 : 0].channel);
        assert_non_null(strstr(heard, "list 3 rank 0 of 3"));
        heard = control_words_heard(words.peers[late].channel);
        if (strcmp(heard, (late == 3) ? "waiting 1; ended" : "waiting 1") != 0)
            fail_msg("%s", heard);
        assert_int_equal(words.world.coordinator->rows[late].out, late != 3);
        assert_int_equal(gf_coordinator_joiner_count(words.world.coordinator), late != 3);
        control_world_close(&words.world);
    }
}

/* An endpoint is awaited for a quarter of join_timeout, where that is longer than a broken
 * connection is. */
TEST(who_owes_its_endpoint_is_left_out_after_a_quarter_of_the_join_timeout)
{
    words_open(4, 4, true);
    for (uint32_t id = 0; id < 4; id++) words.peers[id].offer.terms.join_timeout_ns = 40 * SECOND;
    words_all_listed(4);
    for (uint32_t id = 0; id < 4; id++) control_words_endpoint(&words.peers[id], 1, id);
    words_turn();
    words_dies(3);
    for (uint32_t id = 0; id < 3; id++) words_say_ready(id, 1, 5, false, false);
    words_turn();
    words_discard();
    words_two_endpoints(2, 0, 1);
    words_spend(9950 * CONTROL_MS);
    assert_int_equal(words.world.coordinator->next, 2);
    words_spend(50 * CONTROL_MS);
    assert_int_equal(words.world.coordinator->next, 3);
    assert_int_equal(words.world.coordinator->next_world, 2);
    words_discard();
    control_world_close(&words.world);
}

/* The job is older than join_timeout, which counts from the failure on. */
TEST(who_owed_its_endpoint_is_asked_again_where_nobody_else_has_whole_weights)
{
    words_all_begun(2, 3, true);
    words_spend(9 * SECOND);
    words_come(2);
    words_say_ready(0, 1, 5, true, false);
    words_say_ready(1, 1, 5, true, false);
    words_turn();
    words_turn();
    control_words_endpoint(&words.peers[0], 2, 0);
    control_words_endpoint(&words.peers[2], 2, 2);
    words_spend(3010 * CONTROL_MS);
    assert_int_equal(words.world.coordinator->next, 3); /* without rank 1 */
    assert_int_equal(words.world.coordinator->next_world, 2);
    words_discard();
    words_dies(0);
    words_turn();
    words_heard(1, "list 4 rank 0 of 2");
    words_heard(2, "list 4 rank 1 of 2 comes in");
    control_world_close(&words.world);
}
