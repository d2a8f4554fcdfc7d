/* Element ops as time. Scores are synthetic: the same pseudo-random numbers on all ranks, so that
 * sparse steps choose chunks all over the pool, as many as they would choose of real ones. */
#include <math.h>
#include <string.h>

#include "ops/ops.h"
#include "tools/plan/plan_gpu.h"

static struct plan_device *device_of(const struct gf_queue *queue)
{
    return plan_device_of(queue->gpu);
}

static uint64_t ns_at(double bytes, double bytes_per_ns)
{
    return (bytes_per_ns > 0.0) ? (uint64_t)(bytes / bytes_per_ns + 0.5) : 0;
}

/* Time for these bytes and that many launches, and peer_ns for what it reads of peers: a GPU does
 * both at once. True: the element op shall also be done. */
static bool work_beside(const struct gf_queue *queue, uint64_t bytes, uint64_t launches,
                        uint64_t peer_ns)
{
    struct plan_device *device = device_of(queue);
    uint64_t work_ns = ns_at((double)bytes, device->bytes_per_ns);
    if (device->is_gpu && (queue->stream != 0)) {
        plan_device_work(queue, PLAN_KERNELS,
                         device->op_ns * launches + ((work_ns > peer_ns) ? work_ns : peer_ns));
        return device->has_data;
    }
    /* on the host, beside the GPU */
    if (device->is_gpu)
        work_ns = ns_at((double)bytes, device->host_bytes_per_ns);
    else
        work_ns += device->op_ns * launches + peer_ns;
    /* so that who worked is seen */
    gf_sim_work(device->sim, device->rank, (work_ns > 0) ? work_ns : 1);
    device->busy_until_ns = gf_sim_free_ns(device->sim, device->rank);
    return device->has_data;
}

static bool work(const struct gf_queue *queue, uint64_t bytes, uint64_t launches)
{
    return work_beside(queue, bytes, launches, 0);
}

static bool spend(const struct gf_queue *queue, uint64_t bytes)
{
    return work(queue, bytes, 1);
}

/* Of a kind whose slices a device takes together. */
static bool spend_next(const struct gf_queue *queue, plan_kind kind, uint64_t elem_count,
                       uint64_t bytes)
{
    struct plan_device *device = device_of(queue);
    uint64_t *left = &device->launch_left[kind];
    uint64_t launches = 0;
    if (device->is_gpu) return work(queue, bytes, 1);
    if (gf_sim_free_ns(device->sim, device->rank) > device->busy_until_ns)
        memset(device->launch_left, 0,
               sizeof device->launch_left); /* it paused: what was launched is done */
    if (elem_count > *left) {
        launches = 1;
        *left = (device->launch_elems > elem_count) ? device->launch_elems : elem_count;
    }
    *left -= elem_count;
    return work(queue, bytes, launches);
}

static gf_status plan_cast(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src,
                           gf_type src_type, uint64_t elem_count, float scale, uint64_t base,
                           struct gf_check *check)
{
    uint64_t bytes = elem_count * (gf_type_bytes(dst_type) + gf_type_bytes(src_type));
    if (!spend_next(queue, PLAN_CAST, elem_count, bytes)) return GF_OK;
    return gf_element_ops_best()->cast(queue, dst, dst_type, src, src_type, elem_count, scale, base,
                                       check);
}

static gf_status plan_sum(struct gf_queue *queue, gf_mem dst, gf_mem src, gf_type type,
                          uint64_t elem_count, uint64_t base, struct gf_check *check)
{
    /* a chunk's, of segments: chosen by, so it is real */
    bool is_score = (elem_count == 1) && (type == GF_TYPE_F32);
    if (is_score)
        (void)spend_next(queue, PLAN_SCORE_SUM, 1, 3 * sizeof(float));
    else if (!spend(queue, 3 * elem_count * gf_type_bytes(type)))
        return GF_OK;
    return gf_element_ops_best()->sum(queue, dst, src, type, elem_count, base, check);
}

