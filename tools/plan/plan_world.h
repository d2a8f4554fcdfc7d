/* Steps of the real library, all ranks in one thread, in virtual time: drivers/sim is the network,
 * plan_gpu the device, and what a layer computes is a wake-up later on. */
#ifndef PLAN_WORLD_H
#define PLAN_WORLD_H

#include "gradientflow.h"

struct plan_network {
    uint32_t ranks_per_node, node_cards, leaf_nodes; /* of a leaf switch; 0: all */
    bool rails;
    double leaf_bytes_per_ns; /* to the tier above; 0: infinite */
    /* between two ranks of a node; 0: as node_bytes_per_ns */
    double pair_bytes_per_ns;
    double bytes_per_ns, node_bytes_per_ns; /* 0: infinite */
    uint64_t latency_ns, node_latency_ns;
    /* each message keeps its port so long beside its bytes */
    uint64_t message_ns;
    double op_bytes_per_ns; /* of element ops */
    uint64_t poll_ns;       /* from the end of a device's work to the look that sees it */
    uint64_t op_ns;
    /* one launch takes many slices of the pool (plan_gpu.h) */
    bool device_ops;
    /* gradients lie in it; else in memory that a node shares */
    bool gpu_memory;
    bool gpu_direct;          /* and network cards read it */
    double host_bytes_per_ns; /* between it and the host's; 0: infinite */
};

struct plan_setup {
    uint32_t world;
    uint32_t steps; /* the last one is measured */
    struct plan_network network;
    struct gf_config config;         /* job, drivers, deadlines and log are filled in */
    const struct gf_tensor *tensors; /* [tensor_count] */
    uint32_t tensor_count;
    /* [tensor_count] from the step's begin to each tensor, rising */
    const uint64_t *ready_ns;
    /* from its begin to the end of backward; at least the last ready_ns */
    uint64_t compute_ns;
    /* standard deviation of a rank's compute time, as a share of it */
    double compute_spread;
    double straggler_scale, straggler_tail; /* see plan_order_statistic(); scale 0: nobody */
    bool has_data;                          /* real bytes, for tests: small worlds only */
    /* every rank at every event, likewise: no time may depend on it */
    bool polls_all;
};

struct plan_result {
    /* of the last step: from the slowest rank's end before it, or the common begin, to its own */
    uint64_t step_ns;
    uint64_t first_ns;     /* of the first step */
    uint64_t exposed_ns;   /* step_ns without compute_ns */
    uint64_t wire_bytes;   /* of the rank that sent most, in the last step */
    uint64_t messages;     /* of all ranks, in the last step */
    uint64_t events;       /* turns of ranks */
    uint64_t hash;         /* of every rank's end of every step: equal runs have equal ones */
    uint32_t buffer_count; /* operations of a dense step, without the vote */
};

/* The i-th smallest, from 1, of n draws of a Pareto distribution, P(X > x) = x^-tail from x = 1 on:
 * its expectation
 *     n! Gamma(n - i + 1 - 1 / tail) / ((n - i)! Gamma(n + 1 - 1 / tail))
 * for a draw is U^(-1 / tail), U uniform, and the (n - i + 1)-th smallest U is Beta(n - i + 1, i).
 * The largest of n grows as n^(1 / tail). Ranks are given these in a mixed order, so each step has
 * the stragglers that are to be expected. */
double plan_order_statistic(uint32_t i, uint32_t n, double tail);

#define PLAN_ERROR_BYTES 512

/* GF_OK, or why it cannot be simulated in error_out[PLAN_ERROR_BYTES]. */
gf_status plan_world_run(const struct plan_setup *setup, struct plan_result *result_out,
                         char *error_out);

#endif
