/* The end of opening: everything that a link takes lazily is taken now. UCX grows its pools in the first exchanges and
 * whenever more messages are under way than ever before, so every slot floods its right neighbour with a full window
 * before that has posted a receive, and then each kind of operation runs through all slots at once. */
#include <stdio.h>

#include "context.h"

#define ROUNDS 8u
#define PAGES_A_TURN 256u

/* Each slot's staging holds two slices at least (layout.c): sent from the first, received into the second. What is in
 * them does not matter. */
static gf_status flood(gf_context *gf, bool send)
{
    uint32_t window = gf->config.link.window, peer = send ? 1 : gf->world - 1;
    size_t slice = gf->config.exchange.slice_bytes;
    while (gf->warm_step < window * gf->slot_count) {
        uint32_t s = gf->warm_step / window, m = gf->warm_step % window;
        struct gf_coll *coll = &gf->slots[s].coll;
        uint64_t tag = gf_tag(gf->epoch, 0, GF_TAG_BUFFER_OTHER - 1 - s);
        struct gf_coll_msg *msg = &coll->msgs[(send ? 0 : window) + m];
        uint32_t to = gf_seat_of(gf, (gf->rank + peer) % gf->world);
        gf_status status =
            send ? gf->link->driver->send_post(gf->link, to, gf_tag_move(tag, m), coll->staging, slice, msg->req)
                 : gf->link->driver->recv_post(gf->link, to, gf_tag_move(tag, m), coll->staging + slice, slice,
                                               msg->req);
        if (status != GF_OK) return status;
        gf->warm_step++;
    }
    return GF_OK;
}

static gf_status flood_test(gf_context *gf)
{
    uint32_t window = gf->config.link.window;
    while (gf->warm_step < 2 * window * gf->slot_count) {
        uint32_t s = gf->warm_step / (2 * window), m = gf->warm_step % (2 * window);
        gf_status status = gf->link->driver->test(gf->link, gf->slots[s].coll.msgs[m].req);
        if (status != GF_OK) return status;
        gf->warm_step++;
    }
    return GF_OK;
}

/* Round r: an allreduce of a size that takes its own algorithm, in every slot, on disjoint zeroes of the pool. */
static gf_status round_post(gf_context *gf, uint32_t round)
{
    const uint64_t sizes[] = {8, gf->config.exchange.doubling_max_bytes, gf->config.exchange.halving_max_bytes,
                              UINT64_MAX};
    gf_mem pool = gf->on_device ? gf->wire : gf->gradient; /* collectives work on host memory */
    uint64_t pool_bytes = gf->on_device ? gf->pool.elem_count * sizeof(float) : gf->pool.gradient_bytes;
    uint64_t share = pool_bytes / gf->slot_count / GF_ALIGN_BYTES * GF_ALIGN_BYTES;
    uint64_t bytes = sizes[round % 4],
             slices = (uint64_t)gf->config.exchange.slice_bytes * gf->config.link.window * gf->world;
    if (bytes > share) bytes = share;
    if (bytes > slices) bytes = slices; /* a full window in every block is enough */
    for (uint32_t s = 0; s < gf->slot_count && s < GF_REQUESTS_MAX; s++) {
        gf_status status = gf_request_post(gf, GF_OPERATION_JOIN, GF_COLL_ALLREDUCE, pool + s * share,
                                           bytes / sizeof(float), GF_TYPE_F32, 0, &gf->warm_requests[s]);
        GF_ASSERT(status == GF_OK);
    }
    return GF_OK;
}

/* GF_OK once all requests that were posted have ended; their places are free again. */
static gf_status requests_ended(gf_context *gf)
{
    gf_status status = gf_request_turn(gf, NULL);
    if ((status < 0) || (gf->phase != GF_PHASE_WARM)) return status;
    if (!gf_requests_idle(gf)) return GF_AGAIN;
    for (uint32_t i = 0; i < GF_REQUESTS_MAX; i++) gf->requests[i].state = GF_REQUEST_FREE;
    return GF_OK;
}

/* A barrier that also counts which ranks share memory, and those that share cores. */
static void meet_post(gf_context *gf)
{
    gf_status status = gf_request_post(gf, GF_OPERATION_JOIN, GF_COLL_ALLREDUCE,
                                       (gf_mem)(uintptr_t)gf->met, GF_MET_COUNT, GF_TYPE_F32, 0, &gf->warm_requests[0]);
    GF_ASSERT(status == GF_OK);
}

static bool all_share(const gf_context *gf)
{
    return (gf->world <= GF_DIRECT_RANKS_MAX) && (gf->met[GF_MET_PAIRS] == (float)(gf->world * (gf->world - 1)));
}

/* Some share memory, not all: one more round, who with whom. False: it is of no meaning. auto leaves it where all ranks'
 * gradients go from devices straight to the wire: hierarchy would take them to host memory first. */
static bool nodes_post(gf_context *gf)
{
    bool by_name = gf->config.exchange.algorithm == GF_ALGORITHM_HIERARCHY;
    gf_status status;
    if ((gf->node_words.reach == NULL) || (!by_name && ((gf->met[GF_MET_PAIRS] == 0) || all_share(gf)))) return false;
    if (!by_name && (gf->met[GF_MET_WIRE] == (float)gf->world)) return false;
    status = gf_request_post(gf, GF_OPERATION_JOIN, GF_COLL_ALLREDUCE, (gf_mem)(uintptr_t)gf->node_words.reach,
                             GF_REACH_WORDS * (uint64_t)gf->world, GF_TYPE_F32, 0, &gf->warm_requests[0]);
    GF_ASSERT(status == GF_OK);
    return true;
}

