/* See slips.h. */
#include "drivers/base/slips.h"

#include <string.h>

#define DISTANCE_BYTES 48 /* longer than any key or variable */

unsigned gf_word_slips(const char *a, const char *b)
{
    unsigned row[DISTANCE_BYTES + 1];
    size_t a_length = strlen(a);
    size_t b_length = strlen(b);
    if ((a_length > DISTANCE_BYTES) || (b_length > DISTANCE_BYTES)) return DISTANCE_BYTES;
    for (unsigned j = 0; j <= b_length; j++) row[j] = j;
    for (unsigned i = 1; i <= a_length; i++) {
        unsigned diagonal = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= b_length; j++) {
            unsigned best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[b_length];
}
