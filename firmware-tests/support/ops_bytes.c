/* See ops_bytes.h. Ops that no dense step calls go uncounted. */
#include "firmware-tests/support/ops_bytes.h"

struct ops_bytes ops_bytes;
static const struct gf_element_ops *inner;

static void count(uint64_t read, uint64_t written)
{
    ops_bytes.read += read;
    ops_bytes.written += written;
}

static gf_status bytes_cast(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src,
                            gf_type src_type, uint64_t elem_count, float scale, uint64_t base,
                            struct gf_check *check)
{
    ops_bytes.casts++;
    count(elem_count * gf_type_bytes(src_type), elem_count * gf_type_bytes(dst_type));
    return inner->cast(queue, dst, dst_type, src, src_type, elem_count, scale, base, check);
}

static gf_status bytes_sum(struct gf_queue *queue, gf_mem dst, gf_mem src, gf_type type,
                           uint64_t elem_count, uint64_t base, struct gf_check *check)
{
    count(2 * elem_count * gf_type_bytes(type), elem_count * gf_type_bytes(type));
    return inner->sum(queue, dst, src, type, elem_count, base, check);
}

static gf_status bytes_check(struct gf_queue *queue, gf_mem src, gf_type type, uint64_t elem_count,
                             uint64_t base, struct gf_check *check)
{
    ops_bytes.checks++;
    count(elem_count * gf_type_bytes(type), 0);
    return inner->check(queue, src, type, elem_count, base, check);
}

static gf_status bytes_sum_n(struct gf_queue *queue, const gf_mem *dst, uint32_t dst_count,
                             const gf_mem *src, uint32_t src_count, gf_type type,
                             uint64_t elem_count, uint64_t base, struct gf_check *check,
                             struct gf_check *sources)
{
    uint64_t bytes = elem_count * gf_type_bytes(type);
    count(src_count * bytes, dst_count * bytes);
    return inner->sum_n(queue, dst, dst_count, src, src_count, type, elem_count, base, check,
                        sources);
}

static gf_status bytes_copy_n(struct gf_queue *queue, const gf_mem *dst, const gf_mem *src,
                              const uint64_t *size_bytes, uint32_t ranges)
{
    for (uint32_t i = 0; i < ranges; i++) count(size_bytes[i], size_bytes[i]);
    return inner->copy_n(queue, dst, src, size_bytes, ranges);
}

static gf_status bytes_update_parts(struct gf_queue *queue, const struct gf_update *update,
                                    const struct gf_update_part *parts, uint32_t part_count)
{
    uint64_t kept = 4 + ((update->momentum_f32 != 0) ? 4 : 0);
    for (uint32_t i = 0; i < part_count; i++)
        count(parts[i].elem_count * (kept + gf_type_bytes(update->gradient_type)),
              parts[i].elem_count * (kept + ((update->half != 0) ? 2 : 0)));
    return inner->update_parts(queue, update, parts, part_count);
}

void ops_bytes_watch(gf_context *gf)
{
    static struct gf_element_ops watched;
    bool same = gf->coll_ops == gf->ops;
    if (gf->ops != &watched) inner = gf->ops;
    watched = *inner;
    watched.cast = bytes_cast;
    watched.sum = bytes_sum;
    watched.check = bytes_check;
    watched.sum_n = bytes_sum_n;
    watched.copy_n = bytes_copy_n;
    watched.update_parts = bytes_update_parts;
    gf->ops = &watched;
    if (same) gf->coll_ops = &watched;
    ops_bytes = (struct ops_bytes){0};
}
