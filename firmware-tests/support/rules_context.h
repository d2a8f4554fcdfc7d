/* A context in a state of its choice, for what gradientflow.h says of each call there: one of two
 * ranks of a simulated world, of which the other one only shows that it lives. */
#ifndef RULES_CONTEXT_H
#define RULES_CONTEXT_H

#include "firmware-tests/support/world.h"

#define RULES_RANK 1u

enum {
    RULES_NULL,
    RULES_JOINING,
    RULES_READY,
    RULES_ASKED,
    RULES_IN_STEP,
    RULES_WHOLE,
    RULES_SKIPPED,
    RULES_ABORTED,
    RULES_LEAVING,
    RULES_FORKED,
    RULES_STATES
};
extern const char *const rules_state_names[RULES_STATES];

extern struct world rules_world;
extern gf_context *gf;                /* of RULES_RANK, or NULL */
extern struct gf_request rules_asked; /* under way in RULES_ASKED */
/* what gf_state_save() gave before the first step */
extern uint64_t rules_state[8192], rules_state_bytes;

/* RULES_FORKED is as ready: who calls forks. bare: without an optimizer. */
void rules_make(int which, bool bare);
void rules_end(void);
/* While a call may block the other rank polls, and does nothing else. */
void rules_block(void);

/* Fails the test unless the answer is as expected and, where it is a refusal of something that has
 * a log, was logged. . OK, A again, P param, S state, X aborted, T timeout, C config, D data, R
 * arena; a digit: that number. */
void rules_expect(const char *call, const char *where, int answer, char expect, bool has_log);

#endif
