/* See train_device.h: memory, order and errors. */
#include "tools/train/train_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/identity.h"
#include "tools/train/train_layers.h"

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

static const struct device_model *model_find(const struct net_model *model)
{
    static const struct device_model *const models[] = {&device_cnn, &device_linear};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (models[i]->model == model) return models[i];
    return NULL;
}

const char *device_refuses(const struct train_options *options)
{
    if (image == NULL) return "device.driver = cuda: this gf-train was built without nvcc and has no kernels; allowed is host";
    if (options->precision != GF_TYPE_F32)
        return "--precision with device.driver = cuda: the kernels of this program compute in fp32; allowed is fp32";
    if (model_find(options->model) == NULL)
        return "device.driver = cuda: this model has no kernels; allowed are --model cnn and linear";
    return NULL;
}

gf_mem device_take(gf_mem base, size_t *used_bytes, size_t size_bytes)
{
    size_t at = *used_bytes;
    *used_bytes = (at + size_bytes + 255u) & ~(size_t)255u;
    return base + at;
}

void device_common_layout(struct device *device, gf_mem base, size_t *used, size_t input_elems)
{
    size_t images = device->images_max;
    device->input = device_take(base, used, images * input_elems * sizeof(float));
    device->labels = device_take(base, used, images);
    device->logits = device_take(base, used, images * DATA_CLASSES * sizeof(float));
    device->losses = device_take(base, used, images * sizeof(float));
    device->hits = device_take(base, used, images * sizeof(uint32_t));
}

static uint64_t weight_elems(const struct net_model *model)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < model->tensor_count; i++) count += model->tensors[i].elem_count;
    return count;
}

/* Weights, losses, hits, input, labels. */
static size_t host_lay(struct device *device, const struct net_model *model, uint32_t images_max, gf_mem base)
{
    size_t used = 0, wide = DATA_SIDE + 2u * model->input_border;
    gf_mem weights = device_take(base, &used, weight_elems(model) * sizeof(float));
    gf_mem losses = device_take(base, &used, images_max * sizeof(float));
    gf_mem hits = device_take(base, &used, images_max * sizeof(uint32_t));
    gf_mem input = device_take(base, &used, images_max * wide * wide * sizeof(float));
    gf_mem labels = device_take(base, &used, images_max);
    if (device == NULL) return used;
    device->host_weights = (float *)(uintptr_t)weights;
    device->host_losses = (float *)(uintptr_t)losses;
    device->host_hits = (uint32_t *)(uintptr_t)hits;
    device->net->input = (float *)(uintptr_t)input;
    device->net->labels = (uint8_t *)(uintptr_t)labels;
    float *at = device->host_weights;
    for (uint32_t i = 0; i < model->tensor_count; at += model->tensors[i++].elem_count) device->net->weight[i] = at;
    return used;
}

size_t device_host_bytes(const struct net_model *model, uint32_t images_max)
{
    return (host_lay(NULL, model, images_max, 0) + 4095u) & ~(size_t)4095u;
}

gf_status device_open(struct device *device, const struct gf_config *config, struct net *net, uint32_t images_max,
                      void *host)
{
    const struct gf_gpu_driver *driver = GF_WITH_CUDA ? &gf_gpu_cuda : NULL;
    struct device measured = {.images_max = images_max};
    *device = (struct device){.model = model_find(net->model), .images_max = images_max, .net = net, .host = host};
    if (driver == NULL)
        return gf_fault_set(&device->fault, GF_ERR_CONFIG, GF_RANK_NONE, "", 0, "device.driver \"%s\" is not in this build",
                            config->device.driver);
    struct gf_gpu_setup setup = {.library = config->device.library, .ordinal = config->device.ordinal,
                                 .local = gf_identity_local(config->job.rank),
                                 .device_bytes = device->model->layout(&measured, 0), .kernels.image = image,
                                 .kernels.names = kernel_names, .kernels.count = KERNEL_COUNT,
                                 .log = {config->log, config->log_user}};
    device->state = calloc(1, driver->state_bytes(&setup));
    if (device->state == NULL)
        return gf_fault_set(&device->fault, GF_ERR_SYSTEM, GF_RANK_NONE, "calloc", 0, "there is no memory for the device's state");
    gf_status status = driver->open(&setup, device->state, &device->gpu, &device->fault);
    if (status < 0) return status;
    device->queue = (struct gf_queue){.gpu = device->gpu, .stream = device->gpu->streams[GF_STREAM_MAIN]};
    device->model->layout(device, device->gpu->arena);
    status = driver->host_register(device->gpu, host, device_host_bytes(net->model, images_max));
    if (status < 0) {
        device->host = NULL;
        return status;
    }
    host_lay(device, net->model, images_max, (gf_mem)(uintptr_t)host);
    return GF_OK;
}

