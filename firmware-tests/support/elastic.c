/* See elastic.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/elastic.h"

const struct gf_tensor elastic_tensors[ELASTIC_TENSORS] = {{.name = "a", .elem_count = 301},
                                                           {.name = "b", .elem_count = 64},
                                                           {.name = "c", .elem_count = 2001}};
struct elastic elastic;
static uint64_t end_ns; /* nobody ends before */

struct world_setup elastic_setup(uint32_t world)
{
    struct world_setup setup = {
        .world = world, .tensors = elastic_tensors, .tensor_count = ELASTIC_TENSORS};
    setup.separate = true;
    setup.config.job.elastic = true;
    setup.sim = (struct gf_sim_setup){.seed = 1,
                                      .latency_ns = 5000,
                                      .jitter_ns = 20000,
                                      .bytes_per_ns = 1.0,
                                      .message_ns = 100,
                                      .detect_ns = 1000000,
                                      .bind_receives = true};
    setup.config.optimizer.kind = GF_OPTIMIZER_SGD;
    setup.config.rendezvous.join_timeout_ns = 8 * SECOND;
    setup.config.exchange.timeout_ns = SECOND;
    setup.config.exchange.fuse_bytes = 2048;
    setup.config.exchange.slice_bytes = 4096;
    return setup;
}

/* ---- the script ---- */

static bool script_done(void)
{
    return (elastic.script_next == LENGTH(elastic.script)) ||
           (elastic.script[elastic.script_next].at_us < 0);
}

static void start(struct world *w, uint32_t rank, bool is_new)
{
    struct world_rank *self = &w->ranks[rank];
    elastic.ranks[rank] = (struct elastic_rank){.state = OPENS};
    elastic.started = true;
    if (is_new) {
        assert_int_equal(gf_close(self->gf), GF_OK);
        free(self->memory);
        self->gf = NULL;
        self->memory = NULL;
    }
    if (elastic.hooks.start != NULL) elastic.hooks.start(rank);
    world_restart(w, rank);
}

static void coordinator_event(struct world *w, const struct elastic_event *event)
{
    uint32_t coordinator = gf_sim_coordinator(w->sim);
    switch (event->what) {
    case COORDINATOR_KILL: world_coordinator_kill(w); break;
    case COORDINATOR_START: world_coordinator_start(w); break;
    case COORDINATOR_STOP: gf_sim_stop(w->sim, coordinator, true); break;
    case COORDINATOR_GO_ON: gf_sim_stop(w->sim, coordinator, false); break;
    case COORDINATOR_CUT: world_coordinator_cut(w, event->rank, true); break;
    default: world_coordinator_cut(w, event->rank, false); break;
    }
}

static void script_progress(struct world *w)
{
    for (; !script_done(); elastic.script_next++) {
        const struct elastic_event *now = &elastic.script[elastic.script_next];
        if (gf_sim_now_ns(w->sim) - elastic.begin_ns < (uint64_t)now->at_us * 1000) return;
        if (now->what >= COORDINATOR_KILL) {
            coordinator_event(w, now);
            continue;
        }
        struct elastic_rank *job = &elastic.ranks[now->rank];
        if (now->what == KILL) {
            elastic.on_the_way += ((job->state == OPENS) || (job->state == CHANGES)) ? 1u : 0u;
            gf_sim_kill(w->sim, now->rank);
        } else if (now->what == LEAVE) {
            job->wants_to_leave = true;
        } else if ((now->what == STOP) || (now->what == GO_ON)) {
            gf_sim_stop(w->sim, now->rank, now->what == STOP);
        } else {
            start(w, now->rank, now->what == START_NEW);
        }
    }
}

/* ---- the appliance ---- */

static gf_status change_begin(struct world *w, uint32_t rank)
{
    elastic.ranks[rank].state = CHANGES;
    elastic.ranks[rank].change_began_ns = gf_sim_now_ns(w->sim);
    return gf_regroup_begin(w->ranks[rank].gf);
}

static gf_status failed(struct world *w, uint32_t rank, gf_status status)
{
    if ((status != GF_ERR_PEER) && (status != GF_ERR_LINK) && (status != GF_ERR_TIMEOUT))
        return status;
    elastic.ranks[rank].failures++;
    return (change_begin(w, rank) < 0) ? status : GF_AGAIN;
}

