/* Parts of the plan that each have dice of their own, so that a seed keeps its job when another
 * part is added: devices, where the coordinator runs, growth, leaving, AdamW and clipping. */
#include "firmware-tests/soak/soak_dice.h"

#define MS UINT64_C(1000000)
/* at a look: deadlines are short, and a rank may look but once a millisecond */
#define SOAK_DEVICE_WORKS 40u

/* Gradients on a device, whose messages go through host memory on some ranks and straight to the
 * wire on others. Drawn for itself: what else a seed is it stays. */
static void draw_device(struct soak_plan *plan)
{
    struct dice dice = {.state = plan->seed ^ UINT64_C(0xd3f1ce0000000000)};
    if (!percent(&dice, 30)) return;
    plan->setup.gpu = &late_gpu;
    (void)snprintf(plan->setup.config.device.driver, sizeof plan->setup.config.device.driver, "%s",
                   late_gpu.name);
    plan->setup.sim.device_ranks = percent(&dice, 60) ? UINT64_MAX : roll(&dice);
    late_gpu_most = SOAK_DEVICE_WORKS;
}

/* Drawn for itself, too. */
static void draw_coordinator(struct soak_plan *plan)
{
    struct dice dice = {.state = plan->seed ^ UINT64_C(0x701d000000000000)};
    plan->setup.separate = percent(&dice, plan->elastic ? 75 : 25);
}

/* The job grows, beside whatever else befalls it or with nothing else; a new process may die like
 * any other. */
static void draw_growth(struct soak_plan *plan)
{
    struct dice dice = {.state = plan->seed ^ UINT64_C(0x0094000000000000)};
    struct gf_sim_setup *sim = &plan->setup.sim;
    uint32_t world = plan->setup.world;
    uint32_t room = SOAK_RANKS_MAX - world;
    uint32_t count;
    plan->ids = world;
    if (!plan->elastic || (room == 0) || !percent(&dice, 40)) return;
    count = between(&dice, 1, (room < SOAK_GROWTH_MAX) ? room : SOAK_GROWTH_MAX);
    plan->ids = plan->setup.config.job.world_max = world + count;
    if ((plan->setup.config.exchange.algorithm == GF_ALGORITHM_DIRECT) &&
        (sim->ranks_per_node < plan->ids))
        sim->ranks_per_node = plan->ids; /* it knows one node only */
    if ((plan->hope == SOAK_HOPE_ON) && percent(&dice, 50)) {
        plan->what = "growth";
        plan->act_count = 0;
        plan->culprit = GF_RANK_NONE;
    }
    for (uint32_t i = 0; i < count; i++)
        plan->acts[plan->act_count++] =
            (struct soak_act){.kind = SOAK_ACT_GROW,
                              .rank = below(&dice, world),
                              .others = 1u << (world + i),
                              .turn = 20 + between(&dice, 1, percent(&dice, 50) ? 60 : 500)};
    if ((plan->hope == SOAK_HOPE_ON) || percent(&dice, 70)) return;
    plan->acts[plan->act_count++] =
        (struct soak_act){.kind = SOAK_ACT_KILL,
                          .rank = world + below(&dice, count),
                          .turn = between(&dice, 1, 200),
                          .delay_ns = percent(&dice, 60) ? time_between(&dice, 1, 100 * MS) : 0};
}

/* A rank leaves on purpose, beside whatever else befalls the job. Who hosts the coordinator does
 * not. */
static void draw_leave(struct soak_plan *plan)
{
    struct dice dice = {.state = plan->seed ^ UINT64_C(0x1ea4e00000000000)};
    plan->leaver = GF_RANK_NONE;
    if (!plan->elastic || (plan->setup.world < 2) || !percent(&dice, 40)) return;
    plan->leaver = below(&dice, plan->setup.world);
    if ((plan->leaver == 0) && !plan->setup.separate) plan->leaver = 1;
    plan->leave_step = between(&dice, 1, plan->steps);
    plan->hope = SOAK_HOPE_ENDED;
}

/* AdamW, which knows dense steps only; and clipping, of any rule. */
static void draw_rules(struct soak_plan *plan)
{
    struct dice dice = {.state = plan->seed ^ UINT64_C(0x1db2000000000000)};
    struct gf_config *config = &plan->setup.config;
    if (config->optimizer.kind == GF_OPTIMIZER_NONE) return;
    if (percent(&dice, 25)) config->optimizer.clip_norm = 0.01f * (float)between(&dice, 1, 10000);
    if (config->sparse.enabled || !percent(&dice, 40)) return;
    config->optimizer.kind = GF_OPTIMIZER_ADAMW;
    config->optimizer.momentum = 0;
    config->optimizer.nesterov = false;
    config->optimizer.adam_beta1 = percent(&dice, 50) ? 0.1f * (float)between(&dice, 1, 9) : 0;
    config->optimizer.adam_beta2 = percent(&dice, 50) ? 0.9f : 0;
}

/* Tensors of one type lie anyhow. */
static void draw_pool_order(struct soak_plan *plan)
{
    struct dice dice = {.state = plan->seed ^ UINT64_C(0x9001000000000000)};
    uint32_t count = plan->setup.tensor_count;
    if (plan->setup.config.sparse.enabled || !percent(&dice, 20)) return;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t other = below(&dice, i + 1);
        plan->tensors[i].type = plan->tensors[0].type;
        plan->pool_order[i] = plan->pool_order[other];
        plan->pool_order[other] = i;
    }
    plan->setup.config.pool_order = plan->pool_order;
}

void soak_plan_draw_more(struct soak_plan *plan)
{
    draw_device(plan);
    draw_coordinator(plan);
    draw_growth(plan);
    draw_leave(plan);
    draw_rules(plan);
    draw_pool_order(plan);
}
