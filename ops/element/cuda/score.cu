/* Sums of magnitudes, a group of threads a chunk, a piece after the other. */
#include "ops/element/cuda/lanes.cuh"

GF_KERNEL(score)
{
    const uint64_t threads = (uint64_t)gf_lanes_threads(GF_KERNEL_F32);
    uint64_t chunk = gf_thread() / threads;
    for (; chunk * args.chunk_elems < args.elem_count; chunk += gf_threads() / threads) {
        uint64_t first = chunk * args.chunk_elems, left = args.elem_count - first;
        float sum = 0.0f; /* what it is added to is not negative: the same bits */
        if (left > args.chunk_elems) left = args.chunk_elems;
        for (uint64_t done = 0; done < left; done += args.piece_elems) {
            uint64_t count = (left - done < args.piece_elems) ? left - done : args.piece_elems;
            sum = gf_add(sum, gf_lanes_sum(GF_KERNEL_F32, args.src + (first + done) * 4u, count, 0), 0);
        }
        if (threadIdx.x % threads == 0) ((float *)args.scores)[chunk] = sum;
    }
}
