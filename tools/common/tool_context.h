/* A context and its memory, and a part of the rank's GPU beside the library's. */
#ifndef TOOL_CONTEXT_H
#define TOOL_CONTEXT_H

#include "drivers/gpu.h"
#include "gradientflow.h"

/* Zeroed and aligned to a cache line; NULL where there is none. free() it. */
void *tool_memory(size_t size_bytes);

struct tool_context {
    gf_context *gf; /* NULL, or gf_error_last() says what failed */
    void *memory;
};
/* Measures, allocates and opens; gf_open_wait() is the caller's. GF_ERR_ARENA: there is no memory.
 * Whatever it gave, close gives all back: gf_close(), whose status it returns. */
gf_status tool_context_open(struct tool_context *context, const struct gf_config *config,
                            const struct gf_tensor *tensors, uint32_t tensor_count);
gf_status tool_context_close(struct tool_context *context);

/* The driver of device.driver, opened a second time: arena, streams and kernels are the tool's. */
struct tool_gpu {
    struct gf_gpu *gpu;
    struct gf_queue queue; /* the main stream */
    void *host;            /* [host_bytes], zeroed, registered: what copies go through */
    void *state;           /* the driver's */
    struct gf_fault fault;
};
/* A failure is in `fault`; close gives all back. */
gf_status tool_gpu_open(struct tool_gpu *gpu, const struct gf_config *config, uint64_t device_bytes,
                        size_t host_bytes, const struct gf_gpu_kernels *kernels);
void tool_gpu_close(struct tool_gpu *gpu);
/* One line of what has failed; empty: nothing. */
const char *tool_gpu_error(const struct tool_gpu *gpu);

#endif
