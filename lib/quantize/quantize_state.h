/* What a rank owes as an owner, in a saved state. Blocks of another world were others': what was owed of them is
 * dropped, as at a view change. */
#ifndef GF_QUANTIZE_STATE_H
#define GF_QUANTIZE_STATE_H

#include <string.h>

#include "lib/context.h"

static inline void gf_quantize_save(const gf_context *gf, void *to)
{
    const struct gf_quantized *quantized = &gf->quantized;
    memset(to, 0, quantized->owner_elems * sizeof(float));
    if (quantized->epoch == gf->epoch) memcpy(to, quantized->owner, quantized->owner_elems * sizeof(float));
}

static inline void gf_quantize_load(gf_context *gf, const void *from, uint32_t world)
{
    gf->quantized.epoch = (world == gf->world) ? gf->epoch : 0; /* 0: cleared as the next step begins */
    if (world == gf->world) memcpy(gf->quantized.owner, from, gf->quantized.owner_elems * sizeof(float));
}

#endif
