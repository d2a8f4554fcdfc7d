/* What tools read beside configurations: models (tool_model.c has the keys), and clusters to plan
 * for (tool_cluster.c). */
#ifndef TOOL_MODEL_H
#define TOOL_MODEL_H

#include "config/config.h"

/* Bandwidths are bytes a second, one way; times are seconds. 0: not there. What each means:
 * tool_cluster.c. */
#define TOOL_CLUSTER_MODELS_MAX 16u
struct tool_cluster {
    char name[48];
    uint32_t nodes, gpus_per_node, nics_per_node, leaf_nodes;
    uint32_t batch;
    bool rails, device_ops, gpu_direct;
    double network_bandwidth, network_latency, oversubscription;
    double node_bandwidth, node_pair_bandwidth, node_latency, host_bandwidth;
    double message_cost, op_bandwidth, op_cost, poll_time;
    double gpu_flops, gpu_peak_flops, gpu_memory;
    double compute_spread, straggler_scale, straggler_tail;
    uint32_t model_count;
    struct tool_cluster_model {
        char name[48];
        double images_per_second; /* of one GPU in training, nothing exchanged */
        uint32_t batch;           /* a GPU; 0: the cluster's */
    } models[TOOL_CLUSTER_MODELS_MAX];
};

/* cluster = { name = ".."; nodes = 64; .. }. GF_ERR_CONFIG with a line in
 * error_out[GF_CONFIG_ERROR_BYTES]. */
gf_status tool_cluster_load(const char *path, struct tool_cluster *cluster_out, char *error_out);
/* "rails = true; nics_per_node = 8" over a loaded one. */
gf_status tool_cluster_set(struct tool_cluster *cluster, const char *text, const char *origin,
                           char *error_out);
/* The rules that tie keys together; origin stands for the file. */
gf_status tool_cluster_check(const struct tool_cluster *cluster, const char *origin,
                             char *error_out);
/* A file that loads to the same. */
void tool_cluster_print(const struct tool_cluster *cluster, FILE *out);
/* What a layer computes for one image or sequence, a multiply and an add being 2. It stands at the
 * tensor that ends with it in backward: when that one is ready, so much has been computed since the
 * last tensor that has any. */
struct tool_flops {
    uint64_t forward, backward;
    uint64_t inputs; /* values that enter the layer. Where `input` is not given: those of a fully
                      * connected layer, or of a convolution that keeps the size of its picture; 0
                      * where there are no flops */
};
/* What a model file says of a sample; 0: nothing. */
struct tool_sample {
    uint32_t tokens;
    uint64_t activation_bytes;
};
/* A model file: tensors = ( { name = "fc1"; shape = [512, 3136]; flags = ["dense", "no_decay"];
 * type = "fp32"; }, .. ) in backward order. The caller's arrays [tensor_max], flops may be NULL,
 * and what is read. */
struct tool_model {
    struct gf_tensor *tensors;
    char (*names)[48];
    struct tool_flops *flops;
    uint32_t tensor_max, tensor_count;
    struct tool_sample sample;
};
/* GF_ERR_CONFIG with a line as above. */
gf_status tool_model_load(const char *path, struct tool_model *model, char *error_out);
/* From text that gf_source_check() let pass. */
gf_status tool_model_load_text(const char *text, const char *origin, struct tool_model *model,
                               char *error_out);

/* The keys of a cluster file, or of a model file, as gf_config_print_table() prints those of a
 * configuration. */
void tool_cluster_keys(FILE *out);
void tool_model_keys(FILE *out);

#endif
