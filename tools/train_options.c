/* The command line, read strictly: what is not understood is refused with what would have been. */
#include "train_options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"

enum option_kind { OPTION_HELP, OPTION_TEXT, OPTION_COUNT, OPTION_REAL, OPTION_MODEL, OPTION_KEY, OPTION_SET };

static const struct option {
    const char *name, *value, *help;
    enum option_kind kind;
    uint64_t min, max; /* of a count */
    const char *key;   /* of the configuration */
} options[] = {
    {"--model", "cnn|linear", "the network: 1.7 M parameters, or softmax regression (default cnn)", OPTION_MODEL, 0, 0, NULL},
    {"--epochs", "N", "times through the data (default 1)", OPTION_COUNT, 1, 1000000, NULL},
    {"--steps", "N", "steps instead of epochs", OPTION_COUNT, 1, 1000000000, NULL},
    {"--batch", "N", "images a step, of all ranks together (default 64)", OPTION_COUNT, 1, DATA_IMAGES_MAX, NULL},
    {"--lr", "X", "highest learning rate (default 0.05 for cnn, 0.01 for linear)", OPTION_REAL, 0, 0, NULL},
    {"--seed", "N", "of the weights and of the order of the images (default 1)", OPTION_COUNT, 0, UINT64_MAX, NULL},
    {"--data", "DIR", "folder of the .gz idx files (default " DATA_FOLDER ")", OPTION_TEXT, 0, 0, NULL},
    {"--config", "FILE", "configuration (default config/local.cfg)", OPTION_TEXT, 0, 0, NULL},
    {"--wire", "fp32|fp16|bf16", "as exchange.wire in the configuration", OPTION_KEY, 0, 0, "exchange.wire"},
    {"--algorithm", "NAME", "as exchange.algorithm: auto, ring, halving, ..", OPTION_KEY, 0, 0, "exchange.algorithm"},
    {"--set", "GROUP.KEY=VALUE", "any line of the configuration; may be repeated", OPTION_SET, 0, 0, NULL},
    {"--json", "FILE", "write the results there (rank 0)", OPTION_TEXT, 0, 0, NULL},
    {"--dump-weights", "FILE", "write the weights there, raw fp32, tensor by tensor (rank 0)", OPTION_TEXT, 0, 0, NULL},
    {"--help", NULL, "this list", OPTION_HELP, 0, 0, NULL},
};
#define OPTION_TOTAL (sizeof options / sizeof *options)

static void help_print(void)
{
    printf("gf-train [OPTION ..]: trains a small network on Fashion-MNIST with all ranks of the job.\n"
           "Ranks come from GF_RANK and GF_WORLD (gf-run sets them), or from Slurm, Open MPI and the like; else one.\n\n");
    for (size_t i = 0; i < OPTION_TOTAL; i++) {
        char left[40];
        snprintf(left, sizeof left, "%s %s", options[i].name, (options[i].value != NULL) ? options[i].value : "");
        printf("  %-28s %s\n", left, options[i].help);
    }
    printf("\nThe gradients are summed, averaged and applied by the library; without an optimizer in the configuration it is\n"
           "SGD with momentum 0.9 and weight decay 0.0005.\n");
}

static int refuse(const char *option, const char *value, const char *allowed)
{
    fprintf(stderr, "error: %s %s: expected %s (--help lists the options)\n", option, value, allowed);
    return -1;
}

static int parse_count(const struct option *option, const char *value, uint64_t *count_out)
{
    char *end = NULL, allowed[80];
    errno = 0;
    uint64_t count = strtoull(value, &end, 10);
    bool digits = (value[0] >= '0') && (value[0] <= '9') && (*end == '\0') && (errno == 0);
    if (digits && (count >= option->min) && (count <= option->max)) {
        *count_out = count;
        return 0;
    }
    snprintf(allowed, sizeof allowed, "a whole number from %llu to %llu", (unsigned long long)option->min,
             (unsigned long long)option->max);
    return refuse(option->name, value, allowed);
}

static int parse_learning_rate(const struct option *option, const char *value, float *rate_out)
{
    char *end = NULL;
    float rate = strtof(value, &end);
    if ((end == value) || (*end != '\0') || !isfinite(rate) || (rate < 0.0f) || (rate > 100.0f))
        return refuse(option->name, value, "a number from 0 to 100");
    *rate_out = rate;
    return 0;
}

static const struct option *option_find(const char *name, size_t name_bytes)
{
    for (size_t i = 0; i < OPTION_TOTAL; i++) {
        if ((strlen(options[i].name) == name_bytes) && (memcmp(options[i].name, name, name_bytes) == 0)) return &options[i];
    }
    return NULL;
}

