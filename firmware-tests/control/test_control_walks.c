/* An adversary draws deaths, cuts, restarts and clocks from a seed: whatever it does, the rules of
 * control_world.h hold, and all who may go on do. GF_TEST_SEED=N is one walk, GF_TEST_SEEDS=N are
 * the first N. */
#include "gradientflow.h"
#include "firmware-tests/support/control_suite.h"

static struct control_world world;

/* What the adversary has of a walk; what it has done is kept, so that the end is known exactly. */
static struct walk {
    uint64_t seed;
    bool crashes;       /* of the coordinator */
    bool is_over;       /* something has happened for which the job may end */
    uint32_t host_proc; /* CONTROL_PROCS: the coordinator has a process */
} walk;

static void proc_hurt(uint32_t proc, uint32_t how)
{
    struct control_proc *hurt = &world.procs[proc];
    if (!hurt->alive) return;
    bool is_member = (hurt->number != 0) && !hurt->stopped &&
                     (control_world_state(&world, proc) == GF_MEMBER_WORKS);
    switch (how) {
    case 0: control_world_kill(&world, proc); break;
    case 1: control_world_cut(&world, proc); break;
    case 8: control_world_kill_unread(&world, proc); break;
    case 9: control_world_reset(&world, proc); break;
    case 2: control_world_cut_half(&world, proc, control_world_draw(&world, 2)); break;
    case 3:
        hurt->stopped = !hurt->stopped;
        hurt->excused = true; /* it may be taken for one that lags */
        walk.is_over = walk.is_over || (proc == walk.host_proc);
        break;
    case 4: hurt->now_ns += 100 * CONTROL_MS; break;
    case 5: hurt->leaves = hurt->leaves || (proc != walk.host_proc); break;
    case 6:
        if (hurt->stopped || (control_world_state(&world, proc) >= GF_MEMBER_CLOSING)) break;
        gf_member_bye(hurt->member);
        hurt->excused = true;
        break;
    default:
        if (!is_member) break;
        gf_member_fault(hurt->member, &control_stuck, true);
        hurt->excused = true;
        walk.is_over = walk.is_over || (proc == walk.host_proc);
        break;
    }
}

/* Another process of an id; where one lives either of them may have to end. */
static void id_start(uint32_t id)
{
    uint32_t first = control_world_of(&world, id);
    if (world.proc_count == CONTROL_PROCS) return;
    bool is_new = (id >= world.ids);
    if (first != CONTROL_PROCS) {
        if ((first == walk.host_proc) || (control_world_draw(&world, 4) != 0)) return;
        for (uint32_t i = 0; i < world.proc_count; i++)
            if (world.procs[i].id == id) world.procs[i].excused = true;
    }
    uint32_t second = control_world_start(&world, id, !is_new);
    /* one whose path is cut already may be cut for it, as the process before it */
    world.procs[second].excused = (first != CONTROL_PROCS) || (world.cut_edges[id] != 0);
}

static void coordinator_hurt(uint32_t how)
{
    if (how == 0) {
        world.is_stopped = !world.is_stopped;
    } else if (walk.crashes && world.coordinator_lives) {
        control_world_coordinator_end(&world);
        walk.is_over = true; /* where a member changes meanwhile */
    } else if (walk.crashes) {
        control_world_coordinator_begin(&world);
    }
}

static void something_happens(void)
{
    uint32_t proc = control_world_draw(&world, world.proc_count);
    uint32_t id = control_world_draw(&world, world.id_count);
    uint32_t other = control_world_draw(&world, world.id_count);
    static const uint32_t hurts[] = {0, 1, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 9};
    switch (control_world_draw(&world, 40)) {
    case 0:
    case 1:
    case 2:
    case 3: proc_hurt(proc, hurts[control_world_draw(&world, LENGTH(hurts))]); break;
    case 4:
    case 5: id_start(id); break;
    case 6: coordinator_hurt(control_world_draw(&world, 2)); break;
    case 7: control_world_quiet(&world, control_world_draw(&world, 5) * SECOND); break;
    case 8: control_world_halves_end(&world); break;
    case 9:
        if (control_world_draw(&world, 8) == 0) control_world_quiet(&world, 12 * SECOND);
        break;
    case 10:
        control_world_edge(&world, id, other, control_world_draw(&world, 2) == 0);
        for (uint32_t i = 0; i < world.proc_count; i++) /* .. which may cost either end */
            if ((world.procs[i].id == id) || (world.procs[i].id == other))
                world.procs[i].excused = true;
        break;
    default: break;
    }
}

