/* Sums of squares: the runs, a group of threads each; then the runs' sums, in one block. */
#include "ops/element/cuda/lanes.cuh"

GF_INLINE void norm_runs_type(uint32_t type, const struct gf_norm_runs_args *r)
{
    const uint64_t threads = (uint64_t)gf_lanes_threads(type);
    for (uint64_t run = gf_thread() / threads; run * GF_KERNEL_RUN_ELEMS < r->elem_count;
         run += gf_threads() / threads) {
        uint64_t first = run * GF_KERNEL_RUN_ELEMS, left = r->elem_count - first;
        float sum = gf_lanes_sum(type, r->src + first * gf_bytes(type),
                                 (left < GF_KERNEL_RUN_ELEMS) ? left : GF_KERNEL_RUN_ELEMS, 1);
        if (threadIdx.x % threads == 0) ((float *)r->runs)[run] = sum;
    }
}

#define NORM_RUNS(name, type) \
    GF_KERNEL_OF(norm_runs_##name, norm_runs) { norm_runs_type(type, &args); }
GF_EACH_TYPE(NORM_RUNS)

/* One block of GF_KERNEL_LANES threads, a lane each. */
GF_KERNEL(norm_end)
{
    __shared__ float lanes[GF_KERNEL_LANES];
    const float *runs = (const float *)args.runs;
    uint32_t lane = threadIdx.x;
    float sum = args.is_first ? 0.0f : ((const float *)args.lanes)[lane];
    for (uint32_t run = lane; run < args.run_count; run += GF_KERNEL_LANES) sum = gf_add(sum, runs[run], 0);
    if (!args.is_last) {
        ((float *)args.lanes)[lane] = sum;
        return;
    }
    lanes[lane] = sum;
    for (uint32_t half = GF_KERNEL_LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) lanes[lane] = gf_add(lanes[lane], lanes[lane + half], 0);
    }
    if (lane == 0) *(float *)args.square = gf_add(*(const float *)args.square, lanes[0], 0);
}