static int option_take(const struct option *option, const char *value, struct train_options *out)
{
    uint64_t count = 0;
    switch (option->kind) {
    case OPTION_MODEL:
        out->model = net_model_find(value);
        return (out->model != NULL) ? 0 : refuse(option->name, value, "cnn or linear");
    case OPTION_REAL:
        return parse_learning_rate(option, value, &out->learning_rate);
    case OPTION_TEXT:
        if (value[0] == '\0') return refuse(option->name, "''", "a name");
        if (strcmp(option->name, "--data") == 0) out->data_folder = value;
        if (strcmp(option->name, "--config") == 0) out->config_path = value;
        if (strcmp(option->name, "--json") == 0) out->json_path = value;
        if (strcmp(option->name, "--dump-weights") == 0) out->dump_path = value;
        return 0;
    case OPTION_COUNT:
        if (parse_count(option, value, &count) != 0) return -1;
        if (strcmp(option->name, "--steps") == 0) out->steps = count;
        if (strcmp(option->name, "--epochs") == 0) out->epochs = (uint32_t)count;
        if (strcmp(option->name, "--batch") == 0) out->batch = (uint32_t)count;
        if (strcmp(option->name, "--seed") == 0) out->seed = count;
        return 0;
    case OPTION_HELP:
    case OPTION_KEY:
    case OPTION_SET:
        break;
    }
    return 0;
}

/* The options that change the configuration, once its file is known. */
static int config_take(const struct option *option, const char *value, struct gf_config *config)
{
    char error[GF_CONFIG_ERROR_BYTES], name[64];
    const char *key = option->key;
    if (option->kind == OPTION_SET) {
        const char *equals = strchr(value, '=');
        size_t bytes = (equals != NULL) ? (size_t)(equals - value) : 0;
        if ((bytes == 0) || (bytes >= sizeof name)) return refuse(option->name, value, "GROUP.KEY=VALUE");
        memcpy(name, value, bytes);
        name[bytes] = '\0';
        key = name;
        value = equals + 1;
    }
    if (gf_config_set(config, key, value, option->name, error) == GF_OK) return 0;
    fprintf(stderr, "error: %s\n", error);
    return -1;
}

/* Walks over the arguments; with config NULL it takes the options, else those that change the configuration. */
static int arguments_walk(int argc, char **argv, struct train_options *out, struct gf_config *config)
{
    for (int i = 1; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        size_t name_bytes = (equals != NULL) ? (size_t)(equals - argv[i]) : strlen(argv[i]);
        const struct option *option = option_find(argv[i], name_bytes);
        if (option == NULL) {
            fprintf(stderr, "error: %s is not an option (--help lists them)\n", argv[i]);
            return -1;
        }
        const char *value = (equals != NULL) ? equals + 1 : NULL;
        if (option->value == NULL) {
            if (value != NULL) return refuse(option->name, value, "no value");
            if (option->kind == OPTION_HELP) return 1;
            continue;
        }
        if ((value == NULL) && (++i < argc)) value = argv[i];
        if (value == NULL) return refuse(option->name, "(nothing)", option->value);
        bool configures = (option->kind == OPTION_KEY) || (option->kind == OPTION_SET);
        int result = 0;
        if (configures && (config != NULL)) result = config_take(option, value, config);
        if (!configures && (config == NULL)) result = option_take(option, value, out);
        if (result != 0) return result;
    }
    return 0;
}

int train_options_parse(int argc, char **argv, struct train_options *options_out, struct gf_config *config_out)
{
    struct train_options out = {.model = &net_cnn, .config_path = "config/local.cfg", .data_folder = DATA_FOLDER,
                                .epochs = 1, .batch = 64, .seed = 1, .learning_rate = -1.0f};
    char error[GF_CONFIG_ERROR_BYTES];
    int result = arguments_walk(argc, argv, &out, NULL);
    if (result > 0) help_print();
    if (result != 0) return result;
    if (out.learning_rate < 0.0f) out.learning_rate = out.model->learning_rate;
    if (gf_config_load(out.config_path, config_out, error) != GF_OK) {
        fprintf(stderr, "error: %s\n", error);
        return -1;
    }
    result = arguments_walk(argc, argv, &out, config_out);
    if (result != 0) return result;
    if (config_out->optimizer.kind == GF_OPTIMIZER_NONE) {
        config_out->optimizer.kind = GF_OPTIMIZER_SGD;
        config_out->optimizer.momentum = 0.9f;
        config_out->optimizer.weight_decay = 5e-4f;
    }
    *options_out = out;
    return 0;
}
