/* program_who VALUE FILE [twice|both] [GROUP.KEY=VALUE ..]: a rank that sums VALUE over its job, so
 * that a sum shows whose values were in it: ranks of two jobs that met say so. FILE is a
 * configuration; "-": none. twice: it opens another context beside the first, as a program of two
 * models would, and both: with a job.id of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"

static const struct gf_tensor tensor = {.name = "w", .elem_count = 16};

static gf_context *who_open(const struct gf_config *config)
{
    struct gf_footprint need;
    gf_context *gf = NULL;
    if (gf_measure(config, &tensor, 1, &need) != GF_OK) return NULL;
    void *memory = aligned_alloc(64, (need.control_bytes + 63) / 64 * 64);
    if (memory == NULL) return NULL;
    gf_status status = gf_open(config, &tensor, 1, memory, need.control_bytes, &gf);
    if (status == GF_OK) status = gf_open_wait(gf);
    return (status == GF_OK) ? gf : NULL;
}

int main(int argc, char **argv)
{
    static struct gf_config config;
    char error[GF_CONFIG_ERROR_BYTES];
    struct gf_request request;
    if (argc < 3) return 2;
    float value = strtof(argv[1], NULL);
    bool both = (argc > 3) && (strcmp(argv[3], "both") == 0);
    bool twice = both || ((argc > 3) && (strcmp(argv[3], "twice") == 0));
    int first = twice ? 4 : 3;
    if (((strcmp(argv[2], "-") != 0) && (gf_config_load(argv[2], &config, error) != GF_OK)) ||
        (gf_config_set_all(&config, (const char *const *)argv + first, (uint32_t)(argc - first),
                           "program_who", error) != GF_OK)) {
        (void)fprintf(stderr, "%s\n", error);
        return 2;
    }
    config.log = gf_log_stderr;
    config.log_user = (void *)(uintptr_t) "who";
    gf_context *gf = who_open(&config);
    if (gf == NULL) return 1;
    gf_status status = gf_allreduce(gf, (gf_mem)(uintptr_t)&value, 1, GF_TYPE_F32, &request);
    if (status == GF_OK) status = gf_request_wait(gf, &request);
    (void)printf("job %s rank %u of %u: sum %g\n", argv[1], gf_rank(gf), gf_world(gf),
                 (double)value);
    if (both) config.job.id = 2;
    gf_context *second = twice ? who_open(&config) : NULL;
    if (twice && (second == NULL)) return 4;
    if (twice && (gf_close(second) != GF_OK)) return 5;
    return ((gf_close(gf) == GF_OK) && (status == GF_OK)) ? 0 : 3;
}
