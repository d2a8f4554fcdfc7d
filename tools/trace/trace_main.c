/* gf-trace: what gf_trace_write() has left, as a summary in words and for Perfetto. */
#include <stdlib.h>

#include "tools/common/tool_args.h"
#include "tools/common/tool_file.h"
#include "tools/common/tool_output.h"
#include "tools/trace/trace.h"

#define RECORDS_MAX (UINT64_C(1) << 26) /* of all files: 4 GiB, and 2 more for the summary */

static int fail(const char *what, const char *why)
{
    (void)fprintf(stderr, "gf-trace: %s: %s\n", what, why);
    return -1;
}

static int json_write(const struct trace *trace, const char *path)
{
    static struct tool_file file;
    if (tool_file_begin(&file, path) == 0) {
        if (trace_json(trace, file.stream) == 0) {
            if (tool_file_end(&file) == 0) return 0;
        } else {
            tool_file_drop(&file);
            return fail(path, "there is no memory for it");
        }
    }
    (void)fprintf(stderr, "gf-trace: %s\n", file.error);
    return -1;
}

static int trace_tell(const struct trace *trace, const char *json_path)
{
    if (trace_summary(trace, stdout) != 0) return fail("the summary", "there is no memory for it");
    return (json_path != NULL) ? json_write(trace, json_path) : 0;
}

static int files_tell(const char *const *paths, uint32_t path_count, const char *json_path)
{
    static char error[TRACE_ERROR_BYTES];
    struct trace trace = {.files = calloc(path_count, sizeof *trace.files)};
    uint64_t records = 0;
    int result = (trace.files == NULL) ? fail("files", "there is no memory for so many") : 0;
    for (; (result == 0) && (trace.file_count < path_count); trace.file_count++) {
        struct trace_file *file = &trace.files[trace.file_count];
        if (trace_load(paths[trace.file_count], file, error) != 0) {
            (void)fprintf(stderr, "gf-trace: %s\n", error);
            result = -1;
            break;
        }
        records += file->head.record_count;
        if (records > RECORDS_MAX)
            result = fail(file->path, "with this one it is more than 67,108,864 records");
    }
    if ((result == 0) && (trace_align(&trace, error) != 0)) {
        (void)fprintf(stderr, "gf-trace: %s\n", error);
        result = -1;
    }
    if (result == 0) result = trace_tell(&trace, json_path);
    for (uint32_t f = 0; (trace.files != NULL) && (f < path_count); f++)
        trace_free(&trace.files[f]);
    free(trace.files);
    return result;
}

static int program(int argc, char **argv)
{
    static const char *paths[GF_WORLD_MAX];
    static const char *json_path;
    static const struct tool_option options[] = {
        {.name = "json",
         .kind = TOOL_TEXT,
         .value_out = &json_path,
         .value_name = "FILE",
         .help = "write all of it there for Perfetto (ui.perfetto.dev) or chrome://tracing"},
    };
    static const struct tool_args args = {
        .program = "gf-trace",
        .usage = "FILE.. [--json FILE]",
        .about = "Says where the time of a job's steps went, from the traces of one or more of its "
                 "ranks\n"
                 "(gf_trace_write(), gf-train --trace): how much of the exchange was hidden, which "
                 "buffer was not, and who was "
                 "late.",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
        .operands_min = 1,
        .operands_max = GF_WORLD_MAX,
    };
    uint32_t path_count;
    int read = tool_args_read(&args, argc, argv, paths, &path_count);
    if (read != 0) return tool_args_exit(read);
    return (files_tell(paths, path_count, json_path) == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}

TOOL_MAIN("gf-trace", program)
