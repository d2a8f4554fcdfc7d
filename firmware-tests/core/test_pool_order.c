/* config.pool_order: one buffer without gaps in the trainer's own order, the same weights as
 * without it, and no byte of a gradient copied. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world.h"
#include "ops/ops.h"

#define RANKS 3u
#define TENSORS 6u
#define STEPS 4u

static const struct gf_tensor tensors[TENSORS] = {
    {.name = "head", .elem_count = 13, .flags = GF_TENSOR_NO_DECAY},
    {.name = "c", .elem_count = 1001},
    {.name = "none", .elem_count = 0},
    {.name = "b", .elem_count = 301},
    {.name = "a", .elem_count = 15003},
    {.name = "bias", .elem_count = 7, .flags = GF_TENSOR_NO_DECAY}};
static const uint32_t orders[][TENSORS] = {
    {0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, {4, 1, 3, 0, 2, 5}, {2, 3, 0, 5, 4, 1}};

static struct world_setup setup_of(const uint32_t *order, gf_optimizer optimizer)
{
    struct world_setup setup = {.world = RANKS, .tensors = tensors, .tensor_count = TENSORS};
    setup.config.pool_order = order;
    setup.config.optimizer.kind = optimizer;
    setup.config.optimizer.momentum = (optimizer < GF_OPTIMIZER_ADAMW) ? 0.5f : 0.0f;
    setup.config.optimizer.weight_decay = 0.25f;
    setup.config.optimizer.clip_norm = 100.0f;
    setup.config.exchange.fuse_bytes = 2048;
    setup.config.exchange.cut_bytes = 12288;
    setup.config.exchange.slice_bytes = 4096;
    return setup;
}

static void weights_make(struct world *w)
{
    for (uint32_t rank = 0; rank < RANKS; rank++)
        for (uint32_t t = 0; t < TENSORS; t++)
            for (uint64_t i = 0; i < tensors[t].elem_count; i++)
                ((float *)(uintptr_t)gf_weight(w->ranks[rank].gf, t))[i] =
                    (float)(t + 1) / (float)(i + 3);
}

static void steps_run(struct world *w)
{
    static const struct world_step forward = {.order = WORLD_FORWARD};
    weights_make(w);
    for (uint32_t step = 0; step < STEPS; step++) {
        world_step_ok(w, &forward);
        for (uint32_t rank = 0; rank < RANKS; rank++)
            assert_int_equal(gf_update(w->ranks[rank].gf, 0.125f), GF_OK);
    }
}

TEST(tensors_lie_in_the_order_asked_for_without_a_gap)
{
    for (size_t o = 0; o < LENGTH(orders); o++) {
        struct world_setup setup = setup_of(orders[o], GF_OPTIMIZER_SGD);
        gf_mem gradient;
        gf_mem weight;
        WORLD_OPEN(w, &setup);
        gradient = gf_gradient(w.ranks[1].gf, orders[o][0]);
        weight = gf_weight(w.ranks[1].gf, orders[o][0]);
        for (uint32_t k = 0; k < TENSORS; k++) {
            assert_true(gf_gradient(w.ranks[1].gf, orders[o][k]) == gradient);
            assert_true(gf_weight(w.ranks[1].gf, orders[o][k]) == weight);
            gradient += tensors[orders[o][k]].elem_count * sizeof(float);
            weight += tensors[orders[o][k]].elem_count * sizeof(float);
        }
    }
}

TEST(weights_are_those_of_the_order_given)
{
    static const gf_optimizer kinds[] = {GF_OPTIMIZER_SGD, GF_OPTIMIZER_LARS, GF_OPTIMIZER_ADAMW};
    for (size_t kind = 0; kind < LENGTH(kinds); kind++) {
        struct world_setup plain = setup_of(NULL, kinds[kind]);
        WORLD_OPEN(given, &plain);
        steps_run(&given);
        for (size_t o = 0; o < LENGTH(orders); o++) {
            struct world_setup setup = setup_of(orders[o], kinds[kind]);
            WORLD_OPEN(w, &setup);
            steps_run(&w);
            for (uint32_t rank = 0; rank < RANKS; rank++)
                for (uint32_t t = 0; t < TENSORS; t++)
                    assert_memory_equal((void *)(uintptr_t)gf_weight(w.ranks[rank].gf, t),
                                        (void *)(uintptr_t)gf_weight(given.ranks[0].gf, t),
                                        tensors[t].elem_count * sizeof(float));
        }
    }
}

/* Forward order in memory, backward order in time: as many fused buffers as without it, each one
 * range. */
