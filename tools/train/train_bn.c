/* A network of many small tensors: six 3x3 convolutions with batch normalisation and ReLU, the first and the third with
 * pooling, the mean over the last image, one fully connected layer.
 *   28x28x1 -> 28x28x16 -> pool -> 14x14x16 -> 14x14x32 -> 14x14x32 -> pool -> 7x7x32 -> three times 7x7x64 -> 64 -> 10
 * 20 tensors, 107,322 parameters. Each rank normalises by its own part of the batch, as is usual: the gradients of
 * a split batch are not those of the whole one. */
#include <string.h>

#include "tools/train/train_layers.h"
#include "tools/train/train_net.h"
#include "tools/train/train_norm.h"

#define UNFOLDED_ELEMS (256u * 1024u) /* 1 MiB: stays in a core's cache */

#define BN_KERNEL 3u
#define BN_TAPS (BN_KERNEL * BN_KERNEL)
#define BN_BORDER (BN_KERNEL / 2u)
#define BN_LAYERS 6u
#define BN_FEATURES 64u
#define BN_LAST_SIDE 7u
#define BN_LAST_POINTS (BN_LAST_SIDE * BN_LAST_SIDE)

static const struct bn_shape {
    uint32_t side, in_channels, out_channels;
    bool pools;
} bn_shapes[BN_LAYERS] = {
    {28, 1, 16, true},  {14, 16, 32, false}, {14, 32, 32, true},
    {7, 32, 64, false}, {7, 64, 64, false},  {7, 64, 64, false},
};

/* Backward ends the last layer first, and in a layer the normalisation before the convolution. */
enum { BN_FC_WEIGHT, BN_FC_BIAS, BN_FIRST_GAIN };
#define BN_GAIN(layer) (BN_FIRST_GAIN + 3u * (BN_LAYERS - 1u - (layer)))
#define BN_BIAS(layer) (BN_GAIN(layer) + 1u)
#define BN_WEIGHT(layer) (BN_GAIN(layer) + 2u)

static size_t bn_points(uint32_t layer) { return (size_t)bn_shapes[layer].side * bn_shapes[layer].side; }

/* Of one image: after a layer's convolution, and in front of it with its border. */
static size_t bn_point_elems(uint32_t layer) { return bn_points(layer) * bn_shapes[layer].out_channels; }

static size_t bn_in_elems(uint32_t layer)
{
    return layer_bordered_elems(bn_shapes[layer].side, bn_shapes[layer].in_channels, BN_KERNEL);
}

/* What a layer writes: the next one's in with its border, or the last image without one. */
static uint32_t bn_out_border(uint32_t layer) { return (layer + 1u < BN_LAYERS) ? BN_BORDER : 0u; }

static size_t bn_out_elems(uint32_t layer)
{
    return (layer + 1u < BN_LAYERS) ? bn_in_elems(layer + 1u) : bn_point_elems(layer);
}

/* The largest bn_in_elems(). */
static size_t bn_in_elems_max(void)
{
    size_t most = 0;
    for (uint32_t i = 0; i < BN_LAYERS; i++) most = (bn_in_elems(i) > most) ? bn_in_elems(i) : most;
    return most;
}

/* net->statistics: of each layer its running means, then its running variances. */
static size_t bn_mean_at(uint32_t layer)
{
    size_t at = 0;
    for (uint32_t i = 0; i < layer; i++) at += 2u * (size_t)bn_shapes[i].out_channels;
    return at;
}

static size_t bn_variance_at(uint32_t layer) { return bn_mean_at(layer) + bn_shapes[layer].out_channels; }

#define SMALL .flags = GF_TENSOR_DENSE | GF_TENSOR_NO_DECAY
#define LAYER_TENSORS(number, in, out)                                                                                 \
    {.name = "bn" number ".gain", .elem_count = (out), SMALL},                                                   \
    {.name = "bn" number ".bias", .elem_count = (out), SMALL},                                                         \
    {.name = "conv" number ".weight", .elem_count = BN_TAPS * (in) * (out)}
