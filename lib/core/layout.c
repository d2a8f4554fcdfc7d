/* What a configuration and a tensor table come to: sizes, driver set-ups, and where everything
 * lies. Measuring and handing out run the same two walks, gf_layout_control() and
 * gf_layout_exchange(), so they cannot disagree. */
#include <string.h>

#include "drivers/devices.h"
#include "lib/core/arena.h"
#include "lib/core/choose.h"
#include "lib/core/extra.h"
#include "lib/core/layout.h"
#include "lib/core/vote.h"
#include "lib/device/device.h"
#include "lib/settings/settings.h"
#include "lib/settings/with_error.h"
#include "drivers/base/arithmetic.h"

/* The most messages and staging that an operation can need. Any algorithm may run, and public
 * requests may be larger than the pool, so this is the maximum over all algorithms, data of any
 * size, and all worlds up to world_max. A world of one needs some, too: its link is opened like any
 * other, and its endpoint address is made in staging. */
static struct gf_coll_need op_need(const struct gf_layout *layout)
{
    const struct gf_config *config = &layout->config;
    struct gf_coll_limits limits = {.size = config->job.world_max,
                                    .bytes_max = UINT64_MAX / 2,
                                    .slice_bytes = config->exchange.slice_bytes,
                                    .window = config->link.window};
    struct gf_coll_need most = {.msg_count = 2, .staging_bytes = config->exchange.slice_bytes};
    for (int algorithm = GF_ALGORITHM_AUTO + 1; algorithm < GF_ALGORITHM_COUNT; algorithm++) {
        const struct gf_coll_kind *kind = gf_coll_kinds[algorithm];
        struct gf_coll_need need;
        for (limits.size = 1; limits.size <= config->job.world_max; limits.size++) {
            kind->need(kind, &limits, &need);
            if (need.msg_count > most.msg_count) most.msg_count = need.msg_count;
            if (need.staging_bytes > most.staging_bytes) most.staging_bytes = need.staging_bytes;
        }
    }
    most.staging_bytes = gf_align_up(most.staging_bytes, GF_ALIGN_BYTES);
    return most;
}

/* The pack buffer in host memory, which requests on device memory pass through, too. */
static uint64_t pack_host_bytes(const struct gf_layout *layout)
{
    uint64_t requests = layout->on_device ? gf_device_pack_host_bytes(&layout->pool) : 0;
    uint64_t bytes = layout->pack_bytes;
    return (bytes > requests) ? bytes : requests;
}

uint64_t gf_layout_staging_bytes(const struct gf_layout *layout)
{
    return (uint64_t)layout->op_need.staging_bytes * layout->config.exchange.buffers_active;
}

static bool hosts_coordinator(const struct gf_config *config)
{
    return (config->rendezvous.coordinator == GF_COORDINATOR_AT_RANK0) && (config->job.rank == 0);
}

struct gf_link_setup gf_layout_link(const struct gf_layout *layout, const struct gf_config *config)
{
    uint32_t devices = gf_devices_most(config->link.devices); /* each carries a stream */
    return (struct gf_link_setup){
        .rank = config->job.rank,
        .world = config->job.world,
        .ranks_max = config->job.world_max,
        .timeout_ns = config->exchange.timeout_ns,
        .requests_max = layout->op_need.msg_count * config->exchange.buffers_active,
        .message_bytes_max = config->exchange.slice_bytes,
        .region_bytes = layout->region_bytes,
        .transports = config->link.transports,
        .devices = config->link.devices,
        .streams = (devices > config->link.streams) ? devices : config->link.streams,
        .checksum = config->link.checksum,
        .local = layout->local,
        .huge_pages = config->link.huge_pages,
        .private_memory = config->link.private_memory,
        .on_device = layout->on_device,
        .networks = {NULL, layout->drivers.link, layout->drivers.fabric},
        .key_file = config->rendezvous.key_file,
        .trusted_fabric = config->link.trusted_fabric,
        .insecure = config->rendezvous.insecure,
        .job_id = config->job.id,
        .address = config->rendezvous.address,
        .bind = config->rendezvous.bind,
        .ports = config->rendezvous.ports,
        .keepalive_ns = config->rendezvous.keepalive_ns,
        .control_files = hosts_coordinator(config) ? config->job.world : 0,
        .log = {config->log, config->log_user},
        .arg = layout->drivers.link_arg};
}

static size_t most(size_t a, size_t b)
{
    return (a > b) ? a : b;
}

