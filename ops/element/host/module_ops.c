/* The host's tables of the modules' element ops, by instruction set. The references are weak: a module alone brings
 * no set into a program; it finds those of gf_modules.ops, whose object holds all tables. */
#include "ops/module_ops.h"

#define OF_SET(table, set) extern const struct table table##_##set __attribute__((weak))
#define OF_SETS(table)                                                                      \
    OF_SET(table, scalar); OF_SET(table, avx2); OF_SET(table, avx512); OF_SET(table, neon); \
    const struct table *const table##_host[GF_ELEMENT_OPS_SETS] = {                         \
        [GF_ELEMENT_OPS_SCALAR] = &table##_scalar, [GF_ELEMENT_OPS_AVX2] = &table##_avx2,   \
        [GF_ELEMENT_OPS_AVX512] = &table##_avx512, [GF_ELEMENT_OPS_NEON] = &table##_neon}
OF_SETS(gf_node_ops);
OF_SETS(gf_sparse_ops);
OF_SETS(gf_optimizer_ops);
OF_SETS(gf_quantize_ops);
