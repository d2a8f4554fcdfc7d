/* Tensor tables: which tensors a model has, in the order in which backward ends them, and what its layers compute. */
#include <libconfig.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_keys.h"
#include "config/config_source.h"

#define TENSORS_FILE_BYTES_MAX (16u << 20)     /* GF_TENSORS_MAX of them with long names */
#define TENSOR_DIMENSIONS_MAX 8
#define TENSOR_ELEMS_MAX (1ull << 40)          /* of one tensor; so all together fit 64 bits in any type */
#define TENSOR_FLOPS_MAX (1ll << 49)           /* likewise: GF_TENSORS_MAX times this fits */

struct table {
    const char *origin;
    char *error_out;
    uint32_t index; /* of the tensor that is being read */
};

static int line_of(const config_setting_t *node)
{
    return (int)config_setting_source_line(node);
}

static gf_status name_load(const struct table *table, const config_setting_t *node, char *name_out)
{
    const char *name = config_setting_get_string(node);
    if ((name == NULL) || (name[0] == '\0') || (strlen(name) > 47))
        return gf_source_refuse(table->error_out, table->origin, line_of(node),
                                "tensor %u: name must be a string of 1 to 47 bytes", table->index);
    for (const char *at = name; *at != '\0'; at++)
        if (((unsigned char)*at < 0x20) || (*at == 0x7f))
            return gf_source_refuse(table->error_out, table->origin, line_of(node),
                                    "tensor %u: name holds a control character", table->index);
    memcpy(name_out, name, strlen(name) + 1);
    return GF_OK;
}

static gf_status shape_load(const struct table *table, const config_setting_t *node, uint64_t *elem_count_out,
                            uint64_t *channels_out)
{
    int count = config_setting_is_array(node) ? config_setting_length(node) : 0;
    uint64_t elem_count = 1;
    bool empty = false;
    if ((count < 1) || (count > TENSOR_DIMENSIONS_MAX))
        return gf_source_refuse(table->error_out, table->origin, line_of(node),
                                "tensor %u: shape must be an array of 1 to %d whole numbers", table->index,
                                TENSOR_DIMENSIONS_MAX);
    for (int i = 0; i < count; i++) {
        const config_setting_t *node_i = config_setting_get_elem(node, (unsigned)i);
        int type = config_setting_type(node_i);
        long long size = (type == CONFIG_TYPE_INT) ? config_setting_get_int(node_i)
                                                   : config_setting_get_int64(node_i);
        if (((type != CONFIG_TYPE_INT) && (type != CONFIG_TYPE_INT64)) || (size < 0))
            return gf_source_refuse(table->error_out, table->origin, line_of(node_i),
                                    "tensor %u: shape[%d] must be a whole number, 0 or more", table->index, i);
        if (i == 1) *channels_out = (uint64_t)size;
        if (size == 0) empty = true;
        else if (__builtin_mul_overflow(elem_count, (uint64_t)size, &elem_count)) elem_count = UINT64_MAX;
    }
    if (!empty && (elem_count > TENSOR_ELEMS_MAX))
        return gf_source_refuse(table->error_out, table->origin, line_of(node),
                                "tensor %u: more than %llu elements", table->index, TENSOR_ELEMS_MAX);
    *elem_count_out = empty ? 0 : elem_count;
    return GF_OK;
}

static gf_status flags_load(const struct table *table, const config_setting_t *node, uint32_t *flags_out)
{
    int count = config_setting_length(node);
    uint32_t flags = 0;
    bool valid = (config_setting_is_array(node) == CONFIG_TRUE) || (config_setting_is_list(node) == CONFIG_TRUE);
    for (int i = 0; valid && (i < count); i++) {
        const char *flag = config_setting_get_string_elem(node, i);
        if ((flag != NULL) && (strcmp(flag, "dense") == 0)) flags |= GF_TENSOR_DENSE;
        else if ((flag != NULL) && (strcmp(flag, "no_decay") == 0)) flags |= GF_TENSOR_NO_DECAY;
        else valid = false;
    }
    if (!valid)
        return gf_source_refuse(table->error_out, table->origin, line_of(node),
                                "tensor %u: flags must be an array of \"dense\" and \"no_decay\"", table->index);
    *flags_out = flags;
    return GF_OK;
}

