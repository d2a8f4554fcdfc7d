/* Growth and leaving over the simulated network, at once and with deaths on the way (alone: the
 * soak): in the end the world has who came and not who left, all hold the same weights and
 * state_extra, and whoever left hears of no failure. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/elastic.h"
#include "lib/context.h"
#include "lib/membership/members_state.h"

static struct job {
    struct gf_state_extra extra;
    /* what an appliance keeps for itself: a sum over all steps, which no new member can know */
    uint64_t own[3];
} jobs[ELASTIC_RANKS_MAX];

static void job_start(uint32_t rank)
{
    memset(jobs[rank].own, 0, sizeof jobs[rank].own);
}

static void step_count(struct world *w, uint32_t rank)
{
    const gf_context *gf = w->ranks[rank].gf;
    for (uint32_t i = 0; i < LENGTH(jobs[rank].own); i++)
        jobs[rank].own[i] += (i + 1) * gf_steps(gf) * (1 + gf_world(gf));
}

static void vary(uint32_t rank, struct gf_config *config, const struct gf_tensor **t,
                 uint32_t *tensor_count)
{
    struct job *job = &jobs[rank];
    job->extra = (struct gf_state_extra){"own", job->own, sizeof job->own};
    config->state_extra = &job->extra;
    config->state_extra_count = 1;
}

static void play(struct world *w, uint32_t first, uint32_t most, const struct elastic_event *script)
{
    struct world_setup setup = elastic_setup(first);
    setup.config.job.world_max = most;
    setup.config.optimizer.momentum = 0.5f;
    setup.config.exchange.user_bytes = 64;
    setup.vary = vary;
    memset(jobs, 0, sizeof jobs);
    elastic.hooks.start = job_start;
    elastic.hooks.applied = step_count;
    elastic_play(w, &setup, script);
}

/* `members` are one world in the end, after `failures` at most on each. */
static void expect_world(struct world *w, uint32_t members, uint32_t failures, const char *what)
{
    elastic_expect(w, members, what);
    for (uint32_t id = 0; id < w->world; id++) {
        if (((members >> id) & 1u) == 0) continue;
        if (elastic.ranks[id].failures > failures)
            fail_msg("%s: member %u: %u failures\n%s", what, id, elastic.ranks[id].failures,
                     w->ranks[id].log);
        assert_memory_equal(jobs[id].own, jobs[__builtin_ctz(members)].own, sizeof jobs[id].own);
        assert_true(jobs[id].own[0] > 0);
    }
}

static void expect_left(struct world *w, uint32_t id, const char *what)
{
    if ((w->ranks[id].status != GF_OK) || (elastic.ranks[id].state != GONE))
        fail_msg("%s: member %u has not left: %s\n%s", what, id,
                 gf_status_name(w->ranks[id].status), w->ranks[id].log);
}

/* ---- growth ---- */

TEST(a_job_grows_while_a_member_dies)
{
    for (uint32_t victim = 0; victim < 4; victim++) {
        for (int32_t delay = -2000; delay < 4000; delay += 211) {
            const struct elastic_event after[] = {
                {2000, 3, START}, {2000 + delay, victim, KILL}, END};
            const struct elastic_event before[] = {
                {2000 + delay, victim, KILL}, {2000, 3, START}, END};
            char what[64];
            (void)snprintf(what, sizeof what, "member %u dies %d us after member 3 was started",
                           victim, delay);
            if (((delay < 0) && (victim == 3)) || !real_links_takes(4)) continue;
            WORLD(w);
            play(&w, 3, 4, (delay < 0) ? before : after);
            expect_world(&w, 0xf & ~(1u << victim), 2, what);
        }
    }
}

TEST(a_member_id_is_given_once)
{
    const struct elastic_event again[] = {
        {1000, 2, START}, {4000, 2, LEAVE}, {9000, 3, START}, END};
    WORLD(w);
    play(&w, 2, 4, again);
    expect_left(&w, 2, "the first of id 2");
    expect_world(&w, 0xb, 0, "with member 3");
}

/* What it received is whole: no other member is needed for it any more. */
TEST(who_came_in_goes_on_without_those_it_came_to)
{
    const struct elastic_event list[] = {{1000, 2, START}, {6000, 0, LEAVE}, {9000, 1, LEAVE}, END};
    WORLD(w);
    play(&w, 2, 3, list);
    for (uint32_t id = 0; id < 2; id++) expect_left(&w, id, "before it");
    expect_world(&w, 0x4, 0, "member 2 alone");
}

static bool was_given; /* a commit took the first process of member id 2 in */

static void given_note(struct world *w, uint32_t rank)
{
    const gf_context *gf = w->ranks[rank].gf;
    if ((elastic.script_next < 3) && (rank < 2) && (gf->members != NULL))
        was_given = was_given || gf_view_has(gf->members->view.epoch.bits, 2);
}

