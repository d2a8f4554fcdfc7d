/* Several ends of the TCP control channel in one thread, on loopback, at a port that was free a
 * moment ago. */
#ifndef TCP_WORLD_H
#define TCP_WORLD_H

#include "drivers/rendezvous.h"

#define TCP_WORLD_MAX 16u

struct tcp_world {
    bool insecure; /* of the setups: they meet at the port, else by name */
    char address[GF_TEXT_MAX];
    struct gf_rendezvous *ends[TCP_WORLD_MAX];
    void *states[TCP_WORLD_MAX];
};

void tcp_address_free(char *address_out, bool v6); /* [GF_TEXT_MAX] */
struct gf_rendezvous_setup tcp_setup(const struct tcp_world *world, uint32_t rank, uint32_t size);
/* states[slot] is of exactly the size asked for. */
gf_status tcp_world_end_open(struct tcp_world *world, uint32_t slot,
                             const struct gf_rendezvous_setup *setup, uint64_t now_ns,
                             struct gf_fault *fault_out);
/* world->insecure counts, the rest is made anew. */
void tcp_world_open(struct tcp_world *world, uint32_t size, uint64_t now_ns);
void tcp_world_end_close(struct tcp_world *world, uint32_t slot);
void tcp_world_close(struct tcp_world *world);

#endif
