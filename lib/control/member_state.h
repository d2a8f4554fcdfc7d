/* The state of a member: for member.c, and for the state search of the tests, which saves and
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

    uint32_t owed; /* bits 1 << control_frame */
    uint32_t inquiry;
    uint64_t status_ns;
    uint64_t beat_ns;     /* its last heartbeat; 0: none in this generation */
    uint64_t beat_for_ns; /* .. asks to be awaited for so long */
    uint64_t waited_ns;   /* when it waited for somebody last */
    uint64_t away_ns;     /* the end of the last time in which it did not poll, */
    uint64_t away_for_ns; /* and how long that was */
    uint64_t moved_ns;    /* since when it stands in one place, */
    uint64_t spent_ns;    /* and in which its heartbeats count no more */
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
    struct control_refusal refusal; /* the last one that may be tried again */

    struct control_standing standing;
    struct gf_generation generation; /* under way */
    struct gf_generation listed;     /* to come */
    uint64_t listed_hash;
    bool endpoint_due;
    size_t endpoint_bytes, endpoint_sent;
    uint32_t go_rank, go_at;  /* next expected */
    uint32_t *sizes;          /* [id_count] of endpoints */
    unsigned char *own;       /* [endpoint_bytes_max] */
    unsigned char *endpoints; /* [id_count][endpoint_bytes_max] */
    unsigned char scratch[GF_CHANNEL_PAYLOAD_MAX];
};

#endif
