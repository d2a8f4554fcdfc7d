/* Ranks of one node that reach each other's device memory: what each lends, and whether all of them could borrow it. */
#ifndef GF_LENT_H
#define GF_LENT_H

#include "drivers/gpu.h"

/* How lending went, a reason and a foreign code; then the card. */
#define GF_LENT_WORDS (GF_GPU_CARD_BYTES / sizeof(float) + 2)

struct gf_lent {
    float *cards;    /* [world * GF_LENT_WORDS] bits, by rank. All NULL on the host, and where no node has all ranks */
    float *refusals; /* [2 * world] by rank: a reason, 0 for none, and the foreign code */
    gf_mem *bases;   /* [world] each rank's device memory, as this rank's device reaches it; 0: not borrowed */
    bool agreed;     /* all ranks have borrowed from all: buffers are summed from device to device */
};

size_t gf_lent_bytes(uint32_t world);
void gf_lent_lay(struct gf_lent *lent, char *memory, uint32_t world); /* memory[gf_lent_bytes()], NULL for 0 bytes */

/* The end of the warm-up, where all ranks share memory. Begin: false, there is nothing to agree on. Each of the others
 * behind requests that it has posted, and that have ended: agreed either way, and what was refused was said. */
bool gf_lent_begin(gf_context *gf);
void gf_lent_borrow(gf_context *gf);
void gf_lent_settle(gf_context *gf);
void gf_lent_close(gf_context *gf); /* what was borrowed; waits for the device's work. Valid at any time */

#endif
