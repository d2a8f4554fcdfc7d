/* A death at each moment of gf_broadcast_weights(), before the first step and after some: all that
 * go on hold one rank's values, whole, whatever the program does after the regroup. Ranks begin
 * with values of their own, and call it at different times. */
#include "firmware-tests/cuda/late_gpu.h"
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/elastic.h"
#include "lib/context.h"

#define RANKS 4u
#define LARGE 1031u /* words of a region that travels from where it lies, and has a rest */
#define US UINT64_C(1000)
#define LATER 3u /* after so many steps a program broadcasts once more */
#define NOBODY RANKS
#define ORDERS 4u

enum program {
    ASKS,    /* gf_weights_common(), before it broadcasts */
    REPEATS, /* where gf_steps() is 0 after a regroup */
    GOES_ON, /* never broadcasts again */
    TWICE,   /* likewise, and has broadcast before */
    AT_STEP, /* broadcasts at step LATER alone; all began with the same values */
    PROGRAMS
};

static struct job {
    struct gf_state_extra extra[2];
    uint16_t large[LARGE * 2u + 1u];
    uint16_t small;
    struct gf_weights_broadcast broadcast;
    bool calls;       /* gf_broadcast_weights() is under way */
    uint32_t called;  /* and was so often, in this process */
    uint32_t changes; /* regroups before the last call */
} jobs[RANKS];

static enum program program;
static uint64_t began_ns; /* all may call it; 0: not yet */
static uint32_t lag_order;
static struct {
    uint32_t rank;
    uint64_t after_us;
} deaths[2];
static uint32_t restarted; /* who is started again after the deaths; NOBODY */
static uint64_t ended_jobs, given, begun_anew;

static void vary(uint32_t rank, struct gf_config *config, const struct gf_tensor **t,
                 uint32_t *tensor_count)
{
    struct job *job = &jobs[rank];
    job->extra[0] = (struct gf_state_extra){"large", job->large, sizeof job->large};
    job->extra[1] = (struct gf_state_extra){"small", &job->small, sizeof job->small};
    config->state_extra = job->extra;
    config->state_extra_count = 2;
}

static float *weights(const gf_context *gf)
{
    return (float *)(uintptr_t)gf->optimizer.weight;
}

static void draw(gf_context *gf, struct job *job, uint16_t value)
{
    for (uint64_t i = 0; i < gf->pool.elem_count; i++) weights(gf)[i] = (float)value;
    for (uint32_t i = 0; i < LENGTH(job->large); i++) job->large[i] = value;
    job->small = value;
}

/* They are one rank's, and the 16-bit copies are theirs. */
static void expect_whole(gf_context *gf, const struct job *job)
{
    const uint16_t *half = (const uint16_t *)(uintptr_t)gf->optimizer.half;
    const float value = (float)job->small;
    for (uint32_t i = 0; i < LENGTH(job->large); i++) assert_int_equal(job->large[i], job->small);
    for (uint64_t i = 0; i < gf->pool.elem_count; i++) {
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if ((weights(gf)[i] != value) || (half[i] != bits >> 16))
            fail_msg("weight %u is %g (half %#x), beside %g", (unsigned)i, (double)weights(gf)[i],
                     half[i], (double)value);
    }
}

static bool wants_to_call(struct world *w, uint32_t rank)
{
    gf_context *gf = w->ranks[rank].gf;
    struct job *job = &jobs[rank];
    switch (program) {
    case ASKS: return !gf_weights_common(gf);
    case REPEATS:
        return (gf_steps(gf) == 0) && (!job->called || (job->changes != gf->change.count));
    case TWICE: return (gf_steps(gf) == 0) && (job->called < 2) && !gf_rejoined(gf);
    case GOES_ON: return (gf_steps(gf) == 0) && !job->called && !gf_rejoined(gf);
    default: return (gf_steps(gf) == LATER) && !job->called && !gf_rejoined(gf);
    }
}

