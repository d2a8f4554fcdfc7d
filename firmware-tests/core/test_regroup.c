/* From one generation to the next over the simulated network: deaths, growth and leaving, at once
 * and one after the other (alone: the soak), cuts and silence. In the end the world has who came
 * and not who left, all hold the same weights and state_extra, and whoever left hears of no
 * failure. What befalls the coordinator: test_coordinator.
 * link: wrap gf_node_host_id_set */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/elastic.h"
#include "lib/context.h"
#include "lib/control/control.h"

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

/* ---- broken edges ---- */

/* Of six hosts one loses three others while a fourth dies: nobody else pays for it. */
TEST(a_host_that_loses_three_others_goes_while_a_fourth_dies)
{
    SIM_ONLY;
    for (uint32_t row = 0; row < 18; row++) {
        const uint32_t host = row % 6;
        const uint32_t dies = (host + 4 + row / 6 % 2) % 6; /* one that it still reaches */
        const struct elastic_event list[] = {{(row / 6 == 2) ? 3000000 : 3000, dies, KILL}, END};
        struct world_setup setup = elastic_setup(6);
        char what[64];
        setup.config.exchange.timeout_ns = 4 * SECOND;
        (void)snprintf(what, sizeof what, "host %u loses three, %u dies", host, dies);
        elastic.hooks.work_ns = 2000000;
        WORLD_OPEN(w, &setup);
        for (uint32_t i = 1; i <= 3; i++) gf_sim_partition(w.sim, host, (host + i) % 6, true);
        elastic_run(&w, list, 0);
        elastic_expect(&w, 0x3f & ~(1u << host) & ~(1u << dies), what);
        if ((w.ranks[host].status != GF_ERR_PEER) && (w.ranks[host].status != GF_ERR_LINK))
            fail_msg("%s: it ended with %s\n%s", what, gf_status_name(w.ranks[host].status),
                     w.ranks[host].log);
    }
}

/* A ring of four has no use for the edge of ranks 0 and 2, so nobody knows that it is broken until
 * rank 1 dies, and the ring of the others wants it: one end of it goes, and two ranks go on. */
TEST(an_edge_on_which_nothing_is_under_way_is_found_as_a_generation_wants_it)
{
    SIM_ONLY;
    const struct elastic_event list[] = {{500000, 1, KILL}, END};
    struct world_setup setup = elastic_setup(4);
    setup.config.exchange.algorithm = GF_ALGORITHM_RING;
    setup.config.exchange.timeout_ns = 4 * SECOND;
    elastic.hooks.work_ns = 2000000;
    WORLD_OPEN(w, &setup);
    gf_sim_partition(w.sim, 0, 2, true);
    elastic_run(&w, list, SECOND);
    elastic_expect(&w, 0x9, "without rank 2");
    assert_true((w.ranks[2].status == GF_ERR_PEER) || (w.ranks[2].status == GF_ERR_LINK));
    for (uint32_t rank = 0; rank < 4; rank += 3) {
        const char *died = strstr(w.ranks[rank].log, "rank 1 died");
        const char *cut = strstr(w.ranks[rank].log, "rank 1 (started as rank 2) is to go");
        if ((died == NULL) || (cut == NULL) || (cut < died))
            fail_msg("rank %u: %s", rank, w.ranks[rank].log);
    }
}

/* ---- deaths ---- */

/* Another one dies at each moment behind the first death: while a list is made, in the join, the
 * warm-up, the copying. */
TEST(a_death_in_a_regroup_begins_it_anew)
{
    elastic.on_the_way = 0;
    for (uint32_t first = 0; first < 4; first++) {
        for (uint32_t second = 0; second < 5; second++) {
            for (int32_t delay = 0; (second != first) && (delay < 4000); delay += 97) {
                const struct elastic_event list[] = {
                    {2000, first, KILL}, {2000 + delay, second, KILL}, END};
                struct world_setup setup = elastic_setup(5);
                char what[96];
                if (!real_links_takes(5)) continue;
                setup.config.optimizer.momentum = 0.5f;
                (void)snprintf(what, sizeof what, "rank %u dies, then rank %u after %d us", first,
                               second, delay);
                WORLD_OPEN(w, &setup);
                elastic_run(&w, list, SECOND / 50);
                elastic_expect(&w, 0x1f & ~(1u << first) & ~(1u << second), what);
            }
        }
    }
    print_message("%u deaths in a regroup\n", elastic.on_the_way);
    assert_true((elastic.on_the_way > 100) || (real_links_driver() != NULL));
}

static uint32_t bare;

