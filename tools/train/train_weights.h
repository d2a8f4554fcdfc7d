/* Where weights and gradients lie. With fp32 the networks work in the library's pools. With
 * --precision the library holds 16-bit gradients and a 16-bit copy of its fp32 weights, and the
 * networks, which a processor computes in fp32, work on conversions of these: what forward reads,
 * what backward writes and what layers hand on has 16 bits. */
#ifndef GF_TRAIN_WEIGHTS_H
#define GF_TRAIN_WEIGHTS_H

#include "tools/train/train_loop.h"

/* options->model's tensors as the library is told of them: train->tensors. */
void train_tensors(struct train *train);
/* Why --split cannot be done with these options and this many ranks; NULL: it can, or is not asked
 * for. */
const char *train_split_refuses(const struct train *train);
/* The next bytes of the workspace, for the conversions and for a split layer. */
void train_weights_layout(struct train *train, char *base, size_t *used_bytes);
/* After joining and after each shrink. */
void train_pools(struct train *train);
/* Before forward: the network's weights are those of the last update. */
void train_weights_fetch(struct train *train);
/* The library's own fp32 weight, the host's copy of a device's, or of a split layer what
 * train_test() has gathered. */
const float *train_weight(struct train *train, uint32_t tensor);
/* 64 bits of all weights that are the same on all ranks, in tensor order. */
uint64_t train_weights_hash(struct train *train);
/* A step of this rank's part of the batch. */
gf_status train_step_begin(struct train *train);
/* The weights of rank 0 on all ranks, unless a regroup has given them the same. */
gf_status train_begin(struct train *train);
/* The rest of it for a process that comes back and has been given the weights. */
gf_status train_begin_joiner(struct train *train);

#endif
