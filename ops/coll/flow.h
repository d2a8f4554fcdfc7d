/* A collective as a sequence of rounds: in each, a rank sends one range of its data to one peer and
 * receives one range from one peer. flow.c cuts ranges into slices, keeps up to `window` messages
 * under way in each direction and starts each one as soon as what it depends on is there, so rounds
 * overlap. An algorithm only says what its rounds are. */
#ifndef GF_FLOW_H
#define GF_FLOW_H

#include "ops/coll.h"

#define GF_ROUND_NONE UINT32_MAX

/* What one rank sends another in a round. The sent range of a round is the received range of the
 * same round of its peer.
 *
 * Rounds overlap as far as the two `after` let them. In a round of number `after` this rank
 *     received last some of what a sent range hands on: it is not sent before that is there
 *     sent last some of what a received range overwrites: nothing lands there before that has gone
 * GF_ROUND_NONE: it waits for nothing. A ring's allreduce over 3 ranks, as rank 0 sees it:
 *
 *     round            0     1     2     3
 *     sends block      2     1     0     2
 *       after          none  0     1     2
 *     receives block   1     0     2     1
 *       after          none  none  0     1       not sent before: nothing to wait for
 *       reduces        yes   yes   no    no */
struct gf_range {
    uint32_t peer; /* group index */
    /* of a sent one: an earlier round; of a received one: this one or an earlier one */
    uint32_t after;
    uint64_t first; /* elements of data */
    uint64_t count; /* 0: nothing travels */
};

/* Zeroed before the algorithm fills it in, but for number and the two `after`, which are
 * GF_ROUND_NONE. */
struct gf_round {
    uint32_t number;
    struct gf_range send, recv;
    bool reduce; /* what arrives is reduced into data; else it replaces data */
};

/* A position in the order of messages of one direction: every message before it has been posted, or
 * has ended. */
struct gf_flow_at {
    uint64_t count; /* messages before it */
    uint64_t slice;
    uint32_t round;
};

/* How far a collective is in its rounds. Its messages of one direction, in their order, with the
 * positions that part them; the window bounds how many are under way:
 *
 *     | have ended |  under way  | not yet posted |
 *              send_done        sent
 *              recv_done        recvd
 */
struct gf_flow {
    uint32_t round_count;
    /* The rounds that were asked for last, kept: the one at work, and one that it comes after. */
    struct gf_round known;
    struct gf_round before;
    uint64_t slice_elems;
    /* of the longest round: a message's number is round * round_slices + slice */
    uint64_t round_slices;
    size_t slot_bytes; /* of staging, a slot a receive */
    struct gf_flow_at sent;
    struct gf_flow_at send_done;
    struct gf_flow_at recvd;
    struct gf_flow_at recv_done;
    /* gf_flow_there(). UINT32_MAX, from start on: all is there. */
    uint32_t there_round;
    uint64_t there_elems;
    /* Where reductions are asynchronous, between recv_done and recvd: all before `reduced` have
     * been given to the device; all before `recorded` are done once the event that was recorded
     * after them is reached. */
    struct gf_flow_at reduced;
    struct gf_flow_at recorded;
    uint64_t last_reduce; /* messages up to the last one that was reduced */
};

/* need(), start() and progress() of a kind that has shape() and round(). */
void gf_flow_need(const struct gf_coll_kind *kind, const struct gf_coll_limits *limits,
                  struct gf_coll_need *need_out);
gf_status gf_flow_start(struct gf_coll *coll);
gf_status gf_flow_progress(struct gf_coll *coll, uint64_t now_ns);
/* coll->async of these algorithms: which queued reductions are done */
gf_status gf_flow_async(struct gf_coll *coll, uint64_t now_ns);
/* Tells a running ring how much of what this rank sends is there by now: all of the rounds before
 * `round`, and so many elements of that one. */
static inline void gf_flow_there(struct gf_flow *flow, uint32_t round, uint64_t elems)
{
    flow->there_round = round;
    flow->there_elems = elems;
}
/* What collectives of so many rounds need, where the longest round has round_bytes. */
void gf_flow_slots(const struct gf_coll_limits *limits, uint32_t rounds, uint64_t round_bytes,
                   struct gf_coll_need *need_out);

/* Elements of the collective; a barrier has one, its token. */
static inline uint64_t gf_flow_elems(const struct gf_coll *coll)
{
    return (coll->plan.collective == GF_COLL_BARRIER) ? 1 : coll->plan.elem_count;
}

/* The largest k with 2^k <= size. */
static inline uint32_t gf_log2_floor(uint32_t size)
{
    return 31u - (uint32_t)__builtin_clz(size);
}

#endif
