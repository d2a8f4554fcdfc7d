/* All ops at the width of the vec_*.h included before; defines OPS_TABLE. */
#ifndef GF_OPS_TABLE_H
#define GF_OPS_TABLE_H

#include "accumulate_host.h"
#include "cast_host.h"
#include "check_host.h"
#include "chunks_host.h"
#include "copy_host.h"
#include "ratio_host.h"
#include "score_host.h"
#include "sum_host.h"
#include "sum_n_host.h"
#include "update_host.h"

#define OPS_TABLE(table_name)                                                                                     \
    {                                                                                                             \
        .name = (table_name), .cast = cast, .sum = sum, .sum_n = sum_n, .check = check, .copy = copy, .zero = zero,      \
        .score = score, .norm = norm, .ratio = ratio, .accumulate = accumulate, .cast_chunks = cast_chunks,       \
        .accumulate_chunks = accumulate_chunks, .zero_chunks = zero_chunks, .update = update,                     \
        .update_chunks = update_chunks                                                                            \
    }

#endif
