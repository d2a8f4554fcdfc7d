/* All element ops at the width of the vec_*.h included before; defines OPS_TABLE. */
#ifndef GF_OPS_TABLE_H
#define GF_OPS_TABLE_H

#include "ops/element/host/accumulate_host.h"
#include "ops/element/host/adam_host.h"
#include "ops/element/host/cast_host.h"
#include "ops/element/host/chunks_host.h"
#include "ops/element/host/copy_host.h"
#include "ops/element/host/ratio_host.h"
#include "ops/element/host/score_host.h"
#include "ops/element/host/sum_host.h"
#include "ops/element/host/sum_n_host.h"
#include "ops/element/host/update_host.h"

#define OPS_TABLE(width, is_supported)                                                            \
    const struct gf_element_ops gf_element_ops_##width = {.name = #width,                         \
                                                          .supported = (is_supported),            \
                                                          .cast = cast,                           \
                                                          .sum = sum,                             \
                                                          .check = check,                         \
                                                          .copy = copy,                           \
                                                          .zero = zero,                           \
                                                          .sum_n = sum_n,                         \
                                                          .copy_n = copy_n,                       \
                                                          .score = score,                         \
                                                          .accumulate = accumulate,               \
                                                          .cast_chunks = cast_chunks,             \
                                                          .accumulate_chunks = accumulate_chunks, \
                                                          .zero_chunks = zero_chunks,             \
                                                          .norm = norm,                           \
                                                          .ratio = ratio,                         \
                                                          .update = update,                       \
                                                          .update_parts = update_parts,           \
                                                          .update_chunks = update_chunks,         \
                                                          .adam = adam}

#endif
