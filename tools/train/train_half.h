/* 16-bit numbers on a processor that computes in fp32. Conversions round to nearest, ties to even;
 * what is too large becomes infinity, NaN stays NaN. Type is GF_TYPE_F16 or GF_TYPE_BF16;
 * half_round() alone takes GF_TYPE_F32, and then does nothing. */
#ifndef GF_TRAIN_HALF_H
#define GF_TRAIN_HALF_H

#include "gradientflow.h"

/* data[count] becomes what it would be after a visit to memory of that type. */
void half_round(gf_type type, float *data, uint64_t count);
/* to[count] of that type from from[count]; no overlap. */
void half_put(gf_type type, uint16_t *to, const float *from, uint64_t count);
/* The reverse, exact. */
void half_get(gf_type type, float *to, const uint16_t *from, uint64_t count);

#endif
