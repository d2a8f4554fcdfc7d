/* Ranks that die, stop, are cut off, give up or lag in the middle of a step: every rank that lives
 * ends with an error that names who it was, within its deadline, and nothing is left under way. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world_setups.h"

/* nobody is at fault: all are asked again and again first (lib/control/rounds.c) */
#define LOOKS_NS UINT64_C(2000000000)
#define HEALTHY_NS UINT64_C(50000000) /* such a job without a fault ends within this */
#define POSTS_MAX 400u

static const struct fault_case {
    const char *name;
    gf_sim_fault_kind kind;
    uint64_t within_ns; /* of the fault the survivors have failed */
    bool named;         /* and say who it was */
    uint64_t creep_ns;  /* of each look at the clock: what fails in a turn is later than the turn */
    uint32_t worlds;    /* of 2 to so many ranks */
    const char *unsaid; /* NULL, or what nobody may say */
} fault_cases[] = {
    {"kill", GF_SIM_FAULT_KILL, DETECT_NS + DRAIN_NS + TIMEOUT_NS, true, 0, 5, NULL},
    {"stop", GF_SIM_FAULT_STOP, TIMEOUT_NS + ANSWER_NS + DRAIN_NS, true, 0, 5, NULL},
    {"drop", GF_SIM_FAULT_DROP, TIMEOUT_NS + LOOKS_NS + DRAIN_NS, false, 0, 4, NULL},
    {"error", GF_SIM_FAULT_ERROR, ANSWER_NS + DRAIN_NS, false, 0, 4, NULL},
    {"short", GF_SIM_FAULT_SHORT, TIMEOUT_NS + ANSWER_NS + DRAIN_NS, false, 0, 4, NULL},
    {"error, clock creeps", GF_SIM_FAULT_ERROR, ANSWER_NS + DRAIN_NS, false, 7, 4,
     "coordinator at"},
    /* The control channel is prompt, one message is not, as where a network was gone for a
     * moment. */
    {"late", GF_SIM_FAULT_DELAY, TIMEOUT_NS + LOOKS_NS + DRAIN_NS, false, 0, 4, "broken"},
};

/* Joins, makes STEPS steps, and shows signs of life until all that live are as far. */
#define STEPS 2u
struct journey {
    struct world_step step;
    uint32_t stage[8];
    bool ended[8];
};

static gf_status journey_progress(struct world *w, uint32_t rank, void *arg)
{
    struct journey *journey = arg;
    gf_context *gf = w->ranks[rank].gf;
    gf_status status;
    bool all = true;
    if (journey->stage[rank] > STEPS) {
        if ((status = gf_heartbeat(gf)) != GF_OK) return status;
        for (uint32_t r = 0; r < w->world; r++)
            all = all && (journey->ended[r] || !gf_sim_runs(w->sim, r));
        return all ? GF_OK : GF_AGAIN;
    }
    status = (journey->stage[rank] == 0) ? gf_open_poll(gf)
                                         : world_step_progress(w, rank, &journey->step);
    if (status == GF_OK) {
        journey->stage[rank]++;
        w->ranks[rank].next = 0;
    }
    journey->ended[rank] = (status < 0) || (journey->stage[rank] > STEPS);
    return (status == GF_OK) ? GF_AGAIN : status;
}

/* Two steps with a fault at the at-th post of `rank`; false: it was not met. */
static bool run_with_fault(const struct fault_case *c, uint32_t world, uint32_t rank, uint64_t at,
                           uint32_t seed)
{
    struct world_setup setup = brief_setup(world);
    struct journey journey = {.step.order = WORLD_ROTATED};
    struct world w;
    uint64_t begin_ns;
    bool met;
    setup.sim.seed = seed;
    setup.sim.faults[0] = (struct gf_sim_fault){
        .kind = c->kind, .rank = rank, .at = at, .delay_ns = UINT64_C(100000000000)};
    setup.sim.fault_count = 1;
    world_create(&w, &setup);
    w.creep_ns = c->creep_ns;
    begin_ns = gf_sim_now_ns(w.sim);
    world_run(&w, journey_progress, &journey);
    met = gf_sim_counts(w.sim)->fault_met;
    for (uint32_t r = 0; r < world; r++) {
        gf_status status = w.ranks[r].status;
        bool runs = gf_sim_runs(w.sim, r);
        if (!runs) continue;
        /* A dropped send may be one that nobody waits for any more, and a rank may be done before
         * another fails. */
        if (!met || (status == GF_OK)) {
            if (status != GF_OK)
                fail_msg("%s at %u, rank %u: %s", c->name, (unsigned)at, r, w.ranks[r].log);
            continue;
        }
        world_expect_failed(&w, r, status);
        if ((c->unsaid != NULL) && world_logged(&w, r, c->unsaid))
            fail_msg("%s at %u, rank %u: %s", c->name, (unsigned)at, r, w.ranks[r].log);
        if (c->named && (gf_error_last(w.ranks[r].gf)->peer != rank))
            fail_msg("%s of rank %u at post %u: rank %u names %d: %s", c->name, rank, (unsigned)at,
                     r, (int)gf_error_last(w.ranks[r].gf)->peer, w.ranks[r].log);
    }
    /* the coordinator is in rank 0's process */
    uint64_t silent_ns = ((rank == 0) && (c->kind == GF_SIM_FAULT_STOP)) ? SILENCE_NS : 0;
    if (met) assert_true(gf_sim_now_ns(w.sim) - begin_ns <= c->within_ns + silent_ns + HEALTHY_NS);
    world_close(&w);
    return met;
}

