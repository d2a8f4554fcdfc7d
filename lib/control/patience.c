/* How long members ask the others to wait while they compute (gf_heartbeat()). Each member tells
 * the coordinator, which tells all others. No member can ask for longer than the others would
 * wait without asking. */
#include "lib/control/frames.h"

/* Of two ranks that ask the one that has begun less asks for all that the other one does. It is the
 * one to follow until it has asked for nothing for half of the timeout; what it asked for holds
 * longer. The others hear of it when it is worth a frame to each: an eighth of the timeout more. */
bool gf_patience_take(struct control_patience *patience, uint64_t now_ns, uint64_t timeout_ns,
                      uint64_t patience_ns, uint64_t from)
{
    if (patience_ns > timeout_ns) patience_ns = timeout_ns;
    uint64_t until_ns = now_ns + patience_ns;
    uint64_t least_ns = patience->until_ns + ((from > patience->from) ? timeout_ns / 2 : 0);
    if ((patience_ns == 0) || (until_ns <= least_ns)) return false;
    patience->until_ns = until_ns;
    patience->from = from;
    if (until_ns < patience->announced_ns + timeout_ns / 8) return false;
    patience->announced_ns = until_ns;
    return true;
}

uint64_t gf_patience_left(const struct control_patience *patience, uint64_t now_ns)
{
    return (patience->until_ns > now_ns) ? patience->until_ns - now_ns : 0;
}
