/* What a coordinator says to each process that comes in: lists, refusals, second processes. */
#include "firmware-tests/support/control_words_suite.h"

TEST(a_first_join)
{
    words_open(3, 3, true);
    words_come(0);
    words_heard(0, "waiting 0");
    words_come(1);
    words_heard(1, "waiting 0");
    words_come(2);
    words_heard(0, "list 1 rank 0 of 3");
    words_heard(2, "list 1 rank 2 of 3; waiting 0");
    words_two_endpoints(1, 0, 1);
    words_heard(0, "");
    control_words_endpoint(&words.peers[2], 1, 2);
    words_turn();
    words_heard(0, "go 1 lead 0 steps 0 pieces 3; waiting 0");
    words_heard(1, "list 1 rank 1 of 3; go 1 lead 0 steps 0 pieces 3; waiting 0");
    words_heard(2, "go 1 lead 0 steps 0 pieces 3; waiting 0");
    words_turn();
    words_heard(0, "");
    control_world_close(&words.world);
}

TEST(a_first_list_is_given_up_where_one_has_ended)
{
    words_open(2, 2, true);
    words_all_listed(2);
    control_words_endpoint(&words.peers[0], 1, 0);
    words_dies(1);
    words_turn();
    words_heard(0, "");
    words.peers[1].channel = NULL;
    words.peers[1].offer.process = 600;
    words_come(1);
    words_heard(0, "list 2 rank 0 of 2");
    words_heard(1, "list 2 rank 1 of 2; waiting 0");
    control_words_endpoint(&words.peers[0], 1, 0); /* of the list before */
    control_words_endpoint(&words.peers[1], 2, 1);
    words_turn();
    words_heard(0, "");
    control_words_endpoint(&words.peers[0], 2, 0);
    words_turn();
    words_heard(0, "go 2 lead 0 steps 0 pieces 2; waiting 0");
    words_heard(1, "go 2 lead 0 steps 0 pieces 2; waiting 0");
    control_world_close(&words.world);
}

TEST(an_endpoint_may_be_said_again)
{
    words_open(2, 2, true);
    words_all_listed(2);
    control_words_endpoint(&words.peers[0], 1, 0);
    words_turn();
    words_two_endpoints(1, 0, 1);
    words_heard(0, "go 1 lead 0 steps 0 pieces 2; waiting 0");
    control_world_close(&words.world);
}

TEST(an_id_is_of_one_process)
{
    words_all_begun(3, 3, true);
    words.peers[3].offer = words.peers[1].offer;
    words.peers[3].offer.process = 700;
    words_come(3);
    words_heard(3, "refused -2 peer -1 may retry: rank 1 is in use by another process of t; ended");
    words_heard(1, "");
    words.peers[3].offer.rejoins = true;
    words_come(3);
    words_heard(1, "ended");
    words_heard(3, "waiting 1");
    words_heard(
        0, "waiting 1; error -7 peer 1 step 0 goes on: rank 1 died: another process has come in "
           "its place");
    words_say_ready(0, 1, 5, false, false);
    words_say_ready(2, 1, 5, false, false);
    words_turn();
    words_heard(0, "list 2 rank 0 of 3");
    words_heard(3, "list 2 rank 1 of 3 comes in");
    /* it is replaced itself, while it is on a list */
    words.peers[4].offer = words.peers[3].offer;
    words.peers[4].offer.process = 701;
    words_come(4);
    words_heard(3, "ended");
    words_heard(4, "list 3 rank 1 of 3 comes in; waiting 1");
    words_heard(0, "list 3 rank 0 of 3");
    words_turn();
    words_heard(0, "");
    words_heard(4, "");
    control_world_close(&words.world);
}

/* It may dial again, and has its id for as long as a connection may be without a word. */
TEST(an_id_is_kept_for_a_moment_for_a_process_whose_connection_broke)
{
    words_all_begun(3, 4, true);
    words_come(3);
    words_spend(2 * SECOND);
    words_breaks(3);
    words.peers[4].offer = words.peers[3].offer;
    words.peers[4].offer.process = 700;
    words_spend(900 * CONTROL_MS);
    words_come(4);
    words_heard(4, "refused -2 peer -1 may retry: rank 3 is in use by another process of t; ended");
    words_spend(100 * CONTROL_MS);
    words_come(4);
    words_heard(4, "waiting 1");
    control_world_close(&words.world);
}

