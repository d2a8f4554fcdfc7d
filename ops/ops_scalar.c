/* The ops one element at a time: the definition of every op, and what runs where there is nothing better. */
#include "vec_scalar.h"

#include "ops_table.h"

const struct gf_ops gf_ops_scalar = OPS_TABLE("scalar");