static bool is_out(const struct world *w, uint32_t rank)
{
    return !gf_sim_runs(w->sim, rank) || (w->ranks[rank].status < 0) ||
           (elastic.ranks[rank].state == GONE);
}

/* Nobody ends while somebody is on the way in or out. */
static bool somebody_moves(const struct world *w)
{
    bool moves = !script_done();
    for (uint32_t rank = 0; rank < w->world; rank++) {
        const struct elastic_rank *job = &elastic.ranks[rank];
        moves = moves ||
                (!is_out(w, rank) && ((job->state == OPENS) || job->wants_to_leave || job->leaves ||
                                      (elastic.hooks.awaits && (job->state == CHANGES))));
    }
    return moves;
}

/* Has all its steps; the others may still need it. */
static gf_status last(struct world *w, uint32_t rank)
{
    gf_status status = gf_heartbeat(w->ranks[rank].gf);
    if (status < 0) return failed(w, rank, status);
    for (uint32_t other = 0; other < w->world; other++)
        if (!is_out(w, other) &&
            ((elastic.ranks[other].state != IDLE) || (gf_steps(w->ranks[other].gf) < elastic.goal)))
            return GF_AGAIN;
    return (gf_sim_now_ns(w->sim) < end_ns) ? GF_AGAIN : GF_OK;
}

static gf_status idle(struct world *w, uint32_t rank)
{
    gf_context *gf = w->ranks[rank].gf;
    gf_status status;
    if (somebody_moves(w) && (gf_steps(gf) + 2 > elastic.goal)) elastic.goal = gf_steps(gf) + 2;
    if (gf_steps(gf) >= elastic.goal) return last(w, rank);
    status = (elastic.hooks.before != NULL) ? elastic.hooks.before(w, rank) : GF_OK;
    if (status != GF_OK) return (status < 0) ? failed(w, rank, status) : GF_AGAIN;
    if ((status = gf_step_begin(gf)) < 0) return failed(w, rank, status);
    if (elastic.hooks.work_ns > 0) gf_sim_work(w->sim, rank, elastic.hooks.work_ns);
    elastic.ranks[rank].state = STEPS;
    elastic.ranks[rank].tensor = 0;
    return GF_AGAIN;
}

static gf_status step(struct world *w, uint32_t rank)
{
    struct elastic_rank *job = &elastic.ranks[rank];
    gf_context *gf = w->ranks[rank].gf;
    gf_status status;
    if (job->wants_to_leave) {
        assert_int_equal(gf_leave(gf), GF_OK);
        job->wants_to_leave = false;
        job->leaves = true;
    }
    if (job->tensor < ELASTIC_TENSORS) {
        world_fill(w, rank, job->tensor, (void *)(uintptr_t)gf_gradient(gf, job->tensor), NULL);
        status = gf_tensor_ready(gf, job->tensor++, 0);
        return (status < 0) ? failed(w, rank, status) : GF_AGAIN;
    }
    status = gf_step_poll(gf);
    if (status == GF_OK)
        status = (elastic.hooks.apply != NULL) ? elastic.hooks.apply(w, rank) : gf_update(gf, RATE);
    if (status != GF_OK) return (status < 0) ? failed(w, rank, status) : GF_AGAIN;
    if (elastic.hooks.applied != NULL) elastic.hooks.applied(w, rank);
    job->state = IDLE;
    uint32_t leave = 0;
    for (uint32_t i = 0; i < w->world; i++)
        leave += elastic.ranks[i].leaves && (elastic.ranks[i].state != GONE);
    assert_true(gf_regroup_due(gf) - gf_joiners(gf) <= leave);
    if (elastic.hooks.blind || (gf_regroup_due(gf) == 0)) return GF_AGAIN;
    return ((status = change_begin(w, rank)) < 0) ? failed(w, rank, status) : GF_AGAIN;
}

static gf_status gone(struct world *w, uint32_t rank)
{
    gf_context *gf = w->ranks[rank].gf;
    elastic.ranks[rank].state = GONE;
    assert_int_equal(gf_error_last(gf)->code, GF_OK);
    assert_int_equal(gf_step_begin(gf), GF_ERR_STATE);
    assert_int_equal(gf_heartbeat(gf), GF_ERR_STATE);
    assert_int_equal(gf_regroup_begin(gf), GF_ERR_STATE);
    w->ranks[rank].gf = NULL;
    return gf_close(gf);
}

