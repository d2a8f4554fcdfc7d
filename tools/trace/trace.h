/* gf-trace: traces of a job's ranks, on one clock, as words and for Perfetto. */
#ifndef GF_TRACE_TOOL_H
#define GF_TRACE_TOOL_H

#include <stdbool.h>
#include <stdio.h>

#include "gradientflow.h"

#define TRACE_ERROR_BYTES 512
#define TRACE_TRACKS_MAX 32u
#define TRACE_FILE_BYTES_MAX (UINT64_C(1) << 30)
#define TRACE_NONE UINT64_MAX

/* One rank's file. Every value of every record has been looked at. */
struct trace_file {
    const char *path;
    struct gf_trace_head head;
    char (*names)[GF_TRACE_NAME_BYTES]; /* [head.tensor_count] */
    struct gf_trace_record *records;    /* [head.record_count], after trace_align() by begin_ns */
    void *memory;                       /* of both */
    int64_t shift_ns;                   /* added to its times they are those of the first file */
    /* by how much that may be wrong; 0: it is the same clock */
    uint64_t shift_error_ns;
};

struct trace {
    struct trace_file *files; /* [file_count], by rank */
    uint32_t file_count;
    int64_t origin_ns; /* the earliest time in any file, on the first one's clock */
    /* of those with a wait or an exchange; both TRACE_NONE where there is none */
    uint64_t first_step, last_step;
};

/* ---- trace_load.c ---- */
/* The bytes of a file, malloc'd, become *file_out, which owns them from then on. 0, or -1 with one
 * line in error_out[TRACE_ERROR_BYTES] and the bytes freed. */
int trace_parse(void *bytes, uint64_t size_bytes, const char *path, struct trace_file *file_out,
                char *error_out);
int trace_load(const char *path, struct trace_file *file_out, char *error_out);
void trace_free(struct trace_file *file);

/* ---- trace_align.c ---- */
/* Checks that the files are of one run, sorts them by rank and brings them to one clock. */
int trace_align(struct trace *trace, char *error_out);
/* On the trace's clock, from its origin. */
uint64_t trace_time(const struct trace *trace, const struct trace_file *file, uint64_t time_ns);
/* A fused buffer or a vote: what ends on no rank before all have begun it. */
bool trace_is_exchange(const struct gf_trace_record *record);

/* ---- trace_tracks.c ---- */
/* What a picture shows of one rank: its own thread, and in other tracks what was on the wire at the
 * same time. */
typedef enum trace_kind {
    TRACE_COMPUTE,
    TRACE_WAIT,
    TRACE_PACK,
    TRACE_BUFFER,
    TRACE_VOTE,
    TRACE_CHECKPOINT,
    TRACE_OTHER
} trace_kind;
struct trace_span {
    trace_kind kind;
    uint32_t track;                       /* 0: the thread */
    uint64_t begin_ns, end_ns;            /* trace_time() */
    const struct gf_trace_record *record; /* NULL: none */
};
typedef void (*trace_span_fn)(void *user, const struct trace_file *file,
                              const struct trace_span *span);
/* Calls span() for everything in steps first..last, in no order of times. Returns the number of
 * tracks. */
uint32_t trace_spans(const struct trace *trace, const struct trace_file *file, uint64_t first,
                     uint64_t last, trace_span_fn span, void *user);
/* "buffer 3: conv1.weight .. conv1.bias" and the like, as tool_plain_text() writes names. */
#define TRACE_LABEL_BYTES 256
void trace_label(const struct trace_file *file, const struct trace_span *span,
                 char label_out[static TRACE_LABEL_BYTES]);

/* ---- trace_exchange.c ---- */
/* One rank's part in an exchange. */
struct trace_post {
    uint64_t begin_ns, end_ns; /* trace_time() */
    uint32_t file;
    const struct gf_trace_record *record;
};
/* All of them, malloc'd, those of an exchange together and the last to begin at their end; NULL: no
 * memory. */
struct trace_post *trace_posts(const struct trace *trace, uint64_t *count_out);
/* Where the exchange at posts[at] ends. */
uint64_t trace_exchange_end(const struct trace_post *posts, uint64_t count, uint64_t at);

/* ---- trace_summary.c, trace_json.c ---- */
int trace_summary(const struct trace *trace, FILE *out); /* -1: no memory */
int trace_json(const struct trace *trace, FILE *out);    /* likewise */

#endif
