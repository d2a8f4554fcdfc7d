/* All collectives over the simulated network: sums bit by bit in their stated order, any count and world, and every
 * failure ends with the right status on every rank and nothing under way. */
#include "coll_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const struct pair {
    const struct gf_coll_kind *kind;
    gf_coll_op op;
} pairs[] = {
    {&gf_coll_ring, GF_COLL_ALLREDUCE},     {&gf_coll_ring, GF_COLL_REDUCE_SCATTER}, {&gf_coll_ring, GF_COLL_ALLGATHER},
    {&gf_coll_halving, GF_COLL_ALLREDUCE},  {&gf_coll_doubling, GF_COLL_ALLREDUCE},  {&gf_coll_doubling, GF_COLL_BARRIER},
    {&gf_coll_tree, GF_COLL_ALLREDUCE},     {&gf_coll_tree, GF_COLL_BROADCAST},      {&gf_coll_server, GF_COLL_ALLREDUCE},
};

static const struct gf_sim_setup network = {
    .seed = 1, .latency_ns = 5000, .jitter_ns = 20000, .bytes_per_ns = 1.0, .message_ns = 100, .bind_receives = true};

static void run_once(const struct coll_case *c, const struct gf_sim_setup *sim, bool exact)
{
    struct coll_world world;
    coll_world_open(&world, c, sim);
    coll_world_fill(&world, exact);
    for (uint32_t i = 0; i < c->size; i++) coll_world_start(&world, i, 3);
    coll_world_run(&world);
    for (uint32_t i = 0; i < c->size; i++) assert_int_equal(world.nodes[i].status, GF_OK);
    coll_world_check(&world);
    coll_world_close(&world);
}

/* Slices of 64 bytes: 16 or 32 elements. */
static void any_count_on_any_world(void **state)
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33};
    static const uint64_t counts[] = {0, 1, 3, 15, 16, 17, 37, 64, 65, 144, 145, 1000};
    static const uint32_t windows[] = {1, 2, 8, 32};
    uint32_t turn = 0;
    (void)state;
    for (size_t p = 0; p < LENGTH(pairs); p++) {
        for (size_t s = 0; s < LENGTH(sizes); s++) {
            for (size_t n = 0; n < LENGTH(counts); n++, turn++) {
                struct coll_case c = {
                    .kind = pairs[p].kind, .op = pairs[p].op, .size = sizes[s], .elem_count = counts[n],
                    .type = (gf_type)(turn % GF_TYPE_COUNT), .slice_bytes = 64, .window = windows[turn % LENGTH(windows)],
                    .root = (pairs[p].op == GF_COLL_BROADCAST) ? turn % sizes[s] : 0,
                };
                run_once(&c, &network, turn % 5 == 0);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_count_on_any_world),
    };
    return cmocka_run_group_tests_name("coll", tests, NULL, NULL);
}
