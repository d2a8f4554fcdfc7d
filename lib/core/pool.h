/* Where each tensor lies, and which neighbours travel together.
 *
 * The pool holds all tensors in the order in which backward ends them, or in config.pool_order.
 * With sparse communication it has two parts, the sparse one first and the always-dense one after
 * it, each in backward order; without, all is one part. Gradient, weight, half weight, momentum and
 * history are pools side by side with the same element index. */
#ifndef GF_POOL_H
#define GF_POOL_H

#include "gradientflow.h"

#define GF_NAME_BYTES 48u
#define GF_POOL_ALIGN_ELEMS 16u /* larger tensors and the parts begin on 64 bytes of fp32 */
/* buffers that are cut begin at multiples of this after their first element */
#define GF_POOL_CUT_ELEMS 64u
/* tensors below this are packed without a gap: ten thousand scalars stay small */
#define GF_POOL_SMALL_ELEMS 256u

struct gf_pool_tensor {
    uint64_t first_elem;
    uint64_t elem_count;
    uint64_t gradient_offset; /* bytes into the gradient pool */
    uint32_t buffer_first;    /* fused buffers that need it in this step */
    uint32_t buffer_count;
    uint32_t slot;    /* how many tensors lie before it */
    uint32_t at_slot; /* the tensor in the slot with this entry's index */
    uint32_t flags;
    /* the tensor whose event says, on a device, that this one is computed */
    uint32_t declared_with;
    gf_event_handle event; /* the appliance's event for the same; 0: the library has its own */
    uint8_t type;          /* gf_type of the gradient */
    uint8_t ready;         /* in this step: declared */
    uint8_t sparse;        /* lies in the sparse part */
    char name[GF_NAME_BYTES];
};

struct gf_pool_sizes {
    uint64_t elem_count;        /* both parts, gaps included */
    uint64_t sparse_elem_count; /* of the sparse part, from element 0; 0 without */
    uint64_t gradient_bytes;
    uint64_t buffer_count; /* that gf_pool_group() makes of both parts */
};

/* A run of neighbouring tensors that travels as one operation, or a part of a large run. */
struct gf_buffer {
    uint64_t first_elem; /* in the pool; of a sparse buffer: in the packed vector */
    uint64_t elem_count;
    uint64_t gradient_offset; /* of a dense buffer: bytes into the gradient pool */
    uint32_t first_tensor;    /* for errors and the trace */
    uint32_t last_tensor;     /* none later is needed: the order in which buffers start */
    uint32_t tensor_count;
    uint32_t chunk_first; /* of a sparse buffer: slots of the selection */
    uint32_t chunk_count; /* 0: a dense buffer */
    uint8_t type;         /* gf_type of its gradients */
    uint8_t sparse;       /* of the sparse part */
};

/* Gives each of tensors[tensor_count] its offset: fills table[tensor_count] where it is given, and
 * sizes always. Measuring and opening both call this. GF_ERR_PARAM has a line in error_out[256]. */
gf_status gf_pool_layout(const struct gf_config *config, const struct gf_tensor *tensors,
                         uint32_t tensor_count, struct gf_pool_tensor *table,
                         struct gf_pool_sizes *sizes_out, char *error_out);

/* A buffer of more bytes is cut. This is exchange.cut_bytes, but at least fuse_bytes, and large
 * enough that each block of a ring is at least a slice: with hundreds of ranks a buffer costs
 * mostly the latency of its rounds. It is computed for the first world of the job, so that a
 * smaller world does not need more buffers. */
static inline uint64_t gf_pool_cut_bytes(const struct gf_config *config)
{
    uint64_t cut = config->exchange.cut_bytes;
    uint64_t fuse = config->exchange.fuse_bytes;
    uint64_t ring = (uint64_t)config->job.world * config->exchange.slice_bytes;
    if (cut < fuse) cut = fuse;
    return (cut > ring) ? cut : ring;
}

/* Groups the tensors of one part (`sparse` or not; without sparse communication all) into runs of
 * at least exchange.fuse_bytes of wire type, the last one smaller, and cuts what is larger than
 * gf_pool_cut_bytes(); a buffer never mixes gradient types. Of `config` all must be effective.
 * Fills buffers[] from buffers[count] on, sets which buffers a tensor needs, returns the new
 * count. */
uint32_t gf_pool_group(const struct gf_config *config, struct gf_pool_tensor *table,
                       uint32_t tensor_count, bool sparse, struct gf_buffer *buffers,
                       uint32_t count);

/* The tensor that holds pool element `elem` of the run of tensors of this part; GF_TENSOR_NONE in a
 * gap. */
uint32_t gf_pool_find(const struct gf_pool_tensor *table, uint32_t first, uint32_t last,
                      bool sparse, uint64_t elem);

uint64_t gf_pool_hash(const struct gf_config *config, const struct gf_tensor *tensors,
                      uint32_t tensor_count);

#endif
