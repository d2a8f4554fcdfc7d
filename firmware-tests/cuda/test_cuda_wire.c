/* Device memory straight to the wire on the CUDA library without a GPU, whose memory only a network card and streams
 * may touch: the bits are the host's, each wait is needed, and what fails on the way fails cleanly. */
#include "firmware-tests/support/suite.h"
#include "lib/device/device.h"
#include "lib/modules/modules.h"
#include "firmware-tests/cuda/cuda_card.h"
#include "firmware-tests/cuda/cuda_world.h"

#define STEPS 4u /* as in test_cuda_step */
#define SLICE_BYTES 256u
#define WINDOW 2u
#define ALL_RANKS UINT64_MAX

static struct cuda_world *const both = &cuda_world;

static const gf_algorithm algorithms[] = {GF_ALGORITHM_RING, GF_ALGORITHM_HALVING, GF_ALGORITHM_DOUBLING,
                                          GF_ALGORITHM_TREE, GF_ALGORITHM_SERVER};
#define ALGORITHMS (sizeof algorithms / sizeof *algorithms)

static struct world_setup setup_of(const struct state_run *run, gf_algorithm algorithm)
{
    struct world_setup setup = state_setup_of(run);
    setup.config.exchange.algorithm = algorithm;
    setup.config.exchange.fuse_bytes = 3000;
    setup.config.exchange.slice_bytes = 4096; /* little staging: the library locks all device memory at each turn */
    setup.config.exchange.timeout_ns = UINT64_C(2000000000);
    return setup;
}

static void slices_shorten(struct world *w)
{
    for (uint32_t rank = 0; rank < w->world; rank++) {
        w->ranks[rank].gf->config.exchange.slice_bytes = SLICE_BYTES;
        w->ranks[rank].gf->config.link.window = WINDOW;
    }
}

static void expect_paths(uint64_t wire_ranks)
{
    for (uint32_t rank = 0; rank < both->cuda.world; rank++)
        assert_int_equal(world_stats(&both->cuda, rank).path,
                         ((wire_ranks >> rank) & 1u) ? GF_PATH_WIRE : GF_PATH_STAGED);
}

static void both_open(const struct world_setup *setup)
{
    cuda_world_open(setup);
    slices_shorten(&both->host);
    slices_shorten(&both->cuda);
    expect_paths(both->wire_ranks);
}

TEST(a_run_from_device_to_wire_ends_where_it_ends_on_the_host)
{
    for (uint32_t i = 0; i < STATE_PLAIN_RUNS; i++) { /* groups pass through host memory */
        const struct world_setup setup = setup_of(&state_runs[i], algorithms[i % ALGORITHMS]);
        cuda_world_begin(i, NULL);
        both->wire_ranks = (i == 6) ? 0x5 : ALL_RANKS; /* once beside ranks that stage */
        both_open(&setup);
        cuda_world_steps(STEPS, state_runs[i].name);
        cuda_world_halves_expect_equal();
        assert_true(cuda_card_messages() > 50);
        cuda_world_close();
    }
}

/* Under every seed, that is in every order in which streams may run and a card may be ahead of them. */
TEST(a_wait_that_is_left_out_is_found)
{
    static const cuda_lack lacks[] = {LACKS_PACKED, LACKS_FOLDED};
    for (size_t l = 0; l < sizeof lacks / sizeof *lacks; l++) {
        for (size_t a = 0; a < ALGORITHMS; a++) {
            const struct world_setup setup = setup_of(&state_runs[a % 2], algorithms[a]);
            cuda_world_begin((uint32_t)a, NULL);
            both->wire_ranks = ALL_RANKS;
            both_open(&setup);
            cuda_world_expect_found(lacks[l], 2, true);
        }
    }
}

/* ---- what befalls a step ---- */

