/* Connections of frames between simulated processes: a member's end dials the one that listens.
 *
 *     dial() -- DIAL ->  the listener's queue; its poll() gives CONNECTED and answers
 *                        <- CONNECTED --
 *     send() -- FRAME ->                 .. in the order of sending, FRAME_NS each
 *     drop(), close(), a death, a reset -- END ->  after all that was sent before
 *
 * What passes between two processes that are cut off is held. Each end's own kernel gives up after
 * keepalive and then sends END, which arrives once the path is whole again. */
#include "drivers/sim/sim_state.h"

#include <stdlib.h>
#include <string.h>

#define FRAME_NS 20000u
#define ROOM_BYTES (256u << 10) /* of unread frames: the kernels' buffers */

enum { LISTENER, DIALLER };

enum sim_packet_kind {
    SIM_PACKET_DIAL,
    SIM_PACKET_CONNECTED,
    SIM_PACKET_FRAME,
    SIM_PACKET_END,
    SIM_PACKET_UNANSWERED, /* a timer of the dialler's kernel: has the dial been answered? */
    SIM_PACKET_KEEPALIVE   /* a timer of either kernel: does nothing arrive any more? */
};

struct sim_packet {
    struct sim_packet *next;
    struct sim_wire *wire;
    uint32_t to; /* LISTENER, DIALLER */
    enum sim_packet_kind kind;
    struct gf_channel_event event;
    uint32_t cuts; /* KEEPALIVE: of the wire, when it was asked for */
    unsigned char payload[];
};

struct sim_wire_end {
    struct sim_channel *channel; /* NULL: it has closed, has died, or has not taken it */
    uint32_t proc;
    uint32_t number; /* of the connection, for its channel */
    bool reported;   /* CONNECTED was handed out */
    bool is_over;    /* nothing arrives any more */
    bool is_starved; /* it found no room to send */
    size_t bytes;    /* sent to it, and not read */
};

struct sim_wire {
    struct sim_wire *next;
    struct sim_wire_end ends[2];
    uint32_t packets; /* that name it */
    uint32_t cuts;    /* how often its path was cut, or healed */
};

struct sim_channel {
    struct gf_channel base;
    struct sim_rank *self;
    struct sim_channel *next; /* of its process */
    uint64_t keepalive_ns;
    struct sim_packet *first, *last; /* arrived, not polled */
    struct sim_packet *current;      /* what the last poll() handed out */
    struct sim_wire *wires[];        /* [connections_max]; NULL: free */
};

static struct sim_channel *sim_channel(struct gf_channel *channel)
{
    return (struct sim_channel *)channel;
}

static struct sim_wire_end *end_of(const struct sim_packet *packet)
{
    return &packet->wire->ends[packet->to];
}

/* ---- wires and packets ---- */

static void wire_release(struct gf_sim *sim, struct sim_wire *wire)
{
    struct sim_wire **at = &sim->wires;
    if ((wire->packets > 0) || (wire->ends[0].channel != NULL) || (wire->ends[1].channel != NULL))
        return;
    while (*at != wire) at = &(*at)->next;
    *at = wire->next;
    free(wire);
}

void sim_packet_free(struct gf_sim *sim, struct sim_packet *packet)
{
    struct sim_wire *wire = packet->wire;
    wire->packets--;
    free(packet);
    wire_release(sim, wire);
}

static struct sim_packet *packet_send(struct gf_sim *sim, struct sim_wire *wire, uint32_t to,
                                      enum sim_packet_kind kind, uint64_t delay_ns,
                                      uint32_t size_bytes)
{
    struct sim_packet *packet = calloc(1, sizeof *packet + size_bytes);
    GF_ASSERT(packet != NULL);
    packet->wire = wire;
    packet->to = to;
    packet->kind = kind;
    packet->cuts = wire->cuts;
    packet->event.kind = GF_CHANNEL_CONNECTED;
    packet->event.size_bytes = size_bytes;
    packet->event.payload = packet->payload;
    packet->event.text = "";
    wire->packets++;
    sim_event_push(sim, sim->now_ns + delay_ns, SIM_PACKET, packet);
    return packet;
}

