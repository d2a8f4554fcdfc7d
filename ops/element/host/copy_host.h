/* Copies bytes, by libc, which knows this CPU better. */
#ifndef GF_COPY_HOST_H
#define GF_COPY_HOST_H
#include "ops/element/host/vec.h"

VEC_FN gf_status copy(struct gf_queue *queue, gf_mem dst, gf_mem src, uint64_t size_bytes)
{
    (void)queue;
    if ((size_bytes > 0) && (dst != src)) memcpy(gf_host_at(dst), gf_host_at(src), size_bytes);
    return GF_OK;
}

VEC_FN gf_status copy_n(struct gf_queue *queue, const gf_mem *dst, const gf_mem *src,
                        const uint64_t *size_bytes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) (void)copy(queue, dst[i], src[i], size_bytes[i]);
    return GF_OK;
}

VEC_FN gf_status zero(struct gf_queue *queue, gf_mem dst, uint64_t size_bytes)
{
    (void)queue;
    if (size_bytes > 0) memset(gf_host_at(dst), 0, size_bytes);
    return GF_OK;
}

#endif
