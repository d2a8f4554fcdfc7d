/* gf-train's network on a GPU: activations in device memory of the tool's own, weights and
 * gradients where the library put them, everything on one stream that the library is told of. The
 * GPU is reached through the library's own driver table (drivers/gpu.h), opened a second time:
 * arena, stream and kernels are the tool's. */
#ifndef GF_TRAIN_DEVICE_H
#define GF_TRAIN_DEVICE_H

#include "tools/common/tool_context.h"
#include "tools/train/train_kernels.h"
#include "tools/train/train_net.h"
#include "tools/train/train_options.h"

struct device {
    struct tool_gpu own;
    gf_context *gf;
    struct net net; /* on the device; its status sticks: after a failure nothing more is queued */
    float *losses;  /* [images_max] there */
    uint32_t *hits;
    struct net *host_net; /* brings images and first weights, and tests with the last weights */
    /* of own.host */
    float *host_losses;
    uint32_t *host_hits;
};

/* NULL if a GPU can do what is asked for; else what is allowed. */
const char *device_refuses(const struct train_options *options);
/* host_net's weights, input and labels lie in the device's host memory from now on. A failure is
 * told by device_error(). */
gf_status device_open(struct device *device, const struct gf_config *config, struct net *host_net);
void device_close(struct device *device);
/* One line; empty if nothing failed. */
const char *device_error(const struct device *device);
/* Where the library's weights and gradients are. */
void device_pools(struct device *device, gf_context *gf);
/* From host_net's weights to the library's, and back; both wait. */
gf_status device_weights_put(struct device *device);
gf_status device_weights_get(struct device *device);
/* Between steps: what device_step() queues comes after the library's last update. */
gf_status device_follow(struct device *device);
/* Forward, loss and backward of the images that host_net was loaded with, each gradient declared
 * ready after its kernels. Queues and returns; device_step_end() waits, and gives the sum of the
 * losses. */
gf_status device_step(struct device *device, float scale);
gf_status device_step_end(struct device *device, double *loss_out, uint32_t *hits_out);

/* A step has failed that the other ranks may go on without: what was queued of it ends, and its
 * status is forgotten, unless the device itself has failed. */
void device_abandon(struct device *device);

enum {
#define TRAIN_KERNEL_NUMBER(name) KERNEL_##name,
    TRAIN_KERNELS(TRAIN_KERNEL_NUMBER)
#undef TRAIN_KERNEL_NUMBER
        KERNEL_COUNT
};

#endif
