/* The memory in which gradients lie and element ops run: the host's own, or that of a GPU,
 * through its driver API. */
#ifndef GF_GPU_H
#define GF_GPU_H

#include <string.h>

#include "fault.h" /* by name alone: installed headers lie in one folder */

#ifdef __cplusplus
extern "C" {
#endif

struct gf_element_ops;

/* What a device's driver says of its arena, for devices of other ranks of the node. */
#define GF_GPU_HANDLE_BYTES 40u
#define GF_GPU_BLOCK_THREADS 256u
/* Of sum_n and copy_n between devices, whose blocks device.multiprocessors bounds: a block has all
 * 65,536 registers of a multiprocessor, which is thus what one takes. A thread has 64 bytes of
 * peers' memory or more under way, a block 64 KiB: 20 blocks fill an NVLink of 450 GB/s as long as
 * a load takes no more than 2.9 us. */
#define GF_GPU_CHANNEL_THREADS 1024u

/* Kernels that a build brings for one driver. */
struct gf_gpu_kernels {
    const void *image; /* fatbin; NULL: none were built */
    /* [2] its CUDA, as 11080: code to sm_90 and PTX; newer code, 0: none. May be NULL */
    const uint32_t *image_cuda;
    const char *const *names; /* [count] in the order of launch()'s numbers */
    uint32_t count;
    const struct gf_element_ops *ops; /* what launches them */
};

struct gf_gpu_setup {
    const char *library; /* CUDA driver library; empty: libcuda.so.1 */
    uint32_t ordinal;    /* GF_ORDINAL(n); 0: local, modulo the devices that this process sees */
    uint32_t local;      /* the local rank: its number in its node */
    size_t device_bytes; /* arena taken once at open; 0 on the host */
    uint32_t events_max; /* for event_record() */
    uint64_t idle_ns;    /* closing waits so long for the device's work; 0, and at most: 2 s */
    struct gf_gpu_kernels kernels; /* on the host none, and the ops to use */
    struct gf_log log;
    void *arg;
};

struct gf_gpu_driver;

/* What is queued in one waits for nothing in the others, unless it is told to. */
typedef enum gf_stream {
    GF_STREAM_MAIN, /* sums, what comes back, and all between steps */
    GF_STREAM_PACK, /* follows the appliance, tensor by tensor */
    GF_STREAM_OUT,  /* to host memory, and from it: each way has its own copy engine */
    GF_STREAM_IN,
    GF_STREAM_COUNT
} gf_stream;

struct gf_gpu {
    const struct gf_gpu_driver *driver;
    const struct gf_element_ops *ops; /* element ops that run here */
    /* on host memory beside a device; NULL: the host's own */
    const struct gf_element_ops *host_ops;
    uint32_t multiprocessors; /* 0 on the host */
    /* [kernels.count] of GF_GPU_BLOCK_THREADS threads, that it has room for at a time */
    const uint32_t *blocks;
    gf_mem arena; /* device_bytes, zeroes at open; 0 on the host */
    /* the context's own, made at open, in front of the appliance's */
    gf_queue_handle streams[GF_STREAM_COUNT];
    char name[64]; /* for a person; empty on the host */
    /* its arena can be exported to other processes, and what they have imported stays when this one
     * is killed */
    bool exports;
    unsigned char uuid[16];  /* the same in all processes on this device; zeroes: it has none */
    uint32_t ordinal, count; /* which of how many that this process sees; 0 of 0 on the host */
    uint32_t version;        /* its driver's, as 12020 for CUDA 12.2; 0 on the host */
    struct gf_fault fault;
};

/* Work in order. On the host nothing is ever outstanding. CUDA: a CUstream of the device's primary
 * context; 0 is that context's default stream. */
struct gf_queue {
    struct gf_gpu *gpu;
    gf_queue_handle stream;
    /* a kernel has here; 0: as many as the device has room for at a time */
    uint32_t blocks_max;
    /* of sum_n and copy_n here, up to GF_GPU_CHANNEL_THREADS; 0: GF_GPU_BLOCK_THREADS */
    uint32_t block_threads;
};

/* The values that device.driver may have, and the same as an option of a tool lists them. Only
 * "host", which "" means too, is no device's. */
#define GF_GPU_DRIVER_NAMES "host", "cuda"
#define GF_GPU_DRIVER_CHOICES "host|cuda"
static inline bool gf_gpu_is_device(const char *driver_name)
{
    return (driver_name[0] != '\0') && (strncmp(driver_name, "host", sizeof "host") != 0);
}

/* A new call: here, in host/gpu_host.c, cuda/gpu_cuda.c, tools/plan/plan_device.c and
 * firmware-tests/cuda/late_gpu.c. What it asks of CUDA: CUDA_CALLS in cuda/gpu_cuda.h, and
 * FAKE_CALLS in firmware-tests/cuda/fake_cuda_calls.h. */
struct gf_gpu_driver {
    const char *name; /* one of GF_GPU_DRIVER_NAMES */
    /* memory is ordinary, queues are synchronous: what queues, marks aside, is NULL */
    bool is_host;
    size_t (*state_bytes)(const struct gf_gpu_setup *setup);
    gf_status (*open)(const struct gf_gpu_setup *setup, void *state, struct gf_gpu **gpu_out,
                      struct gf_fault *fault_out);
    void (*close)(struct gf_gpu *gpu);
    /* Host memory that copies and kernels will touch: afterwards its addresses are good on
     * queues too, those of copies at least (kernels: host_reach()). GF_ERR_STATE: this process has
     * registered it before, which does; nothing has changed. */
    gf_status (*host_register)(struct gf_gpu *gpu, void *base, size_t size_bytes);
    /* Waits for the device's work; base NULL: that alone. GF_ERR_DEVICE, with the fault: it does
     * not end, and the memory stays registered. */
    gf_status (*host_unregister)(struct gf_gpu *gpu, void *base);
    /* Where a kernel writes what is meant for registered host memory; the caller then copies from
     * there to that memory, on the same queue. NULL, or the same address: it is that itself. */
    gf_mem (*host_reach)(struct gf_gpu *gpu, gf_mem host);
    /* Is this the address of device memory, whosever? NULL: only the arena is. */
    bool (*is_device)(struct gf_gpu *gpu, gf_mem address);
    /* From here nothing blocks: work is queued, and done in the order of its queue. Addresses are
     * of the arena or of registered host memory. */
    gf_status (*copy)(struct gf_queue *queue, gf_mem dst, gf_mem src, size_t size_bytes);
    gf_status (*zero)(struct gf_queue *queue, gf_mem dst, size_t size_bytes);
    /* Starts kernels[kernel] with `blocks` blocks of `threads` threads; args[i] points to the i-th
     * argument, which is read during the call. */
    gf_status (*launch)(struct gf_queue *queue, uint32_t kernel, uint32_t blocks, uint32_t threads,
                        void **args);
    /* The other stream's later work waits for what the queue holds now. GF_ERR_STATE, here and of
     * event_record(): a stream that is not the context's own captures a graph, and nothing has
     * changed. */
    gf_status (*stream_wait)(struct gf_queue *queue, gf_queue_handle other);
    /* Event `event` < events_max is complete once all that the queue holds now is done. Recording
     * it again moves it. */
    gf_status (*event_record)(struct gf_queue *queue, uint32_t event);
    gf_status (*event_query)(struct gf_gpu *gpu, uint32_t event); /* GF_OK; GF_AGAIN */
    /* The same of an event of the appliance's, as it was recorded last. */
    gf_status (*their_event_query)(struct gf_gpu *gpu, gf_event_handle event);
    /* GF_OK: all that was queued is done; GF_AGAIN */
    gf_status (*finished)(struct gf_queue *queue);
    /* The arena exported to devices of this node, of this process too. All three NULL: this driver
     * exports none. They may block for calls of the device, for no other rank. export_arena:
     * handle_out[GF_GPU_HANDLE_BYTES] is for the others, as it is; with it another process needs
     * the descriptor, which is the caller's to pass on and to close. import_arena: what a handle
     * exports, as this device reaches it, by that descriptor, which stays the caller's; -1 in the
     * exporter's own process. Once a handle until its give_back, which waits for this device's
     * work. The exporter keeps its arena until all have given it back. GF_ERR_DEVICE, with the
     * fault: refused, and nothing has changed. */
    gf_status (*export_arena)(struct gf_gpu *gpu, void *handle_out, int *descriptor_out);
    gf_status (*import_arena)(struct gf_gpu *gpu, const void *handle, int descriptor,
                              gf_mem *base_out);
    void (*give_back)(struct gf_gpu *gpu, const void *handle, gf_mem base);
    /* Between the two this thread's current device is this one, for libraries that look for a
     * current one. They nest with all other calls. Both NULL: there is nothing to make current.
     * GF_ERR_DEVICE: it is not, and no leave(). */
    gf_status (*enter)(struct gf_gpu *gpu);
    gf_status (*leave)(struct gf_gpu *gpu);
    /* Around the calls of one poll: the first of them that needs the device current may
     * leave it so for the others. Both NULL: no call does. calls_end: GF_ERR_DEVICE, with the
     * fault. */
    void (*calls_begin)(struct gf_gpu *gpu);
    gf_status (*calls_end)(struct gf_gpu *gpu);
};

extern const struct gf_gpu_driver gf_gpu_host;
extern const struct gf_gpu_driver gf_gpu_cuda;          /* in builds that found cuda.h */
extern const struct gf_gpu_kernels gf_gpu_cuda_kernels; /* the same; ops/element/cuda */

#ifdef __cplusplus
}
#endif
#endif
