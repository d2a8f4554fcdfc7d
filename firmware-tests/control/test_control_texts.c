/* What errors, the coordinator's lines and its status say. */
#include "gradientflow.h"
#include "firmware-tests/support/control_suite.h"
#include "lib/control/coordinator_state.h"

static struct control_world world;

/* ---- where a rank was ---- */

static void report_set(uint32_t id, uint64_t step, gf_operation operation, uint32_t tensor)
{
    struct control_report *report = gf_member_report(world.procs[id].member);
    world.procs[id].hangs = true;
    report->step = step;
    report->operation = operation;
    report->tensor = tensor;
    report->buffer = 3;
}

TEST(a_death_says_where_that_rank_was)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t id = 0; id < 3; id++) report_set(id, 500, GF_OPERATION_ALLREDUCE, 12);
    control_world_quiet(&world, 400 * CONTROL_MS);
    control_world_kill(&world, 1);
    for (uint32_t id = 0; id < 3; id += 2) {
        for (uint32_t i = 0; (i < 20) && !gf_member_is_found(world.procs[id].member); i++)
            control_world_quiet(&world, 5 * CONTROL_MS);
    }
    const struct gf_error *error = gf_member_error(world.procs[0].member);
    assert_int_equal(error->peer, 1);
    assert_int_equal(error->step, 500);
    assert_int_equal(error->operation, GF_OPERATION_ALLREDUCE);
    assert_int_equal(error->tensor, 12);
    assert_non_null(strstr(error->text, "rank 1 died: ended in step 500, operation allreduce, "
                                        "buffer 3, tensor 12 \"conv1.weight\" (as of 0."));
    control_world_close(&world);
}

/* .. or where another was, which it had voted for. */
TEST(a_death_says_where_the_furthest_rank_was)
{
    control_world_open(&world, 4, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t id = 0; id < 4; id++) world.procs[id].hangs = true;
    report_set(0, 499, GF_OPERATION_ALLREDUCE, 12);
    report_set(3, 500, GF_OPERATION_VOTE, GF_TENSOR_NONE);
    control_world_quiet(&world, 400 * CONTROL_MS);
    control_world_kill(&world, 1);
    for (uint32_t i = 0; (i < 20) && !gf_member_is_found(world.procs[0].member); i++)
        control_world_quiet(&world, 5 * CONTROL_MS);
    const struct gf_error *error = gf_member_error(world.procs[0].member);
    assert_int_equal(error->step, 500);
    assert_int_equal(error->operation, GF_OPERATION_VOTE);
    if (strstr(error->text, "rank 1 died: ended; rank 3 was in step 500, operation vote") == NULL)
        fail_msg("%s", error->text);
    control_world_close(&world);
}

TEST(a_death_in_a_step_that_was_not_told_yet_is_in_that_of_the_others)
{
    control_world_open(&world, 2, 1);
    control_world_quiet(&world, SECOND);
    report_set(0, 500, GF_OPERATION_VOTE, GF_TENSOR_NONE);
    world.procs[1].hangs = true;
    control_world_kill(&world, 1);
    for (uint32_t i = 0; (i < 20) && !gf_member_is_found(world.procs[0].member); i++)
        control_world_quiet(&world, 5 * CONTROL_MS);
    assert_int_equal(gf_member_error(world.procs[0].member)->step, 500);
    assert_int_equal(gf_member_error(world.procs[0].member)->operation, GF_OPERATION_VOTE);
    control_world_close(&world);
}

/* Its own words say where it was, too: that stands there once, and whole. */
TEST(who_gives_up_in_a_regroup_is_located_once)
{
    static const struct gf_error saw = {
        .code = GF_ERR_PEER,
        .peer = 1,
        .tensor = GF_TENSOR_NONE,
        .text = "rank 1 died: connection closed by peer in step 500, operation step (as of 0.1 s)"};
    static char said[8192];
    said[0] = '\0';
    control_world_open(&world, 4, 1);
    world.said = said;
    world.said_bytes = sizeof said;
    control_world_quiet(&world, SECOND);
    for (uint32_t id = 0; id < 4; id++) report_set(id, 500, GF_OPERATION_STEP, GF_TENSOR_NONE);
    control_world_quiet(&world, 400 * CONTROL_MS);
    control_world_kill(&world, 1);
    for (uint32_t i = 0; (i < 20) && !gf_member_is_found(world.procs[0].member); i++)
        control_world_quiet(&world, 5 * CONTROL_MS);
    gf_member_fault(world.procs[2].member, &saw, true);
    control_world_quiet(&world, 5 * CONTROL_MS);
    if (strstr(said, "rank 2 gave up: rank 1 died: connection closed by peer in step 500, "
                     "operation step (as of ") == NULL)
        fail_msg("%s", said);
    world.said = NULL;
    control_world_close(&world);
}

