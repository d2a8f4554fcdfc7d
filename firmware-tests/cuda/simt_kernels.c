/* Kernels of the emulator's own test, compiled as those of ops/ are. */
#include "firmware-tests/cuda/simt_kernels.h"

#include "ops/element/cuda/device.cuh"

#define REVERSE_THREADS 96u

GF_KERNEL(reverse)
{
    __shared__ uint32_t part[REVERSE_THREADS];
    uint32_t *data = (uint32_t *)args.data + gf_thread();
    part[threadIdx.x] = *data;
    if (args.with_barrier) __syncthreads();
    *data = part[blockDim.x - 1 - threadIdx.x];
}

GF_KERNEL(count)
{
    unsigned long long *counter = (unsigned long long *)args.counter;
    unsigned long long place = atomicAdd(counter, 1ull);
    ((uint32_t *)args.order)[place] = threadIdx.x;
    if (args.reads_plainly && (threadIdx.x == 0)) ((uint32_t *)args.order)[0] = (uint32_t)*counter;
}

GF_KERNEL(broken)
{
    uint32_t *data = (uint32_t *)args.data;
    switch (args.what) {
    case BROKEN_BLOCKS_MEET: data[threadIdx.x] = blockIdx.x; break;
    case BROKEN_BARRIER:
        if (threadIdx.x != 3) __syncthreads();
        break;
    case BROKEN_SHUFFLE:
        if (threadIdx.x == 3) break;
        data[gf_thread()] = gf_bits(__shfl_down_sync(0xffu, 1.0f, 1, 8));
        break;
    case BROKEN_ALIGNMENT: *(uint32_t *)(args.data + 2 + 4 * gf_thread()) = 1; break;
    case BROKEN_READ_THEN_WRITE: /* the neighbour may have written already */
        data[gf_thread()] = data[(gf_thread() + 1) % gf_threads()];
        break;
    default: data[gf_thread()] = 1; break;
    }
}
