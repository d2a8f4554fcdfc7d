/* The group of ranks and its memory; what is in it: coll_values.c. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/coll_group.h"
#include "firmware-tests/support/link_watch.h"
#include "ops/ops.h"

#define GUARD_BYTES 64u
#define GUARD 0xa5
#define WATCHED_MAX 40u /* ranks; with more, looking at all that is under way takes too long */

const struct coll_pair coll_pairs[COLL_PAIRS] = {
    {&gf_coll_ring, GF_COLL_ALLREDUCE},     {&gf_coll_ring, GF_COLL_REDUCE_SCATTER},
    {&gf_coll_ring, GF_COLL_ALLGATHER},     {&gf_coll_halving, GF_COLL_ALLREDUCE},
    {&gf_coll_doubling, GF_COLL_ALLREDUCE}, {&gf_coll_doubling, GF_COLL_BARRIER},
    {&gf_coll_tree, GF_COLL_ALLREDUCE},     {&gf_coll_tree, GF_COLL_BROADCAST},
    {&gf_coll_server, GF_COLL_ALLREDUCE},
};

static void *take(size_t size_bytes)
{
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, 64, size_bytes ? size_bytes : 64), 0);
    memset(memory, GUARD, size_bytes);
    return memory;
}

#define FLAG_RANKS COLL_NODE_RANKS /* of direct */

static bool in_memory(const struct coll_case *c)
{
    return (c->kind == &gf_coll_direct) || (c->kind == &gf_coll_hierarchy);
}

static struct gf_direct *shared_of(struct coll_node *node)
{
    return (node->coll.kind == &gf_coll_hierarchy) ? &node->own.hierarchy.shared
                                                   : &node->own.direct;
}

/* Of direct: its area, then data and staging, each between guards and from a line on. */
static size_t region_at(const struct coll_group *group, const struct gf_coll_need *need, int which)
{
    size_t at = gf_direct_area_bytes(FLAG_RANKS);
    size_t bytes[2] = {group->c.elem_count * group->elem_bytes, need->staging_bytes};
    for (int i = 0; i < which; i++) at += (bytes[i] + 2 * GUARD_BYTES + 63) / 64 * 64;
    return at;
}

static void need_of(const struct coll_group *group, struct gf_coll_need *need_out)
{
    struct gf_coll_limits limits = {group->c.size, group->c.elem_count * group->elem_bytes,
                                    group->c.slice_bytes, group->c.window};
    group->c.kind->need(group->c.kind, &limits, need_out);
}

static bool is_staged(const struct coll_group *group, uint32_t index)
{
    return (group->c.staged & (1u << index % 32)) != 0;
}

static gf_mem take_guarded(struct coll_group *group, uint32_t index, int which, size_t size_bytes)
{
    struct coll_node *node = &group->nodes[index];
    node->memory_bytes[which] = size_bytes;
    if (in_memory(&group->c) && ((which == 1) || !is_staged(group, index))) {
        struct gf_coll_need need = {0};
        need_of(group, &need);
        node->memory[which] = node->link->region + region_at(group, &need, which);
        memset(node->memory[which], GUARD, size_bytes + 2 * GUARD_BYTES);
        return (gf_mem)(uintptr_t)(node->memory[which] + GUARD_BYTES);
    }
    node->memory[which] = node->taken[which] = take(size_bytes + 2 * GUARD_BYTES);
    return (gf_mem)(uintptr_t)(node->memory[which] + GUARD_BYTES);
}

/* ---- whoever touches what is under way ---- */

static bool may_begin(gf_mem data, size_t size_bytes, bool is_write)
{
    assert_true(link_watch_is_free(data, size_bytes, is_write));
    return true;
}
static const struct link_watch nobody_beside = {.begin = may_begin};

/* Any reduction: dst is written, src is read. */
static void reduce_look(gf_mem dst, gf_mem src, size_t size_bytes)
{
    assert_true(link_watch_is_free(dst, size_bytes, true) &&
                link_watch_is_free(src, size_bytes, false));
}

