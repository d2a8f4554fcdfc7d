/* Ranks that give up, leave, are cut off or lag: everybody ends, in time, and knows whose doing it
 * was.
 * link: wrap gf_node_host_id_set */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/real_links.h"
#include "firmware-tests/support/world_setups.h"
#include "lib/context.h"

#include <signal.h>
#include <unistd.h>

/* ---- by hand ---- */

static void act_abort(struct world *w, uint32_t rank)
{
    gf_abort(w->ranks[rank].gf);
}

static gf_context *signalled;

static void on_signal(int number)
{
    gf_abort(signalled);
}

static void act_signal(struct world *w, uint32_t rank)
{
    struct sigaction action = {.sa_handler = on_signal};
    struct sigaction before;
    signalled = w->ranks[rank].gf;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    assert_int_equal(raise(SIGUSR1), 0);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
}

static void act_cut(struct world *w, uint32_t rank)
{
    for (uint32_t other = 0; other < w->world; other++)
        if (other != rank) gf_sim_partition(w->sim, rank, other, true);
}

static void act_cut_peer(struct world *w, uint32_t rank)
{
    gf_sim_partition(w->sim, rank, (rank + 1) % w->world, true);
}

static uint32_t closing; /* this rank does, whatever is under way */

static void act_close(struct world *w, uint32_t rank)
{
    closing = rank;
}

static gf_status closing_progress(struct world *w, uint32_t rank, void *arg)
{
    gf_status status;
    if (w->ranks[rank].gf == NULL) return GF_OK;
    if (rank != closing) return world_interrupted_progress(w, rank, arg);
    status = gf_close_poll(w->ranks[rank].gf);
    if (status == GF_AGAIN) return GF_AGAIN;
    assert_int_equal(gf_close(w->ranks[rank].gf), GF_OK);
    w->ranks[rank].gf = NULL;
    return GF_OK;
}

/* It has failed with `code` and names `peer`; its log holds the text, where there is one. */
static void expect_named(struct world *w, uint32_t rank, gf_status code, uint32_t peer,
                         const char *text)
{
    const struct gf_error *error = gf_error_last(w->ranks[rank].gf);
    world_expect_failed(w, rank, code);
    if (error->peer != peer)
        fail_msg("rank %u names %d and not %u: %s", rank, (int)error->peer, peer, error->text);
    if (text != NULL) world_expect_log(w, rank, text);
}

/* Rank 0 of two has declared its tensors and waits, while rank 1 takes turns: how the wait ends,
 * within the deadline. */
static void wait_interrupted(world_progress turn, void *arg, gf_status expected)
{
    struct world_setup setup = brief_setup(2);
    uint64_t begin_ns;
    setup.config.link.idle = GF_IDLE_SPIN;
    WORLD_OPEN(w, &setup);
    assert_int_equal(gf_step_begin(w.ranks[0].gf), GF_OK);
    for (uint32_t t = 0; t < LENGTH(brief); t++)
        assert_int_equal(gf_tensor_skip(w.ranks[0].gf, t), GF_OK);
    begin_ns = gf_sim_now_ns(w.sim);
    world_block(&w, 0, turn, arg);
    assert_int_equal(gf_step_wait(w.ranks[0].gf), expected);
    world_unblock(&w);
    if (expected == GF_ERR_PEER) assert_int_equal(gf_error_last(w.ranks[0].gf)->peer, 1);
    assert_true(gf_sim_now_ns(w.sim) - begin_ns < TIMEOUT_NS);
}

TEST(an_abort_ends_all_ranks_and_says_whose_it_was)
{
    static void (*const acts[])(struct world * w, uint32_t rank) = {act_abort, act_signal};
    for (uint32_t row = 0; row < 2 * 3 * 3; row++) {
        struct world_setup setup = brief_setup(3);
        WORLD(w);
        uint64_t took_ns =
            world_interrupted_run(&w, &setup, row % 3, 1 + row / 3 % 3, acts[row / 9]);
        /* no deadline was waited for; of real links the machine decides */
        if ((real_links_driver() == NULL) && (took_ns >= DRAIN_NS + 20000000))
            fail_msg("row %u took %.3f s", row, (double)took_ns * 1e-9);
        for (uint32_t rank = 0; rank < 3; rank++)
            expect_named(&w, rank, (rank == row % 3) ? GF_ERR_ABORTED : GF_ERR_PEER, row % 3,
                         (rank == row % 3) ? NULL : "gave up: aborted by its appliance");
    }
}

