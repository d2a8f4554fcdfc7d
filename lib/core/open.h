/* Opening and closing. */
#ifndef GF_OPEN_H
#define GF_OPEN_H

#include "gradientflow.h"

#define GF_ANSWER_NS UINT64_C(1000000000)    /* a live rank answers an inquiry within this */
#define GF_FLUSH_NS UINT64_C(200000000)      /* for last words on the control channel at close */

struct gf_opening {
    uint64_t foreign_before;          /* resident bytes before */
    uint64_t wire_base, message_base; /* link counters when it ended */
    uint64_t leave_ns;                /* LEAVE: nobody is waited for beyond this */
    bool left_late;                   /* LEAVE: that is over */
};

/* One turn of join and warm-up: GF_OK once the context could be used. A failure is the context's. */
gf_status gf_join_progress(gf_context *gf, uint64_t now_ns);
/* relink.c: the link is made anew, with a network or without, and tells its endpoint, which lies in an operation's
 * staging. */
gf_status gf_link_renew(gf_context *gf, bool network, const void **endpoint_out, size_t *bytes_out);
uint64_t gf_resident_bytes(void);       /* host memory of this process that is not shared; 0: unknown */
void gf_link_drop(gf_context *gf); /* once the device has been told that the others' memory goes */
void gf_drivers_close(gf_context *gf); /* those that are open */

#endif
