/* Whether ranks of one node sum their gradients from device to device (ops/node/direct_device.c).
 * They agree on that at the end of the warm-up. Each rank sends all others the handle of its arena,
 * gets the descriptors of the ranks of its node, maps them, and reads a canary in each. If one is
 * refused, or a canary differs, the ranks of that node go through host memory and log why
 * (commit()). A rank unmaps what it has imported before the exporters hear that it leaves. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "drivers/base/fnv.h"
#include "drivers/node.h"
#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/device/device.h"

#define WORDS_OF(type) (sizeof(type) / sizeof(float))

size_t gf_ipc_bytes(uint32_t world)
{
    return world *
           (sizeof(struct gf_ipc_export) + sizeof(struct gf_ipc_refusal) + 2 * sizeof(gf_mem));
}

void gf_ipc_lay(struct gf_ipc *exported, char *memory, uint32_t world)
{
    *exported = (struct gf_ipc){0};
    if (memory == NULL) return;
    exported->bases = (gf_mem *)(void *)memory;
    exported->local = exported->bases + world;
    exported->exports = (struct gf_ipc_export *)(void *)(exported->local + world);
    exported->refusals = (struct gf_ipc_refusal *)(void *)(exported->exports + world);
}

static unsigned char *handle_of(const gf_context *gf, uint32_t rank)
{
    return gf->ipc.exports[rank].handle;
}

/* The canary in a rank's memory while the others try to map it. It follows from the rank's
 * handle and the generation, so another rank's memory and memory of an earlier generation do not
 * have it. */
static uint64_t canary_of(const gf_context *gf, uint32_t rank)
{
    uint64_t hash = gf_fnv_bytes(GF_FNV_START, handle_of(gf, rank), GF_GPU_HANDLE_BYTES);
    return gf_fnv_u64(gf_fnv_u64(hash, gf->generation), rank);
}

static gf_status canary_write(gf_context *gf)
{
    uint64_t canary = canary_of(gf, gf->rank);
    return gf_device_copy(gf, gf->device.canary, (gf_mem)(uintptr_t)&canary, sizeof canary, true);
}

/* Reads the canary of that rank: *same_out says whether its base leads to the rank's memory. May
 * block until this device has copied. */
static gf_status canary_check(gf_context *gf, uint32_t rank, bool *same_out)
{
    uint64_t canary = 0;
    gf_mem at = gf->ipc.bases[rank] + (gf->device.canary - gf->device.base);
    gf_status status = gf_device_copy(gf, at, (gf_mem)(uintptr_t)&canary, sizeof canary, false);
    *same_out = (status == GF_OK) && (canary == canary_of(gf, rank));
    return status;
}

static void refusal_log(gf_context *gf, const char *what, const char *why)
{
    gf_log_line(&gf->log, GF_LOG_WARN, "rank %u: %s: %s", gf->rank, what, why);
}

/* This rank's reason, and the driver's own words for it. */
static void refused(gf_context *gf, struct gf_ipc_refusal *own, gf_ipc_reason reason,
                    const char *what)
{
    own->reason = reason;
    own->foreign_code = (int32_t)gf->gpu->fault.foreign_code;
    refusal_log(gf, what, gf->gpu->fault.text);
    gf->gpu->fault = (struct gf_fault){.peer = GF_RANK_NONE}; /* nothing has failed */
}

/* The lowest rank of its node, as nodes.c has it; with direct all ranks are of one. */
static uint32_t node_of(const gf_context *gf, uint32_t rank)
{
    if (gf->algorithm == GF_ALGORITHM_DIRECT) return 0;
    return (uint32_t)gf->nodes.table.reach[GF_REACH_WORDS * rank];
}

static bool is_local(const gf_context *gf, uint32_t rank)
{
    return node_of(gf, rank) == node_of(gf, gf->rank);
}

static void offer(gf_context *gf, int descriptor)
{
    if ((gf->link != NULL) && (gf->link->shares != NULL))
        gf_node_device_offer(gf->link->shares, descriptor);
    else if (descriptor >= 0)
        (void)close(descriptor);
}

