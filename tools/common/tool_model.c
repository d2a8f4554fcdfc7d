/* Tensor tables: which tensors a model has, in the order in which backward ends them, and what its
 * layers compute. */
#include <string.h>

#include "tools/common/tool_model.h"
#include "tools/common/tool_fields.h"
#include "config/config_keys.h"

#define TENSORS_FILE_BYTES_MAX (16u << 20) /* GF_TENSORS_MAX of them with long names */
#define TENSOR_DIMENSIONS_MAX 8
/* of one tensor; so all together fit 64 bits in any type */
#define TENSOR_ELEMS_MAX (1ull << 40)
#define TENSOR_FLOPS_MAX (1ll << 49) /* likewise: GF_TENSORS_MAX times this fits */

/* A tensor as it stands in the file. */
struct row {
    char name[TOOL_FIELD_TEXT_BYTES];
    struct gf_tensor tensor;
    struct tool_flops flops;
    uint64_t channels; /* the shape's second dimension */
};

/* A whole number at this node, or -1. */
static long long whole_of(const config_setting_t *node)
{
    int type = config_setting_type(node);
    if (type == CONFIG_TYPE_INT) return config_setting_get_int(node);
    return (type == CONFIG_TYPE_INT64) ? config_setting_get_int64(node) : -1;
}

static gf_status shape_load(const struct tool_reader *reader, const config_setting_t *node,
                            void *struct_out)
{
    struct row *row = struct_out;
    int count = config_setting_is_array(node) ? config_setting_length(node) : 0;
    uint64_t elem_count = 1;
    bool empty = false;
    if ((count < 1) || (count > TENSOR_DIMENSIONS_MAX))
        return tool_reader_refuse(reader, node, "shape must be an array of 1 to %d whole numbers",
                                  TENSOR_DIMENSIONS_MAX);
    for (int i = 0; i < count; i++) {
        const config_setting_t *node_i = config_setting_get_elem(node, (unsigned)i);
        long long size = whole_of(node_i);
        if (size < 0)
            return tool_reader_refuse(reader, node_i, "shape[%d] must be a whole number, 0 or more",
                                      i);
        if (i == 1) row->channels = (uint64_t)size;
        if (size == 0)
            empty = true;
        else if (__builtin_mul_overflow(elem_count, (uint64_t)size, &elem_count))
            elem_count = UINT64_MAX;
    }
    if (!empty && (elem_count > TENSOR_ELEMS_MAX))
        return tool_reader_refuse(reader, node, "more than %llu elements", TENSOR_ELEMS_MAX);
    row->tensor.elem_count = empty ? 0 : elem_count;
    return GF_OK;
}

static gf_status flags_load(const struct tool_reader *reader, const config_setting_t *node,
                            void *struct_out)
{
    int count = config_setting_length(node);
    uint32_t flags = 0;
    bool valid = (config_setting_is_array(node) == CONFIG_TRUE) ||
                 (config_setting_is_list(node) == CONFIG_TRUE);
    for (int i = 0; valid && (i < count); i++) {
        const char *flag = config_setting_get_string_elem(node, i);
        if ((flag != NULL) && (strcmp(flag, "dense") == 0))
            flags |= GF_TENSOR_DENSE;
        else if ((flag != NULL) && (strcmp(flag, "no_decay") == 0))
            flags |= GF_TENSOR_NO_DECAY;
        else
            valid = false;
    }
    if (!valid)
        return tool_reader_refuse(reader, node,
                                  "flags must be an array of \"dense\" and \"no_decay\"");
    ((struct row *)struct_out)->tensor.flags = flags;
    return GF_OK;
}

