/* How everybody ended, against what is promised for what befell the job. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/soak/soak.h"

/* Did this rank end well, as far as it could know? Steps done, and leaving, if in vain. */
static bool ended_well(const struct soak_rank *self)
{
    return (self->end == GF_OK) || ((self->end == GF_ERR_TIMEOUT) && (self->error.code == GF_OK));
}

static void all_ended(const struct soak_job *job)
{
    for (uint32_t rank = 0; rank < job->plan.ids; rank++)
        if (gf_sim_runs(job->w.sim, rank) && (job->ranks[rank].stage != SOAK_END))
            fail_msg("rank %u runs and did not end", rank);
}

/* Gradients that were not finite ended the job, before the fault that was meant to or instead of
 * it. */
static bool ended_numeric(const struct soak_job *job)
{
    for (uint32_t rank = 0; rank < job->plan.ids; rank++) {
        const struct soak_rank *self = &job->ranks[rank];
        if (self->end != GF_ERR_NUMERIC) continue;
        if (!soak_model_may_be_bad(&job->model, self->end_step))
            fail_msg(
                "rank %u says that gradients are not finite at the scale's floor, which cannot be",
                rank);
        return true;
    }
    return false;
}

static void all_well(const struct soak_job *job)
{
    gf_status expected = ended_numeric(job) ? GF_ERR_NUMERIC : GF_OK;
    for (uint32_t rank = 0; rank < job->plan.ids; rank++) {
        const struct soak_rank *self = &job->ranks[rank];
        if (self->end != expected)
            fail_msg("rank %u ended with %s in a job without a fault that matters", rank,
                     gf_status_name(self->end));
    }
}

/* A job that is not elastic ends with the first broken edge that is known, whichever of its ends is
 * at fault: nobody goes on, so the coordinator does not wait for a second one. Its text has both
 * ends. */
static bool names_an_edge_of_the_culprit(const struct soak_job *job, const struct soak_rank *self)
{
    char name[32];
    (void)snprintf(name, sizeof name, "rank %u ", job->plan.culprit);
    return !job->plan.elastic && (self->error.code == GF_ERR_LINK) &&
           (strstr(self->error.text, name) != NULL);
}

static void all_name(const struct soak_job *job)
{
    if (ended_numeric(job)) return;
    for (uint32_t rank = 0; rank < job->plan.ids; rank++) {
        const struct soak_rank *self = &job->ranks[rank];
        if ((rank == job->plan.culprit) || ended_well(self)) continue;
        /* While ranks join there is only the coordinator's word, and one that was cut off sees it
         * otherwise. */
        if ((self->end_stage == SOAK_OPEN) && (job->plan.culprit == 0)) continue;
        /* one that had ended alone, and so had closed while this one still needed it */
        if (self->error.peer < job->plan.ids) {
            const struct soak_rank *named = &job->ranks[self->error.peer];
            if ((named->end == GF_ERR_TIMEOUT) && ended_well(named)) continue;
        }
        if (job->met && names_an_edge_of_the_culprit(job, self)) continue;
        if (!job->met || (self->error.peer != job->plan.culprit))
            fail_msg("rank %u names %d with %s, culprit is %u", rank, (int)self->error.peer,
                     gf_status_name(self->end), job->plan.culprit);
    }
}

static void all_agree(const struct soak_job *job)
{
    const struct soak_rank *first = NULL;
    if (ended_numeric(job)) return;
    for (uint32_t rank = 0; rank < job->plan.ids; rank++) {
        const struct soak_rank *self = &job->ranks[rank];
        if (ended_well(self)) continue;
        if (first == NULL) first = self;
        if (!job->met || (self->error.code != first->error.code) ||
            (self->error.peer != first->error.peer))
            fail_msg("rank %u says %s of rank %d, another %s of rank %d", rank,
                     gf_status_name(self->error.code), (int)self->error.peer,
                     gf_status_name(first->error.code), (int)first->error.peer);
    }
}

static void all_are_told(const struct soak_job *job)
{
    char from[32];
    if (ended_numeric(job)) return;
    for (uint32_t rank = 0; rank < job->plan.ids; rank++) {
        const struct soak_rank *self = &job->ranks[rank];
        if (ended_well(self)) continue;
        if (!job->met || (strstr(self->error.text, job->plan.says) == NULL))
            fail_msg("rank %u does not know that \"%s\": %s", rank, job->plan.says,
                     self->error.text);
        (void)snprintf(from, sizeof from, " from rank %d,", (int)self->error.peer);
        if ((self->error.code == GF_ERR_DATA) && (strstr(self->error.text, from) == NULL))
            fail_msg("rank %u names rank %d: %s", rank, (int)self->error.peer, self->error.text);
    }
}

