/* What the parts of the simulator share. Private to drivers/sim.
 *
 *   sim_net.c         the world: ranks, faults that a test causes, counters
 *   sim_time.c        the event heap, virtual time, wake-ups
 *   sim_evidence.c    networks that lose packets, and what a kernel shows of that
 *   sim_message.c     a message from post to landing, and how it finds its receive
 *   sim_link.c        the link driver table
 *   sim_region.c      its exchange region and flags
 *   sim_channel.c     the channel driver table: connections of frames with a coordinator
 *
 * Running out of memory inside a call that cannot say so traps: a simulation that lost an event
 * proves nothing. */
#ifndef GF_SIM_STATE_H
#define GF_SIM_STATE_H

#include "drivers/sim/sim.h"

enum sim_event_kind {
    SIM_SEND_END, /* the message has left the sender's port */
    SIM_ARRIVE,   /* its first byte is at the receiver's port */
    SIM_LAND,     /* its last byte is there */
    SIM_WAKE,
    SIM_RESUME, /* a stop ends */
    SIM_FLAG,   /* with setup.late_flags */
    SIM_CLIMB,  /* its first byte is at its leaf switch, on its way to another one */
    SIM_PACKET, /* of a connection of frames, at its other end */
    SIM_RESEND  /* what is not acknowledged is sent again */
};
#define SIM_EVENT_KIND_BITS 4

struct sim_event {
    uint64_t at_ns;
    /* serial number << SIM_EVENT_KIND_BITS | kind: events of one time happen in the order of
     * posting */
    uint64_t order;
    void *subject; /* sim_message, sim_rank, sim_frame, sim_packet, sim_flag or sim_stream */
};
static inline enum sim_event_kind sim_event_kind(const struct sim_event *event)
{
    return (enum sim_event_kind)(event->order & ((1u << SIM_EVENT_KIND_BITS) - 1));
}

/* The key by which a message is matched with a receive. Both begin with one, and wait in a bucket
 * of the receiver. */
struct sim_entry {
    struct sim_entry *next;
    uint64_t tag;
    uint32_t from; /* the sender's rank in its generation */
};

/* A struct gf_req, in the caller's memory. */
struct sim_request {
    struct sim_entry entry;              /* of a posted receive */
    struct sim_request *previous, *next; /* requests of the rank that have not ended */
    /* under way for it: a send's, or the one that a receive is bound to */
    struct sim_message *message;
    gf_mem data;
    size_t size_bytes;
    uint64_t delay_ns;       /* of the fault */
    gf_status status;        /* GF_AGAIN until it has ended */
    gf_sim_fault_kind fault; /* of a receive: affects the message that it is matched with */
    uint32_t peer;
    bool is_send;
    bool is_bound; /* a receive's message has begun to arrive: no cancel */
};
#define SIM_REQUEST_BYTES 128u

struct sim_message {
    struct sim_entry entry;
    struct sim_request *send;  /* NULL once the send has ended */
    struct sim_request *bound; /* the receive it fills, with setup.bind_receives */
    size_t size_bytes;
    uint64_t transfer_ns; /* that its bytes take in a port */
    uint64_t delay_ns;
    /* a copy's: the receiver's count of landings when it became unexpected */
    uint64_t landed;
    uint32_t sender, to; /* processes */
    uint32_t to_life;    /* of the receiver's link when the sender connected */
    uint32_t holders;    /* events and tables that know it */
    gf_sim_fault_kind fault;
    bool is_node;   /* inside a node */
    bool has_data;  /* else no payload */
    bool is_loaded; /* payload holds the sender's bytes */
    bool is_lost;
    bool is_copy;            /* a duplicate */
    unsigned char payload[]; /* [size_bytes] of its post */
};

#define SIM_BUCKETS 256u /* by a hash of tag and sender; a power of two */
struct sim_bucket {
    struct sim_entry *posted, *unexpected; /* receives, messages; the oldest first */
};

