/* The benchmark's sweep on the SIMT emulator: it reads every word, writes what it read, and nothing
 * else.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "ops/element/cuda/kernels.h"
#include "firmware-tests/cuda/simt.h"
#include "firmware-tests/cuda/sweep.h"

#include <sys/mman.h>

#define WORDS 5000u
#define WIDE ((UINT64_C(1) << 32) + 7) /* words */

extern const struct gf_simt_kernel gf_simt_kernel_sweep;

static uint32_t words[WORDS + 4] __attribute__((aligned(16)));
static uint64_t meetings;

static uint64_t sweep(uint32_t *from, uint64_t word_count, uint32_t blocks, uint32_t mask)
{
    struct gf_sweep_args args = {.src = {(uint64_t)(uintptr_t)from},
                                 .word_count = word_count,
                                 .mask = mask,
                                 .reads = 1,
                                 .meetings = (uint64_t)(uintptr_t)&meetings};
    void *list[] = {&args};
    meetings = 0;
    if (gf_simt_launch("gf_kernel_sweep", blocks, GF_KERNEL_THREADS, 0, list) != 0)
        fail_msg("%s", gf_simt_error());
    return meetings;
}

TEST(every_word_is_read)
{
    static const uint32_t counts[] = {0, 1, 2, 3, 4, 5, 17, 259};
    for (size_t c = 0; c < LENGTH(counts); c++) {
        words[counts[c]] = UINT32_MAX; /* behind the end */
        assert_int_equal(sweep(words, counts[c], 2, UINT32_MAX), 0);
        words[counts[c]] = 0;
        for (uint32_t i = 0; i < counts[c]; i += (counts[c] > 20) ? 43 : 1) {
            words[i] = 1u << i % 32;
            assert_int_equal(sweep(words, counts[c], 2, UINT32_MAX), 1);
            assert_int_equal(sweep(words, counts[c], 2, ~words[i]), 0);
            words[i] = 0;
        }
    }
    words[WORDS - 1] = words[0] = words[2500] = 4; /* several turns of a grid of one block */
    assert_int_equal(sweep(words, WORDS, 1, 4), 3);
}

TEST(nothing_is_written_over_zeroes)
{
    struct gf_sweep_args args = {.src = {(uint64_t)(uintptr_t)words},
                                 .word_count = 4,
                                 .mask = UINT32_MAX,
                                 .meetings = 8,
                                 .reads = 1};
    void *list[] = {&args};
    memset(words, 0, sizeof words);
    /* 8 is nobody's address */
    assert_int_equal(gf_simt_launch("gf_kernel_sweep", 1, GF_KERNEL_THREADS, 0, list), 0);
}

TEST(each_mix_writes_what_it_read_and_no_more)
{
    static uint32_t in[GF_SWEEP_READS_MAX][WORDS] __attribute__((aligned(16)));
    static uint32_t out[GF_SWEEP_WRITES_MAX][WORDS] __attribute__((aligned(16)));
    static const uint32_t mixes[][2] = {
#define MIX(reads, writes) {reads, writes},
        GF_SWEEP_MIXES(MIX)};
    for (uint32_t i = 0; i < GF_SWEEP_READS_MAX * WORDS; i++) in[i / WORDS][i % WORDS] = i + 1;
    for (size_t m = 0; m < LENGTH(mixes); m++) {
        uint32_t reads = mixes[m][0];
        uint32_t writes = mixes[m][1];
        uint32_t count = WORDS - 3;
        struct gf_sweep_args args = {.word_count = count, .reads = reads, .writes = writes};
        void *list[] = {&args};
        for (uint32_t r = 0; r < GF_SWEEP_READS_MAX; r++) args.src[r] = (uint64_t)(uintptr_t)in[r];
        for (uint32_t w = 0; w < GF_SWEEP_WRITES_MAX; w++)
            args.dst[w] = (uint64_t)(uintptr_t)out[w];
        memset(out, 0xa5, sizeof out);
        assert_int_equal(gf_simt_launch("gf_kernel_sweep", 2, GF_KERNEL_THREADS, 0, list), 0);
        for (uint32_t w = 0; w < GF_SWEEP_WRITES_MAX; w++)
            for (uint32_t i = 0; i < WORDS; i++)
                assert_int_equal(out[w][i], ((w >= writes) || (i >= count)) ? 0xa5a5a5a5u
                                            : (reads == 0)                  ? 0
                                                           : in[w % (reads + (reads == 0))][i]);
    }
}

/* Blocks with a turn each, of which the first and the last are run. */
TEST(beyond_2_to_32_words)
{
    uint64_t each = GF_KERNEL_THREADS * UINT64_C(4);
    uint32_t blocks[] = {0, (uint32_t)((WIDE / 4 - 1) / GF_KERNEL_THREADS)};
    uint32_t *wide = mmap(NULL, WIDE * 4, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (wide == MAP_FAILED) skip();
    gf_simt_blocks(blocks, 2);
    wide[WIDE - 5] = 1; /* of the last whole pack */
    assert_int_equal(sweep(wide, WIDE, (uint32_t)(WIDE / each + 1), 1), 1);
    wide[WIDE - 1] = 1; /* of the tail */
    assert_int_equal(sweep(wide, WIDE, (uint32_t)(WIDE / each + 1), 1), 2);
    gf_simt_blocks(NULL, 0);
    assert_int_equal(munmap(wide, WIDE * 4), 0);
}

static int kernels_add(void **state)
{
    gf_simt_add(&gf_simt_kernel_sweep);
    return 0;
}

TEST_AROUND(kernels_add, NULL)
