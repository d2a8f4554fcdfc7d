/* The control channel: small frames between each rank and the coordinator, and the news that a
 * rank's connection has ended. What a frame means is decided in lib/membership/members_events.c, so that
 * the simulator runs the same logic. Nothing blocks. */
#ifndef GF_RENDEZVOUS_H
#define GF_RENDEZVOUS_H

#include "address.h"
#include "fault.h"
#include "link.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GF_FRAME_PAYLOAD_MAX 4096u
#define GF_CONTROL_ADDRESS_BYTES 64u

struct gf_rendezvous_setup {
    uint32_t rank;
    uint32_t world;
    uint64_t job_id;     /* frames of another job are refused */
    const char *address; /* numeric IP:port where the coordinator (rank 0) listens */
    const char *bind;    /* numeric IP, or empty */
    /* "26000-31999": where a rank listens that might have to coordinate; NULL or empty: anywhere */
    const char *ports;
    const char *key_file; /* or empty */
    bool insecure;
    uint64_t keepalive_ns;
    uint64_t join_timeout_ns; /* connecting is tried again until then */
    /* this rank was of the job before: it rejoins at `address`, whoever coordinates now */
    bool rejoin;
    /* this host's addresses, beside the one that leads to the job's, at which data connections are
     * taken too, with the same port; family 0 ends them */
    struct gf_place data_places[GF_DATA_PLACES_MAX];
    struct gf_log log;
    void *arg; /* gf_drivers.rendezvous_arg: the simulated world */
};

typedef enum gf_rendezvous_event_kind {
    GF_RENDEZVOUS_CONNECTED, /* to/from `rank`: frames may be sent */
    GF_RENDEZVOUS_FRAME,
    /* the connection to `rank` ended; `text` says how ("closed by peer", "timed out") */
    GF_RENDEZVOUS_ENDED,
    /* coordinator: a process of this job that calls itself `rank` (any number) was rejected; `text`
     * says what differs, with both values */
    GF_RENDEZVOUS_REFUSED
} gf_rendezvous_event_kind;

/* What the end of a connection says of the other process. */
typedef enum gf_rendezvous_end {
    GF_END_GONE = 0, /* its own kernel has closed the connection or refuses one: it runs no more */
    GF_END_LEFT,     /* it runs, and has closed the connection, or rejected, on purpose */
    GF_END_SILENT,   /* its host takes connections, and nobody speaks: it may be busy */
    GF_END_CUT,      /* nothing comes from its host: it may run */
    GF_END_RESET     /* as one that is gone, or whose host was cut off for a while */
} gf_rendezvous_end;

struct gf_rendezvous_event {
    gf_rendezvous_event_kind kind;
    uint32_t rank;
    uint32_t frame_kind; /* what members_frames.c passed to send() */
    uint32_t size_bytes;
    const void *payload;   /* valid until the next poll() */
    const char *text;      /* likewise */
    bool rejoins;          /* CONNECTED, at the coordinator: a restarted process that rejoins */
    bool unproven;         /* REFUSED: anybody could have said that */
    gf_rendezvous_end end; /* ENDED */
};

/* Connections of a link that share the control channel's port, its accept path and its handshake.
 * A rank is dialled only by members of its epoch: they alone were given its secret, in its endpoint
 * address, and each end proves to the other that it has the secret and the job's key. */
#define GF_DATA_SECRET_BYTES 32u
#define GF_DATA_STREAMS_MAX 16u
struct gf_data_taker {
    void *user;
    /* A proven connection with `peer`, in either direction: fd is the taker's, nothing was said on
     * it yet. Called inside poll(). */
    void (*connected)(void *user, uint32_t peer, uint32_t stream, int fd);
    /* Is that stream of that peer here already? Then a connection more is refused. */
    bool (*has)(void *user, uint32_t peer, uint32_t stream);
};

struct gf_rendezvous_driver;

struct gf_rendezvous {
    const struct gf_rendezvous_driver *driver;
    struct gf_fault fault;
    uint64_t sent_bytes;
    /* of files: what this rank needs beside data connections, and what it may have; 0: not known */
    uint32_t descriptors, descriptors_max;
    /* why this process could not take a connection, as errno; 0: for a second it could, or another
     * epoch has begun since */
    int lacks;
};