static void link_measure(struct gf_layout *layout)
{
    const struct gf_link_setup setup = gf_layout_link(layout, &layout->config);
    const struct gf_link_driver *whole = gf_link_whole(&layout->drivers);
    size_t endpoint_bytes = 0;
    layout->link.req_bytes = whole->req_size_bytes;
    for (uint32_t n = GF_NETWORK_LINK; (whole == &gf_link_front) && (n < GF_NETWORKS); n++) {
        const struct gf_link_driver *driver = setup.networks[n];
        if (driver == NULL) continue;
        layout->link.req_bytes = most(layout->link.req_bytes, driver->req_size_bytes);
        endpoint_bytes = most(endpoint_bytes, driver->endpoint_bytes_max);
    }
    layout->link.endpoint_bytes_max = whole->endpoint_bytes_max + endpoint_bytes;
    layout->link.state_bytes = whole->state_bytes(&setup);
    if (whole->memory_bytes != NULL) layout->link.memory_bytes = whole->memory_bytes(&setup);
}

/* All but the offer and what only this process has. Texts are those of config. */
struct gf_control_setup gf_layout_control_setup(const struct gf_layout *layout,
                                                const struct gf_config *config)
{
    bool at_rank0 = (config->rendezvous.coordinator == GF_COORDINATOR_AT_RANK0);
    return (struct gf_control_setup){
        .id = config->job.rank,
        .world = config->job.world,
        .id_count = config->job.world_max,
        .host_id = at_rank0 ? 0 : GF_RANK_NONE,
        /* also as one that was started again: its job has ended with the process before it, and
         * begins anew */
        .hosts = hosts_coordinator(config),
        .rejoins = config->rendezvous.rejoin && !layout->is_new,
        .elastic = config->job.elastic,
        .join_timeout_ns = config->rendezvous.join_timeout_ns,
        .exchange_timeout_ns = config->exchange.timeout_ns,
        .driver = layout->drivers.channel,
        .channel = {.connections_max = 1,
                    .job_id = config->job.id,
                    .address = config->rendezvous.address,
                    .bind = config->rendezvous.bind,
                    .key_file = config->rendezvous.key_file,
                    .insecure = config->rendezvous.insecure,
                    .keepalive_ns = config->rendezvous.keepalive_ns,
                    .log = {config->log, config->log_user},
                    .arg = layout->drivers.channel_arg},
        .endpoint_bytes_max = layout->link.endpoint_bytes_max};
}

struct gf_gpu_setup gf_layout_gpu(const struct gf_layout *layout)
{
    const struct gf_config *config = &layout->config;
    struct gf_gpu_kernels kernels = {.ops = layout->on_device ? NULL : gf_element_ops_best()};
    if (layout->on_device && (layout->drivers.gpu_kernels != NULL))
        kernels = *layout->drivers.gpu_kernels;
    return (struct gf_gpu_setup){.library = config->device.library,
                                 .kernels = kernels,
                                 .ordinal = config->device.ordinal,
                                 .local = layout->local,
                                 .device_bytes = layout->footprint.device_bytes,
                                 .events_max =
                                     config->exchange.buffers_active + 1 + layout->tensor_count,
                                 .idle_ns = config->exchange.timeout_ns,
                                 .log = {config->log, config->log_user},
                                 .arg = layout->drivers.gpu_arg};
}

/* A part of the control region: `pointer` is a member of struct gf_control_parts, and is given the
 * address of so many bytes. */
struct part {
    void *pointer;
    uint64_t bytes;
};
/* count elements of what parts.member points to */
#define ARRAY(member, count) &parts.member, (uint64_t)(count) * sizeof(*parts.member)
#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

static void parts_lay(struct gf_arena *control, const struct part *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        void *address = gf_arena_take(control, rows[i].bytes);
        memcpy(rows[i].pointer, &address, sizeof address);
    }
}

/* The tables list the parts in the order in which they lie in the region. A part that is not wanted
 * has 0 bytes. */
struct gf_control_parts gf_layout_control(const struct gf_layout *layout, struct gf_arena *control)
{
    const struct gf_config *config = &layout->config;
    const struct gf_control_setup setup = gf_layout_control_setup(layout, config);
    const struct gf_gpu_setup gpu = gf_layout_gpu(layout);
    const uint32_t ranks = config->job.world_max;
    const uint64_t messages = (uint64_t)layout->op_need.msg_count * config->exchange.buffers_active;
    const uint64_t node_ranks = gf_nodes_wanted(config) ? ranks : 0;
    const bool has_exported =
        layout->on_device && ((ranks <= GF_DIRECT_RANKS_MAX) || (node_ranks > 0));
    struct gf_control_parts parts = {0};

