/* What the Perfetto file has beside spans: arrows from the rank that began last to those that waited, and counters. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/trace/trace.h"

struct change {
    uint64_t time_ns;
    int64_t bytes;
};

static void event_write(FILE *out, const char *phase, uint64_t id, const struct trace_file *file, uint32_t thread,
                        uint64_t time_ns)
{
    (void)fprintf(out, ",\n{\"name\":\"waited for\",\"cat\":\"last to begin\",\"ph\":\"%s\",\"id\":%" PRIu64
                       ",\"pid\":%u,\"tid\":%u,\"ts\":%.3f}",
                  phase, id, file->head.rank, thread, (double)time_ns * 1e-3);
}

int trace_arrows(const struct trace *trace, const uint8_t *const *lanes, FILE *out)
{
    uint64_t count, id = 0;
    struct trace_post *posts = trace_posts(trace, &count);
    if (posts == NULL) return -1;
    for (uint64_t at = 0, end; at < count; at = end) {
        end = trace_exchange_end(posts, count, at);
        const struct trace_post *last = &posts[end - 1];
        for (uint64_t i = at; i + 1 < end; i++) {
            const struct trace_file *from = &trace->files[last->file], *to = &trace->files[posts[i].file];
            if (posts[i].end_ns <= last->begin_ns) continue; /* clocks that were aligned may cross a little */
            event_write(out, "s", ++id, from, trace_thread(from, lanes[last->file][last->record - from->records]),
                        last->begin_ns);
            event_write(out, "f\",\"bp\":\"e", id, to,
                        trace_thread(to, lanes[posts[i].file][posts[i].record - to->records]), posts[i].end_ns - 1);
        }
    }
    free(posts);
    return 0;
}

static int by_time(const void *left, const void *right)
{
    const struct change *a = left, *b = right;
    if (a->time_ns != b->time_ns) return (a->time_ns < b->time_ns) ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes); /* what ends before what begins */
}

static void counter_write(FILE *out, const struct trace_file *file, const char *name, uint64_t time_ns, double value)
{
    (void)fprintf(out, ",\n{\"name\":\"%s\",\"ph\":\"C\",\"pid\":%u,\"ts\":%.3f,\"args\":{\"%s\":%.17g}}", name,
                  file->head.rank, (double)time_ns * 1e-3, name, value);
}

int trace_counters(const struct trace *trace, const struct trace_file *file, FILE *out)
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
        if ((record->operation == GF_OPERATION_VOTE) && isfinite(scale) && (scale > 0) && (scale != scale_before)) {
            counter_write(out, file, "loss scale", end_ns, (double)scale);
            scale_before = scale;
        }
        if ((record->bytes == 0) || (record->bytes > INT64_MAX / 4 / (file->head.record_count + 1)) ||
            (record->operation == GF_OPERATION_WAIT)) continue;
        changes[count++] = (struct change){trace_time(trace, file, record->begin_ns), (int64_t)record->bytes};
        changes[count++] = (struct change){end_ns, -(int64_t)record->bytes};
    }
    qsort(changes, count, sizeof *changes, by_time);
    for (uint64_t i = 0; i < count; i++) {
        bytes += changes[i].bytes;
        if ((i + 1 < count) && (changes[i + 1].time_ns == changes[i].time_ns)) continue; /* one value a moment */
        counter_write(out, file, "bytes in flight", changes[i].time_ns, (double)bytes);
    }
    free(changes);
    return 0;
}
