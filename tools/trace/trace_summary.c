/* What a trace says, in words. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/trace/trace.h"

struct share { /* of one rank, summed over its steps */
    uint64_t steps, compute_ns, wait_ns, exchange_ns, exposed_ns;
};

struct buffer { /* over all ranks */
    uint64_t times, exposed_ns;
    double bytes;
    const struct trace_file *file;
    const struct gf_trace_record *record; /* one of them */
};

struct late {
    uint64_t times, behind_ns; /* how often last, and by how much behind the one before */
};

static uint64_t overlap(uint64_t begin, uint64_t end, uint64_t low, uint64_t high)
{
    uint64_t from = (begin > low) ? begin : low;
    uint64_t to = (end < high) ? end : high;
    return (to > from) ? to - from : 0;
}

/* One step of one rank, records [count] by begin_ns: how long anything was on the wire, and how
 * much of that the rank spent waiting. */
static void step_add(const struct trace_file *file, const struct gf_trace_record *records,
                     uint64_t count, struct share *share, struct buffer *buffers)
{
    uint64_t wait_begin = 0;
    uint64_t wait_end = 0;
    uint64_t reached = 0;
    bool any = false;
    for (uint64_t i = 0; i < count; i++) {
        if (records[i].operation != GF_OPERATION_WAIT) continue;
        wait_begin = records[i].begin_ns; /* there is one a step */
        wait_end = records[i].end_ns;
    }
    share->wait_ns += wait_end - wait_begin;
    for (uint64_t i = 0; i < count; i++) {
        const struct gf_trace_record *record = &records[i];
        uint64_t fresh = (record->begin_ns > reached) ? record->begin_ns : reached;
        if (!trace_is_exchange(record)) continue;
        any = true;
        if (record->end_ns > fresh) {
            share->exchange_ns += record->end_ns - fresh;
            share->exposed_ns += overlap(fresh, record->end_ns, wait_begin, wait_end);
            reached = record->end_ns;
        }
        if (record->operation != GF_OPERATION_STEP) continue;
        struct buffer *buffer = &buffers[record->buffer];
        buffer->times++;
        buffer->bytes += (double)record->bytes;
        buffer->exposed_ns += overlap(record->begin_ns, record->end_ns, wait_begin, wait_end);
        buffer->file = file;
        buffer->record = record;
    }
    share->steps += any ? 1 : 0;
}

static void compute_add(void *user, const struct trace_file *file, const struct trace_span *span)
{
    struct share *share = user;
    (void)file;
    if (span->kind == TRACE_COMPUTE) share->compute_ns += span->end_ns - span->begin_ns;
}

static void file_add(const struct trace *trace, const struct trace_file *file, struct share *share,
                     struct buffer *buffers)
{
    uint64_t at = 0;
    uint64_t count = file->head.record_count;
    while (at < count) {
        uint64_t end = at + 1;
        while ((end < count) && (file->records[end].step == file->records[at].step)) end++;
        step_add(file, file->records + at, end - at, share, buffers);
        at = end;
    }
    (void)trace_spans(trace, file, 0, TRACE_NONE - 1, compute_add, share);
}

/* Returns how many exchanges all files hold. */
static uint64_t late_find(const struct trace *trace, const struct trace_post *posts, uint64_t count,
                          struct late *lates)
{
    uint64_t whole = 0;
    for (uint64_t at = 0, end; at < count; at = end) {
        end = trace_exchange_end(posts, count, at);
        if (end - at != trace->file_count) continue;
        struct late *late = &lates[posts[end - 1].file];
        late->times++;
        late->behind_ns += posts[end - 1].begin_ns - posts[end - 2].begin_ns;
        whole++;
    }
    return whole;
}

static double ms(uint64_t ns, uint64_t times)
{
    return (times == 0) ? 0.0 : (double)ns * 1e-6 / (double)times;
}

static unsigned percent(uint64_t part, uint64_t whole)
{
    if (part >= whole) return (whole == 0) ? 0 : 100;
    return (unsigned)(100.0 * (double)part / (double)whole + 0.5);
}

