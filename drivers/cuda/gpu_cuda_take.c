/* The CUDA driver: what is held from open to close, which is the device, its primary context,
 * streams, events, the arena and the kernels. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "drivers/cuda/gpu_cuda.h"

/* Which device, and what it is. */
static gf_status device_choose(struct cuda_gpu *cuda, const struct gf_gpu_setup *setup)
{
    const struct cuda_calls *calls = &cuda->calls;
    int count = 0;
    int usable = 0;
    int multiprocessors = 0;
    int maps = 0;
    int descriptors = 0;
    int cards = 0;
    const struct {
        CUdevice_attribute of;
        int *value;
    } attributes[] = {
        {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, &usable},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &multiprocessors},
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &maps},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, &descriptors},
        {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, &cards},
    };
    CUuuid uuid;
    cuda->begun = true;
    gf_status status = CUDA_TOLD(cuda, init, 0);
    if (status >= 0) status = CUDA_TOLD(cuda, device_count, &count);
    if (status < 0) return status;
    if ((count <= 0) || (setup->ordinal > (uint32_t)count)) {
        char asked[16] = "auto";
        if (setup->ordinal > 0) (void)snprintf(asked, sizeof asked, "%u", setup->ordinal - 1);
        return gf_fault_set(
            &cuda->gpu.fault, GF_ERR_CONFIG, GF_RANK_NONE, "", 0,
            "device.ordinal %s: this process sees %d GPUs; allowed are ordinals below that", asked,
            count);
    }
    cuda->gpu.count = (uint32_t)count;
    cuda->gpu.ordinal = (setup->ordinal > 0) ? setup->ordinal - 1 : setup->local % cuda->gpu.count;
    status = CUDA_TOLD(cuda, device_get, &cuda->device, (int)cuda->gpu.ordinal);
    for (size_t i = 0; (i < sizeof attributes / sizeof attributes[0]) && (status >= 0); i++)
        status =
            CUDA_TOLD(cuda, device_attribute, attributes[i].value, attributes[i].of, cuda->device);
    if (status < 0) return status;
    if (usable == 0)
        return gf_fault_set(
            &cuda->gpu.fault, GF_ERR_DEVICE, GF_RANK_NONE, gf_cuda_names.device_attribute, 0,
            "device %u cannot use addresses of registered host memory as they are "
            "(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM is 0), which this driver rests on",
            cuda->gpu.ordinal);
    cuda->gpu.multiprocessors = (uint32_t)multiprocessors;
    cuda->can_map = (maps != 0) && (descriptors != 0);
    cuda->for_cards = cards != 0;
    if (calls->device_name(cuda->gpu.name, sizeof cuda->gpu.name, cuda->device) != CUDA_SUCCESS)
        (void)snprintf(cuda->gpu.name, sizeof cuda->gpu.name, "?");
    if (calls->device_uuid(&uuid, cuda->device) == CUDA_SUCCESS)
        memcpy(cuda->gpu.uuid, uuid.bytes, sizeof cuda->gpu.uuid);
    return GF_OK;
}

static gf_status queue_take(struct cuda_gpu *cuda)
{
    /* Non-blocking: else each use of the default stream by the caller would wait for communication.
     * And in front of the caller's: what is to be sent is waited for by all ranks. */
    int least = 0;
    int greatest = 0;
    gf_status status = CUDA_TOLD(cuda, priorities, &least, &greatest);
    for (uint32_t i = 0; (i < GF_STREAM_COUNT) && (status >= 0); i++)
        status =
            CUDA_TOLD(cuda, stream_create, &cuda->streams[i], CU_STREAM_NON_BLOCKING, greatest);
    for (uint32_t i = 0; i < GF_STREAM_COUNT; i++)
        cuda->gpu.streams[i] = (gf_queue_handle)(uintptr_t)cuda->streams[i];
    if (status >= 0) status = CUDA_TOLD(cuda, event_create, &cuda->cross, CU_EVENT_DISABLE_TIMING);
    for (uint32_t i = 0; (i < cuda->event_count) && (status >= 0); i++)
        status = CUDA_TOLD(cuda, event_create, &cuda->events[i], CU_EVENT_DISABLE_TIMING);
    return status;
}

/* More about what gf_cuda_result() has told. */
__attribute__((format(printf, 2, 3))) static void fault_add(struct cuda_gpu *cuda,
                                                            const char *format, ...)
{
    struct gf_fault *fault = &cuda->gpu.fault;
    va_list arguments;
    size_t used = strlen(fault->text);
    va_start(arguments, format);
    (void)vsnprintf(fault->text + used, sizeof fault->text - used, format, arguments);
    va_end(arguments);
}

