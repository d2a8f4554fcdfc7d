/* Growth and leaving over the simulated network, alone, at once and with deaths on the way: in the end the world has
 * who came and not who left, all hold the same weights and state_extra, and whoever left hears of no failure. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world.h"

#define RANKS_MAX 6u
#define RATE 0.0625f /* a power of two: weights of whole numbers stay exact */
#define SECOND UINT64_C(1000000000)
#define END {.at_us = -1}

static const struct gf_sim_setup network = {.seed = 1, .latency_ns = 5000, .jitter_ns = 20000, .bytes_per_ns = 1.0,
                                            .message_ns = 100, .detect_ns = 1000000, .bind_receives = true};
static const struct gf_tensor tensors[] = {{.name = "a", .elem_count = 301}, {.name = "b", .elem_count = 2001}};

struct happening { int32_t at_us; uint32_t rank; enum { KILL, START, START_NEW, LEAVE } what; };
enum job_state { IDLE, OPENS, STEPS, CHANGES, GONE };
struct job {
    enum job_state state;
    uint32_t tensor, failures;
    bool wants_to_leave, leaves;
    struct gf_state_extra extra;
    uint64_t own[3]; /* what an appliance keeps for itself: a sum over all steps, which no new member can know */
};

static struct job jobs[RANKS_MAX];
static struct happening script[6];
static uint32_t script_next;
static uint64_t goal, begin_ns;

static bool script_done(void) { return (script_next == LENGTH(script)) || (script[script_next].at_us < 0); }

/* What is started next has the member id of this process, and knows nothing of it. */
static void forget(struct world_rank *rank)
{
    assert_int_equal(gf_close(rank->gf), GF_OK);
    free(rank->memory);
    rank->gf = NULL;
    rank->memory = NULL;
}

static void script_progress(struct world *w)
{
    for (; !script_done(); script_next++) {
        const struct happening *now = &script[script_next];
        if (gf_sim_now_ns(w->sim) - begin_ns < (uint64_t)now->at_us * 1000) return;
        if (now->what == KILL) {
            gf_sim_kill(w->sim, now->rank);
        } else if (now->what == LEAVE) {
            jobs[now->rank].wants_to_leave = true;
        } else {
            jobs[now->rank] = (struct job){.state = OPENS, .extra = jobs[now->rank].extra};
            if (now->what == START_NEW) forget(&w->ranks[now->rank]);
            world_restart(w, now->rank);
        }
    }
}

static gf_status failed(struct world *w, uint32_t rank, gf_status status)
{
    if ((status != GF_ERR_PEER) && (status != GF_ERR_LINK) && (status != GF_ERR_TIMEOUT)) return status;
    jobs[rank].failures++;
    jobs[rank].state = CHANGES;
    return (gf_epoch_begin(w->ranks[rank].gf, NULL, 0) < 0) ? status : GF_AGAIN;
}

/* Nobody ends while somebody is on the way in or out. */
static bool others_are_done(struct world *w)
{
    bool done = script_done();
    for (uint32_t rank = 0; rank < w->world; rank++) {
        const struct job *job = &jobs[rank];
        if (!gf_sim_runs(w->sim, rank) || (w->ranks[rank].status < 0) || (job->state == GONE)) continue;
        done = done && (job->state != OPENS) && !job->wants_to_leave && !job->leaves;
    }
    return done;
}

static gf_status idle(struct world *w, uint32_t rank)
{
    gf_context *gf = w->ranks[rank].gf;
    gf_status status;
    if (!others_are_done(w) && (gf_steps(gf) + 2 > goal)) goal = gf_steps(gf) + 2;
    if (gf_steps(gf) >= goal) {
        bool all = true;
        for (uint32_t other = 0; other < w->world; other++)
            all = all && (!gf_sim_runs(w->sim, other) || (w->ranks[other].status < 0) || (jobs[other].state == GONE) ||
                          ((jobs[other].state == IDLE) && (gf_steps(w->ranks[other].gf) == goal)));
        if (all) return GF_OK;
        status = gf_heartbeat(gf);
        return (status < 0) ? failed(w, rank, status) : GF_AGAIN;
    }
    if ((status = gf_step_begin(gf)) < 0) return failed(w, rank, status);
    jobs[rank].state = STEPS;
    jobs[rank].tensor = 0;
    return GF_AGAIN;
}

