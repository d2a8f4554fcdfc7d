/* The Trace Event Format that Perfetto and chrome://tracing open: a process a rank, a thread a
 * track, times in us. Spans of a thread never cross there: either nested or apart. Threads have
 * numbers of their own in the whole file, for viewers take a number that two processes share for
 * one thread. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/tool_output.h"
#include "tools/trace/trace.h"

struct writer {
    const struct trace *trace;
    uint8_t **tracks; /* [file_count][record_count] */
    FILE *out;
};

/* Its number there. */
static uint32_t thread_of(const struct trace_file *file, uint32_t track)
{
    return file->head.rank * TRACE_TRACKS_MAX + track;
}

static void span_write(void *user, const struct trace_file *file, const struct trace_span *span)
{
    static const char *const kinds[] = {"compute", "wait",       "pack", "buffer",
                                        "vote",    "checkpoint", "other"};
    const struct writer *writer = user;
    const struct gf_trace_record *record = span->record;
    char label[TRACE_LABEL_BYTES];
    if ((span->kind != TRACE_COMPUTE) && (span->kind != TRACE_PACK))
        writer->tracks[file - writer->trace->files][record - file->records] = (uint8_t)span->track;
    trace_label(file, span, label);
    (void)fputs(",\n{\"name\":", writer->out);
    tool_json_text(writer->out, label);
    (void)fprintf(writer->out,
                  ",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%u,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,"
                  "\"args\":{\"step\":%" PRIu64,
                  kinds[span->kind], file->head.rank, thread_of(file, span->track),
                  (double)span->begin_ns * 1e-3, (double)(span->end_ns - span->begin_ns) * 1e-3,
                  record->step);
    if ((span->kind == TRACE_BUFFER) || (span->kind == TRACE_VOTE) || (span->kind == TRACE_OTHER)) {
        (void)fprintf(writer->out, ",\"bytes\":%" PRIu64 ",\"algorithm\":\"%s\",\"status\":\"%s\"",
                      record->bytes, gf_algorithm_name((gf_algorithm)record->algorithm),
                      gf_status_name((gf_status)record->status));
        if (record->waited_for != GF_RANK_NONE)
            (void)fprintf(writer->out, ",\"waited_for\":%u", record->waited_for);
    }
    (void)fprintf(writer->out, "}}");
}

/* ---- arrows from the rank that began last to those that waited, and counters ---- */

struct change {
    uint64_t time_ns;
    int64_t bytes;
};

static void event_write(FILE *out, const char *phase, uint64_t id, const struct trace_file *file,
                        uint32_t thread, uint64_t time_ns)
{
    (void)fprintf(
        out,
        ",\n{\"name\":\"waited for\",\"cat\":\"last to begin\",\"ph\":\"%s\",\"id\":%" PRIu64
        ",\"pid\":%u,\"tid\":%u,\"ts\":%.3f}",
        phase, id, file->head.rank, thread, (double)time_ns * 1e-3);
}

static int arrows_write(const struct trace *trace, const uint8_t *const *tracks, FILE *out)
{
    uint64_t count;
    uint64_t id = 0;
    struct trace_post *posts = trace_posts(trace, &count);
    if (posts == NULL) return -1;
    for (uint64_t at = 0, end; at < count; at = end) {
        end = trace_exchange_end(posts, count, at);
        const struct trace_post *last = &posts[end - 1];
        for (uint64_t i = at; i + 1 < end; i++) {
            const struct trace_file *from = &trace->files[last->file];
            const struct trace_file *to = &trace->files[posts[i].file];
            /* clocks that were aligned may cross a little */
            if (posts[i].end_ns <= last->begin_ns) continue;
            event_write(out, "s", ++id, from,
                        thread_of(from, tracks[last->file][last->record - from->records]),
                        last->begin_ns);
            event_write(out, "f\",\"bp\":\"e", id, to,
                        thread_of(to, tracks[posts[i].file][posts[i].record - to->records]),
                        posts[i].end_ns - 1);
        }
    }
    free(posts);
    return 0;
}

static int by_time(const void *left, const void *right)
{
    const struct change *a = left;
    const struct change *b = right;
    if (a->time_ns != b->time_ns) return (a->time_ns < b->time_ns) ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes); /* what ends before what begins */
}

static void counter_write(FILE *out, const struct trace_file *file, const char *name,
                          uint64_t time_ns, double value)
{
    (void)fprintf(
        out, ",\n{\"name\":\"%s\",\"ph\":\"C\",\"pid\":%u,\"ts\":%.3f,\"args\":{\"%s\":%.17g}}",
        name, file->head.rank, (double)time_ns * 1e-3, name, value);
}

