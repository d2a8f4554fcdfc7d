/* See train_options.h. */
#include "tools/train/train_options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "drivers/gpu.h"
#include "tools/common/tool_args.h"
#include "tools/common/tool_data.h"

#define TRACE_RECORDS 65536u /* of --trace, where the file says nothing: 4 MiB */
#define RATE_BATCH 64u       /* the batch that the models' learning rates are for */

/* What the command line says about the configuration. */
struct settings {
    struct tool_settings set;
    const char *precision;
};

static int refuse(const char *text, const char *allowed)
{
    (void)fprintf(stderr, "gf-train: %s: allowed is %s (--help says more)\n", text, allowed);
    return -1;
}

static int setting_apply(struct gf_config *config, const char *key, const char *value,
                         const char *origin)
{
    static char error[GF_CONFIG_ERROR_BYTES];
    if ((value == NULL) || (gf_config_set(config, key, value, origin, error) == GF_OK)) return 0;
    (void)fprintf(stderr, "gf-train: %s\n", error);
    return -1;
}

/* --precision stands for several keys. */
static int precision_apply(const char *precision, struct gf_config *config)
{
    if (strcmp(precision, "fp32") == 0) return 0;
    if (setting_apply(config, "optimizer.half_weights", precision, "--precision") != 0) return -1;
    if (setting_apply(config, "exchange.wire", precision, "--precision") != 0) return -1;
    return setting_apply(config, "loss_scale.enabled", "true", "--precision");
}

static int config_read(const char *path, const char *wire, const char *algorithm,
                       const char *device, const struct settings *settings,
                       struct gf_config *config_out)
{
    static char error[GF_CONFIG_ERROR_BYTES];
    if (gf_config_load(path, config_out, error) != GF_OK) {
        (void)fprintf(stderr, "gf-train: %s\n", error);
        return TOOL_FAILED;
    }
    if (precision_apply(settings->precision, config_out) != 0) return -1;
    if (setting_apply(config_out, "exchange.wire", wire, "--wire") != 0) return -1;
    if (setting_apply(config_out, "exchange.algorithm", algorithm, "--algorithm") != 0) return -1;
    if (setting_apply(config_out, "device.driver", device, "--device") != 0) return -1;
    if (gf_config_set_all(config_out, settings->set.text, settings->set.count, "--set", error) !=
        GF_OK) {
        (void)fprintf(stderr, "gf-train: %s\n", error);
        return -1;
    }
    if (config_out->optimizer.kind != GF_OPTIMIZER_NONE) return 0;
    config_out->optimizer.kind = GF_OPTIMIZER_SGD;
    config_out->optimizer.momentum = 0.9f;
    config_out->optimizer.weight_decay = 5e-4f;
    return 0;
}

