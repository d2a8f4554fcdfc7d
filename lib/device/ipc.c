/* Whether ranks of one node sum their gradients from device to device (ops/node/direct_device.c),
 * agreed on by all at the end of the warm-up: each tells the others how its arena is reached, sends
 * each what it needs for that, tries to reach all and reads a canary there, and where one is
 * refused or reads something else all go on through host memory and say why. What was imported is
 * given back before the exporters hear that this rank leaves. */
#include <stdio.h>
#include <string.h>

#include "drivers/fnv.h"
#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/device/device.h"

/* Why a rank's memory cannot be shared. */
enum {
    IPC_FINE,
    IPC_NOT_BUILT,
    IPC_KEPT,
    IPC_NOT_SENT,
    IPC_OUT_OF_REACH,
    IPC_OTHER_MEMORY,
    IPC_ELASTIC
};
/* what all ranks have done once the request has ended */
enum { IPC_EXPORTED, IPC_SENT, IPC_IMPORTED };

size_t gf_ipc_bytes(uint32_t world)
{
    return world * (GF_IPC_WORDS * sizeof(float) + 2 * sizeof(float) + 2 * sizeof(gf_mem));
}

void gf_ipc_lay(struct gf_ipc *exported, char *memory, uint32_t world)
{
    *exported = (struct gf_ipc){0};
    if (memory == NULL) return;
    exported->bases = (gf_mem *)(void *)memory;
    exported->local = exported->bases + world;
    exported->handles = (float *)(void *)(exported->local + world);
    exported->refusals = exported->handles + world * GF_IPC_WORDS;
}

static float *handle_of(const gf_context *gf, uint32_t rank)
{
    return gf->ipc.handles + rank * GF_IPC_WORDS;
}

/* What a rank's memory holds while the others try to reach it. Of its handle and the epoch, so that
 * neither another rank's nor an earlier one's will do. */
static uint64_t canary_of(const gf_context *gf, uint32_t rank)
{
    uint64_t hash = gf_fnv_bytes(GF_FNV_START, handle_of(gf, rank) + 2, GF_GPU_HANDLE_BYTES);
    return gf_fnv_u64(gf_fnv_u64(hash, gf->epoch), rank);
}

static gf_status canary_write(gf_context *gf)
{
    uint64_t canary = canary_of(gf, gf->rank);
    return gf_device_copy(gf, gf->device.canary, (gf_mem)(uintptr_t)&canary, sizeof canary, true);
}

/* GF_OK, and whether it is the rank's memory that lies at its base. May block until this device has
 * copied. */
static gf_status canary_look(gf_context *gf, uint32_t rank, bool *same_out)
{
    uint64_t canary = 0;
    gf_mem at = gf->ipc.bases[rank] + (gf->device.canary - gf->device.base);
    gf_status status = gf_device_copy(gf, at, (gf_mem)(uintptr_t)&canary, sizeof canary, false);
    *same_out = (status == GF_OK) && (canary == canary_of(gf, rank));
    return status;
}

/* This rank's reason, and the driver's own words for it. */
static void refused(gf_context *gf, float *own, float why, const char *what)
{
    own[0] = why;
    own[1] = (float)gf->gpu->fault.foreign_code;
    gf_log_line(&gf->log, GF_LOG_WARN, "rank %u: %s: %s", gf->rank, what, gf->gpu->fault.text);
    gf->gpu->fault = (struct gf_fault){.peer = GF_RANK_NONE}; /* nothing has failed */
}

/* All ranks are of one node. */
static bool is_direct(const gf_context *gf)
{
    return gf->algorithm == GF_ALGORITHM_DIRECT;
}

static bool is_local(const gf_context *gf, uint32_t rank)
{
    bool found = is_direct(gf);
    for (uint32_t i = 0; !found && (i < gf->nodes.of.local_size); i++)
        found = gf->nodes.of.local[i] == gf_member_id_of(gf, rank);
    return found;
}

gf_status gf_ipc_begin(gf_context *gf)
{
    const struct gf_gpu_driver *driver = gf->gpu->driver;
    float *handle;
    uint32_t devices = (uint32_t)gf->warm.met[GF_MET_DEVICE];
    gf->ipc.agreed = false;
    gf->ipc.stage = IPC_EXPORTED;
    if ((devices == 0) || (!is_direct(gf) && !gf->nodes.used)) return GF_OK;
    if (devices < gf->world) {
        if (gf->on_device)
            gf_log_line(&gf->log, GF_LOG_WARN,
                        "rank %u: gradients go through host memory: only %u of %u ranks have "
                        "theirs on a device",
                        gf->rank, devices, gf->world);
        return GF_OK;
    }
    handle = handle_of(gf, gf->rank);
    memset(gf->ipc.handles, 0, gf->world * GF_IPC_WORDS * sizeof(float));
    if (driver->export == NULL) {
        handle[0] = IPC_NOT_BUILT;
    } else if (driver->export(gf->gpu, handle + 2) < 0) {
        refused(gf, handle, IPC_KEPT, "device memory cannot be exported to the other ranks");
    } else {
        gf_status status = canary_write(gf);
        if (status < 0) return status;
        handle[1] = gf->gpu->outlives ? 1 : 0;
    }
    gf_warm_post(gf, GF_COLL_ALLGATHER, gf->ipc.handles, gf->world * GF_IPC_WORDS);
    return GF_AGAIN;
}

