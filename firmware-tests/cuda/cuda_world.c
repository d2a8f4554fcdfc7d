/* See cuda_world.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/cuda/cuda_world.h"
#include "lib/device/device.h"
#include "firmware-tests/support/link_watch.h"
#include "ops/element/cuda/ops_cuda.h"

#define SPACE_ELEMS 65536u /* of all tensors of a rank */

extern const struct gf_gpu_driver gf_gpu_cuda;
struct cuda_world cuda_world;
static const struct fake_cuda_image image = FAKE_CUDA_IMAGE;
/* The appliance's: what its backward pass computes, until its stream has brought it to the
 * gradients. */
static _Alignas(4096) float computed[STATE_RANKS_MAX][SPACE_ELEMS];

/* ---- the driver, with the kernels of any build ---- */

static struct gf_gpu_driver driver;

static struct gf_gpu_setup with_kernels(const struct gf_gpu_setup *setup)
{
    struct gf_gpu_setup whole = *setup;
    whole.kernels = gf_gpu_cuda_kernels;
    whole.kernels.image = &image;
    whole.kernels.image_cuda = NULL;
    return whole;
}

static size_t whole_state_bytes(const struct gf_gpu_setup *setup)
{
    const struct gf_gpu_setup whole = with_kernels(setup);
    return gf_gpu_cuda.state_bytes(&whole);
}

static gf_status whole_open(const struct gf_gpu_setup *setup, void *state, struct gf_gpu **gpu_out,
                            struct gf_fault *fault_out)
{
    const struct gf_gpu_setup whole = with_kernels(setup);
    gf_status status = gf_gpu_cuda.open(&whole, state, gpu_out, fault_out);
    if (status == GF_OK) (*gpu_out)->driver = &driver;
    return status;
}

/* UCX's cuda_copy registers what it maps, and gives that back with the link. */
static gf_status host_register(struct gf_gpu *gpu, void *base, size_t size_bytes)
{
    for (uint32_t i = 0; cuda_world.ucx_registers && (i < STATE_RANKS_MAX); i++) {
        if (cuda_world.by_ucx[i].gpu != NULL) continue;
        cuda_world.by_ucx[i].gpu = gpu;
        cuda_world.by_ucx[i].base = base;
        assert_int_equal(gf_gpu_cuda.host_register(gpu, base, size_bytes), GF_OK);
        break;
    }
    return gf_gpu_cuda.host_register(gpu, base, size_bytes);
}

static gf_status host_unregister(struct gf_gpu *gpu, void *base)
{
    gf_status status = gf_gpu_cuda.host_unregister(gpu, base);
    for (uint32_t i = 0; (status == GF_OK) && (i < STATE_RANKS_MAX); i++) {
        if (cuda_world.by_ucx[i].gpu != gpu) continue;
        cuda_world.by_ucx[i].gpu = NULL;
        status = gf_gpu_cuda.host_unregister(gpu, cuda_world.by_ucx[i].base);
    }
    return status;
}

static gf_status export(struct gf_gpu *gpu, void *handle_out, int *descriptor_out)
{
    if ((cuda_world.export_refused > 0) && (--cuda_world.export_refused == 0))
        return gf_fault_set(&gpu->fault, GF_ERR_DEVICE, GF_RANK_NONE,
                            "cuMemExportToShareableHandle", 801, "refused by the test");
    return gf_gpu_cuda.export_arena(gpu, handle_out, descriptor_out);
}

static gf_status import(struct gf_gpu *gpu, const void *handle, int descriptor, gf_mem *base_out)
{
    if ((cuda_world.import_refused > 0) && (--cuda_world.import_refused == 0))
        return gf_fault_set(&gpu->fault, GF_ERR_DEVICE, GF_RANK_NONE,
                            "cuMemImportFromShareableHandle", 217, "refused by the test");
    gf_status status = gf_gpu_cuda.import_arena(gpu, handle, descriptor, base_out);
    if ((cuda_world.import_wrong > 0) && (--cuda_world.import_wrong == 0)) *base_out = gpu->arena;
    return status;
}

