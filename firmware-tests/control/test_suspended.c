/* A job whose ranks are all stopped together, at any moment and for ten minutes, goes on: no rank
 * counts the time in which it did not run against another. Ranks that run do count theirs: who is
 * stopped alone fails as before. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world_setups.h"

#define STEPS 3u
#define AWAY_NS UINT64_C(600000000000)
#define APART_NS UINT64_C(7000000) /* between the ranks that run again */
#define RANKS_MAX 5u

struct sleep_case {
    const char *name;
    uint32_t victim; /* dies after a step, and the others go on; GF_RANK_NONE: nobody */
    uint64_t pause_ns;
    bool separate; /* the coordinator has a process of its own, which is stopped, too */
};

struct job {
    const struct sleep_case *of;
    uint64_t stop_ns; /* all ranks stop now */
    bool stopped, regroups[RANKS_MAX];
    /* 0: joining; then the step under way; then closing */
    uint32_t stage[RANKS_MAX], next[RANKS_MAX];
    struct world_step step;
};

static bool dies(const struct job *job, uint32_t rank)
{
    return (job->of->victim == rank) && (job->stage[rank] == 2);
}

static gf_status call_progress(struct world *w, uint32_t rank, struct job *job)
{
    gf_context *gf = w->ranks[rank].gf;
    gf_status status;
    if (job->regroups[rank]) {
        if ((status = gf_regroup_poll(gf)) != GF_OK) return status;
        job->regroups[rank] = false;
        job->stage[rank] = (uint32_t)gf_steps(gf) + 1;
        job->next[rank] = 0;
    }
    if (job->stage[rank] == 0) return gf_open_poll(gf);
    if (job->stage[rank] > STEPS) return gf_close_poll(gf);
    w->ranks[rank].next = job->next[rank];
    status = world_step_progress(w, rank, &job->step);
    job->next[rank] = w->ranks[rank].next;
    if ((status == GF_OK) && (job->of->victim != GF_RANK_NONE)) status = gf_updated(gf);
    if ((status >= 0) || (job->of->victim == GF_RANK_NONE)) return status;
    if ((status = gf_regroup_begin(gf)) < 0) return status;
    job->regroups[rank] = true;
    return GF_AGAIN;
}

static gf_status job_progress(struct world *w, uint32_t rank, void *arg)
{
    struct job *job = arg;
    gf_status status;
    if (!job->stopped && (gf_sim_now_ns(w->sim) >= job->stop_ns)) {
        for (uint32_t other = 0; other < w->world; other++) gf_sim_stop(w->sim, other, true);
        gf_sim_stop(w->sim, gf_sim_coordinator(w->sim), true);
        job->stopped = true;
        return GF_AGAIN;
    }
    if (!gf_sim_runs(w->sim, rank)) return GF_AGAIN;
    status = call_progress(w, rank, job);
    if (status != GF_OK) return status;
    if (job->stage[rank] > STEPS) return GF_OK; /* closed */
    job->stage[rank]++;
    job->next[rank] = 0;
    if (dies(job, rank)) gf_sim_kill(w->sim, rank);
    return GF_AGAIN;
}

static void coordinator_go_on(struct world *w)
{
    gf_sim_stop(w->sim, gf_sim_coordinator(w->sim), false);
    gf_sim_advance_to(w->sim, gf_sim_now_ns(w->sim) + APART_NS);
}

