/* Sums of squares of listed ranges: their runs, a group of threads each; then the runs' sums, a
 * block a range. */
#include "ops/element/cuda/lanes.cuh"

/* The last range that begins with this run or before it. */
GF_INLINE uint32_t norm_range_of(const struct gf_norm_args *n, uint64_t run)
{
    uint32_t low = 0, high = n->count;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (n->ranges[middle].first_run <= run)
            low = middle;
        else
            high = middle;
    }
    return low;
}

GF_INLINE void norm_runs_type(uint32_t type, const struct gf_norm_args *n)
{
    const uint64_t threads = (uint64_t)gf_lanes_threads(type);
    for (uint64_t run = gf_thread() / threads; run < n->run_count; run += gf_threads() / threads) {
        uint32_t range = norm_range_of(n, run);
        uint64_t first = (run - n->ranges[range].first_run) * GF_RUN_ELEMS;
        uint64_t left = n->ranges[range].of.elem_count - first;
        double sum = gf_lanes_square(type, n->ranges[range].of.src + first * gf_bytes(type),
                                     (left < GF_RUN_ELEMS) ? left : GF_RUN_ELEMS);
        if (threadIdx.x % threads == 0) ((double *)n->runs)[run] = sum;
    }
}

#define NORM_RUNS(name, type)                  \
    GF_KERNEL_BOUND(norm_runs_##name, norm, 2) \
    {                                          \
        norm_runs_type(type, &args);           \
    }
GF_EACH_TYPE(NORM_RUNS)

/* Blocks of GF_KERNEL_LANES threads, a lane each: the same order of adding as in a run, over
 * runs. */
GF_KERNEL_OF(norm_end, norm)
{
    enum { AHEAD = 8 };
    __shared__ double lanes[GF_KERNEL_LANES];
    const uint32_t lane = threadIdx.x;
    const uint32_t range = blockIdx.x;
    const uint32_t first = args.ranges[range].first_run;
    const uint32_t end =
        (range + 1 < args.count) ? args.ranges[range + 1].first_run : args.run_count;
    const double *runs = (const double *)args.runs;
    double sum = 0.0;
    uint32_t run = first + lane;
    /* All loads of an iteration are on their way before the first is added. */
    for (; (run < end) && (end - run > (AHEAD - 1) * GF_KERNEL_LANES);
         run += AHEAD * GF_KERNEL_LANES) {
        double ahead[AHEAD];
        GF_UNROLL
        for (uint32_t a = 0; a < AHEAD; a++)
            ahead[a] = gf_f64_load(args.runs + ((uint64_t)run + a * GF_KERNEL_LANES) * 8u);
        GF_UNROLL
        for (uint32_t a = 0; a < AHEAD; a++) sum += ahead[a];
    }
    for (; run < end; run += GF_KERNEL_LANES) sum += runs[run];
    lanes[lane] = sum;
    for (uint32_t half = GF_KERNEL_LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) lanes[lane] += lanes[lane + half];
    }
    double *square = (double *)args.ranges[range].of.square_f64;
    if (lane == 0) *square += lanes[0];
}
