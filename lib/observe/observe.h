/* The observe module: what the core calls of it. The program itself calls gf_trace_read(), gf_stats(), gf_peer_stats(). */
#ifndef GF_OBSERVE_H
#define GF_OBSERVE_H

#include "lib/context.h"

struct gf_observe_module {
    void (*link_times_tell)(gf_context *gf);
    void (*link_times_learn)(gf_context *gf);
};

#endif
