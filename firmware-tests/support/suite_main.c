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

int main(void)
{
    return _cmocka_run_group_tests("tests", tests, test_count, begin, end);
}
