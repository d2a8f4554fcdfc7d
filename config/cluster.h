/* What gf-plan reads beside configurations: clusters, and model files whole. config_cluster.c and config_tensors.c have
 * the keys. */
#ifndef GF_CONFIG_CLUSTER_H
#define GF_CONFIG_CLUSTER_H

#include "config/config.h"

/* Bandwidths are bytes a second, one way; times are seconds. 0: not there. What each means: config_cluster.c. */
#define GF_CONFIG_CLUSTER_MODELS_MAX 16u
struct gf_config_cluster {
    char name[48], currency[48];
    uint32_t nodes, gpus_per_node, nics_per_node, leaf_nodes;
    uint32_t batch;
    bool rails, device_ops, gpu_direct;
    double network_bandwidth, network_latency, oversubscription;
    double node_bandwidth, node_pair_bandwidth, node_latency, host_bandwidth;
    double message_cost, op_bandwidth, op_cost;
    double gpu_flops, gpu_peak_flops, gpu_memory;
    double compute_spread, straggler_scale, straggler_tail;
    double node_mtbf, checkpoint_cost, restart_cost, elastic_cost, node_repair;
    double gpu_hour_price;
    uint32_t model_count;
    struct gf_config_cluster_model {
        char name[48];
        double images_per_second; /* of one GPU in training, nothing exchanged */
        uint32_t batch;           /* a GPU; 0: the cluster's */
    } models[GF_CONFIG_CLUSTER_MODELS_MAX];
};

/* cluster = { name = ".."; nodes = 64; .. }. GF_ERR_CONFIG with a line in error_out[GF_CONFIG_ERROR_BYTES]. */
gf_status gf_config_cluster_load(const char *path, struct gf_config_cluster *cluster_out, char *error_out);
/* "rails = true; nics_per_node = 8" over a loaded one. */
gf_status gf_config_cluster_set(struct gf_config_cluster *cluster, const char *text, const char *origin,
                                char *error_out);
/* The rules that tie keys together; origin stands for the file. */
gf_status gf_config_cluster_check(const struct gf_config_cluster *cluster, const char *origin, char *error_out);
/* A file that loads to the same. */
void gf_config_cluster_print(const struct gf_config_cluster *cluster, FILE *out);
/* What a model file says of a sample; 0: nothing. */
struct gf_config_sample {
    uint32_t tokens;
    uint64_t activation_bytes;
};
/* A model file: the caller's arrays [tensor_max], flops may be NULL, and what is read. */
struct gf_config_table {
    struct gf_tensor *tensors;
    char (*names)[48];
    struct gf_config_flops *flops;
    uint32_t tensor_max, tensor_count;
    struct gf_config_sample sample;
};
gf_status gf_config_table_load(const char *path, struct gf_config_table *table, char *error_out);

/* The keys of a cluster file, or of a model file, as gf_config_print_table() prints those of a configuration. */
void gf_config_cluster_keys(FILE *out);
void gf_config_model_keys(FILE *out);

#endif
