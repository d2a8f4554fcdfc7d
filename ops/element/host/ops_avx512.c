/* The element ops, 16 elements at a time. */
#if defined(__x86_64__)
#include "ops/element/host/vec_avx512.h"

#include "ops/element/host/ops_table.h"

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

OPS_TABLE(avx512, has_avx512);
#else
typedef int gf_no_avx512; /* an empty translation unit is not C */
#endif