/* All stop at stop_ns and go on ten minutes later, one by one; false: they had ended before. */
static bool goes_on(const struct sleep_case *c, uint32_t world, uint64_t stop_ns)
{
    struct world_setup setup = brief_setup(world);
    struct job job = {
        .of = c, .stop_ns = stop_ns, .step = {.order = WORLD_ROTATED, .pause_ns = c->pause_ns}};
    struct world w;
    bool met;
    setup.sim.seed = stop_ns + world;
    setup.separate = c->separate;
    setup.config.job.elastic = (c->victim != GF_RANK_NONE);
    world_create(&w, &setup);
    world_run(&w, job_progress, &job);
    met = job.stopped;
    if (met) {
        gf_sim_advance_to(w.sim, gf_sim_now_ns(w.sim) + AWAY_NS);
        if (stop_ns % 2 == 0) coordinator_go_on(&w);
        for (uint32_t rank = 0; rank < world; rank++) {
            gf_sim_stop(w.sim, (uint32_t)((rank + stop_ns) % world), false);
            gf_sim_advance_to(w.sim, gf_sim_now_ns(w.sim) + APART_NS);
        }
        if (stop_ns % 2 == 1) coordinator_go_on(&w);
        world_run(&w, job_progress, &job);
    }
    for (uint32_t rank = 0; rank < world; rank++)
        if ((rank != c->victim) && (w.ranks[rank].status != GF_OK))
            fail_msg("%s, %u ranks, all stopped after %.3f ms: rank %u: %s %s\n%s", c->name, world,
                     (double)stop_ns * 1e-6, rank, gf_status_name(w.ranks[rank].status),
                     gf_error_last(w.ranks[rank].gf)->text, w.ranks[rank].log);
    world_close(&w);
    return met;
}

static void at_any_moment(const struct sleep_case *c, uint64_t apart_ns)
{
    for (uint32_t world = 2; world <= RANKS_MAX; world++) {
        uint64_t runs = 0;
        while (goes_on(c, world, runs * apart_ns + 1)) runs++;
        assert_true(runs >= 20);
    }
}

TEST(a_job_that_was_suspended_goes_on)
{
    for (int separate = 0; separate < 2; separate++) {
        const struct sleep_case c = {
            .name = "suspended", .victim = GF_RANK_NONE, .separate = (separate != 0)};
        at_any_moment(&c, 20000 + 20000 * (uint64_t)separate);
    }
}

TEST(a_job_that_was_suspended_between_two_tensors_goes_on)
{
    const struct sleep_case c = {.name = "computes", .victim = GF_RANK_NONE, .pause_ns = 3000000};
    at_any_moment(&c, 300000);
}

TEST(survivors_that_were_suspended_in_a_regroup_go_on)
{
    for (uint32_t row = 0; row < 5; row++) {
        const struct sleep_case c = {
            .name = "regroups", .victim = (row + 1) % 3, .separate = row >= 2};
        for (uint32_t world = 3; world <= RANKS_MAX; world++) {
            uint64_t runs = 0;
            while (goes_on(&c, world, runs * 600000 + 1)) runs++;
            assert_true(runs >= 20);
        }
    }
}

/* ---- the host of the coordinator is stopped, and a rank that joins is not ---- */

static gf_status joins_until(struct world *w, uint32_t rank, void *until_ns)
{
    if (gf_sim_now_ns(w->sim) >= *(const uint64_t *)until_ns) return GF_OK;
    return gf_open_poll(w->ranks[rank].gf);
}

static void join_for(struct world *w, uint64_t for_ns)
{
    uint64_t until_ns = gf_sim_now_ns(w->sim) + for_ns;
    world_run(w, joins_until, &until_ns);
}

/* Its rank 0 leaves the stop out of its clock. 4 s without a word would end rank 1. */
TEST(a_rank_that_joins_outlives_a_stop_of_the_rank_that_hosts_the_coordinator)
{
    struct world_setup setup = brief_setup(3);
    struct world w;
    setup.config.rendezvous.join_timeout_ns = UINT64_C(60000000000);
    world_create(&w, &setup);
    gf_sim_stop(w.sim, 2, true);
    join_for(&w, UINT64_C(1200000000));
    gf_sim_stop(w.sim, 0, true);
    join_for(&w, UINT64_C(3300000000));
    gf_sim_stop(w.sim, 0, false);
    join_for(&w, UINT64_C(1500000000));
    if (w.ranks[1].status != GF_OK) fail_msg("%s", w.ranks[1].log);
    gf_sim_stop(w.sim, 2, false);
    world_join(&w);
    world_expect(&w, GF_OK);
    world_close(&w);
}
