/* Public collectives as operations: a queue in the order of posting, the same on all ranks. */
#ifndef GF_REQUEST_H
#define GF_REQUEST_H

#include "gradientflow.h"
#include "ops/coll.h"

typedef enum gf_request_state {
    GF_REQUEST_QUEUED,
    GF_REQUEST_RUNNING,
    GF_REQUEST_ENDED
} gf_request_state;

/* What the caller asks for. It fits a register. */
struct gf_call {
    uint16_t operation;  /* gf_operation */
    uint16_t collective; /* gf_collective */
    uint32_t root_or_reduction;
};

struct gf_pending {
    gf_request_state state;
    const struct gf_request *request; /* the caller's */
    gf_operation operation;
    gf_collective collective;
    gf_type type;
    uint32_t root_or_reduction; /* of a broadcast; of an allreduce. It goes into tags and hashes */
    gf_mem data;
    uint64_t elem_count;
    bool staged; /* data is device memory: it passes through pack_host, alone */
};

struct gf_requests {
    struct gf_pending of[GF_REQUESTS_MAX];
    uint32_t used; /* bit i: of[i] is not free */
    /* those that wait; number n, from 1, at (n - 1) modulo its size */
    struct gf_pending *queue[GF_REQUESTS_MAX];
    uint64_t posted;  /* the newest's number */
    uint64_t started; /* of the newest that runs */
    /* by what is no sum */
    gf_status (*reduce)(void *pending, gf_mem dst, gf_mem src, uint64_t elem_count);
};

/* Queues without looking at the phase (warm.c posts before the context is ready). GF_FULL: no entry
 * is free, and nothing was queued. */
gf_status gf_request_post(gf_context *gf, struct gf_call call, gf_mem data, uint64_t elem_count,
                          gf_type type, struct gf_request *request);
/* Between steps: moves all requests; returns the state of this one, a gf_pending.
 * NULL: GF_AGAIN. */
gf_status gf_request_progress(gf_context *gf, void *pending);
bool gf_requests_idle(const gf_context *gf);
/* A staged one runs. */
bool gf_requests_use_pack_host(const gf_context *gf);
gf_operation gf_requests_doing(const gf_context *gf); /* one under way; GF_OPERATION_NONE */
/* none is left; `posted` counts those so far */
void gf_requests_reset(gf_context *gf, uint64_t posted);

#endif