static bool all_are_there(const struct world *w)
{
    for (uint32_t rank = 0; rank < w->world; rank++)
        if (((program == AT_STEP) && (gf_steps(w->ranks[rank].gf) < LATER)) ||
            ((program == TWICE) && ((jobs[rank].called == 0) || jobs[rank].calls)))
            return false;
    return true;
}

/* Ranks call it one after the other, in this order, so that some have not yet as others die. */
static bool is_late(const struct world *w, uint32_t rank)
{
    const uint64_t lag_us[ORDERS] = {0, rank * 40u, (RANKS - 1u - rank) * 40u, rank * 700u};
    return gf_sim_now_ns(w->sim) < began_ns + lag_us[lag_order] * US;
}

static gf_status before(struct world *w, uint32_t rank)
{
    gf_context *gf = w->ranks[rank].gf;
    struct job *job = &jobs[rank];
    gf_status status;
    if (!job->calls) {
        if (!wants_to_call(w, rank)) {
            if ((gf_steps(gf) == 0) && gf_weights_common(gf)) expect_whole(gf, job);
            return GF_OK;
        }
        if ((began_ns == 0) && all_are_there(w)) began_ns = gf_sim_now_ns(w->sim);
        bool first = (program == TWICE) && (job->called == 0);
        /* what it answers is told by the next call, too */
        if (!first && ((began_ns == 0) || is_late(w, rank))) {
            (void)gf_heartbeat(gf);
            return GF_AGAIN;
        }
        /* also where it has met a death, whose answer was ignored */
        if (gf_rank(gf) == 0)
            draw(gf, job, (uint16_t)(64u + 16u * job->called + gf_first_rank(gf)));
        job->called++;
        job->changes = gf->change.count;
        status = gf_weights_broadcast_begin(gf, 0, &job->broadcast);
        job->calls = (status >= 0);
        return (status < 0) ? status : GF_AGAIN;
    }
    if ((status = gf_weights_broadcast_poll(gf, &job->broadcast)) == GF_AGAIN) return GF_AGAIN;
    job->calls = false;
    return (status < 0) ? status : GF_AGAIN;
}

static void die(struct world *w, uint32_t rank)
{
    (void)rank;
    for (uint32_t i = 0; (began_ns != 0) && (i < LENGTH(deaths)); i++) {
        if ((deaths[i].rank == NOBODY) ||
            (gf_sim_now_ns(w->sim) < began_ns + deaths[i].after_us * US))
            continue;
        gf_sim_kill(w->sim, deaths[i].rank);
        deaths[i].rank = NOBODY;
    }
}

static void start(uint32_t rank)
{
    jobs[rank].calls = false;
    jobs[rank].called = 0;
    jobs[rank].small = (uint16_t)(200u + rank);
}

static struct world_setup setup_make(void)
{
    struct world_setup setup = elastic_setup(RANKS);
    setup.config.optimizer.half_weights = GF_TYPE_BF16;
    setup.vary = vary;
    return setup;
}

/* All survivors go on alike; or, where nobody has all values and the program does not ask, all end
 * with the same error. */
static void expect(struct world *w, uint32_t members, const char *what)
{
    uint32_t first = (uint32_t)__builtin_ctz(members);
    static const gf_status error_of[PROGRAMS] = {
        [GOES_ON] = GF_ERR_STATE, [TWICE] = GF_ERR_STATE, [AT_STEP] = GF_ERR_DATA};
    const gf_status ends = error_of[program];
    if ((ends != GF_OK) && (w->ranks[first].status == ends)) {
        for (uint32_t id = 0; id < RANKS; id++)
            if (((members >> id) & 1u) != 0) assert_int_equal(w->ranks[id].status, ends);
        if (ends == GF_ERR_STATE) world_expect_log(w, first, "gf_broadcast_weights() or");
        ended_jobs++;
        return;
    }
    elastic_expect(w, members, what);
    for (uint32_t id = first; id < RANKS; id++) {
        if (((members >> id) & 1u) == 0) continue;
        if (jobs[id].small != jobs[first].small)
            fail_msg("%s: members %u and %u differ", what, first, id);
        assert_memory_equal(jobs[id].large, jobs[first].large, sizeof jobs[id].large);
    }
    if (jobs[first].small == 64) given++;
    if (jobs[first].small > 64) begun_anew++;
}