/* One process that has the weights is polled and stays, or the job may end. */
static void end_look(void)
{
    bool is_held = false;
    for (uint32_t i = 0; i < world.proc_count; i++) {
        const struct control_proc *proc = &world.procs[i];
        if (!proc->alive || proc->stopped || (control_world_state(&world, i) >= GF_MEMBER_GONE))
            continue;
        is_held = is_held || (proc->has_state && !proc->leaves &&
                              (!proc->excused || (i == walk.host_proc)) && (proc->number != 0));
    }
    if (!is_held || world.is_stopped) walk.is_over = true;
    if ((walk.host_proc != CONTROL_PROCS) && !world.procs[walk.host_proc].alive &&
        world.coordinator_lives) {
        control_world_coordinator_end(&world);
        walk.is_over = true;
    }
}

static void all_end_look(void)
{
    uint32_t works = 0;
    uint32_t number = 0;
    for (uint32_t i = 0; i < world.proc_count; i++) {
        const struct control_proc *proc = &world.procs[i];
        if (!proc->alive) continue;
        gf_member_state state = control_world_state(&world, i);
        const struct gf_error *error = gf_member_error(proc->member);
        bool may_end = walk.is_over || proc->excused || proc->leaves;
        if ((state >= GF_MEMBER_GONE) && may_end) continue;
        /* The host of the coordinator waits for all others. */
        if ((state == GF_MEMBER_CLOSING) && (i == walk.host_proc)) continue;
        if (state != GF_MEMBER_WORKS)
            fail_msg("seed %llu: process %u is in state %d: %s", (unsigned long long)walk.seed, i,
                     state, error->text);
        if (works++ == 0) number = proc->number;
        if (proc->number != number)
            fail_msg("seed %llu: two generations", (unsigned long long)walk.seed);
    }
}

static void random_walk(uint64_t seed, bool crashes)
{
    uint32_t ids = 2 + (uint32_t)(seed % 3);
    bool hosted = !crashes && (seed % 4 == 0);
    walk = (struct walk){.seed = seed, .crashes = crashes, .host_proc = hosted ? 0 : CONTROL_PROCS};
    control_world_open_growing(&world, ids, seed, (seed % 5 == 0) ? 4 : ids,
                               hosted ? 0 : GF_RANK_NONE);
    world.room = (uint32_t)(seed / 3 % 3); /* one or two frames, or many */
    control_world_quiet(&world, control_world_draw(&world, 100) * CONTROL_MS);
    for (uint32_t i = 0; (i < 600) && (world.broken == NULL); i++) {
        if (i % 4 == 0) something_happens();
        end_look();
        uint32_t who = control_world_draw(&world, world.proc_count + 1);
        if (who == world.proc_count)
            control_world_coordinate(&world);
        else
            control_world_turn(&world, who);
    }
    for (uint32_t i = 0; i < world.proc_count; i++) {
        world.procs[i].stopped = false;
        if (world.procs[i].now_ns < world.now_ns) world.procs[i].now_ns = world.now_ns;
    }
    control_world_halves_end(&world);
    memset(world.cut_edges, 0, sizeof world.cut_edges);
    world.is_stopped = false;
    if (!world.coordinator_lives && !hosted) control_world_coordinator_begin(&world);
    control_world_quiet(&world, 40 * SECOND);
    if (world.broken != NULL) fail_msg("seed %llu: %s", (unsigned long long)seed, world.broken);
    all_end_look();
    control_world_close(&world);
}

static void random_walks(bool crashes)
{
    const char *one = getenv("GF_TEST_SEED");
    const char *many = getenv("GF_TEST_SEEDS");
    uint64_t from = (one != NULL) ? strtoull(one, NULL, 0) : 1;
    uint64_t to = (one != NULL) ? from : ((many != NULL) ? strtoull(many, NULL, 0) : 200);
    for (uint64_t seed = from; seed <= to; seed++) random_walk(seed, crashes);
}

TEST(random_schedules)
{
    random_walks(false);
}

TEST(random_schedules_with_crashes_of_the_coordinator)
{
    random_walks(true);
}