void device_close(struct device *device)
{
    if (device->gpu != NULL) {
        if (device->host != NULL) device->gpu->driver->host_unregister(device->gpu, device->host);
        device->gpu->driver->close(device->gpu);
    }
    free(device->state);
    device->gpu = NULL;
    device->state = NULL;
}

const char *device_error(const struct device *device)
{
    if (device->fault.code != GF_OK) return device->fault.text;
    return (device->gpu != NULL) ? device->gpu->fault.text : "";
}

void device_pools(struct device *device, gf_context *gf)
{
    device->gf = gf;
    for (uint32_t i = 0; i < device->net->model->tensor_count; i++) {
        device->weight[i] = gf_weight(gf, i);
        device->gradient[i] = gf_gradient(gf, i);
    }
}

static void copy(struct device *device, gf_mem dst, gf_mem src, size_t size_bytes)
{
    if (device->status >= 0) device->status = device->gpu->driver->copy(&device->queue, dst, src, size_bytes);
}

static gf_mem host_mem(const void *address) { return (gf_mem)(uintptr_t)address; }

/* The others hear that this rank is alive. */
static gf_status finish(struct device *device)
{
    while (device->status >= 0) {
        gf_status status = device->gpu->driver->finished(&device->queue);
        if (status == GF_OK) return GF_OK;
        device->status = (status < 0) ? status : gf_heartbeat(device->gf);
    }
    return device->status;
}

gf_status device_weights_put(struct device *device)
{
    const struct net *net = device->net;
    for (uint32_t i = 0; i < net->model->tensor_count; i++)
        copy(device, device->weight[i], host_mem(net->weight[i]), net->model->tensors[i].elem_count * sizeof(float));
    return finish(device);
}

gf_status device_weights_get(struct device *device)
{
    const struct net *net = device->net;
    gf_status status = device_follow(device);
    if (status < 0) return status;
    for (uint32_t i = 0; i < net->model->tensor_count; i++)
        copy(device, host_mem(net->weight[i]), device->weight[i], net->model->tensors[i].elem_count * sizeof(float));
    return finish(device);
}

gf_status device_follow(struct device *device) { return gf_queue_follow(device->gf, device->queue.stream); }

gf_status device_step(struct device *device, float scale)
{
    const struct net *net = device->net;
    size_t wide = DATA_SIDE + 2u * net->model->input_border, images = net->image_count;
    device->image_count = net->image_count;
    copy(device, device->input, host_mem(net->input), images * wide * wide * sizeof(float));
    copy(device, device->labels, host_mem(net->labels), images);
    device->model->forward(device);
    struct gf_train_softmax_args args = {.logits = device->logits, .labels = device->labels, .losses = device->losses,
                                         .hits = device->hits, .row_count = images, .classes = DATA_CLASSES,
                                         .scale = scale};
    device_launch(device, KERNEL_train_softmax, images, &args);
    copy(device, host_mem(device->host_losses), device->losses, images * sizeof(float));
    copy(device, host_mem(device->host_hits), device->hits, images * sizeof(uint32_t));
    device->model->backward(device);
    return device->status;
}