static gf_status arena_take(struct cuda_gpu *cuda, size_t size_bytes)
{
    const struct cuda_calls *calls = &cuda->calls;
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    if (size_bytes == 0) return GF_OK;
    gf_status status = cuda->can_map ? gf_cuda_arena_map(cuda, size_bytes) : GF_OK;
    const bool is_mapped = cuda->can_map && (status == GF_OK);
    if (status < 0)
        gf_log_line(&cuda->log, GF_LOG_WARN, "%s: its memory is taken by cuMemAlloc instead",
                    cuda->gpu.fault.text);
    cuda->gpu.fault = (struct gf_fault){.peer = GF_RANK_NONE};
    CUresult result = is_mapped ? CUDA_SUCCESS : calls->memory_take(&cuda->arena, size_bytes);
    if (result == CUDA_SUCCESS) {
        cuda->gpu.arena = cuda->arena;
        cuda->arena_bytes = size_bytes;
        cuda->gpu.exports = is_mapped;
        status = CUDA_TOLD(cuda, set, cuda->arena, 0, size_bytes, cuda->streams[GF_STREAM_MAIN]);
        (void)gf_cuda_idle(cuda, false); /* other streams will use it without asking */
        return status;
    }
    cuda->arena = 0;
    status = gf_cuda_result(cuda, result, gf_cuda_names.memory_take, &cuda->gpu.fault);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return status;
    if (calls->memory_info(&free_bytes, &total_bytes) != CUDA_SUCCESS) free_bytes = total_bytes = 0;
    fault_add(cuda, ": asked for %zu bytes; %zu of its %zu bytes are free", size_bytes, free_bytes,
              total_bytes);
    return status;
}

/* Machine code of nvcc N.x is loaded by drivers of CUDA N.0 and newer, PTX by those of its own
 * CUDA. */
static void image_refused(struct cuda_gpu *cuda, const uint32_t image_cuda[2], CUresult result)
{
    int driver = 0;
    int major = 0;
    int minor = 0;
    if ((image_cuda == NULL) ||
        ((result != CUDA_ERROR_INVALID_IMAGE) && (result != CUDA_ERROR_NO_BINARY_FOR_GPU) &&
         (result != CUDA_ERROR_INVALID_PTX) && (result != CUDA_ERROR_UNSUPPORTED_PTX_VERSION)))
        return;
    (void)cuda->calls.driver_version(&driver);
    (void)cuda->calls.device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                       cuda->device);
    (void)cuda->calls.device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                       cuda->device);
    if (major < 8) {
        fault_add(cuda, ": the GPU is sm_%d%d, kernels are for sm_80 and newer", major, minor);
        return;
    }
    bool is_newer = (major == 10) && (image_cuda[1] != 0), is_ptx = (major > 9) && !is_newer;
    uint32_t made = image_cuda[is_newer];
    uint32_t wanted = is_ptx ? made : made / 1000 * 1000;
    fault_add(cuda,
              ": driver of CUDA %d.%d; sm_%d%d has kernels of nvcc %u.%u, sm_80 and 90 of %u.%u: "
              "take a driver "
              "of CUDA %u.%u, or an older nvcc",
              driver / 1000, driver % 1000 / 10, major, minor, made / 1000, made % 1000 / 10,
              image_cuda[0] / 1000, image_cuda[0] % 1000 / 10, wanted / 1000, wanted % 1000 / 10);
}

static gf_status kernels_take(struct cuda_gpu *cuda, const struct gf_gpu_setup *setup)
{
    const struct cuda_calls *calls = &cuda->calls;
    if (setup->kernels.image == NULL) return GF_OK;
    CUresult loaded = calls->module_load(&cuda->module, setup->kernels.image);
    gf_status status = gf_cuda_result(cuda, loaded, gf_cuda_names.module_load, &cuda->gpu.fault);
    if (status < 0) image_refused(cuda, setup->kernels.image_cuda, loaded);
    if (status < 0) return status;
    for (uint32_t i = 0; i < setup->kernels.count; i++) {
        CUresult result =
            calls->module_function(&cuda->kernels[i], cuda->module, setup->kernels.names[i]);
        status = gf_cuda_result(cuda, result, gf_cuda_names.module_function, &cuda->gpu.fault);
        if (result == CUDA_ERROR_NOT_FOUND)
            fault_add(cuda, ": the image has no kernel \"%.60s\"", setup->kernels.names[i]);
        int blocks = 0;
        if (status >= 0)
            status =
                CUDA_TOLD(cuda, occupancy, &blocks, cuda->kernels[i], (int)GF_GPU_BLOCK_THREADS, 0);
        if (status < 0) return status;
        cuda->blocks[i] = ((blocks > 0) ? (uint32_t)blocks : 1u) * cuda->gpu.multiprocessors;
    }
    return GF_OK;
}

gf_status gf_cuda_take(struct cuda_gpu *cuda, const struct gf_gpu_setup *setup)
{
    gf_status status = device_choose(cuda, setup);
    /* The process's one primary context, the one that the CUDA runtime uses too: streams of the
     * caller are of it. */
    if (status >= 0) status = CUDA_TOLD(cuda, context_retain, &cuda->context, cuda->device);
    if ((status < 0) || ((status = gf_cuda_enter(cuda)) < 0)) return status;
    status = queue_take(cuda);
    if (status >= 0) status = arena_take(cuda, setup->device_bytes);
    if (status >= 0) status = kernels_take(cuda, setup);
    status = gf_cuda_leave(cuda, status);
    if (status < 0) return status;
    gf_log_line(&cuda->log, GF_LOG_INFO, "device %d: %s, %u multiprocessors, %zu bytes taken",
                (int)cuda->device, cuda->gpu.name, cuda->gpu.multiprocessors, setup->device_bytes);
    return GF_OK;
}
