/* program_streams FILE MASK WHEN [KEY=VALUE..]: a rank that has closed those of its descriptors 0
 * to 2 which MASK says, before it opens the library (WHEN "before") or after (WHEN "after"; then
 * the last rank dies, and the others begin a new generation). It goes on writing to stdout and
 * stderr in each step, as programs do. FILE.RANK gets "ok", or what was not as it should be. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "config.h"
#include "gradientflow.h"

enum { STEPS = 12, CLOSES_AT = 3, DIES_AT = 6, ELEMS = 300000 };

static char wrong[256];

static void streams_close(unsigned mask)
{
    for (int number = 0; number <= 2; number++)
        if ((mask >> number & 1u) != 0) (void)close(number);
}

/* Each is closed, or /dev/null. */
static void streams_look(unsigned mask, const char *when)
{
    struct stat about;
    for (int number = 0; number <= 2; number++) {
        if (((mask >> number & 1u) == 0) || (fstat(number, &about) != 0)) continue;
        if (S_ISCHR(about.st_mode) && (about.st_rdev == makedev(1, 3))) continue;
        (void)snprintf(wrong, sizeof wrong, "%s: descriptor %d has mode %o", when, number,
                       (unsigned)about.st_mode);
    }
}

static gf_status step(gf_context *gf)
{
    gf_status status = gf_step_begin(gf);
    if (status != GF_OK) return status;
    float *gradient = (float *)(uintptr_t)gf_gradient(gf, 0);
    for (int i = 0; i < ELEMS; i++) gradient[i] = 1;
    (void)dprintf(STDOUT_FILENO, "step %llu of a trainer\n", (unsigned long long)gf_steps(gf));
    (void)dprintf(STDERR_FILENO, "a warning of the trainer\n");
    if ((status = gf_tensor_ready(gf, 0, 0)) == GF_OK) status = gf_step_wait(gf);
    if ((status == GF_OK) && (gradient[ELEMS - 1] != (float)gf_world(gf)))
        (void)snprintf(wrong, sizeof wrong, "a sum of %u ranks is %g", gf_world(gf),
                       (double)gradient[ELEMS - 1]);
    return (status == GF_OK) ? gf_updated(gf) : status;
}

static gf_status run(gf_context *gf, unsigned mask, bool after)
{
    bool closed = !after;
    gf_status status = GF_OK;
    while ((status == GF_OK) && (wrong[0] == '\0') && (gf_steps(gf) < STEPS)) {
        if (!closed && (gf_steps(gf) >= CLOSES_AT)) {
            streams_close(mask);
            closed = true;
        }
        if (after && (gf_steps(gf) >= DIES_AT) && (gf_first_rank(gf) + 1 == gf_first_world(gf)))
            _exit(3);
        status = step(gf);
        if (after && ((status == GF_ERR_PEER) || (status == GF_ERR_LINK))) {
            status = gf_regroup_begin(gf);
            if (status == GF_OK) status = gf_regroup_wait(gf);
        }
        if (closed) streams_look(mask, "in a step");
    }
    return status;
}

int main(int argc, char **argv)
{
    static const struct gf_tensor tensor = {.name = "w", .elem_count = ELEMS};
    static float weights[4];
    static const struct gf_state_extra own = {
        .name = "weights", .data = weights, .bytes = sizeof weights};
    struct gf_config config;
    struct gf_footprint need;
    char error[GF_CONFIG_ERROR_BYTES] = "";
    char name[1024];
    char text[1024];
    gf_context *gf = NULL;
    if (argc < 4) return 2;
    const unsigned mask = (unsigned)strtoul(argv[2], NULL, 10);
    const bool after = strcmp(argv[3], "after") == 0;
    if (!after) streams_close(mask);
    gf_status status = gf_config_load("config/local.cfg", &config, error);
    if ((status == GF_OK) && (argc > 4))
        status = gf_config_set_all(&config, (const char *const *)argv + 4, (uint32_t)argc - 4,
                                   "arguments", error);
    memset(&config.optimizer, 0, sizeof config.optimizer);
    config.state_extra = &own; /* all that there is to have in an elastic job */
    config.state_extra_count = 1;
    if (status == GF_OK) status = gf_measure(&config, &tensor, 1, &need);
    void *memory = (status == GF_OK) ? aligned_alloc(64, need.control_bytes) : NULL;
    if (memory != NULL) status = gf_open(&config, &tensor, 1, memory, need.control_bytes, &gf);
    if (status == GF_OK) status = gf_open_wait(gf);
    if (!after) streams_look(mask, "after open");
    if (status == GF_OK) status = run(gf, mask, after);
    (void)snprintf(name, sizeof name, "%s.%u", argv[1], gf_first_rank(gf));
    const struct gf_error *last = gf_error_last(gf);
    if ((status != GF_OK) || (wrong[0] != '\0'))
        (void)snprintf(text, sizeof text, "%s %s: %s%s\n", wrong, gf_status_name(status), error,
                       (last != NULL) ? last->text : "");
    else
        (void)snprintf(text, sizeof text, "ok\n");
    (void)gf_close(gf);
    streams_look(mask, "after close");
    FILE *file =
        fopen(name, "we"); /* above 2, or where a stream was: it is all that is written now */
    if (file == NULL) return 4;
    (void)fputs(text, file);
    return (fclose(file) == 0) && (text[0] == 'o') ? 0 : 1;
}
