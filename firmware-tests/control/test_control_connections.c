/* A connection that breaks, is reset or has no room costs nobody the job; a process that has ended,
 * or was stopped, costs that process alone. */
#include "gradientflow.h"
#include "firmware-tests/support/control_suite.h"
#include "lib/control/coordinator_state.h"

static struct control_world world;

TEST(a_job_begins_and_goes_on)
{
    control_world_open(&world, 4, 1);
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 4);
    assert_int_equal(world.procs[0].number, 1);
    assert_true(world.procs[0].steps > 10);
    control_world_close(&world);
}

TEST(one_survivor_is_enough_whoever_dies)
{
    for (uint32_t last = 0; last < 4; last++) {
        control_world_open(&world, 4, 1);
        control_world_quiet(&world, SECOND);
        for (uint32_t id = 0; id < 4; id++)
            if (id != last) control_world_kill(&world, id);
        control_world_quiet(&world, 100 * CONTROL_MS);
        control_all_work(&world, 1);
        for (uint32_t id = 0; id < 4; id++)
            if (id != last) (void)control_world_start(&world, id, true);
        control_world_quiet(&world, SECOND);
        control_all_work(&world, 4);
        control_world_close(&world);
    }
}

TEST(a_connection_that_breaks_costs_nothing)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 20; i++) {
        control_world_cut(&world, i % 3);
        control_world_quiet(&world, 200 * CONTROL_MS);
    }
    control_all_work(&world, 3);
    assert_int_equal(world.procs[0].number, 1);
    control_world_close(&world);
}

/* A reset is of a process that has ended with words unread, or of one that lives. */
TEST(a_connection_that_is_reset_costs_nothing_where_its_process_lives)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 20; i++) {
        control_world_reset(&world, i % 3);
        control_world_quiet(&world, 3 * SECOND);
    }
    control_all_work(&world, 3);
    assert_int_equal(world.procs[0].number, 1);
    control_world_close(&world);
}

TEST(who_ends_with_words_unread_is_found_as_it_does_not_dial_again)
{
    static char said[8192];
    struct gf_coordinator_status status = {.world = 3};
    control_world_open(&world, 3, 1);
    said[0] = '\0';
    world.said = said;
    world.said_bytes = sizeof said;
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = true; /* nobody says FAULT */
    uint64_t since_ns = world.now_ns;
    control_world_kill_unread(&world, 2);
    while ((status.error.code == GF_OK) && (world.now_ns - since_ns < 4 * SECOND)) {
        control_world_quiet(&world, 10 * CONTROL_MS);
        gf_coordinator_status(world.coordinator, &status);
    }
    assert_int_equal(status.error.peer, 2);
    assert_non_null(strstr(status.error.text, "rank 2 died, or is cut off"));
    assert_non_null(strstr(said, "member 2 (rank 2) counts as ended: its connection was reset, and "
                                 "it did not dial again within 2.0 s\n"));
    world.said = NULL;
    assert_true(world.now_ns - since_ns < 2 * SECOND + 100 * CONTROL_MS);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = false;
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 2);
    control_world_close(&world);
}

/* .. and is told once, with how many others have ended at the same time. */
TEST(ranks_that_end_at_once_are_told_once)
{
    static char said[8192];
    for (uint32_t unread = 0; unread < 2; unread++) {
        said[0] = '\0';
        control_world_open(&world, 5, 1);
        control_world_quiet(&world, SECOND);
        world.said = said;
        world.said_bytes = sizeof said;
        world.procs[0].stopped = true; /* the regroup waits for it */
        for (uint32_t id = 2; id < 5; id++) {
            if (unread)
                control_world_kill_unread(&world, id);
            else
                control_world_kill(&world, id);
        }
        control_world_quiet(&world, unread ? 3 * SECOND : SECOND);
        const char *first = strstr(said, ", and 2 more ranks");
        if ((first == NULL) || (strstr(first + 1, ", and ") != NULL)) fail_msg("%s", said);
        world.said = NULL;
        control_world_close(&world);
    }
}

/* .. and if it lives after all, it comes in again. */
TEST(who_was_reset_and_dials_too_late_comes_in_again)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    control_world_reset(&world, 2);
    control_world_turn(&world, 2);
    world.procs[2].stopped = true;
    control_world_quiet(&world, 3 * SECOND);
    assert_null(world.broken);
    assert_int_equal(world.procs[0].number, 2);
    control_wake(&world, 2);
    control_world_quiet(&world, 2 * SECOND);
    control_all_work(&world, 3);
    assert_int_equal(world.procs[2].number, 3);
    control_world_close(&world);
}

/* .. all of them, too: nobody is left that went on without them. */
TEST(all_that_were_reset_and_dial_too_late_go_on)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) control_world_reset(&world, i);
    for (uint32_t i = 0; i < 3; i++) control_world_turn(&world, i);
    control_all_stop(&world, 3 * SECOND);
    control_world_quiet(&world, 14 * SECOND);
    control_all_work(&world, 3);
    control_world_close(&world);
}

/* Its kernel gave the connection up while it computed, and it dials once it polls. */
static const struct outage_row {
    const char *name;
    uint32_t computes;   /* bits of ranks that are not polled */
    bool is_unpolled;    /* nor is the coordinator, as long as the outage lasts, */
    bool is_heard_first; /* .. and a word that came as that began is read as it ends */
    bool is_left_out;    /* .. and its host leaves that time out of its clock */
} outage_rows[] = {
    {"the_coordinator_runs", 4, false, false, false},
    {"the_coordinator_is_stopped", 4, true, false, false},
    {"it_is_stopped_and_all_compute", 7, true, false, false},
    {"it_is_stopped_with_a_word_unread", 4, true, true, false},
    {"its_host_computes", 4, true, false, true},
};

