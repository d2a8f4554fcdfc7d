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

/* A rank that is away as long as a join may take is given up, and may come in again. */
TEST(who_is_cut_off_for_long_is_left_out)
{
    for (uint32_t away = 0; away < 3; away++) {
        char text[64];
        const struct control_row *row;
        words_all_begun(3, 4, true);
        row = &words.world.coordinator->rows[away];
        words_breaks(away);
        words_spend(7990 * CONTROL_MS);
        assert_int_equal(words.world.coordinator->state, GF_COORDINATOR_RUN);
        words_spend(20 * CONTROL_MS);
        (void)snprintf(text, sizeof text, "rank %u is cut off: ended", away);
        assert_string_equal(words.world.coordinator->error.text, text);
        assert_int_equal(words.world.coordinator->error.code, GF_ERR_PEER);
        assert_int_equal(words.world.coordinator->error.peer, away);
        assert_true(row->out && !row->cut);
        control_world_close(&words.world);
    }
}

/* How far three ranks are, and whose state the others are given. */
static const struct state_row {
    const char *name;
    struct gf_control_progress progress[3];
    uint32_t lead, of;
    bool lags;
} state_rows[] = {
    {"all_are_equal",
     {{.steps = 5, .applied = 1}, {.steps = 5, .applied = 1}, {.steps = 5, .applied = 1}},
     0,
     0,
     false},
    {"the_first_is_behind", {{.steps = 4}, {.steps = 5}, {.steps = 5}}, 1, 1, true},
    {"the_last_is_furthest", {{.steps = 5}, {.steps = 5}, {.steps = 6}}, 2, 2, true},
    {"the_last_is_behind", {{.steps = 5}, {.steps = 5}, {.steps = 4}}, 0, 0, true},
    {"in_one_step_who_has_applied_it",
     {{.steps = 5}, {.steps = 5, .applied = 1}, {.steps = 5, .applied = 1}},
     1,
     1,
     true},
    {"a_step_is_more_than_what_is_applied",
     {{.steps = 5, .applied = 1}, {.steps = 6}, {.steps = 5, .applied = 1}},
     1,
     1,
     true},
    {"not_one_without_whole_weights",
     {{.steps = 6, .partial = 1}, {.steps = 5}, {.steps = 5}},
     1,
     1,
     true},
    {"whoever_has_them_alone",
     {{.steps = 6, .partial = 1}, {.steps = 6, .partial = 1}, {.steps = 5}},
     2,
     2,
     true},
};

TEST(the_lowest_of_those_that_are_furthest_leads)
{
    static const uint32_t ids[3] = {0, 1, 2};
    for (uint32_t i = 0; i < LENGTH(state_rows); i++) {
        const struct state_row *row = &state_rows[i];
        words_all_begun(3, 4, true);
        for (uint32_t id = 0; id < 3; id++) {
            struct control_ready ready = {.planned = true, .progress = row->progress[id]};
            control_words_ready(&words.peers[id], 1, &ready);
        }
        words_turn();
        words_turn();
        words_all_endpoints(2, ids, 3);
        const struct control_go *go = &words.world.coordinator->go;
        if ((go->number != 2) || (go->lead != row->lead) || (go->lags != row->lags) ||
            (go->progress.steps != row->progress[row->of].steps) ||
            (go->progress.applied != row->progress[row->of].applied))
            fail_msg("%s: lead %u", row->name, go->lead);
        control_world_close(&words.world);
    }
}

/* Where a rank was is of its generation. */
TEST(a_generation_knows_nothing_of_the_reports_before_it)
{
    static const uint32_t ids[3] = {0, 1, 2};
    struct gf_coordinator_status status;
    words_all_begun(3, 4, true);
    for (uint32_t id = 0; id < 3; id++) words_say_status(id, 1, 9, 2 * SECOND);
    for (uint32_t id = 0; id < 3; id++) words_say_ready(id, 1, 9, true, false);
    words_turn();
    words_turn();
    words_all_endpoints(2, ids, 3);
    words_spend(500 * CONTROL_MS);
    words_say_fault(0, 2); /* .. nor of patience: who does not answer is silent */
    words_turn();
    words_say_position(0, 2, 1);
    words_say_position(1, 2, 1);
    words_spend(760 * CONTROL_MS);
    gf_coordinator_status(words.world.coordinator, &status);
    assert_int_equal(status.error.peer, 2);
    assert_int_equal(status.error.step, 0);
    words_found("last heard of 1.3 s ago in it has not said where");
    control_world_close(&words.world);
}

TEST(all_that_take_part_are_shown)
{
    struct control_status shown;
    words_open(3, 11, true);
    for (uint32_t i = 0; i < WORDS_PEERS; i++) words.peers[i].offer.id_count = 11;
    words_all_listed(3);
    for (uint32_t id = 0; id < 3; id++) control_words_endpoint(&words.peers[id], 1, id);
    words_turn();
    words.peers[6].offer.id = 7;
    words.peers[7].offer.id = 10;
    words_come(6);
    words_come(7);
    words_breaks(1);
    words_dies(6);
    gf_coordinator_status_fill(words.world.coordinator, &shown);
    assert_int_equal(shown.state, GF_COORDINATOR_RUN);
    assert_int_equal(shown.generation, 1);
    assert_int_equal(shown.world, 3);
    assert_int_equal(shown.here, 2);
    assert_int_equal(shown.waiting, 1);
    assert_int_equal(shown.id_count, 11);
    assert_int_equal(shown.present[0], 1 + 4);
    assert_int_equal(shown.present[1], 4);
    control_world_close(&words.world);
}

