/* Opening: memory is laid out, drivers are opened, the join is posted. join.c continues from
 * there; close.c undoes it. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "drivers/base/descriptors.h"
#include "drivers/devices.h"
#include "drivers/base/fnv.h"
#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/arena.h"
#include "lib/core/choose.h"
#include "lib/core/extra.h"
#include "lib/core/device_work.h"
#include "lib/core/relink.h"
#include "lib/core/layout.h"
#include "lib/core/vote.h"
#include "lib/device/device.h"
#include "lib/settings/settings.h"
#include "lib/settings/with_error.h"
#include "drivers/base/arithmetic.h"

static void context_lay(const struct gf_layout *layout, const struct gf_control_parts *parts,
                        gf_context *gf)
{
    uint32_t msg_count = layout->op_need.msg_count;
    size_t req_bytes = layout->link.req_bytes;
    gf->config = layout->config;
    gf_extra_keep(&gf->config, parts->extra, parts->extra_names);
    gf->extra_stage = parts->extra_stage;
    gf->drivers = layout->drivers;
    gf_ticks_begin(&gf->ticks, gf->drivers.clock);
    gf->log = (struct gf_log){gf->config.log, gf->config.log_user};
    gf->rank = gf->config.job.rank;
    gf->world = gf->config.job.world;
    gf->generation = 1;
    gf->error.peer = GF_RANK_NONE;
    gf->error.tensor = GF_TENSOR_NONE;
    gf->error.rank = gf->rank;
    gf->pool = layout->pool;
    gf->tensor_count = layout->tensor_count;
    gf->tensors = parts->tensors;
    gf->buffers.now = gf->buffers.dense = parts->dense_buffers;
    gf->buffers.sparse = parts->sparse_buffers;
    gf->buffers.pending = parts->buffer_pending;
    gf->buffers.order = parts->buffer_order;
    gf->observed.trace =
        (struct gf_trace){.records = parts->trace, .record_max = gf->config.trace_records};
    gf->observed.late = parts->late;
    gf->nodes.table = parts->reach_table;
    gf->device.uuids = parts->uuids;
    if (layout->on_device) {
        gf_ipc_lay(&gf->ipc, parts->exported, gf->config.job.world_max);
    }
    gf->sparse.history_empty = true;
    gf->on_device = layout->on_device;
    gf->under_way.count = gf->config.exchange.buffers_active;
    gf_choose_reset(gf);
    gf->loss_scale.value = gf->config.loss_scale.enabled ? gf->config.loss_scale.initial : 1.0f;
    gf->step.gradient_scale = 1.0f;
    for (uint32_t s = 0; s < gf->under_way.count; s++) {
        struct gf_coll *coll = &gf->under_way.ops[s].coll;
        coll->msgs = parts->msgs + (size_t)s * msg_count;
        coll->msg_count = msg_count;
        for (uint32_t m = 0; m < msg_count; m++) {
            size_t req = (size_t)s * msg_count + m;
            coll->msgs[m].req = (struct gf_req *)(void *)(parts->reqs + req * req_bytes);
        }
    }
}

static void exchange_open(const struct gf_layout *layout, gf_context *gf)
{
    uint64_t used_bytes;
    gf->region.at = gf_layout_exchange(layout, &used_bytes);
    gf->region.bytes = layout->region_bytes;
    GF_ASSERT((gf->region.at.flags == 0) && (used_bytes <= gf->region.bytes));
    for (uint32_t s = 0; s < gf->under_way.count; s++)
        gf->under_way.ops[s].coll.staging_bytes = layout->op_need.staging_bytes;
    gf_exchange_lay(gf);
    gf_ops_reset(gf);
}

/* Sets the addresses of the pools, which lie in the host's memory or in the device's. */
static void pools_lay(gf_context *gf, const struct gf_layout *layout,
                      const struct gf_control_parts *parts)
{
    struct gf_pool_parts pools = layout->on_device ? gf_device_lay(gf, layout) : parts->pools;
    gf->optimizer.norms = (gf_mem)(uintptr_t)pools.norms;
    gf->optimizer.list = parts->update_list;
    if (layout->has_pools) gf_pools_open(gf, layout, &pools, parts->selection);
}

