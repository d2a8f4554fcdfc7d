/* Kernels of the emulator's own test: right ones, and ones with a mistake each. */
#ifndef GF_SIMT_KERNELS_H
#define GF_SIMT_KERNELS_H

#include "firmware-tests/cuda/simt.h"

struct gf_reverse_args {
    uint64_t data; /* u32 [blocks * threads]: each block's part is turned round in shared memory */
    uint32_t with_barrier;
};
struct gf_count_args {
    uint64_t counter, order; /* u64; u32 [threads]: who came as which */
    uint32_t reads_plainly;  /* a plain read of what others count up atomically */
};
struct gf_broken_args {
    uint64_t data;
    uint32_t what;
};
enum { BROKEN_BLOCKS_MEET, BROKEN_BARRIER, BROKEN_SHUFFLE, BROKEN_ALIGNMENT, BROKEN_NOTHING, BROKEN_READ_THEN_WRITE };

extern const struct gf_simt_kernel gf_simt_kernel_reverse, gf_simt_kernel_count, gf_simt_kernel_broken;

#endif
