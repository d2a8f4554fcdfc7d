/* The 16-bit types, bit by bit: what every backend must do. fp16 is IEEE binary16, bf16 the upper
 * half of an fp32. Rounding is to nearest, ties to even; beyond the largest finite value lies
 * infinity, below the smallest normal fp16 the subnormals; a NaN stays a NaN, made quiet, with the
 * payload bits that fit. F16C hardware does the same. */
#ifndef GF_HALF_H
#define GF_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t gf_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float gf_f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* bits >> shift, to nearest even; shift in [1, 31], bits below 2^31. */
static inline uint32_t gf_shift_round(uint32_t bits, uint32_t shift)
{
    uint32_t below_half = ((uint32_t)1 << (shift - 1)) - 1;
    return (bits + below_half + ((bits >> shift) & 1)) >> shift;
}

static inline uint16_t gf_f16_of_f32(float value)
{
    uint32_t bits = gf_f32_bits(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t half;
    if (magnitude > 0x7f800000u) {
        half = 0x7e00u | ((magnitude >> 13) & 0x3ffu); /* NaN */
    } else if (magnitude >= 0x47800000u) {
        half = 0x7c00u; /* 65536 and more */
    } else if (magnitude >= 0x38800000u) {
        /* A carry out of the mantissa raises the exponent, at the top up to infinity: just what is
         * wanted. */
        half = gf_shift_round(magnitude, 13) - (112u << 10);
    } else if (magnitude >= 0x33000000u) {
        /* From 2^-25, below the normals: the mantissa with its leading one, in units of 2^-24. */
        half = gf_shift_round((magnitude & 0x7fffffu) | 0x800000u, 126u - (magnitude >> 23));
    } else {
        half = 0;
    }
    return (uint16_t)(sign | half);
}

static inline float gf_f32_of_f16(uint16_t half)
{
    uint32_t sign = ((uint32_t)half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 0x1fu;
    uint32_t mantissa = half & 0x3ffu;
    if (exponent == 31)
        return gf_f32_of_bits(sign | 0x7f800000u | (mantissa ? 0x400000u : 0) | (mantissa << 13));
    if (exponent > 0) return gf_f32_of_bits(sign | ((exponent + 112) << 23) | (mantissa << 13));
    if (mantissa == 0) return gf_f32_of_bits(sign);
    /* Subnormal: shifted until its leading one is bit 10, which the exponent then stands for. */
    uint32_t shift = (uint32_t)__builtin_clz(mantissa) - 21;
    return gf_f32_of_bits(sign | ((113 - shift) << 23) | (((mantissa << shift) & 0x3ffu) << 13));
}

static inline uint16_t gf_bf16_of_f32(float value)
{
    uint32_t bits = gf_f32_bits(value);
    uint32_t sign = bits & 0x80000000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((sign >> 16) | gf_shift_round(magnitude, 16));
}

static inline float gf_f32_of_bf16(uint16_t half)
{
    return gf_f32_of_bits((uint32_t)half << 16);
}

#endif
