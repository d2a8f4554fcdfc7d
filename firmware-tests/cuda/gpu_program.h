/* gpu-probe, gpu-check and gpu-bench: one GPU through the library's own driver, and what they found
 * as lines and as JSON. */
#ifndef GPU_PROGRAM_H
#define GPU_PROGRAM_H

#include "drivers/gpu.h"
#include "firmware-tests/cuda/sweep.h"

struct gpu_program {
    const char *library; /* a CUDA driver's; NULL: the system's */
    bool is_fake;        /* that driver has no GPU: few rounds, whose times mean nothing */
    bool is_small;       /* few and small cases */
    bool only_ops;       /* no whole steps */
    bool only_steps;     /* nothing else */
    bool only_rows;      /* no step */
    uint64_t runs_max;   /* of whole steps; 0: all */
    struct gf_gpu *gpu;
    void *state; /* the driver's */
    struct gf_queue queue;
    uint8_t *staging; /* registered with the driver */
    size_t staging_bytes;
};
extern struct gpu_program gpu_program;

/* Ends the program with a message where it fails. */
void gpu_open(uint64_t device_bytes, uint64_t staging_bytes);
void gpu_close(void);
void gpu_must(gf_status status);
void gpu_drain(void); /* waits until all that was queued is done */
/* Through the staging, a part at a time; they wait. */
void gpu_upload(gf_mem dst, const void *src, uint64_t size_bytes);
void gpu_download(void *dst, gf_mem src, uint64_t size_bytes);
void gpu_log(void *user, gf_log_level level, const char *text); /* errors and warnings, to stderr */

/* For qsort() of doubles. */
static inline int gpu_compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* gpu_json.c: {"program": .., "status": .., "rows": [..]} into a file when the program ends; path
 * NULL: nowhere. */
void gpu_json_open(const char *path, const char *program);
/* A row: the inside of an object, made as printf() does. */
__attribute__((format(printf, 1, 2))) void gpu_json_row(const char *format, ...);
void gpu_json_forget(void);               /* of a process that was forked: it writes no file */
void gpu_json_device(void);               /* a row: what it is called, how large it is */
void gpu_json_status(const char *status); /* "failed" until it is called */

/* gpu_sweep.c: the benchmark's kernel, for which the driver is opened a second time, on the same
 * primary context. Queued, with blocks and threads as the library's kernels have them. */
void gpu_sweep_open(void);
gf_status gpu_sweep(gf_queue_handle stream, const struct gf_sweep_args *args);
void gpu_sweep_close(void);

/* gpu_timer.c: between two events of the device, in microseconds, with all that was queued between
 * them. End waits. */
void gpu_timer_open(void);
void gpu_timer_begin(void);
double gpu_timer_end(void);
void gpu_timer_close(void);
/* A call of the driver's, as cuda.h of 12.0 has it, into the function pointer there; false: it
 * offers none of that name. */
bool gpu_driver_call(const char *name, void *member_out);

/* gpu_asserts.c: which run goes on, for the one line that a failure is. */
void gpu_about(const char *run);

/* gpu_steps.c: whole steps, dense and sparse, every wire type, through host memory, from device to
 * device and straight to the wire, by several ranks in this process: how many runs. Ends the
 * program with a message where a step does not end bit by bit as on the host. */
uint32_t gpu_steps_check(bool is_small);
/* gpu_bench_step.c: what a step of that many bytes of gradients takes, with and without overlap;
 * two lines. */
void gpu_steps_bench(uint64_t bytes);

/* gpu_peer.c: a second process, forked before CUDA is begun, and memory of each read by the other.
 * Ends the program with a message where it is not what the other wrote. */
void gpu_peer_fork(void);
void gpu_peer_check(void);

/* gpu_stack.c: a line with what a thread needs of stack where the library uses a GPU. */
void gpu_stack_measure(void);

/* gpu_probe.c, gpu_check.c, gpu_bench.c: exit codes. range_bytes: of each of the ranges that a
 * kernel reads or writes. */
int gpu_probe(void);
int gpu_check(void);
int gpu_bench(uint64_t range_bytes);

#endif
