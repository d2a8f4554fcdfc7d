/* What a job is, drawn from its seed: worlds and tensors small, so that many fit into a second, and
 * now and then larger; of seeds with SOAK_SMALL smaller still. */
#include "firmware-tests/soak/soak_dice.h"

#include <string.h>

#define MS UINT64_C(1000000)

static void draw_world(struct soak_plan *plan, struct dice *dice)
{
    struct gf_sim_setup *sim = &plan->setup.sim;
    static const uint32_t most[2][10] = {{3, 4, 5, 5, 8, 8, 8, 12, SOAK_RANKS_MAX, SOAK_RANKS_MAX},
                                         {2, 3, 3, 4, 4, 5, 5, 6, 8, 9}};
    plan->setup.world = between(dice, percent(dice, 5) ? 1 : 2, most[plan->small][below(dice, 10)]);
    sim->seed = roll(dice);
    sim->latency_ns = between(dice, 1000, 20000);
    sim->jitter_ns = percent(dice, 70) ? between(dice, 0, 100000) : 0;
    sim->bytes_per_ns = percent(dice, 70) ? 0.1 * (double)between(dice, 1, 100) : 0;
    sim->message_ns = between(dice, 0, 500);
    sim->detect_ns = time_between(dice, MS, 50 * MS);
    sim->bind_receives = percent(dice, 60);
    if (percent(dice, 30)) {
        sim->ranks_per_node = percent(dice, 60) ? plan->setup.world : between(dice, 2, 4);
        sim->node_latency_ns = between(dice, 100, 2000);
    }
}

static uint64_t draw_elems(struct dice *dice, const struct soak_plan *plan)
{
    if (percent(dice, 5)) return 0;
    if (plan->large && percent(dice, 20)) return between(dice, 5000, SOAK_ELEMS_MAX);
    if (plan->small && percent(dice, 50)) return between(dice, 1, 20);
    if (plan->small) return percent(dice, 93) ? between(dice, 20, 150) : between(dice, 150, 2500);
    if (percent(dice, 45)) return between(dice, 1, 20);
    return percent(dice, 80) ? between(dice, 20, 400) : between(dice, 400, 2500);
}

static void draw_tensors(struct soak_plan *plan, struct dice *dice)
{
    bool mixed = percent(dice, 40);
    gf_type type = percent(dice, 60) ? GF_TYPE_F32 : (gf_type)below(dice, GF_TYPE_COUNT);
    plan->setup.tensor_count = between(dice, 1,
                                       percent(dice, 50) ? 4
                                       : plan->small     ? 6
                                                         : SOAK_TENSORS_MAX);
    for (uint32_t i = 0; i < plan->setup.tensor_count; i++) {
        struct gf_tensor *tensor = &plan->tensors[i];
        bool dense = percent(dice, 25);
        (void)snprintf(plan->names[i], sizeof plan->names[i], "t%u", i);
        *tensor = (struct gf_tensor){
            .name = plan->names[i], .elem_count = draw_elems(dice, plan), .type = type};
        if (dense) tensor->flags |= GF_TENSOR_DENSE;
        if (percent(dice, 25)) tensor->flags |= GF_TENSOR_NO_DECAY;
        /* sparse ones share a type */
        if (mixed && dense) tensor->type = (gf_type)below(dice, GF_TYPE_COUNT);
    }
    plan->setup.tensors = plan->tensors;
}