static gf_status gpu_open(const struct gf_layout *layout, const struct gf_control_parts *parts,
                          gf_context *gf, struct gf_fault *fault_out)
{
    const struct gf_gpu_setup setup = gf_layout_gpu(layout);
    gf_status status = gf->drivers.gpu->open(&setup, parts->gpu, &gf->gpu, fault_out);
    if (status < 0) return status;
    gf->queue = gf_queue_own(gf, GF_STREAM_MAIN);
    gf->pack_queue = gf_queue_own(gf, GF_STREAM_PACK);
    gf->out_queue = gf_queue_own(gf, GF_STREAM_OUT);
    gf->in_queue = gf_queue_own(gf, GF_STREAM_IN);
    gf->ops = gf->gpu->ops;
    gf->coll_queue = (struct gf_queue){.gpu = gf->gpu};
    gf->coll_ops = gf->gpu->ops;
    if (gf->on_device)
        gf->coll_ops = (gf->gpu->host_ops != NULL) ? gf->gpu->host_ops : gf_element_ops_best();
    status =
        gf->coll_ops->zero(&gf->coll_queue, (gf_mem)(uintptr_t)parts->large, parts->large_bytes);
    if (status < 0) *fault_out = gf->gpu->fault;
    return status;
}

/* The addresses of this host at which the link listens, in addition to the one that leads to the
 * coordinator. */
static void data_addrs_set(const struct gf_layout *layout, struct gf_link_setup *setup)
{
    struct gf_addr to = {.family = 0};
    if (gf_addr_parse(setup->address, true, &to))
        gf_devices_addrs(layout->config.link.devices, layout->local, to.family, setup->data_addrs,
                         GF_DATA_ADDRS_MAX);
}

static gf_status link_open(const struct gf_layout *layout, void *state, gf_context *gf,
                           struct gf_fault *fault_out)
{
    struct gf_link_setup *setup = &gf->opening.link_setup;
    *setup = gf_layout_link(layout, &gf->config);
    data_addrs_set(layout, setup);
    if (layout->may_reach_device) {
        setup->gpu = gf->gpu;
        setup->device = gf->gpu->arena;
        setup->device_bytes = layout->footprint.device_bytes;
    }
    gf->opening.link_state = state;
    return gf_link_open(gf, fault_out);
}

/* Could this rank's part of a job of several nodes go over the fabric? */
static uint32_t fabric_probe(gf_context *gf)
{
    const struct gf_link_driver *fabric = gf->drivers.fabric;
    char text[200] = "link.driver = tcp";
    if (gf->config.link.driver == GF_LINK_UCX) return GF_FABRIC_FOUND;
    if (fabric == NULL) return GF_FABRIC_NONE;
    gf_fabric found = fabric->probe(&gf->opening.link_setup, text, sizeof text);
    if (found != GF_FABRIC_FOUND)
        gf_log_line(&gf->log, GF_LOG_INFO, "rank %u: sockets between nodes: %s", gf->rank, text);
    return found;
}

static uint64_t elems_of(const gf_context *gf)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < gf->tensor_count; i++) count += gf->tensors[i].elem_count;
    return count;
}

/* Adds state_extra to the offer: by the hash other ranks see that it differs, by the text where. */
static void offer_extra_add(const struct gf_config *config, struct gf_offer *offer)
{
    uint64_t hash = gf_extra_hash(config);
    if (hash == 0) return;
    offer->config_hash ^= hash;
    gf_extra_summary(config, offer->summary, sizeof offer->summary);
}

uint64_t gf_grace_ns(uint64_t timeout_ns)
{
    uint64_t least_ns = timeout_ns / 4 * 3;
    if (least_ns > UINT64_C(1000000000)) least_ns = UINT64_C(1000000000);
    return (timeout_ns / 4 > least_ns) ? timeout_ns / 4 : least_ns;
}

/* gf_grace_ns() is a part of the timeout. The rest is the time for answers of ranks that share
 * cores; below this timeout it may be too short for a finding. */
#define PROVEN_NS UINT64_C(100000000)
static void short_timeout_log(const gf_context *gf)
{
    if ((gf->config.exchange.timeout_ns >= PROVEN_NS) || (gf->rank != 0) || (gf->world == 1))
        return;
    gf_log_line(&gf->log, GF_LOG_INFO,
                "rank 0: exchange.timeout is below 100 ms: where a message is lost, it may not be "
                "found out whose it was");
}

