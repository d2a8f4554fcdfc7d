/* Messages of the socket link by random plans: sizes, orders, credit, streams and buffers are
 * rolled from a seed.
 * suite: slow */
#include "drivers/tcp/link_tcp_state.h"
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/tcp_ranks.h"

#define PLAN_MAX 400

struct planned {
    uint32_t from, to;
    uint64_t tag;
    uint32_t bytes;
    uint32_t send_req, recv_req; /* TCP_NONE: not posted yet; ENDED */
    unsigned char *sent, *got;
};
#define ENDED (TCP_NONE - 1)

static uint64_t dice;
static uint32_t roll(uint32_t below)
{
    dice = dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(dice >> 33) % below;
}

static uint32_t size_rolled(void)
{
    switch (roll(8)) {
    case 0: return 0;
    case 1: return roll(16);
    case 2: return 900 + roll(300);
    case 3: return 60000 + roll(10000);
    case 4: return roll(400000);
    default: return roll(5000);
    }
}

static uint32_t req_free(const bool *taken)
{
    for (uint32_t i = 0; i < TCP_REQS; i++) {
        if (!taken[i]) return i;
    }
    return TCP_NONE;
}

/* All messages of a plan, posted at random and in any order on both sides. Tags are those of the
 * plan's rows: none twice under way. Some receives are cancelled whose message never comes. */
static void plan_run(uint64_t seed)
{
    static struct planned plan[PLAN_MAX];
    static bool taken[TCP_RANKS][TCP_REQS];
    static const uint32_t credits[] = {1024, 4096, 20000, 0};
    uint32_t left;
    uint32_t count;
    uint64_t since_ns = tcp_now_ns();
    memset(taken, 0, sizeof taken);
    tcp_begin();
    dice = seed;
    tcp_loopback = roll(2) == 0;
    tcp_buffer_bytes = (roll(2) == 0) ? 0 : (tcp_loopback ? 65536 : 4096 << roll(4));
    tcp_setup.streams = 1 + roll(3);
    tcp_setup.checksum = roll(2) == 0;
    tcp_setup.credit_bytes = credits[roll(LENGTH(credits))];
    count = 50 + roll(PLAN_MAX - 50);
    tcp_ranks_open(2 + roll(2));
    for (uint32_t i = 0; i < count; i++) {
        struct planned *row = &plan[i];
        *row = (struct planned){.from = roll(tcp_world),
                                .tag = i,
                                .bytes = size_rolled(),
                                .send_req = TCP_NONE,
                                .recv_req = TCP_NONE};
        row->to = (row->from + 1 + roll(tcp_world - 1)) % tcp_world;
        row->sent = malloc(row->bytes + 1);
        row->got = malloc(row->bytes + 1);
        tcp_fill(row->sent, row->bytes, seed + i);
        memset(row->got, 0, row->bytes + 1);
    }
    /* What may be posted is a window of the plan; a window that moves on by its oldest row cannot
     * lock up. */
    for (left = 2 * count; left > 0;) {
        uint32_t oldest = 0;
        while ((plan[oldest].send_req == ENDED) && (plan[oldest].recv_req == ENDED)) oldest++;
        for (int tries = 0; tries < 6; tries++) {
            uint32_t i = oldest + roll(20);
            struct planned *row = &plan[(i < count) ? i : oldest];
            bool sends = roll(2) == 0;
            uint32_t rank = sends ? row->from : row->to;
            uint32_t *mine = sends ? &row->send_req : &row->recv_req;
            uint32_t req = req_free(taken[rank]);
            if ((*mine != TCP_NONE) || (req == TCP_NONE)) continue;
            if (sends)
                assert_int_equal(tcp_send(rank, row->to, req, row->tag, row->sent, row->bytes),
                                 GF_OK);
            else
                assert_int_equal(tcp_recv(rank, row->from, req, row->tag, row->got, row->bytes),
                                 GF_OK);
            *mine = req;
            taken[rank][req] = true;
        }
        if (roll(4) == 0) { /* the message of this one never comes */
            uint32_t rank = roll(tcp_world);
            uint32_t req = req_free(taken[rank]);
            if (req != TCP_NONE) {
                assert_int_equal(tcp_recv(rank, (rank + 1) % tcp_world, req, 100000 + roll(50),
                                          tcp_in[rank][7], size_rolled()),
                                 GF_OK);
                for (uint32_t t = roll(3); t > 0; t--)
                    (void)gf_link_tcp.progress(tcp_ranks[rank].link);
                gf_link_tcp.cancel(tcp_ranks[rank].link, &tcp_ranks[rank].reqs[req]);
                assert_int_equal(tcp_end(rank, req), GF_ERR_ABORTED);
            }
        }
        for (uint32_t t = roll(5); t > 0; t--)
            (void)gf_link_tcp.progress(tcp_ranks[roll(tcp_world)].link);
        for (uint32_t i = 0; i < count; i++) {
            struct planned *row = &plan[i];
            for (int side = 0; side < 2; side++) {
                uint32_t *mine = (side == 0) ? &row->send_req : &row->recv_req;
                uint32_t rank = (side == 0) ? row->from : row->to;
                if ((*mine >= ENDED) || (tcp_answer(rank, *mine) == GF_AGAIN)) continue;
                assert_int_equal(tcp_answer(rank, *mine), GF_OK);
                taken[rank][*mine] = false;
                *mine = ENDED;
                left--;
            }
        }
        if (tcp_now_ns() - since_ns > UINT64_C(60000000000))
            fail_msg("seed %llu stands still", (unsigned long long)seed);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (memcmp(plan[i].sent, plan[i].got, plan[i].bytes) != 0)
            fail_msg("seed %llu: other bytes in message %u", (unsigned long long)seed, i);
        free(plan[i].sent);
        free(plan[i].got);
    }
    tcp_progress(200);
    for (uint32_t rank = 0; rank < tcp_world;
         rank++) { /* nothing is left of it in what each remembers of the other */
        const struct gf_tcp_link *tcp = (const struct gf_tcp_link *)tcp_ranks[rank].link;
        assert_int_equal(tcp->requests_under_way, 0);
        for (uint32_t id = 0; id < tcp_world; id++) {
            const struct gf_tcp_peer *peer = &tcp->peers[id];
            if (id == rank) continue;
            assert_int_equal(peer->used, peer->given);
            assert_int_equal(peer->early_count, 0);
            assert_int_equal(peer->unexpected_first, TCP_NONE);
            assert_null(peer->receives.first);
        }
    }
    tcp_ranks_close();
}

TEST(messages_at_random_are_those_of_the_plan)
{
    for (uint64_t seed = 1; seed <= 60; seed++) plan_run(seed);
}
