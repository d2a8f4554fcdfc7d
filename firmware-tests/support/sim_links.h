/* A small simulated world for tests of the simulator itself: links opened and connected, memory for
 * requests. */
#ifndef GF_SIM_LINKS_H
#define GF_SIM_LINKS_H

#include "drivers/sim/sim.h"

#define SIM_LINKS_REQS 64u

struct sim_links_req {
    _Alignas(64) unsigned char bytes[128];
};

struct sim_links {
    struct gf_sim *sim;
    uint32_t world;
    const struct gf_link_driver *driver;
    struct gf_link **links;
    void **states;
    struct sim_links_req *reqs; /* [world * SIM_LINKS_REQS] */
};

void sim_links_open(struct sim_links *w, const struct gf_sim_setup *setup);
void sim_links_connect(struct sim_links *w); /* everybody to everybody, as after open or reset */
void sim_links_close(struct sim_links *w);
/* One that is open until the end of its block. */
#define SIM_LINKS_OPEN(w, setup)                                  \
    struct sim_links w __attribute__((cleanup(sim_links_close))); \
    sim_links_open(&w, setup)
struct gf_req *sim_links_req(struct sim_links *w, uint32_t rank, uint32_t slot);
gf_status sim_links_send(struct sim_links *w, uint32_t from, uint32_t to, uint64_t tag,
                         const void *data, size_t bytes, uint32_t slot);
gf_status sim_links_recv(struct sim_links *w, uint32_t to, uint32_t from, uint64_t tag, void *data,
                         size_t bytes, uint32_t slot);
gf_status sim_links_test(struct sim_links *w, uint32_t rank, uint32_t slot);
void sim_links_run(struct sim_links *w); /* until nothing will happen any more */

#endif
