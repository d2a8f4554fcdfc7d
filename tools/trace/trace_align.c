/* One clock for all files. Ranks of one host share theirs. For another host's the exchanges say
 * what its offset can be: no rank has the sum before every rank has posted its part, so an exchange
 * ends on each rank after it began on every other. With a's times as they are and b's moved by d,
 * for each exchange that both took part in,
 *     a.begin - b.end <= d <= a.end - b.begin
 * and the middle of what all of them leave is wrong by at most half its width, which the shortest
 * exchanges (votes) keep small. The bounds may cross a little: clocks drift apart, and a record's
 * times are those at which the turn began that found it begun or ended. */
#include <stdlib.h>
#include <string.h>

#include "tools/trace/trace.h"

#define CROSSED_NS_MAX INT64_C(1000000000) /* beyond this the files are not of one run */

bool trace_is_exchange(const struct gf_trace_record *record)
{
    return (record->operation == GF_OPERATION_STEP) || (record->operation == GF_OPERATION_VOTE);
}

uint64_t trace_time(const struct trace *trace, const struct trace_file *file, uint64_t time_ns)
{
    int64_t time = (int64_t)time_ns + file->shift_ns - trace->origin_ns;
    return (time > 0) ? (uint64_t)time : 0;
}

static int by_rank(const void *left, const void *right)
{
    const struct trace_file *a = left;
    const struct trace_file *b = right;
    return (a->head.rank > b->head.rank) - (a->head.rank < b->head.rank);
}

static int files_match(const struct trace *trace, char *error_out)
{
    const struct trace_file *first = &trace->files[0];
    for (uint32_t i = 1; i < trace->file_count; i++) {
        const struct trace_file *file = &trace->files[i];
        const char *wrong = NULL;
        if (file->head.rank == file[-1].head.rank)
            wrong = "are of the same rank";
        else if (file->head.world != first->head.world)
            wrong = "are of jobs of different sizes";
        else if ((file->head.tensor_count != first->head.tensor_count) ||
                 (memcmp(file->names, first->names,
                         first->head.tensor_count * sizeof *first->names) != 0))
            wrong = "are of different tensors";
        if (wrong == NULL) continue;
        (void)snprintf(error_out, TRACE_ERROR_BYTES, "%.200s and %.200s %s", file[-1].path,
                       file->path, wrong);
        return -1;
    }
    return 0;
}

struct bounds {
    int64_t low, high; /* of what is added to b's times */
    bool any;
};

static bool usable(const struct gf_trace_record *record)
{
    return trace_is_exchange(record) && (record->status == GF_OK);
}

/* By what it was: the same operation has the same place on all ranks. */
static int by_key(const struct gf_trace_record *a, const struct gf_trace_record *b)
{
    if (a->step != b->step) return (a->step < b->step) ? -1 : 1;
    if (a->operation != b->operation) return (a->operation < b->operation) ? -1 : 1;
    return (a->buffer > b->buffer) - (a->buffer < b->buffer);
}

static int by_key_then_time(const void *left, const void *right)
{
    const struct gf_trace_record *a = left;
    const struct gf_trace_record *b = right;
    int order = by_key(a, b);
    return (order != 0) ? order : (a->begin_ns > b->begin_ns) - (a->begin_ns < b->begin_ns);
}

/* Steps come one after the other: those of a number lie together, and apart where a regroup
 * went back to it. */
static int by_time(const void *left, const void *right)
{
    const struct gf_trace_record *a = left;
    const struct gf_trace_record *b = right;
    if (a->begin_ns != b->begin_ns) return (a->begin_ns < b->begin_ns) ? -1 : 1;
    return (a->end_ns > b->end_ns) - (a->end_ns < b->end_ns);
}

static void files_sort(struct trace *trace, int (*by)(const void *left, const void *right))
{
    for (uint32_t i = 0; i < trace->file_count; i++)
        qsort(trace->files[i].records, trace->files[i].head.record_count,
              sizeof *trace->files[i].records, by);
}

/* A step that was made again on one rank may have been made once on another: which belong together
 * is not known. */
static bool once(const struct trace_file *file, uint64_t at)
{
    const struct gf_trace_record *record = &file->records[at];
    return ((at == 0) || (by_key(record - 1, record) != 0)) &&
           ((at + 1 == file->head.record_count) || (by_key(record, record + 1) != 0));
}