struct sim_port {
    uint64_t out_free_ns;
    uint64_t in_free_ns;
};

struct sim_flag {
    uint64_t value;
    size_t offset_bytes;
    uint32_t to, to_life;
};

struct sim_link {
    struct gf_link base;
    struct sim_rank *self;
    struct gf_link_setup setup; /* generation: of now; device_bytes: 0 unless base.reaches_device */
    /* [places] of each rank of the generation */
    struct sim_peer {
        uint32_t proc; /* as its endpoint says */
        uint32_t life; /* of its link, as connected; 0: not */
        bool is_dialled;
    } * peers;
};

static inline struct sim_link *sim_link(struct gf_link *link)
{
    return (struct sim_link *)link;
}

struct sim_packet;
struct sim_wire;
struct sim_channel;

/* A process: that of a rank, or at the index after all ranks that of a coordinator. */
struct sim_rank {
    struct gf_sim *sim;
    uint32_t rank;
    uint32_t node; /* of neighbouring ranks */
    bool is_dead, is_stopped;
    bool is_queued;     /* in sim->woken */
    bool has_moved;     /* since the last progress() */
    uint64_t resume_ns; /* of a stop with an end; 0: none */
    uint64_t wake_ns;   /* last time that was asked for */
    uint64_t free_ns;   /* its thread works until then */
    bool wakes_free;    /* and is woken then */
    uint64_t polled_ns; /* its control channel, last */
    uint64_t posts;
    struct sim_port ports[2]; /* network, node */
    struct sim_port *port;    /* to the network: its own, or a card of its node */
    double slow;              /* gf_sim_slow(); 0: as 1 */
    uint32_t card;            /* which of its node's */
    struct sim_port *leaf;    /* from its switch to those above */
    struct gf_drivers drivers;

    struct sim_link *link; /* NULL: not open */
    /* opens and resets of the link: what is under way to an earlier one is lost */
    uint32_t life;
    struct sim_request *requests;
    uint32_t request_count; /* not ended */
    struct sim_bucket buckets[SIM_BUCKETS];
    uint64_t landed;

    struct sim_channel *channels; /* open; the first of them */
    uint64_t quiet_ns; /* by then every end has seen that the process before it has ended */
};

struct sim_held {
    void *subject;
    enum sim_event_kind kind;
    uint32_t a, b;
};

struct sim_clock {
    struct gf_clock clock;
    const struct gf_sim *sim;
};

struct gf_sim {
    struct gf_sim_setup setup;
    struct sim_clock clock;
    uint32_t proc_count;         /* the ranks, and a coordinator */
    struct sim_rank *ranks;      /* [proc_count] */
    struct sim_port *node_ports; /* cards, with setup.node_port */
    struct sim_port *leaves;
    uint64_t random;
    uint64_t now_ns;
    struct sim_event *events; /* a heap of four children a node */
    size_t event_count, event_room;
    uint64_t event_serial;
    bool is_stirred; /* a running rank was woken */
    uint32_t *woken; /* ring of ranks, each at most once */
    uint32_t woken_first, woken_count;
    uint8_t *cuts;              /* [proc_count * proc_count], made by the first partition */
    struct sim_stream *streams; /* [proc_count * proc_count], likewise */
    double *losses;             /* [world * world] from, to; made by the first gf_sim_lose() */
    struct sim_held *held;
    size_t held_count, held_room;
    struct sim_channel *listener; /* NULL: no process listens, */
    uint32_t listener_proc;       /* and this one did last; GF_RANK_NONE: none has yet */
    struct sim_wire *wires;
    uint64_t posts;
    struct gf_sim_counts counts;
};

/* sim_time.c */
void sim_event_push(struct gf_sim *sim, uint64_t at_ns, enum sim_event_kind kind, void *subject);
void sim_wake(struct sim_rank *self);

