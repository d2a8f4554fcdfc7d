/* Rows kept in a text file, so that a long table goes on where it was stopped. A row is found by a
 * hash of everything that its times depend on; the version stands for the library and the
 * simulator. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drivers/base/fnv.h"
#include "tools/common/tool_file.h"
#include "tools/plan/plan.h"

#define CACHE_VERSION 6u

static uint64_t hash_real(uint64_t hash, double value)
{
    return gf_fnv_bytes(hash, &value, sizeof value);
}

/* As a file says it, so that no key can be forgotten. */
static uint64_t hash_cluster(uint64_t hash, const struct tool_cluster *cluster)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    if (file != NULL) tool_cluster_print(cluster, file);
    if ((file == NULL) || (fclose(file) != 0)) {
        (void)plan_refuse("no memory");
        exit(EXIT_FAILURE);
    }
    hash = gf_fnv_bytes(hash, text, bytes);
    free(text);
    return hash;
}

static uint64_t case_hash(const struct plan_model *model, const struct tool_cluster *cluster,
                          plan_mode mode, uint32_t gpus, const struct plan_choice *choice)
{
    struct gf_config config;
    uint64_t hash = hash_cluster(GF_FNV_START, cluster);
    uint64_t config_hash;
    plan_mode_config(mode, choice, &config);
    config.job.world = gpus;
    config.log = NULL;
    config_hash = gf_config_hash(&config);
    const double numbers[] = {CACHE_VERSION,
                              GF_VERSION,
                              mode,
                              gpus,
                              plan_batch(model, cluster, choice),
                              plan_compute_s(model, cluster, choice),
                              config.job.elastic,
                              config.job.world_max,
                              model->sample.tokens,
                              (double)model->sample.activation_bytes};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        hash = hash_real(hash, numbers[i]);
    hash = gf_fnv_bytes(hash, &config_hash, sizeof config_hash);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        hash = hash_real(hash, (double)model->tensors[i].elem_count);
        hash = hash_real(hash, (double)model->tensors[i].flags);
        hash = hash_real(hash, (double)model->tensors[i].type);
        hash = hash_real(hash, (double)model->flops[i].forward);
        hash = hash_real(hash, (double)model->flops[i].backward);
        hash = hash_real(hash, (double)model->flops[i].inputs);
    }
    return hash;
}

static bool line_read(const char *line, uint64_t hash, struct plan_row *row)
{
    uint64_t found;
    int known;
    struct plan_row read = *row;
    if (sscanf(line, "%" SCNx64 " %d %lf %lf %lf %lf %lf %lf %lf %lf %lf", &found, &known,
               &read.compute_s, &read.step_s, &read.exposed_s, &read.images_per_second,
               &read.speedup, &read.efficiency, &read.wire_bytes, &read.messages,
               &read.buffers) != 11)
        return false;
    if (found != hash) return false;
    read.known = known != 0;
    *row = read;
    return true;
}

/* NULL: errno, and why_out[TOOL_FILE_WHY_BYTES]. */
static FILE *cache_open(const char *path, int flags, const char *mode, char *why_out)
{
    int number = tool_file_open(path, flags, why_out);
    FILE *file = (number >= 0) ? fdopen(number, mode) : NULL;
    if ((file == NULL) && (number >= 0)) {
        (void)snprintf(why_out, TOOL_FILE_WHY_BYTES, "no memory");
        (void)close(number);
        errno = ENOMEM;
    }
    return file;
}

typedef enum cache_found { CACHE_FOUND, CACHE_LACKS, CACHE_REFUSED } cache_found;

static cache_found cache_find(const char *path, uint64_t hash, struct plan_row *row)
{
    char why[TOOL_FILE_WHY_BYTES];
    char line[512];
    bool found = false;
    FILE *file = cache_open(path, O_RDONLY, "r", why);
    if ((file == NULL) && (errno == ENOENT)) return CACHE_LACKS;
    if (file == NULL) {
        (void)plan_refuse("--cache %s: %s", path, why);
        return CACHE_REFUSED;
    }
    while (!found && (fgets(line, sizeof line, file) != NULL)) found = line_read(line, hash, row);
    (void)fclose(file);
    return found ? CACHE_FOUND : CACHE_LACKS;
}

static int cache_add(const char *path, uint64_t hash, const struct plan_row *row)
{
    char why[TOOL_FILE_WHY_BYTES];
    FILE *file = cache_open(path, O_WRONLY | O_CREAT | O_APPEND, "a", why);
    if (file == NULL) return plan_refuse("cannot write to %s: %s", path, why);
    (void)fprintf(file, "%016" PRIx64 " %d %.17g %.17g %.17g %.17g %.17g %.17g %.17g %.17g %.17g\n",
                  hash, row->known, row->compute_s, row->step_s, row->exposed_s,
                  row->images_per_second, row->speedup, row->efficiency, row->wire_bytes,
                  row->messages, row->buffers);
    return (fclose(file) == 0) ? 0 : plan_refuse("cannot write to %s", path);
}

int plan_cache_run(const struct plan_cache *cache, const struct plan_model *model,
                   const struct tool_cluster *cluster, plan_mode mode, uint32_t gpus,
                   const struct plan_choice *choice, struct plan_row *row_out)
{
    struct plan_row row = {.mode = mode, .gpus = gpus};
    uint64_t hash;
    if (cache->path == NULL) return plan_case_run(model, cluster, mode, gpus, choice, row_out);
    hash = case_hash(model, cluster, mode, gpus, choice);
    const cache_found found = cache_find(cache->path, hash, &row);
    if (found == CACHE_REFUSED) return -1;
    if (found == CACHE_LACKS) {
        int result = plan_case_run(model, cluster, mode, gpus, choice, &row);
        if (result != 0) return result;
        if (row.known && (cache_add(cache->path, hash, &row) != 0)) return -1;
    }
    *row_out = row;
    return 0;
}