static gf_status reset_fails(struct gf_link *link, uint32_t generation, uint32_t rank,
                             uint32_t world)
{
    return gf_fault_set(&link->fault, GF_ERR_LINK, GF_RANK_NONE, "socket", 24,
                        "no descriptor in generation %u", generation);
}

static void bare_turn(struct world *w, uint32_t rank)
{
    static struct gf_link_driver driver;
    gf_context *gf = w->ranks[bare].gf;
    if ((gf == NULL) || (gf->link == NULL) || (gf->link->driver->reset == reset_fails)) return;
    driver = *gf->link->driver;
    driver.reset = reset_fails;
    gf->link->driver = &driver;
}

/* Else a caller that regroups after each GF_ERR_LINK would do so for ever. */
TEST(who_cannot_make_its_link_anew_has_failed_by_itself)
{
    SIM_ONLY;
    const struct elastic_event list[] = {{2000, 3, KILL}, END};
    for (bare = 0; bare < 3; bare++) {
        struct world_setup setup = elastic_setup(4);
        elastic.hooks.turn = bare_turn;
        WORLD(w);
        elastic_play(&w, &setup, list);
        assert_int_equal(w.ranks[bare].status, GF_ERR_SYSTEM);
        assert_non_null(strstr(gf_error_last(w.ranks[bare].gf)->text, "no descriptor"));
        assert_int_equal(gf_regroup_begin(w.ranks[bare].gf), GF_ERR_STATE);
        elastic_expect(&w, 0x7 & ~(1u << bare), "without it");
    }
}

static gf_status open_polls(struct world *w, uint32_t rank, void *arg)
{
    gf_context *gf = w->ranks[rank].gf;
    gf_status status = (w->ranks[rank].next++ == 0) ? gf_regroup_begin(gf) : GF_OK;
    return (status < 0) ? status : gf_open_poll(gf);
}

