/* The network of train_bn.c on a GPU, layer by layer, queued: the same values in the same places, but that a layer's
 * images are unfolded more at a time. Evaluation is the host's. */
#include "tools/train/train_device.h"
#include "tools/train/train_norm.h"

/* Of an image: the third layer's 14 x 14 x 32 channels; the first convolution, the largest that is pooled. */
#define UNFOLDED_ELEMS (14u * 14u * BN_TAPS * 32u)
#define CONVOLVED_ELEMS (28u * 28u * 16u)

static size_t bn_layout(struct device *device, gf_mem base)
{
    size_t used = 0, images = device->images_max;
    size_t chunk = (images < DEVICE_CHUNK_IMAGES) ? images : DEVICE_CHUNK_IMAGES;
    struct device_bn *bn = &device->bn;
    device_common_layout(device, base, &used, bn_in_elems(0));
    device->statistics = device_take(base, &used, bn_mean_at(BN_LAYERS) * sizeof(float));
    for (uint32_t i = 0; i < BN_LAYERS; i++) {
        GF_ASSERT(bn_points(i) * BN_TAPS * bn_shapes[i].in_channels <= UNFOLDED_ELEMS);
        GF_ASSERT(!bn_shapes[i].pools || (bn_point_elems(i) <= CONVOLVED_ELEMS));
        bn->layer[i].in = (i == 0) ? device->input : device_take(base, &used, images * bn_in_elems(i) * sizeof(float));
        bn->layer[i].normal = device_take(base, &used, images * bn_point_elems(i) * sizeof(float));
        bn->layer[i].inverse = device_take(base, &used, bn_shapes[i].out_channels * sizeof(float));
        if (bn_shapes[i].pools) bn->layer[i].winner = device_take(base, &used, images * bn_point_elems(i) / 4u);
    }
    bn->mean = device_take(base, &used, LAYER_CHANNELS_MAX * sizeof(float));
    bn->out = device_take(base, &used, images * bn_point_elems(BN_LAYERS - 1u) * sizeof(float));
    bn->features = device_take(base, &used, images * BN_FEATURES * sizeof(float));
    bn->features_gradient = device_take(base, &used, images * BN_FEATURES * sizeof(float));
    bn->point_gradient = device_take(base, &used, images * bn_point_elems(0) * sizeof(float));
    for (uint32_t i = 0; i < 2; i++)
        bn->in_gradient[i] = device_take(base, &used, images * bn_in_elems_max() * sizeof(float));
    device->unfolded = device_take(base, &used, chunk * UNFOLDED_ELEMS * sizeof(float));
    device->convolved = device_take(base, &used, chunk * CONVOLVED_ELEMS * sizeof(float));
    return used;
}

static gf_mem layer_out(const struct device *device, uint32_t index)
{
    return (index + 1u < BN_LAYERS) ? device->bn.layer[index + 1u].in : device->bn.out;
}

/* out = ReLU(gain * normal + bias), pooled where the layer does so. */
static void layer_end(struct device *device, uint32_t index)
{
    const struct bn_shape *shape = &bn_shapes[index];
    gf_mem normal = device->bn.layer[index].normal, winner = device->bn.layer[index].winner;
    gf_mem out = layer_out(device, index), bias = device->weight[BN_BIAS(index)];
    struct gf_train_gain_args gain = {.normal = normal, .gain = device->weight[BN_GAIN(index)], .bias = bias, .out = out,
                                      .image_count = device->image_count, .side = shape->side,
                                      .channels = shape->out_channels, .border = bn_out_border(index)};
    if (!shape->pools) {
        device_launch(device, KERNEL_train_gain, device->image_count * bn_point_elems(index), &gain);
        return;
    }
    gain.bias = 0;
    gain.border = 0;
    gain.out = device->convolved;
    for (uint32_t first = 0; first < device->image_count; first += DEVICE_CHUNK_IMAGES) {
        uint64_t images = device_chunk_images(device, first), elems = images * bn_point_elems(index);
        struct gf_train_pool_args pool = {.in = device->convolved, .bias = bias,
                                          .out = out + first * bn_out_elems(index) * sizeof(float),
                                          .winner = winner + first * bn_point_elems(index) / 4u, .image_count = images,
                                          .side = shape->side, .channels = shape->out_channels,
                                          .border = bn_out_border(index)};
        gain.normal = normal + first * bn_point_elems(index) * sizeof(float);
        gain.image_count = images;
        device_launch(device, KERNEL_train_gain, elems, &gain);
        device_launch(device, KERNEL_train_pool, elems / 4u, &pool);
    }
}

