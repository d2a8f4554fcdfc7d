/* Descriptors that processes of one node give each other, each from whom it is. Nothing here
 * blocks: all are sent before the first is taken, with a word of all ranks in between. */
#ifndef GF_DESCRIPTORS_H
#define GF_DESCRIPTORS_H

#include "drivers/carried.h"
#include "drivers/fault.h"

#define GF_DESCRIPTORS_MAX 64u /* processes of a node that send to one */
#define GF_DESCRIPTORS_NAME_BYTES GF_CARRIED_NAME_BYTES

struct gf_descriptors {
    int listener; /* -1: closed */
    uint32_t count;
    struct {
        int descriptor; /* -1: taken, or none came */
        uint32_t process;
        uint64_t what;
    } come[GF_DESCRIPTORS_MAX];
};

/* Of what is closed. name_out[GF_DESCRIPTORS_NAME_BYTES] is where others of this network namespace
 * send to. Failures: GF_ERR_SYSTEM. */
gf_status gf_descriptors_open(struct gf_descriptors *descriptors, char *name_out,
                              struct gf_fault *fault_out);
/* To this process of this user, or to nobody: the kernel says whose the name is. what: which of the
 * sender's it is. */
gf_status gf_descriptors_send(const char *name, uint32_t process, int descriptor, uint64_t what,
                              struct gf_fault *fault_out);
/* What that process of this user has sent, the caller's to close; -1: nothing. */
int gf_descriptors_take(struct gf_descriptors *descriptors, uint32_t process, uint64_t what);
void gf_descriptors_close(struct gf_descriptors *descriptors); /* valid at any time */

#endif
