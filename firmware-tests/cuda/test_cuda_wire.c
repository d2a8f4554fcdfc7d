/* Device memory straight to the wire on the CUDA library without a GPU, whose memory only a network
 * card and streams may touch: the bits are the host's, and what fails on the way fails cleanly.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "lib/device/device.h"
#include "firmware-tests/cuda/cuda_world.h"
#include "firmware-tests/support/link_watch.h"

#define STEPS 4u /* as in test_cuda_step */
#define SLICE_BYTES 256u
#define WINDOW 2u
#define ALL_RANKS UINT64_MAX

static struct cuda_world *const both = &cuda_world;

/* They take turns. */
static gf_algorithm algorithm_of(uint64_t turn)
{
    gf_algorithm algorithms[GF_ALGORITHM_COUNT];
    const uint32_t count = world_algorithms(false, algorithms);
    return algorithms[turn % count];
}

static struct world_setup setup_of(const struct state_run *run, gf_algorithm algorithm)
{
    struct world_setup setup = state_setup_of(run);
    setup.config.exchange.algorithm = algorithm;
    setup.config.exchange.fuse_bytes = 3000;
    /* little staging: the library locks all device memory at each turn */
    setup.config.exchange.slice_bytes = 4096;
    setup.config.exchange.timeout_ns = UINT64_C(2000000000);
    return setup;
}

/* Of operations, too: a generation that has begun has told them. */
static void slices_shorten(struct world *w)
{
    for (uint32_t rank = 0; rank < w->world; rank++) {
        gf_context *gf = w->ranks[rank].gf;
        gf->config.exchange.slice_bytes = SLICE_BYTES;
        gf->config.link.window = WINDOW;
        for (uint32_t s = 0; s < gf->under_way.count; s++) {
            gf->under_way.ops[s].coll.slice_bytes = SLICE_BYTES;
            gf->under_way.ops[s].coll.window = WINDOW;
        }
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
    for (uint32_t i = 0; i < STATE_RUNS; i++) {
        const struct world_setup setup = setup_of(&state_runs[i], algorithm_of(i));
        cuda_world_begin(i, NULL);
        both->wire_ranks = (i == 6) ? 0x5 : ALL_RANKS; /* once beside ranks that stage */
        both->ucx_registers = i % 2 == 0;
        both_open(&setup);
        cuda_world_steps(STEPS, state_runs[i].name);
        assert_true(link_watch_messages() > 50);
        cuda_world_close();
    }
}

/* ---- what befalls a step ---- */

TEST(a_device_that_fails_in_a_step_is_named)
{
    static const char *const calls[] = {"cuLaunchKernel", "cuEventRecord", "cuEventQuery"};
    uint32_t folding = 0;
    both->wire_ranks = ALL_RANKS;
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++)
        for (uint32_t times = 4; times <= 130;
             times += 21) /* the first of each rank is of its open */
            folding += cuda_world_fails(
                calls[c], times, setup_of(&state_runs[0], algorithm_of(c + times)), slices_shorten);
    print_message("  %u collectives met it\n", folding);
    assert_true(folding > 0);
}

static bool due_at_turn(struct world *w, struct cuda_death *death)
{
    return death->at-- == 0;
}

/* In a new generation the card may not be given anything that the old one's reductions still work
 * on. */
TEST(survivors_of_a_death_go_on)
{
    uint32_t deaths = 0;
    for (uint32_t turns = 5; turns <= 45; turns += 4) {
        struct world_setup setup = setup_of(&state_runs[0], algorithm_of(turns));
        struct state_moment moment = {.step = 1};
        struct cuda_death death = {.step = {.fill = state_fill_whole, .arg = &moment},
                                   .victim = 1,
                                   .at = turns,
                                   .due = due_at_turn};
        cuda_world_begin(turns, NULL);
        both->wire_ranks = ALL_RANKS;
        cuda_world_elastic(&setup);
        setup = cuda_world_setup(&setup);
        cuda_world_open_alone(&setup);
        slices_shorten(&both->cuda);
        world_run(&both->cuda, cuda_world_dying, &death);
        if (both->cuda.ranks[0].status == GF_ERR_PEER) { /* else the step ended before */
            deaths++;
            cuda_world_goes_on(&death, GF_PATH_WIRE);
        }
        cuda_world_close_alone();
    }
    assert_true(deaths > 5);
}

static gf_status reset_refused(struct gf_link *link, uint32_t generation, uint32_t rank,
                               uint32_t world)
{
    return gf_fault_set(&link->fault, GF_ERR_LINK, GF_RANK_NONE, "reset", 0, "refused by the test");
}

/* The device was told before that the region goes. */
TEST(where_the_link_is_not_made_anew_closing_gives_the_region_back_only_once)
{
    static struct gf_link_driver refusing;
    struct state_moment moment = {.step = 1};
    const struct world_step step = {.fill = state_fill_whole, .arg = &moment};
    struct world_setup setup = setup_of(&state_runs[0], GF_ALGORITHM_RING);
    struct world *w = &both->cuda;
    cuda_world_begin(1, NULL);
    cuda_world_elastic(&setup);
    setup = cuda_world_setup(&setup);
    cuda_world_open_alone(&setup);
    refusing = *w->ranks[0].gf->link->driver;
    refusing.reset = reset_refused;
    gf_sim_kill(w->sim, 1);
    world_step_run(w, &step);
    for (uint32_t rank = 0; rank < w->world; rank++) w->ranks[rank].gf->link->driver = &refusing;
    world_run(w, world_regroup_progress, NULL);
    for (uint32_t rank = 0; rank < w->world; rank += 2) {
        assert_int_equal(w->ranks[rank].status, GF_ERR_SYSTEM);
        assert_non_null(strstr(gf_error_last(w->ranks[rank].gf)->text, "refused by the test"));
    }
    cuda_world_close_alone(); /* the fake would tell */
}
