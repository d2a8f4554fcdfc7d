/* The demo's networks on a GPU: what train_net.c does on the host, layer by layer, queued. */
#include "tools/common/tool_tensors.h"
#include "tools/train/train_device.h"
#include "tools/train/train_layers.h"

#define SIDE1 DATA_SIDE
#define SIDE2 (SIDE1 / 2u)
#define SIDE3 (SIDE2 / 2u)
#define CHANNELS1 32u
#define CHANNELS2 64u
#define KERNEL 5u
#define TAPS (KERNEL * KERNEL)
#define FAN2 (TAPS * CHANNELS1)
#define FEATURES (SIDE3 * SIDE3 * CHANNELS2)
#define HIDDEN 512u
_Static_assert(SIDE1 * SIDE1 * TAPS <= SIDE2 * SIDE2 * FAN2, "unfolded is sized by the second convolution");
_Static_assert(SIDE1 * SIDE1 * CHANNELS1 >= SIDE2 * SIDE2 * CHANNELS2, "convolved is sized by the first");

static size_t cnn_layout(struct device *device, gf_mem base)
{
    size_t used = 0, images = device->images_max;
    size_t chunk = (images < DEVICE_CHUNK_IMAGES) ? images : DEVICE_CHUNK_IMAGES;
    size_t pooled1_bytes = images * layer_bordered_elems(SIDE2, CHANNELS1, KERNEL) * sizeof(float);
    device_common_layout(device, base, &used, layer_bordered_elems(SIDE1, 1, KERNEL));
    device->pooled1 = device_take(base, &used, pooled1_bytes);
    device->winner1 = device_take(base, &used, images * SIDE2 * SIDE2 * CHANNELS1);
    device->pooled2 = device_take(base, &used, images * FEATURES * sizeof(float));
    device->winner2 = device_take(base, &used, images * FEATURES);
    device->hidden = device_take(base, &used, images * HIDDEN * sizeof(float));
    device->hidden_gradient = device_take(base, &used, images * HIDDEN * sizeof(float));
    device->pooled2_gradient = device_take(base, &used, images * FEATURES * sizeof(float));
    device->pooled1_gradient = device_take(base, &used, pooled1_bytes);
    device->unfolded = device_take(base, &used, chunk * SIDE2 * SIDE2 * FAN2 * sizeof(float));
    device->convolved = device_take(base, &used, chunk * SIDE1 * SIDE1 * CHANNELS1 * sizeof(float));
    return used;
}

/* One convolution, its ReLU and its pooling, a chunk of images at a time. */
struct conv {
    uint32_t side, in_channels, out_channels, out_border;
    gf_mem in, weight, bias, out, winner;
    uint64_t in_bytes, out_bytes, winner_bytes; /* of one image */
};

static struct conv conv_of(struct device *device, uint32_t which)
{
    if (which == 1) {
        return (struct conv){.side = SIDE1, .in_channels = 1, .out_channels = CHANNELS1, .out_border = KERNEL / 2u,
                             .in = device->input, .weight = device->weight[TOOL_TENSOR_CONV1_WEIGHT],
                             .bias = device->weight[TOOL_TENSOR_CONV1_BIAS], .out = device->pooled1,
                             .winner = device->winner1,
                             .in_bytes = layer_bordered_elems(SIDE1, 1, KERNEL) * sizeof(float),
                             .out_bytes = layer_bordered_elems(SIDE2, CHANNELS1, KERNEL) * sizeof(float),
                             .winner_bytes = SIDE2 * SIDE2 * CHANNELS1};
    }
    return (struct conv){.side = SIDE2, .in_channels = CHANNELS1, .out_channels = CHANNELS2, .in = device->pooled1,
                         .weight = device->weight[TOOL_TENSOR_CONV2_WEIGHT],
                         .bias = device->weight[TOOL_TENSOR_CONV2_BIAS], .out = device->pooled2,
                         .winner = device->winner2,
                         .in_bytes = layer_bordered_elems(SIDE2, CHANNELS1, KERNEL) * sizeof(float),
                         .out_bytes = FEATURES * sizeof(float), .winner_bytes = FEATURES};
}

static void conv_forward(struct device *device, uint32_t which)
{
    const struct conv conv = conv_of(device, which);
    for (uint32_t first = 0; first < device->image_count; first += DEVICE_CHUNK_IMAGES) {
        uint64_t images = device_chunk_images(device, first), points = images * conv.side * conv.side;
        struct gf_train_pool_args pool = {.in = device->convolved, .bias = conv.bias,
                                          .out = conv.out + first * conv.out_bytes,
                                          .winner = conv.winner + first * conv.winner_bytes, .image_count = images,
                                          .side = conv.side, .channels = conv.out_channels, .border = conv.out_border};
        device_unfold(device, conv.in + first * conv.in_bytes, images, conv.side, conv.in_channels, KERNEL);
        device_gemm(device, false, true, points, conv.out_channels, (uint64_t)TAPS * conv.in_channels, device->unfolded,
                    conv.weight, false, device->convolved);
        device_launch(device, KERNEL_train_pool, points / 4u * conv.out_channels, &pool);
    }
}

