/* Opening and closing: drivers up, join, warm-up; and back. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/core/layout.h"
#include "lib/device/device.h"
#include "lib/elastic/elastic.h"
#include "lib/sparse/sparse_module.h"

#define CONNECTS_A_POLL 32u

/* Host memory of this process that is not shared: what foreign libraries take shows as its growth. */
static uint64_t resident_bytes(void)
{
    char text[128];
    char *rest = text;
    uint64_t resident, shared;
    ssize_t length;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    length = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (length <= 0) return 0;
    text[length] = '\0';
    (void)strtoull(rest, &rest, 10);
    resident = strtoull(rest, &rest, 10);
    shared = strtoull(rest, &rest, 10);
    return (resident - shared) * GF_PAGE_BYTES;
}

/* Not inlined, like members_open(). */
__attribute__((noinline)) static void context_lay(const struct gf_layout *layout, const struct gf_control_parts *parts,
                                                  gf_context *gf)
{
    uint32_t msg_count = layout->op_need.msg_count;
    size_t req_bytes = layout->drivers.link->req_size_bytes;
    gf->modules = layout->modules;
    gf->config = layout->config;
    gf->drivers = layout->drivers;
    gf->log = (struct gf_log){gf->config.log, gf->config.log_user};
    gf->rank = gf->config.job.rank;
    gf->world = gf->config.job.world;
    gf->epoch = 1;
    gf->error.peer = GF_RANK_NONE;
    gf->error.tensor = GF_TENSOR_NONE;
    gf->error.rank = gf->rank;
    gf->pool = layout->pool;
    gf->tensor_count = layout->tensor_count;
    gf->tensors = parts->tensors;
    gf->buffers = gf->dense_buffers = parts->dense_buffers;
    gf->sparse_buffers = parts->sparse_buffers;
    gf->buffer_pending = parts->buffer_pending;
    gf->buffer_order = parts->buffer_order;
    gf->trace = (struct gf_trace){.records = parts->trace, .record_max = gf_layout_trace_records(layout)};
    gf->peers = parts->peers;
    gf->node_words = parts->node_words;
    if (layout->on_device) gf->modules->device->ipc_lay(&gf->ipc, parts->exported, gf->world);
    gf->sparse = (struct gf_sparse){.elem_count = layout->pool.sparse_elem_count,
                                    .chunk_elems = gf->config.sparse.chunk_elems,
                                    .chunk_count = layout->chunk_count,
                                    .selection = parts->selection,
                                    .sent = parts->selection + layout->chunk_count,
                                    .history_empty = true};
    gf->step_module = (layout->chunk_count > 0) ? gf->modules->sparse->step : NULL;
    gf->on_device = layout->on_device;
    gf->under_way.count = gf->config.exchange.buffers_active;
    gf->fork_page = parts->fork_page + (GF_PAGE_BYTES - (uintptr_t)parts->fork_page % GF_PAGE_BYTES) % GF_PAGE_BYTES;
    gf_choose_reset(gf);
    gf->scale = gf->config.loss_scale.enabled ? gf->config.loss_scale.initial : 1.0f;
    gf->step.gradient_scale = 1.0f;
    for (uint32_t s = 0; s < gf->under_way.count; s++) {
        struct gf_coll *coll = &gf->under_way.ops[s].coll;
        coll->msgs = parts->msgs + (size_t)s * msg_count;
        coll->msg_count = msg_count;
        for (uint32_t m = 0; m < msg_count; m++) {
            size_t req = (size_t)s * msg_count + m, sum_req = (size_t)gf->under_way.count * msg_count + req;
            coll->msgs[m].req = (struct gf_req *)(void *)(parts->reqs + req * req_bytes);
            if (!gf->config.link.integrity) continue;
            coll->msgs[m].sum = &parts->sums[req];
            coll->msgs[m].sum->req = (struct gf_req *)(void *)(parts->reqs + sum_req * req_bytes);
        }
    }
}