/* As spend(). */
static bool sum_n_spend(struct gf_queue *queue, uint32_t dst_count, uint32_t src_count,
                        uint64_t bytes)
{
    const struct plan_device *device = device_of(queue);
    uint64_t peer_ns = 0;
    if (dst_count + src_count > 2) { /* all but one of each are peers' */
        uint64_t port_ns =
            ns_at((double)(dst_count + src_count - 2) * (double)bytes, device->peer_bytes_per_ns);
        uint64_t pair_ns = ns_at((double)bytes, device->pair_bytes_per_ns);
        peer_ns = (port_ns > pair_ns) ? port_ns : pair_ns;
    }
    return work_beside(queue, 3 * bytes, 1, peer_ns);
}

static gf_status plan_sum_n(struct gf_queue *queue, const gf_mem *dst, uint32_t dst_count,
                            const gf_mem *src, uint32_t src_count, gf_type type,
                            uint64_t elem_count, uint64_t base, struct gf_check *check,
                            struct gf_check *sources)
{
    if (!sum_n_spend(queue, dst_count, src_count, elem_count * gf_type_bytes(type))) return GF_OK;
    return gf_element_ops_best()->sum_n(queue, dst, dst_count, src, src_count, type, elem_count,
                                        base, check, sources);
}

static gf_status plan_check(struct gf_queue *queue, gf_mem src, gf_type type, uint64_t elem_count,
                            uint64_t base, struct gf_check *check)
{
    if (!spend_next(queue, PLAN_CHECK, elem_count, elem_count * gf_type_bytes(type))) return GF_OK;
    return gf_element_ops_best()->check(queue, src, type, elem_count, base, check);
}

static double copy_rate(const struct plan_device *device)
{
    return (device->pair_bytes_per_ns > 0.0)
               ? fmin(device->pair_bytes_per_ns, device->peer_bytes_per_ns)
               : device->peer_bytes_per_ns;
}

uint64_t plan_peer_copy_ns(const struct plan_device *device, uint64_t size_bytes)
{
    return ns_at((double)size_bytes, copy_rate(device));
}

gf_status plan_copy(struct gf_queue *queue, gf_mem dst, gf_mem src, uint64_t size_bytes)
{
    const struct plan_device *device = device_of(queue);
    uint64_t peer_ns = 0;
    if (gf_sim_is_peers(device->sim, device->rank, dst) ||
        gf_sim_is_peers(device->sim, device->rank, src))
        peer_ns = plan_peer_copy_ns(device, size_bytes);
    if (!work_beside(queue, 2 * size_bytes, 1, peer_ns)) return GF_OK;
    return gf_element_ops_best()->copy(queue, dst, src, size_bytes);
}

/* Of a GPU alone: from peers' memory. */
static gf_status plan_copy_n(struct gf_queue *queue, const gf_mem *dst, const gf_mem *src,
                             const uint64_t *size_bytes, uint32_t count)
{
    const struct plan_device *device = device_of(queue);
    uint64_t bytes = 0;
    uint64_t most = 0;
    uint64_t port_ns;
    uint64_t pair_ns;
    for (uint32_t i = 0; i < count; i++) {
        bytes += size_bytes[i];
        if (size_bytes[i] > most) most = size_bytes[i];
    }
    port_ns = ns_at((double)bytes, device->peer_bytes_per_ns);
    pair_ns = ns_at((double)most, device->pair_bytes_per_ns);
    if (!work_beside(queue, 2 * bytes, 1, (port_ns > pair_ns) ? port_ns : pair_ns)) return GF_OK;
    return gf_element_ops_best()->copy_n(queue, dst, src, size_bytes, count);
}

gf_status plan_zero(struct gf_queue *queue, gf_mem dst, uint64_t size_bytes)
{
    if (!spend_next(queue, PLAN_ZERO, size_bytes / sizeof(float), size_bytes)) return GF_OK;
    return gf_element_ops_best()->zero(queue, dst, size_bytes);
}