static gf_status type_load(const struct tool_reader *reader, const config_setting_t *node,
                           void *struct_out)
{
    const struct gf_setting *wire = gf_setting_find("exchange.wire"); /* the names of types */
    const char *type = config_setting_get_string(node);
    for (uint32_t i = 0; (type != NULL) && (i <= wire->high); i++)
        if (strcmp(type, wire->names[i]) == 0) {
            ((struct row *)struct_out)->tensor.type = (gf_type)i;
            return GF_OK;
        }
    return tool_reader_refuse(reader, node, "type must be \"fp32\", \"fp16\" or \"bf16\"");
}

static gf_status flops_load(const struct tool_reader *reader, const config_setting_t *node,
                            void *struct_out)
{
    struct tool_flops *flops = &((struct row *)struct_out)->flops;
    long long count[2] = {-1, -1};
    if ((config_setting_is_array(node) == CONFIG_TRUE) && (config_setting_length(node) == 2))
        for (unsigned i = 0; i < 2; i++) count[i] = whole_of(config_setting_get_elem(node, i));
    if ((count[0] < 0) || (count[1] < 0) || (count[0] > TENSOR_FLOPS_MAX) ||
        (count[1] > TENSOR_FLOPS_MAX))
        return tool_reader_refuse(reader, node,
                                  "flops must be [forward, backward], whole numbers from 0 to %lld",
                                  TENSOR_FLOPS_MAX);
    flops->forward = (uint64_t)count[0];
    flops->backward = (uint64_t)count[1];
    return GF_OK;
}

static gf_status tensors_skip(const struct tool_reader *reader, const config_setting_t *node,
                              void *struct_out)
{
    (void)struct_out; /* read when the rest of the file is known */
    if (config_setting_is_list(node) == CONFIG_TRUE) return GF_OK;
    return tool_reader_refuse(reader, node, "tensors must be a list ( { .. }, .. )");
}

static const struct tool_field tensor_fields[] = {
    {TOOL_FIELD(row, name), .kind = TOOL_FIELD_TEXT, .high = 47, .needed = true,
     .help = "for errors and traces"},
    {.key = "shape",
     .kind = TOOL_FIELD_OTHER,
     .load = shape_load,
     .needed = true,
     .allowed = "an array of 1 to 8 whole numbers",
     .help = "outputs first, then inputs, as of a weight"},
    {.key = "flags",
     .kind = TOOL_FIELD_OTHER,
     .load = flags_load,
     .allowed = "an array of \"dense\" and \"no_decay\"",
     .help = "never sparse; not decayed"},
    {.key = "type",
     .kind = TOOL_FIELD_OTHER,
     .load = type_load,
     .allowed = "\"fp32\", \"fp16\" or \"bf16\"",
     .help = "of its gradient; else fp32"},
    {.key = "flops",
     .kind = TOOL_FIELD_OTHER,
     .load = flops_load,
     .allowed = "[forward, backward], whole numbers from 0 to 2^49",
     .help = "of a sample, since the last tensor that has any; a multiply and an add are 2"},
    {.key = "input",
     .kind = TOOL_FIELD_LONG,
     .offset = offsetof(struct row, flops.inputs),
     .low = 1,
     .high = TENSOR_FLOPS_MAX,
     .help = "values that enter the layer, of a sample; else by shape and flops"},
    {.key = NULL},
};

static const struct tool_field file_fields[] = {
    {.key = "tensors",
     .kind = TOOL_FIELD_OTHER,
     .load = tensors_skip,
     .needed = true,
     .allowed = "a list ( { .. }, .. )",
     .help = "a group a tensor, in the order in which backward ends them"},
    {.key = "tokens",
     .kind = TOOL_FIELD_COUNT,
     .offset = offsetof(struct tool_sample, tokens),
     .low = 1,
     .high = 1e9,
     .help = "of a sample, where it is a text: tokens/s are printed then"},
    {.key = "activation_bytes",
     .kind = TOOL_FIELD_LONG,
     .offset = offsetof(struct tool_sample, activation_bytes),
     .low = 1,
     .high = 1e15,
     .unit = "bytes",
     .help = "of a sample, that backward needs; else 4 for each value that enters "
             "a layer"},
    {.key = NULL},
};

