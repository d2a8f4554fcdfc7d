/* A ring of fixed-size records, always on: the newest overwrite the oldest. gf_trace_write() makes
 * a file of it for tools/trace. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/context.h"
#include "lib/core/accessors.h"
#include "drivers/base/arithmetic.h"

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

void gf_trace_begin(gf_context *gf)
{
    if (gf->observed.trace.begin_ns == 0) gf->observed.trace.begin_ns = gf_now(gf);
}

void gf_trace_op(gf_context *gf, const struct gf_op *op, gf_status status, uint64_t now_ns)
{
    uint64_t pack_ns = (op->plan.kind->pack != NULL) ? op->begin_ns - op->taken_ns : 0;
    struct gf_trace_record *record = next(gf);
    if (record == NULL) return;
    record->begin_ns = op->begin_ns;
    record->end_ns = now_ns;
    record->bytes = op->coll.bytes;
    record->operation = (uint32_t)op->plan.operation;
    record->algorithm = (uint32_t)op->plan.algorithm;
    record->buffer = op->plan.number;
    record->first_tensor = op->first_tensor;
    if (op->plan.operation == GF_OPERATION_VOTE)
        memcpy(&record->first_tensor, &gf->loss_scale.value, sizeof record->first_tensor);
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

gf_status gf_trace_checkpoint(gf_context *gf, uint64_t begin_ns, uint64_t end_ns)
{
    GF_COMPUTES();
    struct gf_trace_record *record;
    if ((gf == NULL) || (end_ns < begin_ns)) return GF_ERR_PARAM;
    record = next(gf);
    if (record != NULL)
        *record = (struct gf_trace_record){.step = gf->step.number,
                                           .begin_ns = begin_ns,
                                           .end_ns = end_ns,
                                           .operation = GF_OPERATION_NONE,
                                           .first_tensor = GF_TENSOR_NONE,
                                           .waited_for = GF_RANK_NONE};
    return GF_OK;
}

/* ---- the file ---- */

_Static_assert(sizeof(struct gf_trace_head) == 128, "as in files");
_Static_assert(sizeof(struct gf_trace_record) == 64, "as in files");
_Static_assert(GF_TRACE_NAME_BYTES == GF_NAME_BYTES, "names are written as they are kept");

/* Ranks have one clock where the kernel was booted once; without an id a rank is alone with its
 * own. */
static void clock_name(uint32_t rank, char *name_out, size_t bytes)
{
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length = (file >= 0) ? read(file, name_out, 36) : -1;
    if (file >= 0) (void)close(file);
    if (length == 36)
        name_out[36] = '\0';
    else
        (void)snprintf(name_out, bytes, "unknown clock of rank %u", rank);
}

gf_status gf_trace_write(const gf_context *gf, gf_trace_put put, void *user)
{
    GF_COMPUTES();
    if ((gf == NULL) || (put == NULL)) return GF_ERR_PARAM;
    const struct gf_trace *trace = &gf->observed.trace;
    uint64_t kept = (trace->written < trace->record_max) ? trace->written : trace->record_max;
    uint64_t oldest = (trace->written > kept) ? trace->next : 0;
    struct gf_trace_head head = {.magic = GF_TRACE_MAGIC,
                                 .version = GF_TRACE_VERSION,
                                 .record_bytes = sizeof *trace->records,
                                 .rank = gf->rank,
                                 .world = gf->world,
                                 .tensor_count = gf->tensor_count,
                                 .record_count = kept,
                                 .lost_count = trace->written - kept,
                                 .begin_ns = trace->begin_ns};
    clock_name(gf->rank, head.clock, sizeof head.clock);
    if (gethostname(head.node, sizeof head.node - 1) != 0) head.node[0] = '\0';
    if (put(user, &head, sizeof head) != 0) return GF_ERR_SYSTEM;
    for (uint32_t i = 0; i < gf->tensor_count; i++)
        if (put(user, gf->tensors[i].name, GF_TRACE_NAME_BYTES) != 0) return GF_ERR_SYSTEM;
    uint64_t later = kept - oldest; /* from the oldest to the end of the ring; the rest is newer */
    if ((later > 0) && (put(user, trace->records + oldest, later * sizeof *trace->records) != 0))
        return GF_ERR_SYSTEM;
    if ((oldest > 0) && (put(user, trace->records, oldest * sizeof *trace->records) != 0))
        return GF_ERR_SYSTEM;
    return GF_OK;
}
