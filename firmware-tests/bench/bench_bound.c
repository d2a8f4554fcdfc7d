/* What memory allows: all buffers in one mapping, each rank sums its share of all of them and
 * writes it to all, between two barriers. No library does less. Options in bench_peer.h, and -n
 * RANKS; ranks are children of this process, each on a core of its own where there are enough. */
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "firmware-tests/bench/bench_peer.h"

#define RANKS_MAX 64
#define APART (3 * 4096 + 128) /* off powers of two, or blocks of all ranks share cache ways */

static struct shared {
    struct {
        _Alignas(128) _Atomic uint64_t turn;
    } at[RANKS_MAX];
    struct {
        _Alignas(128) double value;
    } said[RANKS_MAX];
} * shared;
static float *buffers[RANKS_MAX];
static int ranks = 2, oversubscribed;

static void own_option(int letter, const char *value)
{
    ranks = atoi(value);
}

static void bound_barrier(struct bench_peer *peer)
{
    uint64_t turn = atomic_load_explicit(&shared->at[peer->rank].turn, memory_order_relaxed) + 1;
    atomic_store_explicit(&shared->at[peer->rank].turn, turn, memory_order_release);
    for (int rank = 0; rank < ranks; rank++)
        while (atomic_load_explicit(&shared->at[rank].turn, memory_order_acquire) < turn)
            if (oversubscribed) sched_yield();
}

static void bound_sum(struct bench_peer *peer, size_t first, size_t elem_count)
{
    size_t block = (elem_count / (size_t)ranks + 31) / 16 * 16;
    size_t from = block * (size_t)peer->rank;
    size_t until = from + block;
    if (from > elem_count) from = elem_count;
    if (until > elem_count) until = elem_count;
    bound_barrier(peer);
    for (size_t at = from; at < until; at += 8192) {
        size_t end = (until - at < 8192) ? until : at + 8192;
        float *own = buffers[peer->rank] + first;
        for (int rank = 0; rank < ranks; rank++) {
            const float *other = buffers[rank] + first;
            if (rank == peer->rank) continue;
            for (size_t i = at; i < end; i++) own[i] += other[i];
        }
        for (int rank = 0; rank < ranks; rank++)
            if (rank != peer->rank)
                memcpy(buffers[rank] + first + at, own + at, (end - at) * sizeof(float));
    }
    bound_barrier(peer);
}

static double bound_greatest(struct bench_peer *peer, double value)
{
    shared->said[peer->rank].value = value;
    bound_barrier(peer);
    for (int rank = 0; rank < ranks; rank++)
        if (shared->said[rank].value > value) value = shared->said[rank].value;
    bound_barrier(peer);
    return value;
}

static int rank_run(const struct bench *bench, int rank)
{
    struct bench_peer peer = {.data = buffers[rank],
                              .rank = rank,
                              .world = ranks,
                              .sum = bound_sum,
                              .barrier = bound_barrier,
                              .greatest = bound_greatest};
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET((size_t)rank, &core);
    if (!oversubscribed) (void)sched_setaffinity(0, sizeof core, &core);
    memset(buffers[rank], 0, bench->elems_max * sizeof(float)); /* first touched by its owner */
    return bench_run(&peer, bench);
}

static void *map(size_t size_bytes)
{
    void *at = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at != MAP_FAILED) return at;
    perror("mmap");
    exit(1);
}

int main(int argc, char **argv)
{
    static struct bench bench;
    int code = 0;
    int status;
    char *memory;
    if ((bench_options(&bench, argc, argv, "n:", own_option) != 0) || (ranks < 1) ||
        (ranks > RANKS_MAX))
        return 2;
    oversubscribed = ranks > sysconf(_SC_NPROCESSORS_ONLN);
    shared = map(sizeof *shared);
    memory = map((bench.elems_max * sizeof(float) / 4096 * 4096 + 4096 + APART) * (size_t)ranks);
    for (int rank = 0; rank < ranks; rank++)
        buffers[rank] = (float *)(void *)(memory + (bench.elems_max * sizeof(float) / 4096 * 4096 +
                                                    4096 + APART) *
                                                       (size_t)rank);
    for (int rank = 0; rank < ranks; rank++)
        if (fork() == 0) return rank_run(&bench, rank);
    while (wait(&status) > 0) code |= status != 0;
    return code;
}