/* Messages in device memory are accesses by a network card that no stream knows of. */
static bool card_begin(gf_mem data, size_t size_bytes, bool is_write)
{
    return cuda_world.fixture.fake->card_begin(data, size_bytes, is_write);
}

static void card_end(gf_mem data, size_t size_bytes, bool is_write)
{
    cuda_world.fixture.fake->card_end(data, size_bytes, is_write);
}

static void with_card(uint32_t rank, struct gf_config *config, const struct gf_tensor **tensors,
                      uint32_t *tensor_count)
{
    static const struct link_watch card = {card_begin, card_end};
    struct gf_drivers *drivers = (struct gf_drivers *)(uintptr_t)config->drivers;
    if (cuda_world.wire_ranks != 0) drivers->link = link_watch(drivers->link, &card);
}

/* ---- the appliance: it computes on the host, and its stream, the default one, brings gradients to
 * the device ---- */

static void *gradient_of(struct world *w, uint32_t rank, uint32_t tensor)
{
    const struct gf_tensor *tensors = w->ranks[rank].tensors;
    uint64_t first = 0;
    for (uint32_t t = 0; t < tensor; t++) first += tensors[t].elem_count;
    assert_true(first + tensors[tensor].elem_count <= SPACE_ELEMS);
    return &computed[rank][first];
}

static void copy_on(struct world *w, uint32_t rank, gf_queue_handle stream, gf_mem dst, gf_mem src,
                    uint64_t bytes)
{
    struct gf_queue queue = {.gpu = w->ranks[rank].gf->gpu, .stream = stream};
    assert_int_equal(gf_gpu_cuda.copy(&queue, dst, src, bytes), GF_OK);
}

static void gradient_store(struct world *w, uint32_t rank, uint32_t tensor, const void *gradient)
{
    copy_on(w, rank, 0, gf_gradient(w->ranks[rank].gf, tensor), (gf_mem)(uintptr_t)gradient,
            w->ranks[rank].tensors[tensor].elem_count * sizeof(float));
}

static const struct world_device appliance = {
    .stream = 0, .gradient = gradient_of, .store = gradient_store};

struct world_setup cuda_world_setup(const struct world_setup *host)
{
    struct world_setup setup = *host;
    setup.gpu = &driver;
    setup.device = &appliance;
    setup.vary = with_card;
    setup.sim.device_ranks = cuda_world.wire_ranks;
    setup.sim.device_copy = cuda_world.fixture.fake->card_copy;
    strcpy(setup.config.device.driver, "cuda");
    if (cuda_world.devices < 2) {
        setup.config.device.ordinal = GF_ORDINAL(0);
        setup.config.device.shared = true;
    }
    strcpy(setup.config.device.library, cuda_world.fixture.library);
    return setup;
}

void cuda_world_open_alone(const struct world_setup *setup)
{
    world_open(&cuda_world.cuda, setup);
    assert_int_equal(
        gf_gpu_cuda.host_register(cuda_world.cuda.ranks[0].gf->gpu, computed, sizeof computed),
        GF_OK);
}

void cuda_world_open(const struct world_setup *host)
{
    const struct world_setup setup = cuda_world_setup(host);
    struct state_save save;
    world_open(&cuda_world.host, host);
    cuda_world_open_alone(&setup);
    state_weights_begin(&cuda_world.host);
    save = state_save_take(&cuda_world.host);
    state_save_load(&cuda_world.cuda, &save);
    state_save_free(&save);
}

void cuda_world_close_alone(void)
{
    gf_gpu_cuda.host_unregister(cuda_world.cuda.ranks[0].gf->gpu, computed);
    world_close(&cuda_world.cuda);
    cuda_fixture_clean(&cuda_world.fixture);
}

void cuda_world_close(void)
{
    world_close(&cuda_world.host);
    cuda_world_close_alone();
}