static gf_status sum_look(struct gf_queue *queue, gf_mem dst, gf_mem src, gf_type type,
                          uint64_t elem_count, uint64_t base, struct gf_check *check)
{
    reduce_look(dst, src, elem_count * gf_type_size_bytes(type));
    return gf_element_ops_best()->sum(queue, dst, src, type, elem_count, base, check);
}

static gf_status sum_n_look(struct gf_queue *queue, const gf_mem *dst, uint32_t dst_count,
                            const gf_mem *src, uint32_t src_count, gf_type type,
                            uint64_t elem_count, uint64_t base, struct gf_check *check,
                            struct gf_check *sources)
{
    for (uint32_t i = 0; i < dst_count * src_count; i++)
        reduce_look(dst[i / src_count], src[i % src_count], elem_count * gf_type_size_bytes(type));
    return gf_element_ops_best()->sum_n(queue, dst, dst_count, src, src_count, type, elem_count,
                                        base, check, sources);
}

static gf_status copy_look(struct gf_queue *queue, gf_mem dst, gf_mem src, uint64_t size_bytes)
{
    reduce_look(dst, src, size_bytes);
    return gf_element_ops_best()->copy(queue, dst, src, size_bytes);
}

static const struct gf_element_ops *looking_ops(void)
{
    static struct gf_element_ops ops;
    ops = *gf_element_ops_best();
    ops.sum_n = sum_n_look;
    ops.sum = sum_look;
    ops.copy = copy_look;
    return &ops;
}

static gf_status reduce_xor(void *arg, gf_mem dst, gf_mem src, uint64_t elem_count)
{
    struct coll_node *node = arg;
    unsigned char *to = (unsigned char *)(uintptr_t)dst;
    const unsigned char *from = (const unsigned char *)(uintptr_t)src;
    node->reduced_elems += elem_count;
    reduce_look(dst, src, elem_count * node->coll.plan.reduce_elem_bytes);
    for (size_t i = 0; i < elem_count * node->coll.plan.reduce_elem_bytes; i++) to[i] ^= from[i];
    return GF_OK;
}

/* All to all, as often as one of them is not there yet. */
static void links_connect(struct coll_group *group)
{
    bool all = false;
    for (uint32_t turn = 0; !all; turn++) {
        assert_in_range(turn, 0, 1000000);
        all = true;
        for (uint32_t n = 0; n < group->c.size * group->c.size; n++) {
            unsigned char endpoint[2048];
            size_t endpoint_bytes = 0;
            uint32_t i = n / group->c.size;
            uint32_t rank = group->c.ranks ? group->c.ranks[i] : i;
            struct gf_link *link = group->nodes[i].link;
            struct gf_link *peer = group->nodes[n % group->c.size].link;
            gf_status status;
            if (link == peer) continue;
            assert_int_equal(link->driver->endpoint(link, endpoint, &endpoint_bytes), GF_OK);
            status = peer->driver->connect(peer, rank, endpoint, endpoint_bytes);
            assert_in_range(status, GF_OK, GF_AGAIN);
            all = all && (status == GF_OK);
        }
    }
}

static void links_open(struct coll_group *group)
{
    for (uint32_t i = 0; i < group->c.size; i++) {
        struct coll_node *node = &group->nodes[i];
        uint32_t rank = group->c.ranks ? group->c.ranks[i] : i;
        struct gf_drivers drivers = *gf_sim_drivers(group->sim, rank);
        struct gf_fault fault = {0};
        struct gf_link_setup setup = {
            .rank = rank,
            .world = group->rank_count,
            .ranks_max = group->rank_count,
            .requests_max = 2 * group->c.window,
            .message_bytes_max = group->c.slice_bytes,
            .region_bytes = group->region_bytes,
        };
        if (group->links != NULL) {
            drivers.link = real_links_driver();
            drivers.link_arg = real_links_arg(group->links, rank);
        }
        setup.arg = drivers.link_arg;
        group->node_of_rank[rank] = i;
        node->link_state = take(drivers.link->state_bytes(&setup));
        assert_int_equal(drivers.link->open(&setup, node->link_state, &node->link, &fault), GF_OK);
        if (group->c.size <= WATCHED_MAX)
            node->link->driver = link_watch(node->link->driver, &nobody_beside);
    }
    links_connect(group);
}

