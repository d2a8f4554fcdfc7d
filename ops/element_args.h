/* The arguments of element ops that have many of them, for the host and for CUDA kernels alike:
 * addresses are gf_mem, types are gf_type, nesterov is a bool. ops.h says what is done with
 * them. */
#ifndef GF_ELEMENT_ARGS_H
#define GF_ELEMENT_ARGS_H

#include <stdint.h>

/* norm() and score() add in runs of these: what 16 threads of a GPU take at a time */
#define GF_RUN_ELEMS 2048u
#define GF_SOURCE_SHIFT 48u /* sum_n: above the index of an element, which source it is */

/* Chunks of a range, none twice. Chunk c is elements c*chunk_elems and on; the range's last may be
 * short. In a range that is packed the k-th of them lies where chunk k does. */
struct gf_chunks {
    uint64_t list_u32;    /* [count] in the queue's memory; 0: chunks 0, 1, .. */
    uint64_t chunk_elems; /* not 0 */
    uint64_t elems;       /* of the range that is not packed */
    uint32_t count;
    uint32_t dst_packed, src_packed; /* bool; one of them at most */
};

/* Sparse history; see accumulate(). */
struct gf_accumulate {
    uint64_t dst_h_f32, h_f32;
    uint64_t dst_u_f32, u_f32; /* 0 each: it is not stored; there is none */
    uint64_t src;
    uint32_t src_type;
    uint64_t weight_f32; /* 0: no decay */
    float scale, momentum, ahead, decay;
};

/* Momentum SGD and LARS; see update(). */
struct gf_update {
    uint64_t weight_f32;
    uint64_t momentum_f32; /* 0: plain SGD */
    uint64_t half;         /* 0, or the copy of the weights in half_type */
    uint32_t half_type;
    uint64_t gradient;
    uint32_t gradient_type;
    float gradient_scale; /* multiplies the gradient first */
    /* multiplies what the momentum takes in: the learning rate of LARS, 1 for SGD */
    float rate_in;
    uint64_t ratio_f32; /* 0; or the trust ratio, one float that multiplies rate_in first */
    /* multiplies what is subtracted: the learning rate of SGD, 1 for LARS */
    float rate_out;
    float momentum;
    float decay;
    uint32_t nesterov;
};

/* A part of a range that update() takes, with its own ratio and decay. */
struct gf_update_part {
    uint64_t first, elem_count;
    uint64_t ratio_f32; /* or 0 */
    float decay;
    uint32_t first_tile; /* the CUDA backend's own */
};

/* A range whose squares norm() adds up. */
struct gf_norm {
    uint64_t square_f64, src;
    uint64_t elem_count;
};

/* Trust ratio of LARS, from squares that norm() added up. */
struct gf_ratio {
    uint64_t ratio_f32;
    uint64_t weight_square_f64;
    uint64_t gradient_square_f64;
    float gradient_scale; /* of the gradient's norm */
    float eta;
    float decay;
    float epsilon;
};

/* AdamW; see adam(). */
struct gf_adam {
    uint64_t weight_f32, moment1_f32, moment2_f32;
    uint64_t half; /* 0, or the copy of the weights in half_type */
    uint32_t half_type;
    uint64_t gradient;
    uint32_t gradient_type;
    float gradient_scale, rate, decay, epsilon;
    float beta1, keep1; /* keep is 1 - beta */
    float beta2, keep2;
    /* 1 / (1 - beta1^t) and 1 / sqrt(1 - beta2^t), with t updates, this one included */
    float correct1, correct2;
};

#endif
