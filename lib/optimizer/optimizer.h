/* The optimizer module: what others call of it. The program itself calls gf_update() and gf_weights_written(). */
#ifndef GF_OPTIMIZER_H
#define GF_OPTIMIZER_H

#include "lib/context.h"

struct gf_optimizer_module {
    gf_status (*half_refresh)(gf_context *gf);
    /* For sparse steps, as declared in kinds.h. */
    gf_status (*lars_add)(gf_context *gf, uint32_t tensor, uint64_t first, uint64_t end);
    gf_status (*lars_end)(gf_context *gf, uint32_t tensor);
    gf_status (*range)(gf_context *gf, uint32_t tensor, uint64_t first, uint64_t end, float rate);
    gf_status (*chunks)(gf_context *gf, uint32_t tensor, const struct gf_chunks *chunks, float rate);
};

#endif