static void exchange_lay(const struct gf_layout *layout, gf_context *gf)
{
    struct gf_arena exchange = {.base = gf->link->driver->region(gf->link),
                                .size_bytes = layout->footprint.exchange_bytes};
    struct gf_exchange_parts parts = gf_layout_exchange(layout, &exchange);
    gf->region_base = exchange.base;
    gf->region_bytes = exchange.size_bytes;
    GF_ASSERT(parts.flags == exchange.base);
    gf->wire = (gf_mem)(uintptr_t)parts.wire;
    gf->finite.seen = parts.seen;
    if (!gf->on_device) {
        gf->gradient = (gf_mem)(uintptr_t)parts.gradient;
        gf->pack = gf->wire;
        gf->finite.counters = (gf_mem)(uintptr_t)parts.seen;
    }
    gf->sparse.lists = parts.lists;
    gf->vote = parts.vote;
    gf->sparse.scores = (float *)(void *)(parts.vote + GF_VOTE_WORDS);
    gf->user = (gf_mem)(uintptr_t)parts.user;
    for (uint32_t s = 0; s < gf->under_way.count; s++) {
        struct gf_op *op = &gf->under_way.ops[s];
        op->staging = (gf_mem)(uintptr_t)(parts.staging + (size_t)s * layout->op_need.staging_bytes);
        op->coll.staging_bytes = layout->op_need.staging_bytes;
    }
}

/* The pools of optimizer and sparse: in the host's memory, or where the device has put them. */
static void pools_lay(gf_context *gf, const struct gf_layout *layout, const struct gf_pool_parts *host)
{
    const struct gf_config *config = &gf->config;
    struct gf_pool_parts pools = layout->on_device ? gf->modules->device->lay(gf, layout) : *host;
    gf->weight = (config->optimizer.kind != GF_OPTIMIZER_NONE) ? (gf_mem)(uintptr_t)pools.weight : 0;
    gf->momentum = ((gf->weight != 0) && (config->optimizer.momentum > 0.0f)) ? (gf_mem)(uintptr_t)pools.momentum : 0;
    gf->half = (config->optimizer.half_weights != GF_TYPE_F32) ? (gf_mem)(uintptr_t)pools.half : 0;
    gf->norms = (gf_mem)(uintptr_t)pools.norms;
    gf->part = (gf_mem)(uintptr_t)pools.part;
    gf->sparse.history = (gf_mem)(uintptr_t)pools.history;
    gf->sparse.scratch = (gf_mem)(uintptr_t)pools.scratch;
    gf->sparse.scratch_elems = gf_layout_scratch_elems(layout);
}

static gf_status gpu_open(const struct gf_layout *layout, void *state, gf_context *gf, struct gf_fault *fault_out)
{
    const struct gf_gpu_setup setup = gf_layout_gpu(layout);
    gf_status status = gf->drivers.gpu->open(&setup, state, &gf->gpu, fault_out);
    if (status < 0) return status;
    gf->queue = (struct gf_queue){.gpu = gf->gpu, .stream = gf->gpu->driver->stream(gf->gpu)};
    gf->ops = gf->gpu->ops;
    gf->wire_queue = (struct gf_queue){.gpu = gf->gpu};
    gf->wire_ops = gf->on_device ? &gf_ops_host : gf->gpu->ops;
    return GF_OK;
}

/* On the host: weights, momentum and half weights lie in a row, history behind the norms. A device's arena is zero. */
static gf_status pools_clear(const struct gf_pool_parts *parts, gf_context *gf, struct gf_fault *fault_out)
{
    size_t weight_bytes = (size_t)(parts->norms - parts->weight);
    size_t history_bytes = (size_t)(parts->scratch - parts->history);
    gf_status status;
    if (gf->on_device) return GF_OK;
    status = gf->ops->zero(&gf->queue, (gf_mem)(uintptr_t)parts->weight, weight_bytes);
    if (status == GF_OK) status = gf->ops->zero(&gf->queue, (gf_mem)(uintptr_t)parts->history, history_bytes);
    if (status < 0) *fault_out = gf->gpu->fault;
    return status;
}

static gf_status link_open(const struct gf_layout *layout, void *state, gf_context *gf, struct gf_fault *fault_out)
{
    struct gf_link_setup setup = gf_layout_link(layout);
    setup.epoch = gf->epoch;
    if (layout->may_reach_device) {
        setup.gpu = gf->gpu;
        setup.device = gf->gpu->driver->arena(gf->gpu);
        setup.device_bytes = layout->footprint.device_bytes;
    }
    return gf->drivers.link->open(&setup, state, &gf->link, fault_out);
}

static gf_status rendezvous_open(const struct gf_layout *layout, void *state, gf_context *gf,
                                 struct gf_fault *fault_out)
{
    const struct gf_rendezvous_setup setup = gf_layout_rendezvous(layout);
    return gf->drivers.rendezvous->open(&setup, state, gf_now(gf), &gf->rendezvous, fault_out);
}

