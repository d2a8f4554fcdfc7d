/* How many messages and how much virtual time an attempted view takes, up to 512 ranks. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/views_world.h"

#include <time.h>

static uint64_t attempted; /* views in which somebody reported, a bit each, 16 of an epoch */

static void view_note(uint32_t from, uint32_t to, uint32_t kind)
{
    if (kind == MEMBERS_DO_VIEW_CHANGE)
        attempted |= UINT64_C(1) << (16 * views_epoch(from) + views.ranks[from].members->view.view);
}

/* The coordinator of the second view dies once it has proposed to one. */
static void view_note_and_crash(uint32_t from, uint32_t to, uint32_t kind)
{
    view_note(from, to, kind);
    if ((from == 1) && (kind == MEMBERS_PREPARE)) views_crash(1);
}

/* DO_VIEW_CHANGE of a member that comes, START_VIEW, DO_VIEW_CHANGE that answers it, PREPARE,
 * ACCEPT, COMMIT: one each for a member. */
static void expect_few(uint32_t size, const char *what, uint64_t began_ns)
{
    uint32_t views_attempted = (uint32_t)__builtin_popcountll(attempted);
    uint32_t frames = 0;
    uint64_t took_ns = gf_sim_now_ns(views.sim) - began_ns;
    for (uint32_t kind = MEMBERS_DO_VIEW_CHANGE; kind <= MEMBERS_COMMIT; kind++)
        frames += views.frames[kind];
    print_message("%u ranks, %s: attempted views %u, frames %u, %.3f s\n", size, what,
                  views_attempted, frames, (double)took_ns * 1e-9);
    if (frames > 6 * (size - 1) * views_attempted) fail_msg("more than six frames a rank and view");
    if (took_ns >= 2 * SECOND) fail_msg("%.3f s, expected less than 2", (double)took_ns * 1e-9);
}

TEST(many_ranks_agree_in_two_seconds_with_few_messages_a_view)
{
    static const struct {
        const char *what;
        uint32_t dead[4], count, dead_in_all;
        void (*on_send)(uint32_t from, uint32_t to, uint32_t kind);
    } rows[] = {{"a rank dies", {7}, 1, 1, view_note},
                {"the coordinator dies", {0}, 1, 1, view_note},
                {"it dies, and the next one as it proposes", {0}, 1, 2, view_note_and_crash},
                {"the first two coordinators and two others die", {0, 1, 5, 9}, 4, 4, view_note}};
    static const uint32_t sizes[] = {16, 64, 512};
    for (size_t i = 0; i < LENGTH(sizes) * LENGTH(rows); i++) {
        uint32_t size = sizes[i / LENGTH(rows)];
        uint32_t row = (uint32_t)(i % LENGTH(rows));
        uint64_t began_ns;
        views_open(size, true);
        attempted = 0;
        views.on_send = rows[row].on_send;
        began_ns = gf_sim_now_ns(views.sim);
        for (uint32_t k = 0; k < rows[row].count; k++) views_crash(rows[row].dead[k]);
        views_until(views_done, 30 * SECOND);
        expect_few(size, rows[row].what, began_ns);
        for (uint32_t rank = 0; rank < size; rank++) {
            if (gf_sim_is_dead(views.sim, rank)) continue;
            assert_int_equal(views.ranks[rank].state, VIEWS_MEMBER);
            assert_int_equal(views.ranks[rank].members->setup.world, size - rows[row].dead_in_all);
        }
        views_close();
    }
}

/* ---- a host whose ranks hang: their kernel goes on ---- */

