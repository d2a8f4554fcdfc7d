/* The benchmark's sweep (sweep.cu) and its clock, on a GPU that is open already. The driver is opened a second
 * time, for this kernel, on the same primary context. */
#ifndef GPU_SWEEP_H
#define GPU_SWEEP_H

#include "firmware-tests/cuda/sweep.h"
#include "drivers/gpu.h"

/* Ends the program with a message where it cannot. library: NULL, or that CUDA driver. */
void gpu_sweep_open(const char *library, struct gf_log log);
/* Queues; blocks and threads as the library's kernels have them. */
gf_status gpu_sweep(gf_queue_handle stream, const struct gf_sweep_args *args);
void gpu_sweep_close(void);

/* gpu_timer.c: between two events of the device, in microseconds, with all that was queued between them. End waits. */
void gpu_timer_open(const char *library);
void gpu_timer_begin(void);
double gpu_timer_end(void);
void gpu_timer_close(void);

#endif
