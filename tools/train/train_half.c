/* See train_half.h. In whole numbers: compilers disagree on a type for fp16. */
#include "tools/train/train_half.h"

#include <string.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#define SIGN 0x80000000u
#define INFINITE 0x7f800000u
#define F16_BELOW 0x38800000u /* 2^-14: below it fp16 has fixed steps of 2^-24 */
#define F16_ABOVE 0x477ff000u /* 65520, from which on fp16 rounds to infinity */

static float f16_round(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t size = bits & ~SIGN;
    uint32_t sign = bits & SIGN;
    if (size >= F16_ABOVE) return of_bits(sign | ((size > INFINITE) ? size | 0x400000u : INFINITE));
    /* an ulp of 0.5 is 2^-24 */
    if (size < F16_BELOW) return of_bits(sign | bits_of((of_bits(size) + 0.5f) - 0.5f));
    return of_bits(sign | ((size + 0xfffu + ((size >> 13) & 1u)) & ~0x1fffu));
}

static float bf16_round(float value)
{
    uint32_t bits = bits_of(value);
    if ((bits & ~SIGN) > INFINITE) return of_bits((bits | 0x400000u) & 0xffff0000u);
    return of_bits((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
}

/* Of a value that is one of fp16's. */
static uint16_t f16_bits(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t size = bits & ~SIGN;
    uint32_t sign = (bits >> 16) & 0x8000u;
    if (size >= INFINITE) return (uint16_t)(sign | 0x7c00u | ((size >> 13) & 0x3ffu));
    if (size < F16_BELOW) return (uint16_t)(sign | (uint32_t)(of_bits(size) * 16777216.0f));
    return (uint16_t)(sign | ((size - 0x38000000u) >> 13)); /* the exponents are 112 apart */
}

static float f16_value(uint16_t half)
{
    uint32_t size = half & 0x7fffu;
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    if (size >= 0x7c00u) return of_bits(sign | INFINITE | ((size & 0x3ffu) << 13));
    if (size < 0x400u) return of_bits(sign | bits_of((float)size * (1.0f / 16777216.0f)));
    return of_bits(sign | ((size << 13) + 0x38000000u));
}

void half_round(gf_type type, float *data, uint64_t count)
{
    if (type == GF_TYPE_F16)
        for (uint64_t i = 0; i < count; i++) data[i] = f16_round(data[i]);
    if (type == GF_TYPE_BF16)
        for (uint64_t i = 0; i < count; i++) data[i] = bf16_round(data[i]);
}

void half_put(gf_type type, uint16_t *to, const float *from, uint64_t count)
{
    if (type == GF_TYPE_F16)
        for (uint64_t i = 0; i < count; i++) to[i] = f16_bits(f16_round(from[i]));
    else
        for (uint64_t i = 0; i < count; i++) to[i] = (uint16_t)(bits_of(bf16_round(from[i])) >> 16);
}

void half_get(gf_type type, float *to, const uint16_t *from, uint64_t count)
{
    if (type == GF_TYPE_F16)
        for (uint64_t i = 0; i < count; i++) to[i] = f16_value(from[i]);
    else
        for (uint64_t i = 0; i < count; i++) to[i] = of_bits((uint32_t)from[i] << 16);
}