TEST(only_a_generation_that_a_rank_comes_in_by_is_its_opening)
{
    struct world_setup setup = elastic_setup(3);
    struct world_step step = {.order = WORLD_FORWARD};
    WORLD_OPEN(w, &setup);
    world_step_run(&w, &step);
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_int_equal(gf_update(w.ranks[rank].gf, RATE), GF_OK);
    uint64_t operations = world_stats(&w, 0).operations;
    uint64_t bytes = world_stats(&w, 0).wire_bytes;
    gf_sim_kill(w.sim, 2);
    world_step_run(&w, &step);
    world_run(&w, open_polls, NULL);
    assert_int_equal(w.ranks[0].status, GF_OK);
    assert_int_equal(gf_world(w.ranks[0].gf), 2);
    assert_true((world_stats(&w, 0).operations >= operations) &&
                (world_stats(&w, 0).wire_bytes >= bytes));
    assert_true((operations > 0) && (bytes > 0));
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

/* Its process has ended, whoever starts the next one, and whether that knows it. */
TEST(a_process_takes_the_place_of_one_that_has_ended)
{
    SIM_ONLY;
    struct gf_config config = {
        .job = {.world = 2, .world_max = 3, .rank = 3, .ignore_environment = true}};
    struct gf_footprint need;
    for (int32_t delay = 100; delay < 4000; delay += 97) {
        const struct elastic_event list[] = {
            {1000, 2, START}, {1000 + delay, 2, KILL}, {9000, 2, START_NEW}, END};
        char what[64];
        (void)snprintf(what, sizeof what, "member 2 dies %d us after its start", delay);
        WORLD(w);
        play(&w, 2, 4, list);
        expect_world(&w, 0x7, 1, what);
    }
    /* beyond world_max */
    assert_int_equal(gf_measure(&config, elastic_tensors, ELASTIC_TENSORS, &need), GF_ERR_CONFIG);
}

static uint32_t heartbeats, joiners; /* while a list is awaited */

static bool progress_cut(struct gf_link *link)
{
    link->failed = GF_ERR_LINK;
    return false;
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
    gf->link->failed = GF_OK;
    heartbeats++;
    if ((rank != 3) || (gf_steps(gf) > 0)) return;
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

/* The link of rank 0 fails in a step. From there on each says in each turn that it lives, and rank
 * 0 remembers of the generation before no edge that is broken. */
static void failed_turn(struct world *w, uint32_t rank)
{
    const struct gf_fault fault = {.code = GF_ERR_LINK, .peer = 1, .text = "cut"};
    gf_context *gf = w->ranks[rank].gf;
    if ((gf == NULL) || !gf_sim_runs(w->sim, rank)) return;
    if ((rank == 0) && (heartbeats == 0) && (gf_steps(gf) == 2) && (gf->phase == GF_PHASE_STEP)) {
        assert_int_equal(gf_fail_fault(gf, &fault, GF_OPERATION_STEP), GF_ERR_LINK);
        heartbeats++;
    }
    if ((elastic.ranks[rank].state != CHANGES) || (gf->change.state == GF_CHANGE_NONE)) return;
    assert_int_equal(gf_heartbeat(gf), GF_OK);
    heartbeats++;
}

TEST(a_life_sign_after_a_failure_ends_nothing)
{
    SIM_ONLY;
    heartbeats = 0;
    elastic.hooks.turn = failed_turn;
    WORLD(w);
    play(&w, 3, 3, NULL);
    assert_true(heartbeats > 10);
    expect_world(&w, 0x5, 1, "with life signs after a failure");
    assert_int_equal(w.ranks[0].gf->failing.link_peer, GF_RANK_NONE);
}

static void fail_turn(struct world *w, uint32_t rank)
{
    gf_context *gf = w->ranks[rank].gf;
    if ((rank == 2) && (gf->change.state == GF_CHANGE_SYNC))
        (void)gf_fail(gf, GF_ERR_DEVICE, GF_OPERATION_REGROUP, GF_RANK_NONE, GF_TENSOR_NONE,
                      "out of memory");
}

TEST(who_fails_by_itself_on_the_way_is_not_of_the_next_generation)
{
    const struct elastic_event script[] = {{2000, 3, START}, END};
    elastic.hooks.turn = fail_turn;
    WORLD(w);
    play(&w, 3, 4, script);
    assert_int_equal(w.ranks[2].status, GF_ERR_DEVICE);
    expect_world(&w, 0xb, 1, "without member 2");
}

/* ---- leaving ---- */

static bool closes;

static void close_where_one_waits(struct world *w, uint32_t rank)
{
    if ((rank == 0) && (elastic.ranks[0].state == IDLE) &&
        (gf_control_joiners(w->ranks[0].gf->control) > 0))
        closes = true;
    if (closes && (rank == 0)) assert_true(gf_close_poll(w->ranks[0].gf) >= 0);
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

/* ---- silence ---- */

/* The lower half are killed, and of the others one or two say nothing for a while. Whoever is back
 * before a survivor is given up is of the next generation, and whoever is back later comes in
 * again. */
TEST(a_survivor_that_is_late_is_of_the_world_in_the_end)
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
        elastic.hooks.work_ns = 2000000;
        WORLD(w);
        elastic_play(&w, &setup, (ranks == 4) ? two : three);
        elastic.started = true; /* ranks need not be by member id */
        elastic_expect(&w, (1u << ranks) - (1u << (ranks / 2)), what);
    }
}

/* .. and is not waited for for ever. */
TEST(a_survivor_that_never_comes_is_left_behind)
{
    SIM_ONLY;
    static const struct elastic_event script[] = {
        {500, 0, KILL}, {500, 1, KILL}, {500, 3, STOP}, END};
    struct world_setup setup = elastic_setup(4);
    WORLD(w);
    elastic_play(&w, &setup, script);
    elastic_expect(&w, 0x4, "rank 2 alone");
    assert_true(elastic.ranks[2].change_ns < setup.config.rendezvous.join_timeout_ns / 2);
}

/* As each generation begins one more rank stops: in all it takes longer than the deadline of a
 * regroup, which counts from the last generation that was reached. */
static uint32_t stops_next;

static void stop_as_it_begins(struct world *w, uint32_t rank)
{
    gf_context *gf = w->ranks[rank].gf;
    if ((rank != 0) || (stops_next < 2) || (gf == NULL) || (gf->change.state != GF_CHANGE_JOIN))
        return;
    if (gf_world(gf) > stops_next + 1) return; /* the one before has not been left out yet */
    gf_sim_stop(w->sim, stops_next--, true);
}

TEST(failures_one_after_the_other_end_nobody_as_generations_are_reached)
{
    SIM_ONLY;
    static const struct elastic_event script[] = {{500, 7, KILL}, END};
    struct world_setup setup = elastic_setup(8);
    setup.config.rendezvous.join_timeout_ns = 3 * SECOND;
    elastic.hooks.turn = stop_as_it_begins;
    stops_next = 6;
    WORLD(w);
    elastic_play(&w, &setup, script);
    elastic_expect(&w, 0x3, "two of eight");
    assert_true(elastic.ranks[0].change_ns > setup.config.rendezvous.join_timeout_ns + 2 * SECOND);
}

/* It took itself for one of a generation that was closed meanwhile: its steps are void, and it has
 * the others' weights. */
TEST(who_was_stopped_and_goes_on_comes_in_again)
{
    SIM_ONLY;
    for (uint32_t size = 2; size <= 6; size++) {
        for (uint32_t victim = 0; victim < size; victim++) {
            struct world_setup setup = elastic_setup(size);
            const struct elastic_event list[] = {
                {2000, victim, STOP}, {4000000, victim, GO_ON}, END};
            char what[64];
            (void)snprintf(what, sizeof what, "world %u, rank %u stops", size, victim);
            elastic.hooks.work_ns = 2000000;
            WORLD(w);
            elastic_play(&w, &setup, list);
            elastic.started = true;
            elastic_expect(&w, (1u << size) - 1, what);
            for (uint32_t rank = 0; rank < size; rank++)
                if (gf_left_out(w.ranks[rank].gf) != (rank == victim))
                    fail_msg("%s: rank %u: left out %d\n%s", what, rank,
                             gf_left_out(w.ranks[rank].gf), w.ranks[rank].log);
        }
    }
}

/* Rank 0 is killed and rank 4 stopped; the three others go on, and have left or died when rank 4
 * runs on: it ends too. */
static bool others_are_killed, are_over;

static void stop_4(struct world *w, uint32_t rank)
{
    if (are_over || gf_sim_runs(w->sim, 4) || (rank != 1)) return;
    for (uint32_t other = 1; other < 4; other++)
        if ((gf_steps(w->ranks[other].gf) < elastic.goal) || (elastic.ranks[other].state != IDLE) ||
            (elastic.ranks[other].changes == 0))
            return;
    are_over = true;
    for (uint32_t other = 1; other < 4; other++) {
        if (others_are_killed)
            gf_sim_kill(w->sim, other);
        else
            w->ranks[other].status = GF_OK;
    }
    gf_sim_stop(w->sim, 4, false);
}

TEST(who_was_stopped_makes_no_second_history)
{
    SIM_ONLY;
    for (int32_t at = 300; at < 3000; at += 331) {
        for (int ends = 0; ends < 2; ends++) {
            const struct elastic_event list[] = {{at, 0, KILL}, {at, 4, STOP}, END};
            struct world_setup setup = elastic_setup(5);
            others_are_killed = (ends != 0);
            are_over = false;
            elastic.hooks.turn = stop_4;
            WORLD(w);
            elastic_play(&w, &setup, list);
            assert_true(are_over);
            if ((w.ranks[4].status >= 0) || (elastic.ranks[4].changes != 0))
                fail_msg("at %d us, the others %s: rank 4: %s, %u of %u\n%s", at,
                         ends ? "ended" : "live", gf_status_name(w.ranks[4].status),
                         gf_rank(w.ranks[4].gf), gf_world(w.ranks[4].gf), w.ranks[4].log);
        }
    }
}

/* ---- the two sides of a cut ---- */

static uint32_t side; /* without the coordinator */
static bool is_cut;

static void cut(struct world *w, uint32_t rank)
{
    if (is_cut || (w->ranks[rank].gf == NULL) || (gf_steps(w->ranks[rank].gf) < 2)) return;
    is_cut = true;
    for (uint32_t a = 0; a < w->world; a++)
        for (uint32_t b = a + 1; b < w->world; b++)
            if ((side >> a & 1u) != (side >> b & 1u)) gf_sim_partition(w->sim, a, b, true);
    world_coordinator_cut(w, side, true);
}

TEST(the_side_of_a_cut_that_reaches_the_coordinator_goes_on)
{
    SIM_ONLY;
    for (uint32_t size = 2; size <= 5; size++) {
        for (side = 1; side < (1u << size) - 1; side++) {
            struct world_setup setup = elastic_setup(size);
            char what[64];
            (void)snprintf(what, sizeof what, "world %u, side %#x is cut off", size, side);
            is_cut = false;
            elastic.hooks.turn = cut;
            WORLD_OPEN(w, &setup);
            elastic_run(&w, NULL, SECOND / 50);
            elastic_expect(&w, ((1u << size) - 1) & ~side, what);
            for (uint32_t rank = 0; rank < size; rank++) {
                if ((side >> rank & 1u) == 0) continue;
                if ((w.ranks[rank].status != GF_ERR_PEER) ||
                    (strstr(gf_error_last(w.ranks[rank].gf)->text, "coordinator") == NULL))
                    fail_msg("%s: rank %u: %s\n%s", what, rank,
                             gf_status_name(w.ranks[rank].status), w.ranks[rank].log);
            }
            for (uint32_t a = 0; a < size; a++)
                for (uint32_t b = a + 1; b < size; b++) gf_sim_partition(w.sim, a, b, false);
            world_coordinator_cut(&w, side, false);
        }
    }
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
