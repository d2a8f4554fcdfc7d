/* See world.h: the values that ranks put into gradients, what must come of them, and of a
 * failure. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world.h"
#include "drivers/base/fnv.h"
#include "ops/coll.h"
#include "ops/element/host/half.h"

static uint32_t mix(uint32_t rank, uint32_t tensor, uint64_t elem)
{
    uint64_t value = ((uint64_t)rank << 48) ^ ((uint64_t)tensor << 32) ^ elem;
    value = (value ^ (value >> 31)) * UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ (value >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(value >> 32);
}

float world_value(uint32_t rank, uint32_t tensor, uint64_t elem)
{
    return (float)(mix(rank, tensor, elem) % 9) - 4.0f;
}

void world_put(gf_type type, void *data, uint64_t elem, float value)
{
    if (type == GF_TYPE_F32)
        ((float *)data)[elem] = value;
    else
        ((uint16_t *)data)[elem] =
            (type == GF_TYPE_F16) ? gf_f16_of_f32(value) : gf_bf16_of_f32(value);
}

float world_get(gf_type type, const void *data, uint64_t elem)
{
    if (type == GF_TYPE_F32) return ((const float *)data)[elem];
    return (type == GF_TYPE_F16) ? gf_f32_of_f16(((const uint16_t *)data)[elem])
                                 : gf_f32_of_bf16(((const uint16_t *)data)[elem]);
}

void world_fill(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    const struct gf_tensor *from = &w->ranks[rank].tensors[tensor];
    for (uint64_t i = 0; i < from->elem_count; i++)
        world_put(from->type, gradient, i, world_value(rank, tensor, i));
}

void world_fill_noise(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    const struct gf_tensor *from = &w->ranks[rank].tensors[tensor];
    for (uint64_t i = 0; i < from->elem_count; i++)
        world_put(from->type, gradient, i,
                  ((float)(mix(rank, tensor, i) >> 8) - 0x800000) * 0x1p-23f);
}

bool world_algorithm_in_memory(gf_algorithm algorithm)
{
    const struct gf_coll_kind *kind = gf_coll_kinds[algorithm]; /* auto is none */
    return (kind != NULL) && kind->in_memory;
}

uint32_t world_algorithms(bool and_in_memory, gf_algorithm algorithms_out[GF_ALGORITHM_COUNT])
{
    uint32_t count = 0;
    for (uint32_t a = 0; a < GF_ALGORITHM_COUNT; a++) {
        const struct gf_coll_kind *kind = gf_coll_kinds[a];
        if ((a == GF_ALGORITHM_AUTO) || (a == GF_ALGORITHM_HIERARCHY)) continue;
        assert_non_null(kind);
        assert_true(gf_coll_offers(kind, GF_COLL_ALLREDUCE));
        if (!kind->in_memory || and_in_memory) algorithms_out[count++] = (gf_algorithm)a;
    }
    return count;
}

void world_fill_one(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    const struct gf_tensor *of = &w->ranks[rank].tensors[tensor];
    for (uint64_t e = 0; e < of->elem_count; e++)
        world_put(of->type, gradient, e, *(const float *)arg);
}

void world_fill_spoilt(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    const struct world_spoil *spoil = arg;
    gf_type type = w->ranks[rank].tensors[tensor].type;
    world_fill(w, rank, tensor, gradient, NULL);
    if (tensor != spoil->tensor) return;
    if ((spoil->rank == rank) || (spoil->rank == GF_RANK_NONE))
        world_put(type, gradient, spoil->elem, spoil->value);
    else if (spoil->others != 0)
        world_put(type, gradient, spoil->elem, spoil->others);
}

const void *world_gradient(struct world *w, uint32_t rank, uint32_t tensor)
{
    return (const void *)(uintptr_t)gf_gradient(w->ranks[rank].gf, tensor);
}

static size_t tensor_bytes(const struct gf_tensor *tensor)
{
    return tensor->elem_count * gf_type_size_bytes(tensor->type);
}

void world_expect_equal(struct world *w)
{
    for (uint32_t rank = 1; rank < w->world; rank++)
        for (uint32_t tensor = 0; tensor < w->ranks[0].tensor_count; tensor++)
            assert_memory_equal(world_gradient(w, rank, tensor), world_gradient(w, 0, tensor),
                                tensor_bytes(&w->ranks[0].tensors[tensor]));
}

void world_step_ok(struct world *w, const struct world_step *step)
{
    world_step_run(w, step);
    world_expect(w, GF_OK);
    world_expect_equal(w);
}

float world_sum(uint32_t world, uint32_t tensor, uint64_t elem)
{
    float sum = 0;
    for (uint32_t rank = 0; rank < world; rank++) sum += world_value(rank, tensor, elem);
    return sum;
}

void world_expect_sums(struct world *w, float factor)
{
    for (uint32_t tensor = 0; tensor < w->ranks[0].tensor_count; tensor++) {
        const struct gf_tensor *from = &w->ranks[0].tensors[tensor];
        for (uint64_t i = 0; i < from->elem_count; i++) {
            float expected = world_sum(w->world, tensor, i) * factor;
            float got = world_get(from->type, world_gradient(w, 0, tensor), i);
            if (got != expected)
                fail_msg("world %u, tensor %u, element %llu: %.9g, expected %.9g", w->world, tensor,
                         (unsigned long long)i, (double)got, (double)expected);
        }
    }
    world_expect_equal(w);
}

uint64_t world_hash(struct world *w, uint32_t rank)
{
    uint64_t hash = GF_FNV_START;
    for (uint32_t tensor = 0; tensor < w->ranks[rank].tensor_count; tensor++)
        hash = gf_fnv_bytes(hash, world_gradient(w, rank, tensor),
                            tensor_bytes(&w->ranks[rank].tensors[tensor]));
    return hash;
}

void world_expect_failed(struct world *w, uint32_t rank, gf_status code)
{
    gf_context *gf = w->ranks[rank].gf;
    const struct gf_error *error = gf_error_last(gf);
    struct gf_request request = {{0}};
    struct gf_stats stats = {.size_bytes = sizeof stats};
    float value = 0;
    assert_int_equal(error->code, code);
    assert_int_equal(error->rank, gf_rank(gf)); /* a new one behind a shrink */
    assert_true(error->operation < GF_OPERATION_COUNT);
    assert_true((error->tensor == GF_TENSOR_NONE) || (error->tensor < w->ranks[rank].tensor_count));
    assert_true(strlen(error->text) > 10);
    world_expect_log(w, rank, error->text);
    assert_int_equal(gf_step_begin(gf), code);
    assert_int_equal(gf_step_poll(gf), code);
    assert_int_equal(gf_heartbeat(gf), code);
    assert_int_equal(gf_allreduce(gf, (gf_mem)(uintptr_t)&value, 1, GF_TYPE_F32, &request), code);
    assert_int_equal(gf_request_poll(gf, &request), code);
    assert_int_equal(gf_stats_read(gf, &stats), GF_OK);
    assert_int_equal(gf_error_last(gf)->code, code);
}
