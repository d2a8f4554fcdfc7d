/* A place where gradients live and element ops run: the host itself, or a GPU through its driver API. */
#ifndef GF_GPU_H
#define GF_GPU_H

#include "fault.h"

struct gf_gpu_setup {
    const char *library; /* CUDA driver library */
    uint32_t ordinal;
    size_t device_bytes; /* arena taken once at open; 0 on the host */
    uint32_t events_max;
    struct gf_log log;
    void *arg;
};

struct gf_gpu_driver;
struct gf_ops;

struct gf_gpu {
    const struct gf_gpu_driver *driver;
    const struct gf_ops *ops; /* element ops that run here */
    struct gf_fault fault;
};

/* Work in order. On the host nothing is ever outstanding. */
struct gf_queue {
    struct gf_gpu *gpu;
    gf_queue_handle stream;
};

struct gf_gpu_driver {
    const char *name; /* "host", "cuda" */
    bool is_host;     /* memory is ordinary, queues are synchronous */
    size_t (*state_bytes)(const struct gf_gpu_setup *setup);
    gf_status (*open)(const struct gf_gpu_setup *setup, void *state, struct gf_gpu **gpu_out,
                      struct gf_fault *fault_out);
    void (*close)(struct gf_gpu *gpu);
    gf_mem (*arena)(struct gf_gpu *gpu); /* base of device_bytes; 0 on the host */
    /* Host memory that copies will touch, once at open. */
    gf_status (*host_register)(struct gf_gpu *gpu, void *base, size_t size_bytes);
    void (*host_unregister)(struct gf_gpu *gpu, void *base);
    gf_status (*copy)(struct gf_queue *queue, gf_mem dst, gf_mem src, size_t size_bytes);
    /* The queue's later work waits for what the other stream holds now. */
    gf_status (*wait_for)(struct gf_queue *queue, gf_queue_handle other);
    gf_status (*settled)(struct gf_queue *queue); /* GF_OK: all that was queued is done; GF_AGAIN */
};

extern const struct gf_gpu_driver gf_gpu_host;

#endif