/* Algorithms that are not linked here: auto must not choose what another rank does not have. Nothing where all are. */
static void modules_tell(const struct gf_modules *modules, char *summary, struct gf_offer *offer)
{
    size_t used = strlen(summary), room = sizeof offer->summary - used;
    for (uint32_t a = GF_ALGORITHM_AUTO + 1; a < GF_ALGORITHM_COUNT; a++) {
        int length;
        if (modules->coll[a] != NULL) continue;
        length = snprintf(summary + used, room, " %s=unlinked", gf_algorithm_name((gf_algorithm)a));
        if ((length < 0) || ((size_t)length >= room)) return;
        used += (size_t)length;
        room -= (size_t)length;
        offer->config_hash += UINT64_C(0x9e3779b97f4a7c15) << a;
    }
}

/* Not inlined, like context_open(): small frames are a promise to appliances with small stacks. */
__attribute__((noinline)) static gf_status members_open(const struct gf_layout *layout, void *state,
                                                        uint64_t tensors_hash, gf_context *gf)
{
    struct gf_members_setup setup = {.rank = gf->rank,
                                     .world = gf->world,
                                     .epoch = gf->epoch,
                                     .join_timeout_ns = gf->config.rendezvous.join_timeout_ns,
                                     .exchange_timeout_ns = gf->config.exchange.timeout_ns,
                                     .rejoin = gf->config.rendezvous.rejoin,
                                     .answer_timeout_ns = GF_ANSWER_NS,
                                     .address = gf->config.rendezvous.address,
                                     .endpoint_bytes_max = gf->link->driver->endpoint_bytes_max,
                                     .elastic = (gf->modules->elastic != NULL) ? gf->modules->elastic->members : NULL,
                                     .log = gf->log};
    void *endpoint = (void *)(uintptr_t)gf->under_way.ops[0].staging; /* nothing runs yet */
    size_t endpoint_bytes = 0;
    gf_status status;
    GF_ASSERT(gf->link->driver->endpoint_bytes_max <= gf->under_way.ops[0].coll.staging_bytes);
    setup.offer = (struct gf_offer){.version = GF_VERSION,
                                    .world = gf->world,
                                    .config_hash = gf_config_hash(&layout->config),
                                    .tensors_hash = tensors_hash,
                                    .tensor_count = gf->tensor_count,
                                    .elem_count = layout->pool.elem_count};
    modules_tell(gf->modules, gf_config_summary(&layout->config, setup.offer.summary, sizeof setup.offer.summary),
                 &setup.offer);
    if ((status = gf->link->driver->endpoint(gf->link, endpoint, &endpoint_bytes)) < 0) return status;
    gf->members = gf_members_open(&setup, state, gf->rendezvous, endpoint, endpoint_bytes, gf_now(gf));
    return GF_OK;
}

static void drivers_close(gf_context *gf)
{
    if ((gf->gpu != NULL) && gf->on_device) gf->modules->device->ipc_close(gf);
    if ((gf->gpu != NULL) && (gf->link != NULL)) gf_device_unregister(gf);
    if (gf->link != NULL) gf->link->driver->close(gf->link);
    if (gf->rendezvous != NULL) gf->rendezvous->driver->close(gf->rendezvous);
    if (gf->gpu != NULL) gf->gpu->driver->close(gf->gpu);
    gf->link = NULL;
    gf->rendezvous = NULL;
    gf->gpu = NULL;
    gf->members = NULL;
}

/* A context that failed before it joined: it holds nothing but its error. */
static gf_status open_fail(gf_context *gf, gf_status status, const struct gf_fault *fault)
{
    drivers_close(gf);
    gf->phase = GF_PHASE_FAILED;
    gf->error.code = status;
    gf->error.operation = GF_OPERATION_JOIN;
    gf->error.peer = fault->peer;
    gf->error.foreign_code = fault->foreign_code;
    memcpy(gf->error.foreign_call, fault->foreign_call, sizeof gf->error.foreign_call);
    (void)snprintf(gf->error.text, sizeof gf->error.text, "%s", fault->text);
    gf_log_line(&gf->log, GF_LOG_ERROR, "rank %u: %s", gf->rank, gf->error.text);
    return status;
}

