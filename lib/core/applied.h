/* Whether the last step has been applied to the weights. */
#ifndef GF_APPLIED_H
#define GF_APPLIED_H

#include "lib/context.h"

/* This library applies a step, or the program reports that it did (gf_updated()). */
bool gf_has_weights(const gf_context *gf);
/* The last step is whole and was not applied to them. */
bool gf_step_is_unapplied(const gf_context *gf);
#define GF_APPLY_FIRST \
    "gf_update() is first, or gf_updated() where the optimizer is the program's own"

#endif
