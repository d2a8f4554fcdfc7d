/* A coordinator that ends and is begun anew: it takes a generation over, or ends the job. */
#include "gradientflow.h"
#include "firmware-tests/support/control_suite.h"
#include "lib/control/coordinator_state.h"

static struct control_world world;

TEST(a_coordinator_begun_anew_takes_over)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    control_world_coordinator_end(&world);
    uint64_t steps = world.procs[0].steps;
    control_world_quiet(&world, SECOND);
    assert_true(world.procs[0].steps > steps + 10); /* no step needs it */
    control_world_coordinator_begin(&world);
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 3);
    assert_int_equal(world.procs[0].number, 1);
    control_world_kill(&world, 1);
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 2);
    assert_int_equal(world.procs[0].number, 2);
    control_world_close(&world);
}

/* One that was let into a later generation as the coordinator ended is no reason to name others. */
static void one_is_further_begin(uint32_t *last_out)
{
    control_world_open_growing(&world, 3, 1, 4, GF_RANK_NONE);
    control_world_quiet(&world, SECOND);
    uint32_t last = control_world_start(&world, 3, false);
    *last_out = last;
    control_wait_for(&world, last, GF_MEMBER_LISTED);
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t n = 0; n < 3; n++) control_world_turn(&world, i);
        world.procs[i].stopped = true; /* it has said its endpoint, and hears nothing of GO */
    }
    control_wait_for(&world, last, GF_MEMBER_WORKS);
    assert_int_equal(gf_member_generation(world.procs[last].member)->number, 2);
    for (uint32_t i = 0; i < 3; i++) control_world_cut(&world, i);
    control_world_coordinator_end(&world);
    control_world_coordinator_begin(&world);
}

TEST(a_takeover_that_is_late_names_who_is_missing_of_the_generation_that_most_are_of)
{
    for (uint32_t alone = 0; alone < 2; alone++) { /* .. or that is the first, of as many */
        uint32_t last;
        char text[64];
        one_is_further_begin(&last);
        control_world_kill(&world, 1);
        if (alone) control_world_kill(&world, 2);
        (void)snprintf(text, sizeof text, "%u of the 3 ranks of generation 1, rank 1 first",
                       1 + alone);
        for (uint32_t i = 0; i < 3; i++) world.procs[i].stopped = false;
        control_world_quiet(&world, 9 * SECOND);
        for (uint32_t i = 0; i < 3; i += 2) {
            if (!world.procs[i].alive) continue;
            const struct gf_error *error = gf_member_error(world.procs[i].member);
            assert_int_equal(error->code, GF_ERR_PEER);
            assert_int_equal(error->peer, 1);
            if (strstr(error->text, text) == NULL) fail_msg("%s", error->text);
        }
        control_world_close(&world);
    }
}

/* It came to the coordinator before that took the others' generation over: it hears at once that
 * it was left out, and comes in. */
TEST(who_was_let_into_a_later_generation_comes_in_after_a_takeover)
{
    uint32_t last;
    one_is_further_begin(&last);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) control_wake(&world, i);
    control_world_quiet(&world, 800 * CONTROL_MS);
    control_all_work(&world, 4);
    assert_int_equal(world.procs[last].number, 3);
    control_world_close(&world);
}

/* Rank 1 has offered itself to the coordinator begun anew, and ends before rank 2 does, which
 * computes. */
static const struct since_row {
    const char *name;
    bool closes; /* it said BYE before */
    bool unread; /* its kernel resets the connection: it counts as ended after a while */
    bool again;  /* its launcher starts it again at once */
} since_rows[] = {
    {"it_died", false, false, false},
    {"it_counts_as_ended_after_the_last_offer", false, true, false},
    {"it_was_started_again", false, false, true},
    {"it_died_with_words_unread_and_was_started_again", false, true, true},
    {"it_closed_and_was_started_again", true, false, true},
};

