/* Flags that streams store and wait for, on the CUDA library without a GPU: a wait stands until the
 * word is stored, by whomever; a rank that dies or hangs between packing and summing leaves no
 * trace in the others' memory; and where one part of it is missing, the CPU stores the flags. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/cuda/cuda_world.h"
#include "lib/context.h"

#define RANKS 4u

static struct cuda_world *const both = &cuda_world;
static struct cuda_fixture f;
static _Alignas(4096) uint64_t words[512];

static gf_mem at(uint32_t word)
{
    return (gf_mem)(uintptr_t)&words[word];
}

/* ---- the driver's part ---- */

static gf_status put(struct gf_queue *queue, uint32_t word, uint64_t value, bool is_wait)
{
    const struct gf_gpu_flag flag = {.at = at(word), .value = value, .is_wait = is_wait};
    return gf_gpu_cuda.flags(queue, &flag, 1);
}

static void open_fixture(const char *second)
{
    cuda_fixture_init(&f, "GF_FAKE_CUDA_SEED=1", second);
    memset(words, 0, sizeof words);
    cuda_fixture_begin(&f, words, sizeof words);
}

TEST(a_stream_stands_until_the_word_is_stored)
{
    open_fixture(NULL);
    struct gf_queue other = {.gpu = f.gpu, .stream = f.gpu->streams[GF_STREAM_IN]};
    assert_true(f.gpu->has_flags);
    assert_int_equal(put(&f.queue, 0, 7, true), GF_OK);
    assert_int_equal(put(&f.queue, 1, 8, false), GF_OK);
    assert_false(cuda_fixture_drains(&f.queue));
    __atomic_store_n(&words[0], 6, __ATOMIC_RELEASE);
    assert_false(cuda_fixture_drains(&f.queue));
    assert_int_equal(words[1], 0);
    __atomic_store_n(&words[0], 9, __ATOMIC_RELEASE); /* more will do */
    assert_true(cuda_fixture_drains(&f.queue));
    assert_int_equal(words[1], 8);
    assert_int_equal(put(&f.queue, 2, 1, true), GF_OK); /* or another stream */
    assert_false(cuda_fixture_drains(&f.queue));
    assert_int_equal(put(&other, 2, 1, false), GF_OK);
    assert_true(cuda_fixture_drains(&f.queue));
    cuda_fixture_end(&f, words);
}

TEST(more_flags_than_one_call_takes_keep_their_order)
{
    struct gf_gpu_flag flags[GF_GPU_FLAGS_MAX];
    open_fixture(NULL);
    for (uint32_t i = 0; i < GF_GPU_FLAGS_MAX; i++)
        flags[i] = (struct gf_gpu_flag){
            .at = at(i / 2), .value = 5, .is_wait = (i % 2 != 0)}; /* of what it stored */
    assert_int_equal(gf_gpu_cuda.flags(&f.queue, flags, GF_GPU_FLAGS_MAX), GF_OK);
    assert_true(cuda_fixture_drains(&f.queue));
    for (uint32_t i = 0; i < GF_GPU_FLAGS_MAX / 2; i++) assert_int_equal(words[i], 5);
    cuda_fixture_end(&f, words);
}

TEST(memory_that_is_registered_already_is_said_to_be)
{
    open_fixture(NULL);
    assert_int_equal(gf_gpu_cuda.host_register(f.gpu, &words[8], 64), GF_ERR_STATE);
    assert_int_equal(gf_gpu_cuda.host_unregister(f.gpu, words), GF_OK);
    assert_int_equal(gf_gpu_cuda.host_register(f.gpu, &words[8], 64), GF_OK);
    /* or a part of it */
    assert_int_equal(gf_gpu_cuda.host_register(f.gpu, words, sizeof words), GF_ERR_STATE);
    cuda_fixture_end(&f, &words[8]);
}

TEST(a_driver_or_a_device_without_them_is_told)
{
    static const char *const lacks[] = {"GF_FAKE_CUDA_NO_FLAGS=1",
                                        "GF_FAKE_CUDA_WITHOUT=cuStreamBatchMemOp"};
    for (size_t i = 0; i < 2; i++) {
        open_fixture(lacks[i]);
        assert_false(f.gpu->has_flags);
        cuda_fixture_end(&f, words);
    }
}

/* ---- a rank that goes between packing and summing ---- */

