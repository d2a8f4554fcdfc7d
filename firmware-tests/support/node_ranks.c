/* See node_ranks.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/node_ranks.h"

#include <sys/wait.h>

#include "drivers/base/clock.h"

#define TRIES 1000000u

uint64_t node_now_ns(void)
{
    return gf_clock_monotonic.now_ns(NULL);
}

static void log_keep(void *user, gf_log_level level, const char *text)
{
    struct node_rank *one = user;
    size_t used = strlen(one->log);
    (void)snprintf(one->log + used, sizeof one->log - used, "[%d] %s\n", (int)level, text);
}

void node_ranks_begin(struct node_rank *ranks, uint32_t world, size_t region_bytes,
                      uint32_t requests_max)
{
    memset(ranks, 0, world * sizeof *ranks);
    for (uint32_t r = 0; r < world; r++) {
        ranks[r].rank = r;
        ranks[r].setup = (struct gf_link_setup){.rank = r,
                                                .world = world,
                                                .ranks_max = world,
                                                .generation = 1,
                                                .requests_max = requests_max,
                                                .message_bytes_max = 1u << 20,
                                                .region_bytes = region_bytes,
                                                .log = {log_keep, &ranks[r]}};
    }
}

gf_status node_rank_open(struct node_rank *one)
{
    size_t bytes = gf_node_state_bytes(&one->setup);
    one->state = aligned_alloc(64, (bytes + 63) / 64 * 64);
    return gf_node_open(&one->setup, one->state, &one->link, &one->node);
}

void node_rank_close(struct node_rank *one)
{
    gf_node_close(one->node);
    one->node = NULL;
    free(one->state);
    one->state = NULL;
}

bool node_ranks_connect(struct node_rank *ranks, uint32_t world)
{
    for (uint32_t r = 0; r < world; r++) gf_node_offer_put(ranks[r].node, ranks[r].offer);
    for (uint32_t tries = 0; tries < TRIES; tries++) {
        bool again = false;
        for (uint32_t r = 0; r < world; r++)
            for (uint32_t peer = 0; peer < world; peer++)
                again = (gf_node_connect(ranks[r].node, peer, ranks[peer].offer,
                                         sizeof ranks[peer].offer, node_now_ns()) == GF_AGAIN) ||
                        again;
        if (!again) return true;
    }
    return false;
}

void node_ranks_open(struct node_rank *ranks, uint32_t world, size_t region_bytes,
                     uint32_t requests_max)
{
    node_ranks_begin(ranks, world, region_bytes, requests_max);
    for (uint32_t r = 0; r < world; r++) assert_int_equal(node_rank_open(&ranks[r]), GF_OK);
    assert_true(node_ranks_connect(ranks, world));
    for (uint32_t r = 0; r < world; r++)
        for (uint32_t peer = 0; peer < world; peer++)
            assert_true((r == peer) || gf_node_has(ranks[r].node, peer));
}

void node_ranks_close(struct node_rank *ranks, uint32_t world)
{
    for (uint32_t r = 0; r < world; r++) node_rank_close(&ranks[r]);
}

gf_status node_ranks_end(struct node_rank *ranks, uint32_t world, uint32_t rank, uint32_t req)
{
    gf_status status = GF_AGAIN;
    for (uint32_t tries = 0; (tries < TRIES) && (status == GF_AGAIN); tries++) {
        for (uint32_t r = 0; r < world; r++) (void)gf_node_progress(ranks[r].node);
        status = gf_node_test(ranks[rank].node, &ranks[rank].reqs[req]);
    }
    return status;
}

void node_send(struct node_rank *ranks, uint32_t from, uint32_t to, uint64_t tag, const void *at,
               size_t bytes, uint32_t req)
{
    assert_int_equal(
        gf_node_send_post(ranks[from].node, to, tag, at, bytes, &ranks[from].reqs[req]), GF_OK);
}

void node_recv(struct node_rank *ranks, uint32_t to, uint32_t from, uint64_t tag, void *at,
               size_t bytes, uint32_t req)
{
    assert_int_equal(gf_node_recv_post(ranks[to].node, from, tag, at, bytes, &ranks[to].reqs[req]),
                     GF_OK);
}

void node_progress(struct node_rank *ranks, uint32_t world)
{
    for (int i = 0; i < 100; i++)
        for (uint32_t r = 0; r < world; r++) (void)gf_node_progress(ranks[r].node);
}

gf_status node_test(struct node_rank *ranks, uint32_t rank, uint32_t req)
{
    return gf_node_test(ranks[rank].node, &ranks[rank].reqs[req]);
}

void node_fill(unsigned char *to, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] = (unsigned char)((i * 2654435761u + seed * 40503u) >> 11);
}

bool node_filled(const unsigned char *from, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        if (from[i] != (unsigned char)((i * 2654435761u + seed * 40503u) >> 11)) return false;
    return true;
}

int node_child_ended(pid_t child)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

gf_status node_meet(struct node_rank *one, int pipes[2][2])
{
    const uint32_t own = one->rank;
    const uint32_t peer = 1 - own;
    const size_t bytes = sizeof one->offer;
    unsigned char theirs[GF_NODE_OFFER_BYTES];
    gf_status status = node_rank_open(one);
    if (status != GF_OK) return status;
    gf_node_offer_put(one->node, one->offer);
    if ((write(pipes[own][1], one->offer, bytes) != (ssize_t)bytes) ||
        (read(pipes[peer][0], theirs, bytes) != (ssize_t)bytes))
        return GF_ERR_SYSTEM;
    do status = gf_node_connect(one->node, peer, theirs, bytes, node_now_ns());
    while (status == GF_AGAIN);
    return status;
}

void node_pipes_close(int pipes[2][2])
{
    for (int i = 0; i < 4; i++) (void)close(pipes[i / 2][i % 2]);
}
