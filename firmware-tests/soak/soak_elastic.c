/* Jobs that go on: who fails shrinks, who was killed may be started again, whoever waits is let
 * in. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/soak/soak.h"
#include "lib/context.h"

#define ADMIT_NS UINT64_C(60000000)
#define WAIT_NS UINT64_C(20000000) /* between two steps that are made only to let a joiner in */

static uint64_t now_of(const struct soak_job *job)
{
    return gf_sim_now_ns(job->w.sim);
}

bool soak_shrink_begin(struct soak_job *job, uint32_t rank, bool drained)
{
    gf_context *gf = job->w.ranks[rank].gf;
    gf_status code = gf_error_last(gf)->code;
    bool eager =
        soak_below(soak_draw(&job->plan, SOAK_DRAW_EAGER, rank, job->done[rank], 0), 2) == 0;
    if (!job->plan.elastic || (!drained && !eager) || job->ranks[rank].excused) return false;
    if (job->ranks[rank].end_stage == SOAK_SHRINK) return false; /* its end has been told */
    if ((code != GF_ERR_PEER) && (code != GF_ERR_LINK) && (code != GF_ERR_TIMEOUT)) return false;
    /* it failed between a step's end and its update */
    if (gf_steps(gf) > job->done[rank]) job->loose |= 1u << rank;
    job->done[rank] = gf_steps(gf);
    if (gf_regroup_begin(gf) < 0) return false;
    job->ranks[rank].admits = false;
    soak_enter(job, rank, SOAK_SHRINK);
    job->shrinks++;
    return true;
}

void soak_generation_begun(struct soak_job *job, uint32_t rank)
{
    struct soak_rank *self = &job->ranks[rank];
    gf_context *gf = job->w.ranks[rank].gf;
    uint64_t user_bytes = job->plan.setup.config.exchange.user_bytes;
    soak_requests_free(&self->requests); /* nothing is under way in what they lie in */
    soak_model_generation(&job->model, gf, job->done, job->loose,
                          self->joiner && (job->done[rank] == 0));
    job->loose &= ~(1u << rank);
    if (gf->generation == 1) self->joiner = false; /* the job began anew with it */
    assert_true(gf_rejoined(gf) == self->joiner);
    if ((job->plan.setup.config.exchange.algorithm == GF_ALGORITHM_DIRECT) && (gf_world(gf) > 1))
        assert_int_equal(gf->algorithm, GF_ALGORITHM_DIRECT); /* in every generation */
    if (self->joiner && (job->done[rank] == 0)) (*(self->is_new ? &job->grown : &job->rejoins))++;
    job->done[rank] = gf_steps(gf);
    self->step = gf_steps(gf) + 1;
    self->region = NULL;
    if (user_bytes > 0) self->region = (void *)(uintptr_t)gf_exchange_take(gf, user_bytes);
    assert_true((user_bytes == 0) == (self->region == NULL));
    soak_enter(job, rank, SOAK_GAP);
}

void soak_turn_shrink(struct soak_job *job, uint32_t rank)
{
    gf_status status;
    status = gf_regroup_poll(job->w.ranks[rank].gf);
    /* With what had reached it before it may have ended a step that the others began anew. */
    if (job->w.ranks[rank].gf->change.comes_in) job->done[rank] = 0;
    if (status == GF_AGAIN) return;
    if ((status == GF_OK) && gf_left(job->w.ranks[rank].gf)) {
        job->ranks[rank].left = true;
        job->leaves++;
        soak_enter(job, rank, SOAK_CLOSE);
        return;
    }
    if (status == GF_OK) {
        uint64_t took_ns = now_of(job) - job->ranks[rank].began_ns;
        if (job->ranks[rank].admits && (job->plan.hope == SOAK_HOPE_ON) && !job->died &&
            (took_ns > ADMIT_NS + job->plan.setup.sim.detect_ns))
            fail_msg("rank %u: letting a joiner in took %.3f s, although nobody died on the way",
                     rank, (double)took_ns * 1e-9);
        soak_generation_begun(job, rank);
        return;
    }
    job->ranks[rank].end_stage = SOAK_SHRINK;
    job->ranks[rank].end_step = job->ranks[rank].step;
    soak_finish(job, rank, status);
}

/* It has all its steps; others may still need it, and a joiner comes in behind a step only. */
void soak_turn_last(struct soak_job *job, uint32_t rank)
{
    struct soak_rank *self = &job->ranks[rank];
    gf_status status = gf_heartbeat(job->w.ranks[rank].gf);
    bool comes = false, wait = false;
    self->began_ns = now_of(job);
    if (status < 0) {
        soak_give_up(job, rank, status);
        return;
    }
    for (uint32_t other = 0; other < job->plan.ids; other++) {
        const struct soak_rank *its = &job->ranks[other];
        if (!gf_sim_runs(job->w.sim, other) || (its->stage == SOAK_END) ||
            (its->stage == SOAK_CLOSE))
            continue;
        if (its->joiner && (its->stage == SOAK_OPEN))
            comes = true;
        else if ((its->stage != SOAK_LAST) || (its->step <= job->goal))
            wait = true;
    }
    if (comes && !wait && (now_of(job) >= job->goal_ns)) {
        job->goal = self->step;
        job->goal_ns = now_of(job) + WAIT_NS;
    }
    if (self->step <= job->goal)
        soak_enter(job, rank, SOAK_BEGIN);
    else if (!comes && !wait)
        soak_enter(job, rank, SOAK_CLOSE);
}

/* Of those that run: a process that is still to start has not left. */
void soak_late_look(struct soak_job *job)
{
    for (uint32_t rank = 0; rank < job->plan.ids; rank++)
        job->late = job->late ||
                    (gf_sim_runs(job->w.sim, rank) && ((job->ranks[rank].stage == SOAK_CLOSE) ||
                                                       (job->ranks[rank].stage == SOAK_END)));
}

/* Nobody is left to let another process in. */
static bool is_over(const struct soak_job *job)
{
    bool over = true;
    for (uint32_t other = 0; other < job->plan.ids; other++)
        over =
            over && (!gf_sim_runs(job->w.sim, other) || (job->ranks[other].stage == SOAK_CLOSE) ||
                     (job->ranks[other].stage == SOAK_END));
    return over;
}

static void start(struct soak_job *job, uint32_t rank, bool is_new)
{
    struct soak_rank *self = &job->ranks[rank];
    soak_late_look(job);
    soak_requests_free(&self->requests);
    *self = (struct soak_rank){
        .turns = self->turns, .joiner = true, .is_new = is_new, .began_ns = now_of(job)};
    job->done[rank] = 0;
    job->loose &= ~(1u << rank);
    generation_log_started(&job->generations, rank);
    world_restart(&job->w, rank);
}

void soak_restart(struct soak_job *job, uint32_t rank)
{
    if (!gf_sim_is_dead(job->w.sim, rank)) return; /* killed twice, and started again since */
    if (is_over(job) || !job->plan.elastic || (job->w.ranks[rank].gf == NULL)) return;
    start(job, rank, false);
}

void soak_grow(struct soak_job *job, uint32_t id)
{
    if (!is_over(job)) start(job, id, true);
}
