/* The shape of --model bn, for its two sides: train_bn.c on the host, train_device_bn.c on a GPU. */
#ifndef GF_TRAIN_BN_H
#define GF_TRAIN_BN_H

#include "tools/train/train_layers.h"
#include "tools/train/train_net.h"

#define BN_KERNEL 3u
#define BN_TAPS (BN_KERNEL * BN_KERNEL)
#define BN_BORDER (BN_KERNEL / 2u)
#define BN_LAYERS 6u
#define BN_FEATURES 64u
#define BN_LAST_SIDE 7u
#define BN_LAST_POINTS (BN_LAST_SIDE * BN_LAST_SIDE)

struct bn_shape {
    uint32_t side, in_channels, out_channels;
    bool pools;
};
extern const struct bn_shape bn_shapes[BN_LAYERS];

/* Backward ends the last layer first, and in a layer the normalisation before the convolution. */
enum { BN_FC_WEIGHT, BN_FC_BIAS, BN_FIRST_GAIN };
#define BN_GAIN(layer) (BN_FIRST_GAIN + 3u * (BN_LAYERS - 1u - (layer)))
#define BN_BIAS(layer) (BN_GAIN(layer) + 1u)
#define BN_WEIGHT(layer) (BN_GAIN(layer) + 2u)

static inline size_t bn_points(uint32_t layer) { return (size_t)bn_shapes[layer].side * bn_shapes[layer].side; }

/* Of one image: after a layer's convolution, and in front of it with its border. */
static inline size_t bn_point_elems(uint32_t layer) { return bn_points(layer) * bn_shapes[layer].out_channels; }

static inline size_t bn_in_elems(uint32_t layer)
{
    return layer_bordered_elems(bn_shapes[layer].side, bn_shapes[layer].in_channels, BN_KERNEL);
}

/* What a layer writes: the next one's in with its border, or the last image without one. */
static inline uint32_t bn_out_border(uint32_t layer) { return (layer + 1u < BN_LAYERS) ? BN_BORDER : 0u; }

static inline size_t bn_out_elems(uint32_t layer)
{
    return (layer + 1u < BN_LAYERS) ? bn_in_elems(layer + 1u) : bn_point_elems(layer);
}

/* The largest bn_in_elems(). */
static inline size_t bn_in_elems_max(void)
{
    size_t most = 0;
    for (uint32_t i = 0; i < BN_LAYERS; i++) most = (bn_in_elems(i) > most) ? bn_in_elems(i) : most;
    return most;
}

/* net->statistics: of each layer its running means, then its running variances. */
static inline size_t bn_mean_at(uint32_t layer)
{
    size_t at = 0;
    for (uint32_t i = 0; i < layer; i++) at += 2u * (size_t)bn_shapes[i].out_channels;
    return at;
}

static inline size_t bn_variance_at(uint32_t layer) { return bn_mean_at(layer) + bn_shapes[layer].out_channels; }

#endif
