/* From the posted join to a context that can be used: peers are connected, then warm.c. */
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/device_work.h"
#include "lib/core/extra.h"

#define CONNECTS_A_POLL 32u

/* Some peers a poll, all of them in turn until none is under way; GF_OK once all are connected. A
 * rank that reaches nobody is the culprit itself; of two, the one that does not coordinate. */
static gf_status peers_connect(gf_context *gf)
{
    for (uint32_t i = 0; (i < CONNECTS_A_POLL) && (gf->warm.asked < gf->world); i++) {
        size_t endpoint_bytes;
        const void *endpoint = gf_members_endpoint(gf->members, gf->warm.asked, &endpoint_bytes);
        uint32_t id = gf_member_id_of(gf, gf->warm.asked++);
        gf_status status = gf->link->driver->connect(gf->link, id, endpoint, endpoint_bytes);
        if (status == GF_AGAIN) {
            gf->warm.connecting++;
            gf->warm.awaited = id;
        }
        if (status < 0) gf->warm.unreached++;
    }
    if (gf->warm.asked < gf->world) return GF_AGAIN;
    if (gf->warm.unreached == 0) {
        bool all = gf->warm.connecting == 0;
        gf->warm.asked = gf->warm.connecting = 0;
        if (all) return GF_OK;
        if (gf->warm.connect_ns == 0) gf->warm.connect_ns = gf_awake(gf);
        if (gf_awake(gf) - gf->warm.connect_ns <= gf->config.exchange.timeout_ns) return GF_AGAIN;
        return gf_fail(gf, GF_ERR_TIMEOUT, GF_OPERATION_JOIN, gf_rank_of(gf, gf->warm.awaited),
                       GF_TENSOR_NONE,
                       "rank %u does not answer rank %u, which connects to it%s%.100s",
                       gf_rank_of(gf, gf->warm.awaited), gf->rank,
                       (gf->link->fault.text[0] != '\0') ? ": " : "", gf->link->fault.text);
    }
    if ((gf->warm.unreached == gf->world - 1) && ((gf->world > 2) || (gf->rank == 1)))
        gf->link->fault.peer = gf_member_id_of(gf, gf->rank);
    return gf_fail_fault(gf, &gf->link->fault, GF_OPERATION_JOIN);
}

/* Ranks that reach each other's memory share a machine: more of them than cores must not spin. A
 * launcher that binds each to one core shows none of the others'. */
static void neighbours_count(gf_context *gf)
{
    uint32_t local = 1;
    cpu_set_t cores;
    int core_count;
    for (uint32_t r = 0; r < gf->world; r++)
        if ((r != gf->rank) && (gf->link->driver->map(gf->link, gf_member_id_of(gf, r)) != NULL))
            local++;
    CPU_ZERO(&cores);
    core_count = (sched_getaffinity(0, sizeof cores, &cores) == 0) ? CPU_COUNT(&cores) : 0;
    if (core_count <= 1) core_count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    gf->waiting.oversubscribed = (core_count > 0) && ((int)local > core_count);
    gf->warm.met[GF_MET_PAIRS] = (gf->world <= GF_DIRECT_RANKS_MAX) ? (float)(local - 1) : 0;
    gf->warm.met[GF_MET_OVERSUBSCRIBED] = gf->waiting.oversubscribed ? 1 : 0;
    gf->warm.met[GF_MET_DEVICE] = gf->on_device ? 1 : 0;
    gf->warm.met[GF_MET_WIRE] = gf->link->reaches_device ? 1 : 0;
}

/* What names a network is not looked at on one node, so a wrong name would first be heard of on
 * several. */
static void unused_tell(gf_context *gf, const char *key, const char *names)
{
    if (gf->link->network || (gf->rank != 0) || (names[0] == '\0')) return;
    gf_log_line(&gf->log, GF_LOG_WARN,
                "all ranks are on one node: link.%s = \"%s\" is not used, and was not looked for",
                key, names);
}

/* Who comes in would be given nothing, and go on with weights of its own. */
static void unknown_weights_tell(gf_context *gf)
{
    if (!gf_is_elastic(gf) || gf_has_weights(gf) || (gf->rank != 0)) return;
    gf_log_line(&gf->log, GF_LOG_WARN,
                "the library knows no weights (optimizer.kind is none and state_extra is empty): a "
                "rank that joins later is given none");
}

/* Both are valid, and mostly a mistake. */
static void odd_tensors_tell(gf_context *gf)
{
    uint32_t empty = 0;
    uint32_t unnamed = 0;
    uint32_t first_empty = 0;
    uint32_t first_unnamed = 0;
    if (gf->rank != 0) return;
    for (uint32_t i = gf->tensor_count; i-- > 0;) {
        const struct gf_pool_tensor *tensor = &gf->tensors[i];
        if (tensor->elem_count == 0) empty++, first_empty = i;
        if (tensor->name[0] == '\0') unnamed++, first_unnamed = i;
    }
    if (empty > 0)
        gf_log_line(&gf->log, GF_LOG_WARN,
                    "tensors without elements: %u of %u, the first is %u \"%s\": nothing of them "
                    "is exchanged",
                    empty, gf->tensor_count, first_empty, gf->tensors[first_empty].name);
    if (unnamed > 0)
        gf_log_line(&gf->log, GF_LOG_WARN,
                    "tensors without a name: %u of %u, the first is %u: errors and traces tell "
                    "them by number alone",
                    unnamed, gf->tensor_count, first_unnamed);
}