/* The signal comes while the call blocks. */
TEST(an_abort_ends_a_wait_at_once)
{
    struct world_interrupt interrupt = {
        .rank = 1, .after_tensors = 2, .act = act_abort, .step.pause_ns = 20000000};
    wait_interrupted(world_interrupted_progress, &interrupt, GF_ERR_PEER);
}

static gf_status abort_first_progress(struct world *w, uint32_t rank, void *arg)
{
    gf_abort(w->ranks[0].gf);
    return GF_OK;
}

TEST(an_abort_of_the_waiting_rank_itself_ends_its_wait)
{
    wait_interrupted(abort_first_progress, NULL, GF_ERR_ABORTED);
}

static gf_status first_progress(struct world *w, uint32_t rank, void *arg)
{
    return gf_request_poll(w->ranks[rank].gf, (struct gf_request *)arg + 2 * rank);
}

/* Rank 0 has posted two operations, rank 1 only the first: what rank 0 says of itself once that one
 * has ended. */
TEST(a_rank_that_waits_in_one_operation_says_so_when_another_has_ended)
{
    struct world_setup setup = brief_setup(2);
    struct gf_request requests[4] = {{{0}}};
    float data[4] = {0};
    WORLD_OPEN(w, &setup);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(gf_allreduce(w.ranks[i / 2].gf, (gf_mem)(uintptr_t)&data[i], 1,
                                      GF_TYPE_F32, &requests[i]),
                         GF_OK);
    world_run(&w, first_progress, requests);
    world_expect(&w, GF_OK);
    assert_int_equal(gf_request_poll(w.ranks[0].gf, &requests[1]), GF_AGAIN);
    assert_int_equal(w.ranks[0].gf->position.operation, GF_OPERATION_ALLREDUCE);
    assert_int_equal(w.ranks[0].gf->position.waits_for, 1);
}

TEST(closing_in_the_middle_of_a_step_is_told_to_the_others)
{
    for (uint32_t culprit = 0; culprit < 3; culprit++) {
        struct world_setup setup = brief_setup(3);
        struct world_interrupt interrupt = {.rank = culprit, .after_tensors = 2, .act = act_close};
        closing = GF_RANK_NONE;
        WORLD_OPEN(w, &setup);
        world_run(&w, closing_progress, &interrupt);
        for (uint32_t rank = 0; rank < 3; rank++)
            if (rank != culprit)
                expect_named(&w, rank, GF_ERR_PEER, culprit,
                             "closed its context while step was under way");
    }
}

static gf_status close_early_progress(struct world *w, uint32_t rank, void *arg)
{
    const struct world_interrupt *interrupt = arg;
    if (rank == interrupt->rank) {
        gf_status status = gf_close_poll(w->ranks[rank].gf);
        if (status != GF_AGAIN) {
            assert_int_equal(gf_close(w->ranks[rank].gf), GF_OK);
            w->ranks[rank].gf = NULL;
        }
        return (status == GF_ERR_PEER) ? GF_OK : status; /* it hears what the others do */
    }
    return world_step_progress(w, rank, &((struct world_interrupt *)arg)->step);
}

/* It leaves in good order, but the others go on: what they wait for does not come. All hear at
 * once, and no deadline is waited for. */
TEST(closing_between_steps_while_others_go_on_is_told_at_once)
{
    for (uint32_t world = 2; world <= 4; world++) {
        for (uint32_t culprit = 0; culprit < world; culprit++) {
            struct world_setup setup = brief_setup(world);
            struct world_interrupt interrupt = {.rank = culprit};
            struct world_step step = {.order = WORLD_FORWARD};
            char text[64];
            uint64_t begin_ns;
            if (!real_links_takes(world)) continue;
            WORLD_OPEN(w, &setup);
            world_step_ok(&w, &step);
            begin_ns = gf_sim_now_ns(w.sim);
            world_run(&w, close_early_progress, &interrupt);
            assert_true((real_links_driver() != NULL) ||
                        (gf_sim_now_ns(w.sim) - begin_ns < DRAIN_NS + 5000000));
            (void)snprintf(text, sizeof text, "rank %u closed its context after 1 steps, and rank",
                           culprit);
            for (uint32_t rank = 0; rank < world; rank++) {
                if (rank == culprit) continue;
                expect_named(&w, rank, GF_ERR_PEER, culprit, text);
                assert_int_equal(gf_error_last(w.ranks[rank].gf)->step, 2);
            }
        }
    }
}