static void layer_forward(struct device *device, uint32_t index)
{
    const struct bn_shape *shape = &bn_shapes[index];
    const struct device_bn *bn = &device->bn;
    uint64_t fan = (uint64_t)BN_TAPS * shape->in_channels, rows = device->image_count * bn_points(index);
    struct gf_train_moments_args moments = {
        .rows = bn->layer[index].normal, .mean = bn->mean, .inverse = bn->layer[index].inverse,
        .running_mean = device->statistics + bn_mean_at(index) * sizeof(float),
        .running_variance = device->statistics + bn_variance_at(index) * sizeof(float), .row_count = rows,
        .width = shape->out_channels, .epsilon = NORM_EPSILON, .kept = NORM_KEPT};
    struct gf_train_normalise_args normalise = {.rows = bn->layer[index].normal, .mean = bn->mean,
                                                .inverse = bn->layer[index].inverse, .row_count = rows,
                                                .width = shape->out_channels};
    for (uint32_t first = 0; first < device->image_count; first += DEVICE_CHUNK_IMAGES) {
        uint64_t images = device_chunk_images(device, first);
        device_unfold(device, bn->layer[index].in + first * bn_in_elems(index) * sizeof(float), images, shape->side,
                      shape->in_channels, BN_KERNEL);
        device_gemm(device, false, true, images * bn_points(index), shape->out_channels, fan, device->unfolded,
                    device->weight[BN_WEIGHT(index)], false,
                    bn->layer[index].normal + first * bn_point_elems(index) * sizeof(float));
    }
    device_blocks(device, KERNEL_train_moments, shape->out_channels, &moments);
    device_launch(device, KERNEL_train_normalise, rows * shape->out_channels, &normalise);
    layer_end(device, index);
}

static void bn_forward(struct device *device)
{
    uint64_t images = device->image_count;
    struct gf_train_mean_args mean = {.in = device->bn.out, .out = device->bn.features, .image_count = images,
                                      .points = BN_LAST_POINTS, .width = BN_FEATURES};
    for (uint32_t i = 0; i < BN_LAYERS; i++) layer_forward(device, i);
    device_launch(device, KERNEL_train_mean, images * BN_FEATURES, &mean);
    device_full_forward(device, BN_FC_WEIGHT, device->bn.features, BN_FEATURES, device->logits, DATA_CLASSES, false);
}

/* point_gradient = the gradient after the normalisation: through pooling and ReLU. */
static void layer_end_back(struct device *device, uint32_t index, gf_mem out_gradient)
{
    const struct bn_shape *shape = &bn_shapes[index];
    uint64_t elems = device->image_count * bn_point_elems(index);
    struct gf_train_pool_back_args pool = {.out_gradient = out_gradient, .winner = device->bn.layer[index].winner,
                                           .in_gradient = device->bn.point_gradient,
                                           .image_count = device->image_count, .side = shape->side,
                                           .channels = shape->out_channels, .border = bn_out_border(index)};
    struct gf_train_gain_back_args gain = {.out = layer_out(device, index), .out_gradient = out_gradient,
                                           .gradient = device->bn.point_gradient,
                                           .image_count = device->image_count, .side = shape->side,
                                           .channels = shape->out_channels, .border = bn_out_border(index)};
    if (shape->pools) device_launch(device, KERNEL_train_pool_back, elems, &pool);
    else device_launch(device, KERNEL_train_gain_back, elems, &gain);
}