static const struct gf_tensor bn_tensors[] = {
    {.name = "fc.weight", .elem_count = DATA_CLASSES * BN_FEATURES},
    {.name = "fc.bias", .elem_count = DATA_CLASSES, SMALL},
    LAYER_TENSORS("6", 64, 64), LAYER_TENSORS("5", 64, 64), LAYER_TENSORS("4", 32, 64),
    LAYER_TENSORS("3", 32, 32), LAYER_TENSORS("2", 16, 32), LAYER_TENSORS("1", 1, 16),
};
#define TENSORS (sizeof bn_tensors / sizeof *bn_tensors)
_Static_assert((TENSORS == 20) && (TENSORS <= NET_TENSORS_MAX), "every tensor has a place");

struct bn_layer {
    float *in;       /* [images] with a border; of layer 0 net->input */
    float *normal;   /* [images][side][side][out_channels] */
    float *inverse;  /* [out_channels] 1 / deviation of the batch at hand */
    uint8_t *winner; /* [images][side / 2][side / 2][out_channels] where it pools */
};

struct bn {
    struct bn_layer layer[BN_LAYERS];
    float *out;               /* [images][7][7][64], of the last layer */
    float *features;          /* [images][64] */
    float *features_gradient;
    float *point_gradient;    /* [images], of the normalised values of the layer under way */
    float *in_gradient[2];    /* [images] with borders, of a layer's in and of that of the layer before it */
};

static size_t bn_layout(struct net *net, char *base)
{
    size_t used = 0, images = net->images_max;
    struct bn bn = {0}, *own = net_take(base, &used, sizeof bn);
    net->statistic_count = (uint32_t)bn_mean_at(BN_LAYERS);
    net->statistics = net_take(base, &used, net->statistic_count * sizeof(float));
    for (uint32_t i = 0; i < BN_LAYERS; i++) {
        struct bn_layer *layer = &bn.layer[i];
        uint32_t channels = bn_shapes[i].out_channels;
        size_t in_bytes = images * bn_in_elems(i) * sizeof(float);
        layer->in = net_take(base, &used, in_bytes);
        layer->normal = net_take(base, &used, images * bn_point_elems(i) * sizeof(float));
        layer->inverse = net_take(base, &used, channels * sizeof(float));
        if (bn_shapes[i].pools) layer->winner = net_take(base, &used, images * bn_point_elems(i) / 4u);
        if (base == NULL) continue;
        memset(layer->in, 0, in_bytes); /* the borders stay zero from here on */
        for (uint32_t c = 0; c < channels; c++) {
            net->statistics[bn_mean_at(i) + c] = 0.0f;
            net->statistics[bn_variance_at(i) + c] = 1.0f;
        }
    }
    net->input = bn.layer[0].in;
    net->labels = net_take(base, &used, images);
    net->logits = net_take(base, &used, images * DATA_CLASSES * sizeof(float));
    bn.out = net_take(base, &used, images * bn_point_elems(BN_LAYERS - 1u) * sizeof(float));
    bn.features = net_take(base, &used, images * BN_FEATURES * sizeof(float));
    bn.features_gradient = net_take(base, &used, images * BN_FEATURES * sizeof(float));
    bn.point_gradient = net_take(base, &used, images * bn_point_elems(0) * sizeof(float)); /* the largest */
    for (uint32_t i = 0; i < 2; i++)
        bn.in_gradient[i] = net_take(base, &used, images * bn_in_elems_max() * sizeof(float));
    net->unfolded = net_take(base, &used, UNFOLDED_ELEMS * sizeof(float));
    net->convolved = net_take(base, &used, UNFOLDED_ELEMS * sizeof(float));
    net->own = own;
    if (own != NULL) *own = bn;
    return used;
}

static void bn_init(struct net *net, struct data_random *random)
{
    net_init_normal(net->weight[BN_FC_WEIGHT], DATA_CLASSES * BN_FEATURES, BN_FEATURES, random);
    net_init_normal(net->weight[BN_FC_BIAS], DATA_CLASSES, 0, random);
    for (uint32_t i = 0; i < BN_LAYERS; i++) {
        for (uint32_t c = 0; c < bn_shapes[i].out_channels; c++) net->weight[BN_GAIN(i)][c] = 1.0f;
        net_init_normal(net->weight[BN_BIAS(i)], bn_shapes[i].out_channels, 0, random);
        net_init_normal(net->weight[BN_WEIGHT(i)], bn_tensors[BN_WEIGHT(i)].elem_count,
                        BN_TAPS * bn_shapes[i].in_channels, random);
    }
}