static void fill_infinity(struct world *w, uint32_t rank, uint32_t tensor, void *gradient,
                          void *arg)
{
    world_fill(w, rank, tensor, gradient, arg);
    if ((rank == 1) && (tensor == 0)) world_put(GF_TYPE_F32, gradient, 7, 1e38f * 1e38f);
}

/* All of them read it off one vote; whoever is first must not become the others' reason. */
TEST(the_floor_of_the_loss_scale_is_the_same_error_on_all_ranks)
{
    SIM_ONLY;
    for (uint32_t seed = 1; seed <= 20; seed++) {
        struct world_setup setup = brief_setup(5);
        struct world_step step = {.order = WORLD_ROTATED, .fill = fill_infinity};
        setup.config.loss_scale.enabled = true;
        setup.config.loss_scale.initial = 1;
        setup.sim.seed = seed;
        setup.sim.jitter_ns = 1000000; /* the control channel overtakes the vote */
        WORLD_OPEN(w, &setup);
        world_step_run(&w, &step);
        for (uint32_t rank = 0; rank < 5; rank++) world_expect_failed(&w, rank, GF_ERR_NUMERIC);
    }
}

TEST(a_rank_that_is_cut_off_is_named_and_everybody_ends)
{
    SIM_ONLY;
    for (uint32_t culprit = 0; culprit < 4; culprit++) {
        struct world_setup setup = brief_setup(4);
        WORLD(w);
        uint64_t took_ns = world_interrupted_run(&w, &setup, culprit, 2, act_cut);
        assert_true(took_ns < TIMEOUT_NS + SILENCE_NS + DRAIN_NS + 50000000);
        /* who is not where rank 0 is misses the coordinator */
        for (uint32_t rank = 0; rank < 4; rank++) {
            bool misses = (rank != 0) && ((rank == culprit) || (culprit == 0));
            expect_named(&w, rank, misses ? GF_ERR_PEER : GF_ERR_TIMEOUT,
                         misses        ? 0
                         : (rank == 0) ? ((culprit == 0) ? 1 : culprit)
                                       : culprit,
                         misses ? "the coordinator at " : NULL);
        }
    }
}

TEST(two_ranks_that_cannot_reach_each_other_end_everybody)
{
    SIM_ONLY;
    struct world_setup setup = brief_setup(4);
    setup.config.exchange.algorithm = GF_ALGORITHM_RING;
    WORLD(w);
    (void)world_interrupted_run(&w, &setup, 1, 2, act_cut_peer);
    for (uint32_t rank = 0; rank < 4; rank++) {
        world_expect_failed(&w, rank, GF_ERR_LINK);
        assert_non_null(strstr(gf_error_last(w.ranks[rank].gf)->text, "is not acknowledged"));
        /* up to where each says what it was at */
        size_t common = strcspn(gf_error_last(w.ranks[0].gf)->text, ";");
        assert_memory_equal(gf_error_last(w.ranks[rank].gf)->text,
                            gf_error_last(w.ranks[0].gf)->text, common);
    }
}

/* ---- late, not dead ---- */

static gf_status lagging_progress(struct world *w, uint32_t rank, void *arg)
{
    struct world_interrupt *interrupt = arg;
    if ((rank != interrupt->rank) || (w->ranks[rank].next < interrupt->after_tensors))
        return world_step_progress(w, rank, &interrupt->step);
    (void)gf_heartbeat(w->ranks[rank].gf);
    return (gf_error_last(w->ranks[rank].gf)->code == GF_OK)
               ? GF_AGAIN
               : gf_error_last(w->ranks[rank].gf)->code;
}

TEST(a_rank_that_never_declares_is_named_with_its_step)
{
    for (uint32_t culprit = 0; culprit < 3; culprit++) {
        struct world_setup setup = brief_setup(3);
        struct world_step step = {.order = WORLD_FORWARD};
        struct world_interrupt interrupt = {.rank = culprit, .after_tensors = 1};
        setup.config.exchange.patience_ns = 10000000;
        WORLD_OPEN(w, &setup);
        world_step_ok(&w, &step);
        world_run(&w, lagging_progress, &interrupt);
        for (uint32_t rank = 0; rank < 3; rank++) {
            expect_named(&w, rank, GF_ERR_TIMEOUT, culprit, NULL);
            assert_int_equal(gf_error_last(w.ranks[rank].gf)->step, 2);
            assert_non_null(strstr(gf_error_last(w.ranks[rank].gf)->text, "computing"));
        }
    }
}

