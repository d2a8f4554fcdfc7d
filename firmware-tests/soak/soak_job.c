/* A job: every rank goes through its appliance's program, a call or so a turn, until it has closed
 * or failed. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/soak/soak.h"
#include "lib/core/accessors.h"

#define MS UINT64_C(1000000)
#define HEALTHY_NS (500 * MS) /* no operation of a job without faults takes longer */
#define DRAIN_NS (200 * MS)

static const char *const stage_names[] = {"open", "gap",   "requests", "begin",  "declare", "wait",
                                          "last", "close", "failing",  "shrink", "end"};

static uint64_t now_of(const struct soak_job *job)
{
    return gf_sim_now_ns(job->w.sim);
}

void soak_enter(struct soak_job *job, uint32_t rank, soak_stage stage)
{
    struct soak_rank *self = &job->ranks[rank];
    if (stage == SOAK_FAILING) {
        self->end_stage = self->stage;
        self->end_step = self->step;
    }
    self->stage = stage;
    self->began_ns = now_of(job);
}

static void bound_check(const struct soak_job *job, uint32_t rank)
{
    const struct soak_rank *self = &job->ranks[rank];
    /* that of a shrink: a failure, and then the deadline of the new generation */
    uint64_t bound_ns = job->bound_ns;
    if (self->stage == SOAK_SHRINK) bound_ns += job->plan.setup.config.rendezvous.join_timeout_ns;
    /* until others let it in */
    if (self->stage == SOAK_OPEN) bound_ns += 2 * job->plan.setup.config.rendezvous.join_timeout_ns;
    if (now_of(job) - self->began_ns > bound_ns)
        fail_msg("rank %u has been in %s for %.3f s, at most %.3f s are valid", rank,
                 stage_names[self->stage], (double)(now_of(job) - self->began_ns) * 1e-9,
                 (double)bound_ns * 1e-9);
}

void soak_finish(struct soak_job *job, uint32_t rank, gf_status status)
{
    struct soak_rank *self = &job->ranks[rank];
    struct world_rank *place = &job->w.ranks[rank];
    bool lingers = soak_below(soak_draw(&job->plan, SOAK_DRAW_LINGER, rank, 0, 0), 100) <
                   job->plan.linger_percent;
    bound_check(job, rank);
    self->end = status;
    if (place->gf != NULL) self->error = *gf_error_last(place->gf);
    if ((place->gf != NULL) && (status < 0) && (self->stage != SOAK_CLOSE)) {
        if (self->error.code != status)
            fail_msg("rank %u got %s, its record says %s", rank, gf_status_name(status),
                     gf_status_name(self->error.code));
        world_expect_failed(&job->w, rank, status);
    }
    if ((place->gf != NULL) && !((self->stage == SOAK_FAILING) && lingers)) {
        gf_status closed = gf_close(place->gf);
        if ((closed != GF_OK) && ((closed != GF_ERR_TIMEOUT) || (self->stage != SOAK_CLOSE)))
            fail_msg("rank %u: gf_close gave %s after %s", rank, gf_status_name(closed),
                     gf_status_name(status));
        place->gf = NULL;
    }
    self->stage = SOAK_END;
}

/* An error of a call that does not poll: what is under way has still to end. */
void soak_give_up(struct soak_job *job, uint32_t rank, gf_status status)
{
    if (job->ranks[rank].stage == SOAK_CLOSE)
        soak_finish(job, rank, status);
    else if (status < 0)
        soak_enter(job, rank, SOAK_FAILING);
}

/* ---- the program ---- */

static void turn_open(struct soak_job *job, uint32_t rank)
{
    struct world_rank *place = &job->w.ranks[rank];
    gf_status status = gf_open_poll(place->gf);
    uint64_t user_bytes = job->plan.setup.config.exchange.user_bytes;
    if (status == GF_AGAIN) return;
    if (status < 0) {
        soak_give_up(job, rank, status);
        return;
    }
    if (job->ranks[rank].joiner) {
        soak_generation_begun(job, rank);
        return;
    }
    job->on_wire = job->on_wire || (gf_path_of(place->gf) == GF_PATH_WIRE);
    soak_model_begin(&job->model, place->gf);
    if (user_bytes > 0)
        job->ranks[rank].region = (void *)(uintptr_t)gf_exchange_take(place->gf, user_bytes);
    assert_true((user_bytes == 0) == (job->ranks[rank].region == NULL));
    job->ranks[rank].step = 1;
    soak_enter(job, rank, SOAK_GAP);
}