TEST(a_fault_at_any_post_ends_the_step_on_all_ranks)
{
    for (size_t i = 0; i < LENGTH(fault_cases); i++)
        for (uint32_t world = 2; world <= fault_cases[i].worlds; world++)
            for (uint32_t rank = 0; rank < world; rank++) {
                /* of many ranks each third post, begun elsewhere for each rank */
                const uint32_t stride = (world > 3) ? 3 : 1;
                const uint32_t first = 1 + rank % stride;
                uint32_t at = first;
                while ((at < POSTS_MAX) &&
                       run_with_fault(&fault_cases[i], world, rank, at, at + rank))
                    at += stride;
                /* met at least once, and at last no more */
                assert_true((at > first) && (at < POSTS_MAX));
            }
}

/* Each tensor travels by itself, and the ranks compute between them: the link fails while tensors
 * are still to be declared. */
static gf_status slow_backward(struct world *w, uint32_t rank, void *arg)
{
    struct journey *journey = arg;
    gf_status status = (journey->stage[rank] == 0) ? gf_open_poll(w->ranks[rank].gf)
                                                   : world_step_progress(w, rank, &journey->step);
    if (status != GF_OK) return status;
    journey->stage[rank]++;
    w->ranks[rank].next = 0;
    return (journey->stage[rank] > STEPS) ? GF_OK : GF_AGAIN;
}

TEST(who_declares_tensors_while_a_step_fails_hears_the_culprit_first)
{
    static struct gf_tensor many[24];
    uint64_t at = 1;
    for (size_t i = 0; i < LENGTH(many); i++)
        many[i] = (struct gf_tensor){.name = "layer", .elem_count = 600};
    for (bool met = true; met && (at < POSTS_MAX); at += 7) {
        struct world_setup setup = brief_setup(3);
        struct journey journey = {.step = {.pause_ns = UINT64_C(200000)}};
        setup.tensors = many;
        setup.tensor_count = LENGTH(many);
        setup.config.exchange.fuse_bytes = 1;
        setup.sim.faults[0] =
            (struct gf_sim_fault){.kind = GF_SIM_FAULT_ERROR, .rank = 1, .at = at};
        setup.sim.fault_count = 1;
        WORLD_CREATE(w, &setup);
        world_run(&w, slow_backward, &journey); /* world_step_progress() looks at each error */
        met = gf_sim_counts(w.sim)->fault_met;
    }
    assert_true(at > 8);
}

TEST(what_a_link_may_do_changes_nothing)
{
    static const gf_sim_fault_kind kinds[] = {GF_SIM_FAULT_FULL, GF_SIM_FAULT_DUPLICATE,
                                              GF_SIM_FAULT_DELAY};
    for (size_t k = 0; k < LENGTH(kinds); k++) {
        uint64_t at = 1;
        bool met = true;
        for (; met && (at < POSTS_MAX); at++) {
            struct world_setup setup = brief_setup(3);
            struct journey journey = {.step.order = WORLD_ROTATED};
            setup.sim.faults[0] =
                (struct gf_sim_fault){.kind = kinds[k], .rank = 1, .at = at, .delay_ns = 10000000};
            setup.sim.fault_count = 1;
            WORLD_CREATE(w, &setup);
            world_run(&w, journey_progress, &journey);
            world_expect(&w, GF_OK);
            world_expect_equal(&w);
            for (uint64_t e = 0; e < brief[0].elem_count; e++)
                assert_true(world_get(GF_TYPE_F32, world_gradient(&w, 2, 0), e) ==
                            world_value(0, 0, e) + world_value(1, 0, e) + world_value(2, 0, e));
            met = gf_sim_counts(w.sim)->fault_met;
        }
        assert_true((at > 2) && !met);
    }
}
