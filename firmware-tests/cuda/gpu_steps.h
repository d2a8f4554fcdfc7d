/* Whole steps on a GPU, several ranks in this process, beside the same on the host. */
#ifndef GPU_STEPS_H
#define GPU_STEPS_H

#include <stdbool.h>
#include <stdint.h>

/* Dense and sparse, every wire type, through host memory, from device to device and straight to the wire, on that CUDA
 * library (NULL: the configuration's), a few of them and small ones where is_quick. Ends the program with a message
 * where a step does not end bit by bit as on the host. Returns how many runs there were. */
uint32_t gpu_steps_check(const char *library, bool is_quick);

/* gpu_bench_step.c: what a step of that many bytes of gradients takes, with and without overlap; two lines. is_quick: once. */
void gpu_steps_bench(const char *library, uint64_t bytes, bool is_quick);

#endif
