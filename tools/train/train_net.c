/* The demo's convolutional network, and what all networks share:
 *
 *     28x28x1 -> conv 5x5 -> 28x28x32 -> ReLU, pool
 *             -> 14x14x32 -> conv 5x5 -> 14x14x64 -> ReLU, pool
 *             -> 7x7x64 = 3136 -> 512 -> ReLU -> 10
 *
 * It has 1,663,370 parameters, 97 % of them in the first fully connected layer, whose gradient is
 * among the first that backward ends: its exchange hides behind the convolutions' backward pass. */
#include "tools/train/train_net.h"

#include <math.h>
#include <string.h>

#include "tools/common/tool_tensors.h"
#include "tools/train/train_half.h"
#include "tools/train/train_split.h"

enum {
    FC2_WEIGHT = TOOL_TENSOR_FC2_WEIGHT,
    FC2_BIAS = TOOL_TENSOR_FC2_BIAS,
    FC1_WEIGHT = TOOL_TENSOR_FC1_WEIGHT,
    FC1_BIAS = TOOL_TENSOR_FC1_BIAS,
    CONV2_WEIGHT = TOOL_TENSOR_CONV2_WEIGHT,
    CONV2_BIAS = TOOL_TENSOR_CONV2_BIAS,
    CONV1_WEIGHT = TOOL_TENSOR_CONV1_WEIGHT,
    CONV1_BIAS = TOOL_TENSOR_CONV1_BIAS
};
_Static_assert(TOOL_TENSOR_COUNT <= NET_TENSORS_MAX, "every tensor has a place");

#define SIDE1 DATA_SIDE
#define SIDE2 (SIDE1 / 2u)
#define SIDE3 (SIDE2 / 2u)
#define CHANNELS1 32u
#define CHANNELS2 64u
#define KERNEL 5u
#define TAPS (KERNEL * KERNEL)
#define FAN1 TAPS /* inputs of one output of the first convolution */
#define FAN2 (TAPS * CHANNELS1)
#define FEATURES (SIDE3 * SIDE3 * CHANNELS2)
#define HIDDEN 512u

/* Of the images from `first` on: those that are convolved at a time. */
static uint32_t chunk_count(const struct net *net, uint32_t image_count, uint32_t first)
{
    uint32_t left = image_count - first;
    return (left < net->layers->chunk_images) ? left : net->layers->chunk_images;
}

static size_t cnn_layout(struct net *net, char *base)
{
    size_t used = 0;
    size_t images = net->images_max;
    size_t chunk = chunk_count(net, net->images_max, 0);
    size_t input_bytes = images * layer_bordered_elems(SIDE1, 1, KERNEL) * sizeof(float);
    size_t pooled1_bytes = images * layer_bordered_elems(SIDE2, CHANNELS1, KERNEL) * sizeof(float);
    net->input = net_take(base, &used, input_bytes);
    net->labels = net_take(base, &used, images);
    net->logits = net_take(base, &used, images * DATA_CLASSES * sizeof(float));
    net->pooled1 = net_take(base, &used, pooled1_bytes);
    net->winner1 = net_take(base, &used, images * SIDE2 * SIDE2 * CHANNELS1);
    net->pooled2 = net_take(base, &used, images * FEATURES * sizeof(float));
    net->winner2 = net_take(base, &used, images * FEATURES);
    net->hidden = net_take(base, &used, images * HIDDEN * sizeof(float));
    net->hidden_gradient = net_take(base, &used, images * HIDDEN * sizeof(float));
    net->pooled2_gradient = net_take(base, &used, images * FEATURES * sizeof(float));
    net->pooled1_gradient = net_take(base, &used, pooled1_bytes);
    net->unfolded = net_take(base, &used, chunk * SIDE2 * SIDE2 * FAN2 * sizeof(float));
    net->convolved = net_take(base, &used, chunk * SIDE1 * SIDE1 * CHANNELS1 * sizeof(float));
    if ((base == NULL) || (net->device != NULL)) return used; /* a device's workspace is zeroes */
    memset(net->input, 0, input_bytes); /* the borders stay zero from here on */
    memset(net->pooled1, 0, pooled1_bytes);
    return used;
}
_Static_assert(SIDE1 *SIDE1 *FAN1 <= SIDE2 * SIDE2 * FAN2,
               "unfolded is sized by the second convolution");
_Static_assert(SIDE1 *SIDE1 *CHANNELS1 >= SIDE2 * SIDE2 * CHANNELS2,
               "convolved is sized by the first");

