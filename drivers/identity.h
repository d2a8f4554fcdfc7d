/* Who this process is in the job, from the environment that launchers set. */
#ifndef GF_IDENTITY_H
#define GF_IDENTITY_H

#include "drivers/fault.h"

struct gf_identity {
    uint32_t rank;
    uint32_t world;
    /* its place in its node; where the launcher does not say that: rank */
    uint32_t local;
    /* GF_WORLD_MAX; 0 where it is not set. A new rank is from world to world_max - 1 */
    uint32_t world_max;
    /* GF_JOB, or a hash of the launcher's own job id; 0 where there is none */
    uint64_t job_id;
    char address[GF_TEXT_MAX]; /* GF_ADDRESS (numeric IP:port); empty where it is not set */
    bool rejoin;               /* GF_REJOIN is 1 */
    const char *source;        /* "GF_RANK", "SLURM_PROCID", ..: for logs and errors */
};

/* GF_RANK/GF_WORLD/GF_JOB/GF_ADDRESS/GF_REJOIN first, then torchrun, Open MPI, PMI, Slurm. GF_OK
 * and *identity_out, or GF_AGAIN where no launcher's names are set (*identity_out is untouched), or
 * GF_ERR_CONFIG with *fault_out where they are malformed (a rank that is no number, or not below
 * the world). MASTER_ADDR and MASTER_PORT are not read: torchrun's own store listens there. Its
 * jobs get their address from GF_ADDRESS or the configuration. */
gf_status gf_identity_get(struct gf_identity *identity_out, struct gf_fault *fault_out);

/* The same of a process that has no identity yet: the launcher's word, or `rank`. */
uint32_t gf_identity_local(uint32_t rank);

/* GF_ENDED_FD: a descriptor that the launcher keeps open for its ranks, of
 * memfd_create("gf-ended"), whose bit i says that no process of rank i runs. -1 where there is
 * none. */
int gf_identity_ended_fd(void);
/* The bits as they are now, zeroes after its end; false: it cannot be read, or is another file. */
bool gf_identity_ended_read(int fd, unsigned char *bits_out, size_t bytes);

#endif
