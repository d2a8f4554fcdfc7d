/* gf-train's networks on a GPU: activations in device memory of the tool's own, weights and gradients where the library
 * put them, everything on one stream that the library is told of. The GPU is reached through the library's own driver
 * table (drivers/gpu.h), opened a second time: arena, stream and kernels are the tool's. */
#ifndef GF_TRAIN_DEVICE_H
#define GF_TRAIN_DEVICE_H

#include "drivers/drivers.h"
#include "tools/train/train_kernels.h"
#include "tools/train/train_net.h"
#include "tools/train/train_options.h"

#define DEVICE_CHUNK_IMAGES 32u /* unfolded at a time: 20 MB, and products long enough for a GPU */

struct device;

/* What a model is on the device. */
struct device_model {
    const struct net_model *model;
    /* Lays the activations of images_max images out at base and returns their bytes; only measures with base 0. */
    size_t (*layout)(struct device *device, gf_mem base);
    void (*forward)(struct device *device);
    void (*backward)(struct device *device);
};
extern const struct device_model device_cnn, device_linear;

struct device {
    const struct device_model *model;
    struct gf_gpu *gpu;
    struct gf_queue queue;
    struct gf_fault fault; /* of open */
    void *state;           /* the driver's */
    gf_context *gf;
    gf_status status;      /* sticks: after a failure nothing more is queued */
    uint32_t images_max, image_count;
    gf_mem weight[NET_TENSORS_MAX], gradient[NET_TENSORS_MAX];
    gf_mem input, labels, logits, losses, hits, pooled1, winner1, pooled2, winner2, hidden, hidden_gradient,
        pooled2_gradient, pooled1_gradient, unfolded, convolved;
    /* Registered host memory. */
    void *host;
    float *host_weights; /* all tensors, one after the other */
    float *host_losses;
    uint32_t *host_hits;
    struct net *net;     /* its input and labels are copied from */
};

/* NULL if the model has kernels; else what is allowed. */
const char *device_refuses(const struct train_options *options);
/* Bytes of page-aligned host memory that device_open() wants. */
size_t device_host_bytes(const struct net_model *model, uint32_t images_max);
/* host is zeroed and the device's until device_close(); then net's weights, input and labels lie in it. A failure is
 * told by device_error(). */
gf_status device_open(struct device *device, const struct gf_config *config, struct net *net, uint32_t images_max,
                      void *host);
void device_close(struct device *device);
/* One line; empty if nothing failed. */
const char *device_error(const struct device *device);
/* Where the library's weights and gradients are. */
void device_pools(struct device *device, gf_context *gf);
/* From net->weight to the library's weights, and back; both wait. */
gf_status device_weights_put(struct device *device);
gf_status device_weights_get(struct device *device);
/* Between steps: what device_step() queues comes after the library's last update. */
gf_status device_follow(struct device *device);
/* Forward, loss and backward of the images that net_load() brought, each gradient declared ready after its kernels.
 * Queues and returns; device_step_end() waits, and gives the sum of the losses. */
gf_status device_step(struct device *device, float scale);
gf_status device_step_end(struct device *device, double *loss_out, uint32_t *hits_out);

/* A step has failed that the other ranks may go on without: what was queued of it ends, and its status is forgotten,
 * unless the device itself has failed. */
void device_abandon(struct device *device);

/* For the models: the layers, queued. */
gf_mem device_take(gf_mem base, size_t *used_bytes, size_t size_bytes);
/* What every model has; input_elems of an image with its border. */
void device_common_layout(struct device *device, gf_mem base, size_t *used, size_t input_elems);
/* As net_full_forward() and net_full_backward(). */
void device_full_forward(struct device *device, uint32_t weight_tensor, gf_mem in, uint64_t in_width, gf_mem out,
                         uint64_t out_width, bool relu);
void device_full_backward(struct device *device, uint32_t weight_tensor, gf_mem in, uint64_t in_width,
                          gf_mem out_gradient, uint64_t out_width);
/* How many images from `first` on are unfolded at a time. */
uint64_t device_chunk_images(const struct device *device, uint32_t first);
/* device->unfolded from in with its border, and device->unfolded to out with one. */
void device_unfold(struct device *device, gf_mem in, uint64_t image_count, uint32_t side, uint32_t channels,
                   uint32_t kernel);
void device_fold(struct device *device, gf_mem out, uint64_t image_count, uint32_t side, uint32_t channels,
                 uint32_t kernel);
void device_gemm(struct device *device, bool a_flipped, bool b_flipped, uint64_t m, uint64_t n, uint64_t k, gf_mem a,
                 gf_mem b, bool adds, gf_mem c);
void device_launch(struct device *device, uint32_t kernel, uint64_t thread_count, void *args);
void device_column_sum(struct device *device, gf_mem rows, uint64_t row_count, uint64_t width, bool adds, gf_mem sum);
void device_ready(struct device *device, uint32_t tensor);
void device_poll(struct device *device);

enum {
#define TRAIN_KERNEL_NUMBER(name) KERNEL_##name,
    TRAIN_KERNELS(TRAIN_KERNEL_NUMBER)
#undef TRAIN_KERNEL_NUMBER
    KERNEL_COUNT
};

#endif