static void cnn_init(struct net *net, struct data_random *random)
{
    static const uint32_t fan_in[TOOL_TENSOR_COUNT] = {[FC2_WEIGHT] = HIDDEN,
                                                       [FC1_WEIGHT] = FEATURES,
                                                       [CONV2_WEIGHT] = FAN2,
                                                       [CONV1_WEIGHT] = FAN1};
    for (uint32_t i = 0; i < TOOL_TENSOR_COUNT; i++)
        net_init_normal(net->weight[i], tool_tensors[i].elem_count, fan_in[i], random);
}

/* One convolution, its ReLU and its pooling, a chunk at a time. */
struct conv {
    uint32_t side, in_channels, out_channels, out_border;
    const float *in;
    const float *weight; /* [out_channels][TAPS * in_channels] */
    const float *bias;
    float *out;
    uint8_t *winner;
    size_t in_elems, out_elems, winner_elems; /* of one image */
};

static struct conv conv_of(struct net *net, uint32_t which)
{
    if (which == 1) {
        return (struct conv){.side = SIDE1,
                             .in_channels = 1,
                             .out_channels = CHANNELS1,
                             .out_border = KERNEL / 2u,
                             .in = net->input,
                             .weight = net->weight[CONV1_WEIGHT],
                             .bias = net->weight[CONV1_BIAS],
                             .out = net->pooled1,
                             .winner = net->winner1,
                             .in_elems = layer_bordered_elems(SIDE1, 1, KERNEL),
                             .out_elems = layer_bordered_elems(SIDE2, CHANNELS1, KERNEL),
                             .winner_elems = SIDE2 * SIDE2 * CHANNELS1};
    }
    return (struct conv){.side = SIDE2,
                         .in_channels = CHANNELS1,
                         .out_channels = CHANNELS2,
                         .out_border = 0,
                         .in = net->pooled1,
                         .weight = net->weight[CONV2_WEIGHT],
                         .bias = net->weight[CONV2_BIAS],
                         .out = net->pooled2,
                         .winner = net->winner2,
                         .in_elems = layer_bordered_elems(SIDE2, CHANNELS1, KERNEL),
                         .out_elems = FEATURES,
                         .winner_elems = FEATURES};
}

static void conv_forward(struct net *net, uint32_t which)
{
    const struct net_layers *layers = net->layers;
    const struct conv conv = conv_of(net, which);
    size_t fan = (size_t)TAPS * conv.in_channels;
    for (uint32_t first = 0; first < net->image_count; first += layers->chunk_images) {
        size_t images = chunk_count(net, net->image_count, first);
        size_t points = images * conv.side * conv.side;
        float *out = conv.out + first * conv.out_elems;
        layers->unfold(net->device, conv.in + first * conv.in_elems, images, conv.side,
                       conv.in_channels, KERNEL, net->unfolded);
        layers->gemm(net->device, false, true, points, conv.out_channels, fan, net->unfolded,
                     conv.weight, false, net->convolved);
        layers->relu_pool(net->device, net->convolved, conv.bias, images, conv.side,
                          conv.out_channels, conv.out_border, out,
                          conv.winner + first * conv.winner_elems);
        net_round(net, out, images * conv.out_elems);
    }
}

/* Sums the gradients of weight and bias over the chunks straight into the library's pool.
 * in_gradient, of the size of conv.in, may be NULL: nobody asks for the gradient of the images
 * themselves. */
static void conv_backward(struct net *net, uint32_t which, uint32_t weight_tensor,
                          uint32_t bias_tensor, const float *out_gradient, float *in_gradient)
{
    const struct net_layers *layers = net->layers;
    const struct conv conv = conv_of(net, which);
    size_t fan = (size_t)TAPS * conv.in_channels;
    for (uint32_t first = 0; (first < net->image_count) && (net->status >= 0);
         first += layers->chunk_images) {
        size_t images = chunk_count(net, net->image_count, first);
        size_t points = images * conv.side * conv.side;
        layers->relu_pool_back(net->device, out_gradient + first * conv.out_elems,
                               conv.winner + first * conv.winner_elems, images, conv.side,
                               conv.out_channels, conv.out_border, net->convolved, first > 0,
                               net->gradient[bias_tensor]);
        layers->unfold(net->device, conv.in + first * conv.in_elems, images, conv.side,
                       conv.in_channels, KERNEL, net->unfolded);
        layers->gemm(net->device, true, false, conv.out_channels, fan, points, net->convolved,
                     net->unfolded, first > 0, net->gradient[weight_tensor]);
        net_poll(net);
        if (in_gradient == NULL) continue;
        layers->gemm(net->device, false, false, points, fan, conv.out_channels, net->convolved,
                     conv.weight, false, net->unfolded);
        layers->fold(net->device, net->unfolded, images, conv.side, conv.in_channels, KERNEL,
                     in_gradient + first * conv.in_elems);
        net_round(net, in_gradient + first * conv.in_elems, images * conv.in_elems);
        net_poll(net);
    }
    net_ready(net, weight_tensor);
    net_ready(net, bias_tensor);
}