/* Nobody is left who knows the job: of the newest generation's members only some that it took in
 * live, and they have nothing of it yet. Or the coordinator died with rank 0. */
static bool nobody_is_left(const struct soak_job *job)
{
    uint64_t members = generation_log_newest(&job->generations).members;
    if (job->plan.culprit == GF_RANK_NONE) return false;
    if (!job->plan.setup.separate && (job->plan.culprit == 0)) return true;
    members &= ~(UINT64_C(1) << job->plan.culprit);
    for (uint32_t rank = 0; rank < job->plan.ids; rank++) {
        bool opened = (job->ranks[rank].end == GF_OK) || (job->ranks[rank].end_stage != SOAK_OPEN);
        if (opened && (((members >> rank) & 1) != 0)) return false;
    }
    return true;
}

/* A death, and perhaps a new start: everybody else goes on to the end, whoever was started again as
 * well. */
static void all_go_on(const struct soak_job *job)
{
    if (ended_numeric(job) || job->late || !job->met || nobody_is_left(job)) return;
    for (uint32_t rank = 0; rank < job->plan.ids; rank++)
        if ((job->ranks[rank].end_stage == SOAK_OPEN) && !job->ranks[rank].joiner)
            return; /* it died while they joined for the first time */
    for (uint32_t rank = 0; rank < job->plan.ids; rank++) {
        const struct soak_rank *self = &job->ranks[rank];
        if (((rank != job->plan.culprit) || self->joiner) && (self->end != GF_OK))
            fail_msg("rank %u ended with %s, only rank %u has died", rank,
                     gf_status_name(self->end), job->plan.culprit);
    }
}

/* The loss scale met its floor: whoever shrank meanwhile learns it with the state of those that are
 * further. */
static bool scale_at_floor(const struct soak_job *job)
{
    for (uint32_t rank = 0; rank < job->plan.ids; rank++)
        if ((job->ranks[rank].end == GF_ERR_NUMERIC) && (job->ranks[rank].end_stage != SOAK_SHRINK))
            return true;
    return false;
}

/* It was silent, and came back to a job that all others had just brought to its end. */
static bool came_too_late(const struct soak_rank *self)
{
    return (self->end == GF_ERR_STATE) && (strstr(self->error.text, "the job has ended") != NULL);
}

/* Who did not come into a new generation says why; those that came to the end have the same steps,
 * unless one had closed as another process was started: who lets that in makes a step more. */
static void elastic_ends(const struct soak_job *job)
{
    uint64_t goal = 0;
    for (uint32_t rank = 0; rank < job->plan.ids; rank++) {
        const struct soak_rank *self = &job->ranks[rank];
        if (!gf_sim_runs(job->w.sim, rank) || self->left) continue;
        if (self->end == GF_OK) {
            if (goal == 0) goal = job->done[rank];
            if ((goal != job->done[rank]) && !job->late)
                fail_msg("rank %u has ended %llu steps, another %llu", rank,
                         (unsigned long long)job->done[rank], (unsigned long long)goal);
        } else if ((self->end_stage == SOAK_SHRINK) && (self->end != GF_ERR_PEER) &&
                   (self->end != GF_ERR_DATA) && (self->end != GF_ERR_TIMEOUT) &&
                   (self->end != GF_ERR_LINK) && !came_too_late(self) &&
                   !((self->end == GF_ERR_NUMERIC) && scale_at_floor(job))) {
            fail_msg("rank %u ended its shrink with %s", rank, gf_status_name(self->end));
        }
    }
}

void soak_ends_check(struct soak_job *job)
{
    all_ended(job);
    if (job->plan.elastic) elastic_ends(job);
    switch (job->plan.hope) {
    case SOAK_HOPE_OK: all_well(job); break;
    case SOAK_HOPE_NAMED: all_name(job); break;
    case SOAK_HOPE_AGREED: all_agree(job); break;
    case SOAK_HOPE_TOLD: all_are_told(job); break;
    case SOAK_HOPE_ON: all_go_on(job); break;
    case SOAK_HOPE_ENDED: break;
    }
}