/* Nodes of ranks that follow each other. */
static void nodes_set(struct coll_group *group, uint32_t index)
{
    struct coll_node *node = &group->nodes[index];
    struct gf_coll_nodes *nodes = &node->nodes;
    if (group->c.kind != &gf_coll_hierarchy) return;
    *nodes = (struct gf_coll_nodes){.local = node->local,
                                    .across = node->across,
                                    .owners = UINT32_MAX,
                                    .halving_max_bytes = group->c.halving_max_bytes};
    for (uint32_t n = 0, first = 0; (n < 8) && (group->c.node_ranks[n] > 0);
         first += group->c.node_ranks[n++]) {
        uint32_t ranks = group->c.node_ranks[n];
        nodes->node_count++;
        if (ranks < nodes->owners) nodes->owners = ranks;
        if ((index < first) || (index >= first + ranks)) continue;
        nodes->node_index = n;
        nodes->local_size = ranks;
        nodes->local_index = index - first;
        for (uint32_t i = 0; i < ranks; i++) node->local[i] = first + i;
    }
    for (uint32_t n = 0, first = 0; n < nodes->node_count; first += group->c.node_ranks[n++])
        node->across[n] = first + nodes->local_index;
    node->own.hierarchy.nodes = nodes;
}

void coll_group_open(struct coll_group *group, const struct coll_case *c,
                     const struct gf_sim_setup *sim)
{
    struct gf_sim_setup setup = sim ? *sim : (struct gf_sim_setup){0};
    *group = (struct coll_group){.c = *c, .rank_count = c->ranks ? 2 * c->size : c->size};
    setup.world = group->rank_count;
    if (c->kind == &gf_coll_direct) setup.ranks_per_node = group->rank_count;
    if (c->kind == &gf_coll_hierarchy)
        memcpy(setup.node_ranks, c->node_ranks, sizeof setup.node_ranks);
    group->elem_bytes = c->reduce_elem_bytes       ? c->reduce_elem_bytes
                        : (c->type == GF_TYPE_F32) ? 4
                                                   : 2;
    group->sim = gf_sim_create(&setup);
    group->links = real_links_create(&setup);
    group->nodes = calloc(c->size, sizeof *group->nodes);
    group->node_of_rank = malloc(group->rank_count * sizeof *group->node_of_rank);
    assert_true((group->sim != NULL) && (group->nodes != NULL) && (group->node_of_rank != NULL));
    memset(group->node_of_rank, 0xff, group->rank_count * sizeof *group->node_of_rank);
    if (in_memory(c)) {
        struct gf_coll_need need = {0};
        need_of(group, &need);
        group->region_bytes = region_at(group, &need, 2);
    }
    links_open(group);

    for (uint32_t i = 0; i < c->size; i++) {
        struct coll_node *node = &group->nodes[i];
        struct gf_coll *coll = &node->coll;
        struct gf_coll_need need = {0};
        size_t req_bytes = node->link->driver->req_size_bytes;
        need_of(group, &need);
        *coll = (struct gf_coll){
            .kind = c->kind,
            .link = node->link,
            .ops = looking_ops(),
            .plan.collective = c->collective,
            .plan.root = c->root,
            .ranks = c->ranks,
            .size = c->size,
            .index = i,
            .plan.type = c->type,
            .plan.elem_count = c->elem_count,
            .timeout_ns = COLL_TIMEOUT_NS,
            .slice_bytes = c->slice_bytes,
            .window = c->window,
            .check = &node->check,
            .staging_bytes = need.staging_bytes,
            .msg_count = need.msg_count,
            .own = {&node->own.flow},
        };
        if (in_memory(c))
            *shared_of(node) = (struct gf_direct){.region_bytes = group->region_bytes,
                                                  .flag_ranks = FLAG_RANKS,
                                                  .small_bytes = c->small_bytes};
        nodes_set(group, i);
        coll->plan.data = take_guarded(group, i, 0, c->elem_count * group->elem_bytes);
        coll->staging = take_guarded(group, i, 1, need.staging_bytes);
        coll->msgs = calloc(need.msg_count + 1, sizeof *coll->msgs);
        node->requests = take(need.msg_count * req_bytes + 1);
        assert_non_null(coll->msgs);
        for (uint32_t m = 0; m < need.msg_count; m++)
            coll->msgs[m].req = (struct gf_req *)((unsigned char *)node->requests + m * req_bytes);
        if (c->reduce_elem_bytes) {
            coll->plan.reduce = reduce_xor;
            coll->plan.reduce_arg = node;
            coll->plan.reduce_elem_bytes = c->reduce_elem_bytes;
        }
        node->status = GF_OK;
        memset(coll_group_data(group, i), 0, coll_group_data_bytes(group));
    }
}