static void cnn_forward(struct net *net)
{
    conv_forward(net, 1);
    conv_forward(net, 2);
    net_full_forward(net, FC1_WEIGHT, net->pooled2, FEATURES, net->hidden, HIDDEN, true);
    net_full_forward(net, FC2_WEIGHT, net->hidden, HIDDEN, net->logits, DATA_CLASSES, false);
}

/* With the first fully connected layer split its exchanges come before the step. */
static gf_status cnn_backward(struct net *net)
{
    const struct net_layers *layers = net->layers;
    size_t images = net->image_count;
    bool splits = net_splits(net, FC1_WEIGHT);
    if (!splits) net_full_backward(net, FC2_WEIGHT, net->hidden, HIDDEN, net->logits, DATA_CLASSES);
    layers->gemm(net->device, false, false, images, HIDDEN, DATA_CLASSES, net->logits,
                 net->weight[FC2_WEIGHT], false, net->hidden_gradient);
    layers->relu_back(net->device, net->hidden_gradient, net->hidden, images * HIDDEN);
    net_round(net, net->hidden_gradient, images * HIDDEN);
    if (splits) {
        net->status = split_backward(net->split, net->hidden_gradient, net->pooled2_gradient);
        net_begin(net);
        if (net->status < 0) return net->status;
        net_full_backward(net, FC2_WEIGHT, net->hidden, HIDDEN, net->logits, DATA_CLASSES);
    }
    net_full_backward(net, FC1_WEIGHT, net->pooled2, FEATURES, net->hidden_gradient, HIDDEN);
    if (!splits)
        layers->gemm(net->device, false, false, images, FEATURES, HIDDEN, net->hidden_gradient,
                     net->weight[FC1_WEIGHT], false, net->pooled2_gradient);
    net_round(net, net->pooled2_gradient, images * FEATURES);
    net_poll(net);
    conv_backward(net, 2, CONV2_WEIGHT, CONV2_BIAS, net->pooled2_gradient, net->pooled1_gradient);
    conv_backward(net, 1, CONV1_WEIGHT, CONV1_BIAS, net->pooled1_gradient, NULL);
    return net->status;
}

const struct net_model net_cnn = {
    .name = "cnn",
    .split = {"fc1", FC1_WEIGHT, FEATURES, HIDDEN},
    .tensors = tool_tensors,
    .tensor_count = TOOL_TENSOR_COUNT,
    .learning_rate = 0.05f,
    .input_border = KERNEL / 2u,
    .layout = cnn_layout,
    .init = cnn_init,
    .forward = cnn_forward,
    .backward = cnn_backward,
};

/* ---- what all networks share ---- */

const struct net_model *net_model_find(const char *name)
{
    static const struct net_model *const models[] = {&net_cnn, &net_linear};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (strcmp(models[i]->name, name) == 0) return models[i];
    }
    return NULL;
}

size_t net_measure(const struct net_model *model, const struct net_layers *layers,
                   uint32_t images_max)
{
    struct net net = {.model = model, .layers = layers, .images_max = images_max};
    return model->layout(&net, NULL);
}

void net_open(struct net *net, const struct net_model *model, const struct net_layers *layers,
              struct device *device, uint32_t images_max, void *workspace)
{
    *net = (struct net){.model = model,
                        .layers = layers,
                        .device = device,
                        .images_max = images_max,
                        .training = true};
    model->layout(net, workspace);
}

void net_load(struct net *net, const struct data_set *set, const uint32_t *index, uint32_t first,
              uint32_t count)
{
    /* The mean and deviation of Fashion-MNIST's training pixels. */
    const float scale = 1.0f / (255.0f * 0.3530f);
    const float shift = -0.2860f / 0.3530f;
    uint32_t border = net->model->input_border;
    size_t line = DATA_SIDE + 2u * border;
    net->image_count = count;
    net->status = GF_OK;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t from = (index != NULL) ? index[i] : first + i;
        const uint8_t *pixel = set->pixels + (size_t)from * DATA_PIXELS;
        float *to = net->input + i * line * line + border * line + border;
        net->labels[i] = set->labels[from];
        for (uint32_t y = 0; y < DATA_SIDE; y++, pixel += DATA_SIDE, to += line) {
            for (uint32_t x = 0; x < DATA_SIDE; x++) to[x] = (float)pixel[x] * scale + shift;
            net_round(net, to, DATA_SIDE);
        }
    }
}

void *net_take(char *base, size_t *used_bytes, size_t size_bytes)
{
    size_t at = *used_bytes;
    *used_bytes = (at + size_bytes + 255u) & ~(size_t)255u;
    return (base == NULL) ? NULL : base + at;
}

