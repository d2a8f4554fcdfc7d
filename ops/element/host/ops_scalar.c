/* The element ops one element at a time: the definition of each, and what runs where there is
 * nothing better. */
#include "ops/element/host/vec_scalar.h"

#include "ops/element/host/ops_table.h"

OPS_TABLE(scalar, NULL);