static void play(uint32_t members, const char *what)
{
    const struct elastic_event comes[] = {{4000, restarted, START}, END};
    struct world_setup setup = setup_make();
    memset(jobs, 0, sizeof jobs);
    began_ns = 0;
    WORLD_OPEN(w, &setup);
    for (uint32_t id = 0; id < RANKS; id++)
        draw(w.ranks[id].gf, &jobs[id], (program == AT_STEP) ? 7 : (uint16_t)(id + 1));
    elastic.hooks.before = before;
    elastic.hooks.turn = die;
    elastic.hooks.start = start;
    elastic_run(&w, (restarted == NOBODY) ? NULL : comes, 0);
    expect(&w, members, what);
}

TEST(a_death_in_the_first_broadcast_leaves_one_ranks_values_on_all)
{
    SIM_ONLY;
    ended_jobs = given = begun_anew = 0;
    restarted = NOBODY;
    for (uint32_t row = 0; row < PROGRAMS * ORDERS * RANKS; row++) {
        for (uint64_t after_us = 0; after_us < 400; after_us += 13) {
            char what[96];
            program = (enum program)(row % PROGRAMS);
            lag_order = row / PROGRAMS % ORDERS;
            deaths[0].rank = row / PROGRAMS / ORDERS;
            deaths[0].after_us = after_us;
            deaths[1].rank = NOBODY;
            (void)snprintf(what, sizeof what, "program %u, order %u: rank %u dies after %u us",
                           (unsigned)program, lag_order, deaths[0].rank, (unsigned)after_us);
            play(0xf & ~(1u << deaths[0].rank), what);
        }
    }
    /* each way out of it was met */
    assert_true((given > 0) && (begun_anew > 0) && (ended_jobs > 0));
}

TEST(so_do_two_deaths_of_which_one_is_in_the_regroup)
{
    SIM_ONLY;
    restarted = NOBODY;
    for (uint32_t row = 0; row < 3u * RANKS * RANKS; row++) {
        for (uint64_t later_us = 0; later_us < 3000; later_us += 211) {
            char what[96];
            program = (enum program)(row % 3u);
            deaths[0].rank = row / 3u / RANKS;
            deaths[1].rank = row / 3u % RANKS;
            if (deaths[0].rank == deaths[1].rank) continue;
            lag_order = (uint32_t)(later_us % 3u);
            deaths[0].after_us = 20u + later_us % 120u;
            deaths[1].after_us = deaths[0].after_us + later_us;
            (void)snprintf(what, sizeof what, "program %u: rank %u dies after %u us, %u after %u",
                           (unsigned)program, deaths[0].rank, (unsigned)deaths[0].after_us,
                           deaths[1].rank, (unsigned)deaths[1].after_us);
            play(0xf & ~(1u << deaths[0].rank) & ~(1u << deaths[1].rank), what);
        }
    }
}

/* Only the root has all values: it dies as it gives them in the regroup. */
TEST(so_does_that_of_the_root_while_the_regroup_gives_its_values)
{
    SIM_ONLY;
    restarted = NOBODY;
    for (uint64_t after_us = 2000; after_us < 4000; after_us += 9) {
        char what[64];
        program = (after_us % 2 == 0) ? ASKS : REPEATS;
        lag_order = 3; /* the others are not in it yet */
        deaths[0].rank = 1;
        deaths[0].after_us = 1;
        deaths[1].rank = 0;
        deaths[1].after_us = after_us;
        (void)snprintf(what, sizeof what, "the root dies after %u us", (unsigned)after_us);
        play(0xc, what);
    }
}

