/* Survivors go on without the dead, over the simulated network: whoever dies, they agree on an
 * epoch and hold the same weights; whoever is left on the smaller side ends. One death at whatever
 * post, whatever makes up the state, and sums afterwards: the soak's elastic jobs. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/elastic.h"
#include "lib/context.h"
#include "lib/elastic/view.h"

#define GOAL 6u /* steps */

/* a death may not have been seen before */
static void jobs_run(struct world *w)
{
    elastic_run(w, NULL, SECOND / 50);
}

/* ---- more than one ---- */

/* Ranks of `mask` end as `status` (GF_AGAIN: they are dead); all others as GF_OK, in agreement. */
static void expect_out(struct world *w, uint32_t mask, gf_status status, const char *what)
{
    for (uint32_t rank = 0; rank < w->world; rank++) {
        gf_status expected = ((mask >> rank) & 1u) ? status : GF_OK;
        if ((expected == GF_AGAIN) && !gf_sim_runs(w->sim, rank)) continue;
        if (w->ranks[rank].status != expected)
            fail_msg("%s: rank %u: %s, expected %s\n%s", what, rank,
                     gf_status_name(w->ranks[rank].status), gf_status_name(expected),
                     w->ranks[rank].log);
    }
    elastic_expect(w, ((1u << w->world) - 1) & ~mask, what);
}

static uint64_t step_at; /* faults by hand come once a rank is in this step */
static uint32_t hit;     /* bits: ranks that they hit */
static bool done;

static bool due(struct world *w, uint32_t rank)
{
    if (done || (w->ranks[rank].gf == NULL) || (gf_steps(w->ranks[rank].gf) < step_at))
        return false;
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
    elastic.hooks.turn = turn;
    hit = ranks;
    step_at = 2;
    done = false;
}

/* Told who has ended, whoever is left goes on; else more than half do, or exactly half with rank 0,
 * and all others end. */
TEST(all_that_die_at_once_are_left_behind)
{
    for (uint32_t size = 2; size <= 6; size++) {
        for (uint32_t row = 2; row < (2u << size) - 2; row++) {
            struct world_setup setup = elastic_setup(size);
            char what[64];
            uint32_t dead = row >> 1;
            uint32_t count = (uint32_t)__builtin_popcount(dead);
            bool quorum =
                (2 * (size - count) > size) || ((2 * (size - count) == size) && ((dead & 1u) == 0));
            bool told = ((row & 1u) != 0);
            if (!real_links_takes(size)) continue;
            (void)snprintf(what, sizeof what, "world %u, dead %#x, %s", size, dead,
                           told ? "told" : "not told");
            quorum = quorum || told;
            elastic.hooks.untold = !told;
            by_hand(kill_hit, dead);
            WORLD_OPEN(w, &setup);
            jobs_run(&w);
            if (quorum) expect_out(&w, dead, GF_AGAIN, what);
            for (uint32_t rank = 0; !quorum && (rank < size); rank++)
                if (!((dead >> rank) & 1u) && (w.ranks[rank].status != GF_ERR_QUORUM))
                    fail_msg("%s: rank %u: %s\n%s", what, rank,
                             gf_status_name(w.ranks[rank].status), w.ranks[rank].log);
        }
    }
}

static void name_wrongly(struct world *w, uint32_t rank)
{
    static const uint32_t named = 1;
    if (!done && (rank == 2) && (elastic.ranks[2].state == IDLE))
        assert_int_equal(gf_regroup_begin(w->ranks[2].gf, &named, 1), GF_ERR_STATE);
    kill_hit(w, rank);
}

TEST(a_refused_call_names_nobody)
{
    struct world_setup setup = elastic_setup(3);
    by_hand(name_wrongly, 0x1);
    elastic.hooks.untold = true;
    WORLD_OPEN(w, &setup);
    jobs_run(&w);
    expect_out(&w, 0x1, GF_AGAIN, "rank 0 dies after rank 2 had named rank 1");
}

/* Rank 1's table of the view change is wrong in one row. */
static void break_view(struct world *w, uint32_t rank)
{
    gf_context *gf = w->ranks[rank].gf;
    kill_hit(w, rank);
    if ((rank != 1) || w->ranks[1].may_break || (gf->change.state != GF_CHANGE_AGREE)) return;
    w->ranks[1].may_break = true;
    gf_view_hold(gf->members, 0, VIEW_NONE, 1u << VIEW_NONE);
}

TEST(a_wrong_row_of_the_view_change_ends_its_rank_alone)
{
    struct world_setup setup = elastic_setup(4);
    by_hand(break_view, 1u << 3);
    WORLD_OPEN(w, &setup);
    jobs_run(&w);
    assert_int_equal(w.ranks[1].status, GF_ERR_SYSTEM);
    world_expect_log(&w, 1, VIEW_BROKEN);
    elastic_expect(&w, 0x5, "a wrong row at rank 1");
}

