/* What a coordinator says once a process has ended, gives up or is away: to an elastic job, and
 * to one that ends with it. */
#include "firmware-tests/support/control_words_suite.h"

TEST(a_process_that_has_ended_is_told_to_the_others_at_once)
{
    words_all_begun(3, 4, true);
    words_say_status(0, 1, 5, 0);
    words_dies(1);
    words_heard(0,
                "error -7 peer 1 step 5 goes on: rank 1 died: ended; rank 0 was in step 5, between "
                "operations");
    words_heard(2,
                "error -7 peer 1 step 5 goes on: rank 1 died: ended; rank 0 was in step 5, between "
                "operations");
    words_come(3); /* an id that is new */
    words_heard(0, "waiting 1");
    words_heard(3, "waiting 1");
    words_say_ready(0, 1, 5, false, false);
    words_say_ready(2, 1, 5, false, false);
    words_turn();
    words_heard(0, "list 2 rank 0 of 3");
    words_heard(2, "waiting 1; list 2 rank 1 of 3");
    words_heard(3, "list 2 rank 2 of 3 comes in");
    words_dies(2); /* on the list that is out */
    words_turn();
    words_heard(0, "list 3 rank 0 of 2");
    words_heard(3, "list 3 rank 1 of 2 comes in");
    words_two_endpoints(3, 0, 3);
    words_heard(0, "go 3 lead 0 steps 5 lags pieces 2; waiting 0");
    words_heard(3, "go 3 lead 0 steps 5 lags pieces 2; waiting 0");
    control_world_close(&words.world);
}

TEST(where_a_rank_was_has_a_name_only_where_its_tensor_has_one)
{
    struct control_report report = {
        .step = 5, .operation = GF_OPERATION_ALLREDUCE, .tensor = 3, .waits_for = GF_RANK_NONE};
    words_all_begun(2, 2, true);
    control_words_status(&words.peers[1], 1, &report);
    words_dies(1);
    words_found("rank 1 died: ended in step 5, operation allreduce, buffer 0, tensor 3 (as of");
    control_world_close(&words.world);
    words_all_begun(2, 2, true);
    (void)snprintf(report.tensor_name, sizeof report.tensor_name, "w");
    control_words_status(&words.peers[1], 1, &report);
    words_dies(1);
    words_found("operation allreduce, buffer 0, tensor 3 \"w\" (as of");
    control_world_close(&words.world);
}

TEST(who_gives_up_ends_alone)
{
    struct control_fault fault = {.ends = true,
                                  .error = {.code = GF_ERR_DATA,
                                            .peer = GF_RANK_NONE,
                                            .tensor = GF_TENSOR_NONE,
                                            .text = "its file is broken"}};
    struct gf_coordinator_status status;
    words_all_begun(3, 3, true);
    words_say_status(1, 1, 0, 0);
    control_words_fault(&words.peers[1], 1, &fault);
    words_turn();
    gf_coordinator_status(words.world.coordinator, &status);
    assert_string_equal(status.error.text, "rank 1 gave up: its file is broken"); /* no death */
    words_heard(0, "error -7 peer 1 step 0 goes on: rank 1 gave up: its file is broken");
    words_heard(1, "error -7 peer 1 step 0: rank 1 gave up: its file is broken");
    words_heard(2, "error -7 peer 1 step 0 goes on: rank 1 gave up: its file is broken");
    words_turn(); /* it is told once */
    words_heard(0, "");
    words_say_ready(0, 1, 5, false, false);
    words_say_ready(2, 1, 5, false, false);
    words_turn();
    words_heard(0, "list 2 rank 0 of 2");
    words_heard(1, "");
    words_heard(2, "list 2 rank 1 of 2");
    control_world_close(&words.world);
}

static bool never_flushed(struct gf_channel *channel)
{
    (void)channel;
    return false;
}

TEST(a_job_that_is_not_elastic_ends_with_a_death)
{
    words_all_begun(3, 3, false);
    struct gf_channel_driver slow = *words.world.channel.driver;
    const struct gf_channel_driver *driver = words.world.channel.driver;
    slow.flushed = never_flushed;
    words_breaks(2);
    words_dies(1);
    words_heard(0, "error -7 peer 1 step 0: rank 1 died: ended");
    assert_int_equal(words.polled, GF_AGAIN); /* one is away */
    words_come(2);
    words_heard(2, "error -7 peer 1 step 0: rank 1 died: ended");
    assert_int_equal(words.polled, GF_ERR_PEER);
    words.world.channel.driver = &slow;
    words_turn();
    assert_int_equal(words.polled, GF_AGAIN);
    words.world.channel.driver = driver;
    words.peers[3].offer.id = 1;
    words.peers[3].offer.id_count = 3;
    words_come(3);
    words_heard(3, "refused -2 peer -1: the job has ended: rank 1 died: ended; ended");
    assert_int_equal(words.polled, GF_ERR_PEER);
    control_world_close(&words.world);
}

TEST(who_is_away_as_the_job_ends_is_awaited_for_a_moment)
{
    for (uint32_t away = 0; away < 3; away++) {
        words_all_begun(3, 3, false);
        words_breaks(away);
        words_dies((away + 1) % 3);
        words_spend(1990 * CONTROL_MS);
        assert_int_equal(words.polled, GF_AGAIN);
        words_spend(20 * CONTROL_MS);
        assert_int_equal(words.polled, GF_ERR_PEER);
        control_world_close(&words.world);
    }
}

