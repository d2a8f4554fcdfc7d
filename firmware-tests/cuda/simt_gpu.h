/* A queue for the CUDA backend of the ops whose kernels the emulator runs at once, on ordinary
 * memory. */
#ifndef GF_SIMT_GPU_H
#define GF_SIMT_GPU_H

#include "drivers/gpu.h"

/* Grids have at most that many blocks. Static storage; a second call changes the number. A launch
 * that fails says so on stderr and gives GF_ERR_DEVICE. */
struct gf_queue *simt_gpu_queue(uint32_t blocks_max);
extern uint64_t simt_gpu_launches; /* counted up */

#endif