static void since_row_run(const struct since_row *row)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    control_world_coordinator_end(&world);
    world.procs[2].stopped = true;
    control_world_coordinator_begin(&world);
    control_world_quiet(&world, 300 * CONTROL_MS);
    if (row->closes) {
        gf_member_bye(world.procs[1].member);
        control_world_quiet(&world, 10 * CONTROL_MS);
    }
    if (row->unread)
        control_world_kill_unread(&world, 1);
    else
        control_world_kill(&world, 1);
    control_world_quiet(&world, 10 * CONTROL_MS);
    if (row->again) (void)control_world_start(&world, 1, true);
    control_world_quiet(&world, 300 * CONTROL_MS);
    control_wake(&world, 2);
    control_world_quiet(&world, 6 * SECOND);
    if (control_world_state(&world, 0) != GF_MEMBER_WORKS)
        fail_msg("%s: %s", row->name, gf_member_error(world.procs[0].member)->text);
    control_all_work(&world, row->again ? 3 : 2);
    control_world_close(&world);
}

TEST(a_generation_is_taken_over_whoever_has_ended_since)
{
    for (uint32_t i = 0; i < LENGTH(since_rows); i++) since_row_run(&since_rows[i]);
}

/* .. unless all of them have: then the job is begun anew. */
TEST(a_generation_of_which_nobody_is_left_is_not_taken_over)
{
    control_world_open(&world, 2, 1);
    control_world_quiet(&world, SECOND);
    control_world_coordinator_end(&world);
    world.procs[1].stopped = true;
    control_world_coordinator_begin(&world);
    control_world_quiet(&world, 300 * CONTROL_MS);
    control_world_kill_unread(&world, 0);
    control_wake(&world, 1);
    control_world_quiet(&world, 500 * CONTROL_MS);
    control_world_kill(&world, 1);
    for (uint32_t id = 0; id < 2; id++) (void)control_world_start(&world, id, true);
    control_world_quiet(&world, 6 * SECOND);
    control_all_work(&world, 2);
    control_world_close(&world);
}

/* Ids below `world` are new processes, all at once, and the job has grown beyond them. */
static const struct anew_row {
    const char *name;
    bool is_cut;  /* it had dialled the new coordinator, and its connection has broken */
    bool rejoins; /* so the new ones say */
} anew_rows[] = {
    {"it_has_not_dialled_yet", false, false},
    {"it_has_not_dialled_yet_and_the_launcher_says_so", false, true},
    {"its_connection_has_broken", true, false},
};

static void anew_row_run(const struct anew_row *row)
{
    uint32_t fresh[2];
    control_world_open_growing(&world, 2, 1, 3, GF_RANK_NONE);
    control_world_quiet(&world, SECOND);
    uint32_t third = control_world_start(&world, 2, false);
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 3);
    control_world_coordinator_end(&world);
    for (uint32_t id = 0; id < 2; id++) control_world_kill(&world, id);
    control_world_turn(&world, third); /* it hears that its coordinator is gone */
    control_world_coordinator_begin(&world);
    control_world_quiet(&world, row->is_cut ? 4 * SECOND : 0);
    if (row->is_cut) control_world_cut(&world, third);
    control_world_turn(&world, third);
    world.procs[third].stopped = true; /* it dials again in a moment */
    for (uint32_t id = 0; id < 2; id++) fresh[id] = control_world_start(&world, id, row->rejoins);
    control_world_quiet(&world, 1600 * CONTROL_MS);
    control_wake(&world, third);
    control_world_quiet(&world, 14 * SECOND);
    for (uint32_t id = 0; id < 2; id++) {
        const struct gf_error *error = gf_member_error(world.procs[fresh[id]].member);
        if ((world.procs[fresh[id]].number != 0) || (error->code != GF_ERR_PEER) ||
            (strstr(error->text, "begun anew") == NULL))
            fail_msg("%s: the job began beside generation 2: %s", row->name, error->text);
    }
    assert_int_equal(control_world_state(&world, third), GF_MEMBER_ENDED);
    control_world_close(&world);
}

