/* Whether others want the core on which a rank waits. At open ranks of one node count themselves, but containers that
 * share cores, or another program, are met only here: the kernel counts how often the caller was switched out though it
 * could have run on, by preemption or because somebody took what a yield offered. Who meets that while it spins yields
 * from then on, which turns milliseconds (until the scheduler preempts a rank that spins) into microseconds where the
 * others are ranks that wait too. Where they compute, a yield gives a whole time slice away: one that took long is the
 * last for a while. */
#ifndef GF_CROWD_H
#define GF_CROWD_H

#include <stdbool.h>
#include <stdint.h>

#define GF_CROWD_POLLS 32u                    /* idle polls from look to look: a look is a system call */
#define GF_CROWD_QUIET 64u                    /* looks without a switch until the core is this rank's again */
#define GF_CROWD_LONG_NS UINT64_C(1000000)    /* a yield that took longer went to somebody who computes */
#define GF_CROWD_KEEP_NS UINT64_C(20000000)   /* no yields for so long after one */

struct gf_crowd {
    uint64_t switches; /* at the last look */
    uint64_t keep_ns;  /* no yields before */
    uint32_t polls;    /* since the last look */
    uint32_t quiet;    /* looks since the last switch */
    bool wanted;
};

/* Counts an idle poll. true: look now, and say so with gf_crowd_seen(). */
static inline bool gf_crowd_poll(struct gf_crowd *crowd)
{
    crowd->polls = (crowd->polls + 1) % GF_CROWD_POLLS;
    return crowd->polls == 0;
}

static inline void gf_crowd_seen(struct gf_crowd *crowd, uint64_t switches)
{
    bool switched = switches != crowd->switches;
    crowd->switches = switches;
    crowd->quiet = switched ? 0 : crowd->quiet + 1;
    if (switched) crowd->wanted = true;
    if (crowd->quiet >= GF_CROWD_QUIET) crowd->wanted = false;
}

/* Should an idle poll yield? */
static inline bool gf_crowd_yields(const struct gf_crowd *crowd, uint64_t now_ns)
{
    return crowd->wanted && (now_ns >= crowd->keep_ns);
}

/* A yield took so long. */
static inline void gf_crowd_yielded(struct gf_crowd *crowd, uint64_t begin_ns, uint64_t end_ns)
{
    if (end_ns - begin_ns > GF_CROWD_LONG_NS) crowd->keep_ns = end_ns + GF_CROWD_KEEP_NS;
}

#endif
