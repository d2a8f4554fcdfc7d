/* Clusters to plan for: text to struct gf_config_cluster, as strictly as configurations. */
#include <libconfig.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_source.h"

#define CLUSTER_FILE_BYTES_MAX (1u << 20)
#define NODES_MAX 8192.0

struct reader {
    const char *origin;
    char *error_out;
};

typedef enum field_kind { FIELD_WHOLE, FIELD_REAL } field_kind;

struct field {
    const char *key;
    size_t offset;
    field_kind kind;
    double low, high;
    bool needed;
};

#define FIELD(struct_name, member) .key = #member, .offset = offsetof(struct struct_name, member)
static const struct field fields[] = {
    {FIELD(gf_config_cluster, nodes), .kind = FIELD_WHOLE, .low = 1, .high = NODES_MAX, .needed = true},
    {FIELD(gf_config_cluster, gpus_per_node), .kind = FIELD_WHOLE, .low = 1, .high = 64, .needed = true},
    {FIELD(gf_config_cluster, batch), .kind = FIELD_WHOLE, .low = 1, .high = 1e6, .needed = true},
    {FIELD(gf_config_cluster, network_bandwidth), .kind = FIELD_REAL, .low = 1e3, .high = 1e15, .needed = true},
    {FIELD(gf_config_cluster, network_latency), .kind = FIELD_REAL, .low = 0, .high = 10, .needed = true},
    {FIELD(gf_config_cluster, node_bandwidth), .kind = FIELD_REAL, .low = 1e3, .high = 1e15},
    {FIELD(gf_config_cluster, node_latency), .kind = FIELD_REAL, .low = 0, .high = 10},
    {FIELD(gf_config_cluster, message_cost), .kind = FIELD_REAL, .low = 0, .high = 10},
    {FIELD(gf_config_cluster, op_bandwidth), .kind = FIELD_REAL, .low = 1e3, .high = 1e15, .needed = true},
    {FIELD(gf_config_cluster, op_cost), .kind = FIELD_REAL, .low = 0, .high = 10},
    {FIELD(gf_config_cluster, gpu_flops), .kind = FIELD_REAL, .low = 1, .high = 1e18},
    {FIELD(gf_config_cluster, compute_spread), .kind = FIELD_REAL, .low = 0, .high = 0.5},
};
#define FIELDS (sizeof fields / sizeof fields[0])

static int line_of(const config_setting_t *node)
{
    return (int)config_setting_source_line(node);
}

static bool number_of(const config_setting_t *node, bool whole, double *value_out)
{
    int type = config_setting_type(node);
    if (type == CONFIG_TYPE_INT) *value_out = config_setting_get_int(node);
    else if (type == CONFIG_TYPE_INT64) *value_out = (double)config_setting_get_int64(node);
    else if ((type == CONFIG_TYPE_FLOAT) && !whole) *value_out = config_setting_get_float(node);
    else return false;
    return true;
}

/* A number from low to high, or refused. */
static gf_status number_load(const struct reader *reader, const config_setting_t *node, const char *key, bool whole,
                             double low, double high, double *value_out)
{
    double value = 0;
    if (!number_of(node, whole, &value) || !isfinite(value) || (value < low) || (value > high))
        return gf_source_refuse(reader->error_out, reader->origin, line_of(node), "%s must be a %s from %g to %g", key,
                                whole ? "whole number" : "number", low, high);
    *value_out = value;
    return GF_OK;
}

static gf_status name_load(const struct reader *reader, const config_setting_t *node, char *name_out)
{
    const char *name = config_setting_get_string(node);
    bool valid = (name != NULL) && (name[0] != '\0') && (strlen(name) <= 47);
    for (const char *at = name; valid && (*at != '\0'); at++)
        valid = ((unsigned char)*at >= 0x20) && (*at != 0x7f);
    if (!valid)
        return gf_source_refuse(reader->error_out, reader->origin, line_of(node),
                                "name must be a string of 1 to 47 bytes without control characters");
    memcpy(name_out, name, strlen(name) + 1);
    return GF_OK;
}

static gf_status model_load(const struct reader *reader, const config_setting_t *node, uint32_t index,
                            struct gf_config_cluster *cluster)
{
    int count = config_setting_length(node);
    gf_status status = GF_OK;
    if (config_setting_is_group(node) != CONFIG_TRUE)
        return gf_source_refuse(reader->error_out, reader->origin, line_of(node),
                                "a model must be a group { name = \"..\"; images_per_second = ..; }");
    for (int i = 0; (i < count) && (status == GF_OK); i++) {
        const config_setting_t *field = config_setting_get_elem(node, (unsigned)i);
        const char *key = config_setting_name(field);
        double value;
        if (strcmp(key, "name") == 0) {
            status = name_load(reader, field, cluster->models[index].name);
        } else if (strcmp(key, "images_per_second") == 0) {
            status = number_load(reader, field, key, false, 1e-6, 1e9, &value);
            if (status == GF_OK) cluster->models[index].images_per_second = value;
        } else if (strcmp(key, "batch") == 0) {
            status = number_load(reader, field, key, true, 1, 1e6, &value);
            if (status == GF_OK) cluster->models[index].batch = (uint32_t)value;
        } else {
            status = gf_source_refuse(reader->error_out, reader->origin, line_of(field),
                                      "unknown key %.60s; a model has name, images_per_second and batch", key);
        }
    }
    if (status != GF_OK) return status;
    if ((cluster->models[index].name[0] == '\0') || (cluster->models[index].images_per_second <= 0))
        return gf_source_refuse(reader->error_out, reader->origin, line_of(node),
                                "a model must have name and images_per_second");
    return GF_OK;
}

