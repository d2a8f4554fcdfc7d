/* Which link was slow in a step: each rank's times go out with the vote, and all learn the same from it. */
#ifndef GF_LINK_TIMES_H
#define GF_LINK_TIMES_H

#include "gradientflow.h"

void gf_link_times_tell(gf_context *gf);  /* this rank's, into the words of the vote, all 0 */
void gf_link_times_learn(gf_context *gf); /* of all ranks, from them: step.link_ends and link_ns */

#endif