static gf_status change(struct world *w, uint32_t rank)
{
    struct elastic_rank *job = &elastic.ranks[rank];
    gf_status status;
    status = (rank % 2 == 0) ? gf_regroup_poll(w->ranks[rank].gf)
                             : gf_regroup_wait_for(w->ranks[rank].gf, 0); /* which is a poll */
    if (status == GF_AGAIN) return GF_AGAIN;
    job->change_ns = gf_sim_now_ns(w->sim) - job->change_began_ns;
    job->state = IDLE;
    if (status < 0) return status;
    if (job->change_ns > elastic.longest_ns) elastic.longest_ns = job->change_ns;
    job->changes++;
    return gf_left(w->ranks[rank].gf) ? gone(w, rank) : GF_AGAIN;
}

static gf_status turn(struct world *w, uint32_t rank, void *arg)
{
    struct elastic_rank *job = &elastic.ranks[rank];
    gf_status status;
    script_progress(w);
    if (elastic.hooks.turn != NULL) elastic.hooks.turn(w, rank);
    if (!gf_sim_runs(w->sim, rank)) return GF_AGAIN;
    if (job->state == IDLE) return idle(w, rank);
    if (job->state == STEPS) return step(w, rank);
    if (job->state == CHANGES) return change(w, rank);
    status = gf_open_poll(w->ranks[rank].gf);
    if (status == GF_OK) job->state = IDLE;
    return (status == GF_OK) ? GF_AGAIN : status;
}

void elastic_run(struct world *w, const struct elastic_event *script, uint64_t least_ns)
{
    memset(elastic.ranks, 0, sizeof elastic.ranks);
    elastic.script[0] = (struct elastic_event)END;
    for (size_t i = 0; (script != NULL) && (i < LENGTH(elastic.script)); i++) {
        elastic.script[i] = script[i];
        if (script[i].at_us < 0) break;
    }
    elastic.script_next = 0;
    elastic.goal = 6;
    elastic.started = false;
    elastic.begin_ns = gf_sim_now_ns(w->sim);
    end_ns = elastic.begin_ns + least_ns;
    world_run(w, turn, NULL);
    elastic.hooks = (struct elastic_hooks){.turn = NULL};
}

void elastic_play(struct world *w, const struct world_setup *setup,
                  const struct elastic_event *script)
{
    world_open(w, setup);
    elastic_run(w, script, 0);
}

void elastic_expect(struct world *w, uint32_t members, const char *what)
{
    uint32_t count = (uint32_t)__builtin_popcount(members);
    uint32_t seen = 0;
    uint32_t first = (uint32_t)__builtin_ctz(members);
    for (uint32_t id = 0; id < w->world; id++) {
        gf_context *gf = w->ranks[id].gf;
        uint32_t before = (uint32_t)__builtin_popcount(members & ((1u << id) - 1));
        if (((members >> id) & 1u) == 0) continue;
        if ((w->ranks[id].status != GF_OK) || (gf_world(gf) != count) ||
            (gf_steps(gf) != elastic.goal) || (gf_first_rank(gf) != id) ||
            (!elastic.started && (gf_rank(gf) != before)))
            fail_msg("%s: member %u: %s, rank %u of %u after step %u; expected rank %u of %u after "
                     "%u\n%s",
                     what, id, gf_status_name(w->ranks[id].status), gf_rank(gf), gf_world(gf),
                     (unsigned)gf_steps(gf), before, count, (unsigned)elastic.goal,
                     w->ranks[id].log);
        seen |= 1u << gf_rank(gf);
        for (uint32_t tensor = 0; (gf_weight(gf, 0) != 0) && (tensor < ELASTIC_TENSORS); tensor++)
            if (memcmp((const void *)(uintptr_t)gf_weight(gf, tensor),
                       (const void *)(uintptr_t)gf_weight(w->ranks[first].gf, tensor),
                       elastic_tensors[tensor].elem_count * sizeof(float)) != 0)
                fail_msg("%s: tensor %u of members %u and %u differs", what, tensor, first, id);
    }
    if (seen != (1u << count) - 1) fail_msg("%s: ranks %#x of %u", what, seen, count);
}
