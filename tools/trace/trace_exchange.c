/* Exchanges over all files: who took part when, and who began last. */
#include <stdlib.h>

#include "tools/trace/trace.h"

static int by_exchange(const void *left, const void *right)
{
    const struct trace_post *a = left;
    const struct trace_post *b = right;
    const struct gf_trace_record *a_record = a->record;
    const struct gf_trace_record *b_record = b->record;
    if (a_record->step != b_record->step) return (a_record->step < b_record->step) ? -1 : 1;
    if (a_record->operation != b_record->operation)
        return (a_record->operation < b_record->operation) ? -1 : 1;
    if (a_record->buffer != b_record->buffer) return (a_record->buffer < b_record->buffer) ? -1 : 1;
    if (a->begin_ns != b->begin_ns) return (a->begin_ns < b->begin_ns) ? -1 : 1;
    return (a->file > b->file) - (a->file < b->file);
}

static bool same_exchange(const struct trace_post *a, const struct trace_post *b)
{
    return (a->record->step == b->record->step) && (a->record->operation == b->record->operation) &&
           (a->record->buffer == b->record->buffer);
}

uint64_t trace_exchange_end(const struct trace_post *posts, uint64_t count, uint64_t at)
{
    uint64_t end = at + 1;
    while ((end < count) && same_exchange(&posts[at], &posts[end])) end++;
    return end;
}

struct trace_post *trace_posts(const struct trace *trace, uint64_t *count_out)
{
    uint64_t count = 0;
    struct trace_post *posts;
    for (uint32_t f = 0; f < trace->file_count; f++) count += trace->files[f].head.record_count;
    if ((posts = malloc((count + 1) * sizeof *posts)) == NULL) return NULL;
    count = 0;
    for (uint32_t f = 0; f < trace->file_count; f++) {
        const struct trace_file *file = &trace->files[f];
        for (uint64_t i = 0; i < file->head.record_count; i++)
            if (trace_is_exchange(&file->records[i]))
                posts[count++] = (struct trace_post){
                    .file = f,
                    .record = &file->records[i],
                    .begin_ns = trace_time(trace, file, file->records[i].begin_ns),
                    .end_ns = trace_time(trace, file, file->records[i].end_ns)};
    }
    qsort(posts, count, sizeof *posts, by_exchange);
    *count_out = count;
    return posts;
}
