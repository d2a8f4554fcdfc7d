/* The host backend: the widest version that this CPU and its system run. CPUID was read once by the
 * compiler's runtime before main(); nothing here is written at run time. */
#include "ops/element/host/ops_host.h"

const struct gf_element_ops *const gf_element_ops_variants[] = {
    &gf_element_ops_scalar,
#if defined(__x86_64__)
    &gf_element_ops_avx2,
    &gf_element_ops_avx512,
#elif defined(__aarch64__)
    &gf_element_ops_neon,
#endif
};
const uint32_t gf_element_ops_variant_count =
    sizeof gf_element_ops_variants / sizeof gf_element_ops_variants[0];

const struct gf_element_ops *gf_element_ops_best(void)
{
    uint32_t v = gf_element_ops_variant_count - 1;
    while (!gf_element_ops_supported(gf_element_ops_variants[v])) v--; /* the first one always is */
    return gf_element_ops_variants[v];
}
