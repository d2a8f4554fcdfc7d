/* From the posted join to a context that can be used: peers are connected; warm.c does the
 * rest. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/device_work.h"
#include "lib/core/applied.h"
#include "drivers/base/arithmetic.h"

#define CONNECTS_A_POLL 32u
#define LONG_NS UINT64_C(1000000000)

static bool bit_is(const unsigned char *bits, uint32_t rank)
{
    return ((uint32_t)bits[rank / 8] >> (rank % 8) & 1u) != 0;
}

static bool is_awaited(const gf_context *gf, uint32_t rank)
{
    return bit_is(gf->warm.awaited, rank);
}

static void bit_set(unsigned char *bits, uint32_t rank, bool is)
{
    const unsigned char bit = (unsigned char)(1u << (rank % 8));
    bits[rank / 8] = (unsigned char)(is ? bits[rank / 8] | bit : bits[rank / 8] & ~bit);
}

/* Why ranks are not reached: the best explanation so far. */
struct unreached {
    gf_status code; /* GF_OK: nothing is known */
    uint32_t peer;
    int64_t foreign_code;
    char text[240];
};

static void unreached_note(gf_context *gf, uint32_t rank, struct unreached *unreached)
{
    struct gf_fault fault = {.code = GF_OK, .peer = GF_RANK_NONE};
    if (!gf_edge_is_broken(gf, rank, &fault)) return;
    /* what this rank lacks, then what the kernel says */
    if ((fault.code == GF_OK) || (unreached->code == GF_ERR_SYSTEM)) return;
    if ((unreached->code != GF_OK) && (fault.code != GF_ERR_SYSTEM) &&
        ((unreached->foreign_code != 0) || (fault.foreign_code == 0)))
        return;
    unreached->code = fault.code;
    unreached->peer = fault.peer;
    unreached->foreign_code = fault.foreign_code;
    (void)snprintf(unreached->text, sizeof unreached->text, "%s", fault.text);
}

static void unreached_seek(gf_context *gf, struct unreached *unreached_out)
{
    memset(unreached_out, 0, sizeof *unreached_out);
    if (gf_awake(gf) - gf->warm.connect_ns < gf_grace_ns(gf->config.exchange.timeout_ns)) return;
    for (uint32_t rank = 0; rank < gf->world; rank++)
        if (is_awaited(gf, rank)) unreached_note(gf, rank, unreached_out);
}

bool gf_join_is_refused(const gf_context *gf, uint32_t rank)
{
    return (gf->warm.unreached > 0) && bit_is(gf->warm.refused, rank);
}

/* Some connections are still under way. A lost packet is sent again, and a host may still start:
 * only the deadline ends the attempt, but the log shows it earlier. */
static gf_status connecting(gf_context *gf)
{
    struct unreached unreached;
    uint64_t timeout_ns = gf->config.exchange.timeout_ns;
    uint64_t span_ns;
    uint32_t rank = 0;
    if (gf->warm.connect_ns == 0) gf->warm.connect_ns = gf_awake(gf);
    span_ns = gf_awake(gf) - gf->warm.connect_ns;
    if ((span_ns <= timeout_ns) &&
        (gf->warm.warned || (span_ns < timeout_ns / 2) || (span_ns < LONG_NS)))
        return GF_AGAIN;
    unreached_seek(gf, &unreached);
    while (!is_awaited(gf, rank)) rank++;
    if (unreached.code == GF_OK) {
        unreached.peer = rank;
        unreached.code = GF_ERR_TIMEOUT;
        (void)snprintf(unreached.text, sizeof unreached.text,
                       "rank %u does not answer rank %u, which connects to it", rank, gf->rank);
    }
    if (span_ns > timeout_ns)
        return gf_fail(gf, unreached.code, GF_OPERATION_JOIN, unreached.peer, GF_TENSOR_NONE, "%s",
                       unreached.text);
    gf->warm.warned = true;
    gf_log_line(&gf->log, GF_LOG_WARN, "%s (tried for %.1f s; goes on until exchange.timeout)",
                unreached.text, (double)span_ns * 1e-9);
    return GF_AGAIN;
}

