/* A member: a process of a job as it shows itself to the coordinator. It offers itself, is put on
 * a list, works in a generation, says what failed, and is ready for the next generation. It
 * decides nothing about other processes. */
#ifndef GF_CONTROL_MEMBER_H
#define GF_CONTROL_MEMBER_H

#include "lib/control/frames.h"

typedef enum gf_member_state {
    GF_MEMBER_JOINING = 0, /* it has offered itself, or tries to: LIST is awaited */
    GF_MEMBER_LISTED,      /* its link is opened for the list, then GO is awaited */
    GF_MEMBER_WORKS,       /* of a generation */
    GF_MEMBER_FAILED,      /* FAULT was said, and then ERROR came, or ERROR alone */
    GF_MEMBER_READY,       /* LIST is awaited */
    GF_MEMBER_CLOSING,     /* BYE was said, ALL_GONE is awaited */
    GF_MEMBER_GONE,        /* it has left in good order */
    GF_MEMBER_ENDED        /* for good; gf_member_error() says why */
} gf_member_state;

struct gf_member_setup {
    uint32_t id;       /* its number for the whole job */
    uint32_t world;    /* ranks of the first generation */
    uint32_t id_count; /* job.world_max */
    /* the member in whose process the coordinator runs; GF_RANK_NONE: it has a process */
    uint32_t host_id;
    bool rejoins;     /* it was started again, and the process before it has ended */
    uint64_t process; /* 64 random bits, not 0 */
    struct control_terms terms;
    struct gf_offer values;
    size_t endpoint_bytes_max;
    const char *address; /* of the coordinator, for texts; the caller's */
    /* Which edges of this rank are broken now; asked when it fails, and at an inquiry. Or NULL. */
    void (*edges)(void *edges_of, struct control_edges *edges_out);
    /* For texts; NULL, or an answer that is NULL or empty: it has no name. */
    const char *(*tensor_name)(void *edges_of, uint32_t tensor);
    /* The first operation that this rank has not begun; asked at heartbeats. NULL: 0. */
    uint64_t (*begun)(void *edges_of);
    void *edges_of;
    struct gf_log log;
};

struct gf_member;

size_t gf_member_state_bytes(const struct gf_member_setup *setup);
/* state is the caller's and becomes the member's; channel is open, has one connection, and stays
 * the caller's. */
struct gf_member *gf_member_open(const struct gf_member_setup *setup, void *state,
                                 struct gf_channel *channel, uint64_t now_ns);
/* Takes what has come and sends what there is; bounded work, never blocks. */
gf_member_state gf_member_poll(struct gf_member *member, uint64_t now_ns);
gf_member_state gf_member_current_state(const struct gf_member *member);
/* LISTED: what the generation to come is. Once the caller's link is open for it, it hands in the
 * link's endpoint[endpoint_bytes], which is copied. False: there is none, or it has been handed
 * in. */
bool gf_member_list_due(const struct gf_member *member, struct gf_generation *generation_out);
void gf_member_endpoint_set(struct gf_member *member, const void *endpoint, size_t endpoint_bytes);
/* WORKS, and what follows: */
const struct gf_generation *gf_member_generation(const struct gf_member *member);
const void *gf_member_endpoint(const struct gf_member *member, uint32_t rank, size_t *bytes_out);
/* Where this rank is: the caller keeps it up to date, STATUS and POSITION say it. */
struct control_report *gf_member_report(struct gf_member *member);
uint32_t gf_member_joiner_count(
    const struct gf_member *member); /* processes that wait to come in */
/* Who has closed while this generation is under way, after the fewest steps: no later step can end,
 * so who is in one says FAULT at once. NULL: nobody. */
const struct control_closed *gf_member_closed(const struct gf_member *member);
/* WORKS: something has failed. `ends`: this process cannot go on whatever is decided. The finding
 * is awaited: gf_member_is_found(). */
void gf_member_fault(struct gf_member *member, const struct gf_error *seen, bool ends);
/* FAILED: the coordinator has said whose fault it is, and gf_member_error() is that. */
bool gf_member_is_found(const struct gf_member *member);
const struct gf_error *gf_member_error(const struct gf_member *member);
/* It has found that itself, as it has lost the coordinator. */
bool gf_member_is_lost(const struct gf_member *member);
/* GONE or ENDED, or it has said that it ends. */
bool gf_member_has_ended(const struct gf_member *member);
/* FAILED and found, or WORKS where `planned`: its operations have ended. */
void gf_member_ready(struct gf_member *member, const struct control_ready *ready);
/* WORKS: it closes. */
void gf_member_bye(struct gf_member *member);
/* CLOSING: a rank that has not closed and is awaited, and in words where it is; "" and
 * GF_RANK_NONE: none is known. Who waits no longer says so, and ends alone: it breaks nobody's
 * step. */
const char *gf_member_waits_for(const struct gf_member *member, uint32_t *rank_out);
/* This rank posts a public request: all ranks must post the same ones. Within about a second of
 * polling, at an inquiry or when ranks close, whoever does otherwise is named with both calls
 * (GF_ERR_MISMATCH on all ranks). */
void gf_member_call(struct gf_member *member, gf_operation operation, gf_type type, uint32_t root,
                    uint64_t elem_count);
/* STATUS now, at most every 100 ms: it computes, and asks to be awaited for patience_ns, at most
 * exchange.timeout. The others hear of it. */
void gf_member_heartbeat(struct gf_member *member, uint64_t now_ns, uint64_t patience_ns);
/* For how much longer some rank, this or another one, asks to be awaited, and from which operation
 * on (an operation's sequence number); 0: none does. */
uint64_t gf_member_patience(const struct gf_member *member, uint64_t now_ns, uint64_t *from_out);
bool gf_member_flushed(const struct gf_member *member); /* all words have left */

#endif
