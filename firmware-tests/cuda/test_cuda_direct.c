/* Ranks of one node on the CUDA library without a GPU that sum from device to device: the bits are
 * those of `direct` on the host, where one rank is refused all go through host memory and say
 * so.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "lib/context.h"
#include "firmware-tests/cuda/cuda_world.h"
#include "firmware-tests/support/ops_bytes.h"

#include <math.h>

#define STEPS 4u /* as in test_cuda_step */
#define RANKS 4u /* of state_runs[6] */

static struct cuda_world *const both = &cuda_world;

/* All ranks on one node. */
static void open_of(const struct state_run *run, uint64_t fuse_bytes)
{
    struct world_setup setup = state_setup_of(run);
    setup.sim.ranks_per_node = run->world;
    setup.config.exchange.fuse_bytes = fuse_bytes;
    cuda_world_open(&setup);
}

/* The tensors' own type on the wire is summed where the gradients lie, others beside them; one
 * buffer a tensor, many tensors a buffer, blocks that are empty. */
TEST(a_run_from_device_to_device_ends_where_it_ends_on_the_host)
{
    static const uint64_t fuse_bytes[] = {512, 1, 65536};
    for (uint32_t i = 0; i < STATE_RUNS; i++) {
        cuda_world_begin(i, NULL);
        open_of(&state_runs[i], fuse_bytes[i % 3]);
        cuda_world_expect_path(GF_PATH_PEERS);
        cuda_world_steps(STEPS, state_runs[i].name);
        assert_true(world_stats(&both->cuda, 0).mapped_bytes > 0);
        for (uint32_t rank = 0; rank < state_runs[i].world; rank++)
            world_expect_log(&both->cuda, rank, "first on rank 1, tensor 1 "); /* of step 4 */
        cuda_world_close();
    }
}

/* ---- what nobody reads but who adds ---- */

#define EVERY GF_RANK_NONE
struct spoil {
    uint32_t rank;
    float value;
};

static void fill_spoilt(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    const struct spoil *spoil = arg;
    world_fill(w, rank, tensor, gradient, NULL);
    if ((spoil->rank == rank) || (spoil->rank == EVERY)) ((float *)gradient)[700] = spoil->value;
}

/* Of 4 devices each reads all ranks' share of its block and writes it (5 bytes an element), reads
 * the others' and writes them (6), and updates (20); a look and a scale would be 12 more. Whose
 * value was not finite the adder tells, and a sum that is not finite while all values are. */
TEST(no_pass_only_looks_or_scales_and_who_gave_a_value_that_is_not_finite_is_named)
{
    static const struct gf_tensor one = {.name = "one", .elem_count = 1024};
    static const struct {
        struct spoil spoil;
        const char *log;
    } rows[] = {
        {{3, NAN}, "1 values are not finite, first on rank 3, tensor 0 \"one\", element 700"},
        {{0, INFINITY}, "first on rank 0, tensor 0 \"one\", element 700"},
        {{EVERY, 3e38f}, "element 700; every local gradient was finite"},
        {{EVERY, NAN}, "4 values are not finite, first on rank 0"}};
    struct world_setup host = {
        .world = RANKS, .tensors = &one, .tensor_count = 1, .sim.ranks_per_node = RANKS};
    struct world_setup cuda;
    struct world *w = &both->cuda;
    host.config.optimizer.kind = GF_OPTIMIZER_SGD;
    host.config.optimizer.momentum = 0.5f;
    host.config.exchange.average = GF_AVERAGE_SAMPLES;
    cuda_world_begin(1, NULL);
    cuda = cuda_world_setup(&host);
    cuda_world_open_alone(&cuda);
    for (uint32_t rank = 0; rank < RANKS; rank++) ops_bytes_watch(w->ranks[rank].gf);
    for (size_t row = 0; row <= LENGTH(rows); row++) {
        struct spoil none = {.rank = RANKS};
        struct world_step step = {.fill = fill_spoilt, .arg = &none};
        if (row < LENGTH(rows)) none = rows[row].spoil;
        ops_bytes = (struct ops_bytes){0};
        for (uint32_t rank = 0; rank < RANKS; rank++) /* each row's is the first of its kind */
            memset(w->ranks[rank].gf->observed.skips, 0, sizeof w->ranks[rank].gf->observed.skips);
        world_step_run(w, &step);
        world_expect(w, GF_OK);
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            assert_int_equal(gf_step_skipped(w->ranks[rank].gf), row < LENGTH(rows));
            assert_int_equal(gf_update(w->ranks[rank].gf, 0.5f), GF_OK);
            if (row < LENGTH(rows)) world_expect_log(w, rank, rows[row].log);
        }
    }
    assert_int_equal(ops_bytes.read + ops_bytes.written, RANKS * 1024 * 31);
    cuda_world_close_alone();
}

