/* Sums of magnitudes, in fp32, and of squares, in double, in one order of adding at every width:
 * lane l of 64 takes elements l, l + 64, ..; then the tree. A lane holds no negative number, so
 * that the zeroes which fill a last short row change nothing. */
#ifndef GF_SCORE_HOST_H
#define GF_SCORE_HOST_H
#include "ops/element/host/vec.h"

#define LANE_VECS (GF_LANES / VEC_ELEMS)

/* A row of 64 elements at src, of which `left` are there: others are 0, in `row`. Asks for what is
 * read two lines later. */
VEC_INLINE const uint8_t *row_at(uint8_t row[GF_LANES * 4], gf_type type, const uint8_t *src,
                                 uint64_t left)
{
    const uint8_t *at = src;
    if (left < GF_LANES) {
        memcpy(row, src, left * gf_type_bytes(type));
        at = row;
    }
#pragma GCC unroll 4
    for (uint32_t line = 0; line < GF_LANES * gf_type_bytes(type); line += GF_LINE_BYTES)
        gf_ahead_near(at, line + GF_AHEAD_READER_BYTES);
    return at;
}

VEC_FN float score_run(const uint8_t *src, uint64_t elem_count)
{
    uint8_t row[GF_LANES * 4] = {0};
    float lanes[GF_LANES];
    vec sums[LANE_VECS];
    for (uint32_t v = 0; v < LANE_VECS; v++) sums[v] = vec_set(0);
    for (uint64_t i = 0; i < elem_count; i += GF_LANES) {
        const uint8_t *at = row_at(row, GF_TYPE_F32, src + i * sizeof(float), elem_count - i);
#pragma GCC unroll 8
        for (uint32_t v = 0; v < LANE_VECS; v++)
            sums[v] =
                vec_add(sums[v], vec_abs(vec_load(GF_TYPE_F32, at, v * VEC_ELEMS, VEC_ELEMS)));
    }
    for (uint32_t v = 0; v < LANE_VECS; v++)
        vec_store(GF_TYPE_F32, (uint8_t *)lanes, v * VEC_ELEMS, VEC_ELEMS, sums[v]);
    return gf_lanes_tree(lanes);
}

VEC_INLINE double squares_sum(const uint8_t *src, gf_type type, uint64_t elem_count)
{
    uint8_t row[GF_LANES * 4] = {0};
    double lanes[GF_LANES];
    vec_f64 sums[LANE_VECS];
    for (uint32_t v = 0; v < LANE_VECS; v++) sums[v] = vec_f64_zero();
    for (uint64_t i = 0; i < elem_count; i += GF_LANES) {
        const uint8_t *at = row_at(row, type, src + i * gf_type_bytes(type), elem_count - i);
#pragma GCC unroll 8
        for (uint32_t v = 0; v < LANE_VECS; v++)
            sums[v] = vec_square_add(sums[v], vec_load(type, at, v * VEC_ELEMS, VEC_ELEMS));
    }
    for (uint32_t v = 0; v < LANE_VECS; v++) vec_f64_store(&lanes[v * VEC_ELEMS], sums[v]);
    return gf_lanes_tree_f64(lanes);
}

VEC_FN double norm_run(const uint8_t *src, gf_type type, uint64_t elem_count)
{
    if (type == GF_TYPE_F16) return squares_sum(src, GF_TYPE_F16, elem_count);
    if (type == GF_TYPE_BF16) return squares_sum(src, GF_TYPE_BF16, elem_count);
    return squares_sum(src, GF_TYPE_F32, elem_count);
}

/* Its runs' sums, one after the other. */
VEC_FN float score_segment(const uint8_t *src, uint64_t elem_count)
{
    float sum = 0;
    for (uint64_t done = 0, count; done < elem_count; done += count) {
        count = (elem_count - done < GF_RUN_ELEMS) ? elem_count - done : GF_RUN_ELEMS;
        sum = sum + score_run(src + done * sizeof sum, count);
    }
    return sum;
}

VEC_FN gf_status score(struct gf_queue *queue, gf_mem scores_f32, gf_mem src_f32,
                       uint64_t elem_count, uint64_t chunk_elems, uint64_t segment_elems)
{
    uint8_t *score_at = gf_host_at(scores_f32);
    const uint8_t *src = gf_host_at(src_f32);
    (void)queue;
    GF_ASSERT(((chunk_elems > 0) && (segment_elems > 0)) || (elem_count == 0));
    for (uint64_t left = elem_count; left > 0;) {
        uint64_t count = (left < chunk_elems) ? left : chunk_elems;
        uint64_t done = (count < segment_elems) ? count : segment_elems;
        float value = score_segment(src, done);
        for (uint64_t segment; done < count; done += segment) {
            segment = (count - done < segment_elems) ? count - done : segment_elems;
            value = value + score_segment(src + done * sizeof value, segment);
        }
        memcpy(score_at, &value, sizeof value);
        score_at += sizeof value;
        src += count * sizeof value;
        left -= count;
    }
    return GF_OK;
}

VEC_FN void norm_range(const struct gf_norm *range, gf_type type)
{
    const uint8_t *run_at = gf_host_at(range->src);
    double lanes[GF_LANES] = {0};
    double square;
    uint32_t lane = 0;
    for (uint64_t left = range->elem_count, count; left > 0; left -= count) {
        count = (left < GF_RUN_ELEMS) ? left : GF_RUN_ELEMS;
        lanes[lane] += norm_run(run_at, type, count);
        lane = (lane + 1) % GF_LANES;
        run_at += count * gf_type_bytes(type);
    }
    memcpy(&square, gf_host_at(range->square_f64), sizeof square);
    /* the others are 0 */
    square = square + ((range->elem_count > GF_RUN_ELEMS) ? gf_lanes_tree_f64(lanes) : lanes[0]);
    memcpy(gf_host_at(range->square_f64), &square, sizeof square);
}

VEC_FN gf_status norm(struct gf_queue *queue, gf_mem scratch_f64, gf_type type,
                      const struct gf_norm *ranges, uint32_t count)
{
    (void)queue;
    (void)scratch_f64;
    GF_ASSERT(type < GF_TYPE_COUNT);
    for (uint32_t i = 0; i < count; i++)
        if (ranges[i].elem_count > 0) norm_range(&ranges[i], type);
    return GF_OK;
}

#endif
