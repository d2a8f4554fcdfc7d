/* Ranks that died are started again and come back, over the simulated network: whoever dies whenever, the joiner ahead of
 * all, in the end the world is whole, holds the same weights, and these are the sums of the steps that were applied. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world.h"

#define RANKS_MAX 6u
#define STEPS_MAX 20000u
#define ELEMS 3u            /* of the tensor whose sums are kept */
#define KEPT 2u             /* that tensor */
#define RATE 0.0625f        /* a power of two: weights of whole numbers stay exact */
#define SECOND UINT64_C(1000000000)
#define US UINT64_C(1000)

static const struct gf_sim_setup network = {.seed = 1, .latency_ns = 5000, .jitter_ns = 20000, .bytes_per_ns = 1.0,
                                            .message_ns = 100, .detect_ns = 1000000, .bind_receives = true};

static const struct gf_tensor tensors[] = {
    {.name = "a", .elem_count = 301}, {.name = "b", .elem_count = 64}, {.name = "c", .elem_count = 2001}};

/* ---- an appliance: steps, a shrink where one fails, admits whoever waits ---- */

struct job {
    uint32_t tensor; /* next to be declared */
    bool opening, in_step, shrinking;
    uint64_t shrink_began_ns;
    uint32_t shrinks;
    bool applied[STEPS_MAX];             /* by this process */
    float sums[STEPS_MAX][ELEMS];
};
static struct job jobs[RANKS_MAX];
static uint64_t goal;                    /* steps; grows while somebody is on its way */
static uint32_t on_the_way, admissions;  /* deaths in an agreement or an opening; calls of gf_admit() */
static uint64_t longest_ns;              /* of the shrinks that came to their end */
static bool blind;                       /* nobody calls gf_admit() */
static uint64_t begin_ns;

/* What happens when: -1 ends the list. */
struct happening { int32_t at_us; uint32_t rank; enum { KILL, RESTART, STOP, GO_ON } what; };
static struct happening script[12];
static uint32_t script_next;

static void script_progress(struct world *w)
{
    while ((script_next < LENGTH(script)) && (script[script_next].at_us >= 0)) {
        const struct happening *now = &script[script_next];
        if (gf_sim_now_ns(w->sim) - begin_ns < (uint64_t)now->at_us * US) return;
        script_next++;
        if (now->what == KILL) {
            on_the_way += (jobs[now->rank].opening || jobs[now->rank].shrinking) ? 1u : 0u;
            gf_sim_kill(w->sim, now->rank);
        } else if (now->what == RESTART) {
            memset(&jobs[now->rank], 0, sizeof jobs[0]);
            jobs[now->rank].opening = true;
            world_restart(w, now->rank);
        } else {
            gf_sim_stop(w->sim, now->rank, now->what == STOP);
        }
    }
}

static bool script_done(void)
{
    return (script_next == LENGTH(script)) || (script[script_next].at_us < 0);
}

static gf_status job_failed(struct world *w, uint32_t rank, gf_status status)
{
    if ((status != GF_ERR_PEER) && (status != GF_ERR_LINK) && (status != GF_ERR_TIMEOUT)) return status;
    if (gf_shrink(w->ranks[rank].gf, NULL, 0) < 0) return status;
    jobs[rank].shrinking = true;
    jobs[rank].shrink_began_ns = gf_sim_now_ns(w->sim);
    jobs[rank].in_step = false;
    jobs[rank].shrinks++;
    return GF_AGAIN;
}

/* Has all its steps; the others may still need it. */
static gf_status job_last(struct world *w, uint32_t rank)
{
    gf_status status = gf_heartbeat(w->ranks[rank].gf);
    if (status < 0) return job_failed(w, rank, status);
    if (!script_done()) return GF_AGAIN;
    for (uint32_t other = 0; other < w->world; other++) {
        if (!gf_sim_runs(w->sim, other) || (w->ranks[other].status < 0)) continue;
        if (jobs[other].opening || jobs[other].shrinking || jobs[other].in_step ||
            (gf_steps(w->ranks[other].gf) < goal)) return GF_AGAIN;
    }
    return GF_OK;
}

static bool somebody_comes(const struct world *w)
{
    for (uint32_t rank = 0; rank < w->world; rank++)
        if (jobs[rank].opening && gf_sim_runs(w->sim, rank) && (w->ranks[rank].status == GF_AGAIN)) return true;
    return !script_done();
}