TEST(ranks_whose_tensors_are_all_empty_open_and_step)
{
    static const struct gf_tensor none = {.name = "none"};
    static const struct world_step forward = {.order = WORLD_FORWARD};
    struct world_setup host = {
        .world = 2, .tensors = &none, .tensor_count = 1, .sim.ranks_per_node = 2};
    struct world_setup cuda;
    cuda_world_begin(1, NULL);
    cuda = cuda_world_setup(&host);
    cuda_world_open_alone(&cuda);
    assert_true(both->cuda.ranks[0].gf->ipc.agreed);
    world_step_ok(&both->cuda, &forward);
    cuda_world_close_alone();
}

static void expect_fallback(const struct state_run *run, const char *reason)
{
    cuda_world_expect_path(GF_PATH_STAGED);
    for (uint32_t rank = 0; rank < run->world; rank++) {
        world_expect_log(&both->cuda, rank,
                         "gradients go through host memory, not from device to device");
        world_expect_log(&both->cuda, rank, reason);
    }
    cuda_world_steps(2, run->name);
    cuda_world_close();
}

TEST(where_one_rank_is_refused_all_go_through_host_memory)
{
    const struct state_run *run = &state_runs[3];
    const uint32_t pairs = run->world * (run->world - 1);
    const struct {
        uint32_t *refused, times, apart; /* each so-many-th time of so many */
        const char *reason, *own;        /* own: what that rank says itself */
    } rows[] = {
        {&both->export_refused, run->world, 1, "it may not export its device memory (code 801)",
         "device memory cannot be exported to the other ranks"},
        {&both->import_refused, pairs, 2,
         "it cannot reach the device memory of another rank (code 217)",
         "device memory of another rank is out of reach"},
        {&both->import_wrong, pairs, 2, "it reads other memory than another rank exported (code 0)",
         "what was imported as rank "}};
    for (size_t i = 0; i < LENGTH(rows); i++)
        for (uint32_t time = 1; time <= rows[i].times; time += rows[i].apart) {
            uint32_t said = 0;
            cuda_world_begin(time, NULL);
            *rows[i].refused = time;
            open_of(run, 512);
            assert_int_equal(*rows[i].refused, 0);
            for (uint32_t rank = 0; rank < run->world; rank++)
                said += world_logged(&both->cuda, rank, rows[i].own);
            assert_int_equal(said, 1);
            expect_fallback(run, rows[i].reason);
        }
}

TEST(where_device_memory_has_no_descriptors_all_go_through_host_memory)
{
    cuda_world_begin(1, "GF_FAKE_CUDA_NO_DESCRIPTORS=1");
    open_of(&state_runs[3], 512);
    expect_fallback(&state_runs[3], "rank 0: it may not export its device memory (code 0)");
}

/* All calls: test_cuda_train_failures.sh. */
TEST(a_device_that_fails_in_a_step_is_named)
{
    static const char *const calls[] = {"cuLaunchKernel", "cuEventRecord", "cuEventQuery",
                                        "cuStreamWaitEvent"};
    struct world_setup setup = state_setup_of(&state_runs[0]);
    setup.sim.ranks_per_node = setup.world;
    /* also what closing waits, on the machine's own clock */
    setup.config.exchange.timeout_ns = UINT64_C(2000000000);
    /* the first of each rank is of its open */
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++)
        for (uint32_t times = 4; times <= 64; times += 19)
            (void)cuda_world_fails(calls[c], times, setup, NULL);
}

/* ---- a rank that goes in the middle of an operation ---- */

/* The victim has told so many flags of one, at least. */
static bool due_at(struct world *w, struct cuda_death *death)
{
    const gf_context *gf = w->ranks[death->victim].gf;
    for (uint32_t i = 0; i < gf->under_way.count; i++)
        if ((gf->under_way.ops[i].state == GF_OP_RUN) &&
            (gf->under_way.ops[i].coll.kind == &gf_coll_direct_device) &&
            (gf->under_way.ops[i].own.direct.state.barriers >= death->at))
            return true;
    return false;
}

static bool due_never(struct world *w, struct cuda_death *death)
{
    return false;
}

/* On the host the same rank dies, and what the survivors then have is what devices have summed. */
static void host_has_the_same(struct cuda_death *death)
{
    static struct cuda_kept kept;
    struct world *host = &both->host;
    gf_sim_kill(host->sim, death->victim);
    world_run(host, world_step_progress, &death->step);
    world_run(host, world_regroup_progress, NULL);
    world_run(host, world_step_progress, &death->step);
    for (uint32_t rank = 0; rank < host->world; rank++) {
        if (rank == death->victim) continue;
        assert_int_equal(gf_update(host->ranks[rank].gf, 0.0625f), GF_OK);
        cuda_kept_read(both->cuda.ranks[rank].gf, &kept);
        for (uint32_t t = 0; t < STATE_TENSORS; t++)
            assert_memory_equal(kept.weights[t],
                                (void *)(uintptr_t)gf_weight(host->ranks[rank].gf, t),
                                state_tensors[t].elem_count * sizeof(float));
    }
}