/* Which process of its id this is. In a simulation it is the same in each run. */
static uint64_t process_draw(const gf_context *gf, uint64_t now_ns)
{
    uint64_t drawn = 0;
    if (!gf->link->driver->simulated &&
        (getrandom(&drawn, sizeof drawn, GRND_NONBLOCK) != sizeof drawn))
        drawn = (uint64_t)getpid();
    return gf_fnv_u64(gf_fnv_u64(gf_fnv_u64(GF_FNV_START, drawn), now_ns), gf->rank);
}

static const char *tensor_name(void *context, uint32_t tensor)
{
    const gf_context *gf = context;
    return (tensor < gf->tensor_count) ? gf->tensors[tensor].name : NULL;
}

static uint64_t begun(void *context)
{
    const gf_context *gf = context;
    return gf->under_way.taken;
}

/* Not inlined, so that its setup is not on the stack while the layout is made. */
__attribute__((noinline)) static gf_status control_open(const struct gf_layout *layout, void *state,
                                                        gf_context *gf, struct gf_fault *fault_out)
{
    struct gf_control_setup setup = gf_layout_control_setup(layout, &gf->config);
    gf->polled.at_ns = gf_now(gf);
    short_timeout_log(gf);
    setup.process = process_draw(gf, gf->polled.at_ns);
    setup.edge_is_broken = gf_edge_is_broken;
    setup.tensor_name = tensor_name;
    setup.begun = begun;
    setup.edges_of = gf;
    setup.offer = (struct gf_offer){.version = GF_VERSION,
                                    .config_hash = gf_config_hash(&layout->config),
                                    .tensors_hash = gf->tensors_hash,
                                    .tensor_count = gf->tensor_count,
                                    .elem_count = elems_of(gf),
                                    .network = gf->link->network,
                                    .fabric = fabric_probe(gf),
                                    .node = gf->link->node};
    (void)gf_config_summary(&layout->config, setup.offer.summary, sizeof setup.offer.summary);
    offer_extra_add(&layout->config, &setup.offer);
    gf->position = (struct gf_position){.tensor = GF_TENSOR_NONE, .waits_for = GF_RANK_NONE};
    gf->failing.link_peer = GF_RANK_NONE;
    /* all ranks come, and then their endpoints; with time for the coordinator to say who did not */
    gf->opening.join_ns = gf->polled.at_ns + 2 * setup.join_timeout_ns + UINT64_C(2000000000);
    return gf_control_open(&setup, state, gf->polled.at_ns, &gf->control, fault_out);
}

gf_status gf_open_fail(gf_context *gf, gf_status status, const struct gf_fault *fault)
{
    gf_drivers_close(gf);
    gf->phase = GF_PHASE_FAILED;
    gf->error.code = status;
    gf->error.operation = GF_OPERATION_JOIN;
    gf->error.peer = fault->peer;
    gf_error_take(&gf->error, fault);
    gf_log_line(&gf->log, GF_LOG_ERROR, "rank %u: %s", gf->rank, gf->error.text);
    return status;
}

static gf_status context_open(const struct gf_layout *layout, const struct gf_control_parts *parts,
                              const struct gf_tensor *tensors, gf_context *gf)
{
    struct gf_fault fault = {.code = GF_OK, .peer = GF_RANK_NONE};
    gf_status status;
    gf_descriptors_hold();
    gf->opening.foreign_before = gf_resident_bytes();
    if (((status = gpu_open(layout, parts, gf, &fault)) < 0) ||
        ((status = link_open(layout, parts->link, gf, &fault)) < 0))
        return gf_open_fail(gf, status, &fault);
    pools_lay(gf, layout, parts);
    exchange_open(layout, gf);
    if (gf->on_device && (gf_device_region_open(gf) < 0)) {
        fault = gf->gpu->fault;
        gf->region.base = NULL;
        return gf_open_fail(gf, fault.code, &fault);
    }
    gf->tensors_hash = gf_pool_hash(&gf->config, tensors, gf->tensor_count);
    status = control_open(layout, parts->control, gf, &fault);
    if (status < 0) return gf_open_fail(gf, status, &fault);
    if (gf->config.sparse.enabled) gf_sparse_open(gf);
    gf_dense_begin(gf);
    gf->phase = GF_PHASE_JOIN;
    return GF_OK;
}

