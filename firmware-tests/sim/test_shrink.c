/* Survivors go on without the dead, over the simulated network: whoever dies, at whatever post, they agree on an epoch,
 * hold the same weights, and sums are right afterwards; whoever is left on the smaller side ends. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world.h"
#include "lib/context.h"

#define RANKS_MAX 9u
#define STEPS 6u
#define RATE 0.0625f /* a power of two: weights of whole numbers stay exact */
#define SECOND UINT64_C(1000000000)

static const struct gf_sim_setup network = {.seed = 1, .latency_ns = 5000, .jitter_ns = 20000, .bytes_per_ns = 1.0,
                                            .message_ns = 100, .detect_ns = 1000000, .bind_receives = true};

static const struct gf_tensor tensors[] = {
    {.name = "a", .elem_count = 301}, {.name = "b", .elem_count = 64}, {.name = "c", .elem_count = 2001}};

/* An appliance: steps, and a shrink where one fails. */
struct job {
    uint32_t tensor;     /* next to be declared */
    bool in_step, shrinking;
    uint32_t shrinks;
    uint64_t shrink_ns, shrink_began_ns;
};

static struct job jobs[RANKS_MAX];
static uint64_t all_end_ns; /* nobody ends before: a death may not have been seen yet */
static void (*on_progress)(struct world *w, uint32_t rank); /* faults by hand */

static gf_status job_failed(struct world *w, uint32_t rank, gf_status status)
{
    struct job *job = &jobs[rank];
    gf_context *gf = w->ranks[rank].gf;
    gf_status began;
    if ((status != GF_ERR_PEER) && (status != GF_ERR_LINK) && (status != GF_ERR_TIMEOUT)) return status;
    began = gf_shrink(gf, NULL, 0);
    if (began < 0) return status;
    job->shrinking = true;
    job->in_step = false;
    job->shrink_began_ns = gf_sim_now_ns(w->sim);
    return GF_AGAIN;
}

static bool told = true; /* as under gf-run: who has ended */

static gf_status job_shrink(struct world *w, uint32_t rank)
{
    struct job *job = &jobs[rank];
    gf_status status;
    if (told) world_ended_tell(w, rank);
    status = gf_epoch_poll(w->ranks[rank].gf);
    if (status == GF_AGAIN) return GF_AGAIN;
    job->shrinking = false;
    job->shrink_ns = gf_sim_now_ns(w->sim) - job->shrink_began_ns;
    if (status < 0) return status;
    job->shrinks++;
    return GF_AGAIN;
}

/* Has all its steps; the others may still need it. */
static gf_status job_last(struct world *w, uint32_t rank)
{
    gf_status status = gf_heartbeat(w->ranks[rank].gf);
    if (status < 0) return job_failed(w, rank, status);
    for (uint32_t other = 0; other < w->world; other++) {
        bool out = !gf_sim_runs(w->sim, other) || (w->ranks[other].status < 0);
        if (out) continue;
        if (jobs[other].shrinking || jobs[other].in_step || (gf_steps(w->ranks[other].gf) < STEPS)) return GF_AGAIN;
    }
    return (gf_sim_now_ns(w->sim) < all_end_ns) ? GF_AGAIN : GF_OK;
}

