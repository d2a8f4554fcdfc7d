/* Who this process is in the job, from the environment that launchers set. */
#ifndef GF_IDENTITY_H
#define GF_IDENTITY_H

#include "drivers/base/fault.h"

struct gf_identity {
    uint32_t rank;
    uint32_t world;
    /* the local rank, its number in its node; where the launcher does not say that: rank */
    uint32_t local;
    /* GF_WORLD_MAX; 0 where it is not set. A new rank is from world to world_max - 1 */
    uint32_t world_max;
    /* GF_JOB, or a hash of what the launcher says to all ranks of its job alike; 0 where there is
     * none */
    uint64_t job_id;
    /* a launcher that says no id: what tells this job from another one is its address alone */
    bool nameless;
    char address[GF_TEXT_MAX]; /* GF_ADDRESS, IP:port or host:port; empty where it is not set */
    /* where torchrun's ranks meet if nobody says an address; likewise, or empty */
    char master[GF_TEXT_MAX];
    bool rejoin;          /* GF_REJOIN is 1 */
    bool elastic;         /* GF_ELASTIC is 1 */
    bool coordinator_set; /* GF_COORDINATOR is set, */
    bool is_separate;     /* to "separate" */
    const char *source;   /* "GF_RANK", "SLURM_PROCID", ..: for logs and errors */
};

/* Of the port that is made from torchrun's: beside what gf-run (10000-19999), rendezvous.ports and
 * most kernels' outgoing connections take. */
#define GF_MASTER_PORT_FIRST 20000u
#define GF_MASTER_PORT_LAST 25999u

/* GF_RANK/GF_WORLD/GF_JOB/GF_ADDRESS/GF_REJOIN/GF_COORDINATOR first, then torchrun, Open MPI, PMI,
 * Slurm, PMIx: the first whose rank and world are set. One without a local rank is held against
 * those behind it: a world of 1 and a batch script give way to several ranks; the same numbers with
 * a local rank are read instead, and so are others with one (gf_identity_over()); others are
 * refused if none behind has a local rank.
 * True: a launcher has started this process, as *identity_out says. False, and *identity_out is
 * untouched: no launcher's names are set, and *fault_out is empty; or its code is GF_ERR_CONFIG:
 * they are malformed (a rank that is no number, or not below the world), disagree, or name a
 * process that no launcher has started (a batch script). */
bool gf_identity_get(struct gf_identity *identity_out, struct gf_fault *fault_out);

/* GF_ADDRESS, else `said`, the configuration's, else torchrun's; empty: nobody says one. */
const char *gf_identity_address(const struct gf_identity *identity, const char *given);
/* Who says that one, for errors: "GF_ADDRESS", "rendezvous.address" or "MASTER_ADDR". */
const char *gf_identity_address_name(const struct gf_identity *identity, const char *given);

/* What GF_JOB and --job of the tools say: a number as it is, a name by its hash. 0: it is neither,
 * or 0. */
#define GF_IDENTITY_JOB_ALLOWED \
    "a number of 64 bits, or a name of at most 100 letters, digits and signs"
uint64_t gf_identity_job(const char *text);

#define GF_IDENTITY_SIGN_BYTES 200u
/* Where no launcher's names are set: is there a sign of a launcher that is not read? Then this is
 * no job of one. What it is, and what to set, is in text_out. */
bool gf_identity_sign(char text_out[GF_IDENTITY_SIGN_BYTES]);
/* The same for who starts a job itself: "JOB_COMPLETION_INDEX=1 is of an indexed job of
 * Kubernetes", which may have started several of it. */
bool gf_identity_hint(char text_out[GF_IDENTITY_SIGN_BYTES]);
/* Has a launcher, another one or this library's, started this process as one of several?
 * "RANK=0 and WORLD_SIZE=2 are set". */
bool gf_identity_around(char text_out[GF_IDENTITY_SIGN_BYTES]);
/* Has a launcher started this process as the only one, and does something else say that it is one
 * of several? Then N jobs of one rank may be what was started. "SLURM_NTASKS=4 is set, and RANK=0
 * and WORLD_SIZE=1 were read: ..". */
bool gf_identity_alone(char text_out[GF_IDENTITY_SIGN_BYTES]);

/* Does a row with a local rank go before one without, which says other numbers? "RANK=0 and
 * WORLD_SIZE=8 are set, and SLURM_PROCID=1 and SLURM_NTASKS=8, with a local rank, were read". */
bool gf_identity_over(char text_out[GF_IDENTITY_SIGN_BYTES]);

/* The local rank of a process that has no identity yet: the launcher's word, or `rank`. */
uint32_t gf_identity_local(uint32_t rank);

#endif
