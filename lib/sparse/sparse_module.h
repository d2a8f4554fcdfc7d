/* The sparse module: what the core and the optimizer call of it, where sparse.enabled. */
#ifndef GF_SPARSE_MODULE_H
#define GF_SPARSE_MODULE_H

#include "lib/context.h"

struct gf_sparse_module {
    const struct gf_step_module *step;
    void (*open)(gf_context *gf);                            /* once tensors and pools are laid out */
    gf_status (*update)(gf_context *gf, float learning_rate); /* in a sparse step: the chunks that were sent */
};

#endif
