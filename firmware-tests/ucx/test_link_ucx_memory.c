/* After a warm-up with the largest window, messages over UCX allocate nothing, and those of a node
 * never do. UCX's tcp alone cuts what is larger than its segment (8 KiB), and not yet so large that
 * it is announced first, into pieces, and makes the table of those anew about once in 24 messages,
 * at its size. The counting allocator below replaces libc's for the whole program, UCX included.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/ucx_ranks.h"

#if defined(__SANITIZE_ADDRESS__)
#define COUNTS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COUNTS 0
#endif
#endif
#ifndef COUNTS
#define COUNTS 1
#endif

static uint64_t allocations; /* of all threads: UCX's async thread counts too */

#if COUNTS
static void count(void *caller)
{
    (void)caller;
    (void)__atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
}
#include "firmware-tests/support/counted_malloc.h"
#endif

static const size_t sizes[] = {8, 1024, 4096, 16384, 65536, 262144, 1u << 20};
#define SIZES (LENGTH(sizes))
#define WINDOW 16u
#define PIECE 8192u

static unsigned char out[WINDOW][1u << 20], in[WINDOW][1u << 20];

static void window_exchange(struct ranks_one *one, uint32_t window, size_t size_bytes,
                            bool receive_first)
{
    uint32_t peer = 1 - one->rank;
    for (uint32_t turn = 0; turn < 2; turn++) {
        bool receive = (turn == 0) == receive_first;
        for (uint32_t i = 0; i < window; i++) {
            if (receive)
                ranks_recv(one, i, peer, i, in[i], size_bytes);
            else
                ranks_send(one, WINDOW + i, peer, i, out[i], size_bytes);
        }
        if (receive || receive_first) continue;
        /* Unexpected: what was sent before the mark is there when the mark is. */
        ranks_recv(one, 2 * WINDOW, peer, WINDOW, in[0], 1);
        ranks_send(one, 2 * WINDOW + 1, peer, WINDOW, out[0], 1);
        RANK_CHECK(one, (ranks_end(one, 2 * WINDOW) == GF_OK) &&
                            (ranks_end(one, 2 * WINDOW + 1) == GF_OK));
    }
    for (uint32_t i = 0; i < window; i++)
        RANK_CHECK(one, (ranks_end(one, i) == GF_OK) && (ranks_end(one, WINDOW + i) == GF_OK));
}

static void nothing_allocated_body(struct ranks_one *one)
{
    ranks_begin(one);
    for (uint32_t turn = 0; (turn < 4) && (strcmp(one->arg, "tcp") == 0); turn++)
        for (size_t i = 0; i < SIZES; i++) {
            window_exchange(one, WINDOW, sizes[i], (turn & 1) != 0);
            ranks_meet(one);
        }
    for (size_t i = 0; i < SIZES; i++) {
        uint64_t before = __atomic_load_n(&allocations, __ATOMIC_RELAXED);
        uint64_t after;
        uint64_t allowed = 0;
        uint32_t exchanges = !COUNTS ? 10 : (sizes[i] < 65536) ? 1000 : 100;
        if ((strcmp(one->arg, "tcp") == 0) && (sizes[i] > PIECE)) allowed = exchanges * 8 / 16;
        for (uint32_t n = 0; n < exchanges; n++) window_exchange(one, 8, sizes[i], true);
        after = __atomic_load_n(&allocations, __ATOMIC_RELAXED);
        if (COUNTS && (one->rank == 0))
            fprintf(stderr, "    %-16s %8zu bytes, %u exchanges: %llu allocations\n",
                    (const char *)one->arg, sizes[i], exchanges,
                    (unsigned long long)(after - before));
        RANK_CHECK(one, after - before <= allowed);
        ranks_meet(one);
    }
}

TEST(nothing_is_allocated_after_warm_up)
{
    static const char *const transports[] = {"node,tcp", "tcp"};
    for (size_t i = 0; i < LENGTH(transports); i++)
        ranks_run(2, 0, nothing_allocated_body, transports[i]);
    if (!COUNTS) skip(); /* a sanitizer owns the allocator; the exchanges ran all the same */
}