static void step_keep(struct world *w, uint32_t rank)
{
    struct job *job = &jobs[rank];
    uint64_t step = gf_steps(w->ranks[rank].gf);
    const float *gradient = world_gradient(w, rank, KEPT);
    assert_true(step < STEPS_MAX);
    job->applied[step] = true;
    for (uint32_t i = 0; i < ELEMS; i++) job->sums[step][i] = gradient[i];
}

static gf_status job_step(struct world *w, uint32_t rank)
{
    struct job *job = &jobs[rank];
    gf_context *gf = w->ranks[rank].gf;
    gf_status status;
    if (job->tensor < LENGTH(tensors)) {
        world_fill(w, rank, job->tensor, (void *)(uintptr_t)gf_gradient(gf, job->tensor), NULL);
        status = gf_tensor_ready(gf, job->tensor++, 0);
        return (status < 0) ? job_failed(w, rank, status) : GF_AGAIN;
    }
    if ((status = gf_step_poll(gf)) == GF_AGAIN) return GF_AGAIN;
    if (status == GF_OK) status = gf_update(gf, RATE);
    if (status < 0) return job_failed(w, rank, status);
    step_keep(w, rank);
    job->in_step = false;
    if (blind || (gf_joiners(gf) == 0)) return GF_AGAIN;
    if ((status = gf_admit(gf)) < 0) return job_failed(w, rank, status);
    job->shrinking = true;
    job->shrink_began_ns = gf_sim_now_ns(w->sim);
    admissions++;
    return GF_AGAIN;
}

static gf_status job_progress(struct world *w, uint32_t rank, void *arg)
{
    struct job *job = &jobs[rank];
    gf_context *gf;
    gf_status status;
    (void)arg;
    script_progress(w);
    gf = w->ranks[rank].gf;
    if (!gf_sim_runs(w->sim, rank)) return GF_AGAIN;
    if (job->opening || job->shrinking) {
        if (job->shrinking) world_ended_tell(w, rank); /* as under gf-run */
        status = job->opening ? gf_open_poll(gf) : gf_epoch_poll(gf);
        if (status != GF_OK) return status;
        if (job->shrinking && (gf_sim_now_ns(w->sim) - job->shrink_began_ns > longest_ns))
            longest_ns = gf_sim_now_ns(w->sim) - job->shrink_began_ns;
        job->opening = job->shrinking = false;
        return GF_AGAIN;
    }
    if (job->in_step) return job_step(w, rank);
    if (somebody_comes(w) && (gf_steps(gf) + 2 > goal)) goal = gf_steps(gf) + 2;
    if (gf_steps(gf) >= goal) return job_last(w, rank);
    if ((status = gf_step_begin(gf)) < 0) return job_failed(w, rank, status);
    job->in_step = true;
    job->tensor = 0;
    return GF_AGAIN;
}

static struct world_setup setup_of(uint32_t world)
{
    struct world_setup setup = {.world = world, .tensors = tensors, .tensor_count = LENGTH(tensors), .sim = network};
    setup.config.optimizer.kind = GF_OPTIMIZER_SGD;
    setup.config.rendezvous.join_timeout_ns = 8 * SECOND;
    setup.config.exchange.timeout_ns = SECOND;
    setup.config.exchange.fuse_bytes = 2048;
    setup.config.exchange.slice_bytes = 4096;
    return setup;
}

static void play(struct world *w, const struct world_setup *setup, const struct happening *happenings, uint32_t count)
{
    memset(jobs, 0, sizeof jobs);
    for (uint32_t i = 0; i < LENGTH(script); i++)
        script[i] = (i < count) ? happenings[i] : (struct happening){.at_us = -1};
    script_next = 0;
    goal = 6;
    world_open(w, setup);
    begin_ns = gf_sim_now_ns(w->sim);
    world_run(w, job_progress, NULL);
}

/* ---- what must hold ---- */

