/* What the appliance does beside the library on the same GPU: it captures graphs, its kernels hang,
 * its ranks share a device. Through the real driver on the CUDA library without a GPU.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "lib/context.h"
#include "firmware-tests/cuda/cuda_world.h"

#include <time.h>

#define PER_THREAD 2u /* CU_STREAM_PER_THREAD */

static struct cuda_world *const both = &cuda_world;
static _Alignas(4096) char pinned[4096];

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- graphs ---- */

static gf_status reached(struct gf_gpu *gpu)
{
    gf_status status;
    while ((status = gf_gpu_cuda.event_query(gpu, 0)) == GF_AGAIN) {
    }
    return status;
}

/* All that the library does from open to close, while another thread captures in the mode that
 * forbids most. */
TEST(a_capture_of_another_thread_is_not_broken)
{
    struct cuda_fixture *f = &both->fixture;
    cuda_fixture_init(f, NULL, NULL);
    uint64_t captured = f->fake->stream_create();
    uint64_t theirs = f->fake->stream_create();
    f->fake->capture_begin(captured);
    assert_int_equal(cuda_fixture_open(f), GF_OK);
    gf_mem device = f->gpu->arena;
    gf_mem host = (gf_mem)(uintptr_t)pinned;
    assert_int_equal(gf_gpu_cuda.host_register(f->gpu, pinned, sizeof pinned), GF_OK);
    assert_int_equal(
        gf_gpu_cuda.event_record(&(struct gf_queue){.gpu = f->gpu, .stream = theirs}, 1), GF_OK);
    assert_int_equal(gf_gpu_cuda.copy(&f->queue, host, device, sizeof pinned), GF_OK);
    assert_int_equal(gf_gpu_cuda.event_record(&f->queue, 0), GF_OK);
    assert_int_equal(reached(f->gpu), GF_OK);
    assert_int_equal(gf_gpu_cuda.stream_wait(&f->queue, theirs), GF_OK);
    assert_int_equal(gf_gpu_cuda.host_unregister(f->gpu, pinned), GF_OK);
    f->fake->stream_destroy(captured);
    f->fake->stream_destroy(theirs);
    cuda_fixture_close(f);
    assert_true(f->fake->capture_end(captured));
    cuda_fixture_clean(f);
}

TEST(a_stream_that_captures_is_refused_and_the_context_goes_on)
{
    struct world_setup setup = state_setup_of(&state_runs[0]);
    cuda_world_begin(1, NULL);
    setup = cuda_world_setup(&setup);
    cuda_world_open_alone(&setup);
    gf_context *gf = both->cuda.ranks[0].gf;
    uint64_t captured = both->fixture.fake->stream_create();
    both->fixture.fake->capture_begin(captured);
    assert_int_equal(gf_queue_follow(gf, captured), GF_ERR_STATE);
    world_expect_log(&both->cuda, 0,
                     "gf_queue_follow: device 0: the stream that was given captures a graph: give");
    assert_int_equal(gf_step_begin(gf), GF_OK);
    assert_int_equal(gf_tensor_ready(gf, 0, captured), GF_ERR_STATE);
    world_expect_log(&both->cuda, 0,
                     "gf_tensor_ready: device 0: the stream that was given captures a graph");
    /* which waits for the one that captures */
    assert_int_equal(gf_tensor_ready(gf, 0, 0), GF_ERR_STATE);
    world_expect_log(&both->cuda, 0, "a stream that the default stream waits for captures a graph");
    assert_true(both->fixture.fake->capture_end(captured));
    assert_int_equal(gf_tensor_ready(gf, 0, captured), GF_OK); /* nothing had changed */
    assert_int_equal(gf_tensor_ready(gf, 1, PER_THREAD), GF_OK);
    assert_int_equal(gf->error.code, GF_OK);
    both->fixture.fake->stream_destroy(captured);
    cuda_world_close_alone();
}

/* ---- kernels that do not end ---- */

static void held_world(uint32_t seed, const char *second, uint64_t timeout_ns)
{
    struct world_setup setup = state_setup_of(&state_runs[0]);
    cuda_world_begin(seed, second);
    cuda_world_elastic(&setup);
    /* memory of the others is imported, or not */
    setup.sim.ranks_per_node = (seed % 2 == 0) ? setup.world : 0;
    setup.config.exchange.timeout_ns = timeout_ns;
    setup.config.job.elastic = setup.separate = true;
    setup = cuda_world_setup(&setup);
    cuda_world_open_alone(&setup);
}

