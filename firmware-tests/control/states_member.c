/* A member's state from inside: what is saved, and what of it matters. */
#include "firmware-tests/control/states.h"

#include "lib/control/member_state.h"

size_t states_member_bytes(const struct gf_member *member, size_t *skip_at_out,
                           size_t *skip_bytes_out)
{
    *skip_at_out = offsetof(struct gf_member, scratch);
    *skip_bytes_out = sizeof member->scratch;
    return gf_member_state_bytes(&member->setup);
}

/* A time as a span, as far as any rule looks. */
#define SECOND UINT64_C(1000000000)

static uint64_t span(uint64_t now_ns, uint64_t at_ns)
{
    const uint64_t most_ns = UINT64_C(40000000000);
    if (at_ns == 0) return 1;
    if (at_ns > now_ns) return at_ns - now_ns + most_ns;
    return (now_ns - at_ns < most_ns) ? now_ns - at_ns : most_ns;
}

static uint64_t bytes_hash(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    while (bytes-- > 0) hash = (hash ^ *at++) * UINT64_C(0x100000001b3);
    return hash;
}

/* Nothing asks whether it is longer ago than `most_ns`. */
static uint64_t within(uint64_t now_ns, uint64_t at_ns, uint64_t most_ns)
{
    uint64_t since_ns = span(now_ns, at_ns);
    return (since_ns < most_ns) ? since_ns : most_ns;
}

uint64_t states_member_hash(const struct gf_member *member, uint64_t now_ns)
{
    const struct gf_member *m = member;
    const uint64_t words[] = {
        m->state,
        (m->state == GF_MEMBER_WORKS) ? 0 : within(now_ns, m->since_ns, 5 * SECOND),
        m->connected | m->taken << 1 | m->taken_here << 2 | m->dials << 3 | m->died << 4 |
            m->found << 5 | m->endpoint_due << 6 | m->unsent << 7,
        m->dial_ns > now_ns,
        m->taken_here ? 0 : within(now_ns, m->lost_ns, 14 * SECOND),
        within(now_ns, m->heard_ns, 5 * SECOND),
        m->pending,
        m->inquiry,
        m->awaits.count,
        within(now_ns, m->status_ns, SECOND),
        m->closed.rank,
        m->closed.step,
        m->reported.step,
        m->reported.sequence,
        m->report.step,
        m->report.sequence,
        m->report.waits_for,
        m->fault.ends,
        m->fault.error.code,
        m->fault.error.step,
        m->error.code,
        m->error.peer,
        m->refusal.code,
        m->endpoint_bytes,
        m->endpoint_sent,
        m->go_rank,
        m->go_at};
    uint64_t hash = bytes_hash(1, words, sizeof words);
    hash = bytes_hash(hash, &m->ready, sizeof m->ready);
    hash = bytes_hash(hash, &m->standing, sizeof m->standing);
    hash = bytes_hash(hash, &m->generation, sizeof m->generation);
    return bytes_hash(hash, &m->listed, sizeof m->listed);
}