/* All but the ranks of `out` end well, as one world with the same weights. */
static void expect_world(struct world *w, uint32_t out, const char *what)
{
    uint32_t count = w->world - (uint32_t)__builtin_popcount(out), seen = 0, first = GF_RANK_NONE;
    for (uint32_t rank = 0; rank < w->world; rank++) {
        gf_context *gf = w->ranks[rank].gf;
        if ((out >> rank) & 1u) continue;
        if (w->ranks[rank].status != GF_OK)
            fail_msg("%s: rank %u: %s\n%s", what, rank, gf_status_name(w->ranks[rank].status), w->ranks[rank].log);
        if ((gf_world(gf) != count) || (gf_rank(gf) >= count) || ((seen >> gf_rank(gf)) & 1u) || (gf_steps(gf) != goal))
            fail_msg("%s: rank %u is %u of %u at step %u, expected one of %u at %u", what, rank, gf_rank(gf),
                     gf_world(gf), (unsigned)gf_steps(gf), count, (unsigned)goal);
        seen |= 1u << gf_rank(gf);
        if (first == GF_RANK_NONE) first = rank;
        for (uint32_t tensor = 0; tensor < LENGTH(tensors); tensor++) {
            const void *weight = (const void *)(uintptr_t)gf_weight(gf, tensor);
            const void *other = (const void *)(uintptr_t)gf_weight(w->ranks[first].gf, tensor);
            if (memcmp(weight, other, tensors[tensor].elem_count * sizeof(float)) != 0)
                fail_msg("%s: tensor %u of ranks %u and %u differs", what, tensor, first, rank);
        }
    }
}

/* With plain SGD: the weights are the sums of the steps that any of those that are left has applied. */
static void expect_sums(struct world *w, uint32_t out, const char *what)
{
    for (uint32_t i = 0; i < ELEMS; i++) {
        float expected = 0;
        for (uint64_t step = 1; step <= goal; step++)
            for (uint32_t rank = 0; rank < w->world; rank++) {
                if (((out >> rank) & 1u) || !jobs[rank].applied[step]) continue;
                expected -= RATE * jobs[rank].sums[step][i];
                break;
            }
        for (uint32_t rank = 0; rank < w->world; rank++) {
            const float *weight = (const float *)(uintptr_t)gf_weight(w->ranks[rank].gf, KEPT);
            if (((out >> rank) & 1u) || (weight[i] == expected)) continue;
            fail_msg("%s: element %u of rank %u is %g, its steps come to %g", what, i, rank, (double)weight[i],
                     (double)expected);
        }
    }
    for (uint32_t i = 0; (out == 0) && (i < ELEMS); i++) /* everybody was in the last step */
        assert_true(jobs[0].sums[goal][i] == world_sum(w->world, KEPT, i));
}

/* ---- the cases ---- */

TEST(whoever_dies_and_is_started_again_comes_back)
{
    static const int32_t delays_us[] = {0, 300, 1100, 2500, 20000};
    uint32_t came = 0;
    for (uint32_t size = 2; size <= 5; size++) {
        for (uint32_t victim = 0; victim < size; victim++) {
            for (int32_t at = 500; at < 4000; at += 333) {
                for (size_t d = 0; d < LENGTH(delays_us); d++) {
                    struct world_setup setup = setup_of(size);
                    const struct happening list[] = {{at, victim, KILL}, {at + delays_us[d], victim, RESTART}};
                    struct world w;
                    char what[96];
                    (void)snprintf(what, sizeof what, "world %u, rank %u dies at %d us, starts %d us later", size,
                                   victim, at, delays_us[d]);
                    play(&w, &setup, list, LENGTH(list));
                    expect_world(&w, 0, what);
                    expect_sums(&w, 0, what);
                    came++;
                    world_close(&w);
                }
            }
        }
    }
    print_message("%u joiners, %u calls of gf_admit()\n", came, admissions);
    assert_true(admissions > came / 2);
}

TEST(several_joiners_come_in)
{
    for (uint32_t size = 3; size <= 6; size++) {
        for (uint32_t dead = 1; dead < (1u << size) - 1; dead++) {
            struct world_setup setup = setup_of(size);
            struct happening list[12];
            uint32_t used = 0, count = (uint32_t)__builtin_popcount(dead);
            struct world w;
            char what[64];
            if ((count < 2) || (2 * count > size)) continue; /* the others keep their quorum whoever saw whom die */
            (void)snprintf(what, sizeof what, "world %u, ranks %#x come back", size, dead);
            for (uint32_t rank = 0; rank < size; rank++)
                if ((dead >> rank) & 1u) list[used++] = (struct happening){1000, rank, KILL};
            if ((dead & 1u) && (size - count <= (uint32_t)__builtin_popcount(dead >> __builtin_ctz(~dead)))) continue;
            for (uint32_t rank = 0; rank < size; rank++)
                if ((dead >> rank) & 1u) list[used++] = (struct happening){9000, rank, RESTART};
            play(&w, &setup, list, used);
            expect_world(&w, 0, what);
            expect_sums(&w, 0, what);
            world_close(&w);
        }
    }
}