static gf_status models_load(const struct reader *reader, const config_setting_t *node,
                             struct gf_config_cluster *cluster)
{
    uint32_t count = (uint32_t)config_setting_length(node);
    gf_status status = GF_OK;
    if ((config_setting_is_list(node) != CONFIG_TRUE) || (count > GF_CONFIG_CLUSTER_MODELS_MAX))
        return gf_source_refuse(reader->error_out, reader->origin, line_of(node),
                                "models must be a list ( { .. }, .. ) of at most %u", GF_CONFIG_CLUSTER_MODELS_MAX);
    for (uint32_t i = 0; (i < count) && (status == GF_OK); i++)
        status = model_load(reader, config_setting_get_elem(node, i), i, cluster);
    cluster->model_count = count;
    return status;
}

static gf_status field_load(const struct reader *reader, const config_setting_t *node, const struct field *field,
                            struct gf_config_cluster *cluster)
{
    char *at = (char *)cluster + field->offset;
    double value = 0;
    gf_status status = number_load(reader, node, field->key, field->kind == FIELD_WHOLE, field->low, field->high, &value);
    if (status != GF_OK) return status;
    if (field->kind == FIELD_WHOLE) *(uint32_t *)(void *)at = (uint32_t)value;
    else *(double *)(void *)at = value;
    return GF_OK;
}

static gf_status setting_load(const struct reader *reader, const config_setting_t *node, bool *seen,
                              struct gf_config_cluster *cluster)
{
    const char *key = config_setting_name(node);
    if (strcmp(key, "name") == 0) return name_load(reader, node, cluster->name);
    if (strcmp(key, "models") == 0) return models_load(reader, node, cluster);
    for (size_t f = 0; f < FIELDS; f++) {
        if (strcmp(key, fields[f].key) != 0) continue;
        seen[f] = true;
        return field_load(reader, node, &fields[f], cluster);
    }
    return gf_source_refuse(reader->error_out, reader->origin, line_of(node),
                            "unknown key %.60s; config/clusters/plain.cfg has all there are", key);
}

static gf_status cluster_load(const struct reader *reader, const config_t *tree, struct gf_config_cluster *cluster)
{
    const config_setting_t *root = config_root_setting(tree), *group = config_setting_get_member(root, "cluster");
    bool seen[FIELDS] = {false};
    if ((group == NULL) || (config_setting_length(root) != 1) || (config_setting_is_group(group) != CONFIG_TRUE))
        return gf_source_refuse(reader->error_out, reader->origin, group ? line_of(group) : 0,
                                "must hold cluster = { .. }; and nothing else");
    for (int i = 0; i < config_setting_length(group); i++) {
        gf_status status = setting_load(reader, config_setting_get_elem(group, (unsigned)i), seen, cluster);
        if (status != GF_OK) return status;
    }
    for (size_t f = 0; f < FIELDS; f++)
        if (!seen[f] && fields[f].needed)
            return gf_source_refuse(reader->error_out, reader->origin, line_of(group), "%s is missing", fields[f].key);
    if ((uint64_t)cluster->nodes * cluster->gpus_per_node > GF_WORLD_MAX)
        return gf_source_refuse(reader->error_out, reader->origin, line_of(group),
                                "%u nodes of %u GPUs; allowed are %u GPUs", cluster->nodes, cluster->gpus_per_node,
                                GF_WORLD_MAX);
    if ((cluster->gpus_per_node > 1) && (cluster->node_bandwidth <= 0))
        return gf_source_refuse(reader->error_out, reader->origin, line_of(group),
                                "node_bandwidth is missing: nodes have %u GPUs", cluster->gpus_per_node);
    return GF_OK;
}

gf_status gf_config_cluster_load(const char *path, struct gf_config_cluster *cluster_out, char *error_out)
{
    struct reader reader = {.origin = path, .error_out = error_out};
    struct gf_config_cluster cluster = {.nodes = 0};
    config_t tree;
    char *text;
    size_t bytes;
    gf_status status = gf_source_read(path, CLUSTER_FILE_BYTES_MAX, &text, &bytes, error_out);
    if (status != GF_OK) return status;
    status = gf_source_check(text, bytes, path, error_out);
    if (status == GF_OK) {
        config_init(&tree);
        if (config_read_string(&tree, text) == CONFIG_TRUE) status = cluster_load(&reader, &tree, &cluster);
        else status = gf_source_refuse(error_out, path, config_error_line(&tree), "%s", config_error_text(&tree));
        config_destroy(&tree);
    }
    free(text);
    if (status == GF_OK) *cluster_out = cluster;
    return status;
}