TEST(the_reverse_order_fuses_as_the_order_given)
{
    uint32_t counts[2];
    for (uint32_t reversed = 0; reversed < 2; reversed++) {
        struct world_setup setup = setup_of(reversed ? orders[1] : NULL, GF_OPTIMIZER_SGD);
        struct gf_stats stats = {.size_bytes = sizeof stats};
        WORLD_OPEN(w, &setup);
        steps_run(&w);
        assert_int_equal(gf_stats_read(w.ranks[0].gf, &stats), GF_OK);
        counts[reversed] = stats.buffer_count;
    }
    assert_true(counts[0] > 2);
    assert_int_equal(counts[1], counts[0]);
}

/* ---- copies ---- */

#define RANKS_MAX 4u

/* What element ops carry within a rank's own memory, from or to its gradients: not in place, not
 * between ranks of a node. The library's own counter is not asked. */
static struct {
    struct world *w; /* NULL: not counted */
    const struct gf_element_ops *real;
    struct gf_element_ops ops;
    gf_mem first[RANKS_MAX], end[RANKS_MAX]; /* of each rank's gradients */
    uint64_t bytes;
} moved;

static void moved_count(gf_mem dst, gf_mem src, uint64_t bytes)
{
    for (uint32_t rank = 0; (moved.w != NULL) && (rank < moved.w->world); rank++) {
        bool from = (src >= moved.first[rank]) && (src < moved.end[rank]);
        bool to = (dst >= moved.first[rank]) && (dst < moved.end[rank]);
        if ((from || to) && (src != dst) && !gf_sim_is_peers(moved.w->sim, rank, from ? dst : src))
            moved.bytes += bytes;
    }
}

static gf_status moved_copy(struct gf_queue *queue, gf_mem dst, gf_mem src, uint64_t size_bytes)
{
    moved_count(dst, src, size_bytes);
    return moved.real->copy(queue, dst, src, size_bytes);
}

static gf_status moved_cast(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src,
                            gf_type src_type, uint64_t elem_count, float scale, uint64_t base,
                            struct gf_check *check)
{
    bool wide = (dst_type == GF_TYPE_F32) && (src_type == GF_TYPE_F32);
    moved_count(dst, src, elem_count * (wide ? 4 : 2));
    return moved.real->cast(queue, dst, dst_type, src, src_type, elem_count, scale, base, check);
}

static gf_status moved_open(const struct gf_gpu_setup *setup, void *state, struct gf_gpu **gpu_out,
                            struct gf_fault *fault_out)
{
    gf_status status = gf_gpu_host.open(setup, state, gpu_out, fault_out);
    moved.real = (*gpu_out)->ops;
    moved.ops = *moved.real;
    moved.ops.copy = moved_copy;
    moved.ops.cast = moved_cast;
    (*gpu_out)->ops = &moved.ops;
    return status;
}

static void moved_world_open(struct world *w, struct world_setup *setup)
{
    static struct gf_gpu_driver gpu;
    memset(&moved, 0, sizeof moved);
    gpu = gf_gpu_host;
    gpu.open = moved_open;
    setup->gpu = &gpu;
    world_open(w, setup);
    for (uint32_t rank = 0; rank < w->world; rank++) {
        moved.first[rank] = UINT64_MAX;
        for (uint32_t t = 0; t < TENSORS; t++) {
            gf_mem at = gf_gradient(w->ranks[rank].gf, t);
            gf_mem end = at + tensors[t].elem_count * sizeof(float);
            if (at < moved.first[rank]) moved.first[rank] = at;
            if (end > moved.end[rank]) moved.end[rank] = end;
        }
    }
    moved.w = w;
}

static uint64_t copied(struct world *w)
{
    struct gf_stats stats = {.size_bytes = sizeof stats};
    assert_int_equal(gf_stats_read(w->ranks[0].gf, &stats), GF_OK);
    return stats.copied_bytes;
}

#define NODE_FUSE 131072u /* one buffer, larger than what takes one barrier in shared memory */

/* Of gradients in the library's own buffer; `there_and_back`: how often a rank's are made narrow
 * and wide again. */
static const struct copies_row {
    const char *name;
    uint32_t world, ranks_per_node, fuse_bytes;
    gf_type wire;
    bool reversed;
    uint32_t there_and_back;
} copies_rows[] = {
    {"messages", 3, 1, 2048, GF_TYPE_F32, false, 0},
    {"messages_in_ones_own_order", 3, 1, 2048, GF_TYPE_F32, true, 0},
    {"messages_of_16_bits", 3, 1, 1024, GF_TYPE_BF16, false, 3},
    {"messages_of_16_bits_in_ones_own_order", 3, 1, 1024, GF_TYPE_BF16, true, 3},
    {"shared_memory", 3, 3, NODE_FUSE, GF_TYPE_F32, false, 0},
    {"shared_memory_in_ones_own_order", 3, 3, NODE_FUSE, GF_TYPE_F32, true, 0},
    {"shared_memory_and_16_bits_elsewhere", 3, 3, NODE_FUSE, GF_TYPE_BF16, false, 0},
    {"two_nodes", 4, 2, NODE_FUSE, GF_TYPE_F32, false, 0},
    /* a block on one rank of each */
    {"two_nodes_and_16_bits_between_them", 4, 2, NODE_FUSE, GF_TYPE_BF16, false, 2},
};