/* Whether or not all joined the epoch of that commit. */
TEST(a_member_id_that_was_given_is_refused_to_another_process)
{
    SIM_ONLY;
    struct gf_config config = {
        .job = {.world = 2, .world_max = 3, .rank = 3, .ignore_environment = true}};
    struct gf_footprint need;
    uint32_t given = 0;
    uint32_t tries = 0;
    for (int32_t delay = 100; delay < 4000; delay += 97, tries++) {
        const struct elastic_event list[] = {
            {1000, 2, START}, {1000 + delay, 2, KILL}, {9000, 2, START_NEW}, END};
        char what[64];
        (void)snprintf(what, sizeof what, "member 2 dies %d us after its start", delay);
        was_given = false;
        elastic.hooks.turn = given_note;
        WORLD(w);
        play(&w, 2, 4, list);
        expect_world(&w, was_given ? 0x3 : 0x7, 1, what);
        given += was_given ? 1 : 0;
        if (!was_given) continue;
        assert_int_equal(w.ranks[2].status, GF_ERR_STATE);
        assert_non_null(strstr(gf_error_last(w.ranks[2].gf)->text, "member id 2 was used before"));
    }
    assert_true((given > 0) && (given < tries));
    /* beyond world_max */
    assert_int_equal(gf_measure(&config, elastic_tensors, ELASTIC_TENSORS, &need), GF_ERR_CONFIG);
}

static struct {
    uint32_t rank;
    gf_change_state at;
    struct gf_members_progress own;
} late;

static void late_turn(struct world *w, uint32_t rank)
{
    gf_context *gf = w->ranks[rank].gf;
    if ((rank != late.rank) || (gf->change.state != late.at)) return;
    late.own = gf->change.own;
    gf->change.deadline_ns = 0;
}

/* A step that had not ended, weights that were half copied: a deadline changes neither. */
TEST(who_asks_for_an_epoch_again_is_no_further_than_before)
{
    SIM_ONLY;
    const struct {
        struct elastic_event event;
        uint32_t rank;
        gf_change_state at;
    } rows[] = {{{2000, 0, KILL}, 1, GF_CHANGE_JOIN}, {{2000, 3, START}, 3, GF_CHANGE_SYNC}};
    for (size_t i = 0; i < LENGTH(rows); i++) {
        const struct elastic_event script[] = {rows[i].event, END};
        late.rank = rows[i].rank;
        late.at = rows[i].at;
        elastic.hooks.turn = late_turn;
        WORLD(w);
        play(&w, 3, 4, script);
        gf_context *gf = w.ranks[late.rank].gf;
        assert_int_equal(w.ranks[late.rank].status, GF_ERR_TIMEOUT);
        assert_int_equal(gf_regroup_begin(gf, NULL, 0), GF_OK);
        assert_int_equal(gf->change.own.steps, late.own.steps);
        assert_int_equal(gf->change.own.partial, late.own.partial);
    }
}

static uint32_t heartbeats, joiners; /* while members agree */

static gf_status progress_cut(struct gf_link *link)
{
    return GF_ERR_LINK;
}

static void heartbeat_turn(struct world *w, uint32_t rank)
{
    gf_context *gf = w->ranks[rank].gf;
    if ((gf == NULL) || (gf->phase != GF_PHASE_AGREE) || !gf_sim_runs(w->sim, rank)) return;
    const struct gf_link_driver *driver = gf->link->driver;
    struct gf_link_driver cut = *driver; /* a member dies, and an adapter says so */
    cut.progress = progress_cut;
    gf->link->driver = &cut;
    assert_int_equal(gf_heartbeat(gf), GF_OK);
    gf->link->driver = driver;
    heartbeats++;
    if (!gf_rejoined(gf) || (gf_steps(gf) > 0)) return;
    assert_int_equal(gf_gradient(gf, 0), 0); /* its region will move */
    assert_int_equal(gf_exchange_take(gf, 64), 0);
    joiners++;
}

TEST(a_life_sign_on_the_way_ends_nothing)
{
    const struct elastic_event script[] = {{1000, 3, START}, {4000, 0, LEAVE}, END};
    heartbeats = joiners = 0;
    elastic.hooks.turn = heartbeat_turn;
    WORLD(w);
    play(&w, 3, 4, script);
    expect_left(&w, 0, "with life signs");
    expect_world(&w, 0xe, 0, "with life signs");
    assert_true((heartbeats > 10) && (joiners > 0));
}

static void fail_turn(struct world *w, uint32_t rank)
{
    gf_context *gf = w->ranks[rank].gf;
    if ((rank == 2) && (gf->change.state == GF_CHANGE_SYNC))
        (void)gf_fail(gf, GF_ERR_DEVICE, GF_OPERATION_SHRINK, GF_RANK_NONE, GF_TENSOR_NONE,
                      "out of memory");
}

TEST(who_fails_by_itself_on_the_way_is_not_of_the_next_epoch)
{
    const struct elastic_event script[] = {{2000, 3, START}, END};
    elastic.hooks.turn = fail_turn;
    WORLD(w);
    play(&w, 3, 4, script);
    assert_int_equal(w.ranks[2].status, GF_ERR_DEVICE);
    expect_world(&w, 0xb, 1, "without member 2");
}

