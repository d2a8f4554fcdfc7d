/* Where a context is between open and close. */
#ifndef GF_PHASE_H
#define GF_PHASE_H

#include "gradientflow.h"

/*     JOIN -> WARM -> READY <-> STEP -> READY .. -> LEAVE -> CLOSED, or LEFT -> CLOSED   any failure -> FAILING -> FAILED
 * FAILING: the error is known, the culprit is being asked for and what is under way is being ended; polls give GF_AGAIN,
 * because buffers may still be written to. FAILED: nothing is under way, every call answers with the error. */
typedef enum gf_phase {
    GF_PHASE_JOIN = 1,
    GF_PHASE_WARM,
    GF_PHASE_READY,
    GF_PHASE_AGREE, /* on the way into another epoch without a failure */
    GF_PHASE_STEP,
    GF_PHASE_LEAVE, /* waits until the others leave too */
    GF_PHASE_LEFT,  /* gf_leave(): the others go on without it */
    GF_PHASE_FAILING,
    GF_PHASE_FAILED,
    GF_PHASE_CLOSED
} gf_phase;

#endif
