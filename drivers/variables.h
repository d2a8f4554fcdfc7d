/* Names of the environment that begin with GF_ and are like one that is read, but are not: a slip
 * there would else be silent. */
#ifndef GF_VARIABLES_H
#define GF_VARIABLES_H

#include "drivers/base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GF_VARIABLE_TEXT_BYTES 160u
#define GF_VARIABLES_SAID_MAX 8 /* of them somebody is told of so many */
/* The next one from *at on, which begins at 0 and is moved behind it; false: there is no more.
 * "GF_ADRESS is set, and is not read; did you mean GF_ADDRESS?" Names that are like none of ours
 * may be another program's, and are passed over. Likewise a value of GF_DEBUG that means nothing.
 * Nobody may change the environment meanwhile. */
bool gf_variable_odd(uint32_t *at, char text_out[GF_VARIABLE_TEXT_BYTES]);

#ifdef __cplusplus
}
#endif
#endif
