/* gf-train, the reference appliance: trains a small network on Fashion-MNIST with all ranks of a
 * job, by the public header alone. Rank 0 reports; any error is one line on stderr and a failing
 * exit code. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/tool_args.h"
#include "tools/common/tool_clock.h"
#include "tools/common/tool_context.h"
#include "tools/common/tool_output.h"
#include "tools/train/train_elastic.h"
#include "tools/train/train_loop.h"
#include "tools/train/train_ranks.h"
#include "tools/train/train_weights.h"

/* The handler's: what it stops and which signal came. */
static gf_context *volatile signal_target;
static volatile sig_atomic_t signal_number;

static void signal_handle(int number)
{
    signal_number = number;
    gf_context *target = signal_target;
    if (target != NULL) gf_abort(target);
}

/* The second signal of a kind ends the program as if it were not caught. */
static void signals_catch(void)
{
    struct sigaction action = {.sa_handler = signal_handle, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

#define RESOLVE_PART_NS UINT64_C(1000000000)

static gf_resolve_fn name_resolve; /* that of the configuration */

/* A name is asked for until join_timeout, which may be a day: in parts, between which a signal that
 * was caught ends it. The clock says how long a part took: where the name server does not answer,
 * one question alone lasts longer than its part. */
static gf_status name_resolve_in_parts(const char *address, uint64_t patience_ns, char *numeric_out,
                                       char *why_out)
{
    const uint64_t begin_ns = tool_clock_ns();
    uint64_t left_ns = patience_ns;
    for (;;) {
        uint64_t part_ns = (left_ns < RESOLVE_PART_NS) ? left_ns : RESOLVE_PART_NS;
        gf_status status = name_resolve(address, part_ns, numeric_out, why_out);
        const uint64_t passed_ns = tool_clock_ns() - begin_ns;
        if ((status != GF_AGAIN) || (passed_ns >= patience_ns)) return status;
        left_ns = patience_ns - passed_ns;
        if (signal_number == 0) continue;
        (void)snprintf(why_out, 256, "ended by signal %d", (int)signal_number);
        return GF_ERR_CONFIG;
    }
}

/* Errors are in the context's record, which main prints; only a call without a context has nothing
 * but its log line. */
static char logged_error[512];

static void log_take(void *user, gf_log_level level, const char *text)
{
    const struct train *train = user;
    if (level == GF_LOG_ERROR) snprintf(logged_error, sizeof logged_error, "%s", text);
    if (level == GF_LOG_ERROR) return;
    /* once is enough */
    if ((train->rank != 0) && (strstr(text, " skipped on all ranks") != NULL)) return;
    gf_log_stderr(NULL, level, text);
}

static int fail_library(struct train *train, gf_status status)
{
    const struct gf_error *error = (train->gf != NULL) ? gf_error_last(train->gf) : NULL;
    report_end(&train->report);
    if ((error == NULL) || (error->code == GF_OK)) {
        fprintf(stderr, "error: %s: %s\n", gf_status_name(status), logged_error);
        return -1;
    }
    char foreign[96] = "";
    char peer[32] = "";
    char tensor[32] = "";
    char where[192] = "";
    if (error->foreign_call[0] != '\0')
        snprintf(foreign, sizeof foreign, ", %s gave %lld", error->foreign_call,
                 (long long)error->foreign_code);
    if (error->peer != GF_RANK_NONE) snprintf(peer, sizeof peer, ", peer %u", error->peer);
    if (error->tensor != GF_TENSOR_NONE)
        snprintf(tensor, sizeof tensor, ", tensor %u", error->tensor);
    if (strstr(error->text, " in step ") == NULL) /* a report of the members says it all itself */
        snprintf(where, sizeof where, " in step %llu, operation %s%s%s",
                 (unsigned long long)error->step, gf_operation_name(error->operation), peer,
                 tensor);
    fprintf(stderr, "error: rank %u: %s%s%s (%s)\n", error->rank, error->text, where, foreign,
            gf_status_name(error->code));
    return -1;
}

static int fail(const struct train *train, const char *text)
{
    if (train->gf != NULL)
        fprintf(stderr, "error: rank %u: %s\n", gf_rank(train->gf), text);
    else
        fprintf(stderr, "error: %s\n", text);
    return -1;
}

static int join(struct train *train, struct tool_context *context)
{
    train_tensors(train);
    gf_status status = tool_context_open(context, train->config, train->tensors,
                                         train->options->model->tensor_count);
    if (status == GF_ERR_ARENA)
        return fail(train, "there is no memory for the library's control region");
    train->gf = context->gf;
    signal_target = train->gf;
    /* it came before there was a target */
    if ((signal_number != 0) && (train->gf != NULL)) gf_abort(train->gf);
    if (status >= 0) status = gf_open_wait(train->gf);
    if (status < 0) return fail_library(train, status);
    train->rank = gf_rank(train->gf);
    train->world = gf_world(train->gf);
    return 0;
}

/* What would only show after the training: rank 0's files, and options that do not fit together. */
static int look_ahead(struct train *train)
{
    char different[TRAIN_SAME_BYTES];
    static struct tool_file file;
    static char trace_path[TOOL_FILE_PATH_BYTES];
    const struct train_options *options = train->options;
    float failed = 0.0f;
    gf_status status = train_same(train, different);
    if (status < 0) return fail_library(train, status);
    if (different[0] != '\0') return fail(train, different);
    snprintf(trace_path, sizeof trace_path, "%s.%u",
             (options->trace_path != NULL) ? options->trace_path : "", train->rank);
    const char *const places[] = {(train->rank == 0) ? options->json_path : NULL,
                                  (train->rank == 0) ? options->dump_path : NULL,
                                  (options->trace_path != NULL) ? trace_path : NULL};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (tool_file_check(&file, places[i]) == 0) continue;
        fail(train, file.error);
        failed = 1.0f;
    }
    bool own = failed != 0.0f;
    status = ranks_sum(train->gf, &failed, 1); /* so that all end at once */
    if (status < 0) return own ? -1 : fail_library(train, status);
    if (!own && (failed != 0.0f))
        return fail(train, "ends with a rank that could not write where it was told to");
    return (failed != 0.0f) ? -1 : 0;
}

/* Once more with whoever is left if somebody dies on the way. */
static gf_status begin(struct train *train)
{
    gf_status status;
    while ((status = train_begin(train)) < 0)
        if ((status = train_shrink(train, status)) < 0) break;
    return status;
}

static int train_all(struct train *train)
{
    gf_status status = gf_rejoined(train->gf) ? train_joiner(train) : begin(train);
    if ((status >= 0) && !gf_rejoined(train->gf)) {
        status = train_resume(train);
        train->step = train->step_first;
    }
    if (status >= 0) status = train_steps(train);
    if ((status >= 0) && gf_left(train->gf)) return 0;
    if (status >= 0) status = train_finish(train);
    if (train->diverged[0] != '\0') return fail(train, train->diverged);
    if ((status < 0) && (train->checkpoint.error[0] != '\0')) {
        /* the others learn now, not at their deadline */
        if (!train->checkpoint.agreed) gf_abort(train->gf);
        if (!train->checkpoint.agreed) (void)gf_heartbeat(train->gf);
        return fail(train, train->checkpoint.error);
    }
    if ((status < 0) && (device_error(&train->device)[0] != '\0'))
        return fail(train, device_error(&train->device));
    return (status < 0) ? fail_library(train, status) : 0;
}

/* The weights as raw fp32, tensor by tensor. */
static int weights_dump(struct train *train, struct tool_file *file)
{
    const struct net_model *model = train->options->model;
    if (tool_file_begin(file, train->options->dump_path) != 0) return -1;
    for (uint32_t i = 0; i < model->tensor_count; i++)
        (void)fwrite(train_weight(train, i), sizeof(float), model->tensors[i].elem_count,
                     file->stream);
    return tool_file_end(file);
}

/* Rank 0's files and table; on the others only the check that all have learned the same. */
static int report_all(struct train *train)
{
    static const char *const types[GF_TYPE_COUNT] = {"fp32", "fp16", "bf16"};
    const struct train_options *options = train->options;
    static struct tool_file file;
    char error[128];
    int result = 0;
    if (gf_left(train->gf)) return 0; /* the others report */
    bool equal = report_hashes_equal(&train->result);
    if ((options->checkpoint_path != NULL) && (train->checkpoint.saved != train->step_count)) {
        snprintf(error, sizeof error, "the state after the last step, %llu, is in no checkpoint",
                 (unsigned long long)train->step_count);
        result = fail(train, error);
    }
    if (train->rank != 0) return equal ? result : -1;
    train->result.wire = types[train->config->exchange.wire];
    train->result.precision = types[options->precision];
    if ((options->json_path != NULL) &&
        (report_json(options->json_path, &train->result, &file) != 0))
        result = fail(train, file.error);
    if ((options->dump_path != NULL) && (weights_dump(train, &file) != 0))
        result = fail(train, file.error);
    report_table(&train->result);
    if (!equal) result = fail(train, "the ranks' weights differ");
    return result;
}

static int file_put(void *stream, const void *data, uint64_t size_bytes)
{
    return fwrite(data, 1, size_bytes, stream) != size_bytes;
}

/* Also of a run that failed: it says what the ranks were at. */
static int trace_write(struct train *train)
{
    static struct tool_file file;
    char path[TOOL_FILE_PATH_BYTES + 16u];
    if (train->options->trace_path == NULL) return 0;
    (void)snprintf(path, sizeof path, "%s.%u", train->options->trace_path, train->rank);
    if (tool_file_begin(&file, path) == 0) {
        (void)gf_trace_write(train->gf, file_put, file.stream); /* end() finds what failed */
        if (tool_file_end(&file) == 0) return 0;
    }
    return fail(train, file.error);
}

/* Where device.driver is a GPU the networks run there too. */
static int device_begin(struct train *train)
{
    if (!train->on_device) return 0;
    if (device_open(&train->device, train->config, &train->net) == GF_OK) return 0;
    return fail(train, device_error(&train->device));
}

static int run(struct train *train)
{
    static char error[DATA_ERROR_BYTES];
    struct tool_context context = {.gf = NULL};
    void *workspace = NULL;
    int result = data_open(train->options->data_folder, "train", &train->images, error);
    if (result == 0) result = data_open(train->options->data_folder, "t10k", &train->tests, error);
    if (result != 0) return fail(train, error);
    const char *wrong = train_plan(train);
    if (wrong != NULL) return fail(train, wrong);
    train->on_device = gf_gpu_is_device(train->config->device.driver);
    wrong = train->on_device ? device_refuses(train->options) : NULL;
    if (wrong != NULL) return fail(train, wrong);

    result = join(train, &context);
    wrong = (result == 0) ? train_split_refuses(train) : NULL;
    if (wrong != NULL) result = fail(train, wrong);
    if (result == 0) {
        workspace = tool_memory(train_layout(train, NULL));
        if (workspace == NULL) result = fail(train, "there is no memory for a batch of this size");
    }
    if (result == 0) {
        train_layout(train, workspace);
        result = device_begin(train);
    }
    /* it takes all ranks */
    if ((result == 0) && !gf_rejoined(train->gf)) result = look_ahead(train);
    if (result == 0) {
        result = train_all(train);
        if (trace_write(train) != 0) result = -1;
    }
    if (result == 0) result = report_all(train);
    train->left = gf_left(train->gf);
    signal_target = NULL;
    device_close(&train->device);
    gf_status status = tool_context_close(&context);
    if ((result == 0) && (status < 0)) {
        fprintf(stderr, "error: rank %u: %s while closing\n", train->rank, gf_status_name(status));
        result = -1;
    }
    checkpoint_close(&train->checkpoint);
    free(workspace);
    return result;
}

static int program(int argc, char **argv)
{
    static struct gf_config config;
    static struct train train;
    struct train_options options;
    int result = train_options_read(argc, argv, &options, &config);
    if (result != 0) return tool_args_exit(result);
    signals_catch();
    name_resolve = config.resolve;
    if (name_resolve != NULL) config.resolve = name_resolve_in_parts;
    if (options.elastic) train_leave_on_signal();
    config.log = log_take;
    config.log_user = &train;
    train.options = &options;
    train.config = &config;
    result = run(&train);
    bool left = train.left && (getenv("GF_ELASTIC") != NULL);
    data_close(&train.images);
    data_close(&train.tests);
    if (signal_number != 0) return 128 + signal_number;
    if ((result == 0) && left) return TOOL_EXIT_LEFT;
    /* a launcher that tries again would only hear it again */
    if (train.checkpoint.is_refused) return TOOL_EXIT_USAGE;
    return (result == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}

TOOL_MAIN("gf-train", program)
