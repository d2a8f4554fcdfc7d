/* The fake CUDA driver: memory that several processes reach has one more shadow, in the file that they map: who is at
 * work on which bytes now. What orders their works no driver knows; that two are at work at one time, one of them
 * writing, is trouble whatever was meant to order them. Behind the memory's bytes lie the processes, then a byte for
 * every two: how many read, or WRITES. */
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "firmware-tests/cuda/fake_cuda_state.h"

#define PROCESSES_MAX 64u
#define WRITES 0x80u

struct fake_shared {
    _Atomic int process[PROCESSES_MAX]; /* 0: nobody */
    _Atomic int active[PROCESSES_MAX];  /* a work of it is under way */
    _Atomic int spoiled; /* one was killed: what it has left behind in the cells says nothing */
    _Atomic uint8_t cells[];
};

static struct taken {
    struct fake_shared *shared;
    uint64_t cell;
    bool writes;
} *taken;
static size_t taken_count, taken_max;

size_t fake_shared_bytes(size_t memory_bytes)
{
    return (sizeof(struct fake_shared) + memory_bytes / FAKE_GRAIN + 4095u) & ~(size_t)4095u;
}

struct fake_shared *fake_shared_map(int file, size_t memory_bytes)
{
    struct fake_shared *shared = mmap(NULL, fake_shared_bytes(memory_bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file,
                                      (off_t)memory_bytes);
    if (shared == MAP_FAILED) return NULL;
    for (uint32_t p = 0; p < PROCESSES_MAX; p++) {
        int nobody = 0;
        if (atomic_compare_exchange_strong(&shared->process[p], &nobody, (int)getpid())) break;
        if (nobody == (int)getpid()) break;
    }
    return shared;
}

void fake_shared_unmap(struct fake_shared *shared, size_t memory_bytes)
{
    if (shared == NULL) return;
    for (uint32_t p = 0; p < PROCESSES_MAX; p++) {
        int own = (int)getpid();
        (void)atomic_compare_exchange_strong(&shared->process[p], &own, 0);
    }
    (void)munmap(shared, fake_shared_bytes(memory_bytes));
}

static void set_active(struct fake_shared *shared, int active)
{
    for (uint32_t p = 0; p < PROCESSES_MAX; p++)
        if (atomic_load(&shared->process[p]) == (int)getpid()) atomic_store(&shared->active[p], active);
}

/* Another process is at work there. */
static bool is_met(struct fake_shared *shared)
{
    bool met = false;
    for (uint32_t p = 0; p < PROCESSES_MAX; p++) {
        int process = atomic_load(&shared->process[p]);
        if ((process == 0) || (process == (int)getpid())) continue;
        struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, process, 0), .events = POLLIN};
        bool lives = (ended.fd >= 0) && (poll(&ended, 1, 0) == 0);
        if (ended.fd >= 0) (void)close(ended.fd);
        if (!lives) atomic_store(&shared->spoiled, 1);
        if (!lives) return false;
        met = met || (atomic_load(&shared->active[p]) != 0);
    }
    return met;
}

static void take(struct fake_shared *shared, uint64_t cell, bool writes)
{
    if (taken_count == taken_max) {
        taken_max = (taken_max == 0) ? 4096 : 2 * taken_max;
        taken = realloc(taken, taken_max * sizeof *taken);
        if (taken == NULL) abort();
    }
    if (taken_count == 0 || taken[taken_count - 1].shared != shared) set_active(shared, 1);
    taken[taken_count++] = (struct taken){shared, cell, writes};
}

bool fake_shared_touch(struct fake_shared *shared, uint64_t cell, bool is_write, uint8_t *mine)
{
    uint8_t was = *mine;
    if (atomic_load_explicit(&shared->spoiled, memory_order_relaxed) != 0) return true;
    if ((was == FAKE_MINE_WRITES) || ((was == FAKE_MINE_READS) && !is_write)) return true;
    if (!is_write) {
        uint8_t before = atomic_fetch_add(&shared->cells[cell], 1);
        if ((before & WRITES) != 0) {
            (void)atomic_fetch_sub(&shared->cells[cell], 1);
            return !is_met(shared);
        }
        *mine = FAKE_MINE_READS;
        take(shared, cell, false);
        return true;
    }
    uint8_t own = (was == FAKE_MINE_READS) ? 1 : 0;
    if (!atomic_compare_exchange_strong(&shared->cells[cell], &own, WRITES)) return !is_met(shared);
    *mine = FAKE_MINE_WRITES;
    if (was == 0) take(shared, cell, true);
    else
        for (size_t i = taken_count; i-- > 0;)
            if ((taken[i].shared == shared) && (taken[i].cell == cell)) {
                taken[i].writes = true;
                break;
            }
    return true;
}

void fake_shared_leave(void (*left)(struct fake_shared *shared, uint64_t cell))
{
    for (size_t i = 0; i < taken_count; i++) {
        _Atomic uint8_t *cell = &taken[i].shared->cells[taken[i].cell];
        if (taken[i].writes) atomic_store(cell, 0);
        else (void)atomic_fetch_sub(cell, 1);
        left(taken[i].shared, taken[i].cell);
        if ((i + 1 == taken_count) || (taken[i + 1].shared != taken[i].shared)) set_active(taken[i].shared, 0);
    }
    taken_count = 0;
}