__attribute__((noinline)) static gf_status context_open(const struct gf_layout *layout,
                                                        const struct gf_control_parts *parts,
                                                        const struct gf_tensor *tensors, gf_context *gf)
{
    struct gf_fault fault = {.code = GF_OK, .peer = GF_RANK_NONE};
    gf_status status;
    gf->foreign_before = resident_bytes();
    if (((status = gpu_open(layout, parts->gpu, gf, &fault)) < 0) || ((status = pools_clear(&parts->pools, gf, &fault)) < 0) ||
        ((status = link_open(layout, parts->link, gf, &fault)) < 0) ||
        ((status = rendezvous_open(layout, parts->rendezvous, gf, &fault)) < 0))
        return open_fail(gf, status, &fault);
    pools_lay(gf, layout, &parts->pools);
    exchange_lay(layout, gf);
    if (gf_device_register(gf) < 0) {
        fault = gf->gpu->fault;
        gf->region_base = NULL;
        return open_fail(gf, fault.code, &fault);
    }
    gf->tensors_hash = gf_pool_hash(tensors, gf->tensor_count);
    status = members_open(layout, parts->members, gf->tensors_hash, gf);
    if (status < 0) {
        fault = gf->link->fault;
        return open_fail(gf, status, &fault);
    }
    for (uint32_t i = 0; i < gf->tensor_count; i++)
        if (gf->tensors[i].sparse != 0) gf->sparse_type = (gf_type)gf->tensors[i].type;
    if (gf->config.sparse.enabled) gf->modules->sparse->open(gf);
    gf_dense_begin(gf);
    gf->phase = GF_PHASE_JOIN;
    if (gf->config.rendezvous.rejoin) gf->modules->elastic->rejoin(gf);
    return GF_OK;
}

/* Everything but the pools, which the device's own op clears (pools_clear): they are nearly all of it. */
static void control_clear(const struct gf_layout *layout, const struct gf_control_parts *parts, char *memory)
{
    const struct gf_pool_parts *pools = &parts->pools;
    char *end = memory + layout->footprint.control_bytes;
    if (layout->on_device) {
        memset(memory, 0, layout->footprint.control_bytes);
        return;
    }
    memset(memory, 0, (size_t)(pools->weight - memory));
    memset(pools->norms, 0, (size_t)(pools->history - pools->norms));
    memset(pools->scratch, 0, (size_t)(end - pools->scratch));
}

static gf_status memory_check(const struct gf_config *config, const struct gf_layout *layout, const void *memory,
                              uint64_t memory_bytes)
{
    const struct gf_log log = {config->log, config->log_user};
    if ((memory == NULL) || ((uintptr_t)memory % GF_ALIGN_BYTES != 0)) {
        gf_log_line(&log, GF_LOG_ERROR, "gf_open: memory at %p; it must be aligned to %u bytes", memory,
                    GF_ALIGN_BYTES);
        return GF_ERR_PARAM;
    }
    if (memory_bytes < layout->footprint.control_bytes) {
        gf_log_line(&log, GF_LOG_ERROR, "gf_open: %llu bytes of memory, gf_measure() asked for %llu",
                    (unsigned long long)memory_bytes, (unsigned long long)layout->footprint.control_bytes);
        return GF_ERR_ARENA;
    }
    return GF_OK;
}

gf_status gf_open_with(const struct gf_modules *modules, const struct gf_config *config,
                       const struct gf_tensor *tensors, uint32_t tensor_count, void *memory, uint64_t memory_bytes,
                       gf_context **gf_out)
{
    struct gf_layout layout;
    struct gf_arena control = {.base = memory, .size_bytes = memory_bytes};
    struct gf_control_parts parts;
    gf_status status;

    if ((modules == NULL) || (config == NULL) || (gf_out == NULL)) return GF_ERR_PARAM;
    *gf_out = NULL;
    if ((status = gf_layout_make(modules, config, tensors, tensor_count, &layout)) < 0) return status;
    if ((status = memory_check(config, &layout, memory, memory_bytes)) < 0) return status;
    parts = gf_layout_control(&layout, &control);
    control_clear(&layout, &parts, memory);
    GF_ASSERT(parts.gf == memory);
    context_lay(&layout, &parts, parts.gf);
    gf_context_mark(parts.gf);
    (void)gf_pool_place(&layout.config, tensors, tensor_count, parts.tensors, &layout.pool, NULL); /* passed before */
    *gf_out = parts.gf;
    return context_open(&layout, &parts, tensors, parts.gf);
}