/* Another death at each moment of the way in, of the joiner itself or another; all are started again in the end. */
TEST(a_death_on_the_way_in_begins_it_anew)
{
    uint32_t deaths = 0;
    on_the_way = 0;
    for (uint32_t first = 0; first < 3; first++) {
        for (uint32_t second = 0; second < 4; second++) {
            for (int32_t delay = 0; delay < 9000; delay += 230) {
                struct world_setup setup = setup_of(4);
                const struct happening list[] = {{1000, first, KILL}, {6000, first, RESTART},
                                                 {6000 + delay, second, KILL}, {40000, second, RESTART}};
                struct world w;
                char what[96];
                setup.config.optimizer.momentum = 0.5f;
                (void)snprintf(what, sizeof what, "rank %u comes back, rank %u dies %d us later", first, second, delay);
                play(&w, &setup, list, LENGTH(list));
                expect_world(&w, 0, what);
                deaths++;
                world_close(&w);
            }
        }
    }
    print_message("%u second deaths, %u of them on the way in\n", deaths, on_the_way);
    assert_true(on_the_way > 50);
}

/* The coordinator dies while it lets a joiner in, another rank is silent: the next one has no connection with that, and
 * waits for it no longer than a shrink does, however long a step may take. */
TEST(a_silent_rank_on_the_way_in_is_waited_for_as_in_a_shrink)
{
    longest_ns = 0;
    for (int32_t delay = 0; delay < 4000; delay += 110) {
        struct world_setup setup = setup_of(6);
        const struct happening list[] = {{1000, 5, KILL}, {6000, 5, RESTART}, {6000 + delay, 2, STOP}, {6000 + delay, 0, KILL}};
        struct world w;
        char what[64];
        setup.config.exchange.timeout_ns = 4 * SECOND;
        (void)snprintf(what, sizeof what, "rank 5 comes back, 2 stops and 0 dies %d us later", delay);
        play(&w, &setup, list, LENGTH(list));
        expect_world(&w, 0x5, what);
        world_close(&w);
    }
    print_message("the longest took %.3f s\n", (double)longest_ns * 1e-9);
    assert_true(longest_ns > SECOND); /* an eighth of join_timeout, and not half of it */
    assert_true(longest_ns < 2 * SECOND);
}

static void vary_momentum(struct gf_config *config)
{
    config->optimizer.momentum = 0.5f;
    config->optimizer.weight_decay = 0.01f;
    config->optimizer.half_weights = GF_TYPE_BF16;
}

static void vary_sparse(struct gf_config *config)
{
    config->optimizer.momentum = 0.5f;
    config->sparse.enabled = true;
    config->sparse.chunk_elems = 128;
    config->sparse.keep_share = 0.3f;
    config->sparse.warmup_steps = 6; /* joiners in the dense part and behind it */
}

static void vary_sparse_local(struct gf_config *config)
{
    vary_sparse(config);
    config->sparse.momentum = GF_SPARSE_MOMENTUM_LOCAL;
    config->exchange.average = GF_AVERAGE_SAMPLES;
}

static void vary_wire(struct gf_config *config)
{
    config->optimizer.momentum = 0.5f;
    config->exchange.wire = GF_TYPE_F16;
    config->loss_scale.enabled = true;
    config->loss_scale.growth_interval = 1;
    config->loss_scale.initial = 4.0f;
    config->link.integrity = true;
    config->exchange.average = GF_AVERAGE_RANKS;
}

