/* The public collectives on whole contexts: right, bounded, and when ranks call different things, a
 * clear end.
 * link: wrap gf_node_host_id_set */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/real_links.h"
#include "firmware-tests/support/world.h"

#define RANKS_MAX 9u
#define ELEMS_MAX 200000u

static const struct gf_tensor tiny[] = {{.name = "tiny", .elem_count = 20}};

static struct world_setup setup_of(uint32_t world)
{
    struct world_setup setup = {
        .world = world, .tensors = tiny, .tensor_count = 1, .sim = world_network};
    setup.config.exchange.slice_bytes = 4096;
    setup.config.exchange.timeout_ns = 1000000000;
    return setup;
}

/* What one rank calls. */
struct call {
    gf_operation operation;
    uint64_t elem_count;
    gf_type type;
    uint32_t root;
};

struct calls {
    struct call of[RANKS_MAX];
    float (*data)[ELEMS_MAX];
    gf_mem memory[RANKS_MAX]; /* 0: data */
    struct gf_request requests[RANKS_MAX];
};

static float calls_data[RANKS_MAX][ELEMS_MAX];

static gf_status post(gf_context *gf, const struct call *call, gf_mem data,
                      struct gf_request *request)
{
    switch (call->operation) {
    case GF_OPERATION_ALLREDUCE:
        return gf_allreduce(gf, data, call->elem_count, call->type, request);
    case GF_OPERATION_BROADCAST:
        return gf_broadcast(gf, data, call->elem_count, call->type, call->root, request);
    case GF_OPERATION_REDUCE_SCATTER:
        return gf_reduce_scatter(gf, data, call->elem_count, call->type, request);
    case GF_OPERATION_ALLGATHER:
        return gf_allgather(gf, data, call->elem_count, call->type, request);
    case GF_OPERATION_BARRIER: return gf_barrier(gf, request);
    default: return GF_ERR_PARAM;
    }
}

static gf_mem memory_of(const struct calls *calls, uint32_t rank)
{
    return (calls->memory[rank] != 0) ? calls->memory[rank] : (gf_mem)(uintptr_t)calls->data[rank];
}

static gf_status calls_progress(struct world *w, uint32_t rank, void *arg)
{
    struct calls *calls = arg;
    gf_context *gf = w->ranks[rank].gf;
    if (w->ranks[rank].next++ > 0) return gf_request_poll(gf, &calls->requests[rank]);
    gf_status status = post(gf, &calls->of[rank], memory_of(calls, rank), &calls->requests[rank]);
    return (status == GF_OK) ? GF_AGAIN : status;
}

static void calls_fill(struct calls *calls, uint32_t world, const struct call *call)
{
    memset(calls, 0, sizeof *calls);
    calls->data = calls_data;
    for (uint32_t rank = 0; rank < world; rank++) calls->of[rank] = *call;
}

static void data_fill(const struct calls *calls, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++)
        for (uint64_t e = 0; e < calls->of[rank].elem_count; e++)
            world_put(calls->of[rank].type, (void *)(uintptr_t)memory_of(calls, rank), e,
                      world_value(rank, 0, e));
}

static float sum_of(uint32_t world, uint64_t elem)
{
    float sum = 0;
    for (uint32_t rank = 0; rank < world; rank++) sum += world_value(rank, 0, elem);
    return sum;
}

static void data_check(const struct calls *calls, uint32_t world)
{
    const struct call *call = &calls->of[0];
    for (uint32_t rank = 0; rank < world; rank++) {
        uint64_t first;
        uint64_t count;
        gf_block(call->elem_count, world, rank, &first, &count);
        for (uint64_t e = 0; e < call->elem_count; e++) {
            float got = world_get(call->type, (const void *)(uintptr_t)memory_of(calls, rank), e);
            float expected = got;
            uint64_t block_elems = (call->elem_count + world - 1) / world;
            switch (call->operation) {
            case GF_OPERATION_ALLREDUCE: expected = sum_of(world, e); break;
            case GF_OPERATION_BROADCAST: expected = world_value(call->root, 0, e); break;
            case GF_OPERATION_REDUCE_SCATTER:
                if ((e >= first) && (e - first < count)) expected = sum_of(world, e);
                break;
            case GF_OPERATION_ALLGATHER:
                expected = world_value((uint32_t)(e / block_elems), 0, e);
                break;
            default: break;
            }
            if (got != expected)
                fail_msg("%s of %llu on rank %u of %u, element %llu: %g, expected %g",
                         gf_operation_name(call->operation), (unsigned long long)call->elem_count,
                         rank, world, (unsigned long long)e, (double)got, (double)expected);
        }
    }
}