/* The coordinator before this one saw the end of the job, and this one has begun none. */
TEST(who_comes_after_the_end_of_a_job_hears_so)
{
    words_open(3, 3, true);
    words_come(2);
    words_discard();
    gf_coordinator_end(words.world.coordinator);
    words_turn();
    words_heard(2, "error -2 in join peer -1 step 0: the job has ended");
    assert_int_equal(words.polled, GF_AGAIN); /* two may still come */
    for (uint32_t id = 0; id < 2; id++) {
        words_come(id);
        words_heard(id, "refused -2 peer -1: the job has ended; ended");
    }
    assert_int_equal(words.polled, GF_ERR_STATE);
    control_world_close(&words.world);
}

TEST(a_host_that_does_not_begin_a_regroup_is_named)
{
    for (uint32_t host = 0; host < 2; host++) {
        char text[120];
        words_all_begun(3, 4, true);
        words.world.coordinator->setup.host_id = host;
        words_dies(2);
        words_say_ready(1 - host, 1, 5, false, false);
        words_spend(7980 * CONTROL_MS);
        assert_int_equal(words.world.coordinator->state, GF_COORDINATOR_REGROUP);
        words_spend(20 * CONTROL_MS);
        (void)snprintf(text, sizeof text,
                       "rank %u, in whose process the coordinator runs, did not begin the regroup "
                       "within 8.0 s",
                       host);
        assert_string_equal(words.world.coordinator->error.text, text);
        assert_int_equal(words.world.coordinator->error.code, GF_ERR_TIMEOUT);
        assert_int_equal(words.world.coordinator->error.peer, host);
        assert_int_equal(words.world.coordinator->state, GF_COORDINATOR_OVER);
        control_world_close(&words.world);
    }
}

/* What the vote has told all ranks is the same on each; else it is that rank which gave up. */
TEST(who_gives_up_is_named_unless_all_have_the_same_error)
{
    for (uint32_t i = 0; i < 6; i++) {
        const bool is_same = (i >= 3);
        const uint32_t rank = i % 3;
        struct control_fault fault = {.ends = true,
                                      .error = {.code = is_same ? GF_ERR_NUMERIC : GF_ERR_DATA,
                                                .peer = 2,
                                                .step = 7,
                                                .operation = GF_OPERATION_VOTE,
                                                .tensor = 3,
                                                .text = "a loss is no number"}};
        char text[80];
        const struct gf_error *error;
        words_all_begun(3, 4, true);
        control_words_fault(&words.peers[rank], 1, &fault);
        words_turn();
        error = &words.world.coordinator->error;
        (void)snprintf(text, sizeof text, "rank %u gave up: a loss is no number", rank);
        assert_string_equal(error->text, is_same ? "a loss is no number" : text);
        assert_int_equal(error->code, is_same ? GF_ERR_NUMERIC : GF_ERR_PEER);
        assert_int_equal(error->peer, is_same ? 2 : rank);
        assert_int_equal(error->step, 7);
        assert_int_equal(error->operation, GF_OPERATION_VOTE);
        assert_int_equal(error->tensor, 3);
        assert_int_equal(words.world.coordinator->state, GF_COORDINATOR_REGROUP);
        control_world_close(&words.world);
    }
}

/* What a kernel says of an end is told, however short, and nothing where it says nothing. */
TEST(how_a_process_has_ended_is_told)
{
    static const char *const hows[] = {"", "x", "closed by peer"};
    for (uint32_t i = 0; i < 3 * LENGTH(hows); i++) {
        const char *how = hows[i / 3];
        char text[160];
        words_all_begun(3, 4, true);
        if (i % 3 > 0) words_say_status((i % 3 == 1) ? 1 : 0, 1, 5, 0);
        words_turn();
        words.world.coordinator->rows[1].process_state = CONTROL_PROCESS_ENDED;
        (void)snprintf(words.world.coordinator->rows[1].how, 56, "%s", how);
        words_turn();
        (void)snprintf(text, sizeof text, "rank 1 died%s%s%s", (how[0] != 0) ? ": " : "", how,
                       (i % 3 == 0)   ? ""
                       : (i % 3 == 1) ? " in step 5, between operations (as of 0.0 s ago)"
                                      : "; rank 0 was in step 5, between operations");
        assert_string_equal(words.world.coordinator->error.text, text);
        control_world_close(&words.world);
    }
}

/* .. also one that was told something else since: it has not heard why the job ends. */
TEST(who_has_not_heard_the_finding_is_awaited_for_a_moment)
{
    words_all_begun(3, 3, false);
    words_spend(980 * CONTROL_MS);
    words.world.room = 1;
    words_say_ready(2, 1, 5, true, false);
    words_spend(1050 * CONTROL_MS); /* WAITING fills it, and once more is to come */
    words_dies(1);
    words_heard(2, "waiting 0");
    words_turn();
    words_heard(0, "error -7 peer 1 step 0: rank 1 died: ended");
    words_breaks(2);
    assert_int_equal(words.polled, GF_AGAIN);
    words_spend(2 * SECOND);
    assert_int_equal(words.polled, GF_ERR_PEER);
    control_world_close(&words.world);
}

/* .. but one that has ended dials no more, though it never heard why. */
TEST(who_has_ended_is_not_awaited_once_a_join_has_failed)
{
    words_open(2, 2, false);
    words_all_listed(2);
    words_dies(1);
    words_heard(0, "error -7 in join peer 1 step 0: rank 1 died while ranks were joining: ended");
    words_turn();
    assert_int_equal(words.polled, GF_ERR_PEER);
    control_world_close(&words.world);
}