static void turn_gap(struct soak_job *job, uint32_t rank)
{
    struct soak_rank *self = &job->ranks[rank];
    gf_status status = soak_requests_post(&job->plan, job->w.ranks[rank].gf, self->step,
                                          self->region, &self->requests);
    if (status < 0)
        soak_give_up(job, rank, status);
    else
        soak_enter(job, rank, SOAK_REQUESTS);
}

static void turn_requests(struct soak_job *job, uint32_t rank)
{
    struct soak_rank *self = &job->ranks[rank];
    gf_status status =
        soak_requests_poll(&job->plan, job->w.ranks[rank].gf, self->step, &self->requests);
    if (status == GF_AGAIN) return;
    if (status < 0) {
        soak_give_up(job, rank, status);
        return;
    }
    soak_requests_free(&self->requests);
    if (self->step > job->goal)
        soak_enter(job, rank, job->plan.elastic ? SOAK_LAST : SOAK_CLOSE);
    else
        soak_enter(job, rank, SOAK_BEGIN);
}

/* What is saved, loaded and saved again is the same, and the run goes on as if nothing had been. */
static gf_status save_and_load(gf_context *gf)
{
    uint64_t bytes = gf_state_bytes(gf);
    char *first = calloc(2, bytes + 8);
    char *second = first + bytes + 8 - bytes % 8;
    gf_status status;
    assert_true((bytes > 0) && (bytes % 8 == 0) && (first != NULL));
    status = gf_state_save(gf, first, bytes);
    if (status == GF_OK) status = gf_state_load(gf, first, bytes);
    if (status == GF_OK) status = gf_state_save(gf, second, bytes);
    if (status == GF_OK) assert_memory_equal(first, second, bytes);
    free(first);
    return status;
}

static void turn_begin(struct soak_job *job, uint32_t rank)
{
    struct soak_rank *self = &job->ranks[rank];
    gf_context *gf = job->w.ranks[rank].gf;
    bool saves = soak_below(soak_draw(&job->plan, SOAK_DRAW_SAVE, self->step, rank, 0), 100) <
                 job->plan.save_percent;
    gf_status status = saves ? save_and_load(gf) : GF_OK;
    if (status == GF_OK) status = gf_step_begin(gf);
    if (status == GF_OK) status = gf_step_samples(gf, soak_samples(&job->plan, self->step, rank));
    if (status < 0) {
        soak_give_up(job, rank, status);
        return;
    }
    self->place = self->pass = 0;
    soak_enter(job, rank, SOAK_DECLARE);
}

static void turn_declare(struct soak_job *job, uint32_t rank)
{
    struct soak_rank *self = &job->ranks[rank];
    const struct soak_plan *plan = &job->plan;
    gf_context *gf = job->w.ranks[rank].gf;
    uint32_t tensor = world_order_at(plan->order, rank, self->place, plan->setup.tensor_count);
    gf_status status;
    if (soak_skips(plan, self->step, rank, tensor)) {
        status = gf_tensor_skip(gf, tensor);
    } else {
        soak_fill(plan, gf, self->step, tensor, self->pass);
        status = (++self->pass < plan->passes) ? gf_step_poll(gf) : gf_tensor_ready(gf, tensor, 0);
        if (self->pass < plan->passes) {
            if (status < 0) soak_give_up(job, rank, status);
            return;
        }
        self->pass = 0;
    }
    if (status < 0) {
        soak_give_up(job, rank, status);
        return;
    }
    self->place++;
    if (plan->pause_ns > 0)
        self->busy_until_ns =
            now_of(job) +
            soak_draw(plan, SOAK_DRAW_PAUSE, self->step, rank, tensor) % plan->pause_ns;
    if (self->place == plan->setup.tensor_count) soak_enter(job, rank, SOAK_WAIT);
}

