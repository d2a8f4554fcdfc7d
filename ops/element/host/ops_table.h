/* All ops at the width of the vec_*.h included before; defines OPS_TABLE. */
#ifndef GF_OPS_TABLE_H
#define GF_OPS_TABLE_H

#include "ops/element/host/accumulate_host.h"
#include "ops/element/host/adam_host.h"
#include "ops/element/host/cast_host.h"
#include "ops/element/host/check_host.h"
#include "ops/element/host/chunks_host.h"
#include "ops/element/host/copy_host.h"
#include "ops/element/host/quantize_host.h"
#include "ops/element/host/ratio_host.h"
#include "ops/element/host/score_host.h"
#include "ops/element/host/sum_host.h"
#include "ops/element/host/sum_n_host.h"
#include "ops/element/host/update_host.h"

#define OPS_TABLE(table_name, is_supported)                                                                       \
    {                                                                                                             \
        .name = (table_name), .supported = (is_supported), .cast = cast, .sum = sum, .sum_n = sum_n,              \
        .check = check, .copy = copy, .copy_n = copy_n, .zero = zero, .score = score, .norm = norm,               \
        .ratio = ratio, .accumulate = accumulate, .cast_chunks = cast_chunks,                                     \
        .accumulate_chunks = accumulate_chunks, .zero_chunks = zero_chunks, .update = update,                     \
        .update_parts = update_parts, .update_chunks = update_chunks, .adam = adam, .quantize = quantize,         \
        .dequantize = dequantize                                                                                  \
    }

#endif