static gf_status step(struct world *w, uint32_t rank)
{
    struct job *job = &jobs[rank];
    gf_context *gf = w->ranks[rank].gf;
    gf_status status;
    if (job->wants_to_leave) {
        assert_int_equal(gf_leave(gf), GF_OK);
        job->wants_to_leave = false;
        job->leaves = true;
    }
    if (job->tensor < LENGTH(tensors)) {
        world_fill(w, rank, job->tensor, (void *)(uintptr_t)gf_gradient(gf, job->tensor), NULL);
        status = gf_tensor_ready(gf, job->tensor++, 0);
        return (status < 0) ? failed(w, rank, status) : GF_AGAIN;
    }
    if ((status = gf_step_poll(gf)) == GF_AGAIN) return GF_AGAIN;
    if (status == GF_OK) status = gf_update(gf, RATE);
    if (status < 0) return failed(w, rank, status);
    for (uint32_t i = 0; i < LENGTH(job->own); i++) job->own[i] += (i + 1) * gf_steps(gf) * (1 + gf_world(gf));
    job->state = (gf_epoch_due(gf) > 0) ? CHANGES : IDLE;
    if (job->state == IDLE) return GF_AGAIN;
    return ((status = gf_epoch_begin(gf, NULL, 0)) < 0) ? status : GF_AGAIN;
}

static gf_status gone(struct world *w, uint32_t rank)
{
    gf_context *gf = w->ranks[rank].gf;
    jobs[rank].state = GONE;
    assert_int_equal(gf_error_last(gf)->code, GF_OK);
    assert_int_equal(gf_step_begin(gf), GF_ERR_STATE);
    assert_int_equal(gf_epoch_begin(gf, NULL, 0), GF_ERR_STATE);
    w->ranks[rank].gf = NULL;
    return gf_close(gf);
}

static gf_status turn(struct world *w, uint32_t rank, void *arg)
{
    struct job *job = &jobs[rank];
    gf_status status = GF_AGAIN;
    (void)arg;
    script_progress(w);
    if (!gf_sim_runs(w->sim, rank)) return GF_AGAIN;
    if (job->state == STEPS) return step(w, rank);
    if (job->state == IDLE) return idle(w, rank);
    if (job->state == CHANGES) world_ended_tell(w, rank); /* as gf-run does, also of what it has not started */
    status = (job->state == OPENS) ? gf_open_poll(w->ranks[rank].gf) : gf_epoch_poll(w->ranks[rank].gf);
    if (status != GF_OK) return status;
    job->state = IDLE;
    return gf_left(w->ranks[rank].gf) ? gone(w, rank) : GF_AGAIN;
}

static void vary(uint32_t rank, struct gf_config *config, const struct gf_tensor **t, uint32_t *tensor_count)
{
    struct job *job = &jobs[rank];
    (void)t;
    (void)tensor_count;
    job->extra = (struct gf_state_extra){"own", job->own, sizeof job->own};
    config->state_extra = &job->extra;
    config->state_extra_count = 1;
}

static void play(struct world *w, uint32_t first, uint32_t most, const struct happening *happenings)
{
    struct world_setup setup = {.world = first, .tensors = tensors, .tensor_count = LENGTH(tensors), .sim = network};
    setup.config.job.world_max = most;
    setup.config.optimizer.kind = GF_OPTIMIZER_SGD;
    setup.config.optimizer.momentum = 0.5f;
    setup.config.rendezvous.join_timeout_ns = 8 * SECOND;
    setup.config.exchange.timeout_ns = SECOND;
    setup.config.exchange.slice_bytes = 4096;
    setup.vary = vary;
    memset(jobs, 0, sizeof jobs);
    memcpy(script, happenings, sizeof script);
    script_next = 0;
    goal = 6;
    world_open(w, &setup);
    begin_ns = gf_sim_now_ns(w->sim);
    world_run(w, turn, NULL);
}

