/* A double of libnccl.so.2 over the CUDA driver without a GPU, for the calling convention of
 * gf-perf alone: it looks at each argument and adds through shared memory. Nothing about NCCL's
 * speed or order follows from it. */
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "firmware-tests/cuda/fake_cuda.h"

#define RANKS_MAX 8
#define SLOT_BYTES (1u << 20)
#define INVALID 4 /* ncclInvalidArgument */
#define USAGE 5   /* ncclInvalidUsage */

struct id {
    char bytes[128];
};
struct shared {
    _Atomic uint32_t came;
    char slots[RANKS_MAX][SLOT_BYTES];
};
struct comm {
    const struct fake_cuda_api *cuda;
    struct shared *shared;
    uint32_t ranks, rank, waits;
    struct id id;
};

int ncclGetVersion(int *version_out)
{
    *version_out = 29901;
    return 0;
}

int ncclGetUniqueId(struct id *id_out)
{
    memset(id_out, 0, sizeof *id_out);
    (void)snprintf(id_out->bytes, sizeof id_out->bytes, "/gf_fake_nccl.%d", (int)getpid());
    id_out->bytes[sizeof id_out->bytes - 1] = 42; /* by value, whole */
    return 0;
}

const char *ncclGetErrorString(int result)
{
    return (result == 0) ? "no error" : (result == INVALID) ? "invalid argument" : "invalid usage";
}

static void wait_for_all(struct comm *comm)
{
    uint32_t all = ++comm->waits * comm->ranks;
    (void)atomic_fetch_add(&comm->shared->came, 1);
    while (atomic_load(&comm->shared->came) < all) (void)sched_yield();
}

int ncclCommInitRank(struct comm **comm_out, int ranks, struct id id, int rank)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    const struct fake_cuda_api *cuda =
        (library != NULL) ? dlsym(library, FAKE_CUDA_API_SYMBOL) : NULL;
    if ((cuda == NULL) || (cuda->live().pushed == 0) || (getenv("GF_FAKE_NCCL_FAILS") != NULL))
        return USAGE;
    if ((ranks < 1) || (ranks > RANKS_MAX) || (rank < 0) || (rank >= ranks) ||
        (id.bytes[127] != 42))
        return INVALID;
    int file = shm_open(id.bytes, O_RDWR | O_CREAT, 0600);
    struct comm *comm = calloc(1, sizeof *comm);
    if ((file < 0) || (comm == NULL) || (ftruncate(file, sizeof *comm->shared) != 0)) return USAGE;
    *comm = (struct comm){.cuda = cuda, .ranks = (uint32_t)ranks, .rank = (uint32_t)rank, .id = id};
    comm->shared = mmap(NULL, sizeof *comm->shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    (void)close(file);
    if (comm->shared == MAP_FAILED) return USAGE;
    wait_for_all(comm);
    (void)shm_unlink(id.bytes);
    *comm_out = comm;
    return 0;
}

/* float 7, bfloat16 9, which is a float's upper half. */
static float value_of(int type, const char *at)
{
    uint32_t bits = 0;
    float value;
    memcpy(&bits, at, (type == 7) ? 4 : 2);
    if (type == 9) bits <<= 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

int ncclAllReduce(const void *send, void *receive, size_t count, int type, int reduction,
                  struct comm *comm, void *stream)
{
    static char sums[SLOT_BYTES];
    size_t size = (type == 7) ? 4 : 2;
    size_t bytes = count * size;
    if (((type != 7) && (type != 9)) || (reduction != 0) || (stream == NULL) ||
        (bytes > SLOT_BYTES))
        return INVALID;
    if (comm->cuda->live().pushed == 0) return USAGE;
    comm->cuda->stream_run((uint64_t)(uintptr_t)stream);
    comm->cuda->card_copy(false, comm->shared->slots[comm->rank], send, bytes);
    wait_for_all(comm);
    for (size_t at = 0; at < bytes; at += size) {
        float sum = 0;
        for (uint32_t r = 0; r < comm->ranks; r++)
            sum += value_of(type, comm->shared->slots[r] + at);
        /* small whole numbers: exact */
        memcpy(sums + at, (const char *)&sum + ((type == 9) ? 2 : 0), size);
    }
    wait_for_all(comm); /* all have read */
    comm->cuda->card_copy(true, receive, sums, bytes);
    return 0;
}

int ncclCommDestroy(struct comm *comm)
{
    (void)munmap(comm->shared, sizeof *comm->shared);
    free(comm);
    return 0;
}

int ncclCommAbort(struct comm *comm)
{
    return ncclCommDestroy(comm);
}