/* The process ends, and with it what was left. */
static void held_end(double begin_s, double most_s)
{
    assert_true(now_s() - begin_s < most_s);
    if (both->fixture.fake->trouble() != NULL) fail_msg("%s", both->fixture.fake->trouble());
    assert_true(both->fixture.fake->live().allocations > 0);
    both->fixture.fake->forget();
    cuda_fixture_clean(&both->fixture);
}

/* Before 12.5 there is no call that tells of all streams: the default one is looked at, which waits
 * for ordinary ones. */
TEST(a_close_ends_while_a_kernel_of_the_appliance_hangs)
{
    static const char *const drivers[] = {NULL, "GF_FAKE_CUDA_WITHOUT=cuCtxRecordEvent",
                                          "GF_FAKE_CUDA_VERSION=12040"};
    for (uint32_t i = 0; i < 4; i++) {
        held_world(i, drivers[i % 3], 50000000);
        uint64_t theirs = (i % 3 == 0) ? both->fixture.fake->stream_create() : 0;
        double begin_s = now_s();
        both->fixture.fake->stream_hold(theirs);
        world_run(&both->cuda, world_step_progress,
                  &(struct world_step){.fill = state_fill_whole,
                                       .arg = &(struct state_moment){.step = 1}});
        /* their stream is in front of the step */
        for (uint32_t rank = 0; (i % 3 != 0) && (rank < both->cuda.world); rank++)
            assert_int_equal(both->cuda.ranks[rank].status, GF_ERR_TIMEOUT);
        world_close(&both->cuda);
        held_end(begin_s, 60.0);
    }
}

TEST(what_is_left_to_the_end_of_the_process_is_said_once)
{
    struct cuda_fixture *f = &both->fixture;
    cuda_fixture_init(f, NULL, NULL);
    f->setup.idle_ns = 1000000;
    assert_int_equal(cuda_fixture_open(f), GF_OK);
    assert_int_equal(gf_gpu_cuda.host_register(f->gpu, pinned, sizeof pinned), GF_OK);
    f->fake->stream_hold(0);
    assert_int_equal(gf_gpu_cuda.host_unregister(f->gpu, pinned), GF_ERR_DEVICE);
    assert_string_equal(f->gpu->fault.text, "device 0: work on it does not end");
    cuda_fixture_close(f);
    assert_non_null(strstr(
        f->log, "device 0: work on it has not ended in 1 ms: what would wait for that is left to "
                "the end of the process: 1048576 bytes of its memory"));
    assert_null(strstr(strstr(f->log, "has not ended") + 1, "has not ended"));
    f->fake->forget();
    cuda_fixture_clean(f);
}

TEST(a_regroup_ends_while_a_kernel_of_the_appliance_hangs)
{
    struct state_moment moment = {.step = 1};
    struct world_step step = {.fill = state_fill_whole, .arg = &moment};
    held_world(1, NULL, 50000000);
    double begin_s = now_s();
    both->fixture.fake->stream_hold(0);
    gf_sim_kill(both->cuda.sim, 1);
    world_run(&both->cuda, world_step_progress, &step);
    assert_true(both->cuda.ranks[0].status < 0);
    world_run(&both->cuda, world_regroup_progress, NULL);
    assert_int_equal(both->cuda.ranks[0].status, GF_ERR_DEVICE);
    world_expect_log(&both->cuda, 0, "no new generation: device 0: work on it does not end");
    world_close(&both->cuda);
    held_end(begin_s, 60.0);
}

/* ---- a host that runs ahead ---- */

/* The appliance queues a whole backward pass at once; what its last tensor waits for does not end
 * until it is released. */
struct ahead {
    struct state_moment moment;
    uint64_t streams[STATE_RANKS_MAX];
    uint32_t buffers; /* that need no last tensor, and come back while it is not computed */
};

static gf_status ahead_progress(struct world *w, uint32_t rank, void *arg)
{
    struct ahead *ahead = arg;
    gf_context *gf = w->ranks[rank].gf;
    struct gf_queue theirs = {.gpu = gf->gpu, .stream = ahead->streams[rank]};
    gf_status status;
    if (w->ranks[rank].next++ > 0) {
        status = gf_step_poll(gf);
        return ((status == GF_AGAIN) && (gf->step.buffers_ended == ahead->buffers)) ? GF_OK
                                                                                    : status;
    }
    (void)gf_loss_scale(gf); /* the fill has it in its values */
    if ((status = gf_queue_follow(gf, theirs.stream)) != GF_OK) return status;
    if ((status = gf_step_begin(gf)) != GF_OK) return status;
    ahead->buffers = 0;
    for (uint32_t b = 0; b < gf->step.buffer_count; b++)
        ahead->buffers += gf->buffers.now[b].last_tensor < STATE_TENSORS - 1;
    for (uint32_t tensor = 0; tensor < STATE_TENSORS; tensor++) {
        void *gradient = w->device->gradient(w, rank, tensor);
        uint64_t bytes = w->ranks[rank].tensors[tensor].elem_count * sizeof(float);
        state_fill_whole(w, rank, tensor, gradient, &ahead->moment);
        if (tensor == STATE_TENSORS - 1) both->fixture.fake->stream_hold(theirs.stream);
        if ((status = gf_gpu_cuda.copy(&theirs, gf_gradient(gf, tensor),
                                       (gf_mem)(uintptr_t)gradient, bytes)) != GF_OK)
            return status;
        if ((status = gf_tensor_ready(gf, tensor, theirs.stream)) != GF_OK) return status;
    }
    return GF_AGAIN;
}

