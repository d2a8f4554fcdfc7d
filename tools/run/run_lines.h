/* What the ranks print, line by line onto gf-run's own stdout and stderr: whole lines of different
 * ranks never mix, and no byte is lost while gf-run's own can be written. Nothing here waits: a
 * reader that is slow must not keep gf-run from its signals and its ranks. What it has not taken
 * yet stays in the sink, and no rank's output is read before that is gone: then the ranks wait for
 * the reader, in their own writes. */
#ifndef RUN_LINES_H
#define RUN_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINES_BYTES 65536u
#define LINES_PREFIX 16u
/* All of a source's buffer, were each line empty, and what is left over for gf-run's own words. */
#define LINES_SINK_BYTES ((LINES_PREFIX + 4u) * LINES_BYTES)

/* Where lines go. Longer ones than LINES_BYTES come in pieces; `open` is who wrote the last
 * piece. */
struct lines_sink {
    int number; /* file descriptor */
    bool is_terminal;
    const struct lines_source *open; /* NULL: at the start of a line */
    /* the first that found it full, and is next; NULL: whoever comes */
    const struct lines_source *next;
    /* errno of the write that failed: lines are dropped since; 0: none did */
    int error;
    bool refused; /* what poll() had called writable: a moment later it may do */
    size_t used_bytes, written_bytes;
    char data[LINES_SINK_BYTES]; /* from written_bytes on it waits for the reader */
};

struct lines_source {
    int number; /* file descriptor, does not block; -1: ended */
    struct lines_sink *sink;
    char prefix[LINES_PREFIX];
    size_t used_bytes;
    bool is_last; /* it ends with the next left_bytes */
    size_t left_bytes;
    char *data; /* [LINES_BYTES], the line that is not whole yet */
};

/* stdout, stderr; the second is not used where both are the same file */
extern struct lines_sink lines_sinks[2];

/* Before the first line. */
void lines_begin(void);
/* Where stdout (0) and stderr (1) go. After lines_begin(). */
struct lines_sink *lines_sink_of(uint32_t stream);
/* A sink has something that its reader has not taken. */
bool lines_wait(const struct lines_sink *sink);
/* Writes of it what can be written now. */
void lines_flush(struct lines_sink *sink);
/* Takes what is there now, at most one buffer of it, unless its sink waits or another source is
 * next. Ends the source at its end: the last line is shown even if it has no end. */
void lines_move(struct lines_source *source);
/* It ends with what is there now: something that a rank has left behind may write for ever. */
void lines_last(struct lines_source *source);
/* gf-run's own words, on stderr. */
void lines_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
