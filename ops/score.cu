/* Sums of magnitudes, a group of threads a chunk. */
#include "lanes.cuh"

GF_KERNEL(score)
{
    const uint64_t threads = (uint64_t)gf_lanes_threads(GF_KERNEL_F32);
    uint64_t chunk = gf_thread() / threads;
    for (; chunk * args.chunk_elems < args.elem_count; chunk += gf_threads() / threads) {
        uint64_t first = chunk * args.chunk_elems, left = args.elem_count - first;
        float sum = gf_lanes_sum(GF_KERNEL_F32, args.src + first * 4u,
                                 (left < args.chunk_elems) ? left : args.chunk_elems, 0);
        if (threadIdx.x % threads == 0) ((float *)args.scores)[chunk] = sum;
    }
}
