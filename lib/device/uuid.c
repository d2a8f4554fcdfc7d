/* Which ranks use the same device. This is mostly a mistake, and each of them then has at most half
 * of the device. */
#include <string.h>

#include "lib/context.h"
#include "lib/device/device.h"

_Static_assert(GF_UUID_WORDS * sizeof(float) == sizeof(((struct gf_gpu *)0)->uuid), "sizes match");

static const float *uuid_of(const gf_context *gf, uint32_t rank)
{
    return gf->device.uuids + rank * GF_UUID_WORDS;
}

static bool same(const gf_context *gf, uint32_t a, uint32_t b)
{
    return memcmp(uuid_of(gf, a), uuid_of(gf, b), sizeof gf->gpu->uuid) == 0;
}

void gf_uuid_begin(gf_context *gf)
{
    memset(gf->device.uuids, 0, gf->world * sizeof gf->gpu->uuid);
    memcpy(gf->device.uuids + gf->rank * GF_UUID_WORDS, gf->gpu->uuid, sizeof gf->gpu->uuid);
    gf_warm_post(gf, GF_COLL_ALLGATHER, gf->device.uuids, gf->world * (uint64_t)GF_UUID_WORDS);
}

/* Each rank but the first of a device names itself and the first. */
void gf_uuid_commit(gf_context *gf)
{
    static const unsigned char none[sizeof gf->gpu->uuid];
    const unsigned char *uuid = gf->gpu->uuid;
    uint32_t first = 0;
    if (gf->config.device.shared || (memcmp(uuid, none, sizeof none) == 0)) return;
    while (!same(gf, first, gf->rank)) first++;
    if (first == gf->rank) return;
    gf_log_line(&gf->log, GF_LOG_WARN,
                "ranks %u and %u have the same GPU, %s (GPU-%02x%02x%02x%02x-..): let "
                "device.ordinal be auto and the launcher show each rank its own, or say "
                "device.shared = true if it is "
                "meant",
                first, gf->rank, gf->gpu->name, uuid[0], uuid[1], uuid[2], uuid[3]);
}
