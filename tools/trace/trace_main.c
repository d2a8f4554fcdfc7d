/* gf-trace: what gf-train --trace has left, as a summary in words, for Perfetto, and as a
 * picture. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/common/tool_args.h"
#include "tools/common/tool_output.h"
#include "tools/trace/trace.h"

#define STEPS_SHOWN 4u
#define RECORDS_MAX (UINT64_C(1) << 26) /* of all files: 4 GiB, and 2 more for the summary */

struct request {
    const char *json_path, *svg_path;
    uint64_t first, count; /* steps in the picture */
    bool first_given, count_given;
};

static int fail(const char *what, const char *why)
{
    (void)fprintf(stderr, "gf-trace: %s: %s\n", what, why);
    return -1;
}

/* Writes a picture to path; what could not be written whole is removed. */
static int picture_write(const struct trace *trace, const struct request *request, const char *path,
                         bool svg)
{
    uint64_t first = request->first;
    uint64_t last = trace->last_step;
    struct stat there;
    if ((stat(path, &there) == 0) && !S_ISREG(there.st_mode))
        return fail(path, "is there and no regular file");
    FILE *out = fopen(path, "we");
    if (out == NULL) return fail(path, strerror(errno));
    if (!request->first_given)
        first = (last - trace->first_step < request->count) ? trace->first_step
                                                            : last - request->count + 1;
    if (last - first >= request->count) last = first + request->count - 1;
    errno = ENOMEM;
    bool wrong = svg ? false : (trace_json(trace, out) != 0);
    if (svg) trace_svg(trace, first, last, out);
    wrong = wrong || (fflush(out) != 0) || (ferror(out) != 0);
    if ((fclose(out) == 0) && !wrong) return 0;
    (void)fail(path, strerror(errno));
    (void)unlink(path);
    return -1;
}

static int trace_tell(const struct trace *trace, const struct request *request)
{
    if (request->first_given &&
        ((trace->last_step == TRACE_NONE) || (request->first > trace->last_step) ||
         (request->first < trace->first_step)))
        return fail("--first", "the files do not hold this step");
    if (trace_summary(trace, stdout) != 0) return fail("the summary", "there is no memory for it");
    if ((request->json_path != NULL) &&
        (picture_write(trace, request, request->json_path, false) != 0))
        return -1;
    if ((request->svg_path != NULL) &&
        (picture_write(trace, request, request->svg_path, true) != 0))
        return -1;
    return 0;
}

static int files_tell(const char *const *paths, uint32_t path_count, const struct request *request)
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
    if (result == 0) result = trace_tell(&trace, request);
    for (uint32_t f = 0; (trace.files != NULL) && (f < path_count); f++)
        trace_free(&trace.files[f]);
    free(trace.files);
    return result;
}

static int program(int argc, char **argv)
{
    static const char *paths[GF_WORLD_MAX];
    static struct request request = {.count = STEPS_SHOWN};
    static const struct tool_option options[] = {
        {.name = "json",
         .kind = TOOL_TEXT,
         .value_out = &request.json_path,
         .value_name = "FILE",
         .help = "write all of it there for Perfetto (ui.perfetto.dev) or chrome://tracing"},
        {.name = "svg",
         .kind = TOOL_TEXT,
         .value_out = &request.svg_path,
         .value_name = "FILE",
         .help = "draw some steps there"},
        {.name = "first",
         .kind = TOOL_NUMBER,
         .value_out = &request.first,
         .value_name = "STEP",
         .help = "the first of these (default: so that they are the last)",
         .given_out = &request.first_given},
        {.name = "steps",
         .kind = TOOL_NUMBER,
         .value_out = &request.count,
         .value_name = "N",
         .low = 1,
         .high = 1000000,
         .help = "how many (default 4)",
         .given_out = &request.count_given},
    };
    static const struct tool_args args = {
        .program = "gf-trace",
        .usage = "FILE.. [--json FILE] [--svg FILE] [--first STEP] [--steps N]",
        .about = "Says where the time of a job's steps went, from the traces of one or more of its "
                 "ranks (gf-train\n"
                 "--trace): how much of the exchange was hidden, which buffer was not, and who was "
                 "late.",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
        .operands_min = 1,
        .operands_max = GF_WORLD_MAX,
    };
    uint32_t path_count;
    int read = tool_args_read(&args, argc, argv, paths, &path_count);
    if (read != 0) return tool_args_exit(read);
    if ((request.svg_path == NULL) && (request.first_given || request.count_given)) {
        (void)fail("--first, --steps", "they say what --svg draws");
        return TOOL_EXIT_USAGE;
    }
    return (files_tell(paths, path_count, &request) == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}

TOOL_MAIN("gf-trace", program)