static gf_status memory_check(const struct gf_layout *layout, const void *memory,
                              uint64_t memory_bytes, char *error_out)
{
    const uint64_t needed_bytes = layout->footprint.control_bytes;
    if ((memory == NULL) || ((uintptr_t)memory % GF_ALIGN_BYTES != 0))
        return gf_config_refuse(error_out, GF_ERR_PARAM,
                                "gf_open: memory at %p; it must be aligned to %u bytes", memory,
                                GF_ALIGN_BYTES);
    if (memory_bytes < needed_bytes)
        return gf_config_refuse(error_out, GF_ERR_ARENA,
                                "gf_open: %llu bytes of memory, gf_measure() asked for %llu",
                                (unsigned long long)memory_bytes, (unsigned long long)needed_bytes);
    return GF_OK;
}

static gf_status memory_open(const struct gf_layout *layout, const struct gf_tensor *tensors,
                             uint32_t tensor_count, void *memory, uint64_t memory_bytes,
                             gf_context **gf_out)
{
    struct gf_arena control = {.base = memory, .size_bytes = memory_bytes};
    const struct gf_control_parts parts = gf_layout_control(layout, &control);
    struct gf_pool_sizes sizes;
    /* the rest by element ops, or in gf-plan never touched */
    memset(memory, 0, (size_t)(parts.large - (char *)memory));
    memset(parts.large + parts.large_bytes, 0,
           (size_t)((char *)parts.link - (parts.large + parts.large_bytes)));
    GF_ASSERT(parts.gf == memory);
    context_lay(layout, &parts, parts.gf);
    gf_context_mark(parts.gf);
    /* passed before */
    (void)gf_pool_layout(&layout->config, tensors, tensor_count, parts.tensors, &sizes, NULL);
    *gf_out = parts.gf;
    return context_open(layout, &parts, tensors, parts.gf);
}

/* The main thread's stack grows up to the limit of now. Another thread's cannot be asked for
 * without an allocation. */
static gf_status stack_check(char *error_out)
{
    struct rlimit stack;
    if ((gettid() != getpid()) || (getrlimit(RLIMIT_STACK, &stack) != 0)) return GF_OK;
    if (stack.rlim_cur >= GF_STACK_BYTES) return GF_OK;
    return gf_config_refuse(error_out, GF_ERR_SYSTEM,
                            "gf_open: the stack may grow to %llu KiB; %u KiB are needed: raise it "
                            "(ulimit -s)",
                            (unsigned long long)stack.rlim_cur / 1024, GF_STACK_BYTES / 1024);
}

gf_status gf_open_with_error(const struct gf_config *config, const struct gf_tensor *tensors,
                             uint32_t tensor_count, void *memory, uint64_t memory_bytes,
                             char *error_out, gf_context **gf_out)
{
    struct gf_layout layout;
    gf_status status;
    *gf_out = NULL;
    if ((status = stack_check(error_out)) < 0) return status;
    if ((status = gf_layout_make(config, tensors, tensor_count, &layout, error_out)) < 0)
        return status;
    if ((status = memory_check(&layout, memory, memory_bytes, error_out)) < 0) return status;
    if ((status = gf_layout_meet(&layout, error_out)) < 0) return status;
    return memory_open(&layout, tensors, tensor_count, memory, memory_bytes, gf_out);
}

gf_status gf_open(const struct gf_config *config, const struct gf_tensor *tensors,
                  uint32_t tensor_count, void *memory, uint64_t memory_bytes, gf_context **gf_out)
{
    GF_COMPUTES();
    char error[256] = "";
    gf_status status;
    if ((config == NULL) || (gf_out == NULL)) return GF_ERR_PARAM;
    status = gf_open_with_error(config, tensors, tensor_count, memory, memory_bytes, error, gf_out);
    if (error[0] != '\0') {
        const struct gf_log log = {config->log, config->log_user};
        gf_log_line(&log, GF_LOG_ERROR, "%s", error);
    }
    return status;
}
