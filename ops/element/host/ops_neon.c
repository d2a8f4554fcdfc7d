/* The element ops, 4 elements at a time. */
#if defined(__aarch64__)
#include "ops/element/host/vec_neon.h"

#include "ops/element/host/ops_table.h"

OPS_TABLE(neon, NULL);
#else
typedef int gf_no_neon; /* an empty translation unit is not C */
#endif
