/* Allreduce by other reductions than the sum: each algorithm, each type, to the bit; the element op
 * beside a definition of its own; and ranks that ask for different ones.
 * link: wrap gf_node_host_id_set */

#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world.h"
#include "lib/settings/settings.h"
#include "ops/element/host/reduce_host.h"
#include "ops/element/host/half.h"

#define RANKS_MAX 6u
#define ELEMS_MAX 20000u

static const struct gf_tensor tiny[] = {{.name = "tiny", .elem_count = 20}};
static float data[RANKS_MAX][ELEMS_MAX];

/* Exact in every type under every reduction: 1, 2, -2, 0.5, 4, .. */
static float input(uint32_t rank, uint64_t elem)
{
    static const float values[] = {1, 2, -2, 0.5f, 4, -1, -0.5f};
    return values[(elem * 5 + rank * 3 + elem / 7) % 7];
}

static float expected(gf_reduction reduction, gf_type type, uint32_t world, uint64_t elem)
{
    float result = input(0, elem);
    float once[1] = {0};
    for (uint32_t rank = 1; rank < world; rank++) {
        float value = input(rank, elem);
        if (reduction == GF_REDUCTION_MIN)
            result = fminf(result, value);
        else if (reduction == GF_REDUCTION_MAX)
            result = fmaxf(result, value);
        else
            result += value;
    }
    world_put(type, once, 0, result);
    return world_get(type, once, 0);
}

struct reduce {
    gf_reduction by[RANKS_MAX];
    gf_type type;
    uint64_t elem_count;
    struct gf_request requests[RANKS_MAX];
};

static gf_status reduce_progress(struct world *w, uint32_t rank, void *arg)
{
    struct reduce *reduce = arg;
    gf_context *gf = w->ranks[rank].gf;
    if (w->ranks[rank].next++ > 0) return gf_request_poll(gf, &reduce->requests[rank]);
    gf_status status = gf_allreduce_by(gf, reduce->by[rank], (gf_mem)(uintptr_t)data[rank],
                                       reduce->elem_count, reduce->type, &reduce->requests[rank]);
    return (status == GF_OK) ? GF_AGAIN : status;
}

static struct world_setup setup_of(uint32_t world, uint32_t ranks_per_node, gf_algorithm algorithm)
{
    struct world_setup setup = {.world = world,
                                .tensors = tiny,
                                .tensor_count = 1,
                                .sim = {.seed = world,
                                        .latency_ns = 5000,
                                        .jitter_ns = 20000,
                                        .bind_receives = true,
                                        .node_latency_ns = 300,
                                        .ranks_per_node = ranks_per_node}};
    setup.config.exchange.algorithm = algorithm;
    setup.config.exchange.slice_bytes = 4096;
    setup.config.exchange.timeout_ns = 1000000000;
    return setup;
}

static void reductions_run(uint32_t world, uint32_t ranks_per_node, gf_algorithm algorithm)
{
    static const uint64_t counts[] = {0, 1, 33, 1000, ELEMS_MAX};
    struct world_setup setup = setup_of(world, ranks_per_node, algorithm);
    WORLD_OPEN(w, &setup);
    for (uint32_t row = 0; row < GF_REDUCTION_COUNT * LENGTH(counts); row++) {
        struct reduce reduce = {.type = (gf_type)((row + world) % 3),
                                .elem_count = counts[row % LENGTH(counts)]};
        for (uint32_t rank = 0; rank < world; rank++) {
            reduce.by[rank] = row / (uint32_t)LENGTH(counts);
            for (uint64_t e = 0; e < reduce.elem_count; e++)
                world_put(reduce.type, data[rank], e, input(rank, e));
        }
        world_run(&w, reduce_progress, &reduce);
        world_expect(&w, GF_OK);
        for (uint32_t rank = 0; rank < world; rank++)
            for (uint64_t e = 0; e < reduce.elem_count; e++) {
                float got = world_get(reduce.type, data[rank], e);
                float want = expected(reduce.by[0], reduce.type, world, e);
                if (gf_f32_bits(got) != gf_f32_bits(want))
                    fail_msg(
                        "%s, type %d, %s, rank %u of %u, element %llu of %llu: %g, expected %g",
                        gf_algorithm_name(algorithm), reduce.type, gf_reduction_name(reduce.by[0]),
                        rank, world, (unsigned long long)e, (unsigned long long)reduce.elem_count,
                        (double)got, (double)want);
            }
    }
}

TEST(every_reduction_by_messages)
{
    gf_algorithm algorithms[1 + GF_ALGORITHM_COUNT] = {GF_ALGORITHM_AUTO};
    const uint32_t count = 1 + world_algorithms(false, algorithms + 1);
    for (uint32_t a = 0; a < count; a++)
        for (uint32_t world = 1; world <= RANKS_MAX; world += (world < 3) ? 1 : 3)
            reductions_run(world, 1, algorithms[a]);
}