/* sim_net.c */
uint64_t sim_random(struct gf_sim *sim);                   /* splitmix64 */
uint64_t sim_random_to(struct gf_sim *sim, uint64_t last); /* uniformly 0..last */
bool sim_chance(struct gf_sim *sim, double rate);
bool sim_same_node(const struct gf_sim *sim, uint32_t a, uint32_t b);
/* The time at which a port is free for a transfer that takes so long. */
uint64_t sim_port_take(uint64_t *free_ns, uint64_t now_ns, uint64_t span_ns);
/* How long the message occupies the ports between leaf switches; 0: it stays below its leaf. */
uint64_t sim_climb_ns(const struct gf_sim *sim, const struct sim_message *message);
double sim_loss_rate(const struct gf_sim *sim, uint32_t from, uint32_t to);
bool sim_are_cut(const struct gf_sim *sim, uint32_t a, uint32_t b);
/* True: a and b are cut off from each other, the event is kept and happens when they no longer
 * are. */
bool sim_hold(struct gf_sim *sim, uint32_t a, uint32_t b, enum sim_event_kind kind, void *subject);
void sim_resume(struct sim_rank *self);

/* sim_message.c */
void sim_message_send(struct sim_rank *self, struct sim_request *request,
                      const struct sim_peer *peer, const struct gf_sim_fault *fault);
/* by one of its holders; freed by the last */
void sim_message_release(struct sim_message *message);
void sim_message_happen(struct gf_sim *sim, enum sim_event_kind kind, struct sim_message *message);
/* The receive takes an unexpected message, or waits in its bucket. */
void sim_receive(struct sim_rank *self, struct sim_request *request);
/* no longer waits in its bucket */
void sim_receive_withdraw(struct sim_rank *self, struct sim_request *request);
void sim_unexpected_clear(struct sim_rank *self);
void sim_request_end(struct sim_rank *self, struct sim_request *request, gf_status status);

/* The first byte of a message that no network has lost is at the receiver's port. */
void sim_message_arrive(struct gf_sim *sim, struct sim_message *message);

/* sim_evidence.c */
void sim_streams_make(struct gf_sim *sim);
void sim_streams_free(struct gf_sim *sim);
void sim_streams_forget(const struct sim_rank *self); /* to it, and from it */
void sim_streams_mend(struct gf_sim *sim, uint32_t a, uint32_t b);
/* True: the message, whose first byte is about to arrive, is lost or has to wait. */
bool sim_stream_keeps(struct gf_sim *sim, struct sim_message *message);
void sim_stream_happen(struct gf_sim *sim, struct sim_stream *stream);
/* True: the next attempt of a connection succeeds. */
bool sim_stream_connects(struct sim_rank *self, uint32_t proc);
bool sim_edge_is_broken(struct gf_link *link, uint32_t peer, struct gf_fault *fault_out);

/* sim_link.c */
/* GF_ERR_ABORTED: it was killed. */
gf_status sim_dead(const struct sim_rank *self, struct gf_fault *fault, const char *call);
extern const struct gf_link_driver sim_link_driver;

/* sim_region.c; the driver's calls of the same names (link.h), and memory for a life of the link */
gf_status sim_region_take(struct sim_link *link, struct gf_fault *fault);
void sim_region_give(struct sim_link *link);
void *sim_map(struct gf_link *link, uint32_t peer);
void sim_flag_store(struct gf_link *link, uint32_t peer, size_t offset_bytes, uint64_t value);
void sim_flag_happen(struct gf_sim *sim, struct sim_flag *flag);

/* sim_channel.c */
extern const struct gf_channel_driver sim_channel_driver;
void sim_packet_happen(struct gf_sim *sim, struct sim_packet *packet);
void sim_packet_free(struct gf_sim *sim, struct sim_packet *packet);
void sim_channels_die(struct sim_rank *self); /* the process has ended, and its kernel sends END */
void sim_channels_cut(struct gf_sim *sim, uint32_t a, uint32_t b, bool cut);
void sim_channels_give_up(struct gf_sim *sim, uint32_t a, uint32_t b);

#endif
