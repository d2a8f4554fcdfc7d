/* The element ops, 8 elements at a time. */
#if defined(__x86_64__)
#include "ops/element/host/vec_avx2.h"

#include "ops/element/host/ops_table.h"

/* No CPU has AVX2 without F16C, which older compilers cannot ask for. */
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}

OPS_TABLE(avx2, has_avx2);
#else
typedef int gf_no_avx2; /* an empty translation unit is not C */
#endif
