/* What the appliance adds to a run's state: config.state_extra. */
#ifndef GF_EXTRA_H
#define GF_EXTRA_H

#include "lib/context.h"

/* GF_ERR_PARAM, one line in error_out[256]. */
gf_status gf_extra_check(const struct gf_config *config, char *error_out);
/* The table of an open context: a copy in parts (layout.h) of as many bytes as that says. */
uint64_t gf_extra_names_bytes(const struct gf_config *config);
void gf_extra_keep(struct gf_config *config, struct gf_state_extra *table, char *names);
uint64_t gf_extra_hash(const struct gf_config *config); /* of names and sizes; 0: there is none */
/* Adds fields to a summary (gf_config_summary()): how many regions, then "state_extra[1]=m:1600B",
 * as many as fit. */
void gf_extra_summary(const struct gf_config *config, char *summary, size_t bytes);
uint64_t gf_extra_bytes(const gf_context *gf); /* of a saved state, each region on 8 bytes */
void gf_extra_save(const gf_context *gf, unsigned char *to);
void gf_extra_load(const gf_context *gf, const unsigned char *from);
/* How regions travel, in messages of fp32 words that follow from the sizes alone. First each large
 * region is sent from where it lies, in whole words. Then the rests (small regions, and the last
 * bytes of large ones) are copied to a stage in control memory, and many of them are sent in one
 * message. */
uint64_t gf_extra_stage_bytes(const struct gf_config *config);
/* Words of the first such region from *next on, which is then after it; 0: there are no more. */
uint64_t gf_extra_bulk(const gf_context *gf, uint32_t *next, gf_mem *data_out);
/* Words of the message that holds the rests of regions first .. *end_out - 1; 0: there is no
 * more. */
uint64_t gf_extra_rests(const gf_context *gf, uint32_t first, uint32_t *end_out);
/* Between those regions and the stage. */
void gf_extra_rests_move(gf_context *gf, uint32_t first, uint32_t end, bool to_stage);

#endif
