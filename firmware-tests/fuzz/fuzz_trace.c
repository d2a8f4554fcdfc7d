/* libFuzzer over trace files: whatever the bytes, they are refused with one line, or everything
 * that gf-trace writes of them is UTF-8 without control characters. The first byte: 1 a second rank
 * has the same trace, 2 and a clock of its own. `make fuzz T=trace`. */
#include <stdlib.h>
#include <string.h>

#include "drivers/base/bytes.h"
#include "tools/trace/trace.h"

static void line_check(const char *error)
{
    if ((error[0] == '\0') || (strchr(error, '\n') != NULL)) abort();
}

/* A copy of the bytes as rank `shift` further on; 0 if it is refused. */
static int file_make(const uint8_t *data, size_t size, uint32_t shift, bool own_clock,
                     struct trace_file *file_out)
{
    char error[TRACE_ERROR_BYTES] = "";
    struct gf_trace_head head;
    char *bytes = malloc(size + 1);
    if (bytes == NULL) return 0;
    memcpy(bytes, data, size);
    if (size >= sizeof head) {
        memcpy(&head, data, sizeof head);
        head.rank += shift;
        if (own_clock) head.clock[0] = (char)(head.clock[0] ^ 1);
        memcpy(bytes, &head, sizeof head);
    }
    if (trace_parse(bytes, size, "fuzz", file_out, error) == 0) return 1;
    line_check(error);
    return 0;
}

static void text_check(const char *text, size_t size)
{
    for (size_t i = 0, letter; i < size; i += letter) {
        letter = (text[i] == '\n') ? 1 : gf_utf8_bytes(text + i, size - i);
        if (letter == 0) abort();
    }
}

static void tell(const struct trace *trace)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) return;
    if (trace_summary(trace, out) == 0) trace_json(trace, out);
    if (fclose(out) == 0) text_check(text, size);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[TRACE_ERROR_BYTES] = "";
    struct trace_file files[2];
    struct trace trace = {.files = files};
    if ((size == 0) || (size > 65536)) return 0;
    trace.file_count += (uint32_t)file_make(data + 1, size - 1, 0, false, &files[0]);
    if ((trace.file_count == 1) && (data[0] & 1))
        trace.file_count +=
            (uint32_t)file_make(data + 1, size - 1, 1, (data[0] & 2) != 0, &files[1]);
    if (trace.file_count == 0) return 0;
    if (trace_align(&trace, error) == 0)
        tell(&trace);
    else
        line_check(error);
    for (uint32_t f = 0; f < trace.file_count; f++) trace_free(&files[f]);
    return 0;
}