static void turn_wait(struct soak_job *job, uint32_t rank)
{
    struct soak_rank *self = &job->ranks[rank];
    gf_status status = gf_step_poll(job->w.ranks[rank].gf);
    if (status == GF_AGAIN) return;
    if (status < 0) {
        soak_give_up(job, rank, status);
        return;
    }
    job->sparse = job->sparse || job->w.ranks[rank].gf->step.sparse;
    soak_model_step(&job->model, job->w.ranks[rank].gf, self->step);
    job->hash = (job->hash ^ job->model.mark.gradient ^ job->model.mark.weight ^ now_of(job)) *
                UINT64_C(0x9e3779b97f4a7c15);
    bound_check(job, rank);
    job->done[rank] = self->step++;
    soak_enter(job, rank, SOAK_GAP);
    if ((rank == job->plan.leaver) && (job->done[rank] >= job->plan.leave_step) && !self->leaves &&
        (gf_world(job->w.ranks[rank].gf) > 1)) {
        self->leaves = true;
        assert_int_equal(gf_leave(job->w.ranks[rank].gf), GF_OK);
    }
    if (!job->plan.elastic || (gf_regroup_due(job->w.ranks[rank].gf) == 0)) return;
    status = gf_regroup_begin(job->w.ranks[rank].gf);
    self->admits = true;
    if (status < 0)
        soak_give_up(job, rank, status);
    else
        soak_enter(job, rank, SOAK_SHRINK);
}

static gf_status rank_progress(struct soak_job *job, uint32_t rank)
{
    struct soak_rank *self = &job->ranks[rank];
    gf_status status;
    if (self->stage == SOAK_END) return GF_OK;
    self->turns++;
    soak_faults_progress(job, rank);
    if (!gf_sim_runs(job->w.sim, rank) || (now_of(job) < self->busy_until_ns)) return GF_AGAIN;
    if (self->stage == SOAK_END) return GF_OK;
    bound_check(job, rank);
    if ((job->plan.heartbeat_percent > 0) && (self->stage != SOAK_OPEN) &&
        (self->stage < SOAK_CLOSE) &&
        (soak_below(soak_draw(&job->plan, SOAK_DRAW_HEARTBEAT, rank, 0, self->turns), 100) <
         job->plan.heartbeat_percent) &&
        ((status = gf_heartbeat(job->w.ranks[rank].gf)) < 0)) {
        soak_give_up(job, rank, status);
        return GF_AGAIN;
    }
    switch (self->stage) {
    case SOAK_OPEN: turn_open(job, rank); break;
    case SOAK_GAP: turn_gap(job, rank); break;
    case SOAK_REQUESTS: turn_requests(job, rank); break;
    case SOAK_BEGIN: turn_begin(job, rank); break;
    case SOAK_DECLARE: turn_declare(job, rank); break;
    case SOAK_WAIT: turn_wait(job, rank); break;
    case SOAK_LAST: soak_turn_last(job, rank); break;
    case SOAK_SHRINK: soak_turn_shrink(job, rank); break;
    case SOAK_CLOSE:
        status = gf_close_poll(job->w.ranks[rank].gf);
        if (status != GF_AGAIN) soak_finish(job, rank, status);
        break;
    case SOAK_FAILING:
        if (soak_shrink_begin(job, rank, false)) break;
        status = gf_step_poll(job->w.ranks[rank].gf);
        /* Who answers with its failure behind its join has nothing queued any more. */
        if ((status != GF_AGAIN) && (self->end_stage != SOAK_OPEN) &&
            job->w.ranks[rank].gf->on_device)
            assert_int_equal(late_gpu_waiting(job->w.ranks[rank].gf->gpu), 0);
        if ((status != GF_AGAIN) && !soak_shrink_begin(job, rank, true))
            soak_finish(job, rank, status);
        break;
    case SOAK_END: break;
    }
    return (self->stage == SOAK_END) ? GF_OK : GF_AGAIN;
}

/* What began in this turn is held against all that any rank ever was of. */
static gf_status job_progress(struct world *w, uint32_t rank, void *arg)
{
    struct soak_job *job = arg;
    gf_status status = rank_progress(job, rank);
    const gf_context *gf = w->ranks[rank].gf;
    for (uint32_t other = 0; other < w->world; other++) {
        if (gf_sim_is_dead(w->sim, other)) generation_log_died(&job->generations, other);
        if (job->ranks[other].stage == SOAK_END) generation_log_gone(&job->generations, other);
    }
    if (gf_sim_is_dead(w->sim, rank) || (gf == NULL) || (gf->control == NULL)) return status;
    struct generation_seen seen = job->generations.last[rank];
    if (gf_control_generation(gf->control)->number != seen.number) {
        seen.number = gf_control_generation(gf->control)->number;
        seen.members = world_members(gf);
    }
    if (!generation_log_note(&job->generations, rank, &seen))
        fail_msg("%s", job->generations.error);
    return status;
}