static void draw_exchange(struct soak_plan *plan, struct dice *dice)
{
    static const gf_algorithm algorithms[] = {
        GF_ALGORITHM_AUTO,    GF_ALGORITHM_AUTO,     GF_ALGORITHM_RING, GF_ALGORITHM_RING,
        GF_ALGORITHM_HALVING, GF_ALGORITHM_DOUBLING, GF_ALGORITHM_TREE, GF_ALGORITHM_SERVER};
    _Static_assert(GF_ALGORITHM_COUNT == 8,
                   "a new algorithm is drawn here, too: its seeds then make other jobs");
    struct gf_config *config = &plan->setup.config;
    config->link.window = between(dice, 1, 8);
    config->exchange.wire = percent(dice, 50) ? GF_TYPE_F32 : (gf_type)below(dice, GF_TYPE_COUNT);
    config->exchange.algorithm = algorithms[below(dice, 8)];
    config->exchange.fuse_bytes = percent(dice, 20) ? 1 : between(dice, 16, 20000);
    config->exchange.slice_bytes = 4096 + 64 * below(dice, 128);
    config->exchange.buffers_active = between(dice, 1, 6);
    if ((plan->setup.sim.ranks_per_node > 1) && percent(dice, 40)) {
        bool all = plan->setup.sim.ranks_per_node >= plan->setup.world;
        config->exchange.algorithm =
            all && percent(dice, 70) ? GF_ALGORITHM_DIRECT : GF_ALGORITHM_HIERARCHY;
    }
    config->exchange.deterministic = (config->exchange.algorithm != GF_ALGORITHM_RING) &&
                                     (config->exchange.algorithm != GF_ALGORITHM_HIERARCHY) &&
                                     percent(dice, 25);
    config->exchange.average = (gf_average)below(dice, 3);
    config->exchange.pre_scale = percent(dice, 30) ? (float)(1 << below(dice, 9)) / 16.0f : 0;
    config->exchange.timeout_ns = time_between(dice, 60 * MS, 400 * MS);
    config->exchange.doubling_max_bytes = percent(dice, 50) ? between(dice, 1, 4096) : 0;
    config->exchange.halving_max_bytes = percent(dice, 50) ? between(dice, 4096, 16384) : 0;
    config->exchange.user_bytes = percent(dice, 50) ? between(dice, 64, 8192) : 0;
    config->rendezvous.join_timeout_ns = 1000 * MS;
    config->trace_records = between(dice, 1, 64);
}

static void draw_optimizer(struct soak_plan *plan, struct dice *dice)
{
    struct gf_config *config = &plan->setup.config;
    config->optimizer.kind = (gf_optimizer)below(dice, 3);
    if (config->optimizer.kind == GF_OPTIMIZER_NONE) return;
    config->optimizer.momentum = percent(dice, 60) ? 0.1f * (float)between(dice, 1, 9) : 0;
    config->optimizer.weight_decay = percent(dice, 40) ? 0.001f * (float)between(dice, 1, 100) : 0;
    config->optimizer.nesterov = (config->optimizer.momentum > 0) && percent(dice, 30);
    config->optimizer.half_weights =
        percent(dice, 40) ? (gf_type)below(dice, GF_TYPE_COUNT) : GF_TYPE_F32;
    plan->rate = 0.01f * (float)between(dice, 0, 50);
}

static void draw_sparse(struct soak_plan *plan, struct dice *dice)
{
    struct gf_config *config = &plan->setup.config;
    config->sparse.enabled = percent(dice, 40);
    if (!config->sparse.enabled) return;
    uint32_t most = plan->small ? 100 : 700;
    config->sparse.chunk_elems = percent(dice, 30) ? between(dice, 8, 32) : between(dice, 32, most);
    if (plan->large) config->sparse.chunk_elems *= 16;
    config->sparse.keep_share = 0.01f * (float)between(dice, 1, 100);
    config->sparse.warmup_steps = below(dice, 3);
    config->sparse.ramp_steps = below(dice, 4);
    if ((config->optimizer.kind == GF_OPTIMIZER_SGD) && !config->optimizer.nesterov)
        config->sparse.momentum = (gf_sparse_momentum)below(dice, 2);
}

static void draw_scale(struct soak_plan *plan, struct dice *dice)
{
    struct gf_config *config = &plan->setup.config;
    config->loss_scale.enabled = percent(dice, 40);
    if (!config->loss_scale.enabled) return;
    config->loss_scale.initial =
        (float)(1u << (percent(dice, 50) ? below(dice, 14) : 10 + below(dice, 6)));
    config->loss_scale.growth_interval = between(dice, 1, 4);
    config->loss_scale.factor = percent(dice, 70) ? 2.0f : 16.0f;
    config->loss_scale.hysteresis = between(dice, 1, 2);
    config->loss_scale.floor = 0x1p-10f;
}

static void draw_appliance(struct soak_plan *plan, struct dice *dice)
{
    plan->steps = between(dice, 1, (plan->small && percent(dice, 80)) ? 3 : 8);
    plan->passes = 1u << (percent(dice, 70) ? 0 : below(dice, 3));
    plan->noise = percent(dice, 25);
    plan->order = (world_order)below(dice, WORLD_ORDER_COUNT);
    plan->skip_percent = percent(dice, 30) ? between(dice, 1, 60) : 0;
    plan->bad_permille = percent(dice, 20) ? between(dice, 10, 200) : 0;
    plan->request_percent = percent(dice, 40) ? 60 : 0;
    plan->heartbeat_percent = percent(dice, 40) ? 30 : 0;
    plan->save_percent = percent(dice, 20) ? 40 : 0;
    plan->linger_percent = percent(dice, 50) ? 50 : 0;
    plan->pause_ns = percent(dice, 40) ? time_between(dice, 1000, 2 * MS) : 0;
    /* A tensor that one rank declares first and another last keeps that one waiting for the whole
     * pass: a deadline that is shorter would be met in good health. A turn takes a millisecond
     * where everybody computes. */
    uint64_t pass_ns = plan->setup.tensor_count * (plan->pause_ns + (plan->passes + 1) * MS);
    if (plan->setup.config.exchange.timeout_ns < 2 * pass_ns)
        plan->setup.config.exchange.timeout_ns = 2 * pass_ns;
}