static gf_status job_progress(struct world *w, uint32_t rank, void *arg)
{
    struct job *job = &jobs[rank];
    gf_context *gf = w->ranks[rank].gf;
    gf_status status;
    (void)arg;
    if (on_progress != NULL) on_progress(w, rank);
    if (!gf_sim_runs(w->sim, rank)) return GF_AGAIN;
    if (job->shrinking) return job_shrink(w, rank);
    if (!job->in_step) {
        if (gf_steps(gf) >= STEPS) return job_last(w, rank);
        if ((status = gf_step_begin(gf)) < 0) return job_failed(w, rank, status);
        job->in_step = true;
        job->tensor = 0;
        return GF_AGAIN;
    }
    if (job->tensor < LENGTH(tensors)) {
        world_fill(w, rank, job->tensor, (void *)(uintptr_t)gf_gradient(gf, job->tensor), NULL);
        status = gf_tensor_ready(gf, job->tensor++, 0);
        return (status < 0) ? job_failed(w, rank, status) : GF_AGAIN;
    }
    if ((status = gf_step_poll(gf)) == GF_AGAIN) return GF_AGAIN;
    if (status == GF_OK) status = gf_update(gf, RATE);
    if (status < 0) return job_failed(w, rank, status);
    job->in_step = false;
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

static void jobs_run(struct world *w)
{
    memset(jobs, 0, sizeof jobs);
    all_end_ns = gf_sim_now_ns(w->sim) + SECOND / 50;
    world_run(w, job_progress, NULL);
    told = true;
}

static float sum_of(const struct world *w, uint32_t tensor, uint64_t elem, bool survivors)
{
    float sum = 0;
    for (uint32_t rank = 0; rank < w->world; rank++)
        if (!survivors || (w->ranks[rank].status == GF_OK)) sum += world_value(rank, tensor, elem);
    return sum;
}

static uint32_t survivors_of(const struct world *w)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < w->world; rank++) count += (w->ranks[rank].status == GF_OK) ? 1u : 0u;
    return count;
}

/* All that ended well are one world, in their order, with the same weights. */
static void expect_agreement(struct world *w, const char *what)
{
    uint32_t count = survivors_of(w), next = 0;
    const float *first[LENGTH(tensors)] = {0};
    for (uint32_t rank = 0; rank < w->world; rank++) {
        gf_context *gf = w->ranks[rank].gf;
        if (w->ranks[rank].status != GF_OK) continue;
        if ((gf_world(gf) != count) || (gf_rank(gf) != next) || (gf_steps(gf) != STEPS))
            fail_msg("%s: rank %u is %u of %u at step %u, expected %u of %u at %u", what, rank, gf_rank(gf),
                     gf_world(gf), (unsigned)gf_steps(gf), next, count, STEPS);
        next++;
        for (uint32_t tensor = 0; tensor < LENGTH(tensors); tensor++) {
            const float *weight = (const float *)(uintptr_t)gf_weight(gf, tensor);
            if (first[tensor] == NULL) first[tensor] = weight;
            if (memcmp(first[tensor], weight, tensors[tensor].elem_count * sizeof *weight) != 0)
                fail_msg("%s: tensor %u of rank %u differs", what, tensor, rank);
        }
    }
}

/* With one death and plain SGD: k steps of everybody, the rest of the survivors (one of them perhaps without its
 * update); the same k for each element. */
static void expect_sums(struct world *w, const char *what)
{
    gf_context *gf = NULL;
    bool fits[STEPS + 1][2];
    bool any = false;
    memset(fits, 1, sizeof fits);
    for (uint32_t rank = w->world; rank-- > 0;)
        if (w->ranks[rank].status == GF_OK) gf = w->ranks[rank].gf;
    assert_non_null(gf);
    for (uint32_t tensor = 0; tensor < LENGTH(tensors); tensor++) {
        const float *weight = (const float *)(uintptr_t)gf_weight(gf, tensor);
        for (uint64_t i = 0; i < tensors[tensor].elem_count; i++) {
            float all = sum_of(w, tensor, i, false), left = sum_of(w, tensor, i, true);
            for (uint32_t k = 0; k <= STEPS; k++)
                for (uint32_t lost = 0; lost < 2; lost++) {
                    float expected = -RATE * ((float)k * all + ((float)STEPS - (float)k - (float)lost) * left);
                    if (weight[i] != expected) fits[k][lost] = false;
                }
        }
    }
    for (uint32_t k = 0; k <= STEPS; k++) any = any || fits[k][0] || ((k < STEPS) && fits[k][1]);
    if (!any) fail_msg("%s: the weights are no sum of whole steps", what);
}

/* ---- one death ---- */

/* False: somebody died while joining, which no epoch survives. */
static bool all_joined(const struct world *w, uint32_t except)
{
    for (uint32_t rank = 0; rank < w->world; rank++)
        if ((rank != except) && (w->ranks[rank].status != GF_OK)) return false;
    return gf_sim_runs(w->sim, except);
}

