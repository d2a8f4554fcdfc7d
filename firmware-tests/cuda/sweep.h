/* The benchmark's own kernel, which reads and writes and computes nothing: what the library's
 * kernels are held against. */
#ifndef GF_SWEEP_H
#define GF_SWEEP_H

#include <stdint.h>

#define GF_SWEEP_READS_MAX 3
#define GF_SWEEP_WRITES_MAX 2
/* X(reads, writes): the mixes that there are. */
#define GF_SWEEP_MIXES(X) X(1, 0) X(0, 1) X(1, 1) X(2, 1) X(1, 2) X(3, 2)

/* gf_kernel_sweep. Word i of each of the first `reads` sources is read; destination w gets what
 * source w % reads holds there, zero where none is read; one may be the other. *meetings, a u64, is
 * counted up by each thread that read a bit of mask; where there is none it is not touched. All of
 * 32-bit words, aligned to 16 bytes. */
struct gf_sweep_args {
    uint64_t src[GF_SWEEP_READS_MAX], dst[GF_SWEEP_WRITES_MAX], word_count, meetings;
    uint32_t reads, writes, mask;
};

#endif