/* It was given other things than the job, and ends: its id is for the next one at once. */
TEST(the_id_of_a_process_that_was_refused_is_free)
{
    words_all_begun(3, 4, true);
    words_come(3);
    words_breaks(3);
    words.peers[4].offer = words.peers[3].offer;
    words.peers[4].offer.process = 700;
    words.peers[4].offer.rejoins = true;
    words.peers[4].offer.values.tensors_hash = 5;
    words_come(4);
    words_heard(4, "refused -8 peer -1: tensor tables differ in names, sizes, fl; ended");
    words.peers[5].offer = words.peers[3].offer;
    words.peers[5].offer.process = 701;
    words_come(5);
    words_heard(5, "waiting 1");
    control_world_close(&words.world);
}

/* .. and so is the connection that it had: whoever has it next keeps it. */
TEST(the_connection_of_a_process_that_was_refused_is_of_the_next_one)
{
    struct gf_coordinator_status status;
    words_all_begun(3, 5, true);
    words.peers[3].offer.values.tensors_hash = 5;
    words_come(3);
    words_heard(3, "refused -8 peer -1: tensor tables differ in names, sizes, fl; ended");
    gf_coordinator_status(words.world.coordinator, &status);
    assert_int_equal(status.connected, 3);
    words_come(4);
    words_heard(4, "waiting 1");
    words.peers[5].offer = words.peers[4].offer;
    words.peers[5].offer.id = 3;
    words_come(5);
    words_heard(5, "waiting 2");
    words_heard(4, "waiting 2");
    control_world_close(&words.world);
}

/* It comes in place of a rank that was here: the others are what it must equal, not the one before
 * it. */
TEST(who_comes_in_place_of_another_before_the_first_generation_is_compared)
{
    words_open(3, 3, true);
    words_come(0);
    words_come(1);
    words_discard();
    words.peers[3].offer = words.peers[0].offer;
    words.peers[3].offer.process = 700;
    words.peers[3].offer.rejoins = true;
    words.peers[3].offer.values.tensors_hash = 5;
    words_come(3);
    words_heard(0, "ended");
    for (uint32_t id = 1; id < 4; id += 2)
        words_heard(id, "error -8 in join peer 0 step 0: tensor tables differ in names, sizes, "
                        "flags, types or order,");
    control_world_close(&words.world);
}

/* Processes whose link shares nothing name no node: that is not one node for all. */
TEST(processes_that_name_no_node_have_the_network_of_their_link)
{
    words_open(2, 2, true);
    for (uint32_t id = 0; id < 2; id++) {
        words.peers[id].offer.values.node = 0;
        words.peers[id].offer.values.network = GF_NETWORK_LINK;
    }
    words_all_listed(2);
    assert_int_equal(words.world.coordinator->network, GF_NETWORK_LINK);
    control_world_close(&words.world);
}

TEST(a_second_process_is_logged_once)
{
    static char said[4096];
    words_all_begun(2, 2, true);
    said[0] = '\0';
    words.world.said = said;
    words.world.said_bytes = sizeof said;
    words.peers[2].offer = words.peers[1].offer;
    words.peers[2].offer.process = 700;
    words_come(2);
    words_come(2);
    const char *first = strstr(said, "a second process of member 1 is refused");
    assert_non_null(first);
    assert_null(strstr(first + 1, "a second process"));
    control_world_close(&words.world);
}

TEST(whoever_does_not_fit_hears_why)
{
    words_open(3, 4, true);
    words.peers[3].offer.id = 9;
    words_come(3);
    words_heard(3, "refused -8 peer -1: rank 9 of job.world_max 4: this job has ; ended");
    words.peers[3].offer.id = 3;
    words.peers[3].offer.id_count = 5;
    words_come(3);
    words_heard(3, "refused -8 peer -1: rank 3 of job.world_max 5: this job has ; ended");
    words.peers[3].offer.id_count = 4;
    words.peers[3].offer.first_world = 2;
    words_come(3);
    words_heard(3, "refused -8 peer -1: rank 3 has job.world 2, the coordinator ; ended");
    words.peers[3].offer.first_world = 3;
    words_come(3); /* it is not of the first list */
    words_heard(3, "waiting 0 refused: rank 3 has job.world 2, the coordinator of this job has 3");
    words_all_listed(3);
    words_heard(3, "");
    for (uint32_t id = 0; id < 3; id++) control_words_endpoint(&words.peers[id], 1, id);
    words_turn();
    words_heard(0, "go 1 lead 0 steps 0 pieces 3; waiting 1");
    words_heard(1, "go 1 lead 0 steps 0 pieces 3; waiting 1");
    words_heard(2, "go 1 lead 0 steps 0 pieces 3; waiting 1");
    words_heard(3, "waiting 1");
    words_spend(1010 * CONTROL_MS);
    words_heard(0, "");
    words_heard(1, "");
    words_heard(2, "");
    words_heard(3, "waiting 1");
    words.peers[4].offer.id = 3;
    words.peers[4].offer.values.tensors_hash = 5;
    words_dies(3);
    words_heard(0, "waiting 0");
    words_come(4);
    words_heard(4, "refused -8 peer -1: tensor tables differ in names, sizes, fl; ended");
    control_world_close(&words.world);
}