static uint64_t bound_of(const struct soak_plan *plan)
{
    const struct gf_config *config = &plan->setup.config;
    uint64_t faults = plan->setup.sim.fault_count + plan->act_count + (plan->lossy ? 2 : 0);
    const struct gf_sim_setup *sim = &plan->setup.sim;
    uint64_t bytes = 0;
    uint64_t buffers = plan->setup.tensor_count;
    uint64_t message_ns = sim->latency_ns + sim->jitter_ns + sim->message_ns;
    for (uint32_t i = 0; i < plan->setup.tensor_count; i++)
        bytes += 4 * plan->tensors[i].elem_count;
    if (config->sparse.enabled) buffers += bytes / 4 / config->sparse.chunk_elems;
    uint64_t bound = HEALTHY_NS + 2 * plan->ids * (buffers + bytes / 4096) * message_ns;
    if (sim->bytes_per_ns > 0)
        bound += 2 * plan->ids * (uint64_t)((double)bytes / sim->bytes_per_ns);
    bound += 2 * plan->setup.tensor_count * plan->pause_ns * plan->passes;
    for (uint32_t i = 0; i < plan->act_count; i++) bound += plan->acts[i].delay_ns;
    for (uint32_t i = 0; i < plan->setup.sim.fault_count; i++)
        bound += plan->setup.sim.faults[i].delay_ns;
    if (faults == 0) return bound;
    return bound + (1 + faults) * config->exchange.timeout_ns + SOAK_SILENCE_NS + DRAIN_NS +
           plan->setup.sim.detect_ns + config->rendezvous.join_timeout_ns;
}

void soak_run(struct soak_job *job, uint64_t seed)
{
    memset(job, 0, sizeof *job);
    soak_plan_draw(&job->plan, seed);
    soak_model_open(&job->model, &job->plan);
    generation_log_open(&job->generations);
    job->bound_ns = bound_of(&job->plan);
    job->goal = job->plan.steps;
    world_create(&job->w, &job->plan.setup);
    job->w.limit_ns = UINT64_C(100000000000);
    for (uint32_t rank = 0; rank < job->plan.setup.world; rank++) {
        if (job->w.ranks[rank].gf == NULL)
            fail_msg("rank %u did not open: %s", rank, job->w.ranks[rank].log);
    }
    for (uint32_t id = job->plan.setup.world; id < job->plan.ids; id++)
        job->ranks[id].stage = SOAK_END; /* it was not started yet */
    do {
        world_run(&job->w, job_progress, job);
    } while (soak_faults_resume(job));
    job->met = job->met || gf_sim_counts(job->w.sim)->fault_met;
    job->hash ^= gf_sim_now_ns(job->w.sim) + gf_sim_counts(job->w.sim)->messages_sent;
    soak_ends_check(job);
    world_close(&job->w);
    job->w.ranks = NULL;
    for (uint32_t rank = 0; rank < job->plan.ids; rank++)
        soak_requests_free(&job->ranks[rank].requests);
    soak_model_close(&job->model);
}

void soak_job_print(const struct soak_job *job, FILE *to)
{
    soak_plan_print(&job->plan, to);
    for (uint32_t rank = 0; rank < job->plan.ids; rank++) {
        const struct soak_rank *self = &job->ranks[rank];
        (void)fprintf(to, "  rank %u: %s (%s), step %llu, %llu turns, last %s, peer %d%s\n", rank,
                      stage_names[self->stage], stage_names[self->end_stage],
                      (unsigned long long)self->step, (unsigned long long)self->turns,
                      gf_status_name(self->end), (int)self->error.peer,
                      self->excused ? ", excused" : "");
        if (job->w.ranks != NULL) (void)fprintf(to, "%s", job->w.ranks[rank].log);
    }
}
