/* What gf_state_load() leaves for gf_state_add() to do. */
#ifndef GF_INHERIT_H
#define GF_INHERIT_H

#include "gradientflow.h"

/* A state that was saved by more ranks than there are now: whose histories this rank has still to be given. */
struct gf_inherit {
    uint64_t common_hash; /* of that save */
    uint32_t world;       /* then */
    uint32_t next;        /* old rank; `world`: none is missing */
};

#endif