TEST(times_that_no_clock_counts_are_refused)
{
    for (uint32_t i = 0; i < 6; i++) {
        words_open(2, 2, true);
        uint64_t most_ns = CONTROL_TIME_NS_MAX + (i % 2);
        struct control_terms *terms = &words.peers[0].offer.terms;
        if (i / 2 == 0) terms->join_timeout_ns = most_ns;
        if (i / 2 == 1) terms->keepalive_ns = most_ns;
        if (i / 2 == 2) terms->exchange_timeout_ns = most_ns;
        words_come(0);
        words_heard(0, (i % 2 == 0)
                           ? "waiting 0"
                           : "refused -8 peer -1: a process offered itself with values tha; ended");
        control_world_close(&words.world);
    }
}

TEST(words_that_nobody_may_say_close_the_connection)
{
    struct control_fault no_fault = {
        .error = {.code = GF_OK, .peer = GF_RANK_NONE, .tensor = GF_TENSOR_NONE}};
    for (uint32_t how = 0; how < 6; how++) {
        words_all_begun(2, 2, true);
        const struct gf_channel_driver *driver = words.peers[1].channel->driver;
        if (how == 0) words_say_status(1, 2, 5, 0); /* of a generation to come */
        if (how == 1) (void)driver->send(words.peers[1].channel, 0, CONTROL_GO, "\1\0\0\0", 4);
        if (how == 2) control_words_endpoint(&words.peers[1], 7, 1); /* of no list: not looked at */
        if (how == 3) (void)driver->send(words.peers[1].channel, 0, CONTROL_OFFER, "abc", 3);
        if (how == 4) (void)driver->send(words.peers[1].channel, 0, CONTROL_FAULT, "\1\0\0\0", 4);
        if (how == 5) control_words_fault(&words.peers[1], 1, &no_fault);
        words_turn();
        words_heard(1, ((how < 2) || (how > 3)) ? "ended" : "");
        words_heard(0, "");
        control_world_close(&words.world);
    }
}

TEST(who_is_away_from_a_first_list_that_was_given_up_is_missing)
{
    words_open(3, 3, true);
    words_all_listed(3);
    words_breaks(1);
    words_dies(2);
    words.peers[2].offer.process = 700;
    words_come(2);
    words_spend(9 * SECOND);
    if (strstr(words.world.coordinator->error.text, "rank 1 of 3 did not join") == NULL)
        fail_msg("%s", words.world.coordinator->error.text);
    control_world_close(&words.world);
}

TEST(nobody_comes_in_with_a_first_generation_whose_first_list_was_given_up)
{
    words_open(2, 2, true);
    words_all_listed(2);
    words_dies(1);
    words.peers[1].offer.process = 700;
    words_come(1);
    for (uint32_t id = 0; id < 2; id++) control_words_endpoint(&words.peers[id], 2, id);
    words_turn();
    assert_int_equal(words.world.coordinator->number, 2);
    assert_false(words.world.coordinator->rows[0].comes_in);
    words_dies(1); /* before it has said where it is */
    assert_int_equal(words.world.coordinator->error.tensor, GF_TENSOR_NONE);
    control_world_close(&words.world);
}

/* It comes in place of a process that has ended, so others may live, and dial this coordinator: it
 * begins no job beside theirs before they had the time. */
TEST(a_job_does_not_begin_at_once_where_a_rank_was_begun_anew)
{
    for (uint32_t again = 0; again < 3; again++) {
        words_open(3, 3, true);
        words.peers[again].offer.rejoins = true;
        for (uint32_t id = 0; id < 3; id++) words_come(id);
        words_spend(2900 * CONTROL_MS); /* keepalive and 2 s are 3 s */
        assert_false(words.world.coordinator->listing);
        words_spend(100 * CONTROL_MS);
        assert_true(words.world.coordinator->listing);
        control_world_close(&words.world);
    }
}

