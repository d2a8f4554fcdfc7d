/* The order of adding of score and norm: lane l of 64 takes elements l, l + 64, ..; then a tree
 * over the lanes. Magnitudes are added in fp32, squares in double. A group of threads holds the 64
 * lanes, each thread those of one 16-byte access: 16 threads of 4 lanes for fp32, 8 of 8 for 16-bit
 * types. Groups lie within a warp, and their members take the same iterations. */
#ifndef GF_LANES_CUH
#define GF_LANES_CUH

#include "ops/element/cuda/device.cuh"

#define GF_ROWS_AHEAD 8

GF_INLINE int gf_lanes_threads(uint32_t type)
{
    return (type == GF_KERNEL_F32) ? 16 : 8;
}

/* Rows first..first+GF_ROWS_AHEAD-1 of whole rows, by 16-byte accesses. */
GF_INLINE void gf_rows_load(struct gf_pack rows[GF_ROWS_AHEAD], uint32_t type, uint64_t src,
                            uint64_t first, uint32_t lane, int lanes)
{
    GF_UNROLL
    for (int row = 0; row < GF_ROWS_AHEAD; row++)
        gf_pack_load(&rows[row], type, src, (first + (uint64_t)row) * GF_KERNEL_LANES + lane,
                     lanes);
}

/* Sums of the lanes that a thread holds: of one kind, the other is compiled away. */
struct gf_lane_sums {
    float magnitude[GF_KERNEL_PACK_MAX];
    double square[GF_KERNEL_PACK_MAX];
};

GF_INLINE void gf_lane_add(struct gf_lane_sums *sums, int lane, float value, int squares)
{
    if (squares)
        sums->square[lane] = sums->square[lane] + (double)value * (double)value;
    else
        sums->magnitude[lane] = sums->magnitude[lane] + fabsf(value);
}

/* The tree: first over the threads, l += l + 32 and on, then over a thread's lanes. */
GF_INLINE void gf_lanes_tree(struct gf_lane_sums *sums, int threads, int lanes, uint32_t group,
                             int squares)
{
    GF_UNROLL
    for (int half = threads / 2; half > 0; half /= 2) {
        GF_UNROLL
        for (int l = 0; l < lanes; l++) {
            if (squares)
                sums->square[l] += gf_f64_shuffle_down(group, sums->square[l], half, threads);
            else
                sums->magnitude[l] +=
                    __shfl_down_sync(group, sums->magnitude[l], (unsigned)half, threads);
        }
    }
    GF_UNROLL
    for (int half = lanes / 2; half > 0; half /= 2) {
        GF_UNROLL
        for (int l = 0; l < half; l++) {
            if (squares)
                sums->square[l] += sums->square[l + half];
            else
                sums->magnitude[l] += sums->magnitude[l + half];
        }
    }
}

/* The sums of elements 0..elem_count-1, in [0] of the group's first thread. All threads of the
 * group call it. This thread holds the lanes `lane` .. `lane + lanes - 1`; a row is an element of
 * each lane. */
GF_INLINE void gf_lanes_add(struct gf_lane_sums *sums, uint32_t type, uint64_t src,
                            uint64_t elem_count, int squares)
{
    const int threads = gf_lanes_threads(type);
    const int lanes = (int)GF_KERNEL_LANES / threads;
    const uint32_t lane = threadIdx.x % (uint32_t)threads * (uint32_t)lanes;
    /* A shuffle's mask has a bit for each thread of the warp: those of this group. */
    const uint32_t first_thread = threadIdx.x % 32u / (uint32_t)threads * (uint32_t)threads;
    const uint32_t group = ((1u << threads) - 1u) << first_thread;
    /* by 16-byte accesses */
    const uint64_t rows = (src % 16 == 0) ? elem_count / GF_KERNEL_LANES : 0;
    const uint64_t batches = rows / GF_ROWS_AHEAD;
    struct gf_pack now[GF_ROWS_AHEAD], next[GF_ROWS_AHEAD];
    if (batches > 0) gf_rows_load(now, type, src, 0, lane, lanes);
    /* the next rows are on their way while these are added */
    for (uint64_t batch = 0; batch < batches; batch++) {
        GF_MAIN_LOOP;
        if (batch + 1 < batches)
            gf_rows_load(next, type, src, (batch + 1) * GF_ROWS_AHEAD, lane, lanes);
        GF_UNROLL
        for (int a = 0; a < GF_ROWS_AHEAD; a++) {
            GF_UNROLL
            for (int l = 0; l < lanes; l++)
                gf_lane_add(sums, l, gf_pack_get(&now[a], type, l), squares);
            now[a] = next[a];
        }
    }
    GF_ROLLED
    for (uint64_t row = batches * GF_ROWS_AHEAD; row * GF_KERNEL_LANES < elem_count;
         row++) { /* short, or not aligned */
        GF_UNROLL
        for (int l = 0; l < lanes; l++) {
            uint64_t i = row * GF_KERNEL_LANES + lane + (uint64_t)l;
            if (i >= elem_count) break;
            gf_lane_add(sums, l, gf_one_load(type, src, i), squares);
        }
    }
    gf_lanes_tree(sums, threads, lanes, group, squares);
}

GF_INLINE float gf_lanes_magnitude(uint32_t type, uint64_t src, uint64_t elem_count)
{
    struct gf_lane_sums sums = {{0}, {0}};
    gf_lanes_add(&sums, type, src, elem_count, 0);
    return sums.magnitude[0];
}

GF_INLINE double gf_lanes_square(uint32_t type, uint64_t src, uint64_t elem_count)
{
    struct gf_lane_sums sums = {{0}, {0}};
    gf_lanes_add(&sums, type, src, elem_count, 1);
    return sums.square[0];
}

#endif