TEST(every_collective_in_every_type_of_any_count)
{
    static const gf_operation operations[] = {GF_OPERATION_ALLREDUCE, GF_OPERATION_BROADCAST,
                                              GF_OPERATION_REDUCE_SCATTER, GF_OPERATION_ALLGATHER,
                                              GF_OPERATION_BARRIER};
    gf_algorithm algorithms[1 + GF_ALGORITHM_COUNT] = {GF_ALGORITHM_AUTO};
    const uint32_t algorithm_count = 1 + world_algorithms(false, algorithms + 1);
    static const uint64_t counts[] = {0, 1, 7, 1000, 20000};
    static const uint32_t worlds[] = {1, 2, 3, 4, 6, 9};
    static struct calls calls;
    for (uint32_t row = 0; row < LENGTH(worlds) * algorithm_count; row++) {
        struct world_setup setup = setup_of(worlds[row / algorithm_count]);
        if ((real_links_driver() != NULL) && (setup.world != 3)) continue;
        setup.config.exchange.algorithm = algorithms[row % algorithm_count];
        setup.config.exchange.user_bytes = 100000;
        setup.sim.seed = row;
        WORLD_OPEN(w, &setup);
        for (size_t rest = 0; rest < LENGTH(operations) * LENGTH(counts); rest++) {
            struct call call = {.operation = operations[rest % LENGTH(operations)],
                                .elem_count = counts[rest / LENGTH(operations)],
                                .type = (gf_type)((rest + row) % 3)};
            if (call.operation == GF_OPERATION_BROADCAST) call.root = row % w.world;
            if (call.operation == GF_OPERATION_BARRIER) call.elem_count = 0;
            calls_fill(&calls, w.world, &call);
            /* this one travels without a copy */
            for (uint32_t rank = 0; (rank < w.world) && (rest == 7); rank++)
                calls.memory[rank] = gf_exchange_take(w.ranks[rank].gf, 4096);
            data_fill(&calls, w.world);
            world_run(&w, calls_progress, &calls);
            world_expect(&w, GF_OK);
            data_check(&calls, w.world);
        }
    }
}

TEST(a_request_may_be_larger_than_the_pool)
{
    static const gf_operation operations[] = {GF_OPERATION_ALLREDUCE, GF_OPERATION_BROADCAST};
    static const uint32_t worlds[] = {2, 5};
    static struct calls calls;
    for (uint32_t i = 0; i < 4; i++) {
        struct world_setup setup = setup_of(worlds[i / 2]);
        struct call call = {.operation = operations[i % 2], .elem_count = ELEMS_MAX};
        setup.config.link.window = 32;
        WORLD_OPEN(w, &setup);
        calls_fill(&calls, w.world, &call);
        data_fill(&calls, w.world);
        world_run(&w, calls_progress, &calls);
        world_expect(&w, GF_OK);
        data_check(&calls, w.world);
    }
}

struct eight {
    struct gf_request requests[RANKS_MAX][GF_REQUESTS_MAX + 1];
    uint32_t ended[RANKS_MAX];
};

