/* The tensor table of the demo's network: two 5x5 convolutions, a hidden layer of 512, 10
 * classes. */
#ifndef TOOL_TENSORS_H
#define TOOL_TENSORS_H

#include "gradientflow.h"

/* In the order in which backward ends them; inside a layer weight, then bias. */
enum tool_tensor {
    TOOL_TENSOR_FC2_WEIGHT, /* [10][512] */
    TOOL_TENSOR_FC2_BIAS,
    TOOL_TENSOR_FC1_WEIGHT, /* [512][64 * 7 * 7] */
    TOOL_TENSOR_FC1_BIAS,
    TOOL_TENSOR_CONV2_WEIGHT, /* [64][32 * 5 * 5] */
    TOOL_TENSOR_CONV2_BIAS,
    TOOL_TENSOR_CONV1_WEIGHT, /* [32][5 * 5] */
    TOOL_TENSOR_CONV1_BIAS,
    TOOL_TENSOR_COUNT
};
extern const struct gf_tensor tool_tensors[TOOL_TENSOR_COUNT];

#endif