static void outage_computes(uint32_t ranks, bool begins)
{
    for (uint32_t i = 0; i < world.proc_count; i++) {
        if ((ranks & (1u << i)) == 0) continue;
        world.procs[i].stopped = begins;
        world.procs[i].now_ns = world.now_ns;
    }
}

static void outage_row_run(const struct outage_row *row)
{
    struct gf_coordinator_status status;
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    world.coordinator->terms.exchange_timeout_ns = 6 * SECOND;
    world.is_stopped = row->is_unpolled;
    if (row->is_heard_first) control_all_compute(&world, 200 * CONTROL_MS);
    outage_computes(row->computes, true);
    control_all_compute(&world, 1500 * CONTROL_MS); /* longer than keepalive */
    world.is_stopped = false;
    if (row->is_left_out) {
        gf_coordinator_away(world.coordinator, 1400 * CONTROL_MS);
        world.now_ns -= 1400 * CONTROL_MS;
    }
    if (row->is_heard_first) control_world_coordinate(&world);
    for (uint32_t i = 0; i < world.proc_count; i++)
        if ((row->computes & (1u << i)) != 0) control_world_reset(&world, i);
    control_all_compute(&world, 3 * SECOND);
    gf_coordinator_status(world.coordinator, &status);
    if ((status.error.code != GF_OK) ||
        (status.here != 3 - (uint32_t)__builtin_popcount(row->computes)))
        fail_msg("%s: %u are here: %s", row->name, status.here, status.error.text);
    outage_computes(row->computes, false);
    control_all_compute(&world, SECOND);
    gf_coordinator_status(world.coordinator, &status);
    if ((status.error.code != GF_OK) || (status.here != 3) || (status.generation != 1))
        fail_msg("%s: %u are here in the end: %s", row->name, status.here, status.error.text);
    assert_int_equal(control_world_state(&world, 2), GF_MEMBER_WORKS);
    control_world_close(&world);
}

TEST(who_computes_and_is_reset_behind_a_long_outage_is_awaited)
{
    for (uint32_t i = 0; i < LENGTH(outage_rows); i++) outage_row_run(&outage_rows[i]);
}

/* Only a port that refuses says that rank 0 has ended, in whose process the coordinator ran. */
TEST(a_reset_of_the_coordinators_connection_is_dialled_again)
{
    control_world_open_hosted(&world, 3, 1, 0);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) control_world_reset(&world, i);
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 3);
    control_world_close(&world);
}

TEST(a_process_that_was_stopped_comes_in_again)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    world.procs[1].stopped = true;
    control_world_quiet(&world, 8 * SECOND);
    assert_null(world.broken);
    assert_int_equal(world.procs[0].number, 2);
    control_wake(&world, 1);
    control_world_quiet(&world, 2 * SECOND);
    control_all_work(&world, 3);
    assert_int_equal(world.procs[1].number, 3);
    control_world_close(&world);
}

TEST(a_process_that_was_stopped_tries_again_before_it_ends)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    control_world_cut(&world, 1);
    control_world_turn(&world, 1);
    world.procs[1].stopped = true;
    control_world_quiet(&world, 10 * SECOND);
    control_wake(&world, 1);
    control_world_quiet(&world, 8 * SECOND);
    control_all_work(&world, 3);
    control_world_close(&world);
}

/* ---- room of a channel ---- */

TEST(a_channel_that_takes_one_frame_at_a_time_loses_nothing)
{
    control_world_open(&world, 4, 1);
    world.room = 1;
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 4);
    control_world_kill(&world, 3);
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 3);
    (void)control_world_start(&world, 3, true);
    control_world_cut(&world, 1);
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 4);
    for (uint32_t i = 0; i < world.proc_count; i++)
        if (world.procs[i].alive) gf_member_bye(world.procs[i].member);
    control_world_quiet(&world, SECOND);
    assert_int_equal(gf_coordinator_poll(world.coordinator, world.now_ns), GF_OK);
    control_world_close(&world);
}

/* After all that has come there is always one more frame of process 0. */
static const struct gf_channel_driver *driver_plain;
static bool poll_flooded(struct gf_channel *channel, uint64_t now_ns,
                         struct gf_channel_event *event_out)
{
    if (driver_plain->poll(channel, now_ns, event_out)) return true;
    *event_out = (struct gf_channel_event){.kind = GF_CHANNEL_FRAME,
                                           .connection = world.coordinator->rows[0].connection,
                                           .frame_kind = CONTROL_STATUS_QUERY,
                                           .payload = ""};
    return true;
}

TEST(a_member_that_sends_without_end_holds_nobody_up)
{
    static struct gf_channel_driver flooded;
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    driver_plain = world.channel.driver;
    flooded = *driver_plain;
    flooded.poll = poll_flooded;
    world.channel.driver = &flooded;
    control_world_kill(&world, 1);
    control_world_quiet(&world, SECOND); /* what has come goes before what is late, for 2 s */
    assert_int_equal(world.coordinator->number, 1);
    control_world_quiet(&world, 3 * SECOND);
    control_all_work(&world, 2);
    world.channel.driver = driver_plain;
    control_world_close(&world);
}