/* A new call: here, in tcp/rendezvous_tcp.c, sim/sim_rendezvous.c and support/members_world.c. */
struct gf_rendezvous_driver {
    const char *name; /* "tcp", "sim" */
    size_t (*state_bytes)(const struct gf_rendezvous_setup *setup);
    /* Rank 0 listens, the others begin to connect (and try again until join_timeout_ns). */
    gf_status (*open)(const struct gf_rendezvous_setup *setup, void *state, uint64_t now_ns,
                      struct gf_rendezvous **rendezvous_out, struct gf_fault *fault_out);
    /* Copies the payload. GF_AGAIN: no room now, nothing taken. GF_ERR_PEER: no connection to `to`.
     * Non-coordinators reach only the coordinator. Frame kinds are below 2^31. */
    gf_status (*send)(struct gf_rendezvous *rendezvous, uint32_t to, uint32_t frame_kind,
                      const void *payload, uint32_t size_bytes);
    /* GF_OK: an event is in *event_out, ask again; GF_AGAIN: none now; an error: the channel as a
     * whole has failed (fault says why). Bounded work. */
    gf_status (*poll)(struct gf_rendezvous *rendezvous, uint64_t now_ns,
                      struct gf_rendezvous_event *event_out);
    /* Readable when poll() may have something to do; -1 where there is none. Time alone does not
     * make it readable: who sleeps on it polls every 20 ms or so all the same while joining. */
    int (*wake_fd)(struct gf_rendezvous *rendezvous);
    bool (*flushed)(struct gf_rendezvous *rendezvous); /* all that was sent is the kernel's */
    /* Rank 0, in the first join: the process that calls itself `rank` proved nothing (no key, and
     * the kernel does not say that it is this user's) and does not fit. It hears `reason`, its
     * connection ends without an event, and the next that claims this rank comes in. False: it
     * proved who it is, nothing was done. NULL: all have. */
    bool (*reject)(struct gf_rendezvous *rendezvous, uint32_t rank, const char *reason);
    /* that join is over: all who are here are believed. Or NULL */
    void (*joined)(struct gf_rendezvous *rendezvous);
    /* For another coordinator; NULL where a driver has none. Ranks keep the numbers they were
     * opened with. Where this rank can be reached should it have to coordinate:
     * text_out[GF_CONTROL_ADDRESS_BYTES], for reform() alone; empty while that is not known (it is once CONNECTED was
     * seen). */
    void (*address)(struct gf_rendezvous *rendezvous, char *text_out);
    /* From here on `coordinator` coordinates, reached at `address`, or this rank itself. Connections
     * that do not are to it or from it are closed on purpose, which their other ends see (GF_END_LEFT).
     * GF_OK: the way to it stands already, or it is this rank, which listens now; GF_AGAIN:
     * CONNECTED or ENDED will tell; an error: this rank cannot, the channel itself is as it was.
     * GF_RANK_NONE: to rejoin (again) at the address of the setup; CONNECTED tells which rank
     * coordinates there; this rank listens nowhere until then, and rank 0 gives that address up.
     * Where rank 0 does not coordinate, one rank of its host takes it over as soon as it is free, and one
     * of each other host listens at that port there: whoever comes is sent on to the coordinator. */
    gf_status (*reform)(struct gf_rendezvous *rendezvous, uint64_t now_ns, uint32_t coordinator,
                        const char *address);
    /* Data connections; all NULL where a driver has none. data_begin: from here on connections of
     * `epoch` are taken, at *place_out and at that port of setup.data_places, by whoever proves secret_out[GF_DATA_SECRET_BYTES], which
     * is a new one; those of the epoch before are refused. May be called again for a later epoch.
     * taker is the caller's until data_end(). An error: this host has no port to listen at, or not
     * one that is free at all those addresses. */
    gf_status (*data_begin)(struct gf_rendezvous *rendezvous, uint32_t epoch,
                            const struct gf_data_taker *taker, unsigned char *secret_out,
                            struct gf_place *place_out);
    /* Dials `peer` at `to`, from the address `from` (family 0: any), as often as nobody answers,
     * until connected() or data_end(). GF_AGAIN: too many are under way, nothing was begun. Asked
     * again for one that is under way it does nothing. Of two that dial each other the lower member
     * id's stays. */
    gf_status (*data_dial)(struct gf_rendezvous *rendezvous, uint64_t now_ns, uint32_t peer,
                           uint32_t stream, const unsigned char *secret, const struct gf_place *to,
                           const struct gf_place *from);
    /* Why the dial to `peer` has not come through yet; empty: there is none, or nothing went
     * wrong. */
    const char *(*data_text)(struct gf_rendezvous *rendezvous, uint32_t peer);
    /* What the kernel said of it last, as errno; 0: nothing yet. NULL: not known. */
    int (*data_error)(struct gf_rendezvous *rendezvous, uint32_t peer);
    void (*data_end)(struct gf_rendezvous *rendezvous);
    void (*close)(struct gf_rendezvous *rendezvous);
};

#ifdef __cplusplus
}
#endif
#endif
