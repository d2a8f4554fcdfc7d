/* Exchanges over all files: who took part when, who began last, and between whom it then took long. */
#include <inttypes.h>
#include <stdlib.h>

#include "tools/trace/trace.h"

#define LINK_FILES_MAX 1024u /* a table of their pairs */

static int by_exchange(const void *left, const void *right)
{
    const struct trace_post *a = left, *b = right;
    const struct gf_trace_record *a_record = a->record, *b_record = b->record;
    if (a_record->step != b_record->step) return (a_record->step < b_record->step) ? -1 : 1;
    if (a_record->operation != b_record->operation) return (a_record->operation < b_record->operation) ? -1 : 1;
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
                posts[count++] = (struct trace_post){.file = f, .record = &file->records[i],
                                                     .begin_ns = trace_time(trace, file, file->records[i].begin_ns),
                                                     .end_ns = trace_time(trace, file, file->records[i].end_ns)};
    }
    qsort(posts, count, sizeof *posts, by_exchange);
    *count_out = count;
    return posts;
}

static uint32_t file_of(const struct trace *trace, uint32_t rank)
{
    uint32_t f = 0;
    while ((f < trace->file_count) && (trace->files[f].head.rank != rank)) f++;
    return f;
}

/* What ranks waited for one another after the last one had begun: then it was not lateness. A link is named that has
 * more than half of all that, in three files or more: of two ranks there is no other to compare with. */
void trace_link_print(const struct trace *trace, const struct trace_post *posts, uint64_t count, FILE *out)
{
    struct link {
        uint64_t ns, times;
    } *links, all = {0, 0}, most = {0, 0};
    uint32_t files = trace->file_count, low = 0, high = 0;
    if ((files < 3) || (files > LINK_FILES_MAX)) return;
    if ((links = calloc((size_t)files * files, sizeof *links)) == NULL) return;
    for (uint64_t at = 0, end; at < count; at = end) {
        end = trace_exchange_end(posts, count, at);
        const struct trace_post *last = &posts[end - 1];
        if (end - at != files) continue;
        for (uint64_t i = at; i < end; i++) {
            uint32_t other = (posts[i].record->waited_for == GF_RANK_NONE) ? files
                                                                          : file_of(trace, posts[i].record->waited_for);
            if ((other == files) || (other == last->file) || (posts[i].end_ns <= last->begin_ns)) continue;
            uint32_t a = (other < posts[i].file) ? other : posts[i].file, b = (a == other) ? posts[i].file : other;
            links[a * files + b].ns += posts[i].end_ns - last->begin_ns;
            links[a * files + b].times++;
        }
    }
    for (uint32_t a = 0; a < files; a++)
        for (uint32_t b = a; b < files; b++) {
            const struct link *link = &links[a * files + b];
            all.ns += link->ns;
            if (link->ns <= most.ns) continue;
            most = *link;
            low = a;
            high = b;
        }
    if ((most.ns > 0) && (most.ns > all.ns / 2))
        (void)fprintf(out, "link      between ranks %u and %u: %" PRIu64 " times one waited longest for the other when "
                           "all had begun, %.2f ms each\n", trace->files[low].head.rank, trace->files[high].head.rank,
                      most.times, (double)most.ns * 1e-6 / (double)most.times);
    free(links);
}
