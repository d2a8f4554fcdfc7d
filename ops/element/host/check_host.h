/* Counts what is not finite. */
#ifndef GF_CHECK_HOST_H
#define GF_CHECK_HOST_H
#include "ops/element/host/vec.h"

VEC_INLINE void check_type(const uint8_t *src, gf_type type, uint64_t elem_count, uint64_t base, struct gf_check *check)
{
    uint64_t i = 0;
    for (; elem_count - i >= VEC_ELEMS; i += VEC_ELEMS) {
        vec_check(check, base + i, VEC_ELEMS, vec_load(type, src, i, VEC_ELEMS), __builtin_inff());
    }
    if (i < elem_count) {
        uint32_t count = (uint32_t)(elem_count - i);
        vec_check(check, base + i, count, vec_load(type, src, i, count), __builtin_inff());
    }
}

VEC_FN gf_status check(struct gf_queue *queue, gf_mem src, gf_type type, uint64_t elem_count, uint64_t base,
                       struct gf_check *check)
{
    (void)queue;
    GF_ASSERT(type < GF_TYPE_COUNT);
    switch (type) {
    case GF_TYPE_F16: check_type(gf_host_at(src), GF_TYPE_F16, elem_count, base, check); break;
    case GF_TYPE_BF16: check_type(gf_host_at(src), GF_TYPE_BF16, elem_count, base, check); break;
    default: check_type(gf_host_at(src), GF_TYPE_F32, elem_count, base, check); break;
    }
    return GF_OK;
}

#endif
