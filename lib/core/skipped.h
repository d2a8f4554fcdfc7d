/* Messages about skipped steps and uneven samples. A cause that stays is logged at its first,
 * second, fourth .. step. */
#ifndef GF_SKIPPED_H
#define GF_SKIPPED_H

#include "lib/context.h"

/* A step was skipped for this reason: true where a warning is due, with what it ends with. */
#define GF_SKIP_TEXT_BYTES 64u
bool gf_skip_is_news(gf_context *gf, uint32_t reason, char text_out[GF_SKIP_TEXT_BYTES]);
void gf_skip_none(gf_context *gf); /* this step was not */
/* `words` are those of the vote (vote.h). */
void gf_skip_values_log(gf_context *gf, const uint64_t *words);
void gf_skip_sum_log(gf_context *gf, const uint64_t *words);
void gf_samples_log(gf_context *gf, const uint64_t *words);

#endif