static gf_status type_load(const struct table *table, const config_setting_t *node, gf_type *type_out)
{
    const struct gf_setting *wire = gf_key_find("exchange.wire"); /* the names of types */
    const char *type = config_setting_get_string(node);
    for (uint32_t i = 0; (type != NULL) && (i <= wire->high); i++)
        if (strcmp(type, wire->names[i]) == 0) {
            *type_out = (gf_type)i;
            return GF_OK;
        }
    return gf_source_refuse(table->error_out, table->origin, line_of(node),
                            "tensor %u: type must be \"fp32\", \"fp16\" or \"bf16\"", table->index);
}

static gf_status flops_load(const struct table *table, const config_setting_t *node, struct gf_config_flops *flops_out)
{
    uint64_t flops[2] = {0, 0};
    bool valid = (config_setting_is_array(node) == CONFIG_TRUE) && (config_setting_length(node) == 2);
    for (unsigned i = 0; valid && (i < 2); i++) {
        const config_setting_t *node_i = config_setting_get_elem(node, i);
        int type = config_setting_type(node_i);
        long long count = (type == CONFIG_TYPE_INT) ? config_setting_get_int(node_i)
                                                    : config_setting_get_int64(node_i);
        valid = ((type == CONFIG_TYPE_INT) || (type == CONFIG_TYPE_INT64)) && (count >= 0) &&
                 (count <= TENSOR_FLOPS_MAX);
        if (valid) flops[i] = (uint64_t)count;
    }
    if (!valid)
        return gf_source_refuse(table->error_out, table->origin, line_of(node),
                                "tensor %u: flops must be [forward, backward], whole numbers from 0 to %lld",
                                table->index, TENSOR_FLOPS_MAX);
    flops_out->forward = flops[0];
    flops_out->backward = flops[1];
    return GF_OK;
}

static gf_status input_load(const struct table *table, const config_setting_t *node, uint64_t *input_out)
{
    int type = config_setting_type(node);
    long long count = (type == CONFIG_TYPE_INT) ? config_setting_get_int(node) : config_setting_get_int64(node);
    if (((type != CONFIG_TYPE_INT) && (type != CONFIG_TYPE_INT64)) || (count < 1) || (count > TENSOR_FLOPS_MAX))
        return gf_source_refuse(table->error_out, table->origin, line_of(node),
                                "tensor %u: input must be a whole number from 1 to %lld", table->index, TENSOR_FLOPS_MAX);
    *input_out = (uint64_t)count;
    return GF_OK;
}

/* A weight is used once a place of the output: as many places enter. */
static uint64_t inputs_same(const struct gf_config_flops *flops, uint64_t elem_count, uint64_t channels)
{
    if ((flops->forward == 0) || (elem_count == 0)) return 0;
    return (uint64_t)((double)flops->forward / (2 * (double)elem_count) * (double)channels);
}

static gf_status tensor_load(const struct table *table, const config_setting_t *node, struct gf_tensor *tensor_out,
                             char *name_out, struct gf_config_flops *flops_out)
{
    struct gf_tensor tensor = {.name = name_out, .type = GF_TYPE_F32};
    struct gf_config_flops flops = {.forward = 0, .backward = 0};
    bool has_name = false, has_shape = false;
    uint64_t channels = 1; /* the shape's second dimension */
    int count = config_setting_length(node);
    gf_status status = GF_OK;
    if (config_setting_is_group(node) != CONFIG_TRUE)
        return gf_source_refuse(table->error_out, table->origin, line_of(node),
                                "tensor %u: must be a group { name = \"..\"; shape = [..]; }", table->index);
    for (int i = 0; (i < count) && (status == GF_OK); i++) {
        const config_setting_t *field = config_setting_get_elem(node, (unsigned)i);
        const char *key = config_setting_name(field);
        if (strcmp(key, "name") == 0) {
            status = name_load(table, field, name_out);
            has_name = true;
        } else if (strcmp(key, "shape") == 0) {
            status = shape_load(table, field, &tensor.elem_count, &channels);
            has_shape = true;
        } else if (strcmp(key, "flags") == 0) {
            status = flags_load(table, field, &tensor.flags);
        } else if (strcmp(key, "type") == 0) {
            status = type_load(table, field, &tensor.type);
        } else if (strcmp(key, "flops") == 0) {
            status = flops_load(table, field, &flops);
        } else if (strcmp(key, "input") == 0) {
            status = input_load(table, field, &flops.inputs);
        } else {
            status = gf_source_refuse(table->error_out, table->origin, line_of(field), "tensor %u: unknown key %.60s; "
                                      "known are name, shape, flags, type, flops and input", table->index, key);
        }
    }
    if (status != GF_OK) return status;
    if (!has_name || !has_shape)
        return gf_source_refuse(table->error_out, table->origin, line_of(node), "tensor %u: has no %s", table->index,
                                has_name ? "shape" : "name");
    if (flops.inputs == 0) flops.inputs = inputs_same(&flops, tensor.elem_count, channels);
    *tensor_out = tensor;
    if (flops_out != NULL) *flops_out = flops;
    return GF_OK;
}