/* Images that are unfolded at a time. */
static size_t run_images(const struct net *net, uint32_t layer, size_t first)
{
    size_t points = bn_points(layer), fan = (size_t)BN_TAPS * bn_shapes[layer].in_channels;
    size_t wide = (fan > bn_shapes[layer].out_channels) ? fan : bn_shapes[layer].out_channels;
    size_t most = UNFOLDED_ELEMS / (points * wide), left = net->image_count - first;
    return (left < most) ? left : most;
}
_Static_assert(UNFOLDED_ELEMS >= 14u * 14u * BN_TAPS * 32u, "the widest layer's image fits");

/* out = ReLU(gain * normal + bias), pooled where the layer does so. */
static void layer_end(struct net *net, uint32_t index, float *out)
{
    const struct bn *bn = net->own;
    const struct bn_layer *layer = &bn->layer[index];
    uint32_t side = bn_shapes[index].side, channels = bn_shapes[index].out_channels, border = bn_out_border(index);
    const float *bias = net->weight[BN_BIAS(index)];
    size_t points = (size_t)side * side, wide = side + 2u * border;
    for (size_t first = 0, count; first < net->image_count; first += count) {
        count = run_images(net, index, first);
        norm_gain(layer->normal + first * bn_point_elems(index), count * points, channels, net->weight[BN_GAIN(index)],
                  net->convolved);
        if (bn_shapes[index].pools) {
            layer_relu_pool(net->convolved, bias, count, side, channels, border, out + first * bn_out_elems(index),
                            layer->winner + first * bn_point_elems(index) / 4u);
            net_round(net, out + first * bn_out_elems(index), count * bn_out_elems(index));
            continue;
        }
        layer_bias(net->convolved, bias, count * points, channels, true);
        net_round(net, net->convolved, count * points * channels);
        for (size_t i = 0; i < count * side; i++) /* a line of an image each */
            memcpy(out + (first + i / side) * bn_out_elems(index) + ((i % side + border) * wide + border) * channels,
                   net->convolved + i * side * channels, side * channels * sizeof(float));
    }
}

static void layer_forward(struct net *net, uint32_t index)
{
    struct bn *bn = net->own;
    struct bn_layer *layer = &bn->layer[index];
    uint32_t side = bn_shapes[index].side, channels = bn_shapes[index].out_channels;
    size_t points = (size_t)side * side, fan = (size_t)BN_TAPS * bn_shapes[index].in_channels;
    size_t rows = net->image_count * points;
    float *mean = net->statistics + bn_mean_at(index), *variance = net->statistics + bn_variance_at(index);
    for (size_t first = 0, count; first < net->image_count; first += count) {
        count = run_images(net, index, first);
        layer_unfold(layer->in + first * bn_in_elems(index), count, side, bn_shapes[index].in_channels,
                     BN_KERNEL, net->unfolded);
        layer_gemm(false, true, count * points, channels, fan, net->unfolded, net->weight[BN_WEIGHT(index)], 0.0f,
                   layer->normal + first * bn_point_elems(index));
    }
    if (net->training)
        norm_forward(layer->normal, rows, channels, layer->inverse, mean, variance);
    else
        norm_apply(layer->normal, rows, channels, mean, variance);
    layer_end(net, index, (index + 1u < BN_LAYERS) ? bn->layer[index + 1u].in : bn->out);
}

static void bn_forward(struct net *net)
{
    struct bn *bn = net->own;
    if (net->image_count == 0) return;
    for (uint32_t i = 0; i < BN_LAYERS; i++) layer_forward(net, i);
    for (size_t i = 0; i < net->image_count; i++) {
        float *features = bn->features + i * BN_FEATURES;
        layer_column_sum(bn->out + i * BN_LAST_POINTS * BN_FEATURES, BN_LAST_POINTS, BN_FEATURES, features);
        for (uint32_t c = 0; c < BN_FEATURES; c++) features[c] /= (float)BN_LAST_POINTS;
        net_round(net, features, BN_FEATURES);
    }
    net_full_forward(net, BN_FC_WEIGHT, bn->features, BN_FEATURES, net->logits, DATA_CLASSES, false);
}

