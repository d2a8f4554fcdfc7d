/* See suite.h. */
#include "firmware-tests/support/suite.h"

static struct CMUnitTest tests[SUITE_TESTS_MAX];
static int lines[SUITE_TESTS_MAX];
static size_t test_count;
static CMFixtureFunction begin, end;

void suite_add(int line, const char *name, CMUnitTestFunction run)
{
    size_t at = test_count;
    if (test_count == SUITE_TESTS_MAX) abort();
    for (; (at > 0) && (lines[at - 1] > line); at--) {
        lines[at] = lines[at - 1];
        tests[at] = tests[at - 1];
    }
    lines[at] = line;
    tests[at] = (struct CMUnitTest){.name = name, .test_func = run};
    test_count++;
}

void suite_around(CMFixtureFunction before, CMFixtureFunction after)
{
    begin = before;
    end = after;
}

static void (*each_before)(void), (*each_after)(void);

void suite_each(void (*before)(void), void (*after)(void))
{
    each_before = before;
    each_after = after;
}

static int test_begin(void **state)
{
    if (each_before != NULL) each_before();
    return 0;
}

static int test_end(void **state)
{
    if (each_after != NULL) each_after();
    return 0;
}

/* GF_TEST_ONLY=PATTERN: the tests whose name it fits, with * and ? */
int main(void)
{
    const char *only = getenv("GF_TEST_ONLY");
    if (only != NULL) cmocka_set_test_filter(only);
    for (size_t i = 0; i < test_count; i++) {
        tests[i].setup_func = test_begin;
        tests[i].teardown_func = test_end;
    }
    return _cmocka_run_group_tests("tests", tests, test_count, begin, end);
}