/* ---- heartbeats ---- */

/* A rank makes the first step, calls gf_heartbeat() each 50 ms until `busy_ns` have passed, and
 * goes on. */
struct busy {
    struct world_step step;
    uint32_t rank;
    uint64_t until_ns, beat_ns;
};

static gf_status busy_progress(struct world *w, uint32_t rank, void *arg)
{
    struct busy *busy = arg;
    uint64_t now_ns = gf_sim_now_ns(w->sim);
    if ((rank != busy->rank) || (now_ns >= busy->until_ns))
        return world_step_progress(w, rank, &busy->step);
    if (now_ns < busy->beat_ns) return GF_AGAIN;
    busy->beat_ns = now_ns + TIMEOUT_NS / 4;
    gf_sim_wake_at(w->sim, rank, busy->beat_ns);
    gf_status status = gf_heartbeat(w->ranks[rank].gf);
    return (status < 0) ? status : GF_AGAIN;
}

/* Three times the timeout, each rank; a bound below that is one. */
TEST(a_heartbeat_keeps_the_others_waiting_up_to_its_bound)
{
    SIM_ONLY;
    for (uint32_t row = 0; row < 2 * 3; row++) {
        struct world_setup setup = brief_setup(3);
        struct world_step step = {.order = WORLD_FORWARD};
        struct busy busy = {.step.order = WORLD_FORWARD, .rank = row % 3};
        bool is_short = (row >= 3);
        if (is_short) setup.config.exchange.patience_ns = TIMEOUT_NS;
        WORLD_OPEN(w, &setup);
        world_step_ok(&w, &step);
        uint64_t begin_ns = gf_sim_now_ns(w.sim);
        busy.until_ns = begin_ns + (is_short ? 8 : 3) * TIMEOUT_NS;
        world_run(&w, busy_progress, &busy);
        uint64_t took_ns = gf_sim_now_ns(w.sim) - begin_ns;
        assert_true(took_ns > 2 * TIMEOUT_NS);
        if (!is_short) {
            world_expect(&w, GF_OK);
            continue;
        }
        assert_true(took_ns < 3 * TIMEOUT_NS + ANSWER_NS);
        for (uint32_t rank = 0; rank < 3; rank++)
            expect_named(&w, rank, GF_ERR_TIMEOUT, busy.rank, "computing");
        world_expect_log(&w, busy.rank, "for longer than exchange.patience");
    }
}

TEST(a_rank_that_comes_within_the_deadline_is_waited_for)
{
    SIM_ONLY;
    struct world_setup setup = brief_setup(3);
    struct world_step step = {.order = WORLD_FORWARD};
    setup.sim.faults[0] = (struct gf_sim_fault){
        .kind = GF_SIM_FAULT_STOP, .rank = 1, .at = 20, .delay_ns = TIMEOUT_NS - TIMEOUT_NS / 10};
    setup.sim.fault_count = 1;
    WORLD_OPEN(w, &setup);
    for (uint32_t i = 0; i < 3; i++) {
        world_step_ok(&w, &step);
    }
    assert_true(gf_sim_counts(w.sim)->fault_met);
}

/* ---- the end ---- */

TEST(closing_is_valid_at_any_time_and_once)
{
    SIM_ONLY;
    struct world_setup setup = brief_setup(3);
    unsigned char *memory;
    assert_int_equal(gf_close(NULL), GF_OK);
    setup.config.rendezvous.join_timeout_ns = 1000000000;
    WORLD_CREATE(w, &setup);
    assert_int_equal(gf_close(w.ranks[2].gf), GF_OK); /* before anybody is there */
    memory = (unsigned char *)w.ranks[2].gf;
    w.ranks[2].gf = NULL;
    world_join(&w);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_true(w.ranks[rank].status < 0);
        assert_true(strlen(gf_error_last(w.ranks[rank].gf)->text) > 10);
    }
    assert_int_equal(gf_close((gf_context *)(void *)memory), GF_ERR_PARAM);
}

static gf_status close_progress(struct world *w, uint32_t rank, void *arg)
{
    return gf_close_poll(w->ranks[rank].gf);
}

