/* Which algorithm serves an operation. */
#ifndef GF_CHOOSE_H
#define GF_CHOOSE_H

#include "gradientflow.h"
#include "ops/coll.h"

/* The algorithm that serves `collective` for this many bytes on the wire. Sums follow the
 * configuration; what an algorithm does not offer (a barrier has no ring) takes the plainest that
 * does. */
gf_algorithm gf_choose(const gf_context *gf, gf_collective collective, uint64_t bytes);
/* For vectors that the owner of the op reduces itself. */
gf_algorithm gf_choose_reduced(const gf_context *gf, uint64_t bytes);

/* From here on auto and direct mean direct where all ranks share memory (`shares`); otherwise auto
 * means messages. After a reset, until this call, both use messages. */
void gf_choose_commit(gf_context *gf, bool shares);
void gf_choose_reset(gf_context *gf);

/* Ranks that direct's flags are laid out for: of the world, or, with hierarchy, of the largest node
 * there may be. */
uint32_t gf_choose_flag_ranks(const struct gf_config *config);

#endif
