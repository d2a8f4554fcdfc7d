/* The Trace Event Format that Perfetto and chrome://tracing open: a process a rank, a thread a lane, times in us. Spans
 * of a thread never cross there: either nested or apart. Threads have numbers of their own in the whole file, for viewers
 * take a number that two processes share for one thread. */
#include <inttypes.h>
#include <stdlib.h>

#include "tools/trace/trace.h"

struct writer {
    const struct trace *trace;
    uint8_t **lanes; /* [file_count][record_count] */
    FILE *out;
};

uint32_t trace_thread(const struct trace_file *file, uint32_t lane)
{
    return file->head.rank * TRACE_LANES_MAX + lane;
}

static void span_write(void *user, const struct trace_file *file, const struct trace_span *span)
{
    static const char *const kinds[] = {"compute", "wait", "pack", "buffer", "vote", "checkpoint", "other"};
    const struct writer *writer = user;
    const struct gf_trace_record *record = span->record;
    char label[TRACE_LABEL_BYTES];
    if ((span->kind != TRACE_COMPUTE) && (span->kind != TRACE_PACK))
        writer->lanes[file - writer->trace->files][record - file->records] = (uint8_t)span->lane;
    trace_label(file, span, label);
    (void)fprintf(writer->out,
                  ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%u,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,"
                  "\"args\":{\"step\":%" PRIu64,
                  label, kinds[span->kind], file->head.rank, trace_thread(file, span->lane),
                  (double)span->begin_ns * 1e-3, (double)(span->end_ns - span->begin_ns) * 1e-3, record->step);
    if ((span->kind == TRACE_BUFFER) || (span->kind == TRACE_VOTE) || (span->kind == TRACE_OTHER)) {
        (void)fprintf(writer->out, ",\"bytes\":%" PRIu64 ",\"algorithm\":\"%s\",\"status\":\"%s\"", record->bytes,
                      gf_algorithm_name((gf_algorithm)record->algorithm), gf_status_name((gf_status)record->status));
        if (record->waited_for != GF_RANK_NONE) (void)fprintf(writer->out, ",\"waited_for\":%u", record->waited_for);
    }
    (void)fprintf(writer->out, "}}");
}

static int events_write(struct writer *writer)
{
    const struct trace *trace = writer->trace;
    FILE *out = writer->out;
    (void)fprintf(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                       "{\"name\":\"job\",\"ph\":\"M\",\"pid\":%u,\"args\":{\"ranks\":%u}}",
                  trace->files[0].head.rank, trace->files[0].head.world);
    for (uint32_t f = 0; f < trace->file_count; f++) {
        const struct trace_file *file = &trace->files[f];
        (void)fprintf(out, ",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%u,\"args\":{\"name\":"
                           "\"rank %u on %s\"}}",
                      file->head.rank, file->head.rank, file->head.node);
        (void)fprintf(out, ",\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%u,\"args\":{\"sort_index\":%u}}",
                      file->head.rank, file->head.rank);
        uint32_t lanes = trace_spans(trace, file, 0, TRACE_NONE - 1, span_write, writer);
        for (uint32_t lane = 0; lane < lanes; lane++) {
            char name[16] = "appliance";
            if (lane != 0) (void)snprintf(name, sizeof name, "wire %u", lane);
            (void)fprintf(out, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%u,\"tid\":%u,"
                               "\"args\":{\"name\":\"%s\"}}", file->head.rank, trace_thread(file, lane), name);
            (void)fprintf(out, ",\n{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":%u,\"tid\":%u,"
                               "\"args\":{\"sort_index\":%u}}", file->head.rank, trace_thread(file, lane), lane);
        }
    }
    for (uint32_t f = 0; f < trace->file_count; f++)
        if (trace_counters(trace, &trace->files[f], out) != 0) return -1;
    int result = trace_arrows(trace, (const uint8_t *const *)writer->lanes, out);
    (void)fprintf(out, "\n]}\n");
    return result;
}

int trace_json(const struct trace *trace, FILE *out)
{
    struct writer writer = {.trace = trace, .lanes = calloc(trace->file_count, sizeof *writer.lanes), .out = out};
    int result = (writer.lanes == NULL) ? -1 : 0;
    for (uint32_t f = 0; (result == 0) && (f < trace->file_count); f++)
        if ((writer.lanes[f] = calloc(trace->files[f].head.record_count + 1, 1)) == NULL) result = -1;
    if (result == 0) result = events_write(&writer);
    for (uint32_t f = 0; (writer.lanes != NULL) && (f < trace->file_count); f++) free(writer.lanes[f]);
    free(writer.lanes);
    return result;
}
