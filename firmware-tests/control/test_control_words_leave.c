/* What a coordinator says to processes that close, leave, or wait for others. */
#include "firmware-tests/support/control_words_suite.h"

TEST(all_close)
{
    words_all_begun(3, 3, true);
    words_say_status(1, 1, 3, 0);
    control_words_bye(&words.peers[0], 1, 3);
    words_turn();
    words_heard(0, "closed 0 step 3");
    words_heard(1, "closed 0 step 3");
    words_heard(2, "closed 0 step 3");
    words_spend(1010 * CONTROL_MS);
    words_heard(0, "waiting 0 awaits 1 and 2 in all, step 3, between operations");
    words_heard(1, "");
    words_heard(2, "");
    control_words_bye(&words.peers[1], 1, 2);
    words_turn();
    words_heard(0, "closed 1 step 2");
    words_heard(1, "closed 1 step 2");
    words_heard(2, "closed 1 step 2");
    words.peers[2].offer.standing =
        (struct control_standing){.generation = 1, .rank = 2, .world = 3};
    words_breaks_and_comes(2);
    words_heard(2, "waiting 0; closed 1 step 2");
    words.world.room = 1; /* the last words wait for room */
    words_breaks(1);
    words.peers[1].offer.standing = (struct control_standing){
        .generation = 1, .rank = 1, .world = 3, .said = CONTROL_SAID_BYE, .closed_step = 2};
    control_words_come(&words.world, &words.peers[1]);
    words_turn();
    control_words_bye(&words.peers[2], 1, 4);
    words_turn();
    assert_int_equal(words.polled, GF_AGAIN);
    words_heard(0, "all gone");
    words_heard(1, "waiting 0 awaits 2 and 1 in all, step 0, between operations");
    words_heard(2, "all gone");
    words_turn();
    words_heard(1, "all gone");
    words_turn();
    assert_int_equal(words.polled, GF_OK);
    control_world_close(&words.world);
}

TEST(who_leaves_hears_that_it_may)
{
    words_all_begun(3, 3, true);
    words_say_ready(1, 1, 5, true, true);
    words_turn();
    words_discard();
    words_say_ready(0, 1, 5, true, false);
    words_say_ready(2, 1, 5, true, false);
    words_turn();
    words_heard(0, "list 2 rank 0 of 2");
    words_heard(1, "all gone");
    words_heard(2, "list 2 rank 1 of 2");
    words_two_endpoints(2, 0, 2);
    words_heard(0, "go 2 lead 0 steps 5 pieces 2; waiting 0");
    words_heard(1, "all gone");
    words_heard(2, "go 2 lead 0 steps 5 pieces 2; waiting 0");
    words_turn();
    words_heard(1, "");
    control_world_close(&words.world);
}

TEST(who_leaves_with_the_last_whole_weights_stays_for_a_generation)
{
    struct control_ready partial = {.planned = true, .progress = {.steps = 5, .partial = 1}};
    words_all_begun(2, 2, true);
    control_words_ready(&words.peers[0], 1, &partial);
    words_say_ready(1, 1, 5, true, true);
    words_turn();
    words_heard(0, "");
    words_heard(1, "");
    words_two_endpoints(2, 0, 1);
    words_heard(0, "list 2 rank 0 of 2");
    words_heard(1, "list 2 rank 1 of 2");
    control_world_close(&words.world);
}

TEST(patience_is_told_to_the_others)
{
    words_all_begun(3, 3, true);
    words_say_status(0, 1, 5, 1000 * CONTROL_MS);
    words_turn();
    words_heard(0, "patience 1000 from 42");
    words_heard(1, "patience 1000 from 42");
    words_heard(2, "patience 1000 from 42");
    words_say_status(0, 1, 5, 1000 * CONTROL_MS); /* no more than before that is worth a word */
    words_turn();
    words_heard(0, "");
    words_heard(1, "");
    words_heard(2, "");
    words_say_status(1, 1, 5, 1235 * CONTROL_MS); /* .. nor is less than an eighth of the timeout */
    words_turn();
    words_heard(0, "");
    words_say_status(1, 1, 5, 9 * SECOND); /* exchange.timeout at most */
    words_turn();
    words_heard(0, "patience 2000 from 42");
    words_heard(1, "patience 2000 from 42");
    words_heard(2, "patience 2000 from 42");
    control_world_close(&words.world);
}

