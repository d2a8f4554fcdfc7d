/* See perf_nccl.h. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/perf/perf_device.h"

#define NCCL_LIBRARY "libnccl.so.2"
#define SUM 0 /* ncclSum */

static struct perf_device *device_of(const struct perf *perf)
{
    return perf->of;
}

static bool calls_find(struct perf_nccl *nccl)
{
    bool all = true;
#define FIND(name)                                       \
    do {                                                 \
        void *found = dlsym(nccl->library, #name);       \
        memcpy(&nccl->calls.name, &found, sizeof found); \
        all = all && (found != NULL);                    \
    } while (0)
    FIND(ncclGetVersion);
    FIND(ncclGetUniqueId);
    FIND(ncclCommInitRank);
    FIND(ncclAllReduce);
    FIND(ncclCommDestroy);
    FIND(ncclCommAbort);
    FIND(ncclGetErrorString);
#undef FIND
    return all;
}

/* ---- what ranks tell each other before NCCL connects ---- */

struct words { /* of one rank */
    float has_library;
    float uuid[4]; /* bits */
};
#define WORDS (sizeof(struct words) / sizeof(float))

static gf_status words_gather(struct perf *perf, struct words *all)
{
    struct gf_request request = {0};
    gf_mem data = (gf_mem)(uintptr_t)all;
    gf_status status =
        gf_allgather(perf->gf, data, gf_world(perf->gf) * WORDS, GF_TYPE_F32, &request);
    return (status < 0) ? status : gf_request_wait(perf->gf, &request);
}

/* Says in text why not. */
static bool all_can(struct perf *perf, const struct words *all)
{
    struct perf_nccl *nccl = &device_of(perf)->nccl;
    uint32_t world = gf_world(perf->gf);
    uint32_t without = 0;
    for (uint32_t r = 0; r < world; r++) without += all[r].has_library == 0.0f;
    if (without > 0) {
        (void)snprintf(nccl->text, sizeof nccl->text, "skipped: no libnccl");
        if (without < world)
            (void)snprintf(nccl->text, sizeof nccl->text, "skipped: %u of %u ranks have no libnccl",
                           without, world);
        return false;
    }
    for (uint32_t a = 0; a < world; a++)
        for (uint32_t b = a + 1; b < world; b++)
            if (memcmp(all[a].uuid, all[b].uuid, sizeof all[a].uuid) == 0) {
                (void)snprintf(nccl->text, sizeof nccl->text,
                               "skipped: NCCL wants a GPU a rank; ranks %u and %u have "
                               "the same",
                               a, b);
                return false;
            }
    return true;
}

/* An error of any rank's is an error of all. */
static gf_status all_did(struct perf *perf, int result, const char *call, bool *good_out)
{
    struct perf_nccl *nccl = &device_of(perf)->nccl;
    gf_status status;
    perf->times_us[0] = (float)result;
    status = perf_greatest(perf->gf, perf->times_us, 1);
    *good_out = (status >= 0) && (perf->times_us[0] == 0.0f);
    if (!*good_out)
        (void)snprintf(
            nccl->text, sizeof nccl->text, "%s failed: %s", call,
            nccl->calls.ncclGetErrorString((result != 0) ? result : (int)perf->times_us[0]));
    return status;
}

static gf_status connect(struct perf *perf)
{
    struct perf_device *device = device_of(perf);
    struct perf_nccl *nccl = &device->nccl;
    struct gf_request request = {0};
    struct perf_nccl_id id = {{0}};
    int version = 0;
    int result = 0;
    bool good;
    gf_status status;
    if (gf_rank(perf->gf) == 0) result = nccl->calls.ncclGetUniqueId(&id);
    status = gf_broadcast(perf->gf, (gf_mem)(uintptr_t)&id, sizeof id / sizeof(float), GF_TYPE_F32,
                          0, &request);
    if (status >= 0) status = gf_request_wait(perf->gf, &request);
    if (status >= 0) status = all_did(perf, result, "ncclGetUniqueId", &good);
    if ((status < 0) || !good) return status;
    if ((status = perf_device_check(device, device->own.gpu->driver->enter(device->own.gpu))) < 0)
        return status;
    result = nccl->calls.ncclCommInitRank(&nccl->comm, (int)gf_world(perf->gf), id,
                                          (int)gf_rank(perf->gf));
    if ((status = perf_device_check(device, device->own.gpu->driver->leave(device->own.gpu))) < 0)
        return status;
    if (((status = all_did(perf, result, "ncclCommInitRank", &good)) < 0) || !good) return status;
    (void)nccl->calls.ncclGetVersion(&version);
    (void)snprintf(nccl->text, sizeof nccl->text, "%d.%d.%d", version / 10000, version / 100 % 100,
                   version % 100);
    nccl->is_open = true;
    return GF_OK;
}

gf_status perf_nccl_open(struct perf *perf, const char *path)
{
    struct perf_device *device = device_of(perf);
    struct perf_nccl *nccl = &device->nccl;
    struct words *all = (struct words *)(void *)perf->times_us;
    struct words *own = &all[gf_rank(perf->gf)];
    struct stat about;
    if (path == NULL) path = NCCL_LIBRARY;
    /* dlopen() would wait for the other end of a FIFO */
    if ((strchr(path, '/') == NULL) || (stat(path, &about) != 0) || S_ISREG(about.st_mode))
        nccl->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    own->has_library = ((nccl->library != NULL) && calls_find(nccl)) ? 1.0f : 0.0f;
    memcpy(own->uuid, device->own.gpu->uuid, sizeof own->uuid);
    gf_status status = words_gather(perf, all);
    return ((status < 0) || !all_can(perf, all)) ? status : connect(perf);
}

void perf_nccl_close(struct perf_device *device, int result)
{
    struct perf_nccl *nccl = &device->nccl;
    if ((nccl->comm == NULL) || (device->own.gpu->driver->enter(device->own.gpu) < 0)) return;
    /* Where another rank failed, Destroy would wait for it. */
    (void)(((result == 0) && nccl->is_open) ? nccl->calls.ncclCommDestroy(nccl->comm)
                                            : nccl->calls.ncclCommAbort(nccl->comm));
    (void)device->own.gpu->driver->leave(device->own.gpu);
    nccl->comm = NULL;
}

/* ---- measured ---- */

static gf_status nccl_run(struct perf *perf, uint64_t elem_count)
{
    static const int types[GF_TYPE_COUNT] = {
        [GF_TYPE_F32] = 7, [GF_TYPE_F16] = 6, [GF_TYPE_BF16] = 9};
    struct perf_device *device = device_of(perf);
    const struct perf_nccl *nccl = &device->nccl;
    gf_status status = perf_device_check(device, device->own.gpu->driver->enter(device->own.gpu));
    if (status < 0) return status;
    int result = nccl->calls.ncclAllReduce(
        (const void *)(uintptr_t)perf_input(perf), (void *)(uintptr_t)perf->data, elem_count,
        types[perf->plan.type], SUM, nccl->comm, (void *)(uintptr_t)device->own.queue.stream);
    if ((status = perf_device_check(device, device->own.gpu->driver->leave(device->own.gpu))) < 0)
        return status;
    if (result == 0) return perf_device_wait(perf);
    fprintf(stderr, "gf-perf: ncclAllReduce failed: %s\n", nccl->calls.ncclGetErrorString(result));
    return GF_ERR_DEVICE;
}

const struct perf_way perf_nccl = {.clear = perf_device_clear,
                                   .run = nccl_run,
                                   .fill = perf_device_fill,
                                   .wrong = perf_device_wrong};