static gf_status plan_score(struct gf_queue *queue, gf_mem scores_f32, gf_mem src_f32,
                            uint64_t elem_count, uint64_t chunk_elems, uint64_t segment_elems)
{
    struct plan_device *device = device_of(queue);
    float *scores = (float *)(uintptr_t)scores_f32;
    (void)src_f32;
    (void)segment_elems;
    (void)spend_next(queue, PLAN_SCORE, elem_count, elem_count * sizeof(float));
    for (uint64_t at = 0; at < elem_count; at += chunk_elems) {
        uint64_t value = (++device->score_count) * UINT64_C(0x9e3779b97f4a7c15);
        value = (value ^ (value >> 31)) * UINT64_C(0xbf58476d1ce4e5b9);
        *scores++ = (float)(uint32_t)(value >> 40) + 1.0f;
    }
    return GF_OK;
}

/* Two launches for all. */
static gf_status plan_norm(struct gf_queue *queue, gf_mem scratch_f64, gf_type type,
                           const struct gf_norm *ranges, uint32_t count)
{
    uint64_t elems = 0;
    for (uint32_t i = 0; i < count; i++) elems += ranges[i].elem_count;
    if ((count == 0) || !work(queue, elems * gf_type_bytes(type), 2)) return GF_OK;
    return gf_element_ops_best()->norm(queue, scratch_f64, type, ranges, count);
}

static uint64_t accumulate_bytes(const struct gf_accumulate *a, uint64_t elem_count)
{
    uint64_t words = 2u + (a->dst_u_f32 != 0) + (a->u_f32 != 0) + (a->weight_f32 != 0);
    return elem_count * (4 * words + gf_type_bytes(a->src_type));
}

static gf_status plan_accumulate(struct gf_queue *queue, const struct gf_accumulate *accumulate,
                                 uint64_t elem_count)
{
    uint64_t bytes = accumulate_bytes(accumulate, elem_count);
    if (!spend_next(queue, PLAN_ACCUMULATE, elem_count, bytes)) return GF_OK;
    return gf_element_ops_best()->accumulate(queue, accumulate, elem_count);
}

static uint64_t chunk_elems(const struct gf_chunks *chunks)
{
    return chunks->count * chunks->chunk_elems;
}

static gf_status plan_cast_chunks(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src,
                                  gf_type src_type, const struct gf_chunks *chunks, float scale,
                                  uint64_t base, struct gf_check *check)
{
    uint64_t elems = chunk_elems(chunks);
    uint64_t bytes = elems * (gf_type_bytes(dst_type) + gf_type_bytes(src_type));
    if (!spend_next(queue, PLAN_CAST, elems, bytes)) return GF_OK;
    return gf_element_ops_best()->cast_chunks(queue, dst, dst_type, src, src_type, chunks, scale,
                                              base, check);
}

static gf_status plan_accumulate_chunks(struct gf_queue *queue,
                                        const struct gf_accumulate *accumulate,
                                        const struct gf_chunks *chunks)
{
    uint64_t elems = chunk_elems(chunks);
    if (!spend_next(queue, PLAN_ACCUMULATE, elems, accumulate_bytes(accumulate, elems)))
        return GF_OK;
    return gf_element_ops_best()->accumulate_chunks(queue, accumulate, chunks);
}

static gf_status plan_zero_chunks(struct gf_queue *queue, gf_mem dst, gf_type type,
                                  const struct gf_chunks *chunks)
{
    uint64_t bytes = chunk_elems(chunks) * gf_type_bytes(type);
    if (!spend_next(queue, PLAN_ZERO, bytes / sizeof(float), bytes)) return GF_OK;
    return gf_element_ops_best()->zero_chunks(queue, dst, type, chunks);
}

/* Of the optimizer only what clips: what gf_update() calls is not planned. */
const struct gf_element_ops plan_ops = {
    .name = "plan",
    .cast = plan_cast,
    .sum = plan_sum,
    .check = plan_check,
    .copy = plan_copy,
    .zero = plan_zero,
    .sum_n = plan_sum_n,
    .copy_n = plan_copy_n,
    .score = plan_score,
    .accumulate = plan_accumulate,
    .cast_chunks = plan_cast_chunks,
    .accumulate_chunks = plan_accumulate_chunks,
    .zero_chunks = plan_zero_chunks,
    .norm = plan_norm,
};
