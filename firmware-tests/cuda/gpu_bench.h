/* The rows of gpu-bench: what is timed, and which sweep it is held against. */
#ifndef GPU_BENCH_H
#define GPU_BENCH_H

#include <stddef.h>

#include "drivers/gpu.h"

/* In device memory, of bench_range_bytes each, then what is small. Rows leave fp16 in HALF and
 * HALF_SUM alone finite, and nothing negative in SQUARES. */
enum {
    BENCH_GRADIENT,
    BENCH_B,
    BENCH_C,
    BENCH_HALF,
    BENCH_HALF_SUM,
    BENCH_SQUARES,
    BENCH_OUT,
    BENCH_RANGES
};
#define BENCH_REST_BYTES (UINT64_C(8) << 20) /* with the sums of the runs of a norm of 8 GiB */
#define BENCH_BLOCKS 20u                     /* device.multiprocessors */
extern uint64_t bench_range_bytes;

gf_mem bench_range(uint32_t which);
gf_mem bench_check(void);    /* a struct gf_check, of all rows that check */
gf_mem bench_meetings(void); /* of sweeps */

struct bench_row {
    const char *name;
    gf_status (*run)(void);
    double ranges; /* read and written, of bench_range_bytes; over the bus: those that cross it */
    uint32_t reads, writes; /* a sweep's mix; 0, 0: none */
    uint8_t src[3], dst[2]; /* and its ranges, in place where the row's are */
    const char *than;       /* a row before it; NULL: none */
    /* where launches are what it takes: of one of many behind each other; 0: not so */
    double bound_us;
    double goal_gbps; /* of bytes read and written; 0: none */
};
extern const struct bench_row bench_rows[];
extern const size_t bench_row_count;

/* Random numbers in all ranges, and the lists of chunks. */
void bench_fill(void);

#endif
