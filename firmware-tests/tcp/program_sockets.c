/* program_sockets [FIRST]: an appliance of sockets alone (gf_drivers_tcp), without libconfig: ranks
 * and address come from the environment. Sums of several sizes between ranks that share no memory;
 * prints "sums are right". FIRST: asks for link.driver = ucx, which it does not have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/drivers.h"
#include "gradientflow.h"

const struct gf_drivers *const gf_drivers_default = &gf_drivers_tcp;

#define ELEMS_MAX (1u << 20)

static const struct gf_tensor tensor = {.name = "w", .elem_count = 1024};
static float data[ELEMS_MAX];

static void log_line(void *user, gf_log_level level, const char *text)
{
    (void)user;
    if (level == GF_LOG_ERROR) fprintf(stderr, "error: %s\n", text);
}

static int sums_try(gf_context *gf)
{
    for (uint32_t count = 1; count <= ELEMS_MAX; count *= 8) {
        float expect = 0;
        struct gf_request request;
        gf_status status;
        for (uint32_t r = 0; r < gf_world(gf); r++) expect += (float)(r + 1);
        for (uint32_t i = 0; i < count; i++) data[i] = (float)(gf_rank(gf) + 1);
        status = gf_allreduce(gf, (gf_mem)(uintptr_t)data, count, GF_TYPE_F32, &request);
        if (status == GF_OK) status = gf_request_wait(gf, &request);
        if (status != GF_OK) return 2;
        for (uint32_t i = 0; i < count; i++)
            if (data[i] != expect) return 3;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct gf_config config = {.link = {.private_memory = true, .streams = 2, .checksum = true}};
    struct gf_footprint need;
    gf_context *gf = NULL;
    void *memory;
    gf_status status;
    int code = 1;
    (void)argv;
    config.log = log_line;
    if (argc > 1) config.link.driver = GF_LINK_UCX;
    if (gf_measure(&config, &tensor, 1, &need) != GF_OK) return 1;
    memory = aligned_alloc(64, need.control_bytes);
    if (memory == NULL) return 1;
    status = gf_open(&config, &tensor, 1, memory, need.control_bytes, &gf);
    if (status == GF_OK) status = gf_open_wait(gf);
    if (status == GF_OK) code = sums_try(gf);
    if (code == 0) printf("sums are right\n");
    (void)gf_close(gf);
    free(memory);
    return code;
}