void net_begin(struct net *net)
{
    if ((net->status >= 0) && (net->sink.begin != NULL))
        net->status = net->sink.begin(net->sink.user);
}

void net_ready(struct net *net, uint32_t tensor)
{
    if ((net->status >= 0) && (net->sink.ready != NULL))
        net->status = net->sink.ready(net->sink.user, tensor);
}

void net_poll(struct net *net)
{
    if ((net->status >= 0) && (net->sink.poll != NULL))
        net->status = net->sink.poll(net->sink.user);
}

bool net_splits(const struct net *net, uint32_t weight_tensor)
{
    return net->training && (net->split != NULL) && (net->split->weight_tensor == weight_tensor);
}

void net_full_forward(struct net *net, uint32_t weight_tensor, const float *in, size_t in_width,
                      float *out, size_t out_width, bool relu)
{
    if (net_splits(net, weight_tensor)) {
        split_forward(net->split, in, out, relu);
        return;
    }
    net->layers->gemm(net->device, false, true, net->image_count, out_width, in_width, in,
                      net->weight[weight_tensor], false, out);
    net->layers->bias(net->device, out, net->weight[weight_tensor + 1u], net->image_count,
                      out_width, relu);
    net_round(net, out, net->image_count * out_width);
}

void net_full_backward(struct net *net, uint32_t weight_tensor, const float *in, size_t in_width,
                       const float *out_gradient, size_t out_width)
{
    bool splits = net_splits(net, weight_tensor);
    uint32_t bias_tensor = weight_tensor + 1u;
    if (!splits)
        net->layers->gemm(net->device, true, false, out_width, in_width, net->image_count,
                          out_gradient, in, false, net->gradient[weight_tensor]);
    net_ready(net, weight_tensor);
    if (!splits)
        net->layers->column_sum(net->device, out_gradient, net->image_count, out_width,
                                net->gradient[bias_tensor]);
    net_ready(net, bias_tensor);
}

void net_round(const struct net *net, float *data, uint64_t count)
{
    half_round(net->precision, data, count);
}

void net_init_normal(float *data, uint64_t count, uint32_t fan_in, struct data_random *random)
{
    float deviation = (fan_in == 0) ? 0.0f : sqrtf(2.0f / (float)fan_in); /* 0: a bias */
    for (uint64_t i = 0; i < count; i++)
        data[i] = (fan_in == 0) ? 0.0f : deviation * data_random_normal(random);
}

/* ---- softmax regression, 784 -> 10 ----
 * Its loss is convex, so rounding is not amplified: runs of different world sizes must agree, and a
 * test that compares them means something. */

enum { LINEAR_WEIGHT, LINEAR_BIAS, LINEAR_TENSORS };

static const struct gf_tensor linear_tensors[LINEAR_TENSORS] = {
    [LINEAR_WEIGHT] = {.name = "linear.weight", .elem_count = DATA_CLASSES * DATA_PIXELS},
    [LINEAR_BIAS] = {.name = "linear.bias",
                     .elem_count = DATA_CLASSES,
                     .flags = GF_TENSOR_DENSE | GF_TENSOR_NO_DECAY},
};

static size_t linear_layout(struct net *net, char *base)
{
    size_t used = 0;
    size_t images = net->images_max;
    net->input = net_take(base, &used, images * DATA_PIXELS * sizeof(float));
    net->labels = net_take(base, &used, images);
    net->logits = net_take(base, &used, images * DATA_CLASSES * sizeof(float));
    return used;
}

/* Convex: any start will do, and zero is the one that favours no class. */
static void linear_init(struct net *net, struct data_random *random)
{
    for (uint32_t i = 0; i < LINEAR_TENSORS; i++)
        net_init_normal(net->weight[i], linear_tensors[i].elem_count, 0, random);
}

static void linear_forward(struct net *net)
{
    net_full_forward(net, LINEAR_WEIGHT, net->input, DATA_PIXELS, net->logits, DATA_CLASSES, false);
}

static gf_status linear_backward(struct net *net)
{
    if (net_splits(net, LINEAR_WEIGHT)) {
        net->status = split_backward(net->split, net->logits, NULL);
        net_begin(net);
    }
    net_full_backward(net, LINEAR_WEIGHT, net->input, DATA_PIXELS, net->logits, DATA_CLASSES);
    return net->status;
}

const struct net_model net_linear = {
    .name = "linear",
    .split = {"linear", LINEAR_WEIGHT, DATA_PIXELS, DATA_CLASSES},
    .tensors = linear_tensors,
    .tensor_count = LINEAR_TENSORS,
    .learning_rate = 0.01f,
    .layout = linear_layout,
    .init = linear_init,
    .forward = linear_forward,
    .backward = linear_backward,
};
