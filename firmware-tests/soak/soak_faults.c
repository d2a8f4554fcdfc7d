/* What befalls ranks between two calls: a kill, a stop, a cut, an abort, an early end. Faults of
 * posts are the simulator's. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/soak/soak.h"

static void cut(struct soak_job *job, const struct soak_act *act, bool is_cut)
{
    for (uint32_t other = 0; other < job->plan.ids; other++)
        if ((other != act->rank) && ((act->others >> other & 1u) != 0))
            gf_sim_partition(job->w.sim, act->rank, other, is_cut);
    /* a coordinator of its own is beside rank 0 */
    if ((act->rank != 0) && ((act->others & 1u) != 0))
        gf_sim_partition(job->w.sim, act->rank, gf_sim_coordinator(job->w.sim), is_cut);
}

static void act_begin(struct soak_job *job, const struct soak_act *act)
{
    struct soak_rank *self = &job->ranks[act->rank];
    gf_context **gf = &job->w.ranks[act->rank].gf;
    soak_late_look(job);
    switch (act->kind) {
    case SOAK_ACT_KILL:
        job->died = true;
        gf_sim_kill(job->w.sim, act->rank);
        break;
    case SOAK_ACT_STOP: gf_sim_stop(job->w.sim, act->rank, true); break;
    case SOAK_ACT_CUT: cut(job, act, true); break;
    case SOAK_ACT_ABORT:
        self->excused = true;
        gf_abort(*gf);
        break;
    case SOAK_ACT_CLOSE: /* whatever is under way */
        self->excused = true;
        self->error = *gf_error_last(*gf);
        self->stage = SOAK_CLOSE;
        self->began_ns = gf_sim_now_ns(job->w.sim);
        break;
    case SOAK_ACT_GROW: soak_grow(job, (uint32_t)__builtin_ctz(act->others)); break;
    case SOAK_ACT_COUNT: break;
    }
}

static void act_end(struct soak_job *job, const struct soak_act *act)
{
    if (act->kind == SOAK_ACT_STOP) gf_sim_stop(job->w.sim, act->rank, false);
    if (act->kind == SOAK_ACT_CUT) cut(job, act, false);
    if (act->kind == SOAK_ACT_KILL) soak_restart(job, act->rank);
}

static uint64_t end_of(const struct soak_job *job, uint32_t index)
{
    uint64_t delay_ns = job->plan.acts[index].delay_ns;
    if ((job->acted_ns[index] == 0) || (delay_ns == 0)) return UINT64_MAX;
    return job->acted_ns[index] + delay_ns;
}

void soak_faults_progress(struct soak_job *job, uint32_t rank)
{
    uint64_t now_ns = gf_sim_now_ns(job->w.sim);
    for (uint32_t i = 0; i < job->plan.act_count; i++) {
        const struct soak_act *act = &job->plan.acts[i];
        if (now_ns >= end_of(job, i)) {
            job->acted_ns[i] = 0;
            act_end(job, act);
        }
        if (job->acted[i] || (act->rank != rank) || (job->ranks[rank].turns < act->turn)) continue;
        if (job->ranks[rank].stage == SOAK_END) continue;
        job->acted[i] = true;
        job->met = true;
        job->acted_ns[i] = (now_ns > 0) ? now_ns : 1;
        act_begin(job, act);
        if (end_of(job, i) != UINT64_MAX)
            gf_sim_wake_at(job->w.sim, (rank + 1) % job->plan.setup.world, end_of(job, i));
    }
}

bool soak_faults_resume(struct soak_job *job)
{
    uint32_t next = job->plan.act_count;
    bool waits = false;
    for (uint32_t i = 0; i < job->plan.act_count; i++) {
        if (end_of(job, i) == UINT64_MAX) continue;
        if ((next == job->plan.act_count) || (end_of(job, i) < end_of(job, next))) next = i;
    }
    for (uint32_t rank = 0; rank < job->plan.ids; rank++)
        waits = waits || (job->ranks[rank].stage != SOAK_END);
    if (!waits || (next == job->plan.act_count)) return false;
    gf_sim_advance_to(job->w.sim, end_of(job, next));
    job->acted_ns[next] = 0;
    act_end(job, &job->plan.acts[next]);
    return true;
}
