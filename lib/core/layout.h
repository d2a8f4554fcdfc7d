/* What a context's memory is made of: everything follows from configuration, environment and
 * tensors, and is walked twice, once to measure and once to hand out. */
#ifndef GF_LAYOUT_H
#define GF_LAYOUT_H

#include "lib/context.h"
#include "lib/core/arena.h"

struct gf_layout {
    struct gf_config config;   /* effective; rank, world, id and address resolved */
    struct gf_drivers drivers; /* no driver is NULL */
    struct gf_pool_sizes pool;
    struct gf_coll_need op_need;
    struct gf_footprint footprint;
    uint32_t local; /* its number in its node, as far as a launcher says it */
    uint32_t tensor_count;
    uint32_t buffers_max; /* of a step, sparse or not */
    uint32_t chunk_count;
    /* this rank was never of the job: its member id is job.world or more */
    bool is_new;
    bool world_unsaid; /* nobody says how many ranks there are */
    /* its launcher says no id of the job, and the address alone tells it from others */
    bool nameless;
    const char *address_name; /* who says rendezvous.address: gf_identity_address_name() */
    bool has_pools;           /* of an optimizer or sparse communication */
    uint64_t pack_bytes;      /* of all fused buffers as they travel; 0: they do so in place */
    bool on_device;
    /* of the exchange region: footprint.exchange_bytes without what the link adds */
    uint64_t region_bytes;
    /* the link might take device memory: whether it does is known after open */
    bool may_reach_device;
    struct {
        size_t req_bytes, endpoint_bytes_max, state_bytes, memory_bytes;
    } link; /* what the link and the fabric that may take its place need */
};

/* Pools, where element ops work on them: in control memory on the host, else in device memory. */
struct gf_pool_parts {
    char *weight, *momentum, *moment2, *half, *norms, *history, *scratch, *part;
};

/* What the walk hands out; all NULL while measuring. The per-op arrays lie one after the other. */
struct gf_control_parts {
    struct gf_context *gf;
    struct gf_pool_tensor *tensors;
    struct gf_buffer *dense_buffers, *sparse_buffers;
    uint32_t *buffer_pending, *buffer_order;
    struct gf_trace_record *trace;
    struct gf_late *late;
    struct gf_state_extra *extra;
    char *extra_names, *extra_stage;
    struct gf_reach_table reach_table;
    struct gf_coll_msg *msgs;
    char *reqs;                 /* of all messages */
    struct gf_pool_parts pools; /* of the host */
    char *large;                /* [large_bytes] most of them, and nearly all there is */
    size_t large_bytes;
    union gf_update_list *update_list;
    uint32_t *selection;
    char *exported;
    float *uuids;
    void *gpu, *control;
    void *link; /* at the end: no zeroes are written there, a peer that never connects costs none */
};
/* pools.c, where layout->has_pools */
void gf_pools_lay(const struct gf_layout *layout, struct gf_arena *arena,
                  struct gf_pool_parts *parts);
void gf_pools_open(gf_context *gf, const struct gf_layout *layout,
                   const struct gf_pool_parts *parts, uint32_t *chunks);
uint64_t gf_layout_staging_bytes(const struct gf_layout *layout);

/* resolve.c: rank, world, address and drivers of layout->config, which is effective. address_given:
 * the configuration's own, or empty. An error has a line in error_out[256]. */
gf_status gf_layout_resolve(struct gf_layout *layout, const char *address_given, char *error_out);
/* A name in its address becomes a number: blocks up to join_timeout. An error has a line in
 * error_out[256]; what of its identity is doubtful is logged. */
gf_status gf_layout_meet(struct gf_layout *layout, char *error_out);

/* Everything that follows from configuration, environment and tensors. An error has a line in
 * error_out[256]. */
gf_status gf_layout_make(const struct gf_config *config, const struct gf_tensor *tensors,
                         uint32_t tensor_count, struct gf_layout *layout_out, char *error_out);
struct gf_control_parts gf_layout_control(const struct gf_layout *layout, struct gf_arena *control);
/* bytes_out: of all of them */
struct gf_exchange_parts gf_layout_exchange(const struct gf_layout *layout, uint64_t *bytes_out);
/* The link that a context opens: the program's own where it has memory itself. */
static inline const struct gf_link_driver *gf_link_whole(const struct gf_drivers *drivers)
{
    return (drivers->link->map != NULL) ? drivers->link : &gf_link_front;
}
/* The texts of the setup are those of config, which is layout->config or a copy that stays. */
struct gf_link_setup gf_layout_link(const struct gf_layout *layout, const struct gf_config *config);
struct gf_control_setup gf_layout_control_setup(const struct gf_layout *layout,
                                                const struct gf_config *config);
struct gf_gpu_setup gf_layout_gpu(const struct gf_layout *layout);

#endif
