/* gf-train --trace: what the library traced, kept in bounded memory and written at the end, for
 * gf-trace. */
#ifndef GF_TRAIN_TRACE_H
#define GF_TRAIN_TRACE_H

#include <stddef.h>

#include "gradientflow.h"
#include "tools/common/tool_file.h"

#define TRAIN_TRACE_RECORDS 65536u /* the newest, 4 MiB */

struct train_trace {
    const char *path;                /* NULL: none of this; the files are FILE.RANK */
    struct gf_trace_record *records; /* [TRAIN_TRACE_RECORDS], a ring */
    uint64_t taken;                  /* records so far, of which the newest are there */
    uint64_t begin_ns;
    float loss_scale; /* of the step under way */
};

/* Takes over what the library has recorded since; after each step, before its own ring is full. */
void train_trace_drain(struct train_trace *trace, gf_context *gf);
/* The appliance's own: a checkpoint was written after this step. */
void train_trace_checkpoint(struct train_trace *trace, uint64_t step, uint64_t begin_ns,
                            uint64_t end_ns);
/* 0, or -1 with why in file->error. */
int train_trace_write(const struct train_trace *trace, uint32_t rank, uint32_t world,
                      const struct gf_tensor *tensors, uint32_t tensor_count,
                      struct tool_file *file);

#endif
