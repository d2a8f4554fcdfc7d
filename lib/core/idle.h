/* What a rank does between polls with link.idle = auto. (Before that it looks for flags for some
 * microseconds: wait.c.)
 *
 * The rank yields its core after each poll. That costs nothing where no other thread wants the
 * core, and a rank that shares it continues at once. After GF_IDLE_YIELDS yields in one wait it
 * sleeps until a descriptor or a peer's flag wakes it.
 *
 * A yield longer than GF_IDLE_LONG_NS gave a time slice away. GF_IDLE_SLICES of them with hardly
 * anything between went to a thread that computes. Then yields are banned for a while, and the rank
 * sleeps at once; the ban is twice as long where the next yield after it is a long one, too.
 *
 * Yields are counted, not timed, so that one of many ranks does not sleep early. Fewer slices than
 * GF_IDLE_SLICES are an accident: one rank that sleeps makes each operation of all ranks several
 * times longer, which costs more than those slices. No rank spins, so what one rank does never
 * depends on what the others believe of it. No state keeps itself up: a ban ends by itself, and a
 * rank that sleeps makes no other rank's yield long. */
#ifndef GF_IDLE_H
#define GF_IDLE_H

#include <stdbool.h>
#include <stdint.h>

#define GF_IDLE_YIELDS 100u /* in a wait, on a core of its own: about twice what a wake-up takes */
/* less than a time slice, more than the polls of many ranks that wait */
#define GF_IDLE_LONG_NS UINT64_C(1000000)
#define GF_IDLE_NEAR_NS UINT64_C(3000000) /* between two long yields that went to the same work */
#define GF_IDLE_SLICES 4u
#define GF_IDLE_BAN_NS UINT64_C(25000000) /* no yields for so long after the first of them, .. */
/* the longest ban: in this time one slice of 4 ms is lost */
#define GF_IDLE_BAN_MAX_NS UINT64_C(3200000000)

struct gf_idling {
    uint64_t no_yield_ns; /* before, nothing yields */
    uint64_t ban_ns;      /* how long the last ban was */
    uint64_t long_ns;     /* when the last long yield ended, or the ban after it */
    uint32_t slices;      /* long yields in a row */
};

/* Does a rank yield in a wait with so many idle polls since something moved? Else it sleeps. */
static inline bool gf_idle_yields(const struct gf_idling *idling, uint32_t polls, uint64_t now_ns)
{
    return (polls <= GF_IDLE_YIELDS) && (now_ns >= idling->no_yield_ns);
}

/* A yield took so long. */
static inline void gf_idle_yielded(struct gf_idling *idling, uint64_t begin_ns, uint64_t end_ns)
{
    if (end_ns - begin_ns <= GF_IDLE_LONG_NS) return;
    idling->slices = (begin_ns - idling->long_ns <= GF_IDLE_NEAR_NS) ? idling->slices + 1 : 1;
    idling->long_ns = end_ns;
    if (idling->slices < GF_IDLE_SLICES) return;
    /* long after the last ban it is a first one again */
    if (begin_ns - idling->no_yield_ns > idling->ban_ns)
        idling->ban_ns = GF_IDLE_BAN_NS;
    else if (idling->ban_ns < GF_IDLE_BAN_MAX_NS)
        idling->ban_ns *= 2;
    idling->no_yield_ns = idling->long_ns = end_ns + idling->ban_ns;
}

#endif
