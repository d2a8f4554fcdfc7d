/* Dense steps on whole contexts: what every rank finds in gf_gradient() afterwards, whatever the world, the wire, the
 * grouping and the order of declaring are. */
#include "world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "half.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const struct gf_sim_setup network = {
    .seed = 1, .latency_ns = 5000, .jitter_ns = 20000, .bytes_per_ns = 1.0, .message_ns = 100, .bind_receives = true};

static const struct gf_tensor mixed[] = {
    {.name = "empty.first", .elem_count = 0}, {.name = "one", .elem_count = 1},
    {.name = "odd", .elem_count = 301},       {.name = "round", .elem_count = 4096},
    {.name = "five", .elem_count = 5},        {.name = "empty", .elem_count = 0},
    {.name = "large", .elem_count = 10007},   {.name = "gap", .elem_count = 257},
    {.name = "small", .elem_count = 64},      {.name = "last", .elem_count = 3001},
};

static struct world_setup setup_of(uint32_t world)
{
    return (struct world_setup){.world = world, .tensors = mixed, .tensor_count = LENGTH(mixed), .sim = network};
}

static float sum_of(uint32_t world, uint32_t tensor, uint64_t elem)
{
    float sum = 0;
    for (uint32_t rank = 0; rank < world; rank++) sum += world_value(rank, tensor, elem);
    return sum;
}

/* Each gradient is the sum over ranks times factor, in one rounding. */
static void expect_sums(struct world *w, float factor)
{
    for (uint32_t tensor = 0; tensor < w->ranks[0].tensor_count; tensor++) {
        const struct gf_tensor *from = &w->ranks[0].tensors[tensor];
        for (uint64_t i = 0; i < from->elem_count; i++) {
            float expected = sum_of(w->world, tensor, i) * factor;
            float got = world_get(from->type, world_gradient(w, 0, tensor), i);
            if (got != expected)
                fail_msg("world %u, tensor %u, element %llu: %.9g, expected %.9g", w->world, tensor,
                         (unsigned long long)i, (double)got, (double)expected);
        }
    }
    world_expect_equal(w);
}

static void sums_do_not_depend_on_world_wire_grouping_or_order(void **state)
{
    static const uint32_t worlds[] = {1, 2, 3, 4, 5, 6, 9};
    static const uint64_t fuses[] = {1, 5000, 32768, 1u << 30};
    static const gf_algorithm algorithms[] = {GF_ALGORITHM_AUTO,    GF_ALGORITHM_RING, GF_ALGORITHM_HALVING,
                                              GF_ALGORITHM_DOUBLING, GF_ALGORITHM_TREE, GF_ALGORITHM_SERVER};
    static const uint32_t windows[] = {1, 8, 2, 32}, actives[] = {1, 4, 16, 2, 3};
    uint32_t row = 0;
    (void)state;
    for (size_t n = 0; n < LENGTH(worlds); n++) {
        for (uint32_t rest = 0; rest < GF_TYPE_COUNT * LENGTH(fuses) * WORLD_ORDER_COUNT; rest++, row++) {
            struct world_setup setup = setup_of(worlds[n]);
            struct world_step step = {.order = (world_order)(rest % WORLD_ORDER_COUNT),
                                      .pause_ns = (row % 3 == 0) ? 30000 : 0};
            struct world w;
            setup.config.exchange.fuse_bytes = fuses[rest / WORLD_ORDER_COUNT % LENGTH(fuses)];
            setup.config.exchange.wire = (gf_type)(rest / WORLD_ORDER_COUNT / LENGTH(fuses));
            setup.config.exchange.slice_bytes = 4096;
            setup.config.exchange.algorithm = algorithms[row % LENGTH(algorithms)];
            setup.config.exchange.buffers_active = actives[row % LENGTH(actives)];
            setup.config.exchange.doubling_max_bytes = 256;
            setup.config.exchange.halving_max_bytes = 20000;
            setup.config.link.window = windows[row / 2 % LENGTH(windows)];
            setup.sim.seed = row;
            world_open(&w, &setup);
            for (uint32_t i = 0; i < 2; i++) {
                world_step_run(&w, &step);
                world_expect(&w, GF_OK);
                assert_false(gf_step_skipped(w.ranks[0].gf));
                expect_sums(&w, 1.0f);
            }
            world_close(&w);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_do_not_depend_on_world_wire_grouping_or_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