static void expect_gradients(struct world *w, uint32_t rank, struct state_moment *moment)
{
    gf_context *gf = w->ranks[rank].gf;
    for (uint32_t t = 0; t < STATE_TENSORS; t++) {
        float gradient[CUDA_ELEMS_MAX] = {0};
        float held[CUDA_ELEMS_MAX] = {0};
        state_fill_whole(w, rank, t, gradient, moment);
        cuda_world_read(gf, gf_gradient(gf, t), state_tensors[t].elem_count * sizeof(float), held);
        assert_memory_equal(held, gradient, state_tensors[t].elem_count * sizeof(float));
    }
}

/* at: flags that the victim has told when it dies; 0: its device hangs before it has packed. */
static void fate_run(uint32_t seed, uint32_t at, bool sparse)
{
    const struct state_run *run = &state_runs[6];
    struct state_moment moment = {.step = 2};
    struct cuda_death death = {.step = {.fill = state_fill_whole, .arg = &moment},
                               .victim = seed % run->world,
                               .at = at,
                               .due = (at > 0) ? due_at : due_never};
    struct world_setup setup = state_setup_of(run);
    cuda_world_begin(seed, NULL);
    setup.sim.ranks_per_node = setup.world;
    cuda_world_elastic(&setup);
    /* also what closing waits, on the machine's own clock */
    setup.config.exchange.timeout_ns = UINT64_C(2000000000);
    setup.config.sparse.enabled = sparse;
    setup.config.exchange.fuse_bytes = (seed % 2 == 0) ? 1 : 65536;
    cuda_world_open(&setup);
    struct world *w = &both->cuda;
    state_step_run(w, 1, state_fill_whole);
    state_step_run(&both->host, 1, state_fill_whole);
    if (at == 0) both->fixture.fake->stream_hold(w->ranks[death.victim].gf->pack_queue.stream);
    cuda_world_dies(&death);
    assert_int_equal(death.done, at > 0);
    for (uint32_t rank = 0; rank < w->world; rank++) {
        gf_context *gf = w->ranks[rank].gf;
        if (rank == death.victim) continue;
        for (uint32_t s = 0; s < GF_STREAM_COUNT; s++) { /* whatever others do not do any more */
            struct gf_queue queue = {.gpu = gf->gpu, .stream = gf->gpu->streams[s]};
            assert_true(cuda_fixture_drains(&queue));
        }
        if (at == 0) expect_gradients(w, rank, &moment);
    }
    both->fixture.fake->release();
    if (at > 0) cuda_world_goes_on(&death, GF_PATH_PEERS);
    if (at > 0) host_has_the_same(&death);
    cuda_world_close();
}

/* In weights, momentum and history; the job goes on from device to device. */
TEST(a_rank_that_dies_or_hangs_at_a_flag_leaves_no_trace)
{
    for (uint32_t at = cuda_fixture_shares_queues() ? 1 : 0; at <= 2; at++)
        for (uint32_t seed = 0; seed < 2; seed++) fate_run(seed, at, false);
    fate_run(0, 1, true);
}

/* ---- one machine, whatever the hardware does with streams ---- */

/* Flags of a later operation may come first. */
TEST(operations_under_way_at_once_end_where_they_end_on_the_host)
{
    for (uint32_t seed = 0; seed < 2; seed++) {
        struct world_setup setup = state_setup_of(&state_runs[6]);
        cuda_world_begin(seed, NULL);
        setup.sim.ranks_per_node = setup.world;
        setup.sim.late_flags = true;
        setup.config.exchange.fuse_bytes = 1;
        setup.config.exchange.buffers_active = 3;
        cuda_world_open(&setup);
        cuda_world_steps(4, state_runs[6].name);
        cuda_world_close();
    }
}

static uint64_t copies_of(uint64_t engine_bytes)
{
    struct world_setup setup = state_setup_of(&state_runs[6]);
    uint64_t before;
    cuda_world_begin(3, "GF_FAKE_CUDA_BETWEEN=1");
    setup.sim.ranks_per_node = setup.world;
    setup.config.device.multiprocessors = 1;
    setup.config.device.engine_bytes = engine_bytes;
    cuda_world_open(&setup);
    before = both->fixture.fake->copies();
    cuda_world_steps(2, state_runs[6].name);
    uint64_t copies = both->fixture.fake->copies() - before;
    cuda_world_close();
    return copies;
}

/* Each rank's block of the three others; and a kernel has one block. */
TEST(blocks_come_by_copy_engines_from_a_size_on_and_kernels_leave_room)
{
    uint64_t by_kernel = copies_of(UINT64_C(1) << 30);
    uint64_t by_engine = copies_of(1);
    assert_true(by_engine >= by_kernel + 2 * RANKS * (RANKS - 1));
}