TEST(a_joiner_has_the_whole_state)
{
    static void (*const variants[])(struct gf_config *config) = {vary_momentum, vary_sparse, vary_sparse_local,
                                                                 vary_wire};
    for (size_t v = 0; v < LENGTH(variants); v++) {
        for (uint32_t victim = 0; victim < 3; victim++) {
            for (int32_t at = 700; at < 6000; at += 411) {
                struct world_setup setup = setup_of(3);
                const struct happening list[] = {{at, victim, KILL}, {at + 3000, victim, RESTART}};
                struct world w;
                char what[96];
                (void)snprintf(what, sizeof what, "variant %u, rank %u dies at %d us", (unsigned)v, victim, at);
                variants[v](&setup.config);
                play(&w, &setup, list, LENGTH(list));
                expect_world(&w, 0, what);
                for (uint32_t rank = 1; rank < w.world; rank++)
                    assert_true(gf_loss_scale(w.ranks[rank].gf) == gf_loss_scale(w.ranks[0].gf));
                world_close(&w);
            }
        }
    }
}

/* ---- who does not come in ---- */

TEST(a_joiner_with_other_things_is_turned_away)
{
    struct world_setup setup = setup_of(3);
    struct world w;
    const struct happening list[] = {{1000, 1, KILL}, {5000, 1, RESTART}};
    memset(jobs, 0, sizeof jobs);
    memcpy(script, list, sizeof list);
    script[LENGTH(list)].at_us = -1;
    script_next = 0;
    goal = 6;
    world_open(&w, &setup);
    w.ranks[1].config.exchange.fuse_bytes = 4096;
    begin_ns = gf_sim_now_ns(w.sim);
    world_run(&w, job_progress, NULL);
    assert_int_equal(w.ranks[1].status, GF_ERR_MISMATCH);
    assert_non_null(strstr(gf_error_last(w.ranks[1].gf)->text, "fuse_bytes is "));
    world_expect_log(&w, 0, "fuse_bytes is ");
    expect_world(&w, 1u << 1, "the others");
    world_close(&w);
}

TEST(nobody_lets_it_in_before_the_deadline)
{
    struct world_setup setup = setup_of(3);
    const struct happening list[] = {{1000, 2, KILL}, {5000, 2, RESTART}};
    struct world w;
    setup.config.rendezvous.join_timeout_ns = SECOND;
    blind = true;
    play(&w, &setup, list, LENGTH(list));
    blind = false;
    assert_int_equal(w.ranks[2].status, GF_ERR_QUORUM);
    world_expect_log(&w, 2, "before the deadline");
    expect_world(&w, 1u << 2, "the others");
    world_close(&w);
}

static gf_status open_only(struct world *w, uint32_t rank, void *arg)
{
    (void)arg;
    return gf_open_poll(w->ranks[rank].gf);
}

static void rank_1_rejoins(uint32_t rank, struct gf_config *config, const struct gf_tensor **table,
                           uint32_t *tensor_count)
{
    (void)table;
    (void)tensor_count;
    config->rendezvous.rejoin = (rank == 1);
}

TEST(a_job_that_has_not_begun_takes_no_joiners)
{
    struct world_setup setup = setup_of(2);
    struct world w;
    setup.config.rendezvous.join_timeout_ns = SECOND;
    setup.vary = rank_1_rejoins;
    world_create(&w, &setup);
    world_run(&w, open_only, NULL);
    assert_int_equal(w.ranks[1].status, GF_ERR_STATE);
    assert_non_null(strstr(gf_error_last(w.ranks[1].gf)->text, "rendezvous.rejoin = false"));
    assert_int_equal(w.ranks[0].status, GF_ERR_TIMEOUT); /* names who is missing */
    assert_int_equal(gf_error_last(w.ranks[0].gf)->peer, 1);
    world_close(&w);
}

TEST(a_call_at_the_wrong_moment_is_refused)
{
    struct world_setup setup = setup_of(2);
    struct gf_config config = {.job = {.world = 1, .ignore_environment = true}, .rendezvous.rejoin = true};
    struct gf_footprint need;
    struct world w;
    world_open(&w, &setup);
    assert_int_equal(gf_admit(w.ranks[0].gf), GF_ERR_STATE);
    assert_int_equal(gf_joiners(w.ranks[0].gf), 0);
    assert_int_equal(gf_admit(NULL), GF_ERR_PARAM);
    assert_int_equal(gf_joiners(NULL), 0);
    assert_false(gf_rejoined(w.ranks[0].gf));
    assert_int_equal(gf_measure(&config, tensors, LENGTH(tensors), &need), GF_ERR_CONFIG);
    world_close(&w);
}
