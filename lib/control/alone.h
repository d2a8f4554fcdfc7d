/* A channel inside one process, between a coordinator and its only member. */
#ifndef GF_CONTROL_ALONE_H
#define GF_CONTROL_ALONE_H

#include "drivers/channel.h"

struct gf_alone_slot {
    bool full;
    uint32_t kind, size_bytes;
    unsigned char payload[GF_CHANNEL_PAYLOAD_MAX];
};

/* Both ends' setup.arg: what they share. */
struct gf_alone {
    bool dialled;
    struct gf_alone_slot slots[2]; /* for the member, for the coordinator */
};

extern const struct gf_channel_driver gf_channel_alone;

#endif
