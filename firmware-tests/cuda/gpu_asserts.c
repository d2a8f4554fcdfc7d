/* What worlds and steps (firmware-tests/support/) call of cmocka, for programs that run without it:
 * a check that fails says in one line which run it was of, what was found (a world names rank,
 * status and error) and where it is checked, and ends the program. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/cuda/gpu_program.h"

static char about[160] = "before the first run", found[2048];

void gpu_about(const char *run)
{
    (void)snprintf(about, sizeof about, "%s", run);
}

void _fail(const char *const file, const int line)
{
    for (char *at = found; *at != '\0'; at++)
        if (*at == '\n') *at = (at[1] == '\0') ? ' ' : ';';
    fprintf(stderr, "%s: %s (%s:%d)\n", about, (found[0] != '\0') ? found : "failed", file, line);
    exit(1);
}

void _assert_true(const LargestIntegralType result, const char *const expression,
                  const char *const file, const int line)
{
    if (result) return;
    (void)snprintf(found, sizeof found, "%s does not hold", expression);
    _fail(file, line);
}

void _assert_int_equal(const LargestIntegralType a, const LargestIntegralType b,
                       const char *const file, const int line)
{
    if (a == b) return;
    (void)snprintf(found, sizeof found, "0x%llx, not 0x%llx", (unsigned long long)a,
                   (unsigned long long)b);
    _fail(file, line);
}

/* What is said before a failure. */
void print_error(const char *const format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(found, sizeof found, format, arguments);
    va_end(arguments);
}
