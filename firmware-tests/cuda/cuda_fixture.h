/* For tests of the CUDA driver: the real driver file on the CUDA driver without a GPU. */
#ifndef CUDA_FIXTURE_H
#define CUDA_FIXTURE_H

#include "firmware-tests/cuda/fake_cuda.h"
#include "drivers/gpu.h"

#define CUDA_FIXTURE_LOG_BYTES 4096u
#define CUDA_FIXTURE_STATE_BYTES 65536u

struct cuda_fixture {
    const struct fake_cuda_api *fake;
    char library[256];
    struct gf_gpu_setup setup; /* of the next open; opened with what a test changes here */
    struct gf_gpu *gpu;
    struct gf_queue queue;
    struct gf_fault fault;
    char log[CUDA_FIXTURE_LOG_BYTES]; /* warnings and errors, one a line */
    _Alignas(64) char state[CUDA_FIXTURE_STATE_BYTES];
};

/* Sets the fake's environment anew: "NAME=VALUE" or NULL, up to two; the seed is 0 unless one of
 * them says so. */
void cuda_fixture_init(struct cuda_fixture *f, const char *first, const char *second);
/* The image of the next open has these, and nothing else. */
void cuda_fixture_kernels(struct cuda_fixture *f, const char *const *names, uint32_t count);
gf_status cuda_fixture_open(struct cuda_fixture *f);
void cuda_fixture_close(struct cuda_fixture *f);
/* Nothing is live any more and nothing was wrong; fails the test else. */
void cuda_fixture_clean(struct cuda_fixture *f);
/* The same with memory of the host's that is registered meanwhile; end looks that all is clean. */
void cuda_fixture_begin(struct cuda_fixture *f, void *host, size_t size_bytes);
void cuda_fixture_end(struct cuda_fixture *f, void *host);
/* Streams of all ranks of this process wait with each other, in hardware work queues or in
 * launches: there a device that hangs would be all ranks'. */
bool cuda_fixture_shares_queues(void);
bool cuda_fixture_drains(struct gf_queue *queue); /* false: its work does not end */

#endif