/* ---- leaving ---- */

static void close_where_one_waits(struct world *w, uint32_t rank)
{
    if ((rank == 0) && (elastic.ranks[0].state == IDLE) &&
        (gf_members_waiting(w->ranks[0].gf->members) > 0))
        assert_int_equal(gf_close_poll(w->ranks[0].gf), GF_OK);
}

TEST(who_waits_at_a_rank_alone_hears_that_the_job_has_ended)
{
    const struct elastic_event comes[] = {{1000, 1, START}, END};
    elastic.hooks.turn = close_where_one_waits;
    elastic.hooks.blind = true;
    WORLD(w);
    play(&w, 1, 2, comes);
    assert_int_equal(w.ranks[1].status, GF_ERR_STATE);
    assert_non_null(strstr(gf_error_last(w.ranks[1].gf)->text, "the job has ended"));
}

TEST(one_leaves_while_another_dies)
{
    for (uint32_t leaver = 0; leaver < 4; leaver++) {
        for (uint32_t victim = 0; victim < 4; victim++) {
            for (int32_t delay = 0; delay < 3000; delay += 157) {
                const struct elastic_event list[] = {
                    {1000, leaver, LEAVE}, {1000 + delay, victim, KILL}, END};
                char what[64];
                if ((leaver == victim) || !real_links_takes(4)) continue;
                (void)snprintf(what, sizeof what, "member %u leaves, %u dies %d us later", leaver,
                               victim, delay);
                WORLD(w);
                play(&w, 4, 4, list);
                expect_left(&w, leaver, what);
                expect_world(&w, 0xf & ~(1u << leaver) & ~(1u << victim), 2, what);
            }
        }
    }
}

TEST(one_leaves_while_another_comes)
{
    for (uint32_t leaver = 0; leaver < 3; leaver++) {
        for (int32_t delay = 0; delay < 2000; delay += 97) {
            const struct elastic_event list[] = {
                {1000, 3, START}, {1000 + delay, leaver, LEAVE}, END};
            char what[64];
            (void)snprintf(what, sizeof what, "member %u leaves %d us after member 3 was started",
                           leaver, delay);
            if (!real_links_takes(3)) continue;
            WORLD(w);
            play(&w, 3, 4, list);
            expect_left(&w, leaver, what);
            expect_world(&w, 0xf & ~(1u << leaver), 0, what);
        }
    }
}

/* The lower half are killed. They are named, and one of the survivors, or two, come later than
 * silent ranks are waited for (1 s; the deadline is 8 s). All of them go on, as nobody has named
 * them. */
TEST(a_survivor_that_is_not_named_is_waited_for)
{
    SIM_ONLY;
    for (uint32_t row = 0; row < 72; row++) {
        uint32_t ranks = 4 + row % 2 * 2;
        uint32_t late = ranks / 2 + row / 2 % 3;
        int32_t by = (int32_t)(row / 6) * 390000;
        const struct elastic_event two[] = {
            {500, 0, KILL}, {500, 1, KILL}, {500, late, STOP}, {500 + by, late, GO_ON}, END};
        const struct elastic_event three[] = {
            {500, 0, KILL},          {500, 1, KILL},
            {500, 2, KILL},          {500, late, STOP},
            {500, late - 1, STOP},   {500 + by / 2, late - 1, GO_ON},
            {500 + by, late, GO_ON}, END};
        struct world_setup setup = elastic_setup(ranks);
        char what[64];
        if ((late >= ranks) || ((ranks == 6) && (late == 3))) continue;
        (void)snprintf(what, sizeof what, "%u ranks, rank %u, %d ms late", ranks, late, by / 1000);
        WORLD(w);
        elastic_play(&w, &setup, (ranks == 4) ? two : three);
        for (uint32_t rank = ranks / 2; rank < ranks; rank++)
            if ((w.ranks[rank].status != GF_OK) || (gf_world(w.ranks[rank].gf) != ranks / 2))
                fail_msg("%s: rank %u: %s: %s", what, rank, gf_status_name(w.ranks[rank].status),
                         w.ranks[rank].log);
    }
}

/* .. until the deadline, and no longer: nobody goes on without it. */
TEST(a_survivor_that_never_comes_ends_the_job)
{
    SIM_ONLY;
    static const struct elastic_event script[] = {
        {500, 0, KILL}, {500, 1, KILL}, {500, 3, STOP}, END};
    struct world_setup setup = elastic_setup(4);
    WORLD(w);
    elastic_play(&w, &setup, script);
    assert_int_equal(w.ranks[2].status, GF_ERR_QUORUM);
}

TEST(the_last_cannot_leave)
{
    const struct elastic_event list[] = {{1000, 0, LEAVE}, END};
    WORLD(w);
    play(&w, 2, 2, list);
    expect_left(&w, 0, "the first");
    assert_int_equal(gf_leave(w.ranks[1].gf), GF_ERR_STATE);
    assert_int_equal(gf_regroup_due(w.ranks[1].gf), 0);
}