static void end_send(struct gf_sim *sim, struct sim_wire *wire, uint32_t to, gf_channel_end end,
                     uint64_t delay_ns, const char *text)
{
    struct sim_packet *packet =
        packet_send(sim, wire, to, SIM_PACKET_END, (delay_ns > FRAME_NS) ? delay_ns : FRAME_NS, 0);
    packet->event.kind = GF_CHANNEL_ENDED;
    packet->event.end = end;
    packet->event.text = text;
}

static uint32_t own_end(const struct sim_channel *channel, const struct sim_wire *wire)
{
    return (wire->ends[LISTENER].channel == channel) ? LISTENER : DIALLER;
}

/* ---- one end of a wire ---- */

static void queue_add(struct sim_channel *channel, struct sim_packet *packet)
{
    packet->next = NULL;
    packet->event.connection = end_of(packet)->number;
    if (channel->last != NULL)
        channel->last->next = packet;
    else
        channel->first = packet;
    channel->last = packet;
    sim_wake(channel->self);
}

/* What has arrived of a connection that this end has closed is not read any more. */
static void queue_forget(struct sim_channel *channel, const struct sim_wire *wire)
{
    struct sim_packet **at = &channel->first;
    struct gf_sim *sim = channel->self->sim;
    channel->last = NULL;
    while (*at != NULL) {
        struct sim_packet *packet = *at;
        if (packet->wire != wire) {
            channel->last = packet;
            at = &packet->next;
            continue;
        }
        *at = packet->next;
        sim_packet_free(sim, packet);
    }
}

/* This end reads no more, and its number is free. */
static void end_leave(struct sim_wire *wire, uint32_t at)
{
    struct sim_wire_end *end = &wire->ends[at];
    struct sim_channel *channel = end->channel;
    if (channel == NULL) return;
    end->is_over = true;
    end->channel = NULL;
    channel->wires[end->number] = NULL;
    wire->packets++; /* it is still looked at below */
    queue_forget(channel, wire);
    wire->packets--;
}

/* The process at this end closes on purpose, or has died; END goes to the other end. */
static void end_close(struct gf_sim *sim, struct sim_wire *wire, uint32_t at, gf_channel_end how,
                      uint64_t delay_ns, const char *text)
{
    end_leave(wire, at);
    if (!wire->ends[1 - at].is_over) end_send(sim, wire, 1 - at, how, delay_ns, text);
    wire_release(sim, wire);
}

/* Its own kernel gives the connection up. */
static void end_break(struct gf_sim *sim, struct sim_packet *packet, const char *text)
{
    struct sim_wire_end *end = end_of(packet);
    if (!packet->wire->ends[1 - packet->to].is_over)
        end_send(sim, packet->wire, 1 - packet->to, GF_CHANNEL_RESET, 0, "connection reset");
    end->is_over = true;
    packet->event.kind = GF_CHANNEL_ENDED;
    packet->event.end = GF_CHANNEL_BROKE;
    packet->event.text = text;
    queue_add(end->channel, packet);
}

/* The listener takes it into its queue, or the kernel of its host refuses it. */
static void dial_happen(struct gf_sim *sim, struct sim_packet *packet)
{
    struct sim_wire *wire = packet->wire;
    struct sim_wire_end *end = &wire->ends[LISTENER];
    struct sim_channel *listener = sim->listener;
    uint32_t number = 0;
    if (wire->ends[DIALLER].is_over) { /* the dialler has closed */
        sim_packet_free(sim, packet);
        return;
    }
    if ((listener == NULL) || (listener->self->rank != end->proc)) {
        end->is_over = true;
        end_send(sim, wire, DIALLER, GF_CHANNEL_DIED, 0, "connection refused");
        sim_packet_free(sim, packet);
        return;
    }
    while ((number < listener->base.connections_max) && (listener->wires[number] != NULL)) number++;
    if (number == listener->base.connections_max) {
        end->is_over = true;
        end_send(sim, wire, DIALLER, GF_CHANNEL_BROKE, 0, "the other end has no room");
        sim_packet_free(sim, packet);
        return;
    }
    end->channel = listener;
    end->number = number;
    listener->wires[number] = wire;
    queue_add(listener, packet);
}

