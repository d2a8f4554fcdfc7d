/* The arena: what is counted is what is handed out, to the byte. */
#include "firmware-tests/support/suite.h"
#include "lib/core/arena.h"

static const uint64_t takes[] = {1, 64, 0, 63, 65, 4096, 0, 7};
#define TAKES (LENGTH(takes))

TEST(counting_and_handing_out_agree)
{
    struct gf_arena counted = {0};
    struct gf_arena arena;
    char *memory;
    char *last = NULL;
    for (size_t i = 0; i < TAKES; i++) assert_null(gf_arena_take(&counted, takes[i]));
    memory = aligned_alloc(GF_ALIGN_BYTES, gf_align_up(counted.used_bytes, GF_ALIGN_BYTES));
    assert_non_null(memory);
    arena = (struct gf_arena){.base = memory, .size_bytes = counted.used_bytes};
    for (size_t i = 0; i < TAKES; i++) {
        char *part = gf_arena_take(&arena, takes[i]);
        assert_non_null(part);
        assert_int_equal((uintptr_t)part % GF_ALIGN_BYTES, 0);
        assert_true((last == NULL) || (part >= last + takes[i - 1]));
        memset(part, (int)i, takes[i]);
        last = part;
    }
    assert_true(last + takes[TAKES - 1] == memory + counted.used_bytes);
    assert_int_equal(arena.used_bytes, counted.used_bytes);
    free(memory);
}

TEST(a_byte_too_little_hands_out_nothing_more_but_counts_on)
{
    struct gf_arena counted = {0};
    struct gf_arena arena;
    char *memory;
    for (size_t i = 0; i < TAKES; i++) (void)gf_arena_take(&counted, takes[i]);
    memory = aligned_alloc(GF_ALIGN_BYTES, gf_align_up(counted.used_bytes, GF_ALIGN_BYTES));
    assert_non_null(memory);
    arena = (struct gf_arena){.base = memory, .size_bytes = counted.used_bytes - 1};
    for (size_t i = 0; i < TAKES; i++)
        assert_int_equal(gf_arena_take(&arena, takes[i]) != NULL, i != TAKES - 1);
    assert_int_equal(arena.used_bytes, counted.used_bytes);
    assert_null(gf_arena_take(&arena, 0));
    free(memory);
}
