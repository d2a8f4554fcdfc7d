/* Ranks of one node that reach each other's device memory: what each exports, and whether all of
 * them could import it. */
#ifndef GF_IPC_H
#define GF_IPC_H

#include "drivers/gpu.h"

/* Why a rank's device memory cannot be shared, or one of its peers' cannot be reached. */
typedef enum gf_ipc_reason {
    GF_IPC_FINE = 0,
    GF_IPC_NOT_BUILT,
    GF_IPC_KEPT,
    GF_IPC_OUT_OF_REACH,
    GF_IPC_OTHER_MEMORY,
    GF_IPC_REASON_COUNT
} gf_ipc_reason;

/* What a rank tells all others. An allgather moves these as bits, in words of four bytes. */
struct gf_ipc_refusal {
    uint32_t reason;      /* a gf_ipc_reason */
    int32_t foreign_code; /* the GPU driver's, or 0 */
};
struct gf_ipc_export {
    struct gf_ipc_refusal refusal;
    unsigned char handle[GF_GPU_HANDLE_BYTES]; /* where nothing was refused */
};
_Static_assert(sizeof(struct gf_ipc_export) % sizeof(float) == 0, "it travels in words");

/* How far the agreement is. */
typedef enum gf_ipc_stage {
    GF_IPC_EXPORTS = 0, /* all ranks' exports are gathered */
    GF_IPC_IMPORTS,     /* this rank imports its node's, one after the other */
    GF_IPC_ANSWERS      /* all ranks' refusals are gathered */
} gf_ipc_stage;

#define GF_UUID_WORDS 4u /* of a device, bits */

struct gf_ipc {
    /* [world] by rank. All are NULL on the host, and where no two ranks share a node */
    struct gf_ipc_export *exports;
    struct gf_ipc_refusal *refusals; /* [world] by rank */
    /* [world] each rank's device memory, as this rank's device reaches it; 0: not imported */
    gf_mem *bases;
    gf_mem *local; /* [world] the same of this rank's node alone, without gaps */
    gf_ipc_stage stage;
    uint32_t next; /* the rank to be imported from */
    /* all ranks of this node have imported from each other: buffers are summed from device to
     * device */
    bool agreed;
    bool mixed; /* some nodes have agreed, others have not; the same on all ranks */
};

size_t gf_ipc_bytes(uint32_t world);
/* memory[gf_ipc_bytes()], NULL for 0 bytes */
void gf_ipc_lay(struct gf_ipc *exported, char *memory, uint32_t world);

/* At the end of the warm-up, where ranks share memory. GF_AGAIN: a request was posted; call
 * gf_ipc_next() once it has ended. GF_OK: the ranks have agreed, for or against it, and refusals
 * are logged. These calls may block until the device has copied a word, up to exchange.timeout;
 * below 0: the context has failed. */
gf_status gf_ipc_begin(gf_context *gf);
gf_status gf_ipc_next(gf_context *gf);

/* Unmaps what was imported; waits for the work of the device. Valid at any time. */
void gf_ipc_close(gf_context *gf);

#endif