static void hidden_print(const struct share *all, FILE *out)
{
    if (all->exchange_ns == 0) {
        (void)fprintf(out, "hidden    no exchange was recorded\n");
        return;
    }
    (void)fprintf(out,
                  "hidden    %u %% of the exchange lay behind computing: %.2f ms a step on the "
                  "wire, of which "
                  "ranks waited for %.2f ms\n",
                  percent(all->exchange_ns - all->exposed_ns, all->exchange_ns),
                  ms(all->exchange_ns, all->steps), ms(all->exposed_ns, all->steps));
}

static void exposed_print(const struct buffer *buffers, FILE *out)
{
    const struct buffer *most = NULL;
    char label[TRACE_LABEL_BYTES];
    uint64_t all_ns = 0;
    double kb;
    for (uint32_t b = 0; b < GF_TENSORS_MAX; b++) {
        all_ns += buffers[b].exposed_ns;
        if ((buffers[b].exposed_ns > 0) &&
            ((most == NULL) || (buffers[b].exposed_ns > most->exposed_ns)))
            most = &buffers[b];
    }
    if (most == NULL) {
        (void)fprintf(out, "exposed   no buffer: nothing was on the wire while ranks waited\n");
        return;
    }
    trace_label(most->file, &(struct trace_span){.kind = TRACE_BUFFER, .record = most->record},
                label);
    kb = most->bytes * 1e-3 / (double)most->times;
    (void)fprintf(
        out,
        "exposed   %s (%.1f %s, %s): on the wire for %.2f ms a step while its rank waited, %u %% "
        "of all\n",
        label, (kb < 1000) ? kb : kb * 1e-3, (kb < 1000) ? "KB" : "MB",
        gf_algorithm_name((gf_algorithm)most->record->algorithm), ms(most->exposed_ns, most->times),
        percent(most->exposed_ns, all_ns));
}

/* From one file alone: whom its rank waited for longest in an operation. */
static void waited_print(const struct trace *trace, FILE *out)
{
    static uint32_t times[GF_WORLD_MAX];
    uint32_t most = 0;
    uint32_t count = 0;
    memset(times, 0, sizeof times);
    for (uint64_t i = 0; i < trace->files[0].head.record_count; i++) {
        const struct gf_trace_record *record = &trace->files[0].records[i];
        if (!trace_is_exchange(record)) continue;
        count++;
        if (record->waited_for == GF_RANK_NONE) continue;
        times[record->waited_for]++;
        if (times[record->waited_for] > times[most]) most = record->waited_for;
    }
    if (times[most] == 0)
        (void)fprintf(out, "late      rank %u waited for nobody\n", trace->files[0].head.rank);
    else
        (void)fprintf(out,
                      "late      rank %u waited longest for rank %u in %u %% of its %u exchanges; "
                      "the files of "
                      "more ranks say more\n",
                      trace->files[0].head.rank, most, percent(times[most], count), count);
}

static int late_print(const struct trace *trace, FILE *out)
{
    struct late *lates = calloc(trace->file_count, sizeof *lates);
    uint64_t count = 0;
    struct trace_post *posts = trace_posts(trace, &count);
    uint32_t most = 0;
    int result = ((lates == NULL) || (posts == NULL)) ? -1 : 0;
    uint64_t whole = (result == 0) ? late_find(trace, posts, count, lates) : 0;
    for (uint32_t f = 1; (result == 0) && (f < trace->file_count); f++)
        if (lates[f].behind_ns > lates[most].behind_ns) most = f;
    if ((result == 0) && (whole == 0))
        (void)fprintf(out, "late      the files have no exchange in common\n");
    else if (result == 0)
        (void)fprintf(out,
                      "late      rank %u: the last to begin in %u %% of %" PRIu64
                      " exchanges, then %.2f ms "
                      "after the one before it\n",
                      trace->files[most].head.rank, percent(lates[most].times, whole), whole,
                      ms(lates[most].behind_ns, lates[most].times));
    free(posts);
    free(lates);
    return result;
}

