/* Fewer bits: values that share a scale. All loops are over GROUP_STRIP values, so that compilers
 * make vectors of them; zeroes, whose bits are zero, fill up a short strip. Bits are stored lowest
 * byte first, as this machine does. */
#ifndef GF_QUANTIZE_HOST_H
#define GF_QUANTIZE_HOST_H
#include "ops/element/host/half.h"
#include "ops/element/host/score_host.h"

/* 1.5 * 2^23: adding it rounds to nearest even, into the lowest bits */
#define QUANTIZE_ROUND 12582912.0f
#define QUANTIZE_LEAST 0x1p-100f
#define QUANTIZE_INFINITE 0x7f800000u
#define GROUP_STRIP 32u /* the elements of each form are a multiple */

/* Bits of the largest magnitude; QUANTIZE_INFINITE or more: something is not finite. */
VEC_INLINE uint32_t strip_most(const float *value)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < GROUP_STRIP; i++) {
        uint32_t bits = gf_f32_bits(value[i]) & 0x7fffffffu;
        most = (bits > most) ? bits : most;
    }
    return most;
}

VEC_INLINE void strip_quantize_8(uint8_t *restrict to, float *restrict value, float scale, float by)
{
    for (uint32_t i = 0; i < GROUP_STRIP; i++) {
        float q = value[i] * by + QUANTIZE_ROUND;
        to[i] = (uint8_t)gf_f32_bits(q);
        value[i] = value[i] - (q - QUANTIZE_ROUND) * scale;
    }
}

VEC_INLINE void strip_quantize_1(uint8_t *restrict to, float *restrict value, float scale)
{
    uint32_t word = 0;
    for (uint32_t i = 0; i < GROUP_STRIP; i++) {
        uint32_t sign = gf_f32_bits(value[i]) & 0x80000000u;
        word |= sign >> 31 << i;
        value[i] = value[i] - gf_f32_of_bits(gf_f32_bits(scale) | sign);
    }
    memcpy(to, &word, sizeof word);
}

/* One group, of which `count` values are there. */
VEC_INLINE void quantize_group(uint8_t *group, float *value, const struct gf_groups *form,
                               uint32_t count, uint64_t base, struct gf_check *check)
{
    uint32_t most = 0;
    uint32_t whole = count - count % GROUP_STRIP;
    float last[GROUP_STRIP];
    float scale;
    float least;
    float by;
    bool nothing;
    if (whole < count) {
        memset(last, 0, sizeof last);
        memcpy(last, value + whole, (count - whole) * sizeof *last);
        most = strip_most(last);
    }
    for (uint32_t i = 0; i < whole; i += GROUP_STRIP) {
        uint32_t bits = strip_most(value + i);
        most = (bits > most) ? bits : most;
    }
    least = gf_f32_of_bits(most);
    scale = least / 127.0f;
    by = 127.0f / least;
    if (form->bits == 1) least = scale = score_run((const uint8_t *)value, count) / (float)count;
    for (uint32_t i = 0; (most >= QUANTIZE_INFINITE) && (i < count); i++)
        if ((gf_f32_bits(value[i]) & QUANTIZE_INFINITE) == QUANTIZE_INFINITE)
            gf_check_note(check, base + i, 1);
    nothing = (most >= QUANTIZE_INFINITE) || !(least >= QUANTIZE_LEAST) ||
              (gf_f32_bits(scale) >= QUANTIZE_INFINITE);
    if (nothing || (count < form->elems)) memset(group, 0, gf_group_bytes(form));
    if (nothing) return;
    memcpy(group, &scale, sizeof scale);
    for (uint32_t i = 0; i < count; i += GROUP_STRIP) {
        float *strip = (i < whole) ? value + i : last;
        if (form->bits == 1)
            strip_quantize_1(group + 4 + i / 8, strip, scale);
        else
            strip_quantize_8(group + 4 + i, strip, scale, by);
    }
    if (whole < count) memcpy(value + whole, last, (count - whole) * sizeof *last);
}

VEC_FN gf_status quantize(struct gf_queue *queue, gf_mem groups, gf_mem values_f32,
                          uint64_t elem_count, const struct gf_groups *form, uint64_t base,
                          struct gf_check *check)
{
    uint8_t *group = gf_host_at(groups);
    float *value = (float *)(void *)gf_host_at(values_f32);
    (void)queue;
    for (uint64_t i = 0; i < elem_count; i += form->elems, group += gf_group_bytes(form)) {
        uint64_t left = elem_count - i;
        quantize_group(group, value + i, form, (left < form->elems) ? (uint32_t)left : form->elems,
                       base + i, check);
    }
    return GF_OK;
}

/* dst[i] = factor * what the group says, or with `add` (a constant) dst[i] + that. */
VEC_INLINE void strip_dequantize(float *restrict dst, const uint8_t *restrict from, uint32_t bits,
                                 float scale, float factor, bool add)
{
    if (bits == 8) {
        for (uint32_t i = 0; i < GROUP_STRIP; i++) {
            float value = (float)(int8_t)from[i] * scale * factor;
            dst[i] = add ? dst[i] + value : value;
        }
        return;
    }
    uint32_t word;
    memcpy(&word, from, sizeof word);
    for (uint32_t i = 0; i < GROUP_STRIP; i++) {
        float value = gf_f32_of_bits(gf_f32_bits(scale) | (word >> i << 31)) * factor;
        dst[i] = add ? dst[i] + value : value;
    }
}

VEC_FN gf_status dequantize(struct gf_queue *queue, gf_mem dst_f32, gf_mem groups,
                            uint64_t elem_count, const struct gf_groups *form, float factor,
                            bool add)
{
    float *dst = (float *)(void *)gf_host_at(dst_f32);
    float last[GROUP_STRIP];
    const uint8_t *group = gf_host_at(groups);
    (void)queue;
    for (uint64_t left = elem_count; left > 0; group += gf_group_bytes(form)) {
        const uint8_t *from = group + 4;
        float scale;
        memcpy(&scale, group, sizeof scale);
        for (uint32_t i = 0; (i < form->elems) && (left > 0);
             i += GROUP_STRIP, from += GROUP_STRIP * form->bits / 8) {
            uint64_t count = (left < GROUP_STRIP) ? left : GROUP_STRIP;
            float *to = dst;
            if (count < GROUP_STRIP) to = memcpy(last, dst, count * sizeof *last);
            if (add)
                strip_dequantize(to, from, form->bits, scale, factor, true);
            else
                strip_dequantize(to, from, form->bits, scale, factor, false);
            if (count < GROUP_STRIP) memcpy(dst, last, count * sizeof *last);
            dst += count;
            left -= count;
        }
    }
    return GF_OK;
}

#endif
