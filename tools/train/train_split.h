/* --split: a fully connected layer whose rows are divided between the ranks (FireCaffe's model
 * parallelism). Each rank holds and trains out_width / world rows of its weights for the images of
 * all ranks:
 *     forward   the ranks' inputs, and then their columns of the outputs, reach all by allgather
 *     backward  so do the outputs' gradients; the inputs' gradients, a sum over rows, return by
 *               reduce-scatter
 * No gradient of the layer's weights travels. These weights are this rank's own: the library is
 * told of tensors of no elements, so it neither sends, hashes nor synchronises them, and the
 * appliance applies SGD by itself, as the library does. A checkpoint's FILE.RANK holds the rank's
 * own rows and their momentum; only as many ranks can load it. */
#ifndef GF_TRAIN_SPLIT_H
#define GF_TRAIN_SPLIT_H

#include "gradientflow.h"

struct net_split {
    gf_context *gf;
    gf_status status; /* of the last exchange: forward() has no other way to say so */
    uint32_t weight_tensor;
    uint32_t in_width, out_width, rank, world;
    uint32_t images, rows; /* of all ranks; of out_width here */
    /* [out_width][in_width + 1] weights, then biases: drawn, and gathered for the test */
    float *whole;
    /* [own_count]: weights [rows][in_width], biases [rows], the momentum of both */
    float *own;
    uint64_t own_count;
    float *gradient; /* [rows][in_width + 1] likewise */
    float *in;       /* [images][in_width] of all ranks; then the gradients of these */
    float *part;     /* [images][rows] */
    float *out;      /* [world][images][rows], then [images][out_width] */
    /* bytes that this rank sent for it, through the link or a peer's memory */
    uint64_t exchanged;
};

/* All but gf, rank and the widths; at base, or only measured with base NULL. Adds to
 * *used_bytes. */
void split_layout(struct net_split *split, char *base, size_t *used_bytes);
/* split->whole has been drawn: takes this rank's rows from it. */
void split_begin(struct net_split *split);
/* out[own images][out_width] of in[own images][in_width], with bias, and ReLU if relu; sets
 * split->status. */
void split_forward(struct net_split *split, const float *in, float *out, bool relu);
/* Of the images of the last forward: the rows' gradients, and in_gradient[own images][in_width]
 * unless it is NULL. */
gf_status split_backward(struct net_split *split, const float *out_gradient, float *in_gradient);
/* v = momentum v + g + decay w; w -= rate v. The bias has no decay. */
void split_update(struct net_split *split, float rate, float momentum, float decay);
/* split->whole becomes what the ranks hold. */
gf_status split_gather(struct net_split *split);

#endif