/* What had come of its endpoint is of the connection before. */
TEST(who_waits_and_dials_again_says_its_endpoint_anew)
{
    words_open(2, 2, true);
    words_all_listed(2);
    control_words_endpoint(&words.peers[0], 1, 0);
    words_turn();
    words_breaks_and_comes(0);
    words_heard(0, "list 1 rank 0 of 2; waiting 0");
    control_words_endpoint(&words.peers[1], 1, 1);
    words_turn();
    words_heard(1, "");
    control_words_endpoint(&words.peers[0], 1, 0);
    words_turn();
    words_heard(1, "go 1 lead 0 steps 0 pieces 2; waiting 0");
    control_world_close(&words.world);
}

TEST(who_closes_before_all_have_joined_is_named_where_nobody_may_come_in_its_place)
{
    for (uint32_t closes = 0; closes < 3; closes++) {
        const uint32_t other = (closes + 1) % 3;
        char text[80];
        words_open(3, 3, false);
        words_come(closes);
        words_come(other);
        words_discard();
        control_words_bye(&words.peers[closes], 0, 0);
        words_turn();
        (void)snprintf(text, sizeof text, "rank %u closed before all ranks had joined", closes);
        assert_string_equal(words.world.coordinator->error.text, text);
        assert_int_equal(words.world.coordinator->error.code, GF_ERR_PEER);
        assert_int_equal(words.world.coordinator->error.peer, closes);
        assert_int_equal(words.world.coordinator->error.operation, GF_OPERATION_JOIN);
        assert_int_equal(words.world.coordinator->state, GF_COORDINATOR_OVER);
        control_world_close(&words.world);
    }
}

/* .. and hears that it may go, where one may come in its place. */
TEST(who_closes_before_all_have_joined_hears_that_it_may_go)
{
    words_open(3, 3, true);
    words_come(1);
    words_heard(1, "waiting 0");
    control_words_bye(&words.peers[1], 0, 0);
    words_turn();
    words_heard(1, "all gone");
    control_world_close(&words.world);
}

/* Pieces of an endpoint of 16 bytes at most; the second one where `first` is right. */
static const struct piece_row {
    const char *name;
    struct control_piece first, second;
    bool is_good;
} piece_rows[] = {
    {"in_two", {0, 8, 0, 3}, {0, 8, 3, 5}, true},
    {"as_large_as_any", {0, 16, 0, 9}, {0, 16, 9, 7}, true},
    {"begun_anew", {0, 8, 0, 3}, {0, 9, 0, 9}, true},
    {"larger_than_any", {0, 17, 0, 8}, {0, 17, 8, 9}, false},
    {"not_from_its_begin", {0, 8, 1, 7}, {0, 8, 0, 8}, false},
    {"with_a_gap", {0, 8, 0, 3}, {0, 8, 4, 4}, false},
    {"said_twice", {0, 8, 0, 3}, {0, 8, 2, 6}, false},
    {"behind_its_end", {0, 8, 0, 9}, {0, 8, 0, 8}, false},
    {"second_behind_its_end", {0, 8, 0, 3}, {0, 8, 3, 6}, false},
    {"that_grows_meanwhile", {0, 8, 0, 3}, {0, 16, 3, 13}, false},
    {"that_shrinks_meanwhile", {0, 8, 0, 3}, {0, 4, 3, 1}, false},
};

TEST(a_piece_of_an_endpoint_that_lies_beyond_it_closes_the_connection)
{
    static const unsigned char bytes[16];
    for (uint32_t i = 0; i < LENGTH(piece_rows); i++) {
        unsigned char payload[128];
        struct gf_put put = {payload, sizeof payload};
        struct control_piece pieces[2] = {piece_rows[i].first, piece_rows[i].second};
        words_open(2, 2, true);
        words_all_listed(2);
        control_words_endpoint(&words.peers[0], 1, 0);
        gf_put_u32(&put, 1);
        for (uint32_t n = 0; n < 2; n++) {
            gf_frame_piece_walk(&(struct gf_walk){.put = &put}, &pieces[n]);
            gf_put_bytes(&put, bytes, pieces[n].bytes);
        }
        (void)words.peers[1].channel->driver->send(words.peers[1].channel, 0, CONTROL_ENDPOINT,
                                                   payload, (uint32_t)(sizeof payload - put.left));
        words_turn();
        const char *heard = control_words_heard(words.peers[1].channel);
        if (strcmp(heard, piece_rows[i].is_good ? "go 1 lead 0 steps 0 pieces 2; waiting 0"
                                                : "ended") != 0)
            fail_msg("%s: %s", piece_rows[i].name, heard);
        control_world_close(&words.world);
    }
}
