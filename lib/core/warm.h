/* The end of opening: all ranks meet, and each learns which ranks share memory with which. */
#ifndef GF_WARM_H
#define GF_WARM_H

#include "gradientflow.h"
#include "ops/coll.h"

/* What ranks count when they meet. */
enum {
    GF_MET_PAIRS = 0,      /* ranks whose memory it reaches */
    GF_MET_OVERSUBSCRIBED, /* 1: it is */
    GF_MET_DEVICE,         /* 1: gradients on a device */
    GF_MET_WIRE,           /* 1: from where its link takes them */
    GF_MET_COUNT
};

typedef enum gf_warm_state {
    GF_WARM_BEGIN = 0,
    GF_WARM_MEET,  /* a barrier that counts who shares what */
    GF_WARM_NODES, /* who shares memory with whom */
    GF_WARM_TOUCH, /* peers' pages, which fault at the first look */
    GF_WARM_UUIDS, /* which ranks have the same device (uuid.c) */
    GF_WARM_EXPORT /* device memory: who reaches whose (ipc.c) */
} gf_warm_state;

struct gf_warm {
    gf_warm_state state;
    float met[GF_MET_COUNT]; /* of this rank, then summed over all */
    /* Connecting: passes over all peers until none is under way. Peers 0 .. asked - 1 were asked in
     * this pass. */
    uint32_t asked;
    uint32_t connecting; /* how many of them are under way */
    uint32_t unreached;  /* how many cannot be reached, the first for what the link's fault says */
    unsigned char awaited[GF_WORLD_MAX / 8]; /* which are under way, a bit each rank */
    unsigned char refused[GF_WORLD_MAX / 8]; /* which cannot be reached */
    uint64_t connect_ns;    /* since when some are under way at the end of a pass; 0: never */
    bool warned;            /* that it takes long */
    uint64_t touched_pages; /* of all peers' regions, so far */
    struct gf_request request;
};

/* Posts the one request that is under way at a time: of an allreduce, or of what each rank has for
 * all. */
void gf_warm_post(gf_context *gf, gf_collective collective, float *data, uint64_t count);
gf_status gf_warm_poll(gf_context *gf, uint64_t now_ns); /* GF_OK: the context can be used */

/* connect() to that rank has failed in this generation. */
bool gf_join_is_refused(const gf_context *gf, uint32_t rank);

#endif