/* Posts all there is room for, then asks for the newest first. */
static gf_status eight_progress(struct world *w, uint32_t rank, void *arg)
{
    struct eight *eight = arg;
    struct world_rank *self = &w->ranks[rank];
    if (self->next == 0) {
        struct gf_request extra = {{0}};
        for (uint32_t i = 0; i < GF_REQUESTS_MAX; i++) {
            struct call call = {.operation =
                                    (i % 2 == 0) ? GF_OPERATION_ALLREDUCE : GF_OPERATION_BARRIER,
                                .elem_count = 1000};
            assert_int_equal(post(self->gf, &call, (gf_mem)(uintptr_t)&calls_data[rank][i * 1000],
                                  &eight->requests[rank][i]),
                             GF_OK);
        }
        assert_int_equal(gf_barrier(self->gf, &extra), GF_FULL);
        assert_int_equal(gf_request_poll(self->gf, &extra), GF_ERR_PARAM);
        assert_int_equal(gf_step_begin(self->gf), GF_ERR_STATE);
        self->next = 1;
        return GF_AGAIN;
    }
    for (uint32_t i = GF_REQUESTS_MAX; i > 0; i--) {
        struct gf_request *request = &eight->requests[rank][i - 1];
        gf_status status;
        if ((eight->ended[rank] >> (i - 1)) & 1) continue;
        status = gf_request_poll(self->gf, request);
        if (status == GF_AGAIN) return GF_AGAIN;
        if (status < 0) return status;
        assert_int_equal(gf_request_poll(self->gf, request), GF_ERR_PARAM); /* answered once */
        eight->ended[rank] |= 1u << (i - 1);
    }
    return GF_OK;
}

TEST(eight_are_under_way_at_once_and_a_ninth_waits)
{
    static struct eight eight;
    for (uint32_t active = 1; active <= 16; active += 5) {
        struct world_setup setup = setup_of(4);
        setup.config.exchange.buffers_active = active;
        WORLD_OPEN(w, &setup);
        for (uint32_t round = 0; round < 2; round++) { /* places are free again */
            memset(&eight, 0, sizeof eight);
            for (uint32_t rank = 0; rank < 4; rank++)
                for (uint32_t e = 0; e < 8000; e++) calls_data[rank][e] = world_value(rank, 0, e);
            world_run(&w, eight_progress, &eight);
            world_expect(&w, GF_OK);
            for (uint32_t rank = 0; rank < 4; rank++)
                for (uint32_t e = 0; e < 8000; e++)
                    assert_true(calls_data[rank][e] ==
                                ((e / 1000 % 2 == 0) ? sum_of(4, e) : world_value(rank, 0, e)));
        }
    }
}

struct pair {
    struct gf_request first, next;
    uint32_t rounds;
};

/* The first one has ended and is not asked for; places that others have freed are free all the
 * same. */
static gf_status pair_progress(struct world *w, uint32_t rank, void *arg)
{
    struct pair *pair = (struct pair *)arg + rank;
    gf_context *gf = w->ranks[rank].gf;
    gf_status status;
    if (w->ranks[rank].next++ == 0)
        assert_int_equal(gf_barrier(gf, &pair->first), GF_OK);
    else if ((status = gf_request_poll(gf, &pair->next)) != GF_OK)
        return status;
    if (pair->rounds++ == 3 * GF_REQUESTS_MAX) return gf_request_poll(gf, &pair->first);
    assert_int_equal(gf_barrier(gf, &pair->next), GF_OK);
    return GF_AGAIN;
}

TEST(a_request_that_is_not_asked_for_holds_one_place_only)
{
    struct world_setup setup = setup_of(3);
    static struct pair pairs[3];
    WORLD_OPEN(w, &setup);
    world_run(&w, pair_progress, pairs);
    world_expect(&w, GF_OK);
}

TEST(exchange_memory_is_handed_out_until_it_is_used_up)
{
    struct world_setup setup = setup_of(1);
    gf_mem first;
    gf_mem second;
    setup.config.exchange.user_bytes = 200;
    WORLD_OPEN(w, &setup);
    first = gf_exchange_take(w.ranks[0].gf, 65);
    second = gf_exchange_take(w.ranks[0].gf, 72);
    assert_true((first != 0) && (first % 64 == 0) && (second == first + 128));
    memset((void *)(uintptr_t)first, 1, 65);
    memset((void *)(uintptr_t)second, 1, 72);
    assert_int_equal(gf_exchange_take(w.ranks[0].gf, 1), 0);
}