static gf_status direct_refuse(gf_context *gf)
{
    char ranks[80] = "";
    uint32_t peer = GF_RANK_NONE;
    for (uint32_t r = 0, used = 0; (r < gf->world) && (used + 12 < sizeof ranks); r++) {
        if ((r == gf->rank) || (gf->link->driver->map(gf->link, gf_seat_of(gf, r)) != NULL)) continue;
        used += (uint32_t)snprintf(ranks + used, sizeof ranks - used, "%s%u", (used > 0) ? ", " : " with ranks ", r);
        if (peer == GF_RANK_NONE) peer = r;
    }
    if (peer == GF_RANK_NONE) (void)snprintf(ranks, sizeof ranks, " between other ranks than rank %u", gf->rank);
    return gf_fail(gf, GF_ERR_CONFIG, GF_OPERATION_JOIN, peer, GF_TENSOR_NONE,
                   "exchange.algorithm = direct: no shared memory%s; allowed are ranks of one node that have posix in "
                   "link.transports, elsewhere auto", ranks);
}

/* One more round where gradients lie on devices: whose memory is reached from where. */
static gf_status lend(gf_context *gf)
{
    gf->warm = GF_WARM_LEND;
    return gf_lent_begin(gf) ? GF_AGAIN : GF_OK;
}

/* What the link takes lazily was taken by messages; from here on they are needed only where memory is not shared. */
static gf_status warmed(gf_context *gf)
{
    gf->crowded = gf->met[GF_MET_CROWDED] > 0;
    gf_exchange_settle(gf, all_share(gf));
    gf->warm = GF_WARM_TOUCH;
    gf->warm_step = 0;
    gf->touched_bytes = 0;
    return ((gf->algorithm == GF_ALGORITHM_DIRECT) || gf->by_nodes) ? GF_AGAIN : GF_OK;
}

/* One look at each page of each peer's region, some a turn: there is no other moment at which nobody waits. */
static gf_status peers_touch(gf_context *gf)
{
    for (uint32_t pages = 0; gf->warm_step < gf->world; pages++) {
        gf_mem at = (gf_mem)(uintptr_t)gf->link->driver->map(gf->link, gf_seat_of(gf, gf->warm_step));
        struct gf_check ignored = {.bad_first = UINT64_MAX};
        if ((at == 0) || (gf->touched_bytes >= gf->region_bytes)) {
            gf->warm_step++;
            gf->touched_bytes = 0;
            continue;
        }
        if (pages == PAGES_A_TURN) return GF_AGAIN;
        if (gf->wire_ops->check(&gf->queue, at + gf->touched_bytes, GF_TYPE_F32, 1, 0, &ignored) < 0)
            return gf_device_failed(gf, GF_OPERATION_JOIN);
        gf->touched_bytes += GF_PAGE_BYTES;
    }
    return GF_OK;
}

gf_status gf_warm_poll(gf_context *gf, uint64_t now_ns)
{
    bool lazy = gf->link->driver->lazy && (gf->world > 1);
    gf_status status = gf_progress(gf, now_ns);
    if (status < 0) return status;
    switch (gf->warm) {
    case GF_WARM_FLOOD:
        if (lazy && ((status = flood(gf, true)) != GF_OK)) break;
        meet_post(gf);
        gf->warm = GF_WARM_MEET;
        gf->warm_step = 0;
        return GF_AGAIN;
    case GF_WARM_MEET:
        if ((status = requests_ended(gf)) != GF_OK) break;
        if (!all_share(gf) && (gf->config.exchange.algorithm == GF_ALGORITHM_DIRECT)) return direct_refuse(gf);
        gf->warm = nodes_post(gf) ? GF_WARM_NODES : GF_WARM_SINK;
        return ((gf->warm == GF_WARM_SINK) && !lazy) ? warmed(gf) : GF_AGAIN;
    case GF_WARM_NODES:
        if ((status = requests_ended(gf)) != GF_OK) break;
        if ((status = gf_nodes_settle(gf)) < 0) return status;
        if (gf->by_nodes) gf_exchange_settle(gf, all_share(gf)); /* its own messages warm up too */
        if (!lazy) return warmed(gf);
        gf->warm = GF_WARM_SINK;
        return GF_AGAIN;
    case GF_WARM_SINK:
        if ((status = flood(gf, false)) != GF_OK) break;
        gf->warm = GF_WARM_EMPTY;
        gf->warm_step = 0;
        return GF_AGAIN;
    case GF_WARM_EMPTY:
        if ((status = flood_test(gf)) != GF_OK) break;
        gf->warm = GF_WARM_ROUNDS;
        gf->warm_step = 0;
        return round_post(gf, 0) == GF_OK ? GF_AGAIN : GF_ERR_STATE;
    case GF_WARM_ROUNDS:
        if ((status = requests_ended(gf)) != GF_OK) break;
        if (++gf->warm_step < ROUNDS) {
            (void)round_post(gf, gf->warm_step);
            return GF_AGAIN;
        }
        return warmed(gf);
    case GF_WARM_TOUCH:
        gf->moved_ns = now_ns; /* nothing to wait for */
        if ((status = peers_touch(gf)) != GF_OK) break;
        return lend(gf);
    case GF_WARM_LEND:
        if ((status = requests_ended(gf)) != GF_OK) break;
        gf_lent_borrow(gf);
        gf->warm = GF_WARM_BORROW;
        return GF_AGAIN;
    case GF_WARM_BORROW:
        if ((status = requests_ended(gf)) != GF_OK) break;
        gf_lent_settle(gf);
        return GF_OK;
    }
    if (status == GF_AGAIN) return GF_AGAIN;
    if (gf->error.code != GF_OK) return gf->error.code;
    return gf_fail_fault(gf, &gf->link->fault, GF_OPERATION_JOIN);
}