void coll_group_start(struct coll_group *group, uint32_t index, uint64_t step)
{
    struct coll_node *node = &group->nodes[index];
    node->check = (struct gf_check){0, UINT64_MAX};
    node->coll.plan.tag = gf_tag(1, step, 7);
    /* as another algorithm leaves it */
    memset(&shared_of(node)->state, 0x5a, sizeof(struct gf_direct_state));
    if (in_memory(&group->c)) shared_of(node)->order = step;
    node->status = GF_AGAIN;
    gf_status status = gf_coll_start(&node->coll, gf_sim_now_ns(group->sim));
    if (status < 0) gf_coll_fail(&node->coll, status);
}

static uint64_t node_progress(const struct coll_node *node)
{
    const struct gf_flow *flow = &node->own.flow;
    if ((node->coll.kind == &gf_coll_direct) || (node->coll.kind == &gf_coll_hierarchy)) {
        uint64_t sum = 0;
        for (size_t w = 0; w < sizeof node->own.words / sizeof node->own.words[0]; w++)
            sum = sum * 31 + node->own.words[w];
        return sum + node->coll.state;
    }
    return flow->sent.count + flow->send_done.count + flow->recvd.count + flow->recv_done.count +
           node->coll.state;
}

void coll_group_poll(struct coll_group *group, uint32_t index)
{
    struct coll_node *node = &group->nodes[index];
    uint64_t before;
    if (node->status != GF_AGAIN) return;
    do {
        before = node_progress(node);
        (void)node->link->driver->progress(node->link);
        node->status = gf_coll_poll(&node->coll, gf_sim_now_ns(group->sim));
    } while ((node->status == GF_AGAIN) && (node_progress(node) != before));
}

/* Over a real link all are looked at in turn; no deadline passes. */
static void run_real(struct coll_group *group)
{
    const uint64_t since_ns = gf_clock_monotonic.now_ns(NULL);
    for (uint32_t under_way = 1; under_way > 0;) {
        under_way = 0;
        for (uint32_t i = 0; i < group->c.size; i++) {
            coll_group_poll(group, i);
            (void)group->nodes[i].link->driver->progress(group->nodes[i].link);
            under_way += group->nodes[i].status == GF_AGAIN;
        }
        assert_true(gf_clock_monotonic.now_ns(NULL) - since_ns <
                    UINT64_C(100000000000)); /* hangs */
    }
}

void coll_group_run(struct coll_group *group)
{
    uint32_t under_way;
    if (group->links != NULL) {
        run_real(group);
        assert_int_equal(link_watch_under_way(), 0);
        return;
    }
    for (uint32_t quiet = 0;;) {
        uint32_t rank;
        while ((rank = gf_sim_woken_next(group->sim)) != GF_RANK_NONE) {
            if (group->node_of_rank[rank] < group->c.size)
                coll_group_poll(group, group->node_of_rank[rank]);
        }
        if (gf_sim_advance(group->sim)) continue;
        /* Nothing happens by itself any more: deadlines, and posts that found no room. */
        under_way = 0;
        for (uint32_t i = 0; i < group->c.size; i++) {
            struct coll_node *node = &group->nodes[i];
            coll_group_poll(group, i);
            if (group->may_reset && (node->coll.state == GF_COLL_DRAIN)) {
                uint32_t rank = group->c.ranks ? group->c.ranks[i] : i;
                assert_int_equal(node->link->driver->reset(node->link, 2, rank, group->rank_count),
                                 GF_OK);
            }
            under_way += group->nodes[i].status == GF_AGAIN;
        }
        if (under_way == 0) break;
        assert_in_range(quiet++, 0, 40); /* hangs */
        gf_sim_advance_to(group->sim, gf_sim_now_ns(group->sim) + COLL_TIMEOUT_NS / 4);
    }
    assert_int_equal(gf_sim_counts(group->sim)->requests_posted,
                     gf_sim_counts(group->sim)->requests_ended);
    assert_int_equal(link_watch_under_way(), 0);
}

