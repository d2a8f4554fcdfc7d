/* The benchmark's read-only sweep on the SIMT emulator: it reads every word and writes nothing where it met nothing. */
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
    struct gf_sweep_args args = {.words = (uint64_t)(uintptr_t)from, .word_count = word_count, .mask = mask,
                                 .meetings = (uint64_t)(uintptr_t)&meetings};
    void *list[] = {&args};
    meetings = 0;
    if (gf_simt_launch("gf_kernel_sweep", blocks, GF_KERNEL_THREADS, 0, list) != 0) fail_msg("%s", gf_simt_error());
    return meetings;
}

TEST(every_word_is_read)
{
    static const uint32_t counts[] = {0, 1, 2, 3, 4, 5, 17, 259};
    for (size_t c = 0; c < LENGTH(counts); c++)
        for (uint32_t off = 0; off < 4; off++) {
            words[off + counts[c]] = UINT32_MAX; /* behind the end */
            assert_int_equal(sweep(words + off, counts[c], 2, UINT32_MAX), 0);
            words[off + counts[c]] = 0;
            for (uint32_t i = 0; i < counts[c]; i += (counts[c] > 20) ? 43 : 1) {
                words[off + i] = 1u << i % 32;
                assert_int_equal(sweep(words + off, counts[c], 2, UINT32_MAX), 1);
                assert_int_equal(sweep(words + off, counts[c], 2, ~words[off + i]), 0);
                words[off + i] = 0;
            }
        }
    words[WORDS - 1] = words[0] = words[2500] = 4; /* several turns of a grid of one block */
    assert_int_equal(sweep(words, WORDS, 1, 4), 3);
}

TEST(nothing_is_written_over_zeroes)
{
    struct gf_sweep_args args = {.words = (uint64_t)(uintptr_t)words, .word_count = 4, .mask = UINT32_MAX,
                                 .meetings = 8};
    void *list[] = {&args};
    memset(words, 0, sizeof words);
    assert_int_equal(gf_simt_launch("gf_kernel_sweep", 1, GF_KERNEL_THREADS, 0, list), 0); /* 8 is nobody's address */
}

/* Blocks with a turn each, of which the first and the last are run. */
TEST(beyond_2_to_32_words)
{
    uint64_t each = GF_KERNEL_THREADS * UINT64_C(4);
    uint32_t blocks[] = {0, (uint32_t)((WIDE / 4 - 1) / GF_KERNEL_THREADS)};
    uint32_t *wide = mmap(NULL, WIDE * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
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
    (void)state;
    gf_simt_add(&gf_simt_kernel_sweep);
    return 0;
}

TEST_AROUND(kernels_add, NULL)
