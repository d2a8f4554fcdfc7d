/* What worlds and steps (firmware-tests/support/) call of cmocka, for programs that run without it:
 * a check that fails says where, and ends the program. */
#include "firmware-tests/support/suite.h"

void _fail(const char *const file, const int line)
{
    fprintf(stderr, "%s:%d: failed\n", file, line);
    exit(1);
}

void _assert_true(const LargestIntegralType result, const char *const expression,
                  const char *const file, const int line)
{
    if (result) return;
    fprintf(stderr, "%s does not hold\n", expression);
    _fail(file, line);
}

void _assert_int_equal(const LargestIntegralType a, const LargestIntegralType b,
                       const char *const file, const int line)
{
    if (a == b) return;
    fprintf(stderr, "0x%llx, not 0x%llx\n", (unsigned long long)a, (unsigned long long)b);
    _fail(file, line);
}

void print_error(const char *const format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
}