TEST(every_reduction_through_memory)
{
    for (uint32_t world = 2; world <= RANKS_MAX; world += 2)
        reductions_run(world, world, GF_ALGORITHM_DIRECT);
    reductions_run(3, 3, GF_ALGORITHM_DIRECT);
}

TEST(every_reduction_among_nodes)
{
    reductions_run(4, 2, GF_ALGORITHM_AUTO);
    reductions_run(6, 3, GF_ALGORITHM_HIERARCHY);
}

/* One rank asks for the minimum, the other for the maximum: neither gets a value. */
TEST(two_reductions_never_meet_in_memory)
{
    static const uint64_t counts[] = {1, ELEMS_MAX};
    for (size_t i = 0; i < LENGTH(counts); i++) {
        struct world_setup setup = setup_of(2, 2, GF_ALGORITHM_DIRECT);
        struct reduce reduce = {.by = {GF_REDUCTION_MIN, GF_REDUCTION_MAX},
                                .type = GF_TYPE_F32,
                                .elem_count = counts[i]};
        WORLD_OPEN(w, &setup);
        for (uint32_t rank = 0; rank < 2; rank++)
            for (uint64_t e = 0; e < counts[i]; e++)
                world_put(GF_TYPE_F32, data[rank], e, input(rank, e));
        world_run(&w, reduce_progress, &reduce);
        for (uint32_t rank = 0; rank < 2; rank++) { /* it saw it, or was told by who saw it */
            gf_status status = w.ranks[rank].status;
            assert_true((status == GF_ERR_MISMATCH) || (status == GF_ERR_PEER));
            char words[120];
            (void)snprintf(words, sizeof words,
                           "is in another operation: allreduce of %llu fp32 by m",
                           (unsigned long long)counts[i]);
            assert_non_null(strstr(gf_error_last(w.ranks[rank].gf)->text, words));
            assert_null(strstr(gf_error_last(w.ranks[rank].gf)->text, "0x"));
        }
    }
}

/* ---- the element op ---- */

static float defined(gf_reduction reduction, float a, float b)
{
    if (isnan(a) || isnan(b)) return gf_f32_of_bits(0x7fc00000u);
    if (a == b) return (signbit(a) != 0) == (reduction == GF_REDUCTION_MIN) ? a : b;
    return ((a < b) == (reduction == GF_REDUCTION_MIN)) ? a : b;
}

TEST(the_element_op_is_its_definition_to_the_bit)
{
    static const uint32_t edges[] = {
        0,           0x80000000u, 0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc00001u, 0x00000001u,
        0x80000001u, 0x3f800000u, 0xbf800000u, 0x7f7fffffu, 0x00800000u, 0x40490fdbu};
    enum { EDGES = LENGTH(edges) };
    for (gf_reduction reduction = GF_REDUCTION_MIN; reduction < GF_REDUCTION_COUNT; reduction++)
        for (gf_type type = 0; type < GF_TYPE_COUNT; type++) {
            float a[EDGES * EDGES];
            float b[EDGES * EDGES];
            float want[EDGES * EDGES];
            float back[EDGES * EDGES];
            for (uint32_t i = 0; i < EDGES * EDGES; i++) {
                world_put(type, a, i, gf_f32_of_bits(edges[i % EDGES]));
                world_put(type, b, i, gf_f32_of_bits(edges[i / EDGES]));
            }
            for (uint32_t i = 0; i < EDGES * EDGES; i++)
                world_put(type, want, i,
                          defined(reduction, world_get(type, a, i), world_get(type, b, i)));
            memcpy(back, b, sizeof back);
            gf_reduce_host(reduction, (gf_mem)(uintptr_t)back, (gf_mem)(uintptr_t)a, type,
                           EDGES * EDGES);
            gf_reduce_host(reduction, (gf_mem)(uintptr_t)a, (gf_mem)(uintptr_t)b, type,
                           EDGES * EDGES);
            assert_memory_equal(a, want, EDGES * EDGES * gf_type_size_bytes(type));
            /* either way round */
            assert_memory_equal(back, want, EDGES * EDGES * gf_type_size_bytes(type));
        }
}

TEST(ranks_that_ask_for_different_ones_are_named)
{
    struct world_setup setup = setup_of(3, 1, GF_ALGORITHM_RING);
    struct reduce reduce = {.by = {GF_REDUCTION_MAX, GF_REDUCTION_MIN, GF_REDUCTION_MAX},
                            .elem_count = 100};
    WORLD_OPEN(w, &setup);
    world_run(&w, reduce_progress, &reduce);
    for (uint32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(w.ranks[rank].status, GF_ERR_MISMATCH);
        assert_non_null(
            strstr(gf_error_last(w.ranks[rank].gf)->text, "allreduce of 100 fp32 by m"));
    }
}
