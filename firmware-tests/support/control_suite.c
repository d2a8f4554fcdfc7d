/* See control_suite.h. */
#include "firmware-tests/support/control_suite.h"

const struct gf_error control_stuck = {
    .code = GF_ERR_TIMEOUT, .peer = GF_RANK_NONE, .tensor = GF_TENSOR_NONE, .text = "it stands"};

void control_all_work(const struct control_world *world, uint32_t count)
{
    uint32_t works = 0;
    uint32_t number = 0;
    assert_null(world->broken);
    for (uint32_t i = 0; i < world->proc_count; i++) {
        const struct control_proc *proc = &world->procs[i];
        if (!proc->alive) continue;
        if (control_world_state(world, i) != GF_MEMBER_WORKS)
            fail_msg("process %u of id %u is in state %d: %s", i, proc->id,
                     control_world_state(world, i), gf_member_error(proc->member)->text);
        if (works++ == 0) number = proc->number;
        assert_int_equal(proc->number, number);
    }
    assert_int_equal(works, count);
}

void control_wait_for(struct control_world *world, uint32_t proc, gf_member_state state)
{
    for (uint32_t i = 0; (i < 4000) && (control_world_state(world, proc) != state); i++)
        control_world_quiet(world, 5 * CONTROL_MS);
    assert_int_equal(control_world_state(world, proc), state);
}

void control_gather(struct control_world *world, uint32_t procs)
{
    struct gf_coordinator_status status = {.state = GF_COORDINATOR_RUN};
    while (status.state != GF_COORDINATOR_GATHER) {
        for (uint32_t i = 0; i < procs; i++) control_world_turn(world, i);
        control_world_coordinate(world);
        gf_coordinator_status(world->coordinator, &status);
    }
}

void control_wake(struct control_world *world, uint32_t proc)
{
    world->procs[proc].stopped = false;
    world->procs[proc].now_ns = world->now_ns;
}

void control_away(struct control_world *world, uint32_t proc, uint64_t for_ns)
{
    world->procs[proc].stopped = true;
    control_world_cut(world, proc);
    control_world_quiet(world, for_ns);
    control_wake(world, proc);
}

void control_all_stop(struct control_world *world, uint64_t for_ns)
{
    for (uint32_t i = 0; i < world->proc_count; i++) world->procs[i].stopped = true;
    control_world_quiet(world, for_ns);
    for (uint32_t i = 0; i < world->proc_count; i++) control_wake(world, i);
}

void control_all_compute(struct control_world *world, uint64_t for_ns)
{
    for (uint64_t spent_ns = 0; spent_ns < for_ns; spent_ns += 100 * CONTROL_MS) {
        for (uint32_t i = 0; i < world->proc_count; i++) {
            world->procs[i].hangs = true;
            world->procs[i].stuck_ns = world->procs[i].now_ns;
        }
        control_world_quiet(world, 100 * CONTROL_MS);
    }
}