gf_status gf_ipc_begin(gf_context *gf)
{
    const struct gf_gpu_driver *driver = gf->gpu->driver;
    struct gf_ipc_export *own;
    int descriptor = -1;
    uint32_t devices = (uint32_t)gf->warm.met[GF_MET_DEVICE];
    gf->ipc.agreed = false;
    gf->ipc.mixed = false;
    gf->ipc.stage = GF_IPC_EXPORTS;
    if ((devices == 0) || ((gf->algorithm != GF_ALGORITHM_DIRECT) && !gf->nodes.used)) return GF_OK;
    if (devices < gf->world) {
        if (gf->on_device)
            gf_log_line(&gf->log, GF_LOG_WARN,
                        "rank %u: gradients go through host memory: only %u of %u ranks have "
                        "theirs on a device",
                        gf->rank, devices, gf->world);
        return GF_OK;
    }
    own = &gf->ipc.exports[gf->rank];
    memset(gf->ipc.exports, 0, gf->world * sizeof *gf->ipc.exports);
    if (driver->export_arena == NULL) {
        own->refusal.reason = GF_IPC_NOT_BUILT;
    } else if (driver->export_arena(gf->gpu, own->handle, &descriptor) < 0) {
        refused(gf, &own->refusal, GF_IPC_KEPT,
                "device memory cannot be exported to the other ranks");
    } else {
        gf_status status = canary_write(gf);
        offer(gf, descriptor);
        if (status < 0) return status;
    }
    gf_warm_post(gf, GF_COLL_ALLGATHER, (float *)(void *)gf->ipc.exports,
                 gf->world * WORDS_OF(struct gf_ipc_export));
    return GF_AGAIN;
}

/* If a rank of the node exports nothing, there is nothing to import. */
static void imports_begin(gf_context *gf)
{
    memset(gf->ipc.refusals, 0, gf->world * sizeof *gf->ipc.refusals);
    gf->ipc.refusals[gf->rank] = gf->ipc.exports[gf->rank].refusal;
    gf->ipc.stage = GF_IPC_IMPORTS;
    gf->ipc.next = 0;
    for (uint32_t rank = 0; rank < gf->world; rank++)
        if (is_local(gf, rank) && (gf->ipc.exports[rank].refusal.reason != GF_IPC_FINE))
            gf->ipc.next = gf->world;
}

/* GF_AGAIN: its descriptor has not arrived yet. */
static gf_status import(gf_context *gf, uint32_t rank, struct gf_ipc_refusal *own)
{
    const char *what = "device memory of another rank is out of reach";
    struct gf_node *node = gf->link->shares;
    int descriptor = -1;
    bool same;
    gf_status status = GF_OK;
    if (node != NULL) status = gf_node_device_pull(node, rank, gf->polled.at_ns, &descriptor);
    if (status == GF_AGAIN) return GF_AGAIN;
    if (status < 0) {
        own->reason = GF_IPC_OUT_OF_REACH;
        refusal_log(gf, what, "its process gives no descriptor of it");
        return GF_OK;
    }
    status = gf->gpu->driver->import_arena(gf->gpu, handle_of(gf, rank), descriptor,
                                           &gf->ipc.bases[rank]);
    if (descriptor >= 0) (void)close(descriptor);
    if (status < 0) {
        gf->ipc.bases[rank] = 0;
        refused(gf, own, GF_IPC_OUT_OF_REACH, what);
        return GF_OK;
    }
    status = canary_check(gf, rank, &same);
    if ((status < 0) || same) return status;
    own->reason = GF_IPC_OTHER_MEMORY;
    gf_log_line(&gf->log, GF_LOG_WARN,
                "rank %u: what was imported as rank %u's device memory is other memory", gf->rank,
                rank);
    return GF_OK;
}

/* All ranks of the node export theirs. */
static gf_status imports_progress(gf_context *gf)
{
    struct gf_ipc *exported = &gf->ipc;
    struct gf_ipc_refusal *own = &exported->refusals[gf->rank];
    for (; (exported->next < gf->world) && (own->reason == GF_IPC_FINE); exported->next++) {
        gf_status status = GF_OK;
        if (exported->next == gf->rank)
            exported->bases[gf->rank] = gf->device.base;
        else if (is_local(gf, exported->next))
            status = import(gf, exported->next, own);
        if (status != GF_OK) return status;
    }
    return GF_OK;
}

static const char *reason_text(uint32_t reason)
{
    static const char *const texts[GF_IPC_REASON_COUNT] = {
        "", "its device's driver exports no memory", "it may not export its device memory",
        "it cannot reach the device memory of another rank",
        "it reads other memory than another rank exported"};
    return (reason < GF_IPC_REASON_COUNT) ? texts[reason] : "it gives no reason that is known";
}