TEST(a_job_does_not_begin_beside_a_process_that_is_of_a_generation)
{
    for (uint32_t i = 0; i < LENGTH(anew_rows); i++) anew_row_run(&anew_rows[i]);
}

/* .. where nobody can be of one, nobody is awaited; else as long as one that lives may dial. */
TEST(a_coordinator_that_may_not_be_the_first_awaits_who_may_live)
{
    for (uint32_t is_first = 0; is_first < 2; is_first++) {
        control_world_open_growing(&world, 2, 1, 3, GF_RANK_NONE);
        control_world_coordinator_end(&world);
        if (is_first) world.coordinators = 0;
        control_world_coordinator_begin(&world);
        control_world_quiet(&world, SECOND);
        assert_int_equal(world.procs[0].number, is_first);
        control_world_quiet(&world, 3 * SECOND);
        control_all_work(&world, 2);
        control_world_close(&world);
    }
}

TEST(who_was_listed_says_ready_again_to_a_coordinator_begun_anew)
{
    control_world_open_growing(&world, 2, 1, 3, GF_RANK_NONE);
    control_world_quiet(&world, SECOND);
    (void)control_world_start(&world, 2, false);
    control_wait_for(&world, 1, GF_MEMBER_LISTED);
    assert_int_equal(control_world_state(&world, 0), GF_MEMBER_LISTED);
    control_world_coordinator_end(&world);
    control_world_coordinator_begin(&world);
    control_world_quiet(&world, 3 * SECOND);
    control_all_work(&world, 3);
    control_world_close(&world);
}

TEST(who_was_away_as_a_rank_closed_hears_of_it)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = true;
    control_world_cut(&world, 2);
    control_world_turn(&world, 2);
    gf_member_bye(world.procs[1].member);
    world.procs[0].stopped = true; /* so that nobody else says FAULT */
    control_world_quiet(&world, SECOND);
    assert_int_equal(gf_member_error(world.procs[2].member)->peer, 1);
    control_world_close(&world);
}

/* .. also where it closed before the coordinator had taken the generation over. */
TEST(who_closed_before_a_takeover_is_told_after_it)
{
    control_world_open(&world, 2, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 2; i++) world.procs[i].hangs = true;
    control_world_coordinator_end(&world);
    for (uint32_t i = 0; i < 2; i++) control_world_turn(&world, i);
    world.procs[0].stopped = true;
    control_world_coordinator_begin(&world);
    control_world_quiet(&world, 300 * CONTROL_MS);
    gf_member_bye(world.procs[1].member);
    control_world_quiet(&world, 100 * CONTROL_MS);
    world.procs[0].stopped = false;
    control_world_quiet(&world, 500 * CONTROL_MS);
    const struct control_closed *closed = gf_member_closed(world.procs[0].member);
    assert_true((closed != NULL) && (closed->rank == 1));
    control_world_close(&world);
}

/* .. but nobody waits for one that is not of the generation that is taken over. */
TEST(who_closed_before_a_takeover_that_is_without_it_has_ended_well)
{
    uint32_t last;
    one_is_further_begin(&last);
    world.procs[last].hangs = true;
    control_world_quiet(&world, 300 * CONTROL_MS);
    gf_member_bye(world.procs[last].member);
    control_world_quiet(&world, 100 * CONTROL_MS);
    assert_int_equal(control_world_state(&world, last), GF_MEMBER_CLOSING);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].stopped = false;
    control_world_quiet(&world, SECOND);
    assert_int_equal(control_world_state(&world, last), GF_MEMBER_GONE);
    control_world_kill(&world, last);
    control_all_work(&world, 3);
    control_world_close(&world);
}

/* What a process that is of no generation does to a job that runs, whose coordinator was begun anew
 * and has not taken it over yet. */