/* `members` end as one world with the same weights, after `failures` at most on each. */
static void expect_world(struct world *w, uint32_t members, uint32_t failures, const char *what)
{
    uint32_t count = (uint32_t)__builtin_popcount(members), seen = 0, first = (uint32_t)__builtin_ctz(members);
    for (uint32_t id = 0; id < w->world; id++) {
        gf_context *gf = w->ranks[id].gf;
        if (((members >> id) & 1u) == 0) continue;
        if ((w->ranks[id].status != GF_OK) || (gf_world(gf) != count) || (gf_steps(gf) != goal) ||
            (jobs[id].failures > failures) || (gf_first_rank(gf) != id))
            fail_msg("%s: member %u: %s, rank %u of %u after step %u, %u failures; expected %u at %u\n%s", what, id,
                     gf_status_name(w->ranks[id].status), gf_rank(gf), gf_world(gf), (unsigned)gf_steps(gf),
                     jobs[id].failures, count, (unsigned)goal, w->ranks[id].log);
        seen |= 1u << gf_rank(gf);
        assert_memory_equal(jobs[id].own, jobs[first].own, sizeof jobs[id].own);
        assert_true(jobs[id].own[0] > 0);
        for (uint32_t tensor = 0; tensor < LENGTH(tensors); tensor++)
            assert_memory_equal((void *)(uintptr_t)gf_weight(gf, tensor),
                                (void *)(uintptr_t)gf_weight(w->ranks[first].gf, tensor),
                                tensors[tensor].elem_count * sizeof(float));
    }
    if (seen != (1u << count) - 1) fail_msg("%s: ranks %#x of %u", what, seen, count);
}

static void expect_left(struct world *w, uint32_t id, const char *what)
{
    if ((w->ranks[id].status != GF_OK) || (jobs[id].state != GONE))
        fail_msg("%s: member %u has not left: %s\n%s", what, id, gf_status_name(w->ranks[id].status), w->ranks[id].log);
}

/* ---- growth ---- */

TEST(a_job_grows_by_one_and_by_two)
{
    for (uint32_t first = 1; first <= 4; first++) {
        for (int32_t at = 300; at < 4000; at += 613) {
            const struct happening one[LENGTH(script)] = {{at, first, START}, END};
            const struct happening two[LENGTH(script)] = {{at, first + 1, START}, {at, first, START}, END};
            struct world w;
            play(&w, first, first + 2, one);
            expect_world(&w, (2u << first) - 1, 0, "by one");
            assert_true(gf_rejoined(w.ranks[first].gf));
            world_close(&w);
            play(&w, first, first + 2, two);
            expect_world(&w, (4u << first) - 1, 0, "by two");
            world_close(&w);
        }
    }
}

TEST(a_job_grows_while_a_member_dies)
{
    for (uint32_t victim = 0; victim < 4; victim++) {
        for (int32_t delay = -2000; delay < 4000; delay += 211) {
            const struct happening after[LENGTH(script)] = {{2000, 3, START}, {2000 + delay, victim, KILL}, END};
            const struct happening before[LENGTH(script)] = {{2000 + delay, victim, KILL}, {2000, 3, START}, END};
            struct world w;
            char what[64];
            (void)snprintf(what, sizeof what, "member %u dies %d us after member 3 was started", victim, delay);
            if ((delay < 0) && (victim == 3)) continue;
            play(&w, 3, 4, (delay < 0) ? before : after);
            expect_world(&w, 0xf & ~(1u << victim), 2, what);
            world_close(&w);
        }
    }
}