/* ---- what follows of the refusals, which are the same on all ranks ---- */

static bool has_refused(const gf_context *gf, uint32_t rank)
{
    return gf->ipc.refusals[rank].reason != GF_IPC_FINE;
}

/* GF_RANK_NONE: nobody has. */
static uint32_t first_refused(const gf_context *gf)
{
    for (uint32_t rank = 0; rank < gf->world; rank++)
        if (has_refused(gf, rank)) return rank;
    return GF_RANK_NONE;
}

/* The first rank that refused in the node whose lowest rank is `node`; GF_RANK_NONE: none has. */
static uint32_t first_refused_in(const gf_context *gf, uint32_t node)
{
    for (uint32_t rank = node; rank < gf->world; rank++)
        if ((node_of(gf, rank) == node) && has_refused(gf, rank)) return rank;
    return GF_RANK_NONE;
}

static bool some_node_agrees(const gf_context *gf)
{
    for (uint32_t rank = 0; rank < gf->world; rank++)
        if ((node_of(gf, rank) == rank) && (first_refused_in(gf, rank) == GF_RANK_NONE))
            return true;
    return false;
}

static void agree(gf_context *gf)
{
    uint32_t local = 0;
    for (uint32_t rank = 0; rank < gf->world; rank++)
        if (is_local(gf, rank)) gf->ipc.local[local++] = gf->ipc.bases[rank];
    offer(gf, -1);
    gf->ipc.agreed = true;
}

/* Logs the reason of rank `who`, which is of this rank's node or of another one. */
static void staged_reason_log(gf_context *gf, uint32_t who)
{
    const struct gf_ipc_refusal *refusal = &gf->ipc.refusals[who];
    char whose[48] = "";
    if (gf->ipc.agreed) (void)snprintf(whose, sizeof whose, " of rank %u's node", node_of(gf, who));
    gf_log_line(&gf->log, GF_LOG_WARN,
                "rank %u: gradients%s go %s, not from device to device: rank %u: %s (code %d)",
                gf->rank, whose, gf_path_name(gf->ipc.agreed ? GF_PATH_STAGED : gf_path_of(gf)),
                who, reason_text(refusal->reason), refusal->foreign_code);
}

/* The ranks of a node sum from device to device if none of them has refused; a refusal counts for
 * its own node only. If no node sums so, hierarchy may not pay, and auto then chooses messages of
 * the wire instead. If some nodes do and others do not, all cut their blocks alike. */
static void commit(gf_context *gf)
{
    uint32_t here = first_refused_in(gf, node_of(gf, gf->rank));
    uint32_t first = first_refused(gf);
    bool some_agree = some_node_agrees(gf);
    if (here == GF_RANK_NONE)
        agree(gf);
    else
        gf_ipc_close(gf);
    if (!some_agree && gf_nodes_need_peers(gf)) gf->nodes.used = false;
    gf->ipc.mixed = some_agree && (first != GF_RANK_NONE);
    if (first != GF_RANK_NONE) staged_reason_log(gf, (here != GF_RANK_NONE) ? here : first);
}

gf_status gf_ipc_next(gf_context *gf)
{
    gf_status status;
    if (gf->ipc.stage == GF_IPC_ANSWERS) {
        commit(gf);
        return GF_OK;
    }
    if (gf->ipc.stage == GF_IPC_EXPORTS) imports_begin(gf);
    if ((status = imports_progress(gf)) != GF_OK) return status;
    gf->ipc.stage = GF_IPC_ANSWERS;
    gf_warm_post(gf, GF_COLL_ALLGATHER, (float *)(void *)gf->ipc.refusals,
                 gf->world * WORDS_OF(struct gf_ipc_refusal));
    return GF_AGAIN;
}

void gf_ipc_close(gf_context *gf)
{
    struct gf_ipc *exported = &gf->ipc;
    const struct gf_gpu_driver *driver = gf->gpu->driver;
    for (uint32_t rank = 0; (exported->bases != NULL) && (rank < gf->world); rank++) {
        if ((exported->bases[rank] != 0) && (rank != gf->rank))
            driver->give_back(gf->gpu, handle_of(gf, rank), exported->bases[rank]);
        exported->bases[rank] = 0;
    }
    offer(gf, -1);
    exported->agreed = false;
}
