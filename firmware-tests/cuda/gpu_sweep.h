/* The benchmark's read-only sweep (sweep.cu) on a GPU that is open already: the driver is opened a second time, for
 * this kernel, on the same primary context. */
#ifndef GPU_SWEEP_H
#define GPU_SWEEP_H

#include "drivers/gpu.h"

/* Ends the program with a message where it cannot. library: NULL, or that CUDA driver. */
void gpu_sweep_open(const char *library, struct gf_log log);
/* Reads size_bytes of device memory at `at`, multiples of 4, on that stream, and adds the threads that met a bit to the
 * u64 at meetings, device memory too; queues. */
gf_status gpu_sweep(gf_queue_handle stream, gf_mem at, uint64_t size_bytes, gf_mem meetings);
void gpu_sweep_close(void);

#endif
