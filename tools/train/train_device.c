/* See train_device.h: memory, order and errors. */
#include "tools/train/train_device.h"

#include <stdio.h>
#include <string.h>

#if GF_WITH_NVCC
extern const char gf_train_fatbin[];
static const void *const image = gf_train_fatbin;
#else
static const void *const image = NULL; /* no kernels */
#endif

static const char *const kernel_names[KERNEL_COUNT] = {
#define TRAIN_KERNEL_NAME(name) "gf_kernel_" #name,
    TRAIN_KERNELS(TRAIN_KERNEL_NAME)
#undef TRAIN_KERNEL_NAME
};

const char *device_refuses(const struct train_options *options)
{
    if (image == NULL)
        return "device.driver = cuda: this gf-train was built without nvcc and has no kernels; "
               "allowed is host";
    if (options->precision != GF_TYPE_F32)
        return "--precision with device.driver = cuda: the kernels of this program compute in "
               "fp32; allowed is fp32";
    return NULL;
}

static uint64_t weight_elems(const struct net_model *model)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < model->tensor_count; i++) count += model->tensors[i].elem_count;
    return count;
}

/* Weights, losses, hits, input, labels. */
static size_t host_lay(struct device *device, const struct net_model *model, uint32_t images_max,
                       char *base)
{
    size_t used = 0;
    size_t wide = DATA_SIDE + 2u * model->input_border;
    float *weights = net_take(base, &used, weight_elems(model) * sizeof(float));
    float *losses = net_take(base, &used, images_max * sizeof(float));
    uint32_t *hits = net_take(base, &used, images_max * sizeof(uint32_t));
    float *input = net_take(base, &used, images_max * wide * wide * sizeof(float));
    uint8_t *labels = net_take(base, &used, images_max);
    if (base == NULL) return used;
    device->host_losses = losses;
    device->host_hits = hits;
    device->host_net->input = input;
    device->host_net->labels = labels;
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        device->host_net->weight[i] = weights;
        weights += model->tensors[i].elem_count;
    }
    return used;
}

/* The network's workspace, then what the loss gives. */
static size_t device_lay(struct device *device, const struct net_model *model, uint32_t images_max,
                         char *base)
{
    size_t used = net_measure(model, &layers_device, images_max);
    float *losses = net_take(base, &used, images_max * sizeof(float));
    uint32_t *hits = net_take(base, &used, images_max * sizeof(uint32_t));
    if (base == NULL) return used;
    net_open(&device->net, model, &layers_device, device, images_max, base);
    device->losses = losses;
    device->hits = hits;
    return used;
}

gf_status device_open(struct device *device, const struct gf_config *config, struct net *host_net)
{
    const struct net_model *model = host_net->model;
    uint32_t images_max = host_net->images_max;
    const struct gf_gpu_kernels kernels = {
        .image = image, .names = kernel_names, .count = KERNEL_COUNT};
    *device = (struct device){.host_net = host_net};
    gf_status status =
        tool_gpu_open(&device->own, config, device_lay(NULL, model, images_max, NULL),
                      host_lay(NULL, model, images_max, NULL), &kernels);
    if (status < 0) return status;
    device_lay(device, model, images_max, (char *)(uintptr_t)device->own.gpu->arena);
    host_lay(device, model, images_max, device->own.host);
    return GF_OK;
}

void device_close(struct device *device)
{
    tool_gpu_close(&device->own);
}

const char *device_error(const struct device *device)
{
    return tool_gpu_error(&device->own);
}

static gf_status sink_ready(void *user, uint32_t tensor)
{
    struct device *device = user;
    return gf_tensor_ready(device->gf, tensor, device->own.queue.stream);
}

static gf_status sink_poll(void *user)
{
    struct device *device = user;
    return gf_step_poll(device->gf);
}

void device_pools(struct device *device, gf_context *gf)
{
    struct net *net = &device->net;
    device->gf = gf;
    net->sink = (struct net_sink){.user = device, .ready = sink_ready, .poll = sink_poll};
    for (uint32_t i = 0; i < net->model->tensor_count; i++) {
        net->weight[i] = (float *)(uintptr_t)gf_weight(gf, i);
        net->gradient[i] = (float *)(uintptr_t)gf_gradient(gf, i);
    }
}

static gf_mem mem(const void *address)
{
    return (gf_mem)(uintptr_t)address;
}