TEST(who_is_started_again_before_the_first_step_has_them_too)
{
    SIM_ONLY;
    for (uint32_t row = 0; row < 2u * RANKS; row++) {
        for (uint64_t after_us = 0; after_us < 300; after_us += 29) {
            char what[96];
            program = (row % 2u == 0) ? ASKS : REPEATS;
            restarted = deaths[0].rank = row / 2u;
            lag_order = (uint32_t)(after_us % 3u);
            deaths[0].after_us = after_us;
            deaths[1].rank = NOBODY;
            (void)snprintf(what, sizeof what, "program %u: rank %u dies after %u us, and comes in",
                           (unsigned)program, restarted, (unsigned)after_us);
            play(0xf, what);
        }
    }
}

/* ---- the root alone has its values, and has met the death ---- */

static gf_status updates(struct world *w, uint32_t rank, void *arg)
{
    (void)arg;
    return gf_update(w->ranks[rank].gf, RATE);
}

/* Until it has met the death that has happened. */
static gf_status hears(struct world *w, uint32_t rank, void *arg)
{
    (void)arg;
    if (!gf_sim_runs(w->sim, rank)) return GF_AGAIN;
    return (gf_heartbeat(w->ranks[rank].gf) < 0) ? GF_OK : GF_AGAIN;
}

/* Until rank 1 has; the root is not told, and meets it as it posts. */
static gf_status one_hears(struct world *w, uint32_t rank, void *arg)
{
    return ((rank == 0) && (gf_error_last(w->ranks[1].gf)->code < 0)) ? GF_OK
           : (rank == 1)                                              ? hears(w, rank, arg)
                                                                      : GF_AGAIN;
}

static gf_status root_polls(struct world *w, uint32_t rank, void *arg)
{
    (void)arg;
    if (!gf_sim_runs(w->sim, rank)) return GF_AGAIN;
    if (rank != 0) return GF_OK;
    gf_status status = gf_weights_broadcast_poll(w->ranks[0].gf, &jobs[0].broadcast);
    return (status < 0) ? GF_OK : GF_AGAIN;
}

enum met { BEFORE_ITS_CALL, BEFORE_ITS_UPDATE, BEFORE_ALL_UPDATES, IN_ITS_POST };

static void expect_all_have(struct world *w, uint16_t value)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if ((w->ranks[rank].gf == NULL) || !gf_sim_runs(w->sim, rank)) continue;
        assert_int_equal(w->ranks[rank].status, GF_OK);
        assert_true(gf_weights_common(w->ranks[rank].gf));
        world_drain(w, rank);
        assert_int_equal(jobs[rank].small, value);
        expect_whole(w->ranks[rank].gf, &jobs[rank]);
    }
}

/* Three ranks; the library's optimizer keeps 16-bit copies, and the program a state of its own. */
static struct world_setup roots_setup(void)
{
    struct world_setup setup = elastic_setup(3);
    setup.config.optimizer.half_weights = GF_TYPE_BF16;
    setup.vary = vary;
    memset(jobs, 0, sizeof jobs);
    return setup;
}

static void root_gives(const struct gf_gpu_driver *gpu, bool has_extra, enum met met)
{
    const struct world_step step = {.order = WORLD_FORWARD};
    struct world_setup setup = roots_setup();
    if (!has_extra) setup.vary = NULL;
    setup.gpu = gpu;
    if (gpu != NULL) strcpy(setup.config.device.driver, gpu->name);
    WORLD_OPEN(w, &setup);
    gf_context *root = w.ranks[0].gf;
    gf_context *other = w.ranks[1].gf;
    world_step_ok(&w, &step);
    const bool are_updated = (met == BEFORE_ITS_CALL) || (met == IN_ITS_POST);
    if (are_updated) world_run(&w, updates, NULL);
    for (uint32_t rank = 0; rank < 3; rank++) world_drain(&w, rank);
    gf_sim_kill(w.sim, 2);
    if (met == BEFORE_ITS_UPDATE) assert_int_equal(gf_update(other, RATE), GF_OK);
    world_run(&w, (met == IN_ITS_POST) ? one_hears : hears, NULL);
    if (!are_updated) assert_int_equal(gf_update(root, RATE), GF_ERR_PEER);
    if (met == BEFORE_ALL_UPDATES) assert_int_equal(gf_update(other, RATE), GF_ERR_PEER);
    draw(root, &jobs[0], 9);
    gf_status status = gf_weights_broadcast_begin(root, 0, &jobs[0].broadcast);
    assert_int_equal(status, (met == IN_ITS_POST) ? GF_AGAIN : GF_ERR_PEER);
    if (status == GF_AGAIN) world_run(&w, root_polls, NULL);
    assert_int_equal(gf_broadcast_weights(other, 0), GF_ERR_PEER);
    world_run(&w, world_regroup_progress, NULL);
    if (!has_extra) jobs[1] = jobs[0];
    expect_all_have(&w, 9);
}

