/* What element types are called: in the configuration, in log lines, in errors. */
#include "ops/ops.h"

const char *const gf_type_names[GF_TYPE_COUNT] = {
    [GF_TYPE_F32] = "fp32", [GF_TYPE_F16] = "fp16", [GF_TYPE_BF16] = "bf16"};
