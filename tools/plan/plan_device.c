/* gf-plan's devices to the library: plan_gpu.h. */
#include <string.h>
#include <sys/mman.h>

#include "tools/plan/plan_gpu.h"

/* What the library must see is moved even where runs have no data: counters, proofs, scores. */
#define REAL_BYTES_MAX (UINT64_C(1) << 20)

struct plan_gpu_state {
    struct gf_gpu base;
    struct plan_device *device;
};

struct plan_device *plan_device_of(const struct gf_gpu *gpu)
{
    return ((const struct plan_gpu_state *)(const void *)gpu)->device;
}

static struct plan_device *device_of(const struct gf_queue *queue)
{
    return plan_device_of(queue->gpu);
}

static uint64_t later_of(uint64_t a, uint64_t b)
{
    return (a > b) ? a : b;
}

/* What of a stream is under way ends then. */
static uint64_t end_of(const struct plan_device *device, gf_queue_handle stream)
{
    return later_of(device->stream_free_ns[stream], gf_sim_now_ns(device->sim));
}

void plan_device_work(const struct gf_queue *queue, plan_engine engine, uint64_t work_ns)
{
    struct plan_device *device = device_of(queue);
    uint64_t begin_ns = later_of(end_of(device, queue->stream), device->engine_free_ns[engine]);
    if (!device->at_once)
        device->stream_free_ns[queue->stream] = device->engine_free_ns[engine] = begin_ns + work_ns;
}

static gf_status reached_at(struct plan_device *device, uint64_t at_ns)
{
    device->moved = device->moved || !device->is_gpu;
    if (at_ns > 0) at_ns += device->at_once ? 0 : device->poll_ns;
    if (!device->is_gpu || (at_ns <= gf_sim_now_ns(device->sim))) return GF_OK;
    gf_sim_wake_at(device->sim, device->rank, at_ns);
    return GF_AGAIN;
}

static size_t gpu_state_bytes(const struct gf_gpu_setup *setup)
{
    (void)setup;
    return sizeof(struct plan_gpu_state);
}

static gf_status gpu_open(const struct gf_gpu_setup *setup, void *state, struct gf_gpu **gpu_out,
                          struct gf_fault *fault_out)
{
    struct plan_gpu_state *gpu = state;
    struct plan_device *device = setup->arg;
    GF_ASSERT((device != NULL) && (device->is_gpu || (setup->device_bytes == 0)));
    if (setup->events_max > PLAN_EVENTS_MAX)
        return gf_fault_set(fault_out, GF_ERR_PARAM, GF_RANK_NONE, "open", 0,
                            "%u events; gf-plan's devices have %u", setup->events_max,
                            PLAN_EVENTS_MAX);
    if (device->is_gpu) {
        void *arena = mmap(NULL, setup->device_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (arena == MAP_FAILED)
            return gf_fault_set(fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, "mmap", 0,
                                "no address space for a device");
        device->arena = arena;
        device->arena_bytes = setup->device_bytes;
    }
    *gpu = (struct plan_gpu_state){
        .base = {.driver = device->is_gpu ? &plan_gpu_device : &plan_gpu_host,
                 .ops = &plan_ops,
                 .host_ops = &plan_ops,
                 .fault.peer = GF_RANK_NONE},
        .device = device};
    gpu->base.arena = (gf_mem)(uintptr_t)device->arena;
    for (uint32_t i = 0; device->is_gpu && (i < GF_STREAM_COUNT); i++) gpu->base.streams[i] = i + 1;
    *gpu_out = &gpu->base;
    return GF_OK;
}

static void gpu_close(struct gf_gpu *gpu)
{
    struct plan_device *device = plan_device_of(gpu);
    if (device->arena != NULL) (void)munmap(device->arena, device->arena_bytes);
    device->arena = NULL;
}

static gf_status gpu_register(struct gf_gpu *gpu, void *base, size_t size_bytes)
{
    struct plan_device *device = plan_device_of(gpu);
    device->host = (gf_mem)(uintptr_t)base;
    device->host_bytes = size_bytes;
    return GF_OK;
}

static gf_status gpu_unregister(struct gf_gpu *gpu, void *base)
{
    return gpu_register(gpu, base, 0);
}

static bool is_in(const struct plan_device *device, gf_mem at)
{
    return at - (gf_mem)(uintptr_t)device->arena < device->arena_bytes;
}

static gf_status gpu_copy(struct gf_queue *queue, gf_mem dst, gf_mem src, size_t size_bytes)
{
    struct plan_device *device = device_of(queue);
    double rate = device->host_bytes_per_ns;
    uint64_t copy_ns = (rate > 0.0) ? (uint64_t)((double)size_bytes / rate + 0.5) : 0;
    plan_engine engine = is_in(device, src) ? PLAN_COPIES_OUT : PLAN_COPIES_IN;
    if (!device->is_gpu || (is_in(device, dst) == is_in(device, src)))
        return plan_copy(queue, dst, src, size_bytes);
    if (is_in(device, dst) && (src - device->host >= device->host_bytes)) {
        engine = PLAN_COPIES_PEER;
        copy_ns = plan_peer_copy_ns(device, size_bytes);
    }
    plan_device_work(queue, engine, device->op_ns + copy_ns);
    if (device->has_data || (size_bytes <= REAL_BYTES_MAX))
        memcpy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, size_bytes);
    return GF_OK;
}

