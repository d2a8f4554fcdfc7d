/* What a suite begins with: cmocka, the headers it wants before it, and tests that make themselves
 * known.
 *
 *     TEST(a_short_block_is_valid) { .. }      a test; they run in the order of the file
 *     TEST_AROUND(folder_make, folder_remove)  once before the first and after the last; either may
 *                                              be NULL
 *     TEST_EACH(world_begin, world_close)      before and after each of them; either may be NULL
 *
 * suite_main.c has main() and is linked into programs test_*. Nothing here blocks. */
#ifndef SUITE_H
#define SUITE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* Called by the macros before main(): name is not copied. More than SUITE_TESTS_MAX tests end the
 * program. */
#define SUITE_TESTS_MAX 128u
void suite_add(int line, const char *name, CMUnitTestFunction run);
void suite_around(CMFixtureFunction before, CMFixtureFunction after);

#define TEST(name)                                            \
    static void name(void **state);                           \
    __attribute__((constructor)) static void name##_add(void) \
    {                                                         \
        suite_add(__LINE__, #name, name);                     \
    }                                                         \
    static void name(__attribute__((unused)) void **state)

/* Likewise; before() and after() are void (*)(void). after() also when the test has closed its
 * world itself. */
void suite_each(void (*before)(void), void (*after)(void));
#define TEST_EACH(before, after)                              \
    __attribute__((constructor)) static void tests_each(void) \
    {                                                         \
        suite_each(before, after);                            \
    }
#define TEST_AROUND(before, after)                              \
    __attribute__((constructor)) static void tests_around(void) \
    {                                                           \
        suite_around(before, after);                            \
    }

#endif