gf_status device_step_end(struct device *device, double *loss_out, uint32_t *hits_out)
{
    double loss = 0.0;
    uint32_t hits = 0;
    gf_status status = finish(device);
    if (status < 0) return status;
    for (uint32_t i = 0; i < device->image_count; i++) {
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
    if (device->status == GF_ERR_DEVICE) return;
    while ((status = device->gpu->driver->finished(&device->queue)) == GF_AGAIN) {}
    device->status = status;
}

/* ---- layers ---- */

static void blocks_launch(struct device *device, uint32_t kernel, uint64_t blocks, void *args)
{
    void *list[] = {args};
    uint32_t most = device->gpu->blocks[kernel], count = (blocks < most) ? (uint32_t)blocks : most;
    if ((device->status < 0) || (blocks == 0)) return;
    device->status = device->gpu->driver->launch(&device->queue, kernel, count, TRAIN_KERNEL_THREADS, list);
}

void device_launch(struct device *device, uint32_t kernel, uint64_t thread_count, void *args)
{
    blocks_launch(device, kernel, (thread_count + TRAIN_KERNEL_THREADS - 1u) / TRAIN_KERNEL_THREADS, args);
}

void device_gemm(struct device *device, bool a_flipped, bool b_flipped, uint64_t m, uint64_t n, uint64_t k, gf_mem a,
                 gf_mem b, bool adds, gf_mem c)
{
    struct gf_train_gemm_args args = {.a = a, .b = b, .c = c, .m = m, .n = n, .k = k, .a_flipped = a_flipped,
                                      .b_flipped = b_flipped, .adds = adds};
    uint64_t tiles = ((m + TRAIN_TILE - 1u) / TRAIN_TILE) * ((n + TRAIN_TILE - 1u) / TRAIN_TILE);
    blocks_launch(device, KERNEL_train_gemm, tiles, &args);
}

static void bias_add(struct device *device, gf_mem rows, gf_mem bias, uint64_t row_count, uint64_t width, bool relu)
{
    struct gf_train_bias_args args = {.rows = rows, .bias = bias, .row_count = row_count, .width = width, .relu = relu};
    device_launch(device, KERNEL_train_bias, row_count * width, &args);
}

void device_column_sum(struct device *device, gf_mem rows, uint64_t row_count, uint64_t width, bool adds, gf_mem sum)
{
    struct gf_train_column_sum_args args = {.rows = rows, .sum = sum, .row_count = row_count, .width = width, .adds = adds};
    blocks_launch(device, KERNEL_train_column_sum, width, &args);
}

uint64_t device_chunk_images(const struct device *device, uint32_t first)
{
    uint32_t left = device->image_count - first;
    return (left < DEVICE_CHUNK_IMAGES) ? left : DEVICE_CHUNK_IMAGES;
}

void device_unfold(struct device *device, gf_mem in, uint64_t image_count, uint32_t side, uint32_t channels,
                   uint32_t kernel)
{
    struct gf_train_unfold_args args = {.in = in, .rows = device->unfolded, .image_count = image_count, .side = side,
                                        .channels = channels, .kernel = kernel};
    device_launch(device, KERNEL_train_unfold, image_count * side * side * kernel * kernel * channels, &args);
}

void device_fold(struct device *device, gf_mem out, uint64_t image_count, uint32_t side, uint32_t channels,
                 uint32_t kernel)
{
    struct gf_train_fold_args args = {.rows = device->unfolded, .out = out, .image_count = image_count, .side = side,
                                      .channels = channels, .kernel = kernel};
    device_launch(device, KERNEL_train_fold, image_count * layer_bordered_elems(side, channels, kernel), &args);
}

void device_full_forward(struct device *device, uint32_t weight_tensor, gf_mem in, uint64_t in_width, gf_mem out,
                         uint64_t out_width, bool relu)
{
    device_gemm(device, false, true, device->image_count, out_width, in_width, in, device->weight[weight_tensor], false,
                out);
    bias_add(device, out, device->weight[weight_tensor + 1u], device->image_count, out_width, relu);
}

void device_full_backward(struct device *device, uint32_t weight_tensor, gf_mem in, uint64_t in_width,
                          gf_mem out_gradient, uint64_t out_width)
{
    uint32_t bias_tensor = weight_tensor + 1u;
    device_gemm(device, true, false, out_width, in_width, device->image_count, out_gradient, in, false,
                device->gradient[weight_tensor]);
    device_ready(device, weight_tensor);
    device_column_sum(device, out_gradient, device->image_count, out_width, false, device->gradient[bias_tensor]);
    device_ready(device, bias_tensor);
}

void device_ready(struct device *device, uint32_t tensor)
{
    if (device->status >= 0) device->status = gf_tensor_ready(device->gf, tensor, device->queue.stream);
}

void device_poll(struct device *device)
{
    if (device->status < 0) return;
    gf_status status = gf_step_poll(device->gf);
    if (status < 0) device->status = status;
}
