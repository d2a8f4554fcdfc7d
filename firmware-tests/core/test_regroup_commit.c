/* A generation ends while a sparse step is being written into histories: each has all of the step
 * or nothing of it, and the next generation chooses the same chunks on all ranks. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world.h"
#include "lib/context.h"

#define RANKS 4u
#define ELEMS 20000u
#define STEPS 6u
#define RATE 0.0625f
#define US UINT64_C(1000)

static const struct gf_tensor tensors[] = {{.name = "a", .elem_count = ELEMS}};

static struct {
    bool in_step, declared, regrouping;
    bool behind; /* its own vote had not ended: others may have the step, it has nothing of it */
    bool looked_at, counted;
    float before[ELEMS]; /* history as the step that was cut short began */
} jobs[RANKS];
static uint64_t cut_step; /* in the commit of this one .. */
static uint64_t late_us;  /* .. so long after it began .. */
static uint32_t victim;   /* .. this rank dies */
static uint64_t begun_ns, caught, warmup;
static bool early;             /* the change begins while the step is still being written */
static uint64_t most;          /* elements that one call committed */
static uint32_t ranks, second; /* second dies while weights are copied, .. */
static uint64_t copied_us;     /* .. so long after that began; 0: it lives */
static uint64_t copy_ns, caught_again;

static gf_average average;

static struct world_setup setup_make(void)
{
    struct world_setup setup = {.world = ranks,
                                .separate = true,
                                .tensors = tensors,
                                .tensor_count = 1,
                                .sim = {.seed = 3,
                                        .latency_ns = 5000,
                                        .jitter_ns = 20000,
                                        .bytes_per_ns = 1.0,
                                        .detect_ns = 30 * US,
                                        .bind_receives = true}};
    setup.config.job.elastic = true;
    setup.config.optimizer.kind = GF_OPTIMIZER_SGD;
    setup.config.rendezvous.join_timeout_ns = 8000000 * US;
    setup.config.exchange.slice_bytes = 4096;
    setup.config.exchange.average = average;
    setup.config.sparse.enabled = true;
    setup.config.sparse.chunk_elems = 500;
    setup.config.sparse.keep_share = 0.3f;
    setup.config.sparse.warmup_steps = (uint32_t)warmup;
    return setup;
}

static const float *history(const gf_context *gf)
{
    return (const float *)(uintptr_t)gf->sparse.history;
}

static bool was_sent(const gf_context *gf, uint64_t elem)
{
    for (uint32_t i = 0; i < gf->sparse.sent_count; i++)
        if (gf->sparse.sent[i] == elem / 500) return true;
    return false;
}

/* Behind the regroup; `gf_sparse_commit()` has exchanged the two selections where it came to its
 * end. */
static void expect_whole(struct world *w, uint32_t rank)
{
    const gf_context *gf = w->ranks[rank].gf;
    const gf_context *lead = NULL; /* has seen the end of the step */
    const float *before = jobs[rank].before;
    /* a mean is divided by the ranks of now: what waits counts as among those of then */
    const float factor =
        (average == GF_AVERAGE_RANKS) ? (float)((double)gf_world(gf) / (double)ranks) : 1.0f;
    for (uint32_t other = 0; other < ranks; other++)
        if (gf_sim_runs(w->sim, other) && !jobs[other].behind) lead = w->ranks[other].gf;
    if (gf_steps(gf) != cut_step) lead = NULL;
    /* who is behind has nothing of it but what it sent, and that is applied */
    for (uint64_t e = 0; e < ELEMS; e++) {
        bool sent = (lead != NULL) && was_sent(lead, e), has = (lead != NULL) && !jobs[rank].behind;
        float expected = sent ? 0.0f : has ? before[e] + world_value(rank, 0, e) : before[e];
        expected *= factor;
        if (history(gf)[e] != expected)
            fail_msg("rank %u, %u us into the commit: history[%u] is %g, expected %g (before %g)",
                     rank, (unsigned)late_us, (unsigned)e, (double)history(gf)[e], (double)expected,
                     (double)before[e]);
    }
}

/* Whatever a call does, it commits no more than a slice. */
static void commit_watch(const gf_context *gf, uint64_t before)
{
    uint64_t now = (gf->sparse.commit.elem >= before) ? gf->sparse.commit.elem : ELEMS;
    if (now - before > most) most = now - before;
}

static gf_status job_turn(struct world *w, uint32_t rank);

static gf_status job_progress(struct world *w, uint32_t rank, void *arg)
{
    const gf_context *gf = w->ranks[rank].gf;
    uint64_t before = gf->sparse.commit.elem;
    gf_status status = job_turn(w, rank);
    (void)arg;
    commit_watch(gf, before);
    if (gf->failing.writes && !jobs[rank].counted) caught++;
    jobs[rank].counted = jobs[rank].counted || gf->failing.writes;
    return status;
}