void coll_group_close(struct coll_group *group)
{
    for (uint32_t i = 0; i < group->c.size; i++) {
        struct coll_node *node = &group->nodes[i];
        for (int which = 0; which < 2; which++) {
            const unsigned char *memory = node->memory[which];
            for (size_t g = 0; g < GUARD_BYTES; g++) {
                assert_int_equal(memory[g], GUARD);
                assert_int_equal(memory[GUARD_BYTES + node->memory_bytes[which] + g], GUARD);
            }
        }
    }
    /* memory may lie in a region, which goes with its link */
    for (uint32_t i = 0; i < group->c.size; i++) {
        struct coll_node *node = &group->nodes[i];
        node->link->driver->close(node->link);
        free(node->link_state);
        free(node->taken[0]);
        free(node->taken[1]);
        free(node->coll.msgs);
        free(node->requests);
    }
    gf_sim_destroy(group->sim);
    real_links_destroy(group->links);
    free(group->node_of_rank);
    free(group->nodes);
}

void *coll_group_data(const struct coll_group *group, uint32_t index)
{
    return group->nodes[index].memory[0] + GUARD_BYTES;
}

size_t coll_group_data_bytes(const struct coll_group *group)
{
    return group->nodes[0].memory_bytes[0];
}

void coll_group_run_once(const struct coll_case *c, const struct gf_sim_setup *sim, bool exact)
{
    if (!real_links_takes(c->size)) return;
    COLL_GROUP_OPEN(group, c, sim);
    coll_group_fill(&group, exact);
    coll_group_go(&group, 3);
    coll_group_expect(&group, GF_OK);
    coll_group_check(&group);
}

void coll_group_go(struct coll_group *group, uint64_t step)
{
    for (uint32_t i = 0; i < group->c.size; i++) coll_group_start(group, i, step);
    coll_group_run(group);
}

void coll_group_expect(const struct coll_group *group, gf_status status)
{
    for (uint32_t i = 0; i < group->c.size; i++) assert_int_equal(group->nodes[i].status, status);
}

bool coll_group_same_inside(const struct coll_case *c, const struct gf_sim_setup *sim,
                            uint32_t staged)
{
    enum { MORE = 1233, SHIFT = 177 };
    struct coll_case longer = *c;
    longer.elem_count += MORE;
    longer.staged = staged;
    COLL_GROUP_OPEN(alone, c, sim);
    COLL_GROUP_OPEN(inside, &longer, sim);
    size_t at = SHIFT * alone.elem_bytes;
    size_t bytes = coll_group_data_bytes(&alone);
    bool same = true;
    coll_group_fill(&alone, false);
    coll_group_fill(&inside, false);
    for (uint32_t i = 0; i < c->size; i++)
        memcpy((char *)coll_group_data(&inside, i) + at, coll_group_data(&alone, i), bytes);
    coll_group_go(&alone, 0);
    coll_group_go(&inside, 0);
    for (uint32_t i = 0; i < c->size; i++)
        same = same && (memcmp((char *)coll_group_data(&inside, i) + at, coll_group_data(&alone, 0),
                               bytes) == 0);
    return same;
}

void coll_group_bad(struct coll_group *group, uint64_t *count_out, uint64_t *first_out)
{
    *count_out = 0;
    *first_out = UINT64_MAX;
    coll_group_go(group, 0);
    coll_group_expect(group, GF_OK);
    for (uint32_t i = 0; i < group->c.size; i++) {
        const struct gf_check *check = &group->nodes[i].check;
        *count_out += check->bad_count;
        if (check->bad_first < *first_out) *first_out = check->bad_first;
        assert_int_equal(check->bad_count == 0, check->bad_first == UINT64_MAX);
    }
}