static int counters_write(const struct trace *trace, const struct trace_file *file, FILE *out)
{
    struct change *changes = malloc((2 * file->head.record_count + 1) * sizeof *changes);
    uint64_t count = 0;
    int64_t bytes = 0;
    float scale_before = 0;
    if (changes == NULL) return -1;
    for (uint64_t i = 0; i < file->head.record_count; i++) {
        const struct gf_trace_record *record = &file->records[i];
        uint64_t end_ns = trace_time(trace, file, record->end_ns);
        float scale;
        memcpy(&scale, &record->first_tensor, sizeof scale);
        if ((record->operation == GF_OPERATION_VOTE) && isfinite(scale) && (scale > 0) &&
            (scale != scale_before)) {
            counter_write(out, file, "loss scale", end_ns, (double)scale);
            scale_before = scale;
        }
        if ((record->bytes == 0) ||
            (record->bytes > INT64_MAX / 4 / (file->head.record_count + 1)) ||
            (record->operation == GF_OPERATION_WAIT))
            continue;
        changes[count++] =
            (struct change){trace_time(trace, file, record->begin_ns), (int64_t)record->bytes};
        changes[count++] = (struct change){end_ns, -(int64_t)record->bytes};
    }
    qsort(changes, count, sizeof *changes, by_time);
    for (uint64_t i = 0; i < count; i++) {
        bytes += changes[i].bytes;
        /* one value a moment */
        if ((i + 1 < count) && (changes[i + 1].time_ns == changes[i].time_ns)) continue;
        counter_write(out, file, "bytes in flight", changes[i].time_ns, (double)bytes);
    }
    free(changes);
    return 0;
}

/* ---- the file ---- */

static int events_write(struct writer *writer)
{
    const struct trace *trace = writer->trace;
    FILE *out = writer->out;
    (void)fprintf(out,
                  "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                  "{\"name\":\"job\",\"ph\":\"M\",\"pid\":%u,\"args\":{\"ranks\":%u}}",
                  trace->files[0].head.rank, trace->files[0].head.world);
    for (uint32_t f = 0; f < trace->file_count; f++) {
        const struct trace_file *file = &trace->files[f];
        char process[sizeof file->head.node + 32];
        (void)fprintf(out,
                      ",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%u,\"args\":{\"name\":",
                      file->head.rank);
        (void)snprintf(process, sizeof process, "rank %u on %s", file->head.rank, file->head.node);
        tool_json_text(out, process);
        (void)fputs("}}", out);
        (void)fprintf(out,
                      ",\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%u,\"args\":{"
                      "\"sort_index\":%u}}",
                      file->head.rank, file->head.rank);
        uint32_t tracks = trace_spans(trace, file, 0, TRACE_NONE - 1, span_write, writer);
        for (uint32_t track = 0; track < tracks; track++) {
            char name[16] = "appliance";
            if (track != 0) (void)snprintf(name, sizeof name, "wire %u", track);
            (void)fprintf(out,
                          ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%u,\"tid\":%u,"
                          "\"args\":{\"name\":\"%s\"}}",
                          file->head.rank, thread_of(file, track), name);
            (void)fprintf(out,
                          ",\n{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":%u,\"tid\":%u,"
                          "\"args\":{\"sort_index\":%u}}",
                          file->head.rank, thread_of(file, track), track);
        }
    }
    for (uint32_t f = 0; f < trace->file_count; f++)
        if (counters_write(trace, &trace->files[f], out) != 0) return -1;
    int result = arrows_write(trace, (const uint8_t *const *)writer->tracks, out);
    (void)fprintf(out, "\n]}\n");
    return result;
}

int trace_json(const struct trace *trace, FILE *out)
{
    struct writer writer = {
        .trace = trace, .tracks = calloc(trace->file_count, sizeof *writer.tracks), .out = out};
    int result = (writer.tracks == NULL) ? -1 : 0;
    for (uint32_t f = 0; (result == 0) && (f < trace->file_count); f++)
        if ((writer.tracks[f] = calloc(trace->files[f].head.record_count + 1, 1)) == NULL)
            result = -1;
    if (result == 0) result = events_write(&writer);
    for (uint32_t f = 0; (writer.tracks != NULL) && (f < trace->file_count); f++)
        free(writer.tracks[f]);
    free(writer.tracks);
    return result;
}