TEST(whoever_dies_at_whatever_post_the_others_go_on)
{
    static const uint32_t worlds[] = {2, 3, 4, 5, 9};
    uint32_t deaths = 0;
    for (size_t i = 0; i < LENGTH(worlds); i++) {
        for (uint32_t victim = 0; victim < worlds[i]; victim += (worlds[i] > 5) ? 4 : 1) {
            bool met = true;
            for (uint64_t at = 1; met; at += 1 + at / 16) {
                struct world_setup setup = setup_of(worlds[i]);
                struct world w;
                char what[96];
                (void)snprintf(what, sizeof what, "world %u, rank %u dies at post %u", worlds[i], victim, (unsigned)at);
                setup.sim.faults[0] = (struct gf_sim_fault){.kind = GF_SIM_FAULT_KILL, .rank = victim, .at = at};
                setup.sim.fault_count = 1;
                world_create(&w, &setup);
                world_join(&w);
                if (all_joined(&w, victim)) {
                    jobs_run(&w);
                    met = gf_sim_fault_met(w.sim);
                    if (survivors_of(&w) != worlds[i] - (met ? 1 : 0))
                        for (uint32_t r = 0; r < w.world; r++)
                            if ((w.ranks[r].status != GF_OK) && (r != victim))
                                fail_msg("%s: rank %u: %s\n%s", what, r, gf_status_name(w.ranks[r].status),
                                         w.ranks[r].log);
                    expect_agreement(&w, what);
                    expect_sums(&w, what);
                    deaths += met ? 1 : 0;
                }
                world_close(&w);
            }
        }
    }
    print_message("%u deaths in a step\n", deaths);
    assert_true(deaths > 100);
}

/* ---- more than one ---- */

/* Ranks of `mask` end as `status` (GF_AGAIN: they are dead); all others as GF_OK, in agreement. */
static void expect_out(struct world *w, uint32_t mask, gf_status status, const char *what)
{
    for (uint32_t rank = 0; rank < w->world; rank++) {
        gf_status expected = ((mask >> rank) & 1u) ? status : GF_OK;
        if ((expected == GF_AGAIN) && !gf_sim_runs(w->sim, rank)) continue;
        if (w->ranks[rank].status != expected)
            fail_msg("%s: rank %u: %s, expected %s\n%s", what, rank, gf_status_name(w->ranks[rank].status),
                     gf_status_name(expected), w->ranks[rank].log);
    }
    expect_agreement(w, what);
}

static uint64_t step_at;              /* faults by hand come once a rank is in this step */
static uint32_t hit;                  /* bits: ranks that they hit */
static bool done;

static bool due(struct world *w, uint32_t rank)
{
    if (done || (w->ranks[rank].gf == NULL) || (gf_steps(w->ranks[rank].gf) < step_at)) return false;
    done = true;
    return true;
}

static void kill_hit(struct world *w, uint32_t rank)
{
    if (!due(w, rank)) return;
    for (uint32_t other = 0; other < w->world; other++)
        if ((hit >> other) & 1u) gf_sim_kill(w->sim, other);
}

static void by_hand(void (*turn)(struct world *w, uint32_t rank), uint32_t ranks)
{
    on_progress = turn;
    hit = ranks;
    step_at = 2;
    done = false;
}

/* Told who has ended, whoever is left goes on; else more than half do, or exactly half with rank 0, and all others end. */
TEST(all_that_die_at_once_are_left_behind)
{
    for (uint32_t size = 2; size <= 6; size++) {
        for (uint32_t row = 2; row < (2u << size) - 2; row++) {
            struct world_setup setup = setup_of(size);
            struct world w;
            char what[64];
            uint32_t dead = row >> 1, count = (uint32_t)__builtin_popcount(dead);
            bool quorum = (2 * (size - count) > size) || ((2 * (size - count) == size) && ((dead & 1u) == 0));
            told = ((row & 1u) != 0);
            (void)snprintf(what, sizeof what, "world %u, dead %#x, %s", size, dead, told ? "told" : "not told");
            quorum = quorum || told;
            by_hand(kill_hit, dead);
            world_open(&w, &setup);
            jobs_run(&w);
            on_progress = NULL;
            if (quorum) expect_out(&w, dead, GF_AGAIN, what);
            for (uint32_t rank = 0; !quorum && (rank < size); rank++)
                if (!((dead >> rank) & 1u) && (w.ranks[rank].status != GF_ERR_QUORUM))
                    fail_msg("%s: rank %u: %s\n%s", what, rank, gf_status_name(w.ranks[rank].status), w.ranks[rank].log);
            world_close(&w);
        }
    }
}