static gf_status idle_progress(struct world *w, uint32_t rank, void *arg)
{
    (void)gf_heartbeat(w->ranks[rank].gf);
    return (gf_error_last(w->ranks[rank].gf)->code == GF_OK)
               ? GF_AGAIN
               : gf_error_last(w->ranks[rank].gf)->code;
}

static gf_status differing_progress(struct world *w, uint32_t rank, void *arg)
{
    struct calls *calls = arg;
    gf_status status;
    if (calls->of[rank].operation == GF_OPERATION_NONE) return idle_progress(w, rank, arg);
    status = calls_progress(w, rank, arg);
    /* its own part is done; somebody else's is not */
    if (status == GF_OK) calls->of[rank].operation = GF_OPERATION_NONE;
    return (status == GF_OK) ? GF_AGAIN : status;
}

TEST(calls_that_differ_end_on_every_rank_and_are_named)
{
    SIM_ONLY;
    static const struct differ_case {
        struct call call, other; /* `other` is what rank 2 calls */
    } cases[] = {
        {{GF_OPERATION_ALLREDUCE, 1000, 0, 0}, {GF_OPERATION_ALLREDUCE, 1001, 0, 0}},
        {{GF_OPERATION_ALLREDUCE, 1000, 0, 0}, {GF_OPERATION_ALLREDUCE, 10000, 0, 0}},
        {{GF_OPERATION_ALLREDUCE, 100000, 0, 0}, {GF_OPERATION_ALLREDUCE, 0, 0, 0}},
        {{GF_OPERATION_ALLREDUCE, 1000, 0, 0}, {GF_OPERATION_ALLREDUCE, 1000, 1, 0}},
        /* of the same size */
        {{GF_OPERATION_ALLREDUCE, 1000, 1, 0}, {GF_OPERATION_ALLREDUCE, 1000, 2, 0}},
        {{GF_OPERATION_ALLREDUCE, 1000, 0, 0}, {GF_OPERATION_BROADCAST, 1000, 0, 0}},
        {{GF_OPERATION_ALLREDUCE, 1000, 0, 0}, {GF_OPERATION_BARRIER, 0, 0, 0}},
        {{GF_OPERATION_REDUCE_SCATTER, 1000, 0, 0}, {GF_OPERATION_ALLGATHER, 1000, 0, 0}},
        {{GF_OPERATION_BROADCAST, 1000, 0, 0}, {GF_OPERATION_BROADCAST, 1000, 0, 1}},
        {{GF_OPERATION_BROADCAST, 1000, 1, 1}, {GF_OPERATION_BROADCAST, 1000, 2, 1}},
        /* nobody waits for anybody */
        {{GF_OPERATION_BROADCAST, 1000, 0, 1}, {GF_OPERATION_BROADCAST, 1000, 0, 2}},
        {{GF_OPERATION_BARRIER, 0, 0, 0}, {GF_OPERATION_NONE, 0, 0, 0}},
        {{GF_OPERATION_ALLGATHER, 1000, 0, 0}, {GF_OPERATION_NONE, 0, 0, 0}},
        {{GF_OPERATION_NONE, 0, 0, 0}, {GF_OPERATION_ALLREDUCE, 1000, 0, 0}},
    };
    static struct calls calls;
    for (size_t row = 0; row < LENGTH(cases); row++) {
        struct world_setup setup = setup_of(4);
        uint64_t begin_ns;
        setup.config.exchange.patience_ns = 10000000; /* who calls nothing shows signs of life */
        WORLD_OPEN(w, &setup);
        begin_ns = gf_sim_now_ns(w.sim);
        calls_fill(&calls, 4, &cases[row].call);
        calls.of[2] = cases[row].other;
        data_fill(&calls, 4);
        world_run(&w, differing_progress, &calls);
        for (uint32_t rank = 0; rank < 4; rank++) {
            const struct gf_error *error = gf_error_last(w.ranks[rank].gf);
            if ((error->code != GF_ERR_MISMATCH) && (error->code != GF_ERR_TIMEOUT) &&
                (error->code != GF_ERR_PEER))
                fail_msg("row %zu, rank %u: %s\n%s", row, rank, gf_status_name(error->code),
                         w.ranks[rank].log);
            assert_true(strlen(error->text) > 20);
            assert_true(error->rank == rank);
            world_expect_log(&w, rank, error->text);
            assert_int_equal(gf_barrier(w.ranks[rank].gf, &calls.requests[rank]), error->code);
            if (cases[row].other.operation == GF_OPERATION_NONE) {
                assert_int_equal(error->code, GF_ERR_TIMEOUT);
                assert_int_equal(error->peer, 2);
                assert_non_null(strstr(
                    error->text, "rank 2 is behind in step 0, between operations: computing"));
            }
        }
        assert_true(gf_sim_now_ns(w.sim) - begin_ns < UINT64_C(4000000000));
    }
}