/* Whatever the device was given of an operation stands there, waiting for the victim's flag. */
static bool due_when_all_wait(struct world *w, struct cuda_death *death)
{
    for (uint32_t rank = 0; rank < w->world; rank++) {
        const gf_context *gf = w->ranks[rank].gf;
        bool waits = false;
        for (uint32_t i = 0; i < gf->under_way.count; i++)
            if (gf->under_way.ops[i].state == GF_OP_RUN)
                waits = waits || gf->under_way.ops[i].own.direct.state.queued;
        if (!waits) return false;
    }
    return true;
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
    world_run(host, world_shrink_progress, NULL);
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

static void fate_run(uint32_t seed, const struct state_run *run, bool sparse, bool kills,
                     bool elastic)
{
    struct state_moment moment = {.step = 2};
    struct cuda_death death = {.step = {.fill = state_fill_whole, .arg = &moment},
                               .victim = seed % RANKS,
                               .due = kills ? due_when_all_wait : due_never};
    struct world_setup setup = state_setup_of(run);
    cuda_world_begin(seed, NULL);
    setup.sim.ranks_per_node = setup.world;
    setup.sim.detect_ns = 50000000;
    /* also what closing waits, on the machine's own clock */
    setup.config.exchange.timeout_ns = UINT64_C(2000000000);
    setup.config.sparse.enabled = sparse;
    setup.config.job.elastic = elastic;
    setup.config.rendezvous.join_timeout_ns = UINT64_C(8000000000);
    setup.config.exchange.fuse_bytes = (seed % 2 == 0) ? 1 : 65536;
    cuda_world_open(&setup);
    struct world *w = &both->cuda;
    state_step_run(w, 1, state_fill_whole);
    state_step_run(&both->host, 1, state_fill_whole);
    for (uint32_t rank = 0; rank < w->world; rank++) assert_true(w->ranks[rank].gf->ipc.flags);
    both->fixture.fake->stream_hold(w->ranks[death.victim].gf->pack_queue.stream);
    cuda_world_dies(&death);
    assert_int_equal(death.done, kills);
    for (uint32_t rank = 0; rank < w->world; rank++) {
        gf_context *gf = w->ranks[rank].gf;
        if (rank == death.victim) continue;
        for (uint32_t s = 0; s < GF_STREAM_COUNT; s++) { /* nothing stands any more */
            struct gf_queue queue = {.gpu = gf->gpu, .stream = gf->gpu->streams[s]};
            assert_true(cuda_fixture_drains(&queue));
        }
        for (uint32_t t = 0; (t < STATE_TENSORS) && !sparse; t++) {
            float gradient[CUDA_ELEMS_MAX] = {0};
            float held[CUDA_ELEMS_MAX] = {0};
            state_fill_whole(w, rank, t, gradient, &moment);
            cuda_world_read(gf, gf_gradient(gf, t), state_tensors[t].elem_count * sizeof(float),
                            held);
            assert_memory_equal(held, gradient, state_tensors[t].elem_count * sizeof(float));
        }
    }
    both->fixture.fake->release();
    if (kills) cuda_world_goes_on(&death, GF_PATH_PEERS); /* by streams, as before: */
    for (uint32_t rank = 0; kills && (rank < w->world); rank++)
        assert_true((rank == death.victim) || w->ranks[rank].gf->ipc.flags);
    if (kills) host_has_the_same(&death);
    cuda_world_close();
}

/* In the weights, nor in a history; an elastic job goes on from device to device. */
TEST(a_rank_killed_or_hung_between_pack_and_sum_leaves_no_trace)
{
    for (uint32_t seed = 0; seed < 3; seed++) fate_run(seed, &state_runs[6], false, true, false);
    for (uint32_t seed = 0; seed < 2; seed++) fate_run(seed, &state_runs[6], false, true, true);
    fate_run(0, &state_runs[6], false, false, false);
    fate_run(0, &state_runs[6], true, true, false);
}

/* CPU's flags of a later operation may come first. */
TEST(streams_get_operations_in_the_order_of_all_ranks)
{
    for (uint32_t seed = 0; seed < 2; seed++) {
        struct world_setup setup = state_setup_of(&state_runs[6]);
        cuda_world_begin(seed, NULL);
        setup.sim.ranks_per_node = setup.world;
        setup.sim.late_flags = true;
        setup.config.exchange.fuse_bytes = 1;
        setup.config.exchange.buffers_active = 3;
        cuda_world_open(&setup);
        for (uint32_t step = 1; step <= 4; step++) {
            state_step_run(&both->host, step, state_fill_whole);
            state_step_run(&both->cuda, step, state_fill_whole);
        }
        assert_true(cuda_world_same());
        assert_int_equal(both->disordered, 0);
        cuda_world_close();
    }
}
