/* Time since some moment; never goes back. */
#ifndef TOOL_CLOCK_H
#define TOOL_CLOCK_H

#include <stdint.h>

uint64_t tool_clock_ns(void);

#endif
