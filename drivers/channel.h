/* Connections that carry small frames between the members of a job and its coordinator. The
 * coordinator's end takes many connections, a member's end dials one. What a frame means is decided
 * in lib/control/, so that the simulator runs the same logic. Nothing blocks but close(), which
 * waits a second at most until the other ends' kernels have what was sent last. */
#ifndef GF_CHANNEL_H
#define GF_CHANNEL_H

#include "fault.h" /* by name alone: installed headers lie in one folder */

#ifdef __cplusplus
extern "C" {
#endif

#define GF_CHANNEL_PAYLOAD_MAX 4096u
#define GF_CHANNEL_REFUSED_BYTES 160u

/* Texts are the caller's for as long as the channel is open. */
struct gf_channel_setup {
    /* the coordinator's end, which takes connections at `address`; else a member's, which dials
     * it */
    bool listens;
    uint32_t connections_max; /* of the coordinator's end; a member's has one */
    /* of the coordinator's end: so many members connect for certain, and open() fails if this
     * process may not have descriptors for them; 0: not known */
    uint32_t connections_expected;
    uint64_t job_id;     /* connections of another job are refused */
    const char *address; /* numeric IP:port */
    /* numeric IP that a member dials from, and a coordinator listens at; or empty */
    const char *bind;
    const char *key_file;  /* of the job, or empty */
    bool insecure;         /* over a network, without a key */
    uint64_t keepalive_ns; /* a connection breaks once the other host is silent for so long */
    struct gf_log log;
    void *arg; /* gf_drivers.channel_arg: the simulated world */
};

typedef enum gf_channel_event_kind {
    /* Frames may be sent on `connection`. At the coordinator's end its number may be in use: then
     * the connection before has sent no frame and was replaced. */
    GF_CHANNEL_CONNECTED = 1,
    GF_CHANNEL_FRAME,
    GF_CHANNEL_ENDED /* `end` and `text` say how; the connection's number may be used again */
} gf_channel_event_kind;

/* What the end of a connection shows of the process at the other end. */
typedef enum gf_channel_end {
    GF_CHANNEL_BROKE = 0, /* it may run: its host is silent */
    GF_CHANNEL_CLOSED,    /* it runs, and has closed the connection on purpose */
    /* its kernel no longer knows the connection: the process has ended with unread frames, or its
     * kernel had given the connection up, and then the process dials again */
    GF_CHANNEL_RESET,
    /* its own kernel has closed the connection, or refuses one where a coordinator was met before:
     * it has ended */
    GF_CHANNEL_DIED
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
    uint64_t sent_bytes; /* of payloads; the sender adds them */
    /* of the coordinator's end: how many processes were refused for good, by the channel or its
     * user, and why the last of them was */
    uint32_t refused_count;
    char refused_text[GF_CHANNEL_REFUSED_BYTES];
    struct gf_fault fault;
};

/* A new call: here, in tcp/channel_tcp.c, sim/sim_channel.c, lib/control/alone.c, and of the tests
 * support/control_world.c and control/states_world.c. */
struct gf_channel_driver {
    const char *name; /* "tcp", "sim" */
    size_t (*state_bytes)(const struct gf_channel_setup *setup);
    /* Opens in state[state_bytes], 64-byte aligned. On failure nothing is left open and *fault_out
     * has the reason: for a listener, that the address is taken, or not of this host. */
    gf_status (*open)(const struct gf_channel_setup *setup, void *state, uint64_t now_ns,
                      struct gf_channel **channel_out, struct gf_fault *fault_out);
    /* True: an event is in *event_out, ask again. False: none now, or the channel as a whole has
     * failed, and then `fault` has the reason and keeps it. Bounded work. */
    bool (*poll)(struct gf_channel *channel, uint64_t now_ns, struct gf_channel_event *event_out);
    /* Copies the payload. GF_FULL: the connection has no room now and nothing was taken, so that
     * the sender keeps the frame and sends it in a later poll. GF_ERR_PEER: there is no such
     * connection; ENDED follows or was given. */
    gf_status (*send)(struct gf_channel *channel, uint32_t connection, uint32_t frame_kind,
                      const void *payload, uint32_t size_bytes);
    /* Closes a connection on purpose, once what was sent has left or the other end is gone. No
     * event follows. */
    void (*drop)(struct gf_channel *channel, uint32_t connection);
    /* A member's end: begins to connect to the coordinator. CONNECTED follows, or ENDED with a
     * text; or poll() gives an error, if the process that listens there refuses this one before any
     * coordinator was met (another job, key or version): dialling again would not help. */
    void (*dial)(struct gf_channel *channel, uint64_t now_ns);
    bool (*flushed)(struct gf_channel *channel); /* the kernel has all that was sent */
    /* Readable when poll() may have something to do; -1: there is none. Time alone does not make it
     * readable: a sleeper polls about every 20 ms while connections are being made. */
    int (*wake_fd)(struct gf_channel *channel);
    void (*close)(struct gf_channel *channel);
};

extern const struct gf_channel_driver gf_channel_tcp;

#ifdef __cplusplus
}
#endif
#endif
