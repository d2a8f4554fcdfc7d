/* config.pool_order: one buffer without gaps in the trainer's own order, the same weights as without it, and no byte of
 * a gradient copied. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world.h"

#define RANKS 3u
#define TENSORS 6u
#define STEPS 4u

static const struct gf_tensor tensors[TENSORS] = {
    {.name = "head", .elem_count = 13, .flags = GF_TENSOR_NO_DECAY}, {.name = "c", .elem_count = 1001},
    {.name = "none", .elem_count = 0}, {.name = "b", .elem_count = 301}, {.name = "a", .elem_count = 15003},
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
                ((float *)(uintptr_t)gf_weight(w->ranks[rank].gf, t))[i] = (float)(t + 1) / (float)(i + 3);
}

static void steps_run(struct world *w)
{
    static const struct world_step forward = {.order = WORLD_FORWARD};
    weights_make(w);
    for (uint32_t step = 0; step < STEPS; step++) {
        world_step_ok(w, &forward);
        for (uint32_t rank = 0; rank < RANKS; rank++) assert_int_equal(gf_update(w->ranks[rank].gf, 0.125f), GF_OK);
    }
}

TEST(tensors_lie_in_the_order_asked_for_without_a_gap)
{
    for (size_t o = 0; o < LENGTH(orders); o++) {
        struct world_setup setup = setup_of(orders[o], GF_OPTIMIZER_SGD);
        gf_mem gradient, weight;
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
    static const gf_optimizer kinds[] = {GF_OPTIMIZER_SGD, GF_OPTIMIZER_LARS, GF_OPTIMIZER_ADAMW, GF_OPTIMIZER_LAMB};
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

/* Forward order in memory, backward order in time: as many fused buffers as without it, each one range. */
TEST(the_reverse_order_fuses_as_the_order_given)
{
    uint32_t counts[2];
    for (uint32_t reversed = 0; reversed < 2; reversed++) {
        struct world_setup setup = setup_of(reversed ? orders[1] : NULL, GF_OPTIMIZER_SGD);
        struct gf_stats stats = {.size_bytes = sizeof stats};
        WORLD_OPEN(w, &setup);
        steps_run(&w);
        assert_int_equal(gf_stats(w.ranks[0].gf, &stats), GF_OK);
        counts[reversed] = stats.buffer_count;
    }
    assert_true(counts[0] > 2);
    assert_int_equal(counts[1], counts[0]);
}

/* ---- copies ---- */

static uint64_t copied(struct world *w)
{
    struct gf_stats stats = {.size_bytes = sizeof stats};
    assert_int_equal(gf_stats(w->ranks[0].gf, &stats), GF_OK);
    return stats.copied_bytes;
}

TEST(a_step_copies_nothing_or_says_how_much)
{
    uint64_t elems = 0;
    for (uint32_t t = 0; t < TENSORS; t++) elems += tensors[t].elem_count;
    for (uint32_t row = 0; row < 4; row++) { /* the order given, its own; a 16-bit wire in each */
        struct world_setup setup = setup_of((row % 2 != 0) ? orders[1] : NULL, GF_OPTIMIZER_SGD);
        setup.config.exchange.wire = (row >= 2) ? GF_TYPE_BF16 : GF_TYPE_F32;
        setup.config.exchange.fuse_bytes = (row >= 2) ? 1024 : 2048;
        WORLD_OPEN(w, &setup);
        steps_run(&w);
        if (row < 2) assert_int_equal(copied(&w), 0);
        else assert_in_range(copied(&w), STEPS * elems * 4, STEPS * (elems + 32 * TENSORS) * 4); /* with gaps */
    }
}

static gf_status private_step(struct world *w, uint32_t rank, void *arg)
{
    static float buffers[RANKS][16384];
    gf_context *gf = w->ranks[rank].gf;
    uint32_t *next = &w->ranks[rank].next;
    gf_status status;
    if ((*next == 0) && ((status = gf_step_begin(gf)) < 0)) return status;
    if (*next == TENSORS) return gf_step_poll(gf);
    world_fill(w, rank, *next, buffers[rank], NULL);
    status = gf_tensor_copy(gf, *next, buffers[rank]);
    memset(buffers[rank], 0xff, sizeof buffers[rank]); /* it may be written at once */
    (*next)++;
    return (status < 0) ? status : GF_AGAIN;
}

TEST(a_private_buffer_is_copied_once)
{
    struct world_setup setup = setup_of(NULL, GF_OPTIMIZER_SGD);
    struct world in_place, w;
    static const struct world_step forward = {.order = WORLD_FORWARD};
    uint64_t bytes = 0;
    world_open(&in_place, &setup);
    world_step_run(&in_place, &forward);
    world_open(&w, &setup);
    world_run(&w, private_step, NULL);
    world_expect(&w, GF_OK);
    for (uint32_t t = 0; t < TENSORS; t++) {
        bytes += tensors[t].elem_count * sizeof(float);
        for (uint32_t rank = 0; rank < RANKS; rank++)
            assert_memory_equal((void *)(uintptr_t)gf_gradient(w.ranks[rank].gf, t),
                                (void *)(uintptr_t)gf_gradient(in_place.ranks[rank].gf, t),
                                tensors[t].elem_count * sizeof(float));
    }
    assert_int_equal(copied(&w), bytes);
    assert_int_equal(gf_tensor_copy(w.ranks[0].gf, 0, &bytes), GF_ERR_STATE);
    world_close(&w);
    world_close(&in_place);
}

static void vary_order(uint32_t rank, struct gf_config *config, const struct gf_tensor **t, uint32_t *tensor_count)
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
