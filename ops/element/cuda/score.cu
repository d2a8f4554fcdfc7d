/* Sums of magnitudes, a chunk a block: its groups take a run each at the same time, and one thread
 * adds them one after the other. A chunk of no more than one run is a group's alone, so that a
 * block has several. */
#include "ops/element/cuda/lanes.cuh"

#define SCORE_THREADS 16u /* of a group */
#define SCORE_GROUPS (GF_KERNEL_THREADS / SCORE_THREADS)

/* A chunk's sum so far: of whole segments, and of the segment under way. What is added is not
 * negative: 0 adds no bit. */
struct score_sum {
    float segments, segment;
};

GF_INLINE void score_add(struct score_sum *sum, float run, int begins_segment)
{
    if (begins_segment) {
        sum->segments += sum->segment;
        sum->segment = 0.0f;
    }
    sum->segment += run;
}

GF_KERNEL_BOUND(score, score, 2)
{
    __shared__ float runs[SCORE_GROUPS];
    const uint32_t group = threadIdx.x / SCORE_THREADS;
    const uint32_t together = (args.chunk_elems > GF_RUN_ELEMS) ? SCORE_GROUPS : 1;
    uint64_t chunk = (together > 1) ? blockIdx.x : gf_thread() / SCORE_THREADS;
    for (; chunk < args.chunk_count;
         chunk += (together > 1) ? gridDim.x : gf_threads() / SCORE_THREADS) {
        /* A chunk is whole segments and a rest; a segment is runs, the last of which may be short.
         * */
        const uint64_t first = chunk * args.chunk_elems;
        const uint64_t left = args.elem_count - first;
        const uint32_t elems = (left < args.chunk_elems) ? (uint32_t)left : args.chunk_elems;
        const uint32_t segments = elems / args.segment_elems;
        const uint32_t rest = elems - segments * args.segment_elems;
        const uint32_t count =
            segments * args.segment_runs + (rest + GF_RUN_ELEMS - 1) / GF_RUN_ELEMS;
        struct score_sum sum = {0.0f, 0.0f};
        for (uint32_t run = 0; run < count; run += together) {
            const uint32_t own = run + ((together > 1) ? group : 0); /* the run of this group */
            const uint32_t segment = own / args.segment_runs;
            const uint32_t in_segment = (own - segment * args.segment_runs) * GF_RUN_ELEMS;
            const uint32_t in_run = ((segment < segments) ? args.segment_elems : rest) - in_segment;
            const uint64_t at = first + segment * args.segment_elems + in_segment;
            float got = 0.0f;
            if (own < count)
                got = gf_lanes_magnitude(GF_KERNEL_F32, args.src + at * 4u,
                                         (in_run < GF_RUN_ELEMS) ? in_run : GF_RUN_ELEMS);
            if (together == 1) {
                score_add(&sum, got, run % args.segment_runs == 0);
                continue;
            }
            if (threadIdx.x % SCORE_THREADS == 0) runs[group] = got;
            __syncthreads();
            GF_ROLLED
            for (uint32_t g = 0; (threadIdx.x == 0) && (g < together) && (run + g < count); g++)
                score_add(&sum, runs[g], (run + g) % args.segment_runs == 0);
            __syncthreads();
        }
        if (threadIdx.x % (SCORE_THREADS * together) == 0)
            ((float *)args.scores)[chunk] = sum.segments + sum.segment;
    }
}