/* point_gradient = the gradient after the normalisation: through pooling and ReLU. */
static void layer_end_back(struct net *net, uint32_t index, const float *out, const float *out_gradient)
{
    struct bn *bn = net->own;
    uint32_t side = bn_shapes[index].side, channels = bn_shapes[index].out_channels, border = bn_out_border(index);
    size_t wide = side + 2u * border, line = side * (size_t)channels;
    if (bn_shapes[index].pools) {
        memset(net->gradient[BN_BIAS(index)], 0, channels * sizeof(float)); /* norm_backward() writes it anew */
        layer_relu_pool_back(out_gradient, bn->layer[index].winner, net->image_count, side, channels, border,
                             bn->point_gradient, net->gradient[BN_BIAS(index)]);
        return;
    }
    for (size_t i = 0; i < (size_t)net->image_count * side; i++) {
        size_t at = (i / side) * bn_out_elems(index) + ((i % side + border) * wide + border) * channels;
        memcpy(bn->point_gradient + i * line, out_gradient + at, line * sizeof(float));
        layer_relu_back(bn->point_gradient + i * line, out + at, line);
    }
}

/* Gradients go straight into the library's pool. in_gradient may be NULL: nobody asks for that of the images. */
static void layer_backward(struct net *net, uint32_t index, const float *out, const float *out_gradient,
                           float *in_gradient)
{
    struct bn *bn = net->own;
    struct bn_layer *layer = &bn->layer[index];
    uint32_t side = bn_shapes[index].side, in_channels = bn_shapes[index].in_channels;
    uint32_t channels = bn_shapes[index].out_channels;
    size_t points = (size_t)side * side, fan = (size_t)BN_TAPS * in_channels;
    layer_end_back(net, index, out, out_gradient);
    norm_backward(bn->point_gradient, layer->normal, net->image_count * points, channels, net->weight[BN_GAIN(index)],
                  layer->inverse, net->gradient[BN_GAIN(index)], net->gradient[BN_BIAS(index)]);
    net_ready(net, BN_GAIN(index));
    net_ready(net, BN_BIAS(index));
    for (size_t first = 0, count; (first < net->image_count) && (net->status >= 0); first += count) {
        const float *gradient = bn->point_gradient + first * bn_point_elems(index);
        count = run_images(net, index, first);
        layer_unfold(layer->in + first * bn_in_elems(index), count, side, in_channels, BN_KERNEL,
                     net->unfolded);
        layer_gemm(true, false, channels, fan, count * points, gradient, net->unfolded, (first == 0) ? 0.0f : 1.0f,
                   net->gradient[BN_WEIGHT(index)]);
        net_poll(net);
        if (in_gradient == NULL) continue;
        layer_gemm(false, false, count * points, fan, channels, gradient, net->weight[BN_WEIGHT(index)], 0.0f,
                   net->unfolded);
        layer_fold(net->unfolded, count, side, in_channels, BN_KERNEL, in_gradient + first * bn_in_elems(index));
        net_round(net, in_gradient + first * bn_in_elems(index), count * bn_in_elems(index));
        net_poll(net);
    }
    net_ready(net, BN_WEIGHT(index));
}

static gf_status bn_backward(struct net *net)
{
    struct bn *bn = net->own;
    size_t images = net->image_count;
    net_full_backward(net, BN_FC_WEIGHT, bn->features, BN_FEATURES, net->logits, DATA_CLASSES);
    layer_gemm(false, false, images, BN_FEATURES, DATA_CLASSES, net->logits, net->weight[BN_FC_WEIGHT], 0.0f,
               bn->features_gradient);
    net_round(net, bn->features_gradient, images * BN_FEATURES);
    float *gradient = bn->in_gradient[BN_LAYERS % 2u];
    for (size_t i = 0; i < images * BN_LAST_POINTS * BN_FEATURES; i++)
        gradient[i] =
            bn->features_gradient[i / (BN_LAST_POINTS * BN_FEATURES) * BN_FEATURES + i % BN_FEATURES] /
            (float)BN_LAST_POINTS;
    for (uint32_t i = BN_LAYERS; (i-- > 0) && (net->status >= 0);)
        layer_backward(net, i, (i + 1u < BN_LAYERS) ? bn->layer[i + 1u].in : bn->out, bn->in_gradient[(i + 1u) % 2u],
                       (i > 0) ? bn->in_gradient[i % 2u] : NULL);
    return net->status;
}

const struct net_model net_bn = {
    .name = "bn",
    .tensors = bn_tensors,
    .tensor_count = TENSORS,
    .learning_rate = 0.05f,
    .input_border = BN_BORDER,
    .layout = bn_layout,
    .init = bn_init,
    .forward = bn_forward,
    .backward = bn_backward,
};
