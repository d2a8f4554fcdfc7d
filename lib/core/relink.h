/* A new link in an open context, and what lies in its region. */
#ifndef GF_RELINK_H
#define GF_RELINK_H

#include "lib/context.h"

/* All addresses in the region, as the link has it now. */
void gf_exchange_lay(gf_context *gf);

/* Opens the context's link, of the generation of now, without a network. */
gf_status gf_link_open(gf_context *gf, struct gf_fault *fault_out);
/* From here on this process is a rank of that generation. Makes a new link for it, unless the link
 * was opened for just this generation. *endpoint_out is the endpoint address, in an operation's
 * staging. */
gf_status gf_link_renew(gf_context *gf, const struct gf_generation *to, const void **endpoint_out,
                        size_t *bytes_out, struct gf_fault *fault_out);
/* Ends all requests and all connections that are being made. The region may be another one
 * afterwards. */
void gf_link_cut(gf_context *gf);

#endif