static uint32_t second_rank;
static uint64_t second_ns, first_died_ns;
static uint32_t deaths_in_shrink;

static void kill_twice(struct world *w, uint32_t rank)
{
    bool before = done;
    kill_hit(w, rank);
    if (done && !before) first_died_ns = gf_sim_now_ns(w->sim);
    if (!done || (gf_sim_now_ns(w->sim) - first_died_ns < second_ns) || !gf_sim_runs(w->sim, second_rank)) return;
    if (jobs[second_rank].shrinking) deaths_in_shrink++;
    gf_sim_kill(w->sim, second_rank);
}

/* Another one dies at each moment behind the first death: in the agreement, the join, the warm-up, the copying. */
TEST(a_death_in_the_shrink_begins_it_anew)
{
    deaths_in_shrink = 0;
    for (uint32_t first = 0; first < 4; first++) {
        for (uint32_t second = 0; second < 5; second++) {
            for (uint64_t delay_ns = 0; (second != first) && (delay_ns < 4000000); delay_ns += 97000) {
                struct world_setup setup = setup_of(5);
                struct world w;
                char what[96];
                setup.config.optimizer.momentum = 0.5f;
                (void)snprintf(what, sizeof what, "rank %u dies, then rank %u after %u us", first, second,
                               (unsigned)(delay_ns / 1000));
                by_hand(kill_hit, 1u << first);
                world_open(&w, &setup);
                second_rank = second;
                second_ns = delay_ns;
                on_progress = kill_twice;
                jobs_run(&w);
                on_progress = NULL;
                expect_out(&w, (1u << first) | (1u << second), GF_AGAIN, what);
                world_close(&w);
            }
        }
    }
    print_message("%u deaths in a shrink\n", deaths_in_shrink);
    assert_true(deaths_in_shrink > 100);
}

/* ---- everything that makes up the state ---- */

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
    config->sparse.warmup_steps = 1;
}

static void vary_sparse_local(struct gf_config *config)
{
    vary_sparse(config);
    config->sparse.momentum = GF_SPARSE_MOMENTUM_LOCAL;
    config->exchange.average = GF_AVERAGE_SAMPLES;
}

static void vary_wire(struct gf_config *config)
{
    config->exchange.wire = GF_TYPE_F16;
    config->loss_scale.enabled = true;
    config->loss_scale.growth_interval = 1;
    config->loss_scale.initial = 4.0f;
    config->link.integrity = true;
    config->exchange.average = GF_AVERAGE_RANKS;
}

TEST(the_whole_state_is_common_afterwards)
{
    static void (*const variants[])(struct gf_config *config) = {vary_momentum, vary_sparse, vary_sparse_local,
                                                                 vary_wire};
    uint32_t deaths = 0;
    for (size_t v = 0; v < LENGTH(variants); v++) {
        for (uint32_t victim = 0; victim < 4; victim++) {
            bool met = true;
            for (uint64_t at = 20; met; at += 1 + at / 16) {
                struct world_setup setup = setup_of(4);
                struct world w;
                char what[64];
                float scale = 0.0f;
                (void)snprintf(what, sizeof what, "variant %u, rank %u dies at post %u", (unsigned)v, victim,
                               (unsigned)at);
                variants[v](&setup.config);
                setup.sim.faults[0] = (struct gf_sim_fault){.kind = GF_SIM_FAULT_KILL, .rank = victim, .at = at};
                setup.sim.fault_count = 1;
                world_create(&w, &setup);
                world_join(&w);
                if (all_joined(&w, victim)) {
                    jobs_run(&w);
                    met = gf_sim_fault_met(w.sim);
                    expect_out(&w, met ? 1u << victim : 0, GF_AGAIN, what);
                    for (uint32_t rank = 0; rank < w.world; rank++) {
                        if (w.ranks[rank].status != GF_OK) continue;
                        if (scale == 0.0f) scale = gf_loss_scale(w.ranks[rank].gf);
                        assert_true(gf_loss_scale(w.ranks[rank].gf) == scale);
                    }
                    deaths += met ? 1 : 0;
                }
                world_close(&w);
            }
        }
    }
    print_message("%u deaths\n", deaths);
    assert_true(deaths > 100);
}