/* To all ranks of the node what they need beside the handle. */
static void export_to_all(gf_context *gf)
{
    float *own = gf->ipc.refusals + 2 * gf->rank;
    memset(gf->ipc.refusals, 0, 2 * gf->world * sizeof(float));
    own[0] = handle_of(gf, gf->rank)[0];
    own[1] = (own[0] != IPC_FINE) ? handle_of(gf, gf->rank)[1] : 0;
    for (uint32_t rank = 0; (rank < gf->world) && (own[0] == IPC_FINE); rank++) {
        const float *handle = handle_of(gf, rank);
        if (!is_local(gf, rank) || (handle[0] != IPC_FINE)) continue;
        /* CUDA IPC says nothing of an exporter that is killed while it is read. */
        if (gf->config.job.elastic && (handle[1] == 0)) own[0] = IPC_ELASTIC;
        if ((rank == gf->rank) || (own[0] != IPC_FINE)) continue;
        if (gf->gpu->driver->export_to(gf->gpu, handle + 2) < 0)
            refused(gf, own, IPC_NOT_SENT, "device memory cannot be exported to another rank");
    }
}

/* All ranks export theirs. */
static gf_status import_all(gf_context *gf)
{
    struct gf_ipc *exported = &gf->ipc;
    float *own = exported->refusals + 2 * gf->rank;
    uint32_t local = 0;
    for (uint32_t rank = 0; (rank < gf->world) && (own[0] == IPC_FINE); rank++) {
        if (!is_local(gf, rank)) continue;
        if (rank == gf->rank) exported->bases[rank] = exported->local[local++] = gf->device.base;
        if (rank == gf->rank) continue;
        if (gf->gpu->driver->import(gf->gpu, handle_of(gf, rank) + 2, &exported->bases[rank]) < 0) {
            exported->bases[rank] = 0;
            refused(gf, own, IPC_OUT_OF_REACH, "device memory of another rank is out of reach");
            break;
        }
        exported->local[local++] = exported->bases[rank];
        bool same;
        gf_status status = canary_look(gf, rank, &same);
        if (status < 0) return status;
        if (same) continue;
        own[0] = IPC_OTHER_MEMORY;
        gf_log_line(&gf->log, GF_LOG_WARN,
                    "rank %u: what was imported as rank %u's device memory is other memory",
                    gf->rank, rank);
    }
    return GF_OK;
}

static const char *reason(float number)
{
    static const char *const reasons[] = {
        "",
        "its device's driver exports no memory",
        "it may not export its device memory",
        "it cannot send another rank's process a descriptor of its device memory",
        "it cannot reach the device memory of another rank",
        "it reads other memory than another rank exported",
        "job.elastic: device memory of its node does not outlive its process"};
    return reasons[(number <= IPC_ELASTIC) ? (uint32_t)number : IPC_OTHER_MEMORY];
}

/* Some rank has refused: so do all, and say why. */
static bool is_refused(gf_context *gf)
{
    for (uint32_t rank = 0; rank < gf->world; rank++) {
        const float *refusal = gf->ipc.refusals + 2 * rank;
        if (refusal[0] == IPC_FINE) continue;
        gf_ipc_close(gf);
        if (gf_nodes_need_peers(gf)) gf->nodes.used = false;
        gf_log_line(&gf->log, GF_LOG_WARN,
                    "rank %u: gradients go %s, not from device to device: rank %u: %s (code %d)",
                    gf->rank, gf_path_name(gf_path_of(gf)), rank, reason(refusal[0]),
                    (int)refusal[1]);
        return true;
    }
    return false;
}

static void agree(gf_context *gf)
{
    (void)gf->gpu->driver->export(gf->gpu, NULL);
    gf->ipc.agreed = true;
}

gf_status gf_ipc_next(gf_context *gf)
{
    gf_status status;
    switch (gf->ipc.stage++) {
    case IPC_EXPORTED: export_to_all(gf); break;
    case IPC_SENT:
        if (is_refused(gf)) return GF_OK;
        if ((status = import_all(gf)) < 0) return status;
        break;
    default:
        if (!is_refused(gf)) agree(gf);
        return GF_OK;
    }
    gf_warm_post(gf, GF_COLL_ALLREDUCE, gf->ipc.refusals, 2 * (uint64_t)gf->world);
    return GF_AGAIN;
}

void gf_ipc_close(gf_context *gf)
{
    struct gf_ipc *exported = &gf->ipc;
    const struct gf_gpu_driver *driver = gf->gpu->driver;
    for (uint32_t rank = 0; (exported->bases != NULL) && (rank < gf->world); rank++) {
        if ((exported->bases[rank] != 0) && (rank != gf->rank))
            driver->give_back(gf->gpu, handle_of(gf, rank) + 2, exported->bases[rank]);
        exported->bases[rank] = 0;
    }
    if ((exported->bases != NULL) && (driver->export != NULL)) (void)driver->export(gf->gpu, NULL);
    exported->agreed = false;
}