static gf_status job_turn(struct world *w, uint32_t rank)
{
    gf_context *gf = w->ranks[rank].gf;
    bool commits = (gf->phase == GF_PHASE_STEP) && (gf->step.number == cut_step) &&
                   (gf->sparse.commit.elem > 0);
    gf_status status;
    if (commits && (begun_ns == 0)) begun_ns = gf_sim_now_ns(w->sim);
    if ((begun_ns != 0) && (gf_sim_now_ns(w->sim) >= begun_ns + late_us * US) &&
        gf_sim_runs(w->sim, victim))
        gf_sim_kill(w->sim, victim);
    if ((gf->change.state == GF_CHANGE_SYNC) && (gf->change.sync_next == GF_SYNC_EXTRA) &&
        (copy_ns == 0))
        copy_ns = gf_sim_now_ns(w->sim);
    if ((copied_us != 0) && (copy_ns != 0) && (gf_sim_now_ns(w->sim) >= copy_ns + copied_us * US) &&
        gf_sim_runs(w->sim, second)) {
        if (jobs[(second + 1) % 4].behind) caught_again++;
        gf_sim_kill(w->sim, second);
    }
    if (!gf_sim_runs(w->sim, rank)) return GF_AGAIN;
    if (jobs[rank].regrouping) {
        if ((status = gf_regroup_poll(gf)) != GF_OK) return status;
        jobs[rank].regrouping = false;
        if ((warmup == 0) && !jobs[rank].looked_at) expect_whole(w, rank);
        jobs[rank].looked_at = true;
        return GF_AGAIN;
    }
    if (!jobs[rank].in_step) {
        if (gf_steps(gf) == STEPS) return GF_OK;
        if ((status = gf_step_begin(gf)) < 0) goto failed;
        if (gf->step.number == cut_step)
            memcpy(jobs[rank].before, history(gf), sizeof jobs[rank].before);
        jobs[rank].in_step = true;
        jobs[rank].declared = false;
    }
    if (!jobs[rank].declared) {
        world_fill(w, rank, 0, (void *)(uintptr_t)gf_gradient(gf, 0), NULL);
        jobs[rank].declared = true;
        status = gf_tensor_ready(gf, 0, 0);
        if (status < 0) goto failed;
        return GF_AGAIN;
    }
    status = gf_step_poll(gf);
    if (early && gf->failing.writes) goto failed;
    if (status == GF_AGAIN) return GF_AGAIN;
    if (status == GF_OK) status = gf_update(gf, RATE);
    if (status < 0) goto failed;
    jobs[rank].in_step = false;
    return GF_AGAIN;
failed:
    if (commits && !gf->failing.writes) caught++;
    jobs[rank].in_step = false;
    if (!jobs[rank].looked_at) jobs[rank].behind = gf->step.state < GF_STEP_AGREED;
    jobs[rank].regrouping = (gf_regroup_begin(gf) == GF_OK);
    return jobs[rank].regrouping ? GF_AGAIN : status;
}

static void play(void)
{
    struct world_setup setup = setup_make();
    memset(jobs, 0, sizeof jobs);
    begun_ns = copy_ns = 0;
    WORLD_OPEN(w, &setup);
    world_run(&w, job_progress, NULL);
    uint32_t other = 0;
    while (!gf_sim_runs(w.sim, other)) other++;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        if (!gf_sim_runs(w.sim, rank)) continue;
        assert_int_equal(w.ranks[rank].status, GF_OK);
        assert_memory_equal((const void *)(uintptr_t)gf_weight(w.ranks[rank].gf, 0),
                            (const void *)(uintptr_t)gf_weight(w.ranks[other].gf, 0),
                            ELEMS * sizeof(float));
        assert_int_equal(w.ranks[rank].gf->sparse.selected_count,
                         w.ranks[other].gf->sparse.selected_count);
        assert_memory_equal(w.ranks[rank].gf->sparse.selection, w.ranks[other].gf->sparse.selection,
                            w.ranks[rank].gf->sparse.selected_count * sizeof(uint32_t));
    }
}

TEST(histories_have_all_of_a_step_or_nothing)
{
    warmup = copied_us = 0;
    caught = 0;
    ranks = 3;
    for (victim = 0; victim < ranks; victim++)
        for (cut_step = 2; cut_step < STEPS; cut_step++)
            for (late_us = 0; late_us < 400; late_us += 23) {
                early = (late_us & 1) != 0;
                play();
            }
    early = false;
    assert_true(caught > 20);
    assert_true(most <= 1024 + 500); /* a slice, and what is left of a chunk */
}

TEST(what_waits_for_a_mean_over_ranks_counts_in_fewer_ranks_as_it_did_before)
{
    warmup = copied_us = 0;
    caught = 0;
    ranks = 3;
    average = GF_AVERAGE_RANKS;
    cut_step = 4;
    for (victim = 0; victim < ranks; victim++)
        for (late_us = 0; late_us < 400; late_us += 46) play();
    average = GF_AVERAGE_SUM;
    assert_true(caught > 2);
}

/* The last dense step gives the norms by which the first chunks are chosen. */
TEST(chunks_are_chosen_by_all_their_norms)
{
    warmup = cut_step = 2;
    caught = copied_us = 0;
    ranks = 3;
    for (victim = 0; victim < ranks; victim++)
        for (late_us = 0; late_us < 400; late_us += 23) play();
    assert_true(caught > 5);
}

/* What a rank that lags has sent it gives up once, however often the copying begins. */
TEST(a_second_death_gives_nothing_more_up)
{
    warmup = 0;
    caught_again = 0;
    ranks = 4;
    cut_step = 4;
    for (victim = 0; victim < 2; victim++)
        for (late_us = 0; late_us < 20; late_us += 13)
            for (copied_us = 1, second = victim + 1; copied_us < 200; copied_us += 37) play();
    assert_true(caught_again > 5);
}