/* ---- the two sides of a cut ---- */

static void cut(struct world *w, uint32_t rank)
{
    if (!due(w, rank)) return;
    for (uint32_t a = 0; a < w->world; a++)
        for (uint32_t b = a + 1; b < w->world; b++)
            if (((hit >> a) & 1u) != ((hit >> b) & 1u)) gf_sim_partition(w->sim, a, b, true);
}

TEST(one_side_of_a_cut_goes_on)
{
    static const struct cut_case { uint32_t world, side, out; } cases[] = {
        {2, 0x2, 0x2}, {3, 0x4, 0x4}, {3, 0x1, 0x1}, {4, 0xc, 0xc}, {4, 0x5, 0xa}, {5, 0x18, 0x18}, {5, 0x7, 0x18},
        {5, 0x3, 0x3}, {6, 0x38, 0x38}, {6, 0x7, 0x38}, {7, 0x70, 0x70}, {7, 0x0f, 0x70}};
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct world_setup setup = setup_of(cases[i].world);
        struct world w;
        char what[64];
        (void)snprintf(what, sizeof what, "world %u, side %#x", cases[i].world, cases[i].side);
        by_hand(cut, cases[i].side);
        world_open(&w, &setup);
        jobs_run(&w);
        on_progress = NULL;
        for (uint32_t rank = 0; rank < w.world; rank++)
            assert_true(jobs[rank].shrink_ns <= setup.config.rendezvous.join_timeout_ns + SECOND);
        for (uint32_t a = 0; a < w.world; a++)
            for (uint32_t b = a + 1; b < w.world; b++) gf_sim_partition(w.sim, a, b, false);
        expect_out(&w, cases[i].out, GF_ERR_QUORUM, what);
        world_close(&w);
    }
}

/* ---- silence ---- */

static void stop_hit(struct world *w, uint32_t rank)
{
    if (due(w, rank))
        for (uint32_t other = 0; other < w->world; other++)
            if ((hit >> other) & 1u) gf_sim_stop(w->sim, other, true);
    for (uint32_t other = 0; other < w->world; other++) { /* once the others are done without it */
        if (!((hit >> other) & 1u) || !done || gf_sim_runs(w->sim, other)) continue;
        if ((gf_steps(w->ranks[rank].gf) == STEPS) && !jobs[rank].shrinking) gf_sim_stop(w->sim, other, false);
    }
}

TEST(who_was_stopped_and_goes_on_finds_its_epoch_closed)
{
    for (uint32_t size = 3; size <= 6; size++) {
        for (uint32_t victim = 0; victim < size; victim++) {
            struct world_setup setup = setup_of(size);
            struct world w;
            char what[64];
            (void)snprintf(what, sizeof what, "world %u, rank %u stops", size, victim);
            by_hand(stop_hit, 1u << victim);
            world_open(&w, &setup);
            jobs_run(&w);
            on_progress = NULL;
            expect_out(&w, 1u << victim, GF_ERR_QUORUM, what);
            world_close(&w);
        }
    }
}

/* Rank 0 is killed and rank 4 stopped; the three others go on, and have all their steps when rank 4 runs on. */
static bool others_are_killed;