/* in_gradient 0: nobody asks for the gradient of the images themselves. */
static void conv_backward(struct device *device, uint32_t which, uint32_t weight_tensor, uint32_t bias_tensor,
                          gf_mem out_gradient, gf_mem in_gradient)
{
    const struct conv conv = conv_of(device, which);
    uint64_t fan = (uint64_t)TAPS * conv.in_channels;
    for (uint32_t first = 0; first < device->image_count; first += DEVICE_CHUNK_IMAGES) {
        uint64_t images = device_chunk_images(device, first), points = images * conv.side * conv.side;
        struct gf_train_pool_back_args pool = {.out_gradient = out_gradient + first * conv.out_bytes,
                                               .winner = conv.winner + first * conv.winner_bytes,
                                               .in_gradient = device->convolved, .image_count = images,
                                               .side = conv.side, .channels = conv.out_channels,
                                               .border = conv.out_border};
        device_launch(device, KERNEL_train_pool_back, points * conv.out_channels, &pool);
        device_column_sum(device, device->convolved, points, conv.out_channels, first > 0, device->gradient[bias_tensor]);
        device_unfold(device, conv.in + first * conv.in_bytes, images, conv.side, conv.in_channels, KERNEL);
        device_gemm(device, true, false, conv.out_channels, fan, points, device->convolved, device->unfolded, first > 0,
                    device->gradient[weight_tensor]);
        device_poll(device);
        if (in_gradient == 0) continue;
        device_gemm(device, false, false, points, fan, conv.out_channels, device->convolved, conv.weight, false,
                    device->unfolded);
        device_fold(device, in_gradient + first * conv.in_bytes, images, conv.side, conv.in_channels, KERNEL);
    }
    device_ready(device, weight_tensor);
    device_ready(device, bias_tensor);
}

static void cnn_forward(struct device *device)
{
    conv_forward(device, 1);
    conv_forward(device, 2);
    device_full_forward(device, TOOL_TENSOR_FC1_WEIGHT, device->pooled2, FEATURES, device->hidden, HIDDEN, true);
    device_full_forward(device, TOOL_TENSOR_FC2_WEIGHT, device->hidden, HIDDEN, device->logits, DATA_CLASSES, false);
}

static void cnn_backward(struct device *device)
{
    uint64_t images = device->image_count;
    struct gf_train_relu_back_args relu = {.gradient = device->hidden_gradient, .out = device->hidden,
                                           .elem_count = images * HIDDEN};
    device_full_backward(device, TOOL_TENSOR_FC2_WEIGHT, device->hidden, HIDDEN, device->logits, DATA_CLASSES);
    device_gemm(device, false, false, images, HIDDEN, DATA_CLASSES, device->logits,
                device->weight[TOOL_TENSOR_FC2_WEIGHT], false, device->hidden_gradient);
    device_launch(device, KERNEL_train_relu_back, images * HIDDEN, &relu);
    device_full_backward(device, TOOL_TENSOR_FC1_WEIGHT, device->pooled2, FEATURES, device->hidden_gradient, HIDDEN);
    device_gemm(device, false, false, images, FEATURES, HIDDEN, device->hidden_gradient,
                device->weight[TOOL_TENSOR_FC1_WEIGHT], false, device->pooled2_gradient);
    device_poll(device);
    conv_backward(device, 2, TOOL_TENSOR_CONV2_WEIGHT, TOOL_TENSOR_CONV2_BIAS, device->pooled2_gradient,
                  device->pooled1_gradient);
    conv_backward(device, 1, TOOL_TENSOR_CONV1_WEIGHT, TOOL_TENSOR_CONV1_BIAS, device->pooled1_gradient, 0);
}

const struct device_model device_cnn = {
    .model = &net_cnn, .layout = cnn_layout, .forward = cnn_forward, .backward = cnn_backward};

static size_t linear_layout(struct device *device, gf_mem base)
{
    size_t used = 0;
    device_common_layout(device, base, &used, DATA_PIXELS);
    return used;
}

static void linear_forward(struct device *device)
{
    device_full_forward(device, 0, device->input, DATA_PIXELS, device->logits, DATA_CLASSES, false);
}

static void linear_backward(struct device *device)
{
    device_full_backward(device, 0, device->input, DATA_PIXELS, device->logits, DATA_CLASSES);
}

const struct device_model device_linear = {
    .model = &net_linear, .layout = linear_layout, .forward = linear_forward, .backward = linear_backward};
