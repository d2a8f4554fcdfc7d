/* Put in front of every file of a program (-include): it is of another version of the library than
 * the rest of its job. */
#include "gradientflow.h"
#undef GF_VERSION_MINOR
#define GF_VERSION_MINOR 99