/* The device of one rank fails at many of its calls in a step: it says so; all can be closed, nothing is left. */
TEST(a_device_that_fails_in_a_step_is_named)
{
    static const char *const calls[] = {"cuLaunchKernel", "cuEventRecord", "cuEventQuery"};
    struct state_moment moment = {.step = 1};
    struct world_step step = {.fill = state_fill_whole, .arg = &moment};
    uint32_t folding = 0;
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
        for (uint32_t times = 4; times <= 130; times += 9) { /* the first of each rank is of its open */
            struct world_setup setup = setup_of(&state_runs[0], algorithms[(c + times) % ALGORITHMS]), cuda;
            uint32_t failed = 0;
            char text[64];
            (void)snprintf(text, sizeof text, "GF_FAKE_CUDA_FAIL=%s:%u:400", calls[c], times);
            cuda_world_begin(times, text);
            both->wire_ranks = ALL_RANKS;
            setup.sim.detect_ns = 50000000;
            cuda = cuda_world_setup(&setup);
            cuda_world_open_alone(&cuda);
            slices_shorten(&both->cuda);
            world_run(&both->cuda, world_step_progress, &step);
            for (uint32_t rank = 0; rank < setup.world; rank++) {
                const gf_context *gf = both->cuda.ranks[rank].gf;
                if (both->cuda.ranks[rank].status == GF_ERR_DEVICE) failed++;
                for (uint32_t s = 0; s < gf->under_way.count; s++) folding += gf->under_way.ops[s].coll.error == GF_ERR_DEVICE;
            }
            if (both->fixture.fake->failure_met()) assert_true(failed > 0);
            else world_expect(&both->cuda, GF_OK);
            cuda_world_close_alone();
        }
    }
    print_message("  %u collectives met it\n", folding);
    assert_true(folding > 0);
}

#define VICTIM 1u

struct death {
    struct world_step step;
    uint32_t turns; /* of the victim, until it dies */
};

static gf_status dying_progress(struct world *w, uint32_t rank, void *arg)
{
    struct death *death = arg;
    if (rank == VICTIM) {
        if (death->turns-- == 0) gf_sim_kill(w->sim, rank);
        if (gf_sim_is_dead(w->sim, rank)) return GF_AGAIN;
    }
    return world_step_progress(w, rank, &death->step);
}

static void survivors_sums_expect_right(struct world *w)
{
    for (uint32_t rank = 0; rank < w->world; rank++) {
        if (rank == VICTIM) continue;
        assert_int_equal(w->ranks[rank].status, GF_OK);
        assert_int_equal(world_stats(w, rank).path, GF_PATH_WIRE);
        for (uint32_t tensor = 0; tensor < STATE_TENSORS; tensor++) {
            float got[1024];
            gf_context *gf = w->ranks[rank].gf;
            uint64_t bytes = state_tensors[tensor].elem_count * sizeof(float);
            assert_int_equal(gf_module_device.read(gf, got, gf_gradient(gf, tensor), bytes), GF_OK);
            for (uint64_t i = 0; i < state_tensors[tensor].elem_count; i++)
                if (got[i] != world_sum(w->world, tensor, i) - world_value(VICTIM, tensor, i))
                    fail_msg("rank %u, tensor %u, element %u: %g", rank, tensor, (unsigned)i, (double)got[i]);
        }
    }
}

/* In a new epoch the card may not be given anything that the old one's folds still work on. */
TEST(survivors_of_a_death_go_on)
{
    uint32_t deaths = 0;
    for (uint32_t turns = 5; turns <= 45; turns += 4) {
        struct world_setup setup = setup_of(&state_runs[0], algorithms[turns % ALGORITHMS]), cuda;
        struct death death = {.step = {.fill = world_fill}, .turns = turns};
        cuda_world_begin(turns, NULL);
        both->wire_ranks = ALL_RANKS;
        setup.sim.detect_ns = 50000000;
        setup.config.rendezvous.join_timeout_ns = UINT64_C(8000000000);
        setup.config.optimizer.kind = GF_OPTIMIZER_NONE;
        cuda = cuda_world_setup(&setup);
        cuda_world_open_alone(&cuda);
        slices_shorten(&both->cuda);
        world_run(&both->cuda, dying_progress, &death);
        if (both->cuda.ranks[0].status == GF_ERR_PEER) { /* else the step ended before */
            deaths++;
            world_run(&both->cuda, world_shrink_progress, NULL);
            world_run(&both->cuda, world_step_progress, &death.step);
            survivors_sums_expect_right(&both->cuda);
        }
        cuda_world_close_alone();
    }
    assert_true(deaths > 5);
}