/* A dial that ended before the listener polled is never reported. */
static void end_happen(struct gf_sim *sim, struct sim_packet *packet)
{
    struct sim_wire_end *end = end_of(packet);
    bool unseen = (packet->to == LISTENER) && !end->reported;
    end->is_over = true;
    if (!unseen) {
        queue_add(end->channel, packet);
        return;
    }
    end_leave(packet->wire, LISTENER);
    sim_packet_free(sim, packet);
}

/* Neither end would still be told of it. */
static bool is_stale(const struct sim_packet *packet)
{
    const struct sim_wire *wire = packet->wire;
    const struct sim_wire_end *end = end_of(packet);
    if (end->is_over) return true;
    switch (packet->kind) {
    case SIM_PACKET_DIAL: return wire->ends[DIALLER].is_over;
    case SIM_PACKET_UNANSWERED: return (end->channel == NULL) || end->reported;
    case SIM_PACKET_KEEPALIVE: return (end->channel == NULL) || (packet->cuts != wire->cuts);
    default: return end->channel == NULL;
    }
}

void sim_packet_happen(struct gf_sim *sim, struct sim_packet *packet)
{
    const struct sim_wire_end *ends = packet->wire->ends;
    bool is_timeout =
        (packet->kind == SIM_PACKET_UNANSWERED) || (packet->kind == SIM_PACKET_KEEPALIVE);
    if (is_stale(packet)) {
        sim_packet_free(sim, packet);
        return;
    }
    if (!is_timeout && sim_hold(sim, ends[0].proc, ends[1].proc, SIM_PACKET, packet)) return;
    switch (packet->kind) {
    case SIM_PACKET_DIAL: dial_happen(sim, packet); break;
    case SIM_PACKET_END: end_happen(sim, packet); break;
    case SIM_PACKET_UNANSWERED:
    case SIM_PACKET_KEEPALIVE: end_break(sim, packet, "connection timed out"); break;
    case SIM_PACKET_CONNECTED:
    case SIM_PACKET_FRAME: queue_add(end_of(packet)->channel, packet); break;
    }
}

/* ---- deaths, stops and cuts ---- */

/* The kernel of a dead process resets a connection with unread frames. */
static bool has_unread(const struct sim_channel *channel, const struct sim_wire *wire)
{
    for (const struct sim_packet *packet = channel->first; packet != NULL; packet = packet->next)
        if ((packet->wire == wire) && (packet->kind == SIM_PACKET_FRAME)) return true;
    return false;
}

void sim_channels_die(struct sim_rank *self)
{
    struct gf_sim *sim = self->sim;
    uint64_t detect_ns = sim->setup.detect_ns;
    if ((sim->listener != NULL) && (sim->listener->self == self)) sim->listener = NULL;
    for (struct sim_channel *channel = self->channels; channel != NULL; channel = channel->next)
        for (uint32_t i = 0; i < channel->base.connections_max; i++) {
            struct sim_wire *wire = channel->wires[i];
            if (wire == NULL) continue;
            end_close(sim, wire, own_end(channel, wire),
                      has_unread(channel, wire) ? GF_CHANNEL_RESET : GF_CHANNEL_DIED, detect_ns,
                      "its process has ended");
            self->quiet_ns = sim->now_ns + ((detect_ns > FRAME_NS) ? detect_ns : FRAME_NS);
        }
}

static bool is_between(const struct sim_wire *wire, uint32_t a, uint32_t b)
{
    const uint32_t x = wire->ends[0].proc, y = wire->ends[1].proc;
    return ((x == a) && (y == b)) || ((x == b) && (y == a));
}

/* Each end gives up by itself, and not at the same time, because their last probes differ. */
void sim_channels_cut(struct gf_sim *sim, uint32_t a, uint32_t b, bool cut)
{
    for (struct sim_wire *wire = sim->wires; wire != NULL; wire = wire->next) {
        if (!is_between(wire, a, b)) continue;
        wire->cuts++;
        for (uint32_t at = 0; cut && (at < 2); at++) {
            const struct sim_channel *channel = wire->ends[at].channel;
            if ((channel == NULL) || wire->ends[at].is_over) continue;
            uint64_t span_ns = channel->keepalive_ns;
            (void)packet_send(sim, wire, at, SIM_PACKET_KEEPALIVE,
                              span_ns - sim_random_to(sim, span_ns / 8), 0);
        }
    }
}

