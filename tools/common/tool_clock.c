/* See tool_clock.h. */
#include "tools/common/tool_clock.h"

#include <time.h>

uint64_t tool_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