static const struct newcomer_row {
    const char *name;
    bool differs;  /* else it gives up */
    bool is_first; /* it comes before any member */
    gf_status code;
} newcomer_rows[] = {
    {"that_was_given_other_things", true, false, GF_ERR_MISMATCH},
    {"that_was_given_other_things_and_comes_first", true, true, GF_ERR_MISMATCH},
    {"that_gives_up", false, false, GF_ERR_TIMEOUT},
};

static void newcomer_row_run(const struct newcomer_row *row)
{
    control_world_open_growing(&world, 2, 1, 3, GF_RANK_NONE);
    control_world_quiet(&world, SECOND);
    control_world_coordinator_end(&world);
    for (uint32_t i = 0; i < 2; i++) control_world_turn(&world, i);
    world.procs[0].stopped = row->is_first;
    world.procs[1].stopped = true; /* the takeover waits for it */
    control_world_coordinator_begin(&world);
    control_world_quiet(&world, 300 * CONTROL_MS);
    world.tensors_hash = row->differs ? 1 : 0;
    uint32_t spare = control_world_start(&world, 2, false);
    control_world_quiet(&world, 300 * CONTROL_MS);
    if (!row->differs) gf_member_fault(world.procs[spare].member, &control_stuck, true);
    world.procs[0].stopped = false;
    control_world_quiet(&world, 300 * CONTROL_MS);
    world.procs[1].stopped = false;
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 2; i++)
        if (control_world_state(&world, i) != GF_MEMBER_WORKS)
            fail_msg("%s: %s", row->name, gf_member_error(world.procs[i].member)->text);
    assert_int_equal(world.procs[0].number, 1);
    assert_int_equal(gf_member_error(world.procs[spare].member)->code, row->code);
    control_world_close(&world);
}

TEST(a_newcomer_ends_no_job_that_is_not_taken_over_yet)
{
    for (uint32_t i = 0; i < LENGTH(newcomer_rows); i++) newcomer_row_run(&newcomer_rows[i]);
}

/* .. nor one that has the id of a member which has not dialled yet, and dies. */
TEST(a_second_process_of_an_id_that_dies_ends_no_job_that_is_not_taken_over_yet)
{
    control_world_open_fixed(&world, 3, 1, true);
    control_world_quiet(&world, SECOND);
    control_world_coordinator_end(&world);
    for (uint32_t i = 0; i < 3; i++) control_world_turn(&world, i);
    world.procs[1].stopped = true;
    control_world_coordinator_begin(&world);
    control_world_quiet(&world, 300 * CONTROL_MS);
    uint32_t second = control_world_start(&world, 1, false);
    control_world_quiet(&world, 300 * CONTROL_MS);
    control_world_kill(&world, second);
    control_world_quiet(&world, 300 * CONTROL_MS);
    world.procs[1].stopped = false;
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 3);
    assert_int_equal(world.procs[0].number, 1);
    control_world_close(&world);
}

/* The last of a generation dials as the job is about to begin anew beside it: the first list is
 * given up, and those on it come in. */
TEST(a_generation_is_taken_over_while_the_first_list_is_out)
{
    uint32_t fresh[2];
    control_world_open_growing(&world, 2, 1, 3, GF_RANK_NONE);
    control_world_quiet(&world, SECOND);
    uint32_t third = control_world_start(&world, 2, false);
    control_world_quiet(&world, SECOND);
    for (uint32_t id = 0; id < 2; id++) control_world_kill(&world, id);
    control_world_quiet(&world, 3 * SECOND);
    control_all_work(&world, 1);
    uint32_t number = world.procs[third].number;
    world.procs[third].stopped = true; /* it computes */
    control_world_coordinator_end(&world);
    control_world_coordinator_begin(&world);
    for (uint32_t id = 0; id < 2; id++) fresh[id] = control_world_start(&world, id, false);
    control_wait_for(&world, fresh[0], GF_MEMBER_LISTED);
    for (uint32_t id = 0; id < 2; id++) world.procs[fresh[id]].stopped = true;
    control_world_cut(&world, fresh[1]);
    control_world_quiet(&world, 10 * CONTROL_MS);
    control_wake(&world, third);
    for (uint32_t i = 0; (i < 400) && (world.coordinator->number == 0); i++)
        control_world_quiet(&world, 5 * CONTROL_MS);
    assert_int_equal(world.coordinator->number, number);
    assert_false(world.coordinator->listing);
    assert_int_equal(gf_coordinator_joiner_count(world.coordinator), 1);
    for (uint32_t id = 0; id < 2; id++) world.procs[fresh[id]].stopped = false;
    control_world_quiet(&world, 2 * SECOND);
    control_all_work(&world, 3);
    control_world_close(&world);
}

