/* A small simulated world for tests of the simulator itself: links opened and connected, memory for
 * requests. */
#ifndef GF_SIM_WORLD_H
#define GF_SIM_WORLD_H

#include "drivers/sim/sim.h"

#define SIM_WORLD_REQS 64u

struct sim_world_req {
    _Alignas(64) unsigned char bytes[128];
};

struct sim_world {
    struct gf_sim *sim;
    uint32_t world;
    const struct gf_link_driver *driver;
    struct gf_link **links;
    void **states;
    struct sim_world_req *reqs; /* [world * SIM_WORLD_REQS] */
};

void sim_world_open(struct sim_world *w, const struct gf_sim_setup *setup);
void sim_world_connect(struct sim_world *w); /* everybody to everybody, as after open or reset */
void sim_world_close(struct sim_world *w);
/* One that is open until the end of its block. */
#define SIM_WORLD_OPEN(w, setup)                                  \
    struct sim_world w __attribute__((cleanup(sim_world_close))); \
    sim_world_open(&w, setup)
struct gf_req *sim_world_req(struct sim_world *w, uint32_t rank, uint32_t slot);
gf_status sim_world_send(struct sim_world *w, uint32_t from, uint32_t to, uint64_t tag,
                         const void *data, size_t bytes, uint32_t slot);
gf_status sim_world_recv(struct sim_world *w, uint32_t to, uint32_t from, uint64_t tag, void *data,
                         size_t bytes, uint32_t slot);
gf_status sim_world_test(struct sim_world *w, uint32_t rank, uint32_t slot);
void sim_world_run(struct sim_world *w); /* until nothing will happen any more */

#endif