static void checkpoints_print(const struct trace *trace, FILE *out)
{
    uint64_t times = 0;
    uint64_t all_ns = 0;
    for (uint32_t f = 0; f < trace->file_count; f++)
        for (uint64_t i = 0; i < trace->files[f].head.record_count; i++) {
            const struct gf_trace_record *record = &trace->files[f].records[i];
            if (record->operation != GF_OPERATION_NONE) continue;
            times++;
            all_ns += record->end_ns - record->begin_ns;
        }
    if (times > 0)
        (void)fprintf(out, "saved     %" PRIu64 " checkpoints, %.2f ms each\n", times,
                      ms(all_ns, times));
}

static void failed_print(const struct trace *trace, FILE *out)
{
    for (uint32_t f = 0; f < trace->file_count; f++)
        for (uint64_t i = 0; i < trace->files[f].head.record_count; i++) {
            const struct gf_trace_record *record = &trace->files[f].records[i];
            if (record->status >= 0) continue;
            (void)fprintf(out, "failed    rank %u, step %" PRIu64 ", %s: %s\n",
                          trace->files[f].head.rank, record->step,
                          gf_operation_name((gf_operation)record->operation),
                          gf_status_name((gf_status)record->status));
            break; /* the first says it */
        }
}

static void clocks_print(const struct trace *trace, FILE *out)
{
    uint64_t error_ns = 0;
    uint64_t lost = 0;
    for (uint32_t f = 0; f < trace->file_count; f++) {
        if (trace->files[f].shift_error_ns > error_ns) error_ns = trace->files[f].shift_error_ns;
        lost += trace->files[f].head.lost_count;
    }
    if (error_ns > 0)
        (void)fprintf(out, "clocks    several; aligned by their exchanges to within %.3f ms\n",
                      ms(error_ns, 1));
    if (lost > 0)
        (void)fprintf(out, "lost      %" PRIu64 " older operations; what follows them is here\n",
                      lost);
}

int trace_summary(const struct trace *trace, FILE *out)
{
    struct share *shares = calloc(trace->file_count, sizeof *shares);
    struct share all = {.steps = 0};
    struct buffer *buffers = calloc(GF_TENSORS_MAX, sizeof *buffers);
    int result = -1;
    if ((shares == NULL) || (buffers == NULL)) goto done;
    for (uint32_t f = 0; f < trace->file_count; f++) {
        file_add(trace, &trace->files[f], &shares[f], buffers);
        all.steps += shares[f].steps;
        all.exchange_ns += shares[f].exchange_ns;
        all.exposed_ns += shares[f].exposed_ns;
    }
    (void)fprintf(out, "trace     %u of %u ranks", trace->file_count, trace->files[0].head.world);
    if (trace->first_step == TRACE_NONE)
        (void)fprintf(out, ", no step\n");
    else
        (void)fprintf(out, ", steps %" PRIu64 " to %" PRIu64 "\n", trace->first_step,
                      trace->last_step);
    hidden_print(&all, out);
    exposed_print(buffers, out);
    if (trace->file_count == 1)
        waited_print(trace, out);
    else if (late_print(trace, out) != 0)
        goto done;
    checkpoints_print(trace, out);
    failed_print(trace, out);
    clocks_print(trace, out);
    (void)fprintf(out, "\nms a step   compute      wait  exchange   exposed\n");
    for (uint32_t f = 0; f < trace->file_count; f++)
        (void)fprintf(
            out, "rank %-5u %9.3f %9.3f %9.3f %9.3f\n", trace->files[f].head.rank,
            ms(shares[f].compute_ns, shares[f].steps), ms(shares[f].wait_ns, shares[f].steps),
            ms(shares[f].exchange_ns, shares[f].steps), ms(shares[f].exposed_ns, shares[f].steps));
    result = 0;
done:
    free(shares);
    free(buffers);
    return result;
}
