/* The state of a member: for member*.c, and for the state search of the tests, which saves and
 * compares it. */
#ifndef GF_MEMBER_STATE_H
#define GF_MEMBER_STATE_H

#include "lib/control/member.h"

struct gf_member {
    struct gf_member_setup setup;
    struct gf_channel *channel;
    gf_member_state state;
    uint64_t now_ns;
    uint64_t since_ns; /* of the state */

    bool connected;
    bool unsent;     /* it takes nothing any more: its end is to be told */
    bool taken;      /* a coordinator has spoken to it, */
    bool taken_here; /* on this connection */
    bool dials;
    char how[160];    /* why there is no connection, in the channel's words */
    bool died;        /* the coordinator's kernel has said that its process has ended */
    uint64_t dial_ns; /* next */
    uint64_t lost_ns; /* the connection, or the begin */
    uint64_t heard_ns;
    uint64_t random;

    uint32_t pending; /* bits 1 << control_frame */
    uint32_t inquiry;
    uint64_t status_ns;
    uint64_t beat_ns;     /* its last heartbeat; 0: none in this generation */
    uint64_t beat_for_ns; /* .. asks to be awaited for so long */
    uint64_t waited_ns;   /* when it waited for somebody last; the begin of the generation */
    uint64_t moved_ns;    /* since when it stands in one place */
    struct control_patience patience;
    struct control_closed closed;
    struct control_waiting awaits;
    struct control_report moved;    /* the place, */
    struct control_report reported; /* and that of the last STATUS */
    struct control_report report;
    struct control_fault fault;
    bool found;
    bool lost; /* by this member itself */
    struct gf_error error;
    struct control_ready ready;
    struct control_refusal refusal; /* the last word it heard, which may be tried again; no text:
                                     * it was taken since, or could not reach a coordinator */

    struct control_standing standing;
    struct gf_generation generation; /* under way */
    struct gf_generation listed;     /* to come */
    bool endpoint_due;
    size_t endpoint_bytes, endpoint_sent;
    uint32_t go_rank, go_at;  /* next expected */
    uint32_t *sizes;          /* [id_count] of endpoints */
    unsigned char *own;       /* [endpoint_bytes_max] */
    unsigned char *endpoints; /* [id_count][endpoint_bytes_max] */
    unsigned char scratch[GF_CHANNEL_PAYLOAD_MAX];
};

#define MEMBER_STATUS_NS UINT64_C(100000000) /* STATUS: at most so often, where something changed */
#define MEMBER_REDIAL_NS UINT64_C(50000000)  /* and up to twice as long, drawn anew each time */

/* ---- member.c ---- */
static inline bool member_is_over(const struct gf_member *member)
{
    return member->state >= GF_MEMBER_GONE;
}
/* Whom a text names: the rank that hosts the coordinator; GF_RANK_NONE: the coordinator. */
static inline uint32_t member_coordinator_rank(const struct gf_member *member)
{
    return member->setup.host_id;
}
void gf_member_enter(struct gf_member *member, gf_member_state state);
/* This member ends for a reason that it has found itself. */
__attribute__((format(printf, 4, 5))) void gf_member_end(struct gf_member *member, gf_status code,
                                                         uint32_t peer, const char *format, ...);

/* ---- member_take.c ---- */
/* Takes what the channel has. */
void gf_member_events_take(struct gf_member *member);

/* ---- member_send.c ---- */
/* Follows the report, which the owner keeps up to date. */
void gf_member_report_follow(struct gf_member *member);
void gf_member_status_post(struct gf_member *member); /* .. where it is time to */
/* What its link says now, and what it has failed for. */
void gf_member_edges_ask(const struct gf_member *member, const struct gf_error *seen,
                         struct control_edges *edges);
uint64_t gf_member_first_unbegun(const struct gf_member *member);
/* Sends what is pending, as far as there is room. */
void gf_member_flush(struct gf_member *member);

#endif