/* Connects some peers a poll, and goes over all of them until none is under way; GF_OK once all are
 * connected. */
static gf_status peers_connect(gf_context *gf)
{
    for (uint32_t i = 0; (i < CONNECTS_A_POLL) && (gf->warm.asked < gf->world); i++) {
        size_t endpoint_bytes;
        uint32_t rank = gf->warm.asked++;
        const void *endpoint = gf_control_endpoint(gf->control, rank, &endpoint_bytes);
        gf_status status = gf->link->driver->connect(gf->link, rank, endpoint, endpoint_bytes);
        /* each by itself: an inquiry in the middle of a pass wants those of the pass before, too */
        bit_set(gf->warm.awaited, rank, status == GF_AGAIN);
        bit_set(gf->warm.refused, rank, status < 0);
        if (status == GF_AGAIN) gf->warm.connecting++;
        if (status < 0) gf->warm.unreached++;
    }
    if (gf->warm.asked < gf->world) return GF_AGAIN;
    if (gf->warm.unreached == 0) {
        bool all = gf->warm.connecting == 0;
        gf_status status = all ? GF_OK : connecting(gf);
        gf->warm.asked = gf->warm.connecting = 0;
        return status;
    }
    return gf_fail_fault(gf, &gf->link->fault, GF_OPERATION_JOIN);
}

/* Ranks that reach each other's memory share a machine. If they are more than its cores they must
 * not spin. A launcher that binds each rank to one core hides the other cores, so a set of one core
 * counts as all cores. */
static void neighbours_count(gf_context *gf)
{
    uint32_t local = 1;
    cpu_set_t cores;
    int core_count;
    for (uint32_t r = 0; r < gf->world; r++)
        if ((r != gf->rank) && (gf->link->driver->map(gf->link, r) != NULL)) local++;
    CPU_ZERO(&cores);
    core_count = (sched_getaffinity(0, sizeof cores, &cores) == 0) ? CPU_COUNT(&cores) : 0;
    if (core_count <= 1) core_count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    gf->wait_state.oversubscribed = (core_count > 0) && ((int)local > core_count);
    gf->warm.met[GF_MET_PAIRS] = (gf->world <= GF_DIRECT_RANKS_MAX) ? (float)(local - 1) : 0;
    gf->warm.met[GF_MET_OVERSUBSCRIBED] = gf->wait_state.oversubscribed ? 1 : 0;
    gf->warm.met[GF_MET_DEVICE] = gf->on_device ? 1 : 0;
    gf->warm.met[GF_MET_WIRE] = gf->link->reaches_device ? 1 : 0;
}

/* On one node the names of networks are not used, so a wrong name would be found only once the job
 * has several nodes. */
static void unused_log(gf_context *gf, const char *key, const char *names)
{
    if (gf->link->network || (gf->rank != 0) || (names[0] == '\0')) return;
    gf_log_line(&gf->log, GF_LOG_WARN,
                "all ranks are on one node: link.%s = \"%s\" is not used, and was not looked for",
                key, names);
}

/* A rank that comes in would receive nothing, and continue with weights of its own. */
static void unknown_weights_log(gf_context *gf)
{
    if (!gf_is_elastic(gf) || gf_has_weights(gf) || (gf->rank != 0)) return;
    gf_log_line(&gf->log, GF_LOG_WARN,
                "the library knows no weights (optimizer.kind is none and state_extra is empty): a "
                "rank that joins later is given none");
}

