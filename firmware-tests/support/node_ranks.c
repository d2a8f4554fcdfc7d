/* See node_ranks.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/node_ranks.h"

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