void sim_channels_give_up(struct gf_sim *sim, uint32_t a, uint32_t b)
{
    for (struct sim_wire *wire = sim->wires; wire != NULL; wire = wire->next) {
        if (!is_between(wire, a, b)) continue;
        wire->cuts++;
        for (uint32_t at = 0; at < 2; at++)
            if ((wire->ends[at].channel != NULL) && !wire->ends[at].is_over)
                (void)packet_send(sim, wire, at, SIM_PACKET_KEEPALIVE, 0, 0);
    }
}

/* ---- the driver ---- */

static size_t channel_state_bytes(const struct gf_channel_setup *setup)
{
    uint32_t connections = setup->listens ? setup->connections_max : 1;
    return sizeof(struct sim_channel) + connections * sizeof(struct sim_wire *);
}

static gf_status channel_open(const struct gf_channel_setup *setup, void *state, uint64_t now_ns,
                              struct gf_channel **channel_out, struct gf_fault *fault_out)
{
    struct sim_rank *self = setup->arg;
    struct sim_channel *channel = state;
    (void)now_ns;
    GF_ASSERT((self != NULL) && (state != NULL));
    struct gf_sim *sim = self->sim;
    if (self->is_dead) return sim_dead(self, fault_out, "open");
    if (setup->listens && (sim->listener != NULL))
        return gf_fault_set(fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, "listen", 0,
                            "the address is taken: process %u listens there",
                            sim->listener->self->rank);
    memset(channel, 0, channel_state_bytes(setup));
    channel->base.driver = &sim_channel_driver;
    channel->base.connections_max = setup->listens ? setup->connections_max : 1;
    channel->self = self;
    channel->keepalive_ns = setup->keepalive_ns;
    channel->next = self->channels;
    self->channels = channel;
    if (setup->listens) {
        sim->listener = channel;
        sim->listener_proc = self->rank;
    }
    *channel_out = &channel->base;
    return GF_OK;
}

static void packet_taken(struct sim_channel *channel, struct sim_packet *packet)
{
    struct gf_sim *sim = channel->self->sim;
    struct sim_wire *wire = packet->wire;
    struct sim_wire_end *end = end_of(packet), *other = &wire->ends[1 - packet->to];
    switch (packet->event.kind) {
    case GF_CHANNEL_CONNECTED:
        end->reported = true;
        if ((packet->to == LISTENER) && !other->is_over)
            (void)packet_send(sim, wire, DIALLER, SIM_PACKET_CONNECTED, FRAME_NS, 0);
        break;
    case GF_CHANNEL_FRAME:
        end->bytes -= packet->event.size_bytes;
        if (other->is_starved && (other->channel != NULL)) sim_wake(other->channel->self);
        other->is_starved = false;
        break;
    case GF_CHANNEL_ENDED: end_leave(wire, packet->to); break;
    }
}

static bool channel_poll(struct gf_channel *base, uint64_t now_ns,
                         struct gf_channel_event *event_out)
{
    struct sim_channel *channel = sim_channel(base);
    struct sim_rank *self = channel->self;
    struct sim_packet *packet = channel->first;
    (void)now_ns;
    if (self->is_dead) (void)sim_dead(self, &base->fault, "poll");
    if (self->is_dead || self->is_stopped) return false;
    if (channel->current != NULL) sim_packet_free(self->sim, channel->current);
    channel->current = packet;
    if (packet == NULL) return false;
    channel->first = packet->next;
    if (packet->next == NULL) channel->last = NULL;
    packet_taken(channel, packet);
    *event_out = packet->event;
    return true;
}