TEST(a_step_copies_nothing_or_says_how_much)
{
    uint64_t elems = 0;
    for (uint32_t t = 0; t < TENSORS; t++) elems += tensors[t].elem_count;
    for (size_t i = 0; i < LENGTH(copies_rows); i++) {
        const struct copies_row *row = &copies_rows[i];
        struct world_setup setup = setup_of(row->reversed ? orders[1] : NULL, GF_OPTIMIZER_SGD);
        static const struct world_step forward = {.order = WORLD_FORWARD};
        uint64_t most = (elems + 32 * TENSORS) * 4 * STEPS * row->there_and_back; /* with gaps */
        WORLD(w);
        setup.world = row->world;
        setup.sim.ranks_per_node = row->ranks_per_node;
        setup.config.exchange.wire = row->wire;
        setup.config.exchange.fuse_bytes = row->fuse_bytes;
        if (row->fuse_bytes == NODE_FUSE) setup.config.exchange.cut_bytes = 0;
        moved_world_open(&w, &setup);
        for (uint32_t step = 0; step < STEPS; step++) world_step_ok(&w, &forward);
        if ((moved.bytes > most) || (moved.bytes < elems * 4 * STEPS * row->there_and_back))
            fail_msg("%s: %llu bytes, %llu at most", row->name, (unsigned long long)moved.bytes,
                     (unsigned long long)most);
        if (row->ranks_per_node == 1) assert_int_equal(copied(&w) * row->world, moved.bytes);
    }
}

static gf_status private_step(struct world *w, uint32_t rank, void *arg)
{
    static float buffers[RANKS][16384];
    gf_context *gf = w->ranks[rank].gf;
    uint32_t *next = &w->ranks[rank].next;
    gf_status status;
    void *from;
    if ((*next == 0) && ((status = gf_step_begin(gf)) < 0)) return status;
    if (*next == TENSORS) return gf_step_poll(gf);
    /* every other one from where it travels from: nothing is copied */
    from = (*next % 2 == 0) ? buffers[rank] : (void *)(uintptr_t)gf_gradient(gf, *next);
    world_fill(w, rank, *next, from, NULL);
    status = gf_tensor_copy(gf, *next, from, 0);
    memset(buffers[rank], 0xff, sizeof buffers[rank]); /* it may be written at once */
    (*next)++;
    return (status < 0) ? status : GF_AGAIN;
}

TEST(a_private_buffer_is_copied_once)
{
    struct world_setup setup = setup_of(NULL, GF_OPTIMIZER_SGD);
    struct world in_place;
    struct world w;
    static const struct world_step forward = {.order = WORLD_FORWARD};
    uint64_t bytes = 0;
    world_open(&in_place, &setup);
    world_step_run(&in_place, &forward);
    world_open(&w, &setup);
    world_run(&w, private_step, NULL);
    world_expect(&w, GF_OK);
    for (uint32_t t = 0; t < TENSORS; t++) {
        bytes += (t % 2 == 0) ? tensors[t].elem_count * sizeof(float) : 0;
        for (uint32_t rank = 0; rank < RANKS; rank++)
            assert_memory_equal((void *)(uintptr_t)gf_gradient(w.ranks[rank].gf, t),
                                (void *)(uintptr_t)gf_gradient(in_place.ranks[rank].gf, t),
                                tensors[t].elem_count * sizeof(float));
    }
    assert_int_equal(copied(&w), bytes);
    assert_int_equal(gf_tensor_copy(w.ranks[0].gf, 0, &bytes, 0), GF_ERR_STATE);
    world_close(&w);
    world_close(&in_place);
}

static void vary_order(uint32_t rank, struct gf_config *config, const struct gf_tensor **t,
                       uint32_t *tensor_count)
{
    config->pool_order = orders[rank % 2];
}

TEST(ranks_with_other_orders_do_not_join)
{
    struct world_setup setup = setup_of(NULL, GF_OPTIMIZER_SGD);
    setup.config.rendezvous.join_timeout_ns = UINT64_C(1000000000);
    setup.vary = vary_order;
    WORLD_CREATE(w, &setup);
    world_join(&w);
    world_expect(&w, GF_ERR_MISMATCH);
}
