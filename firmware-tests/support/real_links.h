/* A real network driver under worlds of the simulator: GF_TEST_LINK=tcp or ucx, for suites that
 * test_links.sh starts again. Rendezvous and faults stay simulated; messages go over TCP
 * connections of this process, or over UCX's tcp, and memory of a node is a memfd. The sockets'
 * connections are made here and not by a handshake (test_data has that).
 *
 * A test of the simulator's own (its counts, faults, times, or memory that is not there) says
 * SIM_ONLY and is skipped. */
#ifndef REAL_LINKS_H
#define REAL_LINKS_H

#include "drivers/sim/sim.h"

struct real_links;

/* NULL: the simulated one */
const struct gf_link_driver *real_links_driver(void);
/* of a test that says nothing of links */
#define SIM_ONLY \
    if (real_links_driver() != NULL) skip()

/* Opening them takes thousands of times as long as simulated ones: of many worlds each
 * GF_TEST_STRIDE-th is taken, and none of more than nine ranks. True: this one is, too. */
bool real_links_takes(uint32_t ranks);

/* For ranks (member ids) below sim->world, on its nodes. */
struct real_links *real_links_create(const struct gf_sim_setup *sim);
void *real_links_arg(struct real_links *all, uint32_t rank); /* gf_drivers.link_arg */
void real_links_destroy(struct real_links *all);             /* NULL is valid */

#endif