/* Some peers a poll; GF_OK once all are connected. */
static gf_status peers_connect(gf_context *gf)
{
    for (uint32_t i = 0; i < CONNECTS_A_POLL; i++) {
        size_t endpoint_bytes;
        const void *endpoint;
        if (gf->connected == gf->world) return GF_OK;
        endpoint = gf_members_endpoint(gf->members, gf->connected, &endpoint_bytes);
        if (gf->link->driver->connect(gf->link, gf_seat_of(gf, gf->connected), endpoint, endpoint_bytes) < 0)
            return gf_fail_fault(gf, &gf->link->fault, GF_OPERATION_JOIN);
        gf->connected++;
    }
    return GF_AGAIN;
}

/* Ranks that reach each other's memory share a machine: more of them than cores must not spin. A launcher that binds
 * each to one core shows none of the others'. */
static void neighbours_count(gf_context *gf)
{
    uint32_t local = 1;
    cpu_set_t cores;
    int core_count;
    for (uint32_t r = 0; r < gf->world; r++)
        if ((r != gf->rank) && (gf->link->driver->map(gf->link, gf_seat_of(gf, r)) != NULL)) local++;
    CPU_ZERO(&cores);
    core_count = (sched_getaffinity(0, sizeof cores, &cores) == 0) ? CPU_COUNT(&cores) : 0;
    if (core_count <= 1) core_count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    gf->oversubscribed = (core_count > 0) && ((int)local > core_count);
    gf->met[GF_MET_PAIRS] = 0;
    if ((gf->world <= GF_DIRECT_RANKS_MAX) && (gf->modules->coll[GF_ALGORITHM_DIRECT] != NULL))
        gf->met[GF_MET_PAIRS] = (float)(local - 1);
    gf->met[GF_MET_OVERSUBSCRIBED] = gf->oversubscribed ? 1 : 0;
    gf->met[GF_MET_DEVICE] = gf->on_device ? 1 : 0;
    gf->met[GF_MET_WIRE] = gf->link->reaches_device ? 1 : 0;
}

static void opened(gf_context *gf)
{
    uint64_t now_bytes = resident_bytes(), ours_bytes = gf->foreign_before + gf->link->private_bytes;
    gf->phase = GF_PHASE_READY;
    gf->together_ns = gf_now(gf);
    gf_fork_guard(gf);
    gf->wire_base = gf->link->sent_bytes;
    gf->message_base = gf->link->sent_messages;
    gf->stats.operations = 0;
    gf->stats.mapped_bytes = 0;
    gf->trace.written = gf->trace.read = 0;
    memset(gf->peers, 0, gf->world * sizeof *gf->peers);
    gf->stats.foreign_bytes = (now_bytes > ours_bytes) ? now_bytes - ours_bytes : 0;
    gf_log_line(&gf->log, GF_LOG_INFO, "rank %u of %u: open over %s, %u tensors in %u fused buffers", gf->rank,
                gf->world, gf->link->driver->name, gf->tensor_count, gf->dense_buffer_count);
    if (gf->on_device)
        gf_log_line(&gf->log, GF_LOG_INFO, "rank %u: gradients lie on %s and travel %s", gf->rank, gf->gpu->driver->name,
                    gf_path_name(gf_path_of(gf)));
}

