/* The channel of a job that never has more than one rank. Coordinator and member lie in one
 * process, and no port is opened. Each direction has a slot for one frame. */
#include "lib/control/alone.h"

#include <string.h>

struct alone_end {
    struct gf_channel base;
    struct gf_alone *pair;
    uint32_t at;     /* 0: the member's end, 1: the coordinator's */
    bool reported;   /* CONNECTED */
    bool is_reading; /* the frame in its place was handed out */
};

static struct alone_end *alone_end(struct gf_channel *channel)
{
    return (struct alone_end *)channel;
}

static size_t state_bytes(const struct gf_channel_setup *setup)
{
    (void)setup;
    return sizeof(struct alone_end);
}

static gf_status alone_open(const struct gf_channel_setup *setup, void *state, uint64_t now_ns,
                            struct gf_channel **channel_out, struct gf_fault *fault_out)
{
    struct alone_end *end = state;
    (void)now_ns;
    (void)fault_out;
    *end = (struct alone_end){.base = {.driver = &gf_channel_alone, .connections_max = 1},
                              .pair = setup->arg,
                              .at = setup->listens ? 1 : 0};
    *channel_out = &end->base;
    return GF_OK;
}

static bool alone_poll(struct gf_channel *channel, uint64_t now_ns,
                       struct gf_channel_event *event_out)
{
    struct alone_end *end = alone_end(channel);
    struct gf_alone_slot *slot = &end->pair->slots[end->at];
    (void)now_ns;
    if (end->is_reading) slot->full = end->is_reading = false;
    if (!end->pair->dialled) return false;
    if (!end->reported) {
        end->reported = true;
        *event_out = (struct gf_channel_event){.kind = GF_CHANNEL_CONNECTED};
        return true;
    }
    if (!slot->full) return false;
    end->is_reading = true;
    *event_out = (struct gf_channel_event){.kind = GF_CHANNEL_FRAME,
                                           .frame_kind = slot->kind,
                                           .size_bytes = slot->size_bytes,
                                           .payload = slot->payload};
    return true;
}

static gf_status alone_send(struct gf_channel *channel, uint32_t connection, uint32_t frame_kind,
                            const void *payload, uint32_t size_bytes)
{
    struct alone_end *end = alone_end(channel);
    struct gf_alone_slot *slot = &end->pair->slots[1 - end->at];
    (void)connection;
    GF_ASSERT(size_bytes <= sizeof slot->payload);
    if (slot->full) return GF_FULL;
    slot->full = true;
    slot->kind = frame_kind;
    slot->size_bytes = size_bytes;
    if (size_bytes > 0) memcpy(slot->payload, payload, size_bytes);
    return GF_OK;
}

static void alone_drop(struct gf_channel *channel, uint32_t connection)
{
    (void)channel;
    (void)connection;
}

static void alone_dial(struct gf_channel *channel, uint64_t now_ns)
{
    (void)now_ns;
    alone_end(channel)->pair->dialled = true;
}

static bool alone_flushed(struct gf_channel *channel)
{
    const struct alone_end *end = alone_end(channel);
    return !end->pair->slots[1 - end->at].full;
}

static int alone_wake_fd(struct gf_channel *channel)
{
    (void)channel;
    return -1;
}

static void alone_close(struct gf_channel *channel)
{
    (void)channel;
}

const struct gf_channel_driver gf_channel_alone = {.name = "alone",
                                                   .state_bytes = state_bytes,
                                                   .open = alone_open,
                                                   .poll = alone_poll,
                                                   .send = alone_send,
                                                   .drop = alone_drop,
                                                   .dial = alone_dial,
                                                   .flushed = alone_flushed,
                                                   .wake_fd = alone_wake_fd,
                                                   .close = alone_close};
