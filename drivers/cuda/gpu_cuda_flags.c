/* CUDA driver, flags that streams store and wait for: stream memory operations on words of registered host memory.
 * From CUDA 12.0 on they are in every driver without a switch of the kernel module; whether the device has those of 64
 * bits it says itself. A store is made behind a barrier of the whole system, and a wait takes what is greater as
 * numbers turn round, so values stay below 2^63. CUDA does not know that a wait depends on another stream or process:
 * streams that share one of its work queues wait with it, so the caller must give all ranks their waits in one order
 * (ops/node/README.md). */
#include "drivers/cuda/gpu_cuda.h"

_Static_assert(GF_GPU_FLAGS_MAX < 256, "cuStreamBatchMemOp takes fewer than 256");

static CUstreamBatchMemOpParams params_of(const struct gf_gpu_flag *flag)
{
    CUstreamBatchMemOpParams params = {.pad = {0}};
    GF_ASSERT((flag->at % sizeof(uint64_t) == 0) && (flag->value < UINT64_MAX / 2));
    if (flag->is_wait) {
        params.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
        params.waitValue.address = flag->at;
        params.waitValue.value64 = flag->value;
        params.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    } else {
        params.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
        params.writeValue.address = flag->at;
        params.writeValue.value64 = flag->value;
        params.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    }
    return params;
}

gf_status gf_cuda_flags(struct gf_queue *queue, const struct gf_gpu_flag *flags, uint32_t count)
{
    struct cuda_gpu *cuda = (struct cuda_gpu *)(void *)queue->gpu;
    CUstream stream = (CUstream)(uintptr_t)queue->stream;
    CUstreamBatchMemOpParams params[GF_GPU_FLAGS_MAX / 4];
    GF_ASSERT(queue->gpu->has_flags && (count <= GF_GPU_FLAGS_MAX));
    gf_status status = gf_cuda_enter(cuda);
    if (status < 0) return status;
    for (uint32_t done = 0, some; (done < count) && (status >= 0); done += some) {
        some = (count - done < GF_GPU_FLAGS_MAX / 4) ? count - done : GF_GPU_FLAGS_MAX / 4;
        for (uint32_t i = 0; i < some; i++) params[i] = params_of(&flags[done + i]);
        status = gf_cuda_told(cuda, cuda->flags(stream, some, params, 0), "cuStreamBatchMemOp");
    }
    return gf_cuda_leave(cuda, status);
}