    const struct part before_pools[] = {
        {ARRAY(gf, 1)},
        /* tensors, and the fused buffers that they are grouped in */
        {ARRAY(tensors, layout->tensor_count)},
        {ARRAY(dense_buffers, layout->pool.buffer_count)},
        {ARRAY(sparse_buffers, (layout->chunk_count > 0) ? layout->buffers_max : 0)},
        {ARRAY(buffer_pending, layout->buffers_max)},
        {ARRAY(buffer_order, layout->buffers_max)},
        /* what is observed */
        {ARRAY(trace, config->trace_records)},
        {ARRAY(late, ranks)},
        /* the program's own state (extra.h) */
        {ARRAY(extra, config->state_extra_count)},
        {ARRAY(extra_names, gf_extra_names_bytes(config))},
        {ARRAY(extra_stage, gf_extra_stage_bytes(config))},
        /* which ranks share memory, and devices that reach each other */
        {ARRAY(reach_table.reach, GF_REACH_WORDS * node_ranks)},
        {ARRAY(reach_table.local, node_ranks)},
        {ARRAY(reach_table.across, node_ranks)},
        {ARRAY(exported, has_exported ? gf_ipc_bytes(ranks) : 0)},
        {ARRAY(uuids, layout->on_device ? ranks * GF_UUID_WORDS : 0)},
        /* messages of the operations under way */
        {ARRAY(msgs, messages)},
        {ARRAY(reqs, messages * layout->link.req_bytes)},
        {ARRAY(pools.norms, layout->on_device ? 0 : layout->tensor_count * 3 * GF_NORM_BYTES)},
        {ARRAY(large, 0)}, /* where the host's pools begin */
    };
    const struct part after_pools[] = {
        {ARRAY(update_list, layout->tensor_count)},
        {ARRAY(selection, 2 * (uint64_t)layout->chunk_count)}, /* selected, sent */
        {&parts.gpu, layout->drivers.gpu->state_bytes(&gpu)},
        {&parts.control, gf_control_state_bytes(&setup)},
        {&parts.link, layout->link.state_bytes},
    };
    parts_lay(control, before_pools, COUNT(before_pools));
    if (!layout->on_device && layout->has_pools) gf_pools_lay(layout, control, &parts.pools);
    parts.large_bytes = (size_t)((char *)gf_arena_take(control, 0) - parts.large);
    parts_lay(control, after_pools, COUNT(after_pools));
    if (node_ranks == 0) parts.reach_table = (struct gf_reach_table){0};
    if (!has_exported) parts.exported = NULL;
    return parts;
}

/* Takes the next bytes of a region, and returns their offset. */
static uint64_t offset_take(struct gf_arena *region, uint64_t size_bytes)
{
    (void)gf_arena_take(region, size_bytes);
    return region->used_bytes - size_bytes;
}

static uint64_t offset_take_bulk(struct gf_arena *region, uint64_t size_bytes)
{
    (void)gf_arena_take_bulk(region, size_bytes);
    return region->used_bytes - size_bytes;
}

struct gf_exchange_parts gf_layout_exchange(const struct gf_layout *layout, uint64_t *bytes_out)
{
    const struct gf_config *config = &layout->config;
    uint64_t checks_bytes =
        (config->exchange.buffers_active + UINT64_C(2)) * GF_COUNTS * sizeof(struct gf_check);
    uint64_t gradient_bytes = layout->on_device ? 0 : layout->pool.gradient_bytes;
    uint64_t list_bytes = layout->on_device ? layout->chunk_count * sizeof(uint32_t) : 0;
    uint64_t squares_bytes = layout->on_device ? GF_SQUARES_READ * sizeof(double) : 0;
    struct gf_arena region = {0};
    struct gf_exchange_parts at;

    at.flags = offset_take(&region, gf_direct_area_bytes(gf_choose_flag_ranks(config)));
    at.gradient = offset_take_bulk(&region, gradient_bytes);
    at.pack_host = offset_take_bulk(&region, pack_host_bytes(layout));
    at.seen = offset_take(&region, checks_bytes);
    at.lists = offset_take(&region, list_bytes);
    at.vote = offset_take(&region, gf_vote_words(layout->chunk_count) * sizeof(uint64_t));
    at.squares = offset_take(&region, squares_bytes);
    at.user = offset_take_bulk(&region, config->exchange.user_bytes);
    at.staging = offset_take_bulk(&region, gf_layout_staging_bytes(layout));
    *bytes_out = region.used_bytes;
    return at;
}