static uint32_t second_rank;
static uint64_t second_ns, first_died_ns;
static uint32_t deaths_in_shrink;

static void kill_twice(struct world *w, uint32_t rank)
{
    bool before = done;
    kill_hit(w, rank);
    if (done && !before) first_died_ns = gf_sim_now_ns(w->sim);
    if (!done || (gf_sim_now_ns(w->sim) - first_died_ns < second_ns) ||
        !gf_sim_runs(w->sim, second_rank))
        return;
    if (elastic.ranks[second_rank].state == CHANGES) deaths_in_shrink++;
    gf_sim_kill(w->sim, second_rank);
}

/* Another one dies at each moment behind the first death: in the agreement, the join, the warm-up,
 * the copying. */
TEST(a_death_in_the_shrink_begins_it_anew)
{
    deaths_in_shrink = 0;
    for (uint32_t first = 0; first < 4; first++) {
        for (uint32_t second = 0; second < 5; second++) {
            for (uint64_t delay_ns = 0; (second != first) && (delay_ns < 4000000);
                 delay_ns += 97000) {
                struct world_setup setup = elastic_setup(5);
                char what[96];
                if (!real_links_takes(5)) continue;
                setup.config.optimizer.momentum = 0.5f;
                (void)snprintf(what, sizeof what, "rank %u dies, then rank %u after %u us", first,
                               second, (unsigned)(delay_ns / 1000));
                by_hand(kill_hit, 1u << first);
                WORLD_OPEN(w, &setup);
                second_rank = second;
                second_ns = delay_ns;
                elastic.hooks.turn = kill_twice;
                jobs_run(&w);
                expect_out(&w, (1u << first) | (1u << second), GF_AGAIN, what);
            }
        }
    }
    print_message("%u deaths in a shrink\n", deaths_in_shrink);
    assert_true((deaths_in_shrink > 100) || (real_links_driver() != NULL));
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
    SIM_ONLY;
    static const struct cut_case {
        uint32_t world, side, out;
    } cases[] = {{2, 0x2, 0x2},   {3, 0x4, 0x4},   {3, 0x1, 0x1},   {4, 0xc, 0xc},
                 {4, 0x5, 0xa},   {5, 0x18, 0x18}, {5, 0x7, 0x18},  {5, 0x3, 0x3},
                 {6, 0x38, 0x38}, {6, 0x7, 0x38},  {7, 0x70, 0x70}, {7, 0x0f, 0x70}};
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct world_setup setup = elastic_setup(cases[i].world);
        char what[64];
        (void)snprintf(what, sizeof what, "world %u, side %#x", cases[i].world, cases[i].side);
        by_hand(cut, cases[i].side);
        WORLD_OPEN(w, &setup);
        jobs_run(&w);
        for (uint32_t rank = 0; rank < w.world; rank++)
            assert_true(elastic.ranks[rank].change_ns <=
                        setup.config.rendezvous.join_timeout_ns + SECOND);
        for (uint32_t a = 0; a < w.world; a++)
            for (uint32_t b = a + 1; b < w.world; b++) gf_sim_partition(w.sim, a, b, false);
        expect_out(&w, cases[i].out, GF_ERR_QUORUM, what);
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
        if ((gf_steps(w->ranks[rank].gf) == GOAL) && (elastic.ranks[rank].state != CHANGES))
            gf_sim_stop(w->sim, other, false);
    }
}

TEST(who_was_stopped_and_goes_on_finds_its_epoch_closed)
{
    SIM_ONLY;
    for (uint32_t size = 3; size <= 6; size++) {
        for (uint32_t victim = 0; victim < size; victim++) {
            struct world_setup setup = elastic_setup(size);
            char what[64];
            (void)snprintf(what, sizeof what, "world %u, rank %u stops", size, victim);
            by_hand(stop_hit, 1u << victim);
            WORLD_OPEN(w, &setup);
            jobs_run(&w);
            expect_out(&w, 1u << victim, GF_ERR_QUORUM, what);
        }
    }
}

/* Rank 0 is killed and rank 4 stopped; the three others go on, and have all their steps when rank 4
 * runs on. */
static bool others_are_killed;

static void stop_4(struct world *w, uint32_t rank)
{
    if (due(w, rank)) {
        gf_sim_kill(w->sim, 0);
        gf_sim_stop(w->sim, 4, true);
    }
    if (!done || gf_sim_runs(w->sim, 4) || (rank != 1)) return;
    for (uint32_t other = 1; other < 4; other++)
        if ((gf_steps(w->ranks[other].gf) < GOAL) || (elastic.ranks[other].state != IDLE)) return;
    for (uint32_t other = 1; others_are_killed && (other < 4); other++) gf_sim_kill(w->sim, other);
    gf_sim_stop(w->sim, 4, false);
}

