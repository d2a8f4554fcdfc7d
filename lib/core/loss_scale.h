/* Dynamic loss scale. */
#ifndef GF_LOSS_SCALE_H
#define GF_LOSS_SCALE_H

#include "gradientflow.h"

struct gf_loss_scale {
    float value;
    uint32_t good, bad; /* steps in a row */
};

#define GF_SCALE_MAX 16777216.0f /* 2^24: fp32 gradients keep room above it */
gf_status gf_scale_step(gf_context *gf, bool skipped);

#endif