TEST(a_failure_that_only_one_had_heard_of_is_told_after_a_takeover)
{
    struct control_ready ready = {.progress = {.applied = 1}};
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = true;
    control_world_coordinator_end(&world);
    control_world_quiet(&world, 50 * CONTROL_MS);
    world.procs[1].stopped = true; /* the last that is awaited */
    gf_member_ready(world.procs[0].member, &ready);
    control_world_coordinator_begin(&world);
    control_world_quiet(&world, 300 * CONTROL_MS);
    world.procs[1].stopped = false;
    control_world_quiet(&world, 200 * CONTROL_MS);
    assert_true(gf_member_is_found(world.procs[2].member) || (world.procs[2].number == 2) ||
                (control_world_state(&world, 2) >= GF_MEMBER_READY) ||
                (control_world_state(&world, 2) == GF_MEMBER_LISTED));
    control_world_close(&world);
}

/* .. also where a process of another generation said so after them. */
TEST(a_failure_before_a_takeover_is_heard_whoever_fails_last)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    world.procs[2].stopped = true;
    control_world_cut(&world, 2);
    gf_member_fault(world.procs[0].member, &control_stuck, false);
    control_world_quiet(&world, 8 * SECOND);
    assert_int_equal(world.procs[0].number, 2);
    control_world_coordinator_end(&world);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = true;
    control_wake(&world, 2);
    for (uint32_t i = 0; i < 3; i++) control_world_turn(&world, i);
    for (uint32_t i = 0; i < 3; i++) gf_member_fault(world.procs[i].member, &control_stuck, false);
    control_world_coordinator_begin(&world);
    world.is_stopped =
        true; /* it takes all offers in one poll, that of the generation before last */
    world.procs[2].stopped = true;
    control_world_quiet(&world, 300 * CONTROL_MS);
    control_wake(&world, 2);
    control_world_quiet(&world, 300 * CONTROL_MS);
    world.is_stopped = false;
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = false;
    control_world_quiet(&world, 5 * SECOND);
    control_all_work(&world, 3);
    assert_int_equal(world.procs[0].number, 3);
    control_world_close(&world);
}

/* Its kernel gave the connection up while it computed, and it dials once it polls. */
TEST(who_computes_and_is_reset_before_a_takeover_is_awaited)
{
    for (uint32_t is_fixed = 0; is_fixed < 2; is_fixed++) {
        control_world_open_fixed(&world, 3, 1, is_fixed);
        control_world_quiet(&world, SECOND);
        control_world_coordinator_end(&world);
        for (uint32_t i = 0; i < 3; i++) control_world_turn(&world, i);
        world.procs[2].stopped = true;
        control_world_coordinator_begin(&world);
        control_all_compute(&world, 300 * CONTROL_MS);
        world.coordinator->terms.exchange_timeout_ns = 6 * SECOND;
        world.procs[1].stopped = true;
        control_all_compute(&world, 1500 * CONTROL_MS);
        control_world_reset(&world, 1);
        control_all_compute(&world, 100 * CONTROL_MS);
        control_wake(&world, 2);
        control_all_compute(&world, 2900 * CONTROL_MS);
        control_wake(&world, 1);
        control_all_compute(&world, 2 * SECOND);
        control_all_work(&world, 3);
        assert_int_equal(world.procs[0].number, 1);
        control_world_close(&world);
    }
}
