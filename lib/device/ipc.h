/* Ranks of one node that reach each other's device memory: what each exports, and whether all of
 * them could import it. */
#ifndef GF_IPC_H
#define GF_IPC_H

#include "drivers/gpu.h"

/* How exporting went, a reason and a foreign code; then the handle. */
#define GF_IPC_WORDS (GF_GPU_HANDLE_BYTES / sizeof(float) + 2)

#define GF_UUID_WORDS 4u /* of a device, bits */

struct gf_ipc {
    /* [world * GF_IPC_WORDS] bits, by rank. All NULL on the host, and where no node has all
     * ranks */
    float *handles;
    /* [2 * world] by rank: a reason, 0 for none, and the foreign code */
    float *refusals;
    /* [world] each rank's device memory, as this rank's device reaches it; 0: not imported */
    gf_mem *bases;
    gf_mem *local;  /* [world] the same of this rank's node alone, without gaps */
    uint32_t stage; /* of the agreement */
    uint32_t next;  /* the rank to be imported from */
    /* all ranks of this node have imported from each other: buffers are summed from device to
     * device */
    bool agreed;
    bool mixed; /* some nodes have agreed, others have not; the same on all ranks */
};

size_t gf_ipc_bytes(uint32_t world);
/* memory[gf_ipc_bytes()], NULL for 0 bytes */
void gf_ipc_lay(struct gf_ipc *exported, char *memory, uint32_t world);

/* The end of the warm-up, where ranks share memory. GF_AGAIN: a request was posted, and the next
 * call is gf_ipc_next() once it has ended. GF_OK: agreed either way, and what was refused was said.
 * They may block until the device has copied a word, up to exchange.timeout; below 0: the context
 * has failed. */
gf_status gf_ipc_begin(gf_context *gf);
gf_status gf_ipc_next(gf_context *gf);

/* what was imported; waits for the device's work. Valid at any time */
void gf_ipc_close(gf_context *gf);

#endif