/* ---- what goes wrong ---- */

/* A rank makes some posts in opening and some dozens in a step: mostly met, sometimes not. */
static uint64_t draw_post(struct dice *dice)
{
    return between(dice, 1, percent(dice, 60) ? 150 : percent(dice, 50) ? 400 : 1200);
}

static void add_fault(struct soak_plan *plan, gf_sim_fault_kind kind, uint32_t rank, uint64_t at,
                      uint64_t delay_ns)
{
    struct gf_sim_setup *sim = &plan->setup.sim;
    sim->faults[sim->fault_count++] =
        (struct gf_sim_fault){.kind = kind, .rank = rank, .at = at, .delay_ns = delay_ns};
}

static struct soak_act *add_act(struct soak_plan *plan, struct dice *dice, soak_act_kind kind)
{
    struct soak_act *act = &plan->acts[plan->act_count++];
    *act = (struct soak_act){.kind = kind,
                             .rank = below(dice, plan->setup.world),
                             .turn = between(dice, 1, percent(dice, 50) ? 60 : 500)};
    if (kind != SOAK_ACT_CUT) return act;
    if (percent(dice, 50))
        act->others = ~0u; /* alone on its side */
    else if (percent(dice, 50))
        act->others = 1u << below(dice, SOAK_RANKS_MAX);
    else
        act->others = (uint32_t)roll(dice);
    return act;
}

/* Nothing that a link or a machine may not do: everybody ends well. Each takes a small part of the
 * deadline. */
static void draw_harmless(struct soak_plan *plan, struct dice *dice)
{
    uint64_t most_ns = plan->setup.config.exchange.timeout_ns / 8;
    plan->what = "harmless";
    for (uint32_t i = between(dice, 1, 3); i > 0; i--) {
        uint32_t rank = below(dice, plan->setup.world);
        switch (below(dice, 5)) {
        case 0: add_fault(plan, GF_SIM_FAULT_FULL, rank, draw_post(dice), 0); break;
        case 1: add_fault(plan, GF_SIM_FAULT_DUPLICATE, rank, draw_post(dice), 0); break;
        case 2:
            add_fault(plan, GF_SIM_FAULT_DELAY, rank, draw_post(dice),
                      time_between(dice, 1, most_ns));
            break;
        case 3:
            add_act(plan, dice, SOAK_ACT_STOP)->delay_ns = time_between(dice, 1, most_ns);
            break;
        case 4: add_act(plan, dice, SOAK_ACT_CUT)->delay_ns = time_between(dice, 1, most_ns); break;
        }
    }
    if (percent(dice, 30)) plan->setup.sim.duplicate_rate = 0.001 * (double)between(dice, 1, 200);
}

/* One fault of which it is promised what everybody says. */
static void draw_one(struct soak_plan *plan, struct dice *dice)
{
    static const struct one {
        const char *what;
        bool is_act;
        int kind; /* soak_act_kind or gf_sim_fault_kind */
        soak_hope hope;
        const char *says;
    } all[] = {
        {"kill", false, GF_SIM_FAULT_KILL, SOAK_HOPE_NAMED, NULL},
        {"kill", true, SOAK_ACT_KILL, SOAK_HOPE_NAMED, NULL},
        {"stop", true, SOAK_ACT_STOP, SOAK_HOPE_NAMED, NULL},
        {"cut", true, SOAK_ACT_CUT, SOAK_HOPE_NAMED, NULL},
        {"abort", true, SOAK_ACT_ABORT, SOAK_HOPE_NAMED, NULL},
        {"close", true, SOAK_ACT_CLOSE, SOAK_HOPE_NAMED, NULL},
        {"drop", false, GF_SIM_FAULT_DROP, SOAK_HOPE_AGREED, NULL},
        {"error", false, GF_SIM_FAULT_ERROR, SOAK_HOPE_AGREED, NULL},
        {"short", false, GF_SIM_FAULT_SHORT, SOAK_HOPE_TOLD, "bytes with tag"},
    };
    const struct one *one = &all[below(dice, sizeof all / sizeof all[0])];
    plan->what = one->what;
    plan->hope = one->hope;
    plan->culprit = below(dice, plan->setup.world);
    plan->says = one->says;
    if (one->is_act) {
        struct soak_act *act = add_act(plan, dice, (soak_act_kind)one->kind);
        plan->culprit = act->rank;
        act->others = ~0u; /* of a cut */
        if ((act->kind != SOAK_ACT_KILL) && percent(dice, 40))
            act->delay_ns =
                10 * plan->setup.config.exchange.timeout_ns + SOAK_SILENCE_NS; /* and back */
    } else {
        add_fault(plan, (gf_sim_fault_kind)one->kind, plan->culprit, draw_post(dice), 0);
    }
}

