/* See run_lines.h. */
#include "tools/run/run_lines.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* A pipe that poll() calls writable has room for this much (POSIX's PIPE_BUF on Linux), so that
 * write() never blocks while ranks should be ended. */
#define WRITE_BYTES 4096u
#define WAIT_MS 100

static void sink_write(struct lines_sink *sink, const char *data, size_t size_bytes,
                       bool (*wait_ok)(void))
{
    while ((size_bytes > 0) && (sink->error == 0)) {
        struct pollfd ready = {.fd = sink->number, .events = POLLOUT};
        int count = poll(&ready, 1, WAIT_MS);
        if (count <= 0) {
            if (!wait_ok()) return;
            continue;
        }
        ssize_t wrote =
            write(sink->number, data, (size_bytes < WRITE_BYTES) ? size_bytes : WRITE_BYTES);
        if (wrote >= 0) {
            data += wrote;
            size_bytes -= (size_t)wrote;
        } else if ((errno != EINTR) && (errno != EAGAIN)) {
            sink->error = errno;
        }
    }
}

/* A piece of a line, or lines: data ends in a newline or is all there is room for. */
static void piece_write(struct lines_source *source, const char *data, size_t size_bytes,
                        bool (*wait_ok)(void))
{
    struct lines_sink *sink = source->sink;
    if ((sink->open != NULL) && (sink->open != source)) {
        /* another's long line is cut here rather than mixed with ours */
        sink_write(sink, "\n", 1, wait_ok);
        sink->open = NULL;
    }
    while (size_bytes > 0) {
        const char *end = memchr(data, '\n', size_bytes);
        size_t line_bytes = (end != NULL) ? (size_t)(end - data) + 1u : size_bytes;
        if (source->prefix[0] == '\0') { /* nothing goes between: all whole lines at once */
            const char *last = memrchr(data, '\n', size_bytes);
            line_bytes = (last != NULL) ? (size_t)(last - data) + 1u : size_bytes;
            end = last;
        } else if (sink->open == NULL) {
            sink_write(sink, source->prefix, strlen(source->prefix), wait_ok);
        }
        sink_write(sink, data, line_bytes, wait_ok);
        sink->open = (end != NULL) ? NULL : source;
        data += line_bytes;
        size_bytes -= line_bytes;
    }
}

bool lines_move(struct lines_source *source, bool (*wait_ok)(void))
{
    ssize_t got =
        read(source->number, source->data + source->used_bytes, LINES_BYTES - source->used_bytes);
    if (got < 0) return (errno == EAGAIN) || (errno == EINTR);
    if (got == 0) return false;
    source->used_bytes += (size_t)got;
    source->taken_bytes += (size_t)got;
    const char *last = memrchr(source->data, '\n', source->used_bytes);
    size_t whole_bytes = (last != NULL) ? (size_t)(last - source->data) + 1u : 0;
    if ((last == NULL) && (source->used_bytes == LINES_BYTES)) whole_bytes = LINES_BYTES;
    piece_write(source, source->data, whole_bytes, wait_ok);
    source->used_bytes -= whole_bytes;
    memmove(source->data, source->data + whole_bytes, source->used_bytes);
    return true;
}

void lines_drain(struct lines_source *source, bool (*wait_ok)(void))
{
    int there = 0;
    const uint64_t first = source->taken_bytes;
    if ((source->number < 0) || (ioctl(source->number, FIONREAD, &there) != 0)) return;
    while ((source->taken_bytes - first < (uint64_t)there) && lines_move(source, wait_ok)) {
    }
}

void lines_end(struct lines_source *source, bool (*wait_ok)(void))
{
    if (source->number < 0) return;
    piece_write(source, source->data, source->used_bytes, wait_ok);
    /* A prefixed line is gf-run's own, so it is ended; what passes through stays as it was. */
    if ((source->sink->open == source) && (source->prefix[0] != '\0')) {
        sink_write(source->sink, "\n", 1, wait_ok);
        source->sink->open = NULL;
    }
    source->used_bytes = 0;
    (void)close(source->number);
    source->number = -1;
}