TEST(closing_waits_for_those_who_are_late_but_not_for_ever)
{
    SIM_ONLY;
    struct world_setup setup = brief_setup(3);
    uint64_t begin_ns;
    WORLD_OPEN(w, &setup);
    begin_ns = gf_sim_now_ns(w.sim);
    gf_sim_stop(w.sim, 1, true);
    world_run(&w, close_progress, NULL);
    assert_true(gf_sim_now_ns(w.sim) - begin_ns < SILENCE_NS + 20000000);
    /* the others would miss the coordinator if it went */
    assert_int_equal(w.ranks[0].status, GF_OK);
    world_expect_log(&w, 0, "member 1 (rank 1) has not closed and says nothing");
    assert_int_equal(w.ranks[2].status, GF_ERR_TIMEOUT);
    assert_int_equal(gf_step_begin(w.ranks[2].gf), GF_ERR_STATE);
    assert_int_equal(gf_close(w.ranks[2].gf), GF_OK); /* all have, by now */
    w.ranks[2].gf = NULL;
    gf_sim_stop(w.sim, 1, false);
}

/* It polls, and closes later. */
static gf_status one_stays_progress(struct world *w, uint32_t rank, void *arg)
{
    gf_context *gf = w->ranks[rank].gf;
    const uint64_t *late_ns = arg;
    if ((rank != 1) || (gf_sim_now_ns(w->sim) > *late_ns)) return gf_close_poll(gf);
    return (gf_heartbeat(gf) < 0) ? gf_error_last(gf)->code : GF_AGAIN;
}

/* Who has closed ends alone after exchange.timeout, but where the coordinator runs all are waited
 * for. */
TEST(who_closes_late_ends_well)
{
    SIM_ONLY;
    struct world_setup setup = brief_setup(3);
    setup.config.exchange.patience_ns = 10000000;
    setup.config.exchange.timeout_ns = UINT64_C(3000000000); /* WAITING comes each second */
    WORLD_OPEN(w, &setup);
    uint64_t late_ns = gf_sim_now_ns(w.sim) + 2 * SILENCE_NS;
    world_run(&w, one_stays_progress, &late_ns);
    assert_int_equal(w.ranks[0].status, GF_OK);
    assert_int_equal(w.ranks[1].status, GF_OK);
    world_expect_log(&w, 0,
                     "in whose process the coordinator runs, waits for them: rank 1 is in step ");
    assert_int_equal(gf_close(w.ranks[2].gf), GF_OK); /* all have, by now */
    w.ranks[2].gf = NULL;
}

/* ---- gone before what it had sent arrived ---- */

struct last_words {
    struct gf_request requests[3];
    float values[3][4];
    bool posted[3], ended[3], killed;
    uint64_t leaves_ns; /* rank 2 has said that it leaves */
};

/* Rank 2 sends to both, leaves, and dies while its message to rank 1 is still on the way. */
static gf_status last_words_progress(struct world *w, uint32_t rank, void *arg)
{
    struct last_words *all = arg;
    gf_context *gf = w->ranks[rank].gf;
    gf_status status;
    if (!all->posted[rank]) {
        status = gf_broadcast(gf, (gf_mem)(uintptr_t)all->values[rank], 4, GF_TYPE_F32, 2,
                              &all->requests[rank]);
        all->posted[rank] = status == GF_OK;
        return (status < 0) ? status : GF_AGAIN;
    }
    status = all->ended[rank] ? gf_close_poll(gf) : gf_request_poll(gf, &all->requests[rank]);
    if (!all->ended[rank] && (status == GF_OK)) {
        all->ended[rank] = true;
        status = GF_AGAIN;
    }
    if ((all->leaves_ns == 0) && (w->ranks[2].gf->phase == GF_PHASE_LEAVE))
        all->leaves_ns = gf_sim_now_ns(w->sim);
    if ((rank == 0) && !all->killed && (all->leaves_ns != 0) &&
        (gf_sim_now_ns(w->sim) > all->leaves_ns + 1000000)) {
        gf_sim_kill(w->sim, 2);
        all->killed = true;
    }
    return status;
}

TEST(who_dies_behind_its_last_word_is_named_by_those_who_wait_for_it)
{
    SIM_ONLY;
    struct world_setup setup = brief_setup(3);
    struct last_words all = {.killed = false};
    WORLD_OPEN(w, &setup);
    gf_sim_partition(w.sim, 2, 1, true);
    world_run(&w, last_words_progress, &all);
    assert_true(all.killed);
    expect_named(&w, 1, GF_ERR_PEER, 2, NULL);
    assert_int_equal(w.ranks[0].status, GF_OK); /* it had closed */
    assert_int_equal(gf_regroup_begin(w.ranks[0].gf), GF_ERR_STATE);
}
