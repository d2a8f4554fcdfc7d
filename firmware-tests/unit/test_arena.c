/* The arena: what is counted is what is handed out, to the byte. */
#include "lib/core/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t takes[] = {1, 64, 0, 63, 65, 4096, 0, 7};
#define TAKES (sizeof takes / sizeof takes[0])

static void counting_and_handing_out_agree(void **state)
{
    struct gf_arena counted = {0}, arena;
    char *memory, *last = NULL;
    (void)state;
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

static void a_byte_too_little_hands_out_nothing_more_but_counts_on(void **state)
{
    struct gf_arena counted = {0}, arena;
    char *memory;
    (void)state;
    for (size_t i = 0; i < TAKES; i++) (void)gf_arena_take(&counted, takes[i]);
    memory = aligned_alloc(GF_ALIGN_BYTES, gf_align_up(counted.used_bytes, GF_ALIGN_BYTES));
    assert_non_null(memory);
    arena = (struct gf_arena){.base = memory, .size_bytes = counted.used_bytes - 1};
    for (size_t i = 0; i < TAKES; i++) assert_int_equal(gf_arena_take(&arena, takes[i]) != NULL, i != TAKES - 1);
    assert_int_equal(arena.used_bytes, counted.used_bytes);
    assert_null(gf_arena_take(&arena, 0));
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counting_and_handing_out_agree),
        cmocka_unit_test(a_byte_too_little_hands_out_nothing_more_but_counts_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