TEST(nobody_goes_on_without_whole_weights)
{
    struct control_ready partial = {.progress = {.steps = 5, .partial = 1}};
    words_all_begun(2, 2, true);
    words_say_status(1, 1, 6, 0);
    words_dies(1);
    control_words_ready(&words.peers[0], 1, &partial);
    words_turn();
    words_heard(0, "error -7 peer 1 step 6 goes on: rank 1 died: ended in step 6, between "
                   "operations (as of 0.0 ; "
                   "error -14 in join peer -1 step 6: all "
                   "ranks that held whole weights have ended: start the job ");
    words_turn();
    assert_int_equal(words.polled, GF_ERR_DATA);
    control_world_close(&words.world);
}

/* Half of them are ready, or fewer, and the connections of the others have broken. */
TEST(the_smaller_part_waits_longer_for_those_that_are_away)
{
    for (uint32_t ready = 1; ready < 3; ready++) {
        struct gf_coordinator_status status;
        words_all_begun(4, 4, true);
        words.world.coordinator->terms.join_timeout_ns = 40 * SECOND;
        words_say_fault(0, 1);
        words_turn();
        for (uint32_t id = 0; id < ready; id++) words_say_position(id, 1, 1);
        for (uint32_t id = ready; id < 4; id++) words_breaks(id);
        for (uint32_t i = 0; i < 1000; i++) {
            words_turn();
            gf_coordinator_status(words.world.coordinator, &status);
            if (status.state == GF_COORDINATOR_REGROUP) break;
        }
        for (uint32_t id = 0; id < ready; id++) words_say_ready(id, 1, 5, false, false);
        words_spend(3500 * CONTROL_MS);
        gf_coordinator_status(words.world.coordinator, &status);
        assert_int_equal(status.state,
                         (ready == 2) ? GF_COORDINATOR_GATHER : GF_COORDINATOR_REGROUP);
        words_spend(7 * SECOND);
        gf_coordinator_status(words.world.coordinator, &status);
        assert_int_equal(status.state, GF_COORDINATOR_GATHER);
        control_world_close(&words.world);
    }
}

TEST(who_ends_as_a_generation_begins_is_named_in_it)
{
    words_all_begun(2, 2, true);
    words_say_ready(0, 1, 5, true, false);
    words_say_ready(1, 1, 5, true, false);
    words_turn();
    words_turn();
    words_two_endpoints(2, 0, 1);
    words_discard();
    words_say_end(1, 1);
    words_turn();
    words_heard(0, "error -7 peer 1 step 0 goes on: rank 1 gave up: its file is broken");
    control_world_close(&words.world);
}

TEST(who_gives_up_on_a_list_does_not_wait_for_the_next_one)
{
    static const uint32_t others[] = {0, 2};
    words_all_begun(3, 3, true);
    for (uint32_t id = 0; id < 3; id++) words_say_ready(id, 1, 5, true, false);
    words_turn();
    words_turn();
    assert_true(words.world.coordinator->listing);
    words_say_end(1, 1);
    words_turn();
    words_all_endpoints(3, others, 2);
    assert_int_equal(words.world.coordinator->number, 3);
    assert_int_equal(gf_coordinator_joiner_count(words.world.coordinator), 0);
    control_world_close(&words.world);
}

/* Its connection breaks as another rank dies: it may dial again. */
TEST(who_is_away_in_a_regroup_is_awaited)
{
    for (uint32_t away = 0; away < 3; away++) {
        words_all_begun(4, 4, true);
        words_breaks(away);
        words_dies(3);
        words_say_ready((away + 1) % 3, 1, 5, false, false);
        words_say_ready((away + 2) % 3, 1, 5, false, false);
        words_spend(2950 * CONTROL_MS); /* keepalive and 2 s are 3 s */
        assert_int_equal(words.world.coordinator->state, GF_COORDINATOR_REGROUP);
        words_spend(100 * CONTROL_MS);
        assert_int_equal(words.world.coordinator->state, GF_COORDINATOR_GATHER);
        assert_int_equal(words.world.coordinator->next_world, 2);
        control_world_close(&words.world);
    }
}

TEST(what_the_status_counts)
{
    struct gf_coordinator_status status;
    words_all_begun(4, 6, true);
    words_come(5); /* it waits */
    words_breaks(0);
    gf_coordinator_status(words.world.coordinator, &status);
    assert_int_equal(status.generation, 1);
    assert_int_equal(status.world, 4);
    assert_int_equal(status.connected, 4);
    assert_int_equal(status.here, 3);
    assert_int_equal(status.present, 4);
    assert_int_equal(status.waiting, 1);
    control_words_bye(&words.peers[3], 1, 5);
    words_turn();
    assert_int_equal(gf_coordinator_closed(words.world.coordinator, 0, 6), 1);
    assert_int_equal(gf_coordinator_closed(words.world.coordinator, 3, 1), 1);
    assert_int_equal(gf_coordinator_closed(words.world.coordinator, 4, 9), 0);
    assert_int_equal(gf_coordinator_closed(words.world.coordinator, 0, 3), 0);
    control_world_close(&words.world);
}