/* Warns of tensors without elements or without a name: both are valid, and mostly a mistake. */
static void odd_tensors_log(gf_context *gf)
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
    gf->sparse.world = gf->world;
    gf->together_ns = gf_now(gf);
    gf->opening.wire_base = gf->link->sent_bytes;
    gf->opening.message_base = gf->link->sent_messages;
    gf->observed.stats.operations = 0;
    gf->observed.stats.mapped_bytes = 0;
    gf->observed.trace.written = gf->observed.trace.read = gf->observed.trace.next = 0;
    memset(gf->observed.late, 0, gf->world * sizeof *gf->observed.late);
    gf_opened_count(gf);
    unused_log(gf, "devices", gf->config.link.devices);
    unused_log(gf, "transports", gf->config.link.transports);
    unknown_weights_log(gf);
    odd_tensors_log(gf);
    gf_log_line(&gf->log, GF_LOG_INFO,
                "rank %u of %u: open over %s, %u tensors in %u fused buffers", gf->rank, gf->world,
                gf_link_name(gf->link), gf->tensor_count, gf->buffers.dense_count);
    if (gf->on_device)
        gf_log_line(&gf->log, GF_LOG_INFO, "rank %u: gradients lie on %s and travel %s", gf->rank,
                    gf->gpu->driver->name, gf_path_name(gf_path_of(gf)));
}

/* LIST has come: this is the first generation, or the job has begun before and takes this process
 * in. */
static gf_status list_take(gf_context *gf)
{
    struct gf_generation to;
    struct gf_fault fault = {.code = GF_OK, .peer = GF_RANK_NONE};
    gf_status status;
    if (!gf_control_list_due(gf->control, &to)) {
        if (gf_awake(gf) < gf->opening.join_ns) return GF_AGAIN;
        return gf_fail(gf, GF_ERR_TIMEOUT, GF_OPERATION_JOIN, GF_RANK_NONE, GF_TENSOR_NONE,
                       "the coordinator at %s answers, and has put this rank on no list within "
                       "twice the deadline of the join (%.1f s): %s",
                       gf->config.rendezvous.address,
                       (double)gf->config.rendezvous.join_timeout_ns * 1e-9,
                       gf_is_elastic(gf) ? "the ranks of the job under way let nobody in"
                                         : "others are awaited");
    }
    if (to.comes_in) {
        gf_come_in_begin(gf);
        return GF_AGAIN;
    }
    status = gf_generation_enter(gf, &to, &fault);
    if (status >= 0) return GF_AGAIN;
    return gf_fail_fault(gf, &fault, GF_OPERATION_JOIN);
}

/* An error as of the coordinator, or of the member where that has lost it. */
static gf_status found(gf_context *gf)
{
    return gf_fail_from(gf, gf_control_error(gf->control));
}

gf_status gf_join_progress(gf_context *gf, uint64_t now_ns)
{
    gf_status status;
    if (gf->phase == GF_PHASE_JOIN) {
        switch (gf_poll_control(gf)) {
        case GF_CONTROL_AWAITS: return list_take(gf);
        case GF_CONTROL_WORKS: break;
        case GF_CONTROL_FAILED:
        case GF_CONTROL_ENDED:
        case GF_CONTROL_LEAVES:
        case GF_CONTROL_LEFT: return found(gf);
        }
        if ((status = peers_connect(gf)) == GF_OK) {
            neighbours_count(gf);
            gf_nodes_reach_find(gf);
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
    if (gf->change.state != GF_CHANGE_NONE) { /* a process that comes in */
        bool is_first = (gf->together_ns == 0);
        status = gf_change_progress(gf, NULL);
        if ((status == GF_OK) && is_first) opened(gf);
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
    GF_COMPUTES();
    gf_status status = open_enter(gf);
    return (status < 0) ? status : open_progress(gf, NULL);
}

gf_status gf_open_wait_for(gf_context *gf, uint64_t bound_ns)
{
    GF_COMPUTES();
    gf_status status = open_enter(gf);
    return (status < 0) ? status : gf_wait_for(gf, open_progress, NULL, bound_ns);
}

gf_status gf_open_wait(gf_context *gf)
{
    GF_COMPUTES();
    return gf_open_wait_for(gf, GF_WAIT_UNBOUNDED);
}
