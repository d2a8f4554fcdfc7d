/* A ring of fixed-size records, always on: the newest overwrite the oldest. */
#include "lib/context.h"

/* Where the next one is written; NULL: none is kept. */
static struct gf_trace_record *next(gf_context *gf)
{
    struct gf_trace *trace = &gf->observed.trace;
    struct gf_trace_record *record = &trace->records[trace->next];
    if (trace->record_max == 0) return NULL;
    /* division is slow */
    trace->next = (trace->next + 1 < trace->record_max) ? trace->next + 1 : 0;
    trace->written++;
    record->step = gf->step.number;
    return record;
}

void gf_trace_op(gf_context *gf, const struct gf_op *op, gf_status status, uint64_t now_ns)
{
    uint64_t pack_ns = (op->kind->pack != NULL) ? op->begin_ns - op->taken_ns : 0;
    struct gf_trace_record *record = next(gf);
    if (record == NULL) return;
    record->begin_ns = op->begin_ns;
    record->end_ns = now_ns;
    record->bytes = op->coll.bytes;
    record->operation = (uint32_t)op->operation;
    record->algorithm = (uint32_t)op->algorithm;
    record->buffer = op->number;
    record->first_tensor = op->first_tensor;
    record->tensor_count = op->tensor_count;
    record->status = (int32_t)status;
    record->waited_for = op->waited_for;
    record->pack_ns = (pack_ns < UINT32_MAX) ? (uint32_t)pack_ns : UINT32_MAX;
}

void gf_trace_wait(gf_context *gf, gf_status status, uint64_t begin_ns, uint64_t end_ns)
{
    struct gf_trace_record *record = next(gf);
    if (record == NULL) return;
    *record = (struct gf_trace_record){.step = gf->step.number,
                                       .begin_ns = begin_ns,
                                       .end_ns = end_ns,
                                       .operation = GF_OPERATION_WAIT,
                                       .first_tensor = GF_TENSOR_NONE,
                                       .status = (int32_t)status,
                                       .waited_for = GF_RANK_NONE};
}

uint32_t gf_trace_read(gf_context *gf, struct gf_trace_record *records, uint32_t record_max)
{
    struct gf_trace *trace;
    uint32_t count = 0;
    if ((gf == NULL) || (records == NULL)) return 0;
    trace = &gf->observed.trace;
    if (trace->written - trace->read > trace->record_max)
        trace->read = trace->written - trace->record_max;
    while ((count < record_max) && (trace->read < trace->written))
        records[count++] = trace->records[trace->read++ % trace->record_max];
    return count;
}