TEST(a_member_id_is_given_once)
{
    const struct happening again[LENGTH(script)] = {{1000, 2, START}, {4000, 2, LEAVE}, {9000, 3, START}, END};
    struct world w;
    play(&w, 2, 4, again);
    expect_left(&w, 2, "the first of id 2");
    expect_world(&w, 0xb, 0, "with member 3");
    world_close(&w);
}

TEST(a_used_member_id_is_refused_to_a_new_process)
{
    const struct happening list[LENGTH(script)] = {{1000, 2, START}, {4000, 2, KILL}, {9000, 2, START_NEW}, END};
    struct gf_config config = {.job = {.world = 2, .world_max = 3, .rank = 3, .ignore_environment = true}};
    struct gf_footprint need;
    struct world w;
    play(&w, 2, 4, list);
    expect_world(&w, 0x3, 1, "without member 2");
    assert_int_equal(w.ranks[2].status, GF_ERR_STATE);
    assert_non_null(strstr(gf_error_last(w.ranks[2].gf)->text, "member id 2 was used before"));
    world_close(&w);
    assert_int_equal(gf_measure(&config, tensors, LENGTH(tensors), &need), GF_ERR_CONFIG); /* beyond world_max */
}

/* ---- leaving ---- */

TEST(whoever_leaves_is_no_failure)
{
    for (uint32_t size = 2; size <= 4; size++) {
        for (uint32_t leaver = 0; leaver < size; leaver++) {
            for (int32_t at = 300; at < 4000; at += 613) {
                const struct happening list[LENGTH(script)] = {{at, leaver, LEAVE}, END};
                struct world w;
                char what[64];
                (void)snprintf(what, sizeof what, "member %u of %u leaves at %d us", leaver, size, at);
                play(&w, size, size, list);
                expect_left(&w, leaver, what);
                expect_world(&w, ((1u << size) - 1) & ~(1u << leaver), 0, what);
                world_close(&w);
            }
        }
    }
}

TEST(one_leaves_while_another_dies)
{
    for (uint32_t leaver = 0; leaver < 4; leaver++) {
        for (uint32_t victim = 0; victim < 4; victim++) {
            for (int32_t delay = 0; delay < 3000; delay += 157) {
                const struct happening list[LENGTH(script)] = {{1000, leaver, LEAVE},
                                                               {1000 + delay, victim, KILL}, END};
                struct world w;
                char what[64];
                if (leaver == victim) continue;
                (void)snprintf(what, sizeof what, "member %u leaves, %u dies %d us later", leaver, victim, delay);
                play(&w, 4, 4, list);
                expect_left(&w, leaver, what);
                expect_world(&w, 0xf & ~(1u << leaver) & ~(1u << victim), 2, what);
                world_close(&w);
            }
        }
    }
}

TEST(one_leaves_while_another_comes)
{
    for (uint32_t leaver = 0; leaver < 3; leaver++) {
        for (int32_t delay = 0; delay < 2000; delay += 97) {
            const struct happening list[LENGTH(script)] = {{1000, 3, START}, {1000 + delay, leaver, LEAVE}, END};
            struct world w;
            char what[64];
            (void)snprintf(what, sizeof what, "member %u leaves %d us after member 3 was started", leaver, delay);
            play(&w, 3, 4, list);
            expect_left(&w, leaver, what);
            expect_world(&w, 0xf & ~(1u << leaver), 0, what);
            world_close(&w);
        }
    }
}

TEST(the_last_cannot_leave)
{
    const struct happening list[LENGTH(script)] = {{1000, 0, LEAVE}, END};
    struct world w;
    play(&w, 2, 2, list);
    expect_left(&w, 0, "the first");
    assert_int_equal(gf_leave(w.ranks[1].gf), GF_ERR_STATE);
    assert_int_equal(gf_leave(NULL), GF_ERR_PARAM);
    assert_int_equal(gf_epoch_due(w.ranks[1].gf), 0);
    world_close(&w);
}
