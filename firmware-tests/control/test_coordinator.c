/* The process that decides who is in a job dies, stops, is cut off, and begins anew; and whatever
 * dies beside it, those that live go on as one job, or end and say whom they miss. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/elastic.h"

#define MS 1000 /* of a script's time */

static uint32_t all_of(uint32_t count)
{
    return (1u << count) - 1;
}

/* ---- in rank 0's process ---- */

static struct world_setup hosted_setup(uint32_t world)
{
    struct world_setup setup = elastic_setup(world);
    setup.separate = false;
    return setup;
}

static void expect_host_lost(struct world *w, uint32_t gone, const char *what)
{
    for (uint32_t rank = 1; rank < w->world; rank++) {
        const struct gf_error *error = gf_error_last(w->ranks[rank].gf);
        if ((gone >> rank & 1u) != 0) continue;
        if ((w->ranks[rank].status != GF_ERR_PEER) || (error->peer != 0) ||
            (strstr(error->text, "rank 0 has ended") == NULL) ||
            (strstr(error->text, "coordinator") == NULL) ||
            (strstr(error->text, "rendezvous.coordinator = \"separate\"") == NULL))
            fail_msg("%s: rank %u: %s names %d: %s", what, rank,
                     gf_status_name(w->ranks[rank].status), (int)error->peer, error->text);
        assert_int_equal(gf_regroup_begin(w->ranks[rank].gf), GF_ERR_STATE);
    }
}

/* In a step, and on the way into another generation. */
TEST(rank_0_that_hosts_it_dies_and_all_end_within_a_second)
{
    for (uint32_t world = 2; world <= 5; world++) {
        for (int32_t delay = -1000; delay < 3000; delay += 371) {
            const struct elastic_event list[] = {
                {2000, world - 1, KILL}, {2000 + delay, 0, KILL}, END};
            const struct elastic_event first[] = {{2000 + delay, 0, KILL}, END};
            struct world_setup setup = hosted_setup(world);
            bool only_it = (delay < 0) || (world == 2);
            char what[64];
            if (!real_links_takes(4)) continue;
            (void)snprintf(what, sizeof what, "world %u, %d us after another", world, delay);
            WORLD(w);
            elastic_play(&w, &setup, only_it ? first : list);
            expect_host_lost(&w, only_it ? 0 : 1u << (world - 1), what);
            assert_true((real_links_driver() != NULL) ||
                        (gf_sim_now_ns(w.sim) - elastic.begin_ns < SECOND));
        }
    }
}

TEST(others_die_and_the_rank_that_hosts_it_goes_on)
{
    for (uint32_t world = 2; world <= 6; world++) {
        for (uint32_t dead = 2; dead < all_of(world); dead += 2) {
            struct elastic_event list[7] = {END};
            struct world_setup setup = hosted_setup(world);
            char what[64];
            uint32_t count = 0;
            if (!real_links_takes(world)) continue;
            for (uint32_t rank = 1; rank < world; rank++)
                if ((dead >> rank & 1u) != 0)
                    list[count++] = (struct elastic_event){2000, rank, KILL};
            list[count] = (struct elastic_event)END;
            (void)snprintf(what, sizeof what, "world %u, dead %#x", world, dead);
            WORLD(w);
            elastic_play(&w, &setup, list);
            elastic_expect(&w, all_of(world) & ~dead, what);
        }
    }
}

TEST(the_rank_that_hosts_it_does_not_leave)
{
    struct world_setup setup = hosted_setup(3);
    WORLD_OPEN(w, &setup);
    assert_int_equal(gf_leave(w.ranks[0].gf), GF_ERR_STATE);
    world_expect_log(&w, 0, "the coordinator runs in this process");
    assert_int_equal(gf_leave(w.ranks[1].gf), GF_OK);
}

/* ---- a process of its own ---- */

/* What befalls it, and after how long it is there again. */
static const struct absence {
    const char *name;
    uint32_t begin, end;
} absences[] = {{"is stopped", COORDINATOR_STOP, COORDINATOR_GO_ON},
                {"is killed", COORDINATOR_KILL, COORDINATOR_START},
                {"is cut off", COORDINATOR_CUT, COORDINATOR_HEAL},
                {"is cut off from some", COORDINATOR_CUT, COORDINATOR_HEAL}};
static const int32_t spans_ms[] = {1000, 5000, 20000};

static struct elastic_event event(int32_t at_us, uint32_t rank, uint32_t what)
{
    struct elastic_event made = {.at_us = at_us, .rank = rank};
    memcpy(&made.what, &what, sizeof made.what);
    return made;
}

static struct world_setup patient_setup(uint32_t world)
{
    struct world_setup setup = elastic_setup(world);
    setup.config.rendezvous.join_timeout_ns = 40 * SECOND;
    setup.config.rendezvous.keepalive_ns = 2 * SECOND;
    return setup;
}