static void copy(struct device *device, void *dst, const void *src, size_t size_bytes)
{
    gf_status *status = &device->net.status;
    if (*status >= 0)
        *status = device->own.gpu->driver->copy(&device->own.queue, mem(dst), mem(src), size_bytes);
}

/* The others hear that this rank is alive. */
static gf_status finish(struct device *device)
{
    while (device->net.status >= 0) {
        gf_status status = device->own.gpu->driver->finished(&device->own.queue);
        if (status == GF_OK) return GF_OK;
        device->net.status = (status < 0) ? status : gf_heartbeat(device->gf);
    }
    return device->net.status;
}

gf_status device_weights_put(struct device *device)
{
    const struct net_model *model = device->net.model;
    for (uint32_t i = 0; i < model->tensor_count; i++)
        copy(device, device->net.weight[i], device->host_net->weight[i],
             model->tensors[i].elem_count * sizeof(float));
    return finish(device);
}

gf_status device_weights_get(struct device *device)
{
    const struct net_model *model = device->net.model;
    gf_status status = device_follow(device);
    if (status < 0) return status;
    for (uint32_t i = 0; i < model->tensor_count; i++)
        copy(device, device->host_net->weight[i], device->net.weight[i],
             model->tensors[i].elem_count * sizeof(float));
    return finish(device);
}

gf_status device_follow(struct device *device)
{
    return gf_queue_follow(device->gf, device->own.queue.stream);
}

/* blocks: as many as there is work for; each kernel goes on where they are fewer. */
static void blocks_launch(struct device *device, uint32_t kernel, uint64_t blocks, void *args)
{
    void *list[] = {args};
    uint32_t most = device->own.gpu->blocks[kernel];
    uint32_t count = (blocks < most) ? (uint32_t)blocks : most;
    if ((device->net.status < 0) || (blocks == 0)) return;
    device->net.status = device->own.gpu->driver->launch(&device->own.queue, kernel, count,
                                                         TRAIN_KERNEL_THREADS, list);
}

static void threads_launch(struct device *device, uint32_t kernel, uint64_t thread_count,
                           void *args)
{
    blocks_launch(device, kernel, (thread_count + TRAIN_KERNEL_THREADS - 1u) / TRAIN_KERNEL_THREADS,
                  args);
}

gf_status device_step(struct device *device, float scale)
{
    struct net *net = &device->net;
    const struct net *host_net = device->host_net;
    size_t wide = DATA_SIDE + 2u * net->model->input_border;
    size_t images = host_net->image_count;
    net->image_count = host_net->image_count;
    copy(device, net->input, host_net->input, images * wide * wide * sizeof(float));
    copy(device, net->labels, host_net->labels, images);
    net->model->forward(net);
    struct gf_train_softmax_args args = {
        .logits = mem(net->logits),
        .labels = mem(net->labels),
        .losses = mem(device->losses),
        .hits = mem(device->hits),
        .row_count = images,
        .classes = DATA_CLASSES,
        .scale = scale,
    };
    threads_launch(device, KERNEL_train_softmax, images, &args);
    copy(device, device->host_losses, device->losses, images * sizeof(float));
    copy(device, device->host_hits, device->hits, images * sizeof(uint32_t));
    return net->model->backward(net);
}

gf_status device_step_end(struct device *device, double *loss_out, uint32_t *hits_out)
{
    double loss = 0.0;
    uint32_t hits = 0;
    gf_status status = finish(device);
    if (status < 0) return status;
    for (uint32_t i = 0; i < device->net.image_count; i++) {
        loss += (double)device->host_losses[i];
        hits += device->host_hits[i];
    }
    *loss_out = loss;
    *hits_out = hits;
    return GF_OK;
}

void device_abandon(struct device *device)
{
    gf_status status;
    if (device->net.status == GF_ERR_DEVICE) return;
    while ((status = device->own.gpu->driver->finished(&device->own.queue)) == GF_AGAIN) {
    }
    device->net.status = status;
}

/* ---- layers ---- */

