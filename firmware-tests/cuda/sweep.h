/* The benchmark's own kernel, reading and nothing else: what kernels that only read are held against. Not the library's. */
#ifndef GF_SWEEP_H
#define GF_SWEEP_H

#include <stdint.h>

/* gf_kernel_sweep. *meetings, a u64, is counted up by each thread that read a bit of mask in words[word_count] of 32 bits;
 * where there is none, nothing is written. */
struct gf_sweep_args {
    uint64_t words, word_count, meetings;
    uint32_t mask;
};

#endif
