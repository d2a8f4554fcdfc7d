/* Fewer bits: values that share a scale. The loops have constant lengths, so that compilers make vectors of them. */
#ifndef GF_QUANTIZE_HOST_H
#define GF_QUANTIZE_HOST_H
#include "ops/element/host/half.h"
#include "ops/element/host/score_host.h"

#define QUANTIZE_ROUND 12582912.0f /* 1.5 * 2^23: adding it rounds to nearest even, into the lowest bits */
#define QUANTIZE_LEAST 0x1p-100f
#define QUANTIZE_INFINITE 0x7f800000u

/* Bits of the largest magnitude; QUANTIZE_INFINITE or more: something is not finite. */
VEC_INLINE uint32_t quantize_most(const float *value, uint32_t elems)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < elems; i++) {
        uint32_t bits = gf_f32_bits(value[i]) & 0x7fffffffu;
        most = (bits > most) ? bits : most;
    }
    return most;
}

VEC_INLINE void quantize_8(uint8_t *restrict to, float *restrict value, uint32_t count, float scale, float most)
{
    float by = 127.0f / most;
    for (uint32_t i = 0; i < count; i++) {
        float q = value[i] * by + QUANTIZE_ROUND;
        to[i] = (uint8_t)gf_f32_bits(q);
        value[i] = value[i] - (q - QUANTIZE_ROUND) * scale;
    }
}

VEC_INLINE void quantize_1(uint8_t *restrict to, float *restrict value, uint32_t count, float scale)
{
    for (uint32_t i = 0; i < count; i += 8) {
        uint32_t byte = 0, some = (count - i < 8) ? count - i : 8;
        for (uint32_t b = 0; b < some; b++) {
            uint32_t negative = gf_f32_bits(value[i + b]) >> 31;
            byte |= negative << b;
            value[i + b] = value[i + b] - (negative ? -scale : scale);
        }
        to[i / 8] = (uint8_t)byte;
    }
}

/* One group, of which `count` values are there. */
VEC_INLINE void quantize_group(uint8_t *group, float *value, uint32_t elems, uint32_t bits, uint32_t count,
                               uint64_t base, struct gf_check *check)
{
    uint32_t most = quantize_most(value, count);
    float scale = gf_f32_of_bits(most) / 127.0f, least = gf_f32_of_bits(most);
    if (bits == 1) least = scale = score_chunk((const uint8_t *)value, count) / (float)count;
    for (uint32_t i = 0; (most >= QUANTIZE_INFINITE) && (i < count); i++)
        if ((gf_f32_bits(value[i]) & QUANTIZE_INFINITE) == QUANTIZE_INFINITE) gf_check_note(check, base + i, 1);
    if ((most >= QUANTIZE_INFINITE) || !(least >= QUANTIZE_LEAST) || (gf_f32_bits(scale) >= QUANTIZE_INFINITE)) {
        memset(group, 0, 4 + elems * bits / 8);
        return;
    }
    if (count < elems) memset(group, 0, 4 + elems * bits / 8);
    memcpy(group, &scale, sizeof scale);
    if (bits == 1) quantize_1(group + 4, value, count, scale);
    else quantize_8(group + 4, value, count, scale, gf_f32_of_bits(most));
}

VEC_INLINE void quantize_groups(uint8_t *group, float *value, uint64_t elem_count, uint32_t elems, uint32_t bits,
                                uint64_t base, struct gf_check *check)
{
    uint64_t i = 0;
    for (; elem_count - i >= elems; i += elems, group += 4 + elems * bits / 8)
        quantize_group(group, value + i, elems, bits, elems, base + i, check);
    if (i < elem_count) quantize_group(group, value + i, elems, bits, (uint32_t)(elem_count - i), base + i, check);
}

VEC_FN gf_status quantize(struct gf_queue *queue, gf_mem groups, gf_mem values_f32, uint64_t elem_count,
                          const struct gf_groups *form, uint64_t base, struct gf_check *check)
{
    uint8_t *to = gf_host_at(groups);
    float *value = (float *)(void *)gf_host_at(values_f32);
    (void)queue;
    switch (form->elems) {
    case 32: quantize_groups(to, value, elem_count, 32, 8, base, check); break;
    case 64: quantize_groups(to, value, elem_count, 64, 8, base, check); break;
    case 256: quantize_groups(to, value, elem_count, 256, 1, base, check); break;
    default: quantize_groups(to, value, elem_count, 512, 1, base, check); break;
    }
    return GF_OK;
}

VEC_INLINE void dequantize_group(float *restrict dst, const uint8_t *restrict from, uint32_t bits, uint32_t count,
                                 float scale, float factor, bool add)
{
    for (uint32_t i = 0; i < count; i++) {
        float value = (bits == 8) ? (float)(int8_t)from[i] * scale : ((from[i / 8] >> i % 8 & 1) ? -scale : scale);
        dst[i] = add ? dst[i] + value * factor : value * factor;
    }
}

VEC_INLINE void dequantize_groups(float *dst, const uint8_t *group, uint64_t elem_count, uint32_t elems, uint32_t bits,
                                  float factor, bool add)
{
    for (uint64_t i = 0; i < elem_count; i += elems, group += 4 + elems * bits / 8) {
        float scale;
        memcpy(&scale, group, sizeof scale);
        if (elem_count - i >= elems) dequantize_group(dst + i, group + 4, bits, elems, scale, factor, add);
        else dequantize_group(dst + i, group + 4, bits, (uint32_t)(elem_count - i), scale, factor, add);
    }
}

VEC_FN gf_status dequantize(struct gf_queue *queue, gf_mem dst_f32, gf_mem groups, uint64_t elem_count,
                            const struct gf_groups *form, float factor, bool add)
{
    float *dst = (float *)(void *)gf_host_at(dst_f32);
    const uint8_t *from = gf_host_at(groups);
    (void)queue;
    switch (form->elems) {
    case 32: dequantize_groups(dst, from, elem_count, 32, 8, factor, add); break;
    case 64: dequantize_groups(dst, from, elem_count, 64, 8, factor, add); break;
    case 256: dequantize_groups(dst, from, elem_count, 256, 1, factor, add); break;
    default: dequantize_groups(dst, from, elem_count, 512, 1, factor, add); break;
    }
    return GF_OK;
}

#endif
