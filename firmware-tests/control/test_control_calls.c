/* Calls that differ between ranks: the coordinator finds the first, and the job ends with it. */
#include "gradientflow.h"
#include "firmware-tests/support/control_suite.h"

static struct control_world world;

static void calls_post(uint32_t id, uint32_t count, uint32_t other, uint32_t root)
{
    for (uint32_t number = 1; number <= count; number++)
        gf_member_call(world.procs[id].member,
                       (number == other) ? GF_OPERATION_BROADCAST : GF_OPERATION_ALLREDUCE,
                       (number == other) ? GF_TYPE_F16 : GF_TYPE_F32,
                       (number == other) ? root : GF_REDUCTION_SUM, 64);
}

/* Requests of three ranks; number `other` of rank 1 is another one. */
static const struct call_row {
    const char *name;
    uint32_t counts[3];
    uint32_t other;
    bool at_inquiry, at_bye;
    const char *text; /* NULL: nothing differs */
} call_rows[] = {
    {"the_last_one",
     {5, 5, 5},
     5,
     false,
     false,
     "calls differ: request 5 is allreduce of 64 fp32 at rank 0, broadcast of 64 fp16 from "
     "rank 2 at rank 1"},
    {"whoever_is_ahead", {4, 6, 5}, 4, false, false, "calls differ: request 4 is allreduce"},
    {"one_that_is_remembered_no_more",
     {40, 40, 40},
     3,
     false,
     false,
     "calls differ between ranks 0 and 1: one of the requests 1 to 32 (the next one is allreduce"},
    {"ranks_that_are_far_apart",
     {6200, 7100, 5000},
     3000,
     false,
     false,
     "calls differ between ranks 0 and 1: one of the requests "},
    {"at_an_inquiry", {5, 5, 5}, 2, true, false, "calls differ: request 2 is"},
    {"as_a_rank_closes", {5, 5, 5}, 5, false, true, "calls differ: request 5 is"},
    {"nothing_differs", {9000, 5, 70}, 0, true, false, NULL},
};

TEST(calls_that_differ_are_found)
{
    for (uint32_t i = 0; i < LENGTH(call_rows); i++) {
        const struct call_row *row = &call_rows[i];
        struct gf_coordinator_status status;
        control_world_open(&world, 3, 1);
        control_world_quiet(&world, SECOND);
        for (uint32_t id = 0; id < 3; id++) {
            world.procs[id].hangs = true;
            calls_post(id, row->counts[id], (id == 1) ? row->other : 0, 2);
            if (row->at_bye) gf_member_bye(world.procs[id].member);
        }
        if (row->at_inquiry) gf_member_fault(world.procs[0].member, &control_stuck, false);
        control_world_quiet(&world, row->at_bye ? 100 * CONTROL_MS : SECOND);
        gf_coordinator_status(world.coordinator, &status);
        if (row->text == NULL) {
            assert_int_not_equal(status.error.code, GF_ERR_MISMATCH);
        } else if ((status.error.code != GF_ERR_MISMATCH) || (status.error.peer != 1) ||
                   (strstr(status.error.text, row->text) == NULL)) {
            fail_msg("%s: code %d, rank %u: %s", row->name, status.error.code, status.error.peer,
                     status.error.text);
        }
        for (uint32_t id = 0; (row->text != NULL) && !row->at_bye && (id < 3); id++)
            assert_int_equal(gf_member_error(world.procs[id].member)->code, GF_ERR_MISMATCH);
        control_world_close(&world);
    }
}

/* `heard`: a finding of an older generation, which it has heard, is another one. */
static void again_as_it_ends(bool heard)
{
    control_world_open(&world, heard ? 4 : 3, 1);
    control_world_quiet(&world, SECOND);
    if (heard) control_world_kill(&world, 3);
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 3);
    for (uint32_t id = 0; id < 3; id++) world.procs[id].hangs = true;
    control_world_cut(&world, 2);
    control_world_coordinate(&world);
    calls_post(0, 1, 0, 0);
    calls_post(1, 1, 1, 0);
    while (gf_member_error(world.procs[1].member)->code == GF_OK) {
        control_world_coordinate(&world);
        for (uint32_t id = 0; id < 2; id++) control_world_turn(&world, id);
    }
    assert_int_equal(gf_coordinator_poll(world.coordinator, world.now_ns), GF_AGAIN);
    control_world_quiet(&world, 200 * CONTROL_MS);
    assert_int_equal(gf_member_error(world.procs[2].member)->code, GF_ERR_MISMATCH);
    assert_int_equal(gf_coordinator_poll(world.coordinator, world.now_ns), GF_ERR_MISMATCH);
    uint32_t late = control_world_start(&world, 2, true); /* of a join it would be that error */
    control_world_quiet(&world, 100 * CONTROL_MS);
    const struct gf_error *error = gf_member_error(world.procs[late].member);
    assert_int_equal(error->code, GF_ERR_STATE);
    assert_non_null(strstr(error->text, "the job has ended: calls differ"));
    control_world_close(&world);
}

