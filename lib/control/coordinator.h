/* The one state machine that decides who is in a job. It has no rank. It lies in the memory of
 * its host, which polls it: rank 0's process, gf-run, or gf-coordinator. README.md has its states
 * and rules. */
#ifndef GF_COORDINATOR_H
#define GF_COORDINATOR_H

#include "drivers/channel.h"

struct gf_coordinator_setup {
    uint32_t world;    /* ranks of the first generation */
    uint32_t id_count; /* member ids are below it: job.world_max */
    /* the member in whose process it runs, which is never cut; GF_RANK_NONE: it has a process */
    uint32_t host_id;
    /* No coordinator of this job was before it, so that nobody can be of a generation yet. */
    bool is_first;
    uint64_t join_timeout_ns;  /* until the first offer says another */
    size_t endpoint_bytes_max; /* of the link driver */
    const char *address;       /* where it listens, for texts; the caller's; NULL: it is not told */
    struct gf_log log;         /* INFO: a line an event */
};

struct gf_coordinator;

typedef enum gf_coordinator_state {
    GF_COORDINATOR_GATHER = 0, /* the generation to come is awaited */
    GF_COORDINATOR_RUN,        /* a generation is under way */
    GF_COORDINATOR_INQUIRE,    /* something has failed: whose fault is it? */
    GF_COORDINATOR_REGROUP,    /* the members end what is under way, and say READY */
    GF_COORDINATOR_OVER        /* the job has ended, well or not */
} gf_coordinator_state;

struct gf_coordinator_status {
    gf_coordinator_state state;
    uint32_t generation;
    uint32_t world;        /* of it */
    uint32_t here;         /* members of it that are connected */
    uint32_t waiting;      /* processes that wait to come in */
    uint32_t present;      /* connected processes that take part, also before a generation begins */
    uint32_t connected;    /* processes of the job with a connection, whatever they do */
    struct gf_error error; /* the last finding; code GF_OK: none */
};

/* Connections that its channel takes at most: of each id two, as a process may come before the end
 * of the one before it is known, and some of strangers. */
#define GF_COORDINATOR_CONNECTIONS(id_count) (2u * (id_count) + 16u)
size_t gf_coordinator_state_bytes(const struct gf_coordinator_setup *setup);
/* state[gf_coordinator_state_bytes()] is the caller's and becomes the coordinator's; channel is
 * open, takes connections, at most GF_COORDINATOR_CONNECTIONS(), and stays the caller's. */
struct gf_coordinator *gf_coordinator_open(const struct gf_coordinator_setup *setup, void *state,
                                           struct gf_channel *channel, uint64_t now_ns);
/* Takes what has come, decides, sends what there is room for; bounded work, never blocks. GF_AGAIN:
 * the job goes on. GF_OK: all have left in good order, and everybody was told. An error: the job
 * has ended, and gf_coordinator_status() says why. */
gf_status gf_coordinator_poll(struct gf_coordinator *coordinator, uint64_t now_ns);
/* Its host leaves so much time in all out of the clock that it gives, as it did not run then. */
void gf_coordinator_away(struct gf_coordinator *coordinator, uint64_t away_ns);
void gf_coordinator_status(const struct gf_coordinator *coordinator,
                           struct gf_coordinator_status *status_out);
/* How many of the members with ids first .. first + count - 1 have closed in good order. */
uint32_t gf_coordinator_closed(const struct gf_coordinator *coordinator, uint32_t first,
                               uint32_t count);
/* The job has ended well under the coordinator before this one, which has begun no generation:
 * whoever waits, or comes, hears GF_ERR_STATE, "the job has ended". */
void gf_coordinator_end(struct gf_coordinator *coordinator);

#endif
