/* Small worlds on the CUDA library without a GPU, each drawn by its seed: what is trained, by which
 * way between ranks, how tensors are fused; and by the same seed the order in which the fake works.
 * Each ends where the host's ends. `make check-queues` runs 1,000 in each mode of hardware
 * queues.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/cuda/cuda_world.h"

#define SEEDS 12u /* of GF_TEST_SEEDS; from GF_TEST_SEED on */
#define STEPS 2u

static struct cuda_world *const both = &cuda_world;

enum way { STAGED, PEERS, WIRE, NODES, WAYS };

static uint32_t number_of(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);
    return (text != NULL) ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

static struct world_setup setup_of(uint32_t seed)
{
    static const uint64_t fuse_bytes[] = {512, 1, 65536};
    static const gf_algorithm by_wire[] = {GF_ALGORITHM_RING, GF_ALGORITHM_HALVING,
                                           GF_ALGORITHM_DOUBLING, GF_ALGORITHM_TREE};
    _Static_assert(GF_ALGORITHM_COUNT == 8,
                   "a new algorithm is drawn here, too: its seeds then make other jobs");
    const enum way way = seed % WAYS;
    struct state_run run = state_runs[seed / WAYS % STATE_RUNS];
    run.world = (way == NODES) ? 3 : 2;
    struct world_setup setup = state_setup_of(&run);
    setup.config.exchange.fuse_bytes = fuse_bytes[seed / (WAYS * STATE_RUNS) % 3];
    setup.config.exchange.slice_bytes = 4096; /* little memory to look at */
    setup.config.sparse.warmup_steps = 1;
    setup.config.sparse.ramp_steps = 1;
    if (way == PEERS) setup.sim.ranks_per_node = run.world;
    if (way == NODES) setup.sim.ranks_per_node = 2;
    if (way == NODES) setup.config.exchange.algorithm = GF_ALGORITHM_HIERARCHY;
    if (way == WIRE) setup.config.exchange.algorithm = by_wire[seed / WAYS % LENGTH(by_wire)];
    return setup;
}

TEST(small_worlds_of_each_seed_end_where_they_end_on_the_host)
{
    static const gf_path paths[] = {GF_PATH_STAGED, GF_PATH_PEERS, GF_PATH_WIRE, GF_PATH_PEERS};
    const uint32_t first = number_of("GF_TEST_SEED", 0);
    const uint32_t count = number_of("GF_TEST_SEEDS", SEEDS);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t seed = first + i; /* cuda_world_begin() adds it, too */
        const struct world_setup setup = setup_of(seed);
        char name[32];
        char refuses[40];
        (void)snprintf(name, sizeof name, "seed %u", seed);
        /* of each third the exchange regions cannot be registered, the appliance's memory can */
        (void)snprintf(refuses, sizeof refuses, "GF_FAKE_CUDA_NO_REGISTER=%u",
                       (seed % WAYS == NODES) ? 3u : 2u);
        cuda_world_begin(i, (seed % 3 == 2) ? refuses : NULL);
        both->wire_ranks = (seed % WAYS == WIRE) ? UINT64_MAX : 0;
        cuda_world_open(&setup);
        cuda_world_expect_path(paths[seed % WAYS]);
        cuda_world_steps(STEPS, name);
        cuda_world_close();
    }
    print_message("  %u seeds from %u on\n", count, first);
}