/* A job that goes on without the dead, and with them once they are started again. */
static void draw_elastic(struct soak_plan *plan, struct dice *dice)
{
    static const gf_sim_fault_kind kinds[] = {
        GF_SIM_FAULT_FULL,  GF_SIM_FAULT_ERROR, GF_SIM_FAULT_DROP, GF_SIM_FAULT_DUPLICATE,
        GF_SIM_FAULT_DELAY, GF_SIM_FAULT_KILL,  GF_SIM_FAULT_STOP};
    uint64_t timeout_ns = plan->setup.config.exchange.timeout_ns;
    bool one = percent(dice, 50);
    plan->elastic = plan->setup.config.job.elastic = true;
    plan->what = one ? "elastic one" : "elastic";
    plan->hope = one ? SOAK_HOPE_ON : SOAK_HOPE_ENDED;
    plan->steps = between(dice, plan->small ? 2 : 3, plan->small ? 5 : 12);
    plan->setup.config.rendezvous.join_timeout_ns = time_between(dice, 6000 * MS, 12000 * MS);
    for (uint32_t i = one ? 1 : between(dice, 1, SOAK_ACTS_MAX); i > 0; i--) {
        static const soak_act_kind kinds_act[] = {SOAK_ACT_KILL, SOAK_ACT_KILL, SOAK_ACT_KILL,
                                                  SOAK_ACT_STOP, SOAK_ACT_CUT};
        struct soak_act *act = add_act(plan, dice, one ? SOAK_ACT_KILL : kinds_act[below(dice, 5)]);
        act->turn += 20; /* seldom while they join for the first time */
        if (percent(dice, 60))
            act->delay_ns = time_between(dice, 1, percent(dice, 50) ? 20 * MS : 4 * timeout_ns);
        if (one) plan->culprit = act->rank;
    }
    for (uint32_t i = (one || percent(dice, 60)) ? 0 : between(dice, 1, 2); i > 0; i--)
        add_fault(plan, kinds[below(dice, 7)], below(dice, plan->setup.world), draw_post(dice),
                  time_between(dice, 1, 4 * timeout_ns));
    if (percent(dice, 20)) plan->setup.sim.duplicate_rate = 0.001 * (double)between(dice, 1, 200);
}

/* Anything, together. */
static void draw_many(struct soak_plan *plan, struct dice *dice)
{
    static const gf_sim_fault_kind kinds[] = {
        GF_SIM_FAULT_FULL,  GF_SIM_FAULT_ERROR, GF_SIM_FAULT_DROP, GF_SIM_FAULT_DUPLICATE,
        GF_SIM_FAULT_DELAY, GF_SIM_FAULT_SHORT, GF_SIM_FAULT_KILL, GF_SIM_FAULT_STOP};
    uint64_t timeout_ns = plan->setup.config.exchange.timeout_ns;
    plan->hope = SOAK_HOPE_ENDED;
    plan->what = "many";
    for (uint32_t i = between(dice, 0, 4); i > 0; i--) {
        gf_sim_fault_kind kind = kinds[below(dice, 8)];
        add_fault(plan, kind, below(dice, plan->setup.world), draw_post(dice),
                  time_between(dice, 1, 4 * timeout_ns));
    }
    for (uint32_t i = between(dice, 1, SOAK_ACTS_MAX); i > 0; i--) {
        struct soak_act *act = add_act(plan, dice, (soak_act_kind)below(dice, SOAK_ACT_DRAWN));
        act->delay_ns = percent(dice, 50) ? time_between(dice, 1, 4 * timeout_ns) : 0;
        if (act->kind == SOAK_ACT_KILL) act->delay_ns = 0;
    }
    plan->lossy = percent(dice, 30);
    if (plan->lossy) plan->setup.sim.drop_rate = 0.0001 * (double)between(dice, 1, 100);
    if (percent(dice, 20)) plan->setup.sim.duplicate_rate = 0.001 * (double)between(dice, 1, 200);
}