/* A weight is used once a place of the output: as many places enter. */
static uint64_t inputs_same(const struct row *row)
{
    uint64_t elem_count = row->tensor.elem_count;
    if ((row->flops.forward == 0) || (elem_count == 0)) return 0;
    return (uint64_t)((double)row->flops.forward / (2 * (double)elem_count) *
                      (double)row->channels);
}

static gf_status tensor_load(const struct tool_reader *reader, const config_setting_t *node,
                             struct row *row)
{
    bool seen[TOOL_FIELDS_MAX] = {false};
    gf_status status;
    if (config_setting_is_group(node) != CONFIG_TRUE)
        return tool_reader_refuse(reader, node, "must be a group { name = \"..\"; shape = [..]; }");
    if ((status = tool_fields_load(reader, node, tensor_fields, seen, row)) != GF_OK) return status;
    if ((status = tool_fields_missing(reader, node, tensor_fields, seen)) != GF_OK) return status;
    if (row->flops.inputs == 0) row->flops.inputs = inputs_same(row);
    return GF_OK;
}

static gf_status file_load(struct tool_reader *reader, const config_t *tree,
                           struct tool_model *model)
{
    const config_setting_t *root = config_root_setting(tree);
    const config_setting_t *list = config_setting_get_member(root, "tensors");
    bool seen[TOOL_FIELDS_MAX] = {false};
    struct tool_sample sample = {.tokens = 0};
    gf_status status;
    uint32_t count;
    if (list == NULL)
        return tool_reader_refuse(reader, NULL, "must hold tensors = ( { .. }, .. );");
    if ((status = tool_fields_load(reader, root, file_fields, seen, &sample)) != GF_OK)
        return status;
    count = (uint32_t)config_setting_length(list);
    if (count == 0) return tool_reader_refuse(reader, list, "0 tensors; at least 1 is needed");
    if (count > model->tensor_max)
        return tool_reader_refuse(reader, list, "%u tensors; allowed are at most %u", count,
                                  model->tensor_max);
    for (uint32_t i = 0; i < count; i++) {
        struct row row = {.channels = 1, .tensor.type = GF_TYPE_F32};
        (void)snprintf(reader->where, sizeof reader->where, "tensor %u: ", i);
        if ((status = tensor_load(reader, config_setting_get_elem(list, i), &row)) != GF_OK)
            return status;
        memcpy(model->names[i], row.name, sizeof row.name);
        model->tensors[i] = row.tensor;
        model->tensors[i].name = model->names[i];
        if (model->flops != NULL) model->flops[i] = row.flops;
    }
    model->tensor_count = count;
    model->sample = sample;
    return GF_OK;
}

/* Ends the tree. */
static gf_status model_of(config_t *tree, const char *origin, struct tool_model *model,
                          char *error_out)
{
    struct tool_reader reader = {
        .origin = origin, .page = "gf-model.cfg(5)", .error_out = error_out};
    gf_status status = file_load(&reader, tree, model);
    config_destroy(tree);
    return status;
}

gf_status tool_model_load(const char *path, struct tool_model *model, char *error_out)
{
    config_t tree;
    gf_status status = gf_tree_read(path, TENSORS_FILE_BYTES_MAX, &tree, error_out);
    return (status == GF_OK) ? model_of(&tree, path, model, error_out) : status;
}

gf_status tool_model_load_text(const char *text, const char *origin, struct tool_model *model,
                               char *error_out)
{
    config_t tree;
    gf_status status = gf_tree_parse(text, origin, &tree, error_out);
    return (status == GF_OK) ? model_of(&tree, origin, model, error_out) : status;
}

void tool_model_keys(FILE *out)
{
    (void)fputs(TOOL_FIELDS_TABLE_HEAD, out);
    tool_fields_table(file_fields, "", out);
    tool_fields_table(tensor_fields, "tensors.", out);
}