TEST(who_has_closed_hears_for_whom_it_waits)
{
    uint32_t rank;
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    report_set(1, 500, GF_OPERATION_BARRIER, GF_TENSOR_NONE);
    report_set(2, 500, GF_OPERATION_BARRIER, GF_TENSOR_NONE);
    report_set(0, 500, GF_OPERATION_NONE, GF_TENSOR_NONE);
    assert_string_equal(gf_member_waits_for(world.procs[0].member, &rank), "");
    control_world_quiet(&world, 400 * CONTROL_MS);
    gf_member_bye(world.procs[0].member);
    control_world_quiet(&world, 1200 * CONTROL_MS);
    assert_string_equal(gf_member_waits_for(world.procs[0].member, &rank),
                        "step 500, operation barrier");
    assert_int_equal(rank, 1);
    control_world_close(&world);
}

/* ---- what the coordinator says, a line an event ---- */

static void expect_said(const char *text)
{
    if (strstr(world.said, text) == NULL) fail_msg("\"%s\" was not said:\n%s", text, world.said);
    world.said[0] = '\0';
}

/* .. also of a state that it enters, and once. */
TEST(a_line_says_in_which_state_the_coordinator_is)
{
    static char said[8192];
    said[0] = '\0';
    control_world_open(&world, 3, 1);
    world.said = said;
    world.said_bytes = sizeof said;
    control_world_quiet(&world, SECOND);
    if (strstr(said, "the coordinator of generation 0") != NULL) fail_msg("%s", said);
    expect_said("generation 1 has begun with 3 ranks\nthe coordinator of generation 1 runs\n");
    world.procs[1].stopped = true;
    control_world_kill(&world, 2);
    control_world_quiet(&world, 100 * CONTROL_MS);
    const char *line = strstr(said, "the coordinator of generation 1 regroups\n");
    if ((line == NULL) || (strstr(line + 1, "the coordinator of") != NULL)) fail_msg("%s", said);
    world.procs[1].stopped = false;
    control_world_quiet(&world, SECOND);
    expect_said("the coordinator of generation 1 gathers\n");
    gf_member_fault(world.procs[0].member, &control_stuck, false);
    control_world_quiet(&world, 10 * CONTROL_MS);
    expect_said("the coordinator of generation 2 inquires\n");
    control_world_close(&world);
}

TEST(a_line_says_what_happens)
{
    static char said[8192];
    said[0] = '\0';
    control_world_open_growing(&world, 3, 1, 4, GF_RANK_NONE);
    world.said = said;
    world.said_bytes = sizeof said;
    control_world_quiet(&world, SECOND);
    expect_said("member 0 is here\nmember 1 is here\nmember 2 is here\n"
                "generation 1 has begun with 3 ranks\n");
    control_world_cut(&world, 1);
    control_world_quiet(&world, 200 * CONTROL_MS);
    expect_said("the connection of member 1 (rank 1) broke: ended\n"
                "member 1 (rank 1) is connected again\n");
    (void)control_world_start(&world, 3, false);
    control_world_quiet(&world, 500 * CONTROL_MS);
    expect_said("member 3 waits to come in\na regroup begins: ranks wait to come in, or leave\n");
    control_world_kill(&world, 1);
    control_world_quiet(&world, 100 * CONTROL_MS);
    expect_said("member 1 (rank 1) has ended: ended\n");
    world.procs[0].leaves = true;
    control_world_quiet(&world, 200 * CONTROL_MS);
    expect_said("member 0 (rank 0) leaves\n");
    control_world_kill(&world, 0);
    control_world_quiet(&world, 100 * CONTROL_MS);
    if (strstr(said, "member 0 has ended") != NULL) fail(); /* it has left */
    if (strstr(said, "member 0 (rank 0) has ended") != NULL) fail();
    for (uint32_t i = 2; i < 4; i++) {
        world.procs[i].hangs = true;
        gf_member_bye(world.procs[i].member);
    }
    control_world_quiet(&world, 100 * CONTROL_MS);
    expect_said("member 2 (rank 0) has closed after ");
    control_world_close(&world);
}

