/* Connections that carry small frames between the members of a job and its coordinator. The
 * coordinator's end takes many connections, a member's end dials one. What a frame means is decided
 * in lib/control/, so that the simulator runs the same logic. Nothing blocks. */
#ifndef GF_CHANNEL_H
#define GF_CHANNEL_H

#include "drivers/fault.h"

#define GF_CHANNEL_PAYLOAD_MAX 4096u

typedef enum gf_channel_event_kind {
    GF_CHANNEL_CONNECTED = 1, /* frames may be sent on `connection` */
    GF_CHANNEL_FRAME,
    GF_CHANNEL_ENDED /* `end` and `text` say how; the connection's number may be used again */
} gf_channel_event_kind;

/* What the end of a connection says of the process at the other end. */
typedef enum gf_channel_end {
    GF_CHANNEL_BROKE = 0, /* it may run: nothing comes from its host, or the connection was reset */
    GF_CHANNEL_CLOSED,    /* it runs, and has closed the connection on purpose */
    GF_CHANNEL_DIED /* its own kernel has closed the connection or refuses one: it has ended */
} gf_channel_end;

struct gf_channel_event {
    gf_channel_event_kind kind;
    uint32_t connection; /* below connections_max; a member's only one is 0 */
    gf_channel_end end;  /* ENDED */
    uint32_t frame_kind; /* FRAME: what the sender passed to send() */
    uint32_t size_bytes;
    const void *payload; /* [size_bytes], valid until the next poll() */
    const char *text;    /* likewise: "closed by peer" */
};

struct gf_channel_driver;
struct gf_channel {
    const struct gf_channel_driver *driver;
    uint32_t connections_max;
    struct gf_fault fault;
};

struct gf_channel_driver {
    const char *name; /* "tcp", "sim" */
    /* GF_OK: an event is in *event_out, ask again. GF_AGAIN: none now. An error: the channel as a
     * whole has failed, and `fault` says why. Bounded work. */
    gf_status (*poll)(struct gf_channel *channel, uint64_t now_ns,
                      struct gf_channel_event *event_out);
    /* Copies the payload. GF_AGAIN: there is no room now and nothing was taken. GF_ERR_PEER: there
     * is no such connection; ENDED follows or was told. */
    gf_status (*send)(struct gf_channel *channel, uint32_t connection, uint32_t frame_kind,
                      const void *payload, uint32_t size_bytes);
    /* Closes a connection on purpose, once what was sent has left or the other end is gone. No
     * event follows. */
    void (*drop)(struct gf_channel *channel, uint32_t connection);
    /* A member's end: begins to connect to the coordinator. CONNECTED or ENDED follows. */
    void (*dial)(struct gf_channel *channel, uint64_t now_ns);
    bool (*flushed)(struct gf_channel *channel); /* the kernel has all that was sent */
};

#endif