TEST(a_root_that_has_met_a_death_gives_its_values_to_all)
{
    for (uint32_t row = 0; row < 4; row++) {
        for (enum met met = BEFORE_ITS_CALL; met <= IN_ITS_POST; met++) {
            root_gives((row % 2u != 0) ? &late_gpu : NULL, row / 2u != 0, met);
        }
    }
}

TEST(of_two_roots_that_have_met_a_death_the_last_gives_its_values)
{
    SIM_ONLY;
    for (uint32_t updated = 0; updated < 2; updated++) {
        const struct world_step step = {.order = WORLD_FORWARD};
        struct world_setup setup = roots_setup();
        WORLD_OPEN(w, &setup);
        world_step_ok(&w, &step);
        if (updated != 0) world_run(&w, updates, NULL);
        gf_sim_kill(w.sim, 2);
        world_run(&w, hears, NULL);
        for (uint32_t root = 0; root < 2; root++) {
            draw(w.ranks[root].gf, &jobs[root], (uint16_t)(9 + root));
            for (uint32_t rank = 0; rank < 2; rank++)
                assert_int_equal(gf_broadcast_weights(w.ranks[rank].gf, root), GF_ERR_PEER);
        }
        world_run(&w, world_regroup_progress, NULL);
        expect_all_have(&w, 10);
    }
}

/* ---- a part of another's values lies on the root ---- */

static gf_status tears(struct world *w, uint32_t rank, void *arg)
{
    if (rank == 2) return hears(w, rank, arg);
    if (!gf_sim_runs(w->sim, rank)) return GF_OK;
    gf_context *gf = w->ranks[rank].gf;
    struct job *job = &jobs[rank];
    gf_status status = GF_OK;
    if (!job->calls) status = gf_weights_broadcast_begin(gf, 1, &job->broadcast);
    job->calls = true;
    if (status >= 0) status = gf_weights_broadcast_poll(gf, &job->broadcast);
    if ((rank == 0) && (weights(gf)[0] == 77)) gf_sim_kill(w->sim, 1);
    return (status < 0) ? GF_OK : status;
}

TEST(a_root_that_has_a_part_of_anothers_values_gives_them_to_nobody)
{
    SIM_ONLY;
    const struct world_step step = {.order = WORLD_FORWARD};
    struct world_setup setup = roots_setup();
    WORLD_OPEN(w, &setup);
    world_step_ok(&w, &step);
    world_run(&w, updates, NULL);
    for (uint32_t rank = 0; rank < 3; rank++) {
        draw(w.ranks[rank].gf, &jobs[rank], (rank == 1) ? 77 : 5);
        assert_int_equal(gf_weights_written(w.ranks[rank].gf), GF_OK);
    }
    world_run(&w, tears, NULL);
    assert_int_equal(gf_error_last(w.ranks[0].gf)->code, GF_ERR_PEER);
    assert_int_equal(weights(w.ranks[0].gf)[0], 77);
    assert_int_equal(jobs[0].small, 5);
    assert_int_equal(gf_broadcast_weights(w.ranks[0].gf, 0), GF_ERR_PEER);
    world_run(&w, world_regroup_progress, NULL);
    expect_all_have(&w, 5);
}
