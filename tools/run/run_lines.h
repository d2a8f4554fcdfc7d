/* What the ranks print, line by line onto gf-run's own stdout and stderr: whole lines of different
 * ranks never mix, and no byte is lost while gf-run's own can be written. */
#ifndef RUN_LINES_H
#define RUN_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINES_BYTES 65536u

/* Where lines go. Longer ones than LINES_BYTES come in pieces; `open` is who wrote the last
 * piece. */
struct lines_sink {
    int number;                      /* file descriptor */
    const struct lines_source *open; /* NULL: at the start of a line */
    /* errno of the write that failed: lines are dropped since; 0: none did */
    int error;
};

struct lines_source {
    int number; /* file descriptor, does not block; -1: ended */
    struct lines_sink *sink;
    char prefix[16];
    size_t used_bytes;
    uint64_t taken_bytes; /* so far */
    char *data;           /* [LINES_BYTES], the line that is not whole yet */
};

/* Takes what is there now, at most one buffer of it. False once the source has ended. wait_ok is
 * asked before each wait for a reader that is slow; if it says no, what is left is dropped. */
bool lines_move(struct lines_source *source, bool (*wait_ok)(void));
/* Takes what is there now, all of it, and nothing that is written meanwhile: something that a rank
 * has left behind may write for ever. */
void lines_drain(struct lines_source *source, bool (*wait_ok)(void));
/* Shows the last line even if it has no end, and closes the source. */
void lines_end(struct lines_source *source, bool (*wait_ok)(void));

#endif