/* Whoever waits for a word hears each second that the coordinator is there. */
TEST(who_waits_hears_that_the_coordinator_is_there)
{
    words_all_begun(4, 5, true);
    words_spend(1010 * CONTROL_MS);
    words_heard(0, "");
    words_say_ready(0, 1, 5, true, false);
    words_turn();
    words_spend(1010 * CONTROL_MS);
    words_heard(0, "waiting 0");
    words_heard(1, "");
    words_say_fault(1, 1);
    words_turn();
    words_discard();
    words_spend(1010 * CONTROL_MS);
    words_heard(1,
                "error -6 peer 2 step 0 goes on: rank 2 does not answer (asked 0.8 s ago): it is "
                "stopped or d; waiting 0");
    control_world_close(&words.world);
}

TEST(of_two_that_leave_with_the_last_whole_weights_one_that_has_not_closed_stays)
{
    struct control_ready partial = {.planned = true, .progress = {.steps = 5, .partial = 1}};
    words_all_begun(3, 4, true);
    words_say_ready(0, 1, 5, true, true);
    words_say_ready(1, 1, 5, true, true);
    control_words_bye(&words.peers[0], 1, 5);
    words_turn();
    words_discard();
    control_words_ready(&words.peers[2], 1, &partial);
    words_turn();
    words_heard(1, "list 2 rank 0 of 2");
    words_heard(2, "list 2 rank 1 of 2");
    control_world_close(&words.world);
}

/* All others have closed. Of two that have not one says nothing: the other one may need it. */
TEST(who_says_nothing_is_awaited_while_another_works)
{
    words_all_begun(4, 5, true);
    control_words_bye(&words.peers[1], 1, 5);
    for (uint32_t i = 0; i < 10; i++) {
        words_spend(500 * CONTROL_MS);
        words_say_status(3, 1, 4, 0);
    }
    words_discard();
    words_spend(1010 * CONTROL_MS);
    words_heard(1, "waiting 0 awaits 0 and 3 in all, step 0, between operations");
    words_spend(3 * SECOND); /* 4 s of silence of all of them */
    words_heard(1, "waiting 0 awaits 0 and 3 in all, step 0, between operations; waiting 0 awaits "
                   "0 and 3 in all, step 0, between operations; waiting 0 awaits 0 and 3 in all, "
                   "step 0, between operations; all gone");
    assert_int_equal(words.polled, GF_OK);
    control_world_close(&words.world);
}

/* gf_stats tells the bytes: of each payload that has left, once. */
TEST(the_bytes_of_all_words_are_counted)
{
    struct gf_channel_event event;
    uint64_t bytes = 0;
    words_open(3, 3, true);
    for (uint32_t id = 0; id < 3; id++) words_come(id);
    for (uint32_t id = 0; id < 3; id++) control_words_endpoint(&words.peers[id], 1, id);
    words_turn();
    for (uint32_t id = 0; id < 3; id++)
        while (words.peers[id].channel->driver->poll(words.peers[id].channel, 0, &event))
            if (event.kind == GF_CHANNEL_FRAME) bytes += event.size_bytes;
    assert_true(bytes > 0);
    assert_int_equal(words.world.channel.sent_bytes, bytes);
    control_world_close(&words.world);
}

/* .. whatever it waits for: a list that is out, or the others that have not closed. */
TEST(whoever_waits_hears_so_each_second)
{
    words_all_begun(4, 5, true);
    words_dies(3);
    for (uint32_t id = 0; id < 2; id++) words_say_ready(id, 1, 5, false, false);
    words_say_ready(2, 1, 5, false, false);
    words_turn();
    words_discard();
    assert_true(words.world.coordinator->listing);
    words_two_endpoints(2, 0, 1);
    words_spend(2010 * CONTROL_MS);
    for (uint32_t id = 0; id < 3; id++) words_heard(id, "waiting 0; waiting 0");
    control_world_close(&words.world);
}