bool cuda_world_same(void)
{
    return state_worlds_same(&cuda_world.host, &cuda_world.cuda);
}

void cuda_world_expect_path(gf_path path)
{
    for (uint32_t rank = 0; rank < cuda_world.cuda.world; rank++)
        assert_int_equal(world_stats(&cuda_world.cuda, rank).path, path);
    assert_int_equal(world_stats(&cuda_world.host, 0).path, GF_PATH_HOST);
}

static void halves_expect_equal(void)
{
    struct world *host = &cuda_world.host;
    struct world *cuda = &cuda_world.cuda;
    for (uint32_t rank = 0; rank < host->world; rank++) {
        gf_context *gf = cuda->ranks[rank].gf;
        struct gf_queue queue = gf->queue;
        for (uint32_t tensor = 0; tensor < STATE_TENSORS; tensor++) {
            gf_mem half = gf_weight_half(host->ranks[rank].gf, tensor);
            uint64_t bytes = state_tensors[tensor].elem_count * sizeof(uint16_t);
            if (half == 0) continue;
            void *copied = gradient_of(cuda, rank, tensor);
            copy_on(cuda, rank, queue.stream, (gf_mem)(uintptr_t)copied, gf_weight_half(gf, tensor),
                    bytes);
            while (gf_gpu_cuda.finished(&queue) == GF_AGAIN) {
            }
            assert_memory_equal((const void *)(uintptr_t)half, copied, bytes);
        }
    }
}

void cuda_world_steps(uint32_t steps, const char *name)
{
    state_steps_same(&cuda_world.host, &cuda_world.cuda, 1, steps, state_fill, name);
    halves_expect_equal();
}

void cuda_world_read(gf_context *gf, gf_mem from, uint64_t bytes, void *to)
{
    assert_true(bytes <= CUDA_ELEMS_MAX * sizeof(float));
    assert_int_equal(gf_device_copy(gf, from, (gf_mem)(uintptr_t)to, bytes, false), GF_OK);
}

void cuda_kept_read(gf_context *gf, struct cuda_kept *kept)
{
    memset(kept, 0, sizeof *kept);
    for (uint32_t t = 0; t < STATE_TENSORS; t++)
        cuda_world_read(gf, gf_weight(gf, t), state_tensors[t].elem_count * sizeof(float),
                        kept->weights[t]);
    if (gf->optimizer.momentum != 0)
        cuda_world_read(gf, gf->optimizer.momentum, 256 * sizeof(float), kept->momentum);
    uint64_t sparse_elems = (gf->sparse.elem_count < 256) ? gf->sparse.elem_count : 256;
    if (gf->sparse.history != 0)
        cuda_world_read(gf, gf->sparse.history, sparse_elems * sizeof(float), kept->history);
}

void cuda_world_elastic(struct world_setup *setup)
{
    setup->separate = true;
    setup->sim.detect_ns = 50000000;
    setup->config.job.elastic = true;
    setup->config.rendezvous.join_timeout_ns = UINT64_C(8000000000);
}

gf_status cuda_world_dying(struct world *w, uint32_t rank, void *arg)
{
    struct cuda_death *death = arg;
    const gf_context *gf = w->ranks[rank].gf;
    if (death->done || (rank != death->victim) || !death->due(w, death))
        return world_step_progress(w, rank, &death->step);
    gf_sim_kill(w->sim, rank);
    for (uint32_t s = 0; s < GF_STREAM_COUNT; s++)
        cuda_world.fixture.fake->stream_drop(gf->gpu->streams[s]);
    death->done = true;
    return GF_AGAIN;
}