/* No step needs it. */
TEST(training_goes_on_while_it_is_away)
{
    SIM_ONLY;
    for (uint32_t row = 0; row < LENGTH(absences) * LENGTH(spans_ms); row++) {
        const struct absence *absence = &absences[row / LENGTH(spans_ms)];
        int32_t span_ms = spans_ms[row % LENGTH(spans_ms)];
        uint32_t whom = (row / LENGTH(spans_ms) == 3) ? 0x5 : 0xf;
        const struct elastic_event list[] = {event(100 * MS, whom, absence->begin),
                                             event((100 + span_ms) * MS, whom, absence->end),
                                             event((600 + span_ms) * MS, 0, COORDINATOR_HEAL), END};
        struct world_setup setup = patient_setup(4);
        char what[64];
        (void)snprintf(what, sizeof what, "it %s for %d ms", absence->name, span_ms);
        elastic.hooks.work_ns = 20000000;
        WORLD_OPEN(w, &setup);
        w.limit_ns = 90 * SECOND;
        elastic_run(&w, list, 0);
        elastic_expect(&w, 0xf, what);
        for (uint32_t rank = 0; rank < 4; rank++)
            if ((elastic.ranks[rank].failures != 0) || (elastic.ranks[rank].changes != 0))
                fail_msg("%s: rank %u: %u failures, %u regroups\n%s", what, rank,
                         elastic.ranks[rank].failures, elastic.ranks[rank].changes,
                         w.ranks[rank].log);
        assert_true(elastic.goal > (uint32_t)span_ms / 50); /* steps */
    }
}

static void expect_one_world(struct world *w, uint32_t dead, const char *what);

/* .. and whoever dies then is found out when it is there again. Only one that was begun anew cannot
 * know who has ended: it ends the job, and says whom it misses. */
TEST(a_death_while_it_is_away_is_found_when_it_is_back)
{
    SIM_ONLY;
    for (uint32_t row = 0; row < LENGTH(absences); row++) {
        const struct absence *absence = &absences[row];
        uint32_t whom = (row == 3) ? 0x5 : 0xf;
        for (uint32_t victim = 0; victim < 4; victim++) {
            const struct elastic_event list[] = {event(100 * MS, whom, absence->begin),
                                                 event(600 * MS, victim, KILL),
                                                 event(2500 * MS, whom, absence->end), END};
            struct world_setup setup = patient_setup(4);
            char what[64];
            (void)snprintf(what, sizeof what, "it %s, rank %u dies", absence->name, victim);
            elastic.hooks.work_ns = 20000000;
            WORLD_OPEN(w, &setup);
            w.limit_ns = 90 * SECOND;
            elastic_run(&w, list, 6 * SECOND);
            if (absence->begin == COORDINATOR_KILL)
                expect_one_world(&w, 1u << victim, what);
            else
                elastic_expect(&w, 0xf & ~(1u << victim), what);
        }
    }
}

/* Whoever has not ended is of one world with all others that have not, and whoever has names what
 * it misses. */
static void expect_one_world(struct world *w, uint32_t dead, const char *what)
{
    uint32_t on = 0;
    for (uint32_t rank = 0; rank < w->world; rank++) {
        if (((dead >> rank) & 1u) != 0) continue;
        const struct gf_error *error = gf_error_last(w->ranks[rank].gf);
        if (w->ranks[rank].status == GF_OK)
            on |= 1u << rank;
        else if ((w->ranks[rank].status != GF_ERR_PEER) ||
                 (strstr(error->text, "coordinator") == NULL))
            fail_msg("%s: rank %u: %s: %s", what, rank, gf_status_name(w->ranks[rank].status),
                     error->text);
    }
    if (on != 0) elastic_expect(w, on, what);
}

/* It goes away at each moment of a regroup. Where it is back before the ranks give it up, nobody
 * innocent is left behind; a longer absence ends the job, or not, but never makes two of it. */
