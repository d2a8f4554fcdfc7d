/* Whole contexts on the real CUDA driver, over a CUDA library without a GPU, through host memory:
 * every step ends bit by bit where that of the host ends, whatever is sent how. A wait that the
 * library leaves out is told of by the fake, or gives other values.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "lib/context.h"
#include "firmware-tests/cuda/cuda_world.h"

/* the first two of a sparse run are dense; the last meets a value that is not finite */
#define STEPS 4u

static struct cuda_world *const both = &cuda_world;

static void open_of(const struct state_run *run)
{
    const struct world_setup setup = state_setup_of(run);
    cuda_world_open(&setup);
}

TEST(a_run_on_cuda_ends_where_it_ends_on_the_host)
{
    for (uint32_t i = 0; i < STATE_RUNS; i++) {
        print_message("  %s\n", state_runs[i].name);
        cuda_world_begin(i, NULL);
        open_of(&state_runs[i]);
        cuda_world_steps(STEPS, state_runs[i].name);
        assert_true(both->fixture.fake->live().calls > 100); /* it was the device that did it */
        assert_int_equal(world_stats(&both->cuda, 0).path, GF_PATH_STAGED);
        cuda_world_close();
    }
}

/* ---- lists of chunks, where all tensors of the sparse part decay alike ---- */

static struct gf_tensor alike[STATE_TENSORS];

static void open_alike(const struct state_run *run, uint64_t scratch_elems)
{
    struct world_setup setup = state_setup_of(run);
    memcpy(alike, state_tensors, sizeof alike);
    alike[2].flags = 0;
    setup.tensors = alike;
    cuda_world_open(&setup);
    for (uint32_t rank = 0; rank < setup.world; rank++) {
        struct gf_sparse *sparse = &both->cuda.ranks[rank].gf->sparse;
        assert_true(sparse->in_lists);
        assert_false(both->host.ranks[rank].gf->sparse.in_lists);
        if (scratch_elems != 0) sparse->scratch_elems = scratch_elems;
    }
}

/* In one batch, in batches of two chunks, and in batches of one; and who brought a value that is
 * not finite is named. */
TEST(listed_chunks_end_where_pieces_end_on_the_host)
{
    static const uint64_t scratch_elems[] = {0, 80, 40};
    for (uint32_t i = 0; i < STATE_RUNS; i++) {
        if (!state_runs[i].sparse) continue;
        cuda_world_begin(i, NULL);
        open_alike(&state_runs[i], scratch_elems[i % 3]);
        cuda_world_steps(STEPS + 1, state_runs[i].name);
        world_expect_log(&both->host, 0, "first on rank 1, tensor 1 \"last\", element 5");
        world_expect_log(&both->cuda, 0, "first on rank 1, tensor 1 \"last\", element 5");
        cuda_world_close();
    }
}

/* Calls of the library in a sparse step of 30 chunks. */
static uint64_t calls_of_a_step(bool is_alike)
{
    uint64_t before;
    cuda_world_begin(1, NULL);
    if (is_alike)
        open_alike(&state_runs[3], 0);
    else
        open_of(&state_runs[3]);
    for (uint32_t step = 1; step <= 2; step++) state_step_run(&both->cuda, step, state_fill);
    before = both->fixture.fake->launches();
    state_step_run(&both->cuda, 3, state_fill);
    before = both->fixture.fake->launches() - before;
    cuda_world_close();
    return before;
}

/* Its values out and in, and its counters once; each tensor, by the appliance. */
TEST(a_buffer_is_three_copies)
{
    cuda_world_begin(1, NULL);
    open_of(&state_runs[0]);
    state_step_run(&both->cuda, 1, state_fill_whole);
    uint64_t before = both->fixture.fake->copies();
    uint64_t buffers = world_stats(&both->cuda, 0).buffer_count;
    state_step_run(&both->cuda, 2, state_fill_whole);
    assert_int_equal(both->fixture.fake->copies() - before,
                     state_runs[0].world * (3 * buffers + STATE_TENSORS));
    cuda_world_close();
}

TEST(a_buffer_is_one_launch_and_not_one_a_chunk)
{
    uint64_t lists = calls_of_a_step(true);
    uint64_t pieces = calls_of_a_step(false);
    print_message("  launches in a sparse step: %u in lists, %u in pieces\n", (unsigned)lists,
                  (unsigned)pieces);
    /* 25 a rank; each run of neighbours that is updated by itself would add to it */
    assert_true(lists <= 75);
    assert_true(3 * lists < pieces);
}