gf_status gf_layout_make(const struct gf_config *config, const struct gf_tensor *tensors,
                         uint32_t tensor_count, struct gf_layout *layout, char *error_out)
{
    struct gf_arena control = {0};
    uint64_t region_bytes;
    struct gf_config *effective = &layout->config;
    gf_status status;
    bool in_place;

    memset(layout, 0, sizeof *layout);
    if ((status = gf_config_effective(config, effective, error_out)) < 0) return status;
    if ((status = gf_layout_resolve(layout, config->rendezvous.address, error_out)) < 0)
        return status;
    if ((status = gf_extra_check(effective, error_out)) < 0) return status;
    if ((status =
             gf_pool_layout(effective, tensors, tensor_count, NULL, &layout->pool, error_out)) < 0)
        return status;
    layout->tensor_count = tensor_count;
    layout->buffers_max = (layout->pool.buffer_count <= GF_TAG_BUFFER_OTHER)
                              ? (uint32_t)layout->pool.buffer_count
                              : GF_TAG_BUFFER_OTHER + 1;
    layout->has_pools =
        (effective->optimizer.kind != GF_OPTIMIZER_NONE) || effective->sparse.enabled;
    if (effective->sparse.enabled && ((status = gf_sparse_measure(layout, error_out)) < 0))
        return status;
    if (layout->buffers_max > GF_TAG_BUFFER_OTHER) {
        return gf_config_refuse(error_out, GF_ERR_CONFIG,
                                "more than %u fused buffers; raise exchange.fuse_bytes or "
                                "cut_bytes",
                                GF_TAG_BUFFER_OTHER);
    }
    if ((effective->exchange.algorithm == GF_ALGORITHM_DIRECT) &&
        (effective->job.world_max > GF_DIRECT_RANKS_MAX)) {
        return gf_config_refuse(error_out, GF_ERR_CONFIG,
                                "exchange.algorithm = direct in a world of %u ranks; allowed "
                                "are %u, of one node",
                                effective->job.world_max, GF_DIRECT_RANKS_MAX);
    }
    in_place = !effective->sparse.enabled;
    for (uint32_t i = 0; i < tensor_count; i++)
        if (tensors[i].type != effective->exchange.wire) in_place = false;
    if (!in_place)
        layout->pack_bytes = layout->pool.elem_count * gf_type_size_bytes(effective->exchange.wire);
    layout->on_device = !layout->drivers.gpu->is_host;
    layout->op_need = op_need(layout);
    layout->may_reach_device = layout->on_device && gf_device_may_reach(layout);
    (void)gf_layout_exchange(layout, &region_bytes);
    layout->region_bytes = gf_align_up(region_bytes, GF_PAGE_BYTES);
    link_measure(layout); /* after exchange: the link's state may depend on the region */
    layout->footprint.exchange_bytes = layout->region_bytes + layout->link.memory_bytes;
    if (layout->on_device) layout->footprint.device_bytes = gf_device_bytes(layout);
    (void)gf_layout_control(layout, &control);
    layout->footprint.control_bytes = gf_align_up(control.used_bytes, GF_PAGE_BYTES);
    return GF_OK;
}

/* A function of its own: inlined, it would put a second layout on the stack of gf_measure(). */
__attribute__((noinline)) gf_status gf_measure_with_error(const struct gf_config *config,
                                                          const struct gf_tensor *tensors,
                                                          uint32_t tensor_count, char *error_out,
                                                          struct gf_footprint *footprint_out)
{
    struct gf_layout layout;
    gf_status status = gf_layout_make(config, tensors, tensor_count, &layout, error_out);
    if (status == GF_OK) *footprint_out = layout.footprint;
    return status;
}

gf_status gf_measure(const struct gf_config *config, const struct gf_tensor *tensors,
                     uint32_t tensor_count, struct gf_footprint *footprint_out)
{
    GF_COMPUTES();
    char error[256] = "";
    gf_status status;
    if ((config == NULL) || (footprint_out == NULL)) return GF_ERR_PARAM;
    status = gf_measure_with_error(config, tensors, tensor_count, error, footprint_out);
    if (status < 0) {
        const struct gf_log log = {config->log, config->log_user};
        gf_log_line(&log, GF_LOG_ERROR, "%s", error);
    }
    return status;
}