static gf_status rest_progress(struct world *w, uint32_t rank, void *arg)
{
    return gf_step_poll(w->ranks[rank].gf);
}

/* In one hardware work queue all would stand behind what their stream has there already. */
TEST(buffers_come_back_before_the_last_tensor_is_computed)
{
    if (cuda_fixture_shares_queues()) skip();
    /* through host memory and from device to device; fp32, 16 bits, sparse */
    for (uint32_t i = 0; i < 10; i++) {
        const struct state_run *run = &state_runs[i % 5];
        struct world_setup setup = state_setup_of(run);
        struct ahead ahead = {.moment = {.step = run->sparse ? 4 : 1}};
        struct world_step step = {.fill = state_fill_whole, .arg = &ahead.moment};
        cuda_world_begin(i, NULL);
        setup.sim.ranks_per_node = (i < 5) ? 0 : setup.world;
        setup.config.exchange.fuse_bytes = 1;
        /* most are packed when all tensors have been declared */
        setup.config.exchange.buffers_active = 1 + i % 2;
        cuda_world_open(&setup);
        for (uint64_t before = 1; before < ahead.moment.step; before++) {
            state_step_run(&both->host, before, state_fill_whole);
            state_step_run(&both->cuda, before, state_fill_whole);
        }
        for (uint32_t rank = 0; rank < setup.world; rank++)
            ahead.streams[rank] = both->fixture.fake->stream_create();
        world_run(&both->cuda, ahead_progress, &ahead);
        world_expect(&both->cuda, GF_OK);
        assert_true(ahead.buffers >= STATE_TENSORS - 1);
        assert_true(both->cuda.ranks[0].gf->step.sparse == run->sparse);
        both->fixture.fake->release();
        world_run(&both->cuda, rest_progress, NULL);
        world_run(&both->host, world_step_progress, &step);
        for (uint32_t rank = 0; rank < setup.world; rank++) {
            assert_int_equal(gf_update(both->cuda.ranks[rank].gf, 0.0625f), GF_OK);
            assert_int_equal(gf_update(both->host.ranks[rank].gf, 0.0625f), GF_OK);
            both->fixture.fake->stream_run(ahead.streams[rank]);
            both->fixture.fake->stream_destroy(ahead.streams[rank]);
        }
        assert_true(cuda_world_same());
        cuda_world_close();
    }
}

/* ---- who has which device ---- */

static void devices_open(uint32_t devices, bool shared)
{
    struct world_setup setup = state_setup_of(&state_runs[6]); /* 4 ranks */
    cuda_world_begin(1, NULL);
    both->devices = devices;
    setup.config.device.shared = shared;
    setup = cuda_world_setup(&setup);
    world_open(&both->cuda, &setup);
}

TEST(ranks_that_have_one_device_are_named_unless_it_is_meant)
{
    static const char text[] = "have the same GPU, Fake";
    assert_int_equal(state_runs[6].world, 4);
    devices_open(2, false);
    for (uint32_t rank = 0; rank < 4; rank++) {
        char name[16];
        (void)snprintf(name, sizeof name, "Fake %u", rank % 2);
        assert_string_equal(both->cuda.ranks[rank].gf->gpu->name, name);
        assert_int_equal(world_logged(&both->cuda, rank, text), rank >= 2);
    }
    world_expect_log(&both->cuda, 2, "ranks 0 and 2 have the same GPU, Fake 0 (GPU-fa000000-..)");
    world_expect_log(&both->cuda, 3, "ranks 1 and 3 have the same GPU, Fake 1");
    world_close(&both->cuda);
    cuda_fixture_clean(&both->fixture);
    for (uint32_t devices = 1; devices <= 2; devices++) {
        devices_open(devices, true);
        for (uint32_t rank = 0; rank < 4; rank++)
            assert_false(world_logged(&both->cuda, rank, text));
        world_close(&both->cuda);
        cuda_fixture_clean(&both->fixture);
    }
}
