/* See gpu_program.h. The contexts are of the library's own driver and kernels, over a simulated
 * network; the appliance computes on the host, and the default stream brings its gradients to the
 * device. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/cuda/gpu_program.h"
#include "lib/context.h"
#include "firmware-tests/support/state_runs.h"

#define STEPS 5u

static const struct gf_tensor large[STATE_TENSORS] = {
    {.name = "bias", .elem_count = 1001, .flags = GF_TENSOR_DENSE | GF_TENSOR_NO_DECAY},
    {.name = "last", .elem_count = 75007},
    {.name = "scale", .elem_count = 4099},
    {.name = "first", .elem_count = 300001},
};
/* those of state_runs.h, with one rule of decay: chunks go by lists */
static struct gf_tensor small[STATE_TENSORS];

/* [rank][tensor][space_elems] what backward computes, until its copy to the device is done. */
static float *computed;
static uint64_t space_elems;

static void *gradient_of(struct world *w, uint32_t rank, uint32_t tensor)
{
    return computed + (rank * STATE_TENSORS + tensor) * space_elems;
}

static void gradient_store(struct world *w, uint32_t rank, uint32_t tensor, const void *gradient)
{
    gf_context *gf = w->ranks[rank].gf;
    struct gf_queue queue = {.gpu = gf->gpu, .stream = 0};
    assert_int_equal(
        gf->gpu->driver->copy(&queue, gf_gradient(gf, tensor), (gf_mem)(uintptr_t)gradient,
                              w->ranks[rank].tensors[tensor].elem_count * sizeof(float)),
        GF_OK);
}

/* The simulated network's card: through registered memory, by copies that no stream of the
 * library's knows of. */
static _Alignas(4096) char bounce[1u << 20];
static struct gf_gpu *card;

static void card_copy(bool to_device, void *dst, const void *src, size_t size_bytes)
{
    struct gf_queue queue = {.gpu = card, .stream = 0};
    gf_status status;
    assert_true(size_bytes <= sizeof bounce);
    if (to_device) memcpy(bounce, src, size_bytes);
    assert_int_equal(card->driver->copy(&queue, (gf_mem)(uintptr_t)(to_device ? dst : bounce),
                                        (gf_mem)(uintptr_t)(to_device ? bounce : src), size_bytes),
                     GF_OK);
    while ((status = card->driver->finished(&queue)) == GF_AGAIN) {
    }
    assert_int_equal(status, GF_OK);
    if (!to_device) memcpy(dst, bounce, size_bytes);
}

static void run_check(const struct state_run *run, gf_type wire, gf_path path, bool is_quick)
{
    static const struct world_device appliance = {
        .stream = 0, .gradient = gradient_of, .store = gradient_store};
    struct world_setup on_host = state_setup_of(run);
    struct world_setup on_gpu;
    struct world host;
    struct world gpu;
    struct state_save save;
    uint64_t bytes;
    char name[96];
    on_host.tensors = is_quick ? small : large;
    on_host.config.exchange.wire = wire;
    if (!is_quick) {
        on_host.config.exchange.fuse_bytes = 1u << 20;
        on_host.config.sparse.chunk_elems = 4096;
    }
    if (is_quick) on_host.config.exchange.slice_bytes = 4096; /* little staging in device memory */
    on_host.sim.ranks_per_node = (path == GF_PATH_PEERS) ? run->world : 1;
    on_gpu = on_host;
    on_gpu.sim.device_ranks = (path == GF_PATH_WIRE) ? UINT64_MAX : 0;
    on_gpu.sim.device_copy = card_copy;
    on_gpu.device = &appliance;
    on_gpu.real_time = !gpu_program.is_fake;
    strcpy(on_gpu.config.device.driver, "cuda");
    on_gpu.config.device.ordinal = GF_ORDINAL(0); /* ranks of one process share a device */
    on_gpu.config.device.shared = true;
    if (gpu_program.library != NULL)
        (void)snprintf(on_gpu.config.device.library, sizeof on_gpu.config.device.library, "%s",
                       gpu_program.library);
    (void)snprintf(name, sizeof name, "gpu-check: %s, %u ranks, %s on the wire, %s", run->name,
                   run->world,
                   (wire == GF_TYPE_F32)   ? "fp32"
                   : (wire == GF_TYPE_F16) ? "fp16"
                                           : "bf16",
                   gf_path_name(path));
    gpu_about(name);
    world_open(&host, &on_host);
    world_open(&gpu, &on_gpu);
    assert_int_equal(world_stats(&gpu, 0).path, path);
    card = gpu.ranks[0].gf->gpu;
    assert_int_equal(card->driver->host_register(card, bounce, sizeof bounce), GF_OK);
    space_elems = on_host.tensors[3].elem_count;
    bytes = (run->world * STATE_TENSORS * space_elems * sizeof(float) + 4095) / 4096 * 4096;
    computed = aligned_alloc(4096, bytes);
    assert_non_null(computed);
    assert_int_equal(
        gpu.ranks[0].gf->gpu->driver->host_register(gpu.ranks[0].gf->gpu, computed, bytes), GF_OK);
    state_weights_begin(&host);
    save = state_save_take(&host);
    state_save_load(&gpu, &save);
    state_save_free(&save);
    state_steps_same(&host, &gpu, 1, STEPS, state_fill, name);
    card->driver->host_unregister(card, computed);
    card->driver->host_unregister(card, bounce);
    world_close(&host);
    world_close(&gpu);
    free(computed);
}

uint32_t gpu_steps_check(bool is_quick)
{
    uint32_t runs = 0;
    memcpy(small, state_tensors, sizeof small);
    small[2].flags = 0;
    for (uint32_t i = 0; i < STATE_RUNS; i++)
        for (uint32_t wire = 0; wire < GF_TYPE_COUNT; wire++)
            for (uint32_t path = GF_PATH_STAGED; path <= GF_PATH_WIRE; path++) {
                if (is_quick && (wire != (i + path) % GF_TYPE_COUNT)) continue;
                if ((gpu_program.runs_max > 0) && (runs == gpu_program.runs_max)) continue;
                run_check(&state_runs[i], (gf_type)wire, (gf_path)path, is_quick);
                runs++;
            }
    return runs;
}
