/* See run_lines.h. */
#include "tools/run/run_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* A pipe that poll() calls writable has room for this much (POSIX's PIPE_BUF on Linux). */
#define WRITE_BYTES 4096u
#define TELL_BYTES 640

struct lines_sink lines_sinks[2];
static bool are_one; /* stdout and stderr are the same file */

/* A terminal that poll() calls writable may have room for a byte, and a pipe that others write to
 * may be full by now: write() would wait there. Whoever shares the descriptor must not find it
 * changed, so it is opened anew. Where that is not possible the one that is there has to do. */
static void sink_begin(struct lines_sink *sink)
{
    struct stat is;
    char path[32];
    if (fstat(sink->number, &is) != 0) return;
    sink->is_terminal = isatty(sink->number) == 1;
    if (!S_ISFIFO(is.st_mode) && !sink->is_terminal) return;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", sink->number);
    int own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (own >= 0) sink->number = own;
}

void lines_begin(void)
{
    struct stat out, err;
    are_one = (fstat(STDOUT_FILENO, &out) == 0) && (fstat(STDERR_FILENO, &err) == 0) &&
              (out.st_dev == err.st_dev) && (out.st_ino == err.st_ino);
    for (int i = 0; i < (are_one ? 1 : 2); i++) {
        lines_sinks[i].number = STDOUT_FILENO + i;
        sink_begin(&lines_sinks[i]);
    }
}

/* Two sinks would cut each other's lines there, and the first would let the other wait for ever. */
struct lines_sink *lines_sink_of(uint32_t stream)
{
    return &lines_sinks[are_one ? 0 : stream];
}

bool lines_wait(const struct lines_sink *sink)
{
    return sink->used_bytes > 0;
}

/* Of the next write. It ends with a line where there is an end, as somebody else may write before
 * the rest can follow. A terminal takes a part of what it has no room for, so a write of several
 * lines may end within one; rank 0, which has the terminal itself, would go on in it. */
static size_t write_bytes(const struct lines_sink *sink)
{
    const char *data = sink->data + sink->written_bytes;
    size_t size_bytes = sink->used_bytes - sink->written_bytes;
    if (size_bytes > WRITE_BYTES) size_bytes = WRITE_BYTES;
    const char *end =
        sink->is_terminal ? memchr(data, '\n', size_bytes) : memrchr(data, '\n', size_bytes);
    return (end != NULL) ? (size_t)(end - data) + 1u : size_bytes;
}

void lines_flush(struct lines_sink *sink)
{
    sink->refused = false;
    while ((sink->written_bytes < sink->used_bytes) && (sink->error == 0)) {
        struct pollfd ready = {.fd = sink->number, .events = POLLOUT};
        if (poll(&ready, 1, 0) <= 0) return;
        ssize_t wrote = write(sink->number, sink->data + sink->written_bytes, write_bytes(sink));
        if (wrote >= 0)
            sink->written_bytes += (size_t)wrote;
        else if (errno == EAGAIN)
            sink->refused = true;
        else if (errno != EINTR)
            sink->error = errno;
        if (sink->refused) return;
    }
    sink->used_bytes = 0;
    sink->written_bytes = 0;
}

/* There is room for what a rank may print; gf-run's own words are dropped where there is none. */
static void sink_put(struct lines_sink *sink, const char *data, size_t size_bytes)
{
    if ((sink->error != 0) || (size_bytes > sizeof sink->data - sink->used_bytes)) return;
    memcpy(sink->data + sink->used_bytes, data, size_bytes);
    sink->used_bytes += size_bytes;
}

/* Another's long line is cut here rather than mixed with what comes now. */
static void line_begin(struct lines_sink *sink, const struct lines_source *source)
{
    if ((sink->open == NULL) || (sink->open == source)) return;
    sink_put(sink, "\n", 1);
    sink->open = NULL;
}

/* A piece of a line, or lines: data ends in a newline or is all there is room for. */
static void piece_put(struct lines_source *source, const char *data, size_t size_bytes)
{
    struct lines_sink *sink = source->sink;
    if (size_bytes > 0) line_begin(sink, source);
    while (size_bytes > 0) {
        const char *end = memchr(data, '\n', size_bytes);
        size_t line_bytes = (end != NULL) ? (size_t)(end - data) + 1u : size_bytes;
        if (source->prefix[0] == '\0') { /* nothing goes between: all whole lines at once */
            const char *last = memrchr(data, '\n', size_bytes);
            line_bytes = (last != NULL) ? (size_t)(last - data) + 1u : size_bytes;
            end = last;
        } else if (sink->open == NULL) {
            sink_put(sink, source->prefix, strlen(source->prefix));
        }
        sink_put(sink, data, line_bytes);
        sink->open = (end != NULL) ? NULL : source;
        data += line_bytes;
        size_bytes -= line_bytes;
    }
}

static void source_end(struct lines_source *source)
{
    piece_put(source, source->data, source->used_bytes);
    /* A prefixed line is gf-run's own, so it is ended; what passes through stays as it was. */
    if ((source->sink->open == source) && (source->prefix[0] != '\0')) {
        sink_put(source->sink, "\n", 1);
        source->sink->open = NULL;
    }
    source->used_bytes = 0;
    (void)close(source->number);
    source->number = -1;
}

/* False once it has ended. */
static bool source_read(struct lines_source *source)
{
    size_t size_bytes = LINES_BYTES - source->used_bytes;
    if (source->is_last && (source->left_bytes < size_bytes)) size_bytes = source->left_bytes;
    if (size_bytes == 0) return false;
    ssize_t got = read(source->number, source->data + source->used_bytes, size_bytes);
    if (got < 0) return ((errno == EAGAIN) || (errno == EINTR)) && !source->is_last;
    source->used_bytes += (size_t)got;
    if (source->is_last) source->left_bytes -= (size_t)got;
    return got > 0;
}

void lines_move(struct lines_source *source)
{
    struct lines_sink *sink = source->sink;
    if (source->number < 0) return;
    if (lines_wait(sink) && (sink->next == NULL)) sink->next = source;
    if (lines_wait(sink) || ((sink->next != NULL) && (sink->next != source))) return;
    sink->next = NULL;
    bool goes_on = source_read(source);
    const char *last = memrchr(source->data, '\n', source->used_bytes);
    size_t whole_bytes = (last != NULL) ? (size_t)(last - source->data) + 1u : 0;
    if ((last == NULL) && (source->used_bytes == LINES_BYTES)) whole_bytes = LINES_BYTES;
    piece_put(source, source->data, whole_bytes);
    source->used_bytes -= whole_bytes;
    memmove(source->data, source->data + whole_bytes, source->used_bytes);
    if (!goes_on) source_end(source);
    lines_flush(sink);
}

void lines_last(struct lines_source *source)
{
    int there = 0;
    if ((source->number < 0) || source->is_last) return;
    source->is_last = true;
    source->left_bytes =
        (ioctl(source->number, FIONREAD, &there) == 0) && (there > 0) ? (size_t)there : 0;
}

void lines_tell(const char *format, ...)
{
    struct lines_sink *sink = lines_sink_of(1);
    char text[TELL_BYTES];
    va_list list;
    va_start(list, format);
    int bytes = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (bytes <= 0) return;
    line_begin(sink, NULL);
    sink_put(sink, text, ((size_t)bytes < sizeof text) ? (size_t)bytes : sizeof text - 1u);
    lines_flush(sink);
}
