/* A collective of coll_group.h in which each post, one run after the other, meets each fault.
 * Checks are cmocka's. */
#ifndef COLL_FAULT_H
#define COLL_FAULT_H

#include "firmware-tests/support/coll_group.h"

/* sim is the network without faults. Every fault; c ends with the right status on every rank, and
 * nothing is under way. */
void coll_fault_each(const struct coll_case *c, const struct gf_sim_setup *sim);
/* A death alone, where what began to arrive from the dead rank is ended by a reset of the link
 * only, as with UCX. */
void coll_fault_kill(const struct coll_case *c, const struct gf_sim_setup *sim);

#endif