/* in_gradient may be 0: nobody asks for that of the images. */
static void layer_backward(struct device *device, uint32_t index, gf_mem out_gradient, gf_mem in_gradient)
{
    const struct bn_shape *shape = &bn_shapes[index];
    gf_mem normal = device->bn.layer[index].normal, points = device->bn.point_gradient;
    uint64_t fan = (uint64_t)BN_TAPS * shape->in_channels, rows = device->image_count * bn_points(index);
    struct gf_train_norm_sums_args sums = {.gradient = points, .normal = normal,
                                           .gain_gradient = device->gradient[BN_GAIN(index)],
                                           .bias_gradient = device->gradient[BN_BIAS(index)], .row_count = rows,
                                           .width = shape->out_channels};
    struct gf_train_norm_back_args back = {.gradient = points, .normal = normal, .gain = device->weight[BN_GAIN(index)],
                                           .inverse = device->bn.layer[index].inverse,
                                           .gain_gradient = device->gradient[BN_GAIN(index)],
                                           .bias_gradient = device->gradient[BN_BIAS(index)], .row_count = rows,
                                           .width = shape->out_channels};
    layer_end_back(device, index, out_gradient);
    device_blocks(device, KERNEL_train_norm_sums, shape->out_channels, &sums);
    device_launch(device, KERNEL_train_norm_back, rows * shape->out_channels, &back);
    device_ready(device, BN_GAIN(index)); /* after who reads the sums: from here on they are the library's */
    device_ready(device, BN_BIAS(index));
    for (uint32_t first = 0; first < device->image_count; first += DEVICE_CHUNK_IMAGES) {
        uint64_t images = device_chunk_images(device, first);
        gf_mem gradient = points + first * bn_point_elems(index) * sizeof(float);
        device_unfold(device, device->bn.layer[index].in + first * bn_in_elems(index) * sizeof(float), images,
                      shape->side, shape->in_channels, BN_KERNEL);
        device_gemm(device, true, false, shape->out_channels, fan, images * bn_points(index), gradient,
                    device->unfolded, first > 0, device->gradient[BN_WEIGHT(index)]);
        device_poll(device);
        if (in_gradient == 0) continue;
        device_gemm(device, false, false, images * bn_points(index), fan, shape->out_channels, gradient,
                    device->weight[BN_WEIGHT(index)], false, device->unfolded);
        device_fold(device, in_gradient + first * bn_in_elems(index) * sizeof(float), images, shape->side,
                    shape->in_channels, BN_KERNEL);
        device_poll(device);
    }
    device_ready(device, BN_WEIGHT(index));
}

static void bn_backward(struct device *device)
{
    uint64_t images = device->image_count;
    const struct device_bn *bn = &device->bn;
    struct gf_train_mean_back_args mean = {.out_gradient = bn->features_gradient,
                                           .in_gradient = bn->in_gradient[BN_LAYERS % 2u], .image_count = images,
                                           .points = BN_LAST_POINTS, .width = BN_FEATURES};
    device_full_backward(device, BN_FC_WEIGHT, bn->features, BN_FEATURES, device->logits, DATA_CLASSES);
    device_gemm(device, false, false, images, BN_FEATURES, DATA_CLASSES, device->logits, device->weight[BN_FC_WEIGHT],
                false, bn->features_gradient);
    device_launch(device, KERNEL_train_mean_back, images * BN_LAST_POINTS * BN_FEATURES, &mean);
    for (uint32_t i = BN_LAYERS; i-- > 0;)
        layer_backward(device, i, bn->in_gradient[(i + 1u) % 2u], (i > 0) ? bn->in_gradient[i % 2u] : 0);
}

const struct device_model device_bn = {
    .model = &net_bn, .layout = bn_layout, .forward = bn_forward, .backward = bn_backward};