static void device_gemm(struct device *device, bool a_flipped, bool b_flipped, size_t m, size_t n,
                        size_t k, const float *a, const float *b, bool adds, float *c)
{
    struct gf_train_gemm_args args = {
        .a = mem(a),
        .b = mem(b),
        .c = mem(c),
        .m = m,
        .n = n,
        .k = k,
        .a_flipped = a_flipped,
        .b_flipped = b_flipped,
        .adds = adds,
    };
    uint64_t tiles = ((m + TRAIN_TILE - 1u) / TRAIN_TILE) * ((n + TRAIN_TILE - 1u) / TRAIN_TILE);
    blocks_launch(device, KERNEL_train_gemm, tiles, &args);
}

static void device_unfold(struct device *device, const float *in, size_t image_count, uint32_t side,
                          uint32_t channels, uint32_t kernel, float *rows)
{
    struct gf_train_unfold_args args = {
        .in = mem(in),
        .rows = mem(rows),
        .image_count = image_count,
        .side = side,
        .channels = channels,
        .kernel = kernel,
    };
    threads_launch(device, KERNEL_train_unfold,
                   image_count * side * side * kernel * kernel * channels, &args);
}

static void device_fold(struct device *device, const float *rows, size_t image_count, uint32_t side,
                        uint32_t channels, uint32_t kernel, float *out)
{
    struct gf_train_fold_args args = {
        .rows = mem(rows),
        .out = mem(out),
        .image_count = image_count,
        .side = side,
        .channels = channels,
        .kernel = kernel,
    };
    threads_launch(device, KERNEL_train_fold,
                   image_count * layer_bordered_elems(side, channels, kernel), &args);
}

static void device_relu_pool(struct device *device, const float *in, const float *bias,
                             size_t image_count, uint32_t side, uint32_t channels, uint32_t border,
                             float *out, uint8_t *winner)
{
    struct gf_train_pool_args args = {
        .in = mem(in),
        .bias = mem(bias),
        .out = mem(out),
        .winner = mem(winner),
        .image_count = image_count,
        .side = side,
        .channels = channels,
        .border = border,
    };
    threads_launch(device, KERNEL_train_pool, image_count * side * side / 4u * channels, &args);
}

static void column_sum(struct device *device, const float *rows, size_t row_count, size_t width,
                       bool adds, float *sum)
{
    struct gf_train_column_sum_args args = {
        .rows = mem(rows),
        .sum = mem(sum),
        .row_count = row_count,
        .width = width,
        .adds = adds,
    };
    blocks_launch(device, KERNEL_train_column_sum, width, &args);
}

static void device_column_sum(struct device *device, const float *rows, size_t row_count,
                              size_t width, float *sum)
{
    column_sum(device, rows, row_count, width, false, sum);
}

static void device_relu_pool_back(struct device *device, const float *out_gradient,
                                  const uint8_t *winner, size_t image_count, uint32_t side,
                                  uint32_t channels, uint32_t border, float *in_gradient, bool adds,
                                  float *bias_gradient)
{
    uint64_t points = image_count * side * side;
    struct gf_train_pool_back_args args = {
        .out_gradient = mem(out_gradient),
        .winner = mem(winner),
        .in_gradient = mem(in_gradient),
        .image_count = image_count,
        .side = side,
        .channels = channels,
        .border = border,
    };
    threads_launch(device, KERNEL_train_pool_back, points * channels, &args);
    column_sum(device, in_gradient, points, channels, adds, bias_gradient);
}

static void device_bias(struct device *device, float *rows, const float *bias, size_t row_count,
                        size_t width, bool relu)
{
    struct gf_train_bias_args args = {
        .rows = mem(rows),
        .bias = mem(bias),
        .row_count = row_count,
        .width = width,
        .relu = relu,
    };
    threads_launch(device, KERNEL_train_bias, row_count * width, &args);
}

static void device_relu_back(struct device *device, float *gradient, const float *out,
                             size_t elem_count)
{
    struct gf_train_relu_back_args args = {
        .gradient = mem(gradient), .out = mem(out), .elem_count = elem_count};
    threads_launch(device, KERNEL_train_relu_back, elem_count, &args);
}

/* 32 images: 20 MB are unfolded, and products are long enough for a GPU. */
const struct net_layers layers_device = {
    .chunk_images = 32,
    .gemm = device_gemm,
    .unfold = device_unfold,
    .fold = device_fold,
    .relu_pool = device_relu_pool,
    .relu_pool_back = device_relu_pool_back,
    .bias = device_bias,
    .relu_back = device_relu_back,
    .column_sum = device_column_sum,
};
