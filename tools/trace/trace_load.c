/* A trace file to memory. Files come from other machines, so nothing in them is believed. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/common/tool_file.h"
#include "tools/trace/trace.h"

#define TIME_MAX (UINT64_C(1) << 61) /* 73 years; differences and sums of a few fit an int64_t */

__attribute__((format(printf, 3, 4))) static int refuse(char *error_out, const char *path,
                                                        const char *format, ...)
{
    va_list arguments;
    int used = snprintf(error_out, TRACE_ERROR_BYTES, "%.300s: ", path);
    va_start(arguments, format);
    (void)vsnprintf(error_out + used, TRACE_ERROR_BYTES - (size_t)used, format, arguments);
    va_end(arguments);
    return -1;
}

/* Of a fixed field; what its bytes are is for who writes them: tool_plain_text(). */
static bool text_ended(const char *text, size_t bytes)
{
    return strnlen(text, bytes) < bytes;
}

/* NULL, or what is wrong with it. */
static const char *record_wrong(const struct gf_trace_head *head,
                                const struct gf_trace_record *record)
{
    bool whole = record->operation == GF_OPERATION_STEP;
    if (record->operation >= GF_OPERATION_COUNT) return "operation";
    if (record->algorithm >= GF_ALGORITHM_COUNT) return "algorithm";
    if ((record->end_ns > TIME_MAX) || (record->begin_ns > record->end_ns)) return "time";
    if (record->pack_ns > record->begin_ns) return "pack time";
    if (record->step == TRACE_NONE) return "step";
    if ((record->status > GF_AGAIN) || (record->status < -64)) return "status";
    if ((record->waited_for >= GF_WORLD_MAX) && (record->waited_for != GF_RANK_NONE))
        return "rank waited for";
    if (whole && (record->buffer >= GF_TENSORS_MAX)) return "buffer";
    if (whole && ((record->tensor_count == 0) || (record->first_tensor >= head->tensor_count) ||
                  (record->tensor_count > head->tensor_count - record->first_tensor)))
        return "tensor";
    return NULL;
}

static int head_check(const struct gf_trace_head *head, uint64_t size_bytes, const char *path,
                      char *error_out)
{
    uint64_t names_bytes;
    uint64_t records_bytes;
    if (memcmp(head->magic, GF_TRACE_MAGIC, sizeof head->magic) != 0)
        return refuse(error_out, path, "this is no trace: gf_trace_write() writes them");
    if ((head->version != GF_TRACE_VERSION) ||
        (head->record_bytes != sizeof(struct gf_trace_record)))
        return refuse(error_out, path,
                      "version %u with records of %u bytes; this program reads version %u with %u",
                      head->version, head->record_bytes, GF_TRACE_VERSION,
                      (unsigned)sizeof(struct gf_trace_record));
    if ((head->world == 0) || (head->world > GF_WORLD_MAX) || (head->rank >= head->world))
        return refuse(error_out, path, "rank %u of %u; allowed are 1 to %u ranks", head->rank,
                      head->world, GF_WORLD_MAX);
    if ((head->tensor_count == 0) || (head->tensor_count > GF_TENSORS_MAX))
        return refuse(error_out, path, "%u tensors; allowed are 1 to %u", head->tensor_count,
                      GF_TENSORS_MAX);
    if (head->begin_ns > TIME_MAX) return refuse(error_out, path, "its begin is no time");
    names_bytes = (uint64_t)head->tensor_count * GF_TRACE_NAME_BYTES;
    if (__builtin_mul_overflow(head->record_count, sizeof(struct gf_trace_record),
                               &records_bytes) ||
        (size_bytes < sizeof *head + names_bytes) ||
        (size_bytes - sizeof *head - names_bytes != records_bytes))
        return refuse(
            error_out, path,
            "%llu bytes do not hold %u tensors and %llu records: the file is cut or damaged",
            (unsigned long long)size_bytes, head->tensor_count,
            (unsigned long long)head->record_count);
    return 0;
}

int trace_parse(void *bytes, uint64_t size_bytes, const char *path, struct trace_file *file_out,
                char *error_out)
{
    struct trace_file file = {.path = path, .memory = bytes};
    if (size_bytes < sizeof file.head) {
        (void)refuse(error_out, path, "%llu bytes are too few for a trace",
                     (unsigned long long)size_bytes);
        goto wrong;
    }
    memcpy(&file.head, bytes, sizeof file.head);
    if (head_check(&file.head, size_bytes, path, error_out) != 0) goto wrong;
    file.names = (void *)((char *)bytes + sizeof file.head);
    /* sizes of both are multiples of 16 */
    file.records = (void *)(file.names + file.head.tensor_count);
    if (!text_ended(file.head.clock, sizeof file.head.clock) ||
        !text_ended(file.head.node, sizeof file.head.node)) {
        (void)refuse(error_out, path, "the names of clock and host have no end");
        goto wrong;
    }
    for (uint32_t i = 0; i < file.head.tensor_count; i++) {
        if (text_ended(file.names[i], sizeof file.names[i])) continue;
        (void)refuse(error_out, path, "the name of tensor %u has no end", i);
        goto wrong;
    }
    for (uint64_t i = 0; i < file.head.record_count; i++) {
        struct gf_trace_record *record = &file.records[i];
        const char *wrong = record_wrong(&file.head, record);
        /* of a generation with more ranks than the last */
        if (record->waited_for >= file.head.world) record->waited_for = GF_RANK_NONE;
        if (wrong == NULL) continue;
        (void)refuse(error_out, path, "record %llu: its %s is not possible", (unsigned long long)i,
                     wrong);
        goto wrong;
    }
    *file_out = file;
    return 0;
wrong:
    free(bytes);
    return -1;
}

int trace_load(const char *path, struct trace_file *file_out, char *error_out)
{
    struct stat about;
    char why[TOOL_FILE_WHY_BYTES];
    if (stat(path, &about) != 0) return refuse(error_out, path, "%s", strerror(errno));
    if (S_ISREG(about.st_mode) && ((uint64_t)about.st_size > TRACE_FILE_BYTES_MAX))
        return refuse(error_out, path, "has %llu bytes; allowed are at most 1 GiB",
                      (unsigned long long)about.st_size);
    const uint64_t size = S_ISREG(about.st_mode) ? (uint64_t)about.st_size : 0;
    char *bytes = malloc(size + 1); /* one more shows that it grows */
    if (bytes == NULL)
        return refuse(error_out, path, "there is no memory for %llu bytes",
                      (unsigned long long)size);
    const int64_t got = tool_file_read(path, bytes, size + 1, why);
    if (got == (int64_t)size) return trace_parse(bytes, size, path, file_out, error_out);
    free(bytes);
    return refuse(error_out, path, "%s", (got < 0) ? why : "changed while it was read");
}

void trace_free(struct trace_file *file)
{
    free(file->memory);
    file->memory = NULL;
}
