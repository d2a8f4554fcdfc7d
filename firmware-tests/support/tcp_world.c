/* Several ends of the TCP control channel in one thread. */
#include "firmware-tests/support/tcp_world.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void tcp_address_free(char *address_out, bool v6)
{
    struct sockaddr_in6 at6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in at4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr *at = v6 ? (struct sockaddr *)&at6 : (struct sockaddr *)&at4;
    socklen_t bytes = v6 ? sizeof at6 : sizeof at4;
    int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if ((fd < 0) || (bind(fd, at, bytes) != 0) || (getsockname(fd, at, &bytes) != 0)) {
        address_out[0] = 0; /* no such family here: opening will say so */
    } else {
        (void)snprintf(address_out, GF_TEXT_MAX, v6 ? "[::1]:%u" : "127.0.0.1:%u",
                       (unsigned)ntohs(v6 ? at6.sin6_port : at4.sin_port));
    }
    if (fd >= 0) (void)close(fd);
}

struct gf_rendezvous_setup tcp_setup(const struct tcp_world *world, uint32_t rank, uint32_t size)
{
    return (struct gf_rendezvous_setup){.rank = rank,
                                        .world = size,
                                        .job_id = 4711,
                                        .address = world->address,
                                        .bind = "",
                                        .key_file = "",
                                        .insecure = world->insecure,
                                        .keepalive_ns = UINT64_C(5000000000),
                                        .join_timeout_ns = UINT64_C(60000000000)};
}

gf_status tcp_world_end_open(struct tcp_world *world, uint32_t slot,
                             const struct gf_rendezvous_setup *setup, uint64_t now_ns,
                             struct gf_fault *fault_out)
{
    size_t bytes = gf_rendezvous_tcp.state_bytes(setup);
    world->states[slot] = malloc(bytes);
    memset(world->states[slot], 0xa5, bytes);
    gf_status status =
        gf_rendezvous_tcp.open(setup, world->states[slot], now_ns, &world->ends[slot], fault_out);
    if (status == GF_OK) return GF_OK;
    free(world->states[slot]);
    world->states[slot] = NULL;
    world->ends[slot] = NULL;
    return status;
}

void tcp_world_open(struct tcp_world *world, uint32_t size, uint64_t now_ns)
{
    *world = (struct tcp_world){.insecure = world->insecure};
    tcp_address_free(world->address, false);
    for (uint32_t rank = 0; rank < size; rank++) {
        struct gf_fault fault = {0};
        struct gf_rendezvous_setup setup = tcp_setup(world, rank, size);
        if (tcp_world_end_open(world, rank, &setup, now_ns, &fault) != GF_OK) {
            (void)fprintf(stderr, "%s\n", fault.text);
            abort();
        }
    }
}

void tcp_world_end_close(struct tcp_world *world, uint32_t slot)
{
    if (world->ends[slot] != NULL) world->ends[slot]->driver->close(world->ends[slot]);
    free(world->states[slot]);
    world->ends[slot] = NULL;
    world->states[slot] = NULL;
}

void tcp_world_close(struct tcp_world *world)
{
    /* Rank 0 last: it would wait for the others' kernels to acknowledge its last frames, which they
     * do 40 ms later, or with their own end. */
    for (uint32_t slot = TCP_WORLD_MAX; slot-- > 0;) tcp_world_end_close(world, slot);
}