TEST(who_was_stopped_makes_no_second_history)
{
    SIM_ONLY;
    for (uint64_t at = 0; at < GOAL - 1; at++) {
        for (int ends = 0; ends < 2; ends++) {
            struct world_setup setup = elastic_setup(5);
            by_hand(stop_4, 0);
            step_at = at;
            others_are_killed = (ends != 0);
            elastic.hooks.untold = true;
            WORLD_OPEN(w, &setup);
            jobs_run(&w);
            assert_int_equal(gf_world(w.ranks[1].gf), 3);
            assert_int_equal(gf_steps(w.ranks[1].gf), GOAL);
            if (ends == 0) assert_int_equal(w.ranks[1].status, GF_OK);
            if (w.ranks[4].status != GF_ERR_QUORUM)
                fail_msg("from step %u, the others %s: rank 4: %s, %u of %u\n%s", (unsigned)at,
                         ends ? "ended" : "live", gf_status_name(w.ranks[4].status),
                         gf_rank(w.ranks[4].gf), gf_world(w.ranks[4].gf), w.ranks[4].log);
            assert_int_equal(elastic.ranks[4].changes, 0);
        }
    }
}

/* Rank 0 is killed and rank 2 stopped: rank 1 can know of neither side of it, and does not go on
 * alone, told or not. */
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
    SIM_ONLY;
    for (int tells = 0; tells < 2; tells++) {
        struct world_setup setup = elastic_setup(3);
        by_hand(stop_2, 0);
        step_at = 1;
        elastic.hooks.untold = (tells == 0);
        WORLD_OPEN(w, &setup);
        jobs_run(&w);
        assert_int_equal(w.ranks[1].status, GF_ERR_QUORUM);
        assert_int_equal(elastic.ranks[1].changes, 0);
    }
}

/* It is told that all others have ended. */
TEST(who_polls_goes_on_alone_at_once)
{
    struct world_setup setup = elastic_setup(3);
    by_hand(kill_hit, 0x3);
    WORLD_OPEN(w, &setup);
    jobs_run(&w);
    expect_out(&w, 0x3, GF_AGAIN, "ranks 0 and 1 die");
    assert_int_equal(elastic.ranks[2].changes, 1);
    assert_true(elastic.ranks[2].change_ns < SECOND / 20);
}

static char link_said[sizeof((struct gf_error *)0)->text];

static void link_fails(struct world *w, uint32_t rank)
{
    static const struct gf_fault fault = {.code = GF_ERR_LINK, .peer = 2, .text = "rank 2 is gone"};
    gf_context *gf = w->ranks[0].gf;
    kill_hit(w, rank);
    if (!done || (rank != 0) || (link_said[0] != '\0') || (gf->epoch != 2) ||
        (gf->phase != GF_PHASE_STEP))
        return;
    assert_int_equal(gf_fail_fault(gf, &fault, GF_OPERATION_STEP), GF_ERR_LINK);
    assert_int_equal(gf_error_last(gf)->peer, 1);
    (void)snprintf(link_said, sizeof link_said, "%s", gf_error_last(gf)->text);
}

TEST(what_a_link_says_of_a_member_names_its_rank_in_the_epoch)
{
    struct world_setup setup = elastic_setup(3);
    link_said[0] = '\0';
    by_hand(link_fails, 0x2);
    WORLD_OPEN(w, &setup);
    jobs_run(&w);
    assert_string_equal(link_said, "rank 2 is gone (by member id: 2 is rank 1 of epoch 2)");
}

static uint32_t bare;

static gf_status reset_fails(struct gf_link *link, uint32_t epoch)
{
    return gf_fault_set(&link->fault, GF_ERR_LINK, GF_RANK_NONE, "socket", 24,
                        "no descriptor in epoch %u", epoch);
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

/* Else a caller that begins an epoch after each GF_ERR_LINK would do so for ever. */
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
        assert_int_equal(gf_regroup_begin(w.ranks[bare].gf, NULL, 0), GF_ERR_STATE);
        elastic_expect(&w, 0x7 & ~(1u << bare), "without it");
    }
}

static gf_status open_polls(struct world *w, uint32_t rank, void *arg)
{
    gf_context *gf = w->ranks[rank].gf;
    gf_status status = (w->ranks[rank].next++ == 0) ? gf_regroup_begin(gf, NULL, 0) : GF_OK;
    return (status < 0) ? status : gf_open_poll(gf);
}

TEST(only_an_epoch_that_a_rank_comes_in_by_is_its_opening)
{
    struct world_setup setup = elastic_setup(3);
    struct world_step step = {.order = WORLD_FORWARD};
    WORLD_OPEN(w, &setup);
    world_step_run(&w, &step);
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