static void stop_4(struct world *w, uint32_t rank)
{
    if (due(w, rank)) {
        gf_sim_kill(w->sim, 0);
        gf_sim_stop(w->sim, 4, true);
    }
    if (!done || gf_sim_runs(w->sim, 4) || (rank != 1)) return;
    for (uint32_t other = 1; other < 4; other++)
        if ((gf_steps(w->ranks[other].gf) < STEPS) || jobs[other].shrinking || jobs[other].in_step) return;
    for (uint32_t other = 1; others_are_killed && (other < 4); other++) gf_sim_kill(w->sim, other);
    gf_sim_stop(w->sim, 4, false);
}

TEST(who_was_stopped_makes_no_second_history)
{
    for (uint64_t at = 0; at < STEPS - 1; at++) {
        for (int ends = 0; ends < 2; ends++) {
            struct world_setup setup = setup_of(5);
            struct world w;
            by_hand(stop_4, 0);
            step_at = at;
            others_are_killed = (ends != 0);
            told = false;
            world_open(&w, &setup);
            jobs_run(&w);
            on_progress = NULL;
            assert_int_equal(gf_world(w.ranks[1].gf), 3);
            assert_int_equal(gf_steps(w.ranks[1].gf), STEPS);
            if (ends == 0) assert_int_equal(w.ranks[1].status, GF_OK);
            if (w.ranks[4].status != GF_ERR_QUORUM)
                fail_msg("from step %u, the others %s: rank 4: %s, %u of %u\n%s", (unsigned)at, ends ? "ended" : "live",
                         gf_status_name(w.ranks[4].status), gf_rank(w.ranks[4].gf), gf_world(w.ranks[4].gf),
                         w.ranks[4].log);
            assert_int_equal(jobs[4].shrinks, 0);
            world_close(&w);
        }
    }
}

/* Rank 0 is killed and rank 2 stopped: rank 1 can know of neither side of it, and does not go on alone, told or not. */
static void stop_2(struct world *w, uint32_t rank)
{
    if (due(w, rank)) {
        gf_sim_kill(w->sim, 0);
        gf_sim_stop(w->sim, 2, true);
    }
    if (done && (rank == 1) && (w->ranks[1].status < 0)) gf_sim_stop(w->sim, 2, false);
}

TEST(who_is_silent_counts_even_where_others_have_ended)
{
    for (int tells = 0; tells < 2; tells++) {
        struct world_setup setup = setup_of(3);
        struct world w;
        by_hand(stop_2, 0);
        step_at = 1;
        told = (tells != 0);
        world_open(&w, &setup);
        jobs_run(&w);
        on_progress = NULL;
        assert_int_equal(w.ranks[1].status, GF_ERR_QUORUM);
        assert_int_equal(jobs[1].shrinks, 0);
        world_close(&w);
    }
}

/* It is told that all others have ended. */
TEST(who_polls_goes_on_alone_at_once)
{
    struct world_setup setup = setup_of(3);
    struct world w;
    by_hand(kill_hit, 0x3);
    world_open(&w, &setup);
    jobs_run(&w);
    on_progress = NULL;
    expect_out(&w, 0x3, GF_AGAIN, "ranks 0 and 1 die");
    assert_int_equal(jobs[2].shrinks, 1);
    assert_true(jobs[2].shrink_ns < SECOND / 20);
    world_close(&w);
}

TEST(a_call_at_the_wrong_moment_is_refused)
{
    struct world_setup setup = setup_of(2);
    struct world w;
    world_open(&w, &setup);
    assert_int_equal(gf_shrink(w.ranks[0].gf, NULL, 0), GF_ERR_STATE);
    assert_int_equal(gf_epoch_poll(w.ranks[0].gf), GF_ERR_STATE);
    assert_int_equal(gf_epoch_wait(w.ranks[0].gf), GF_ERR_STATE);
    assert_int_equal(gf_shrink(NULL, NULL, 0), GF_ERR_PARAM);
    gf_abort(w.ranks[0].gf);
    assert_int_equal(gf_step_begin(w.ranks[0].gf), GF_ERR_ABORTED);
    assert_int_equal(gf_shrink(w.ranks[0].gf, NULL, 0), GF_ERR_STATE);
    world_close(&w);
}