gf_status gf_join_progress(gf_context *gf, uint64_t now_ns)
{
    gf_status status;
    if (gf->phase == GF_PHASE_JOIN) {
        status = gf_members_poll(gf->members, now_ns);
        if (status < 0) return gf_fail_from(gf, gf_members_error(gf->members));
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
    uint64_t now_ns = gf_now(gf);
    gf_status status;
    (void)arg;
    if (gf->shrink.state != GF_SHRINK_NONE) { /* a rank that comes back */
        status = gf->modules->elastic->turn(gf, NULL);
        if (status == GF_OK) opened(gf);
        return status;
    }
    if ((gf->error.code != GF_OK) || (gf_aborted(gf) && (gf_enter(gf) < 0))) return gf_failing_poll(gf, now_ns);
    if ((gf->phase != GF_PHASE_JOIN) && (gf->phase != GF_PHASE_WARM)) return GF_OK;
    status = gf_join_progress(gf, now_ns);
    if (status == GF_OK) opened(gf);
    return (gf->error.code != GF_OK) ? gf_failing_poll(gf, now_ns) : status;
}

static gf_status open_enter(gf_context *gf)
{
    gf_status status = gf_own(gf);
    if ((status < 0) || (gf->shrink.state != GF_SHRINK_NONE)) return status;
    return gf_enter_poll(gf);
}

gf_status gf_open_poll(gf_context *gf)
{
    gf_status status = open_enter(gf);
    if (status < 0) return status;
    return open_progress(gf, NULL);
}

gf_status gf_open_wait(gf_context *gf)
{
    gf_status status = open_enter(gf);
    if (status < 0) return status;
    return gf_wait(gf, open_progress, NULL);
}

/* The others may still need what this rank has sent: progress until all have said that they leave. */
static gf_status leave_progress(gf_context *gf, void *arg)
{
    uint64_t now_ns = gf_now(gf);
    gf_status status;
    (void)arg;
    if (gf->error.code != GF_OK) return gf_failing_poll(gf, now_ns);
    if (gf_aborted(gf)) return gf_enter(gf);
    if (gf->left_late) return GF_ERR_TIMEOUT; /* the others have been told why, which is no failure of this one */
    (void)gf->link->driver->progress(gf->link);
    status = gf_members_leave(gf->members, now_ns);
    if (status < 0) return gf_fail_from(gf, gf_members_error(gf->members));
    if ((status != GF_AGAIN) || (now_ns <= gf->leave_ns)) return status;
    if (gf_members_leave_late(gf->members) == GF_AGAIN) return GF_AGAIN;
    gf->left_late = true;
    return GF_ERR_TIMEOUT;
}

/* From here on only leaving goes on, or failing. What is under way is given up, and the others are told. */
static gf_status leave_begin(gf_context *gf)
{
    gf_status status = gf_enter(gf);
    if (status < 0) return status;
    if (gf->phase == GF_PHASE_JOIN) (void)gf_members_leave(gf->members, gf_now(gf)); /* tells the others */
    if ((gf->phase == GF_PHASE_WARM) || (gf->phase == GF_PHASE_STEP) || !gf_requests_idle(gf))
        return gf_fail(gf, GF_ERR_ABORTED, GF_OPERATION_CLOSE, gf->rank, GF_TENSOR_NONE,
                       "rank %u closed its context while %s was under way", gf->rank, gf_operation_name(gf_doing(gf)));
    if (gf->phase != GF_PHASE_READY) return GF_OK;
    if (gf->on_device) gf->modules->device->ipc_close(gf); /* before the exporters hear that this rank leaves: then they free it */
    gf->phase = GF_PHASE_LEAVE;
    gf->leave_ns = gf_now(gf) + gf->config.exchange.timeout_ns;
    return GF_OK;
}

gf_status gf_close_poll(gf_context *gf)
{
    gf_status status = gf_own(gf);
    if (status < 0) return status;
    (void)leave_begin(gf);
    if (gf->phase == GF_PHASE_FAILED) return gf->error.code;
    return ((gf->phase == GF_PHASE_LEAVE) || (gf->phase == GF_PHASE_FAILING)) ? leave_progress(gf, NULL) : GF_OK;
}

gf_status gf_close(gf_context *gf)
{
    gf_status status;
    if (gf == NULL) return GF_OK;
    if ((status = gf_own(gf)) < 0) return status;
    status = leave_begin(gf);
    if ((status == GF_OK) && (gf->phase == GF_PHASE_LEAVE)) status = gf_wait(gf, leave_progress, NULL);
    for (uint64_t end_ns = gf_now(gf) + GF_FLUSH_NS; /* what was told goes out before the connection ends */
         (gf->rendezvous != NULL) && !gf->rendezvous->driver->flushed(gf->rendezvous) && (gf_now(gf) < end_ns);)
        (void)gf_members_poll(gf->members, gf_now(gf));
    drivers_close(gf);
    gf_fork_unguard(gf);
    gf->phase = GF_PHASE_CLOSED;
    gf->magic = 0;
    return ((status == GF_ERR_TIMEOUT) && (gf->error.code == GF_OK)) ? status : GF_OK; /* what failed is known */
}

gf_status gf_heartbeat(gf_context *gf)
{
    gf_status status = gf_enter(gf);
    uint64_t now_ns;
    if (status < 0) return status;
    if (gf->members == NULL) return GF_ERR_STATE;
    now_ns = gf_now(gf);
    gf_members_heartbeat(gf->members, now_ns);
    gf->members_skip = 0;
    gf->progress_ns = 0;
    (void)gf_progress(gf, now_ns);
    return gf->error.code;
}