void cuda_world_dies(struct cuda_death *death)
{
    static struct cuda_kept before[STATE_RANKS_MAX];
    static struct cuda_kept after;
    struct world *w = &cuda_world.cuda;
    for (uint32_t rank = 0; rank < w->world; rank++)
        if (rank != death->victim) cuda_kept_read(w->ranks[rank].gf, &before[rank]);
    world_run(w, cuda_world_dying, death);
    for (uint32_t rank = 0; rank < w->world; rank++) {
        gf_context *gf = w->ranks[rank].gf;
        if (rank == death->victim) continue;
        assert_true(w->ranks[rank].status < 0);
        if (gf_error_last(gf)->peer != death->victim)
            fail_msg("rank %u: %s", rank, gf_error_last(gf)->text);
        cuda_kept_read(gf, &after);
        assert_memory_equal(&after, &before[rank], sizeof after);
    }
}

void cuda_world_goes_on(struct cuda_death *death, gf_path path)
{
    static struct cuda_kept first;
    static struct cuda_kept other;
    struct world *w = &cuda_world.cuda;
    uint32_t survivor = (death->victim == 0) ? 1 : 0;
    world_run(w, world_regroup_progress, NULL);
    for (uint32_t rank = 0; rank < w->world; rank++)
        if (rank != death->victim) assert_int_equal(w->ranks[rank].status, GF_OK);
    world_run(w, world_step_progress, &death->step);
    for (uint32_t rank = 0; rank < w->world; rank++) {
        if (rank == death->victim) continue;
        assert_int_equal(w->ranks[rank].status, GF_OK);
        assert_int_equal(world_stats(w, rank).path, path);
        assert_int_equal(gf_update(w->ranks[rank].gf, 0.0625f), GF_OK);
        cuda_kept_read(w->ranks[rank].gf, (rank == survivor) ? &first : &other);
        if (rank != survivor)
            assert_memory_equal(other.weights, first.weights, sizeof first.weights);
    }
}

uint32_t cuda_world_fails(const char *call, uint32_t times, struct world_setup setup,
                          void (*opened)(struct world *w))
{
    struct state_moment moment = {.step = 1};
    struct world_step step = {.fill = state_fill_whole, .arg = &moment};
    struct world *w = &cuda_world.cuda;
    uint64_t wire_ranks = cuda_world.wire_ranks;
    uint32_t failed = 0;
    uint32_t folding = 0;
    char text[64];
    (void)snprintf(text, sizeof text, "GF_FAKE_CUDA_FAIL=%s:%u:400", call, times);
    cuda_world_begin(times, text);
    cuda_world.wire_ranks = wire_ranks;
    setup.sim.detect_ns = 50000000;
    setup = cuda_world_setup(&setup);
    cuda_world_open_alone(&setup);
    if (opened != NULL) opened(w);
    world_run(w, world_step_progress, &step);
    for (uint32_t rank = 0; rank < setup.world; rank++) {
        const gf_context *gf = w->ranks[rank].gf;
        failed += w->ranks[rank].status == GF_ERR_DEVICE;
        for (uint32_t s = 0; s < gf->under_way.count; s++)
            folding += gf->under_way.ops[s].coll.error == GF_ERR_DEVICE;
    }
    if (cuda_world.fixture.fake->failure_met())
        assert_true(failed > 0);
    else
        world_expect(w, GF_OK);
    cuda_world_close_alone();
    return folding;
}

void cuda_world_begin(uint32_t seed, const char *second)
{
    const char *more = getenv("GF_TEST_SEED"); /* test_cuda_seeds */
    char text[64];
    if (more != NULL) seed += (uint32_t)strtoul(more, NULL, 10);
    (void)snprintf(text, sizeof text, "GF_FAKE_CUDA_SEED=%u", seed);
    cuda_fixture_init(&cuda_world.fixture, text, second);
    driver = gf_gpu_cuda;
    driver.state_bytes = whole_state_bytes;
    driver.open = whole_open;
    driver.host_register = host_register;
    driver.host_unregister = host_unregister;
    driver.export_arena = export;
    driver.import_arena = import;
    cuda_world.export_refused = cuda_world.import_refused = cuda_world.import_wrong = 0;
    cuda_world.wire_ranks = 0;
    cuda_world.ucx_registers = false;
    cuda_world.devices = 1;
}