TEST(who_dials_again_as_the_job_ends_hears_why)
{
    for (uint32_t heard = 0; heard < 2; heard++) again_as_it_ends(heard == 1);
}

/* Two ranks say the same number now and then, however fast they post. */
TEST(marks_are_told_of_every_64th_request_and_of_fewer)
{
    static struct control_calls calls;
    static const struct {
        uint64_t count, last, marks[CONTROL_CALLS_MARKS];
    } rows[] = {{5, 0, {0, 0, 0}},
                {8, 1, {0, 0, 0}},
                {64, 57, {64, 0, 0}},
                {1100, 1093, {1088, 1024, 0}},
                {16400, 16393, {16384 + 0, 16384, 16384}}};
    calls = (struct control_calls){0};
    for (uint32_t i = 0; i < LENGTH(rows); i++) {
        while (calls.count < rows[i].count)
            gf_calls_add(&calls, GF_OPERATION_ALLREDUCE, GF_TYPE_F32, 0, calls.count);
        assert_int_equal(gf_calls_number(&calls, 0), rows[i].last);
        for (uint32_t mark = 0; mark < CONTROL_CALLS_MARKS; mark++) {
            uint64_t number = rows[i].marks[mark];
            assert_int_equal(gf_calls_number(&calls, CONTROL_CALLS_LAST + mark), number);
            if (number != 0) assert_int_equal(calls.marks[mark].elem_count, number - 1);
        }
    }
}

/* A request of ranks 0 and 1, which differ in one thing. */
static const struct pair_row {
    struct {
        gf_operation operation;
        gf_type type;
        uint32_t root;
        uint64_t elem_count;
    } calls[2];
    const char *text;
} pair_rows[] = {
    {{{GF_OPERATION_ALLREDUCE, GF_TYPE_F32, GF_REDUCTION_SUM, 64},
      {GF_OPERATION_ALLREDUCE, GF_TYPE_F32, GF_REDUCTION_MAX, 64}},
     "calls differ: request 1 is allreduce of 64 fp32 at rank 0, allreduce of 64 fp32 by max at "
     "rank 1"},
    {{{GF_OPERATION_ALLREDUCE, GF_TYPE_F32, GF_REDUCTION_SUM, 64},
      {GF_OPERATION_ALLREDUCE, GF_TYPE_F32, GF_REDUCTION_SUM, 65}},
     "calls differ: request 1 is allreduce of 64 fp32 at rank 0, allreduce of 65 fp32 at rank 1"},
    {{{GF_OPERATION_ALLREDUCE, GF_TYPE_F32, GF_REDUCTION_SUM, 64},
      {GF_OPERATION_ALLREDUCE, GF_TYPE_F16, GF_REDUCTION_SUM, 64}},
     "calls differ: request 1 is allreduce of 64 fp32 at rank 0, allreduce of 64 fp16 at rank 1"},
    {{{GF_OPERATION_BROADCAST, GF_TYPE_F32, 0, 64}, {GF_OPERATION_BROADCAST, GF_TYPE_F32, 2, 64}},
     "calls differ: request 1 is broadcast of 64 fp32 from rank 0 at rank 0, broadcast of 64 fp32 "
     "from rank 2 at rank 1"},
    {{{GF_OPERATION_BARRIER, GF_TYPE_COUNT, 0, 0}, {GF_OPERATION_BROADCAST, GF_TYPE_F32, 0, 0}},
     "calls differ: request 1 is barrier of 0 elements of no type at rank 0, broadcast of 0 fp32 "
     "from rank 0 at rank 1"},
};

TEST(calls_that_differ_in_one_thing_are_told_whole)
{
    for (uint32_t i = 0; i < LENGTH(pair_rows); i++) {
        struct gf_coordinator_status status = {.world = 2};
        control_world_open(&world, 2, 1);
        control_world_quiet(&world, SECOND);
        for (uint32_t id = 0; id < 2; id++) {
            world.procs[id].hangs = true;
            gf_member_report(world.procs[id].member)->step = 300 + id;
            gf_member_report(world.procs[id].member)->operation = GF_OPERATION_STEP;
            gf_member_call(world.procs[id].member, pair_rows[i].calls[id].operation,
                           pair_rows[i].calls[id].type, pair_rows[i].calls[id].root,
                           pair_rows[i].calls[id].elem_count);
        }
        control_world_quiet(&world, SECOND);
        gf_coordinator_status(world.coordinator, &status);
        assert_string_equal(status.error.text, pair_rows[i].text);
        assert_int_equal(status.error.code, GF_ERR_MISMATCH);
        assert_int_equal(status.error.peer, 1);
        assert_int_equal(status.error.step, 301);
        assert_int_equal(status.error.operation, GF_OPERATION_STEP);
        control_world_close(&world);
    }
}
