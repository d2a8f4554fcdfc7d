/* The elastic module: what the core and membership call of it. The program itself calls gf_shrink() and gf_admit(). */
#ifndef GF_ELASTIC_H
#define GF_ELASTIC_H

#include "lib/context.h"

struct gf_elastic_module {
    void (*rejoin)(gf_context *gf); /* the rest of gf_open() where rendezvous.rejoin is set */
    gf_status (*turn)(gf_context *gf, void *arg); /* one turn on the way into another epoch; GF_OK: it has begun */
    const struct gf_members_elastic *members;
};

#endif