static void opened(gf_context *gf)
{
    gf->phase = GF_PHASE_READY;
    gf->together_ns = gf_now(gf);
    gf->opening.wire_base = gf->link->sent_bytes;
    gf->opening.message_base = gf->link->sent_messages;
    gf->observed.stats.operations = 0;
    gf->observed.stats.mapped_bytes = 0;
    gf->observed.trace.written = gf->observed.trace.read = gf->observed.trace.next = 0;
    memset(gf->observed.late, 0, gf->world * sizeof *gf->observed.late);
    gf_opened_count(gf);
    unused_tell(gf, "devices", gf->config.link.devices);
    unused_tell(gf, "transports", gf->config.link.transports);
    unknown_weights_tell(gf);
    odd_tensors_tell(gf);
    gf_log_line(&gf->log, GF_LOG_INFO,
                "rank %u of %u: open over %s, %u tensors in %u fused buffers", gf->rank, gf->world,
                gf->link->driver->name, gf->tensor_count, gf->buffers.dense_count);
    if (gf->on_device)
        gf_log_line(&gf->log, GF_LOG_INFO, "rank %u: gradients lie on %s and travel %s", gf->rank,
                    gf->gpu->driver->name, gf_path_name(gf_path_of(gf)));
}

/* The join has shown on how many nodes the ranks are. */
static gf_status link_fit(gf_context *gf)
{
    const void *endpoint;
    size_t endpoint_bytes;
    uint32_t network;
    gf_status status;
    if (!gf_members_link_due(gf->members, &network)) return GF_AGAIN;
    status = gf_link_renew(gf, network, &endpoint, &endpoint_bytes);
    if ((status < 0) && (gf->error.code != GF_OK)) return status;
    if ((status < 0) && (gf->link->fault.code == GF_OK))
        return gf_device_failed(gf, GF_OPERATION_JOIN);
    if (status < 0) return gf_fail_fault(gf, &gf->link->fault, GF_OPERATION_JOIN);
    gf_members_link_renewed(gf->members, endpoint, endpoint_bytes);
    return GF_AGAIN;
}

gf_status gf_join_progress(gf_context *gf, uint64_t now_ns)
{
    gf_status status;
    if (gf->phase == GF_PHASE_JOIN) {
        status = gf_members_poll(gf->members, gf_awake(gf));
        if (status < 0) return gf_fail_from(gf, gf_members_error(gf->members));
        if (status == GF_AGAIN) return link_fit(gf);
        if ((status == GF_OK) && ((status = peers_connect(gf)) == GF_OK)) {
            neighbours_count(gf);
            gf_nodes_look(gf);
            gf->phase = GF_PHASE_WARM;
        }
        return (status < 0) ? status : GF_AGAIN;
    }
    GF_ASSERT(gf->phase == GF_PHASE_WARM);
    return gf_warm_poll(gf, now_ns);
}

static gf_status open_progress(gf_context *gf, void *arg)
{
    uint64_t now_ns;
    gf_status status;
    (void)arg;
    if (gf->change.state != GF_CHANGE_NONE) { /* a rank that comes back */
        status = gf_change_progress(gf, NULL);
        if ((status == GF_OK) && gf->config.rendezvous.rejoin && (gf->change.count == 1))
            opened(gf);
        return status;
    }
    now_ns = gf_poll_begin(gf);
    if ((gf->error.code != GF_OK) || (gf_aborted(gf) && (gf_enter(gf) < 0)))
        return gf_failing_poll(gf, now_ns);
    if (!gf_joins(gf)) return GF_OK;
    status = gf_join_progress(gf, now_ns);
    if (status == GF_OK) opened(gf);
    return (gf->error.code != GF_OK) ? gf_failing_poll(gf, now_ns) : status;
}

static gf_status open_enter(gf_context *gf)
{
    gf_status status = gf_own(gf);
    if ((status < 0) || (gf->change.state != GF_CHANGE_NONE)) return status;
    return gf_enter_poll(gf);
}

gf_status gf_open_poll(gf_context *gf)
{
    gf_status status = open_enter(gf);
    return (status < 0) ? status : open_progress(gf, NULL);
}

gf_status gf_open_wait_for(gf_context *gf, uint64_t bound_ns)
{
    gf_status status = open_enter(gf);
    return (status < 0) ? status : gf_wait_for(gf, open_progress, NULL, bound_ns);
}

gf_status gf_open_wait(gf_context *gf)
{
    return gf_open_wait_for(gf, GF_WAIT_UNBOUNDED);
}