static gf_status gpu_stream_wait(struct gf_queue *queue, gf_queue_handle other)
{
    struct plan_device *device = device_of(queue);
    device->stream_free_ns[other] =
        later_of(device->stream_free_ns[other], end_of(device, queue->stream));
    return GF_OK;
}

static gf_status gpu_event_record(struct gf_queue *queue, uint32_t event)
{
    struct plan_device *device = device_of(queue);
    device->event_ns[event] = end_of(device, queue->stream);
    device->moved = true;
    return GF_OK;
}

/* Once an event: the library may go on at once, and nothing else would wake it. */
static gf_status gpu_event_query(struct gf_gpu *gpu, uint32_t event)
{
    struct plan_device *device = plan_device_of(gpu);
    gf_status status = reached_at(device, device->event_ns[event]);
    if ((status == GF_OK) && (device->event_ns[event] > 0)) device->moved = true;
    if (status == GF_OK) device->event_ns[event] = 0;
    return status;
}

static gf_status gpu_finished(struct gf_queue *queue)
{
    return reached_at(device_of(queue), device_of(queue)->stream_free_ns[queue->stream]);
}

/* All ranks are in this process: an address is all there is to tell. */
static gf_status gpu_export(struct gf_gpu *gpu, void *handle_out, int *descriptor_out)
{
    gf_mem arena = gpu->arena;
    *descriptor_out = -1;
    memset(handle_out, 0, GF_GPU_HANDLE_BYTES);
    memcpy(handle_out, &arena, sizeof arena);
    return GF_OK;
}

static gf_status gpu_import(struct gf_gpu *gpu, const void *handle, int descriptor,
                            gf_mem *base_out)
{
    (void)gpu;
    (void)descriptor;
    memcpy(base_out, handle, sizeof *base_out);
    return GF_OK;
}

static void gpu_give_back(struct gf_gpu *gpu, const void *handle, gf_mem base)
{
    (void)gpu;
    (void)handle;
    (void)base;
}

#define SHARED                                                                          \
    .state_bytes = gpu_state_bytes, .open = gpu_open, .close = gpu_close,               \
    .host_register = gpu_register, .host_unregister = gpu_unregister, .copy = gpu_copy, \
    .finished = gpu_finished, .zero = plan_zero, .stream_wait = gpu_stream_wait,        \
    .event_record = gpu_event_record, .event_query = gpu_event_query

const struct gf_gpu_driver plan_gpu_host = {.name = "host", .is_host = true, SHARED};
const struct gf_gpu_driver plan_gpu_device = {.name = "cuda",
                                              .export_arena = gpu_export,
                                              .import_arena = gpu_import,
                                              .give_back = gpu_give_back,
                                              SHARED};