TEST(it_is_away_in_a_regroup)
{
    SIM_ONLY;
    for (uint32_t row = 0; row < LENGTH(absences) * LENGTH(spans_ms); row++) {
        const struct absence *absence = &absences[row / LENGTH(spans_ms)];
        int32_t span_ms = spans_ms[row % LENGTH(spans_ms)];
        uint32_t whom = (row / LENGTH(spans_ms) == 3) ? 0x5 : 0xf;
        for (int32_t delay = 0; delay < 3000; delay += 211) {
            uint32_t victim = (uint32_t)(delay / 211) % 4;
            const struct elastic_event list[] = {
                event(2000, victim, KILL), event(2000 + delay, whom, absence->begin),
                event(2000 + delay + span_ms * MS, whom, absence->end), END};
            struct world_setup setup = patient_setup(4);
            char what[64];
            (void)snprintf(what, sizeof what, "it %s %d us after rank %u, for %d ms", absence->name,
                           delay, victim, span_ms);
            elastic.hooks.work_ns = 5000000;
            elastic.hooks.awaits = true;
            WORLD_OPEN(w, &setup);
            w.limit_ns = 120 * SECOND;
            elastic_run(&w, list, (uint64_t)(span_ms + 3000) * 1000000);
            if ((span_ms == 1000) && (absence->begin != COORDINATOR_KILL))
                elastic_expect(&w, 0xf & ~(1u << victim), what);
            else
                expect_one_world(&w, 1u << victim, what);
            assert_true(gf_sim_now_ns(w.sim) - elastic.begin_ns <
                        (uint64_t)span_ms * 1000000 + 60 * SECOND);
        }
    }
}

/* ---- deaths ---- */

/* Any set of ranks at once; one survivor is enough. */
TEST(all_that_die_at_once_are_left_behind)
{
    for (uint32_t world = 2; world <= 6; world++) {
        for (uint32_t dead = 1; dead < all_of(world); dead++) {
            struct elastic_event list[7] = {END};
            struct world_setup setup = elastic_setup(world);
            char what[64];
            uint32_t count = 0;
            if (!real_links_takes(world)) continue;
            for (uint32_t rank = 0; rank < world; rank++)
                if ((dead >> rank & 1u) != 0)
                    list[count++] = (struct elastic_event){2000, rank, KILL};
            list[count] = (struct elastic_event)END;
            (void)snprintf(what, sizeof what, "world %u, dead %#x", world, dead);
            WORLD_OPEN(w, &setup);
            elastic_run(&w, list, SECOND / 50);
            elastic_expect(&w, all_of(world) & ~dead, what);
            for (uint32_t rank = 0; rank < world; rank++) {
                if ((dead >> rank & 1u) != 0) continue;
                if ((real_links_driver() == NULL) && (elastic.ranks[rank].change_ns > SECOND / 10))
                    fail_msg("%s: rank %u took %.3f s", what, rank,
                             (double)elastic.ranks[rank].change_ns * 1e-9);
            }
        }
    }
}

/* Rank 0 twice in a row; all others once; all but the newest. */
TEST(restarted_ranks_come_in_whoever_dies_then)
{
    static const struct elastic_event scripts[][9] = {
        {{2000, 0, KILL}, {9000, 0, START}, {20000, 0, KILL}, {30000, 0, START}, END},
        {{2000, 0, KILL},
         {9000, 0, START},
         {25000, 1, KILL},
         {25000, 2, KILL},
         {25000, 3, KILL},
         {40000, 1, START},
         {40000, 2, START},
         {40000, 3, START},
         END},
        {{2000, 0, KILL},
         {2000, 1, KILL},
         {2000, 2, KILL},
         {9000, 0, START},
         {9000, 1, START},
         {9000, 2, START},
         END},
        {{2000, 3, KILL}, {2200, 3, START}, {2400, 3, KILL}, {9000, 3, START}, END}};
    for (size_t row = 0; row < LENGTH(scripts); row++) {
        struct world_setup setup = elastic_setup(4);
        char what[32];
        setup.config.optimizer.momentum = 0.5f;
        (void)snprintf(what, sizeof what, "script %zu", row);
        WORLD(w);
        elastic_play(&w, &setup, scripts[row]);
        elastic_expect(&w, 0xf, what);
    }
}

/* ---- many ---- */

TEST(five_of_eleven_that_are_stopped_on_one_node_are_left_behind_in_six_seconds)
{
    SIM_ONLY;
    for (uint32_t first = 0; first <= 6; first += 3) {
        struct elastic_event list[6] = {END};
        struct world_setup setup = elastic_setup(11);
        uint32_t stopped = 0;
        setup.sim.ranks_per_node = 11;
        setup.sim.node_bytes_per_ns = 10;
        setup.config.exchange.timeout_ns = 2 * SECOND;
        for (uint32_t i = 0; i < 5; i++) {
            list[i] = (struct elastic_event){2000, first + i, STOP};
            stopped |= 1u << (first + i);
        }
        list[5] = (struct elastic_event)END;
        WORLD(w);
        elastic_play(&w, &setup, list);
        elastic_expect(&w, all_of(11) & ~stopped, "six go on");
        for (uint32_t rank = 0; rank < 11; rank++)
            if ((stopped >> rank & 1u) == 0) assert_int_equal(elastic.ranks[rank].changes, 1);
        assert_true(gf_sim_now_ns(w.sim) - elastic.begin_ns < 6 * SECOND);
    }
}
