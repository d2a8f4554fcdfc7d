/* gf-train's 16-bit numbers: conversions as the library's, and what layers hand on with
 * --precision. */
#include "firmware-tests/support/suite.h"
#include "ops/element/host/half.h"
#include "tools/train/train_half.h"
#include "tools/train/train_net.h"

static bool same_float(float a, float b)
{
    return (memcmp(&a, &b, sizeof a) == 0) || (isnan(a) && isnan(b));
}

/* Against the library's, which test_half.c holds to double arithmetic: every 16-bit value, the ties
 * between two and their neighbours, and two million others. */
TEST(test_half_conversions_are_those_of_the_library)
{
    for (int type = GF_TYPE_F16; type <= GF_TYPE_BF16; type++) {
        bool f16 = type == GF_TYPE_F16;
        for (uint32_t half = 0; half < 65536; half++) {
            uint16_t from = (uint16_t)half;
            float value;
            float expected = f16 ? gf_f32_of_f16(from) : gf_f32_of_bf16(from);
            half_get((gf_type)type, &value, &from, 1);
            if (!same_float(value, expected))
                fail_msg("type %d: %04x is %g, not %g", type, half, expected, value);
        }
        /* first all bits down to one below what rounding looks at */
        for (uint64_t i = 0; i < 4500000; i++) {
            uint32_t low = f16 ? 0xfffu + (uint32_t)(i % 4) : 0x7fffu + (uint32_t)(i % 4);
            uint32_t bits = (i < 2097152) ? (uint32_t)(i / 4 << (f16 ? 13 : 16)) + low
                                          : (uint32_t)(i * 2654435761u);
            float value = gf_f32_of_bits(bits);
            float rounded = value;
            uint16_t expected = f16 ? gf_f16_of_f32(value) : gf_bf16_of_f32(value);
            uint16_t half;
            half_round((gf_type)type, &rounded, 1);
            half_put((gf_type)type, &half, &value, 1);
            if ((half != expected) && !isnan(value))
                fail_msg("type %d: %08x is %04x, not %04x", type, bits, expected, half);
            if (!same_float(rounded, f16 ? gf_f32_of_f16(half) : gf_f32_of_bf16(half)))
                fail_msg("%08x", bits);
            assert_int_equal(isnan(value), isnan(rounded));
        }
    }
}

static bool is_rounded(gf_type type, const float *data, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        float value = data[i];
        half_round(type, &value, 1);
        if (value != data[i]) return false;
    }
    return true;
}

#define IMAGES 8u

static float *floats_take(uint64_t count)
{
    float *data = aligned_alloc(64, (count * sizeof *data + 63u) & ~(size_t)63u);
    assert_non_null(data);
    return data;
}

/* Forward and backward of a batch of noise; gradients of tensor i go to gradient[i]. */
static void pass(struct net *net, const struct data_set *set, float **gradient)
{
    uint32_t hits;
    for (uint32_t i = 0; i < net->model->tensor_count; i++)
        net->gradient[i] = gradient[i] = floats_take(net->model->tensors[i].elem_count);
    net_load(net, set, NULL, 0, IMAGES);
    net->model->forward(net);
    (void)layer_softmax_loss(net->logits, net->labels, IMAGES, DATA_CLASSES, 1.0f / IMAGES, &hits);
    net_round(net, net->logits, IMAGES * DATA_CLASSES);
    assert_int_equal(net->model->backward(net), GF_OK);
}

/* What a layer hands on has 16 bits, forward and backward; the gradients that come of it are near
 * those of fp32. */
static void model_hands_on_16_bits(const struct net_model *model, const struct data_set *set)
{
    struct net net;
    struct data_random random;
    float *plain[NET_TENSORS_MAX];
    float *half[NET_TENSORS_MAX];
    float *workspace = floats_take(net_measure(model, &layers_host, IMAGES) / sizeof(float) + 16u);
    data_random_seed(&random, 7, 0);
    net_open(&net, model, &layers_host, NULL, IMAGES, workspace);
    for (uint32_t i = 0; i < model->tensor_count; i++)
        net.weight[i] = floats_take(model->tensors[i].elem_count);
    model->init(&net, &random);
    pass(&net, set, plain);
    net.precision = GF_TYPE_F16;
    pass(&net, set, half);
    if (model == &net_cnn) {
        assert_true(is_rounded(GF_TYPE_F16, net.input, (uint64_t)IMAGES * DATA_PIXELS));
        assert_true(is_rounded(GF_TYPE_F16, net.pooled1, (uint64_t)IMAGES * 18 * 18 * 32));
        assert_true(is_rounded(GF_TYPE_F16, net.hidden, (uint64_t)IMAGES * 512));
        assert_true(is_rounded(GF_TYPE_F16, net.hidden_gradient, (uint64_t)IMAGES * 512));
        assert_true(is_rounded(GF_TYPE_F16, net.pooled2_gradient, (uint64_t)IMAGES * 3136));
        assert_true(is_rounded(GF_TYPE_F16, net.pooled1_gradient, (uint64_t)IMAGES * 18 * 18 * 32));
    }
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        double apart = 0.0;
        double length = 0.0;
        for (uint64_t j = 0; j < model->tensors[i].elem_count; j++) {
            apart += pow((double)(plain[i][j] - half[i][j]), 2);
            length += pow((double)plain[i][j], 2);
        }
        if (!(apart > 0.0) || !(sqrt(apart) <= 0.1 * sqrt(length)))
            fail_msg("%s: %g of %g", model->tensors[i].name, sqrt(apart), sqrt(length));
        free(plain[i]);
        free(half[i]);
        free(net.weight[i]);
    }
    free(workspace);
}

TEST(test_layers_hand_on_16_bits)
{
    static uint8_t pixels[IMAGES * DATA_PIXELS];
    static uint8_t labels[IMAGES];
    struct data_set set = {IMAGES, pixels, labels};
    struct data_random random;
    data_random_seed(&random, 3, 0);
    for (uint32_t i = 0; i < IMAGES * DATA_PIXELS; i++)
        pixels[i] = (uint8_t)data_random_below(&random, 256);
    for (uint32_t i = 0; i < IMAGES; i++)
        labels[i] = (uint8_t)data_random_below(&random, DATA_CLASSES);
    model_hands_on_16_bits(&net_cnn, &set);
    model_hands_on_16_bits(&net_linear, &set);
}