/* Both are sorted by key. */
static void bounds_add(struct bounds *bounds, const struct trace_file *a,
                       const struct trace_file *b)
{
    uint64_t i = 0;
    uint64_t j = 0;
    while ((i < a->head.record_count) && (j < b->head.record_count)) {
        const struct gf_trace_record *x = &a->records[i];
        const struct gf_trace_record *y = &b->records[j];
        int order = by_key(x, y);
        bool pair = (order == 0) && usable(x) && usable(y) && once(a, i) && once(b, j);
        i += (order <= 0) ? 1 : 0;
        j += (order >= 0) ? 1 : 0;
        if (!pair) continue;
        int64_t low = (int64_t)x->begin_ns - (int64_t)y->end_ns;
        int64_t high = (int64_t)x->end_ns - (int64_t)y->begin_ns;
        if (!bounds->any || (low > bounds->low)) bounds->low = low;
        if (!bounds->any || (high < bounds->high)) bounds->high = high;
        bounds->any = true;
    }
}

/* The clock of files[at], from every file of the first clock. */
static int clock_align(struct trace *trace, uint32_t at, char *error_out)
{
    struct trace_file *file = &trace->files[at];
    struct trace_file *first = &trace->files[0];
    bool same = strcmp(file->head.clock, first->head.clock) == 0;
    struct bounds bounds = {.any = false};
    int64_t crossed;
    for (uint32_t i = 0; i < trace->file_count; i++) {
        if (strcmp(trace->files[i].head.clock, first->head.clock) != 0) continue;
        if (same && (i > 0)) break; /* one look is enough to know that it is the same run */
        for (uint32_t j = at; !same && (j < trace->file_count); j++)
            if (strcmp(trace->files[j].head.clock, file->head.clock) == 0)
                bounds_add(&bounds, &trace->files[i], &trace->files[j]);
        if (same) bounds_add(&bounds, first, file);
    }
    crossed = same ? ((bounds.low > 0)    ? bounds.low
                      : (bounds.high < 0) ? -bounds.high
                                          : 0)
                   : bounds.low - bounds.high;
    if (!bounds.any || (crossed > CROSSED_NS_MAX)) {
        (void)snprintf(error_out, TRACE_ERROR_BYTES,
                       "%.200s and %.200s %s: they are not of one run", first->path, file->path,
                       bounds.any ? "contradict each other in time" : "have no exchange in common");
        return -1;
    }
    if (same) return 0;
    for (uint32_t j = at; j < trace->file_count; j++) {
        if (strcmp(trace->files[j].head.clock, file->head.clock) != 0) continue;
        trace->files[j].shift_ns = bounds.low + (bounds.high - bounds.low) / 2;
        trace->files[j].shift_error_ns = (uint64_t)llabs(bounds.high - bounds.low) / 2 + 1;
    }
    return 0;
}

/* Is files[at] the first with its clock? */
static bool clock_is_new(const struct trace *trace, uint32_t at)
{
    for (uint32_t i = 0; i < at; i++)
        if (strcmp(trace->files[i].head.clock, trace->files[at].head.clock) == 0) return false;
    return true;
}

static void span_find(struct trace *trace)
{
    trace->origin_ns = INT64_MAX;
    trace->first_step = trace->last_step = TRACE_NONE;
    for (uint32_t i = 0; i < trace->file_count; i++) {
        const struct trace_file *file = &trace->files[i];
        for (uint64_t r = 0; r < file->head.record_count; r++) {
            const struct gf_trace_record *record = &file->records[r];
            int64_t begin_ns = (int64_t)(record->begin_ns - record->pack_ns) + file->shift_ns;
            if (begin_ns < trace->origin_ns) trace->origin_ns = begin_ns;
            if (!trace_is_exchange(record) && (record->operation != GF_OPERATION_WAIT)) continue;
            /* TRACE_NONE is the largest */
            if (record->step < trace->first_step) trace->first_step = record->step;
            if ((trace->last_step == TRACE_NONE) || (record->step > trace->last_step))
                trace->last_step = record->step;
        }
        if ((file->head.lost_count == 0) &&
            ((int64_t)file->head.begin_ns + file->shift_ns < trace->origin_ns))
            trace->origin_ns = (int64_t)file->head.begin_ns + file->shift_ns;
    }
    if (trace->origin_ns == INT64_MAX) trace->origin_ns = 0;
}

int trace_align(struct trace *trace, char *error_out)
{
    qsort(trace->files, trace->file_count, sizeof *trace->files, by_rank);
    if (files_match(trace, error_out) != 0) return -1;
    files_sort(trace, by_key_then_time);
    for (uint32_t i = 1; i < trace->file_count; i++) {
        bool same = strcmp(trace->files[i].head.clock, trace->files[0].head.clock) == 0;
        if ((same || clock_is_new(trace, i)) && (clock_align(trace, i, error_out) != 0)) return -1;
    }
    files_sort(trace, by_time);
    span_find(trace);
    return 0;
}