/* Another job.world, as another key or version: who waits for all ranks hears it at once. */
TEST(a_process_that_is_refused_is_told_to_those_that_wait)
{
    static const char why[] = "rank 2 has job.world 4, the coordinator of this job has 3";
    static char said[8192];
    unsigned char payload[1024];
    struct gf_put put = {payload, sizeof payload};
    struct control_offer offer = {.id = 2, .id_count = 3, .first_world = 4, .process = 77};
    said[0] = '\0';
    control_world_open(&world, 3, 1);
    world.said = said;
    world.said_bytes = sizeof said;
    control_world_kill(&world, 2);
    control_world_quiet(&world, 100 * CONTROL_MS);
    gf_frame_offer_walk(&(struct gf_walk){.put = &put}, &offer);
    struct gf_channel *channel = control_world_stranger(&world);
    for (uint32_t i = 0; i < 2; i++) { /* it tries again */
        channel->driver->dial(channel, 0);
        (void)channel->driver->send(channel, 0, CONTROL_OFFER, payload,
                                    (uint32_t)(sizeof payload - put.left));
        control_world_quiet(&world, 20 * CONTROL_MS);
    }
    for (uint32_t id = 0; id < 2; id++) {
        char line[160];
        (void)snprintf(line, sizeof line,
                       "rank %u waits for all ranks to join, and the coordinator at memory has "
                       "refused one: %s\n",
                       id, why);
        const char *at = strstr(said, line);
        if ((at == NULL) || (strstr(at + 1, line) != NULL)) fail_msg("not once: %s", said);
    }
    control_world_quiet(&world, 9 * SECOND);
    const char *text = gf_member_error(world.procs[0].member)->text;
    assert_non_null(strstr(text, "rank 2 of 3 did not join within 8.0 s; a process was refused: "));
    assert_non_null(strstr(text, why));
    control_world_close(&world);
}

TEST(who_closed_in_the_first_join_is_said_to_have)
{
    control_world_open(&world, 3, 1);
    world.procs[2].stopped = true;
    control_world_quiet(&world, 100 * CONTROL_MS);
    gf_member_bye(world.procs[1].member);
    control_world_quiet(&world, 100 * CONTROL_MS);
    control_world_kill(&world, 1);
    control_world_quiet(&world, 9 * SECOND);
    const char *text = gf_member_error(world.procs[0].member)->text;
    if (strstr(text, ": rank 1 ended while ranks were joining (it closed its context)") == NULL)
        fail_msg("%s", text);
    control_world_close(&world);
}

/* ---- who asks what is going on ---- */

/* What a stranger at that connection is told of the job. */
static void look(struct gf_channel *channel, struct control_status *shown_out)
{
    struct gf_channel_event event;
    channel->driver->dial(channel, 0);
    assert_true(channel->driver->poll(channel, 0, &event));
    assert_int_equal(event.kind, GF_CHANNEL_CONNECTED);
    assert_int_equal(channel->driver->send(channel, 0, CONTROL_STATUS_QUERY, "", 0), GF_OK);
    control_world_coordinate(&world);
    assert_true(channel->driver->poll(channel, 0, &event));
    assert_int_equal(event.frame_kind, CONTROL_STATUS_ANSWER);
    struct gf_get get = {.at = event.payload, .left = event.size_bytes};
    gf_frame_status_walk(&(struct gf_walk){.get = &get}, shown_out);
    assert_false(get.bad);
    assert_int_equal(get.left, 0);
}

TEST(a_connection_that_is_no_members_is_shown_the_job_once)
{
    struct control_status shown = {0};
    struct gf_channel_event event;
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    control_world_kill(&world, 1);
    control_world_quiet(&world, 100 * CONTROL_MS);
    struct gf_channel *channel = control_world_stranger(&world);
    look(channel, &shown);
    assert_int_equal(shown.state, GF_COORDINATOR_RUN);
    assert_int_equal(shown.generation, 2);
    assert_int_equal(shown.world, 2);
    assert_int_equal(shown.here, 2);
    assert_int_equal(shown.present[0], 1 + 4);
    assert_true(channel->driver->poll(channel, 0, &event));
    assert_int_equal(event.kind, GF_CHANNEL_ENDED);
    control_world_quiet(&world, 100 * CONTROL_MS);
    control_all_work(&world, 2);
    control_world_close(&world);
}

TEST(who_was_refused_is_shown)
{
    struct control_status shown = {0};
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    control_world_kill(&world, 1);
    control_world_quiet(&world, 100 * CONTROL_MS);
    look(control_world_stranger(&world), &shown);
    assert_int_equal(shown.refused_count, 0);
    world.tensors_hash = 99;
    uint32_t other = control_world_start(&world, 1, true);
    control_world_quiet(&world, 100 * CONTROL_MS);
    assert_int_equal(control_world_state(&world, other), GF_MEMBER_ENDED);
    look(control_world_stranger(&world), &shown);
    assert_int_equal(shown.refused_count, 1);
    assert_non_null(strstr(shown.refused_text, "tensor tables differ"));
    assert_int_equal(shown.present[0], 1 + 4);
    control_world_close(&world);
    world.tensors_hash = 0;
}
