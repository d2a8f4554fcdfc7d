/* Which bar of a picture lies where. */
#include <string.h>

#include "tools/common/tool_output.h"
#include "tools/trace/trace.h"

struct tracks {
    uint64_t end_ns[TRACE_TRACKS_MAX];
    uint32_t count; /* the thread's own, 0, included */
};

/* The first track that is free by then; where all are taken the last one, where bars then cover
 * each other. */
static uint32_t track_take(struct tracks *tracks, uint64_t begin_ns, uint64_t end_ns)
{
    uint32_t track = 1;
    while ((track < tracks->count) && (tracks->end_ns[track] > begin_ns)) track++;
    if (track == TRACE_TRACKS_MAX) track--;
    if (track >= tracks->count) tracks->count = track + 1;
    tracks->end_ns[track] = end_ns;
    return track;
}

static trace_kind kind_of(const struct gf_trace_record *record)
{
    if (record->operation == GF_OPERATION_STEP) return TRACE_BUFFER;
    if (record->operation == GF_OPERATION_NONE) return TRACE_CHECKPOINT;
    return (record->operation == GF_OPERATION_VOTE) ? TRACE_VOTE : TRACE_OTHER;
}

uint32_t trace_spans(const struct trace *trace, const struct trace_file *file, uint64_t first,
                     uint64_t last, trace_span_fn span, void *user)
{
    struct tracks tracks = {.count = 1};
    /* What is not a wait is computing, from the last one's end on. */
    uint64_t since_ns = (file->head.lost_count == 0) ? file->head.begin_ns : TRACE_NONE;
    for (uint64_t i = 0; i < file->head.record_count; i++) {
        const struct gf_trace_record *record = &file->records[i];
        bool inside = (record->step >= first) && (record->step <= last);
        struct trace_span bar = {.begin_ns = trace_time(trace, file, record->begin_ns),
                                 .end_ns = trace_time(trace, file, record->end_ns),
                                 .record = record};
        if (record->operation == GF_OPERATION_WAIT) {
            struct trace_span before = {
                .kind = TRACE_COMPUTE, .end_ns = bar.begin_ns, .record = record};
            if (inside && (since_ns < record->begin_ns)) {
                before.begin_ns = trace_time(trace, file, since_ns);
                span(user, file, &before);
            }
            since_ns = record->end_ns;
            bar.kind = TRACE_WAIT;
            if (inside) span(user, file, &bar);
            continue;
        }
        if (!inside) continue;
        /* in the thread, inside of what is computing else */
        if (record->operation == GF_OPERATION_NONE) {
            bar.kind = TRACE_CHECKPOINT;
            span(user, file, &bar);
            continue;
        }
        uint64_t pack_ns = trace_time(trace, file, record->begin_ns - record->pack_ns);
        bar.kind = kind_of(record);
        bar.track = track_take(&tracks, pack_ns, bar.end_ns);
        if (pack_ns < bar.begin_ns) {
            struct trace_span pack = {.kind = TRACE_PACK,
                                      .track = bar.track,
                                      .begin_ns = pack_ns,
                                      .end_ns = bar.begin_ns,
                                      .record = record};
            span(user, file, &pack);
        }
        span(user, file, &bar);
    }
    return tracks.count;
}

void trace_label(const struct trace_file *file, const struct trace_span *span,
                 char label_out[static TRACE_LABEL_BYTES])
{
    const struct gf_trace_record *record = span->record;
    char more[32] = "";
    char name[4 * GF_TRACE_NAME_BYTES];
    switch (span->kind) {
    case TRACE_COMPUTE: (void)snprintf(label_out, TRACE_LABEL_BYTES, "compute"); return;
    case TRACE_WAIT: (void)snprintf(label_out, TRACE_LABEL_BYTES, "wait"); return;
    case TRACE_PACK:
        (void)snprintf(label_out, TRACE_LABEL_BYTES, "pack %u", record->buffer);
        return;
    case TRACE_VOTE: (void)snprintf(label_out, TRACE_LABEL_BYTES, "vote"); return;
    case TRACE_CHECKPOINT: (void)snprintf(label_out, TRACE_LABEL_BYTES, "checkpoint"); return;
    case TRACE_OTHER:
        (void)snprintf(label_out, TRACE_LABEL_BYTES, "%s",
                       gf_operation_name((gf_operation)record->operation));
        return;
    case TRACE_BUFFER: break;
    }
    if (record->tensor_count > 1)
        (void)snprintf(more, sizeof more, " and %u more", record->tensor_count - 1);
    tool_plain_text(file->names[record->first_tensor], name, sizeof name);
    (void)snprintf(label_out, TRACE_LABEL_BYTES, "buffer %u: %s%s", record->buffer, name, more);
}
