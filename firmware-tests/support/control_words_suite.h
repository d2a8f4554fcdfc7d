/* What suites of a coordinator's words begin with: a coordinator, and processes that the test
 * plays word by word (control_words.h). Each row says all that is heard. A word too many is a
 * failure, too: it makes a member answer, or end. */
#ifndef CONTROL_WORDS_SUITE_H
#define CONTROL_WORDS_SUITE_H

#include "firmware-tests/support/suite.h"
#include "gradientflow.h"
#include "drivers/link.h"
#include "firmware-tests/support/control_words.h"
#include "lib/control/coordinator_state.h"

#define SECOND (1000 * CONTROL_MS)
#define WORDS_PEERS 8u

extern struct words {
    struct control_world world;
    struct control_words_process peers[WORDS_PEERS]; /* peers[id] has that id */
    gf_status polled;                                /* what the coordinator's last poll gave */
} words;

/* ---- time ---- */
void words_turn(void);
void words_spend(uint64_t for_ns);

/* ---- how a row begins ---- */
/* A coordinator and no process. */
void words_open(uint32_t ids, uint32_t id_count, bool is_elastic);
/* All have connected, and are listed. */
void words_all_listed(uint32_t ids);
/* All are of generation 1, and have heard so. */
void words_all_begun(uint32_t ids, uint32_t id_count, bool is_elastic);
/* Ranks 0 and 1 of that list are these two, and have said their endpoints: the row hears what
 * follows. */
void words_two_endpoints(uint32_t number, uint32_t first, uint32_t second);
/* .. and so many, of which the row hears nothing. */
void words_all_endpoints(uint32_t number, const uint32_t *ids, uint32_t count);

/* ---- what is heard ---- */
/* The process with this id hears exactly that. */
void words_heard_at(const char *file, int line, uint32_t id, const char *text);
#define words_heard(id, text) words_heard_at(__FILE__, __LINE__, id, text)
/* What has come to all of them is of no interest to the row. */
void words_discard(void);
/* The coordinator's finding contains that. */
void words_found(const char *text);

/* ---- what a process does; words_say_*() leave the poll to the row ---- */
void words_come(uint32_t id);
void words_dies(uint32_t id);
void words_breaks(uint32_t id);
void words_breaks_and_comes(uint32_t id);
void words_say_fault(uint32_t id, uint32_t number);
/* It gives up: its file is broken. */
void words_say_end(uint32_t id, uint32_t number);
void words_say_ready(uint32_t id, uint32_t number, uint64_t steps, bool planned, bool leaves);
void words_say_position(uint32_t id, uint32_t number, uint32_t inquiry);
void words_say_status(uint32_t id, uint32_t number, uint64_t step, uint64_t patience_ns);
void words_say_edges(uint32_t id, uint32_t number, uint32_t inquiry, uint32_t first,
                     uint32_t second);

#endif
