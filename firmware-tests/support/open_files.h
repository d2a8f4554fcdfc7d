/* How many files this process has open: a test compares it before and after. */
#ifndef OPEN_FILES_H
#define OPEN_FILES_H

#include <stdint.h>

uint32_t open_files(void);

#endif