void soak_plan_draw(struct soak_plan *plan, uint64_t seed)
{
    struct dice dice = {.state = seed};
    *plan = (struct soak_plan){.seed = seed, .culprit = GF_RANK_NONE, .what = "none"};
    plan->small = (seed & SOAK_SMALL) != 0;
    plan->large = percent(&dice, 3) && !plan->small;
    draw_world(plan, &dice);
    draw_tensors(plan, &dice);
    draw_exchange(plan, &dice);
    draw_optimizer(plan, &dice);
    draw_sparse(plan, &dice);
    draw_scale(plan, &dice);
    draw_appliance(plan, &dice);
    switch (below(&dice, 12)) {
    case 0:
    case 1:
    case 2: break;
    case 3:
    case 4: draw_harmless(plan, &dice); break;
    case 5:
    case 6:
    case 7: draw_one(plan, &dice); break;
    case 8:
    case 9:
    case 10: draw_elastic(plan, &dice); break;
    default: draw_many(plan, &dice); break;
    }
    /* The scale may reach its floor only where nothing else is expected to go wrong. */
    if ((plan->hope == SOAK_HOPE_OK) && percent(&dice, 20)) plan->setup.config.loss_scale.floor = 0;
    plan->setup.config.exchange.cut_bytes = percent(&dice, 50) ? between(&dice, 4096, 16384) : 0;
    soak_plan_draw_more(plan);
}

void soak_plan_print(const struct soak_plan *plan, FILE *to)
{
    static const char *const acts[SOAK_ACT_COUNT] = {"kill",  "stop",  "cut",
                                                     "abort", "close", "grow"};
    static const char *const faults[GF_SIM_FAULT_STOP + 1] = {
        "none", "again", "error", "drop", "duplicate", "delay", "short", "kill", "stop"};
    _Static_assert(SOAK_ACT_COUNT == 6, "each act has a name");
    char summary[512];
    const struct gf_sim_setup *sim = &plan->setup.sim;
    if (plan->setup.gpu != NULL)
        (void)fprintf(to, "on a device, ranks 0x%llx to the wire; ",
                      (unsigned long long)sim->device_ranks);
    if (plan->ids > plan->setup.world) (void)fprintf(to, "grows to %u at most; ", plan->ids);
    if (plan->setup.separate) (void)fprintf(to, "a coordinator of its own; ");
    if (plan->setup.config.pool_order != NULL) (void)fprintf(to, "tensors lie in another order; ");
    if (plan->leaver != GF_RANK_NONE)
        (void)fprintf(to, "rank %u leaves after step %llu; ", plan->leaver,
                      (unsigned long long)plan->leave_step);
    (void)fprintf(to, "seed 0x%016llx: %u ranks, %u steps, %s, %s, window %u, timeout %.0f ms\n",
                  (unsigned long long)plan->seed, plan->setup.world, plan->steps,
                  plan->noise ? "noise" : "whole numbers", plan->what,
                  plan->setup.config.link.window,
                  (double)plan->setup.config.exchange.timeout_ns * 1e-6);
    (void)fprintf(to, "  config: %s\n",
                  gf_config_summary(&plan->setup.config, summary, sizeof summary));
    for (uint32_t i = 0; i < plan->setup.tensor_count; i++)
        (void)fprintf(to, "  tensor %u: %llu of type %d, flags %u\n", i,
                      (unsigned long long)plan->tensors[i].elem_count, (int)plan->tensors[i].type,
                      plan->tensors[i].flags);
    for (uint32_t i = 0; i < sim->fault_count; i++)
        (void)fprintf(to, "  post %llu of rank %u: %s, %.3f ms\n",
                      (unsigned long long)sim->faults[i].at, sim->faults[i].rank,
                      faults[sim->faults[i].kind], (double)sim->faults[i].delay_ns * 1e-6);
    for (uint32_t i = 0; i < plan->act_count; i++)
        (void)fprintf(to, "  turn %llu of rank %u: %s, %.3f ms, others 0x%x\n",
                      (unsigned long long)plan->acts[i].turn, plan->acts[i].rank,
                      acts[plan->acts[i].kind], (double)plan->acts[i].delay_ns * 1e-6,
                      plan->acts[i].others);
    if ((sim->drop_rate > 0) || (sim->duplicate_rate > 0))
        (void)fprintf(to, "  of messages %.2f %% are lost, %.2f %% come twice\n",
                      100 * sim->drop_rate, 100 * sim->duplicate_rate);
}