static gf_status channel_send(struct gf_channel *base, uint32_t connection, uint32_t frame_kind,
                              const void *payload, uint32_t size_bytes)
{
    struct sim_channel *channel = sim_channel(base);
    GF_ASSERT((connection < base->connections_max) && (size_bytes <= GF_CHANNEL_PAYLOAD_MAX));
    struct sim_wire *wire = channel->wires[connection];
    if (channel->self->is_dead) return sim_dead(channel->self, &base->fault, "send");
    if (wire == NULL) return GF_ERR_PEER;
    uint32_t own = own_end(channel, wire);
    struct sim_wire_end *to = &wire->ends[1 - own];
    if (!wire->ends[own].reported || wire->ends[own].is_over) return GF_ERR_PEER;
    if (to->is_over) return GF_OK; /* the kernel takes it, and it is never read */
    if ((to->bytes > 0) && (to->bytes + size_bytes > ROOM_BYTES)) {
        wire->ends[own].is_starved = true;
        return GF_FULL;
    }
    struct sim_packet *packet =
        packet_send(channel->self->sim, wire, 1 - own, SIM_PACKET_FRAME, FRAME_NS, size_bytes);
    packet->event.kind = GF_CHANNEL_FRAME;
    packet->event.frame_kind = frame_kind;
    if (size_bytes > 0) memcpy(packet->payload, payload, size_bytes);
    to->bytes += size_bytes;
    return GF_OK;
}

static void wire_close(struct sim_channel *channel, struct sim_wire *wire, gf_channel_end how,
                       const char *text)
{
    end_close(channel->self->sim, wire, own_end(channel, wire), how, 0, text);
}

static void channel_drop(struct gf_channel *base, uint32_t connection)
{
    struct sim_channel *channel = sim_channel(base);
    GF_ASSERT(connection < base->connections_max);
    if (channel->wires[connection] != NULL)
        wire_close(channel, channel->wires[connection], GF_CHANNEL_CLOSED, "closed by peer");
}

static void channel_dial(struct gf_channel *base, uint64_t now_ns)
{
    struct sim_channel *channel = sim_channel(base);
    struct sim_rank *self = channel->self;
    struct gf_sim *sim = self->sim;
    uint64_t delay_ns = FRAME_NS;
    (void)now_ns;
    GF_ASSERT((base->connections_max == 1) && (sim->listener != channel));
    if (self->is_dead) return;
    if (channel->wires[0] != NULL)
        wire_close(channel, channel->wires[0], GF_CHANNEL_BROKE, "it dials again");
    struct sim_wire *wire = calloc(1, sizeof *wire);
    GF_ASSERT(wire != NULL);
    wire->ends[LISTENER].proc =
        (sim->listener_proc == GF_RANK_NONE) ? self->rank : sim->listener_proc;
    wire->ends[DIALLER] = (struct sim_wire_end){.channel = channel, .proc = self->rank};
    wire->next = sim->wires;
    sim->wires = wire;
    channel->wires[0] = wire;
    /* By then every end has seen the connections of the earlier process end. */
    if (self->quiet_ns > sim->now_ns + delay_ns) delay_ns = self->quiet_ns - sim->now_ns;
    (void)packet_send(sim, wire, LISTENER, SIM_PACKET_DIAL, delay_ns, 0);
    (void)packet_send(sim, wire, DIALLER, SIM_PACKET_UNANSWERED, delay_ns + channel->keepalive_ns,
                      0);
}

static bool channel_flushed(struct gf_channel *base)
{
    (void)base;
    return true;
}

static int channel_wake_fd(struct gf_channel *base)
{
    (void)base;
    return -1;
}

/* A dead process's connections have ended. */
static void channel_close(struct gf_channel *base)
{
    struct sim_channel *channel = sim_channel(base);
    struct gf_sim *sim = channel->self->sim;
    struct sim_channel **at = &channel->self->channels;
    if (channel->current != NULL) sim_packet_free(sim, channel->current);
    channel->current = NULL;
    for (uint32_t i = 0; i < base->connections_max; i++) channel_drop(base, i);
    if (sim->listener == channel) sim->listener = NULL;
    while (*at != channel) at = &(*at)->next;
    *at = channel->next;
}

const struct gf_channel_driver sim_channel_driver = {
    .name = "sim",
    .state_bytes = channel_state_bytes,
    .open = channel_open,
    .poll = channel_poll,
    .send = channel_send,
    .drop = channel_drop,
    .dial = channel_dial,
    .flushed = channel_flushed,
    .wake_fd = channel_wake_fd,
    .close = channel_close,
};
