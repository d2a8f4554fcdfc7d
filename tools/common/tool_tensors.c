/* See tool_tensors.h. */
#include "tools/common/tool_tensors.h"

#define BIAS (GF_TENSOR_DENSE | GF_TENSOR_NO_DECAY)

const struct gf_tensor tool_tensors[TOOL_TENSOR_COUNT] = {
    [TOOL_TENSOR_FC2_WEIGHT] = {.name = "fc2.weight", .elem_count = 10 * 512},
    [TOOL_TENSOR_FC2_BIAS] = {.name = "fc2.bias", .elem_count = 10, .flags = BIAS},
    [TOOL_TENSOR_FC1_WEIGHT] = {.name = "fc1.weight", .elem_count = 512 * 3136},
    [TOOL_TENSOR_FC1_BIAS] = {.name = "fc1.bias", .elem_count = 512, .flags = BIAS},
    [TOOL_TENSOR_CONV2_WEIGHT] = {.name = "conv2.weight", .elem_count = 64 * 32 * 25},
    [TOOL_TENSOR_CONV2_BIAS] = {.name = "conv2.bias", .elem_count = 64, .flags = BIAS},
    [TOOL_TENSOR_CONV1_WEIGHT] = {.name = "conv1.weight", .elem_count = 32 * 25},
    [TOOL_TENSOR_CONV1_BIAS] = {.name = "conv1.bias", .elem_count = 32, .flags = BIAS},
};
