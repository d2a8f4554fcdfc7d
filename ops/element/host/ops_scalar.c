/* The ops one element at a time: the definition of every op, and what runs where there is nothing better. */
#include "ops/element/host/vec_scalar.h"

#include "ops/element/host/ops_table.h"

const struct gf_ops gf_ops_scalar = OPS_TABLE("scalar", NULL);