int train_options_read(int argc, char **argv, struct train_options *options_out,
                       struct gf_config *config_out)
{
    static struct settings settings = {.precision = "fp32"};
    struct train_options out = {.config_path = tool_data("local.cfg"),
                                .data_folder = DATA_FOLDER,
                                .seed = 1,
                                .checkpoint_every = 100};
    const char *model = "cnn";
    const char *wire = NULL;
    const char *algorithm = NULL;
    const char *device = NULL;
    uint64_t epochs = 1;
    uint64_t batch = RATE_BATCH;
    double rate = 0.0;
    bool rate_given = false, every_given = false, epochs_given = false;
    const struct tool_option options[] = {
        {"model", TOOL_TEXT, &model, "NAME", .help = "cnn (1.7 M parameters, default), linear",
         .allowed = "cnn|linear"},
        {"epochs", TOOL_NUMBER, &epochs, "N", .help = "times through the data (default 1)",
         .low = 1, .high = 1000000, .given_out = &epochs_given},
        {"steps", TOOL_NUMBER, &out.steps, "N", .help = "steps, instead of epochs", .low = 1,
         .high = 1000000000},
        {"batch", TOOL_NUMBER, &batch, "N",
         .help = "images a step, of all ranks together (default 64)", .low = 1,
         .high = DATA_IMAGES_MAX},
        {"lr", TOOL_REAL, &rate, "X",
         .help = "highest learning rate; it rises for a fifth of the steps, at most 100, and falls "
                 "to 0 (default: rate.*"
                 " of the configuration, else 0.05, linear 0.01, by the root of batch/64)",
         .high_real = 100.0, .given_out = &rate_given},
        {"split", TOOL_TEXT, &out.split, "LAYER",
         .help = "divide this layer's rows between the ranks (model parallelism): fc1 of cnn, "
                 "linear of linear"},
        {"seed", TOOL_NUMBER, &out.seed, "N", .help = "of weights and order of images (default 1)"},
        {"data", TOOL_TEXT, &out.data_folder, "DIR",
         .help = "of the .gz idx files (default " DATA_FOLDER ")"},
        {"config", TOOL_TEXT, &out.config_path, "FILE",
         .help = "configuration (default local.cfg)"},
        {"device", TOOL_TEXT, &device, "NAME",
         .help = "device.driver of the configuration: host, cuda",
         .allowed = GF_GPU_DRIVER_CHOICES},
        {"precision", TOOL_TEXT, &settings.precision, "TYPE",
         .help = "fp32 (default), fp16, bf16: 16-bit gradients, wire, activations and copies of "
                 "the weights, which stay"
                 " fp32; dynamic loss scale",
         .allowed = "fp32|fp16|bf16"},
        {"wire", TOOL_TEXT, &wire, "TYPE",
         .help = "exchange.wire of the configuration: fp32, fp16, bf16"},
        {"algorithm", TOOL_TEXT, &algorithm, "NAME",
         .help = "exchange.algorithm: auto, ring, halving, .."},
        {"set", TOOL_SETTINGS, &settings.set, "GROUP.KEY=VALUE",
         .help = "any other line of it; may be repeated"},
        {"json", TOOL_TEXT, &out.json_path, "FILE", .help = "write the results there (rank 0)"},
        {"checkpoint", TOOL_TEXT, &out.checkpoint_path, "FILE",
         .help = "keep the run's state in FILE.RANK of each rank"},
        {"checkpoint-every", TOOL_NUMBER, &out.checkpoint_every, "N",
         .help = "steps from one to the next (default 100)", .low = 1, .high = 1000000000,
         .given_out = &every_given},
        {"elastic", TOOL_FLAG, &out.elastic, NULL,
         .help = "go on with the ranks that are left when some die; SIGUSR1 lets a rank leave"},
        {"resume", TOOL_FLAG, &out.resume, NULL,
         .help = "go on from the newest checkpoint that is whole; at step 0 if there is none"},
        {"trace", TOOL_TEXT, &out.trace_path, "FILE",
         .help = "write each rank's trace to FILE.RANK, for gf-trace: trace.records operations "
                 "(65,536)"},
        {"dump-weights", TOOL_TEXT, &out.dump_path, "FILE",
         .help = "write the weights there, raw fp32 (rank 0)"},
    };
    const struct tool_args args = {
        .program = "gf-train",
        .usage = "[options]",
        .about = "Trains a small network on Fashion-MNIST with all ranks of the job: those that "
                 "gf-run, Slurm or\n"
                 "Open MPI started, else this process alone. Without an optimizer in the "
                 "configuration the library\n"
                 "applies SGD with momentum 0.9 and weight decay 0.0005.",
        .options = options,
        .option_count = sizeof options / sizeof *options,
    };
    uint32_t operand_count = 0;
    int result = tool_args_read(&args, argc, argv, NULL, &operand_count);
    if (result != 0) return result;
    if ((out.resume || every_given) && (out.checkpoint_path == NULL))
        return refuse(out.resume ? "--resume" : "--checkpoint-every",
                      "it together with --checkpoint FILE");
    if (epochs_given && (out.steps != 0))
        return refuse("--epochs", "it without --steps N, which stands instead of it");
    out.model = net_model_find(model);
    if ((out.split != NULL) &&
        ((out.model->split.name == NULL) || (strcmp(out.split, out.model->split.name) != 0)))
        return refuse("--split", "fc1 with --model cnn, linear with --model linear");
    out.epochs = (uint32_t)epochs;
    out.batch = (uint32_t)batch;
    if (!rate_given)
        rate = (double)out.model->learning_rate * sqrt(fmax(1.0, (double)batch / RATE_BATCH));
    out.schedule =
        (struct gf_schedule){.kind = GF_SCHEDULE_POLYNOMIAL, .base_rate = (float)rate, .power = 1};
    if ((result = config_read(out.config_path, wire, algorithm, device, &settings, config_out)) !=
        0)
        return result;
    out.configured_rate = (config_out->rate.base_rate > 0) && !rate_given;
    if (out.configured_rate) out.schedule = config_out->rate;
    if ((out.trace_path != NULL) && (config_out->trace_records == 0))
        config_out->trace_records = TRACE_RECORDS;
    if (out.elastic) config_out->job.elastic = true;
    if (strcmp(settings.precision, "fp32") != 0) out.precision = config_out->optimizer.half_weights;
    if ((strcmp(settings.precision, "fp32") != 0) && (out.precision == GF_TYPE_F32))
        return refuse("--precision with optimizer.half_weights = fp32", "one of the two");
    *options_out = out;
    return 0;
}