static uint64_t random_next(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

/* Ranks of one host are neighbours, or anywhere. */
static void hosts_draw(uint32_t *hosts, uint32_t size, uint32_t a_host, uint64_t seed)
{
    for (uint32_t rank = 0; rank < size; rank++) hosts[rank] = rank / a_host;
    for (uint32_t rank = size; (seed != 0) && (rank-- > 1);) {
        uint32_t other = (uint32_t)(random_next(&seed) % (rank + 1));
        uint32_t host = hosts[rank];
        hosts[rank] = hosts[other];
        hosts[other] = host;
    }
}

static void host_hangs(const uint32_t *hosts, uint32_t size, uint32_t hung, uint64_t limit_ns)
{
    uint32_t culprit = GF_RANK_NONE;
    uint32_t live = 0;
    views_open_on(size, false, hosts);
    uint64_t began_ns = gf_sim_now_ns(views.sim);
    for (uint32_t rank = 0; rank < size; rank++) {
        if (hosts[rank] != hung) {
            live++;
            continue;
        }
        views_stop(rank, true);
        if (culprit == GF_RANK_NONE) culprit = rank;
    }
    views_fail(culprit);
    views_until(views_run, limit_ns);
    print_message("host %u of %u ranks hangs: %u go on after %.3f s\n", hung, size, live,
                  (double)(gf_sim_now_ns(views.sim) - began_ns) * 1e-9);
    for (uint32_t rank = 0; rank < size; rank++)
        if (hosts[rank] != hung) assert_int_equal(views.ranks[rank].members->setup.world, live);
    views_close();
}

TEST(a_host_that_hangs_costs_no_more_than_a_rank)
{
    static uint32_t hosts[VIEWS_RANKS_MAX];
    uint64_t seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    hosts_draw(hosts, 11, 6, 0); /* hosts of 6 and 5 */
    host_hangs(hosts, 11, 1, 6 * SECOND);
    for (uint32_t rank = 0; rank < 11; rank++) hosts[rank] = (rank < 5) ? 0 : 1;
    host_hangs(hosts, 11, 0, 6 * SECOND);
    hosts_draw(hosts, 512, 8, 0);
    host_hangs(hosts, 512, 0, 5 * SECOND);
    hosts_draw(hosts, 512, 8, seed);
    host_hangs(hosts, 512, hosts[0], 5 * SECOND);
}

/* One rank hangs, those beside it on its host run: all agree on a coordinator, and none is lost. */
TEST(the_others_of_a_host_of_which_one_hangs_go_on)
{
    for (uint32_t hung = 0; hung < 8; hung++) {
        uint32_t hosts[8];
        hosts_draw(hosts, 8, 4, 0);
        views_open_on(8, false, hosts);
        views_stop(hung, true);
        views_fail(hung);
        views_until(views_run, 20 * SECOND);
        for (uint32_t rank = 0; rank < 8; rank++)
            if (rank != hung) assert_int_equal(views.ranks[rank].members->setup.world, 7);
        views_close();
    }
}

/* ---- a coordinator that is silent ---- */

static bool zero_collects(void)
{
    const struct gf_members *members = views.ranks[0].members;
    return (members->view.state == VIEW_COLLECT) && members->table[1].answered;
}

/* Rank 4 has died and rank 3 is busy, so rank 0 collects until then, and says that it does. */
TEST(a_coordinator_that_collects_is_not_silent)
{
    views_open(5, false);
    views_stop(3, true);
    views_crash(4);
    views_until(zero_collects, SECOND);
    uint32_t view = views.ranks[0].members->view.view;
    views_for(6 * SECOND);
    assert_true(zero_collects() && (views.ranks[0].members->view.view == view));
    assert_int_equal(views.ranks[1].members->view.coordinator, 0);
    assert_true(views.frames[MEMBERS_DO_VIEW_CHANGE] <= 2 * 4);
    views_stop(3, false);
    views_until(views_run, SECOND);
    assert_int_equal(views.ranks[0].members->setup.world, 4);
    views_close();
}

/* The same of seven ranks, and rank 0 hangs while it collects: a second of silence is enough. */
TEST(a_coordinator_that_hangs_as_it_collects_costs_a_second)
{
    views_open(7, false);
    views_stop(3, true);
    views_crash(6);
    views_until(zero_collects, SECOND);
    views_stop(0, true);
    views_for(3 * SECOND / 2);
    assert_int_equal(views.ranks[1].members->view.coordinator, 1);
    assert_int_equal(views.ranks[2].members->view.coordinator, 1);
    views_until(views_done, VIEWS_WAIT_NS); /* it awaits rank 3 */
    assert_int_equal(views.ranks[1].members->setup.world, 4);
    views_close();
}

/* Rank 0 computes while rank 7 dies, and has not begun to collect: the others wait for it. */
TEST(a_coordinator_that_is_busy_is_awaited)
{
    for (uint64_t busy_s = 1; busy_s <= 13; busy_s += 4) {
        views_open(8, false);
        views_stop(0, true);
        views_crash(7);
        views_fail(7);
        views_for(busy_s * SECOND);
        views_stop(0, false);
        views_until(views_run, SECOND);
        for (uint32_t rank = 0; rank < 7; rank++)
            assert_int_equal(views.ranks[rank].members->setup.world, 7);
        views_close();
    }
}

/* None of them has a connection yet: each costs the second that its port says nothing. */
TEST(members_that_hang_on_hosts_of_their_own_cost_a_second_each)
{
    uint32_t hosts[11];
    hosts_draw(hosts, 11, 1, 0);
    views_open_on(11, false, hosts);
    uint64_t began_ns = gf_sim_now_ns(views.sim);
    for (uint32_t rank = 0; rank < 5; rank++) views_stop(rank, true);
    views_fail(0);
    views_until(views_run, 6 * SECOND);
    print_message("five of eleven hosts hang: the others go on after %.3f s\n",
                  (double)(gf_sim_now_ns(views.sim) - began_ns) * 1e-9);
    for (uint32_t rank = 5; rank < 11; rank++)
        assert_int_equal(views.ranks[rank].members->setup.world, 6);
    views_close();
}