/* gf_request_wait() on one rank while the others poll. */
TEST(waiting_blocks_until_the_others_have_done_their_part)
{
    struct world_setup setup = setup_of(3);
    struct call call = {.operation = GF_OPERATION_ALLREDUCE, .elem_count = 3000};
    static struct calls calls;
    setup.config.link.idle = GF_IDLE_SPIN;
    WORLD_OPEN(w, &setup);
    calls_fill(&calls, 3, &call);
    data_fill(&calls, 3);
    assert_int_equal(post(w.ranks[0].gf, &call, memory_of(&calls, 0), &calls.requests[0]), GF_OK);
    world_block(&w, 0, calls_progress, &calls);
    assert_int_equal(gf_request_wait(w.ranks[0].gf, &calls.requests[0]), GF_OK);
    assert_int_equal(gf_request_wait(w.ranks[0].gf, &calls.requests[0]), GF_ERR_PARAM);
    for (uint32_t i = 0; i < 1000; i++) (void)gf_heartbeat(w.ranks[0].gf);
    world_unblock(&w);
    world_expect(&w, GF_OK);
    data_check(&calls, 3);
}

/* Whoever names another root, and whoever waits for whom: nobody ends well with other values than
 * the rest. */
TEST(a_broadcast_from_two_roots_names_both)
{
    SIM_ONLY;
    static const gf_algorithm algorithms[] = {GF_ALGORITHM_RING, GF_ALGORITHM_TREE,
                                              GF_ALGORITHM_DIRECT};
    static struct calls calls;
    for (uint32_t row = 0; row < LENGTH(algorithms) * 4 * 4 * 4; row++) {
        uint32_t odd = row / 3 % 4;
        uint32_t root = row / 12 % 4;
        uint32_t other = row / 48;
        struct world_setup setup = setup_of(4);
        struct call call = {GF_OPERATION_BROADCAST, 1000, 0, root};
        char called[64];
        if (root == other) continue;
        setup.config.exchange.algorithm = algorithms[row % 3];
        if (algorithms[row % 3] == GF_ALGORITHM_DIRECT) setup.sim.ranks_per_node = 4;
        WORLD_OPEN(w, &setup);
        calls_fill(&calls, 4, &call);
        calls.of[odd].root = other;
        data_fill(&calls, 4);
        (void)snprintf(called, sizeof called, "broadcast of 1000 fp32 from rank %u at rank %u",
                       other, odd);
        w.limit_ns = UINT64_C(4000000000);
        world_run(&w, differing_progress, &calls);
        for (uint32_t rank = 0; rank < 4; rank++) {
            const char *text = gf_error_last(w.ranks[rank].gf)->text;
            gf_status code = gf_error_last(w.ranks[rank].gf)->code;
            /* all meet in memory, and see it there */
            if (algorithms[row % 3] == GF_ALGORITHM_DIRECT) {
                assert_true((code == GF_ERR_MISMATCH) || (code == GF_ERR_PEER));
                assert_non_null(
                    strstr(text, "is in another operation: broadcast of 1000 fp32 from rank"));
                continue;
            }
            assert_int_equal(code, GF_ERR_MISMATCH);
            if ((strstr(text, "calls differ: request 1 is") == NULL) ||
                (strstr(text, called) == NULL))
                fail_msg("rank %u of row %u does not say \"%s\": %s", rank, row, called, text);
        }
    }
}