static gf_status tensors_load(struct table *table, const config_t *tree, struct gf_tensor *tensors, char (*names)[48],
                              struct gf_config_flops *flops, uint32_t tensor_max, uint32_t *tensor_count_out)
{
    const config_setting_t *root = config_root_setting(tree), *list = config_setting_get_member(root, "tensors");
    gf_status status = GF_OK;
    uint32_t count;
    if ((list == NULL) || (config_setting_length(root) != 1) || (config_setting_is_list(list) != CONFIG_TRUE))
        return gf_source_refuse(table->error_out, table->origin, list ? line_of(list) : 0,
                                "must hold tensors = ( { .. }, .. ); and nothing else");
    count = (uint32_t)config_setting_length(list);
    if (count == 0)
        return gf_source_refuse(table->error_out, table->origin, line_of(list), "0 tensors; at least 1 is needed");
    if (count > tensor_max)
        return gf_source_refuse(table->error_out, table->origin, line_of(list), "%u tensors; allowed are at most %u",
                                count, tensor_max);
    for (table->index = 0; (table->index < count) && (status == GF_OK); table->index++) {
        uint32_t i = table->index;
        status = tensor_load(table, config_setting_get_elem(list, i), &tensors[i], names[i],
                             (flops != NULL) ? &flops[i] : NULL);
    }
    if (status == GF_OK) *tensor_count_out = count;
    return status;
}

gf_status gf_config_tensors_text(const char *text, const char *origin, struct gf_tensor *tensors, char (*names)[48],
                                 struct gf_config_flops *flops, uint32_t tensor_max, uint32_t *tensor_count_out,
                                 char *error_out)
{
    struct table table = {.origin = origin, .error_out = error_out};
    config_t tree;
    gf_status status;
    config_init(&tree);
    if (config_read_string(&tree, text) == CONFIG_TRUE)
        status = tensors_load(&table, &tree, tensors, names, flops, tensor_max, tensor_count_out);
    else
        status = gf_source_refuse(error_out, origin, config_error_line(&tree), "%s", config_error_text(&tree));
    config_destroy(&tree);
    return status;
}

gf_status gf_config_model(const char *path, struct gf_tensor *tensors, char (*names)[48],
                          struct gf_config_flops *flops, uint32_t tensor_max, uint32_t *tensor_count_out,
                          char *error_out)
{
    char *text;
    size_t bytes;
    gf_status status = gf_source_read(path, TENSORS_FILE_BYTES_MAX, &text, &bytes, error_out);
    if (status != GF_OK) return status;
    status = gf_source_check(text, bytes, path, error_out);
    if (status == GF_OK)
        status = gf_config_tensors_text(text, path, tensors, names, flops, tensor_max, tensor_count_out, error_out);
    free(text);
    return status;
}

gf_status gf_config_tensors(const char *path, struct gf_tensor *tensors, char (*names)[48], uint32_t tensor_max,
                            uint32_t *tensor_count_out, char *error_out)
{
    return gf_config_model(path, tensors, names, NULL, tensor_max, tensor_count_out, error_out);
}
