/* A gf-run on each of several nodes: who has ended there. */
#ifndef RUN_NODES_H
#define RUN_NODES_H

#include <stddef.h>

#include "tools/run/run_ranks.h"

/* Takes this node's file in job->shared. False, and said: it cannot, or a job of this number was
 * there. */
bool run_nodes_begin(const struct run_job *job);
/* Bit i of bits[bytes]: no process of rank i of this node runs. */
void run_nodes_tell(const unsigned char *bits, size_t bytes);
/* Sets those that the other nodes tell. */
void run_nodes_hear(const struct run_job *job, unsigned char *bits, size_t bytes);

#endif
