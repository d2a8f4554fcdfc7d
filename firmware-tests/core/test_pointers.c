/* gf_gradient_f32() and its like: the address that gf_gradient() gives as a pointer of the right
 * type, and NULL wherever there is none. */
#include "firmware-tests/cuda/late_gpu.h"
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world.h"

enum { F32, F16, BF16, TENSORS };
static const struct gf_tensor tensors[TENSORS] = {
    {.name = "fp32", .elem_count = 8},
    {.name = "fp16", .elem_count = 8, .type = GF_TYPE_F16},
    {.name = "bf16", .elem_count = 8, .type = GF_TYPE_BF16},
};

static struct world_setup setup_of(void)
{
    struct world_setup setup = {
        .world = 1, .tensors = tensors, .tensor_count = TENSORS, .sim = world_network};
    setup.config.optimizer.kind = GF_OPTIMIZER_SGD;
    setup.config.optimizer.half_weights = GF_TYPE_BF16;
    return setup;
}

static uintptr_t number(gf_mem at)
{
    return (uintptr_t)at;
}

TEST(a_pointer_is_the_address_and_has_the_tensors_type)
{
    struct world_setup setup = setup_of();
    WORLD_OPEN(w, &setup);
    gf_context *gf = w.ranks[0].gf;
    for (uint32_t t = 0; t < TENSORS; t++) {
        uintptr_t gradient = number(gf_gradient(gf, t));
        assert_int_not_equal(gradient, 0);
        assert_int_equal((uintptr_t)gf_gradient_f32(gf, t), (t == F32) ? gradient : 0);
        assert_int_equal((uintptr_t)gf_gradient_bits16(gf, t), (t == F32) ? 0 : gradient);
        assert_int_equal((uintptr_t)gf_weight_f32(gf, t), number(gf_weight(gf, t)));
        assert_int_equal((uintptr_t)gf_weight_bits16(gf, t), number(gf_weight_half(gf, t)));
        assert_non_null(gf_weight_f32(gf, t));
        assert_non_null(gf_weight_bits16(gf, t));
    }
}

static void has_none(gf_context *gf, uint32_t tensor)
{
    assert_null(gf_gradient_f32(gf, tensor));
    assert_null(gf_gradient_bits16(gf, tensor));
    assert_null(gf_weight_f32(gf, tensor));
    assert_null(gf_weight_bits16(gf, tensor));
}

TEST(there_is_none_for_no_tensor_and_no_context)
{
    struct world_setup setup = setup_of();
    WORLD_OPEN(w, &setup);
    has_none(w.ranks[0].gf, TENSORS);
    has_none(w.ranks[0].gf, UINT32_MAX);
    has_none(NULL, 0);
}

TEST(without_an_optimizer_there_are_no_weights)
{
    struct world_setup setup = setup_of();
    setup.config.optimizer.kind = GF_OPTIMIZER_NONE;
    setup.config.optimizer.half_weights = GF_TYPE_F32;
    WORLD_OPEN(w, &setup);
    assert_null(gf_weight_f32(w.ranks[0].gf, F32));
    assert_null(gf_weight_bits16(w.ranks[0].gf, F32));
    assert_non_null(gf_gradient_f32(w.ranks[0].gf, F32));
}

TEST(on_a_device_an_address_is_no_pointer)
{
    struct world_setup setup = setup_of();
    setup.gpu = &late_gpu;
    strcpy(setup.config.device.driver, "cuda");
    WORLD_OPEN(w, &setup);
    for (uint32_t t = 0; t < TENSORS; t++) {
        assert_int_not_equal(number(gf_gradient(w.ranks[0].gf, t)), 0);
        has_none(w.ranks[0].gf, t);
    }
}
