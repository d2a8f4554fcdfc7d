/* config/models/: parameters, tensors, floating-point operations and backward order of each model
 * are what is published for it, and the library takes it. */
#include "firmware-tests/support/suite.h"
#include "config/config.h"
#include "tools/common/tool_model.h"

#define FLAGS_SMALL (GF_TENSOR_DENSE | GF_TENSOR_NO_DECAY)

static struct gf_tensor tensors[GF_TENSORS_MAX];
static char names[GF_TENSORS_MAX][48];
static struct tool_flops flops[GF_TENSORS_MAX];
static uint32_t tensor_count;

/* `published` is the multiply-adds of a forward pass in 1e9, as commonly rounded: torchvision's
 * documentation (alexnet, resnet50, vgg), counts of the Caffe model (googlenet), of its layer
 * shapes alone (nin), and for the transformer the formula of arXiv 2104.04473. heads are auxiliary
 * classifiers, which published inference figures leave out. */
static const struct model {
    const char *name;
    uint64_t elem_count;
    uint32_t tensor_count;
    double published, rounding;
    uint64_t first_forward; /* of the layer that sees the input: it has no input gradient */
    uint64_t heads_elem_count;
    const char *order[6]; /* a few names in backward order: first, some between, last */
} models[] = {
    {"alexnet",
     61100840 + 2 * (64 + 192 + 384 + 256 + 256),
     26,
     0.71,
     0.005,
     2ull * 3 * 121 * 64 * 55 * 55,
     0,
     {"fc8.weight", "fc6.bias", "bn5.weight", "conv5.weight", "bn1.weight", "conv1.bias"}},
    {"resnet50",
     25557032,
     161,
     4.09,
     0.005,
     2ull * 3 * 49 * 64 * 112 * 112,
     0,
     {"fc.weight", "layer4.2.bn3.weight", "layer4.0.conv1.weight", "layer4.0.downsample.0.weight",
      "layer1.0.conv2.weight", "conv1.weight"}},
    {"googlenet",
     6998552 + 6379728,
     128,
     1.6,
     0.05,
     2ull * 3 * 49 * 64 * 112 * 112,
     6379728,
     {"loss3/classifier.weight", "inception_4e/1x1.weight", "loss2/classifier.weight",
      "inception_4d/3x3.weight", "loss1/conv.weight", "conv1/7x7_s2.bias"}},
    {"nin",
     7595176,
     24,
     1.1,
     0.05,
     2ull * 3 * 121 * 96 * 54 * 54,
     0,
     {"cccp8-1024.weight", "conv4-1024.weight", "cccp6.weight", "conv2.weight", "cccp1.weight",
      "conv1.bias"}},
    {"vgg16",
     138357544,
     32,
     15.47,
     0.005,
     2ull * 3 * 9 * 64 * 224 * 224,
     0,
     {"fc8.weight", "fc6.bias", "conv5_3.weight", "conv4_1.weight", "conv2_2.weight",
      "conv1_1.bias"}},
    {"vgg19",
     143667240,
     38,
     19.63,
     0.005,
     2ull * 3 * 9 * 64 * 224 * 224,
     0,
     {"fc8.weight", "fc6.bias", "conv5_4.weight", "conv4_1.weight", "conv2_2.weight",
      "conv1_1.bias"}},
    /* 24 layers of 12 h^2 + 13 h, h = 1024; embeddings of 30522 + 512 + 2 rows; pooler, transform,
     * norms, heads. The formula's layers with s = 512 tokens: s (12 h^2 + 2 s h) multiply-adds; the
     * decoder sees 80 of them. */
    {"bert_large",
     24ull * (12 * 1048576 + 13 * 1024) + 31036ull * 1024 + 2 * (1048576 + 1024) + 4 * 1024 + 2050 +
         30522,
     398,
     24 * 512e-9 * (12 * 1048576.0 + 2 * 512 * 1024.0) + 80e-9 * (30522.0 * 1024 + 1048576),
     0.002,
     0,
     0,
     {"masked.decoder.bias", "pooler.weight", "layer.23.norm.weight",
      "layer.23.attention.query.weight", "layer.0.attention.query.weight",
      "embeddings.word.weight"}},
    /* 12 such layers, h = 768, s = 1024; two embeddings and the last norm; the product with the
     * words' embedding. */
    {"gpt2",
     12ull * (12 * 589824 + 13 * 768) + (50257ull + 1024 + 2) * 768,
     148,
     12 * 1024e-9 * (12 * 589824.0 + 2 * 1024 * 768.0) + 1024e-9 * 50257 * 768,
     0.002,
     0,
     0,
     {"ln_f.weight", "h.11.mlp.c_proj.weight", "h.11.ln_2.weight", "h.11.attn.c_attn.weight",
      "h.0.ln_1.bias", "wte.weight"}},
};

static void model_read(const struct model *model)
{
    static char error[GF_CONFIG_ERROR_BYTES];
    char path[64];
    (void)snprintf(path, sizeof path, "config/models/%s.cfg", model->name);
    struct tool_model file = {
        .tensors = tensors, .names = names, .flops = flops, .tensor_max = GF_TENSORS_MAX};
    if (tool_model_load(path, &file, error) != GF_OK) fail_msg("%s", error);
    tensor_count = file.tensor_count;
}

static bool is_head(const struct model *model, uint32_t tensor)
{
    return (model->heads_elem_count > 0) && ((strncmp(names[tensor], "loss1/", 6) == 0) ||
                                             (strncmp(names[tensor], "loss2/", 6) == 0));
}

TEST(counts_are_the_published_ones)
{
    for (size_t m = 0; m < LENGTH(models); m++) {
        uint64_t elems = 0;
        uint64_t heads = 0;
        model_read(&models[m]);
        for (uint32_t i = 0; i < tensor_count; i++) elems += tensors[i].elem_count;
        for (uint32_t i = 0; i < tensor_count; i++)
            heads += is_head(&models[m], i) ? tensors[i].elem_count : 0;
        if ((elems != models[m].elem_count) || (tensor_count != models[m].tensor_count))
            fail_msg("%s: %llu parameters in %u tensors", models[m].name, (unsigned long long)elems,
                     tensor_count);
        assert_int_equal(heads, models[m].heads_elem_count);
    }
}

TEST(flops_are_the_published_ones)
{
    for (size_t m = 0; m < LENGTH(models); m++) {
        uint64_t forward = 0;
        uint64_t all_forward = 0;
        uint64_t backward = 0;
        double macs;
        model_read(&models[m]);
        for (uint32_t i = 0; i < tensor_count; i++) {
            forward += is_head(&models[m], i) ? 0 : flops[i].forward;
            all_forward += flops[i].forward;
            backward += flops[i].backward;
        }
        macs = (double)forward * 0.5e-9;
        if ((macs < models[m].published - models[m].rounding) ||
            (macs > models[m].published + models[m].rounding))
            fail_msg("%s: %.4f of %.4f multiply-adds", models[m].name, macs, models[m].published);
        assert_int_equal(backward, 2 * all_forward - models[m].first_forward);
    }
}

/* A weight is used a whole number of times for an image, by a convolution at most once a pixel;
 * nothing else has any, but where ../config/models says so: the attention (4 s^2 h) and the
 * decoder. */
TEST(flops_stand_at_weights_that_are_multiplied)
{
    for (size_t m = 0; m < LENGTH(models); m++) {
        model_read(&models[m]);
        for (uint32_t i = 0; i < tensor_count; i++) {
            bool is_small = strstr(names[i], ".bias") || strstr(names[i], "norm.") ||
                            strstr(names[i], "ln_") || strstr(names[i], "bn") ||
                            strstr(names[i], "downsample.1");
            uint64_t forward = flops[i].forward;
            assert_int_equal(tensors[i].type, GF_TYPE_F32);
            if (tensors[i].flags != (is_small ? FLAGS_SMALL : 0u))
                fail_msg("%s: flags of %s", models[m].name, names[i]);
            if (strcmp(names[i], "masked.decoder.bias") == 0) {
                assert_int_equal(forward, 2ull * 80 * 30522 * 1024);
                continue;
            }
            if (strcmp(names[i], "ln_f.weight") == 0) {
                assert_int_equal(forward, 2ull * 1024 * 50257 * 768);
                continue;
            }
            if (strstr(names[i], "c_attn.weight")) forward -= 4ull * 1024 * 1024 * 768;
            if (strstr(names[i], "attention.value.weight")) forward -= 4ull * 512 * 512 * 1024;
            if ((is_small || strstr(names[i], "embeddings") || (names[i][0] == 'w')) !=
                (forward == 0))
                fail_msg("%s: flops of %s", models[m].name, names[i]);
            if ((forward % (2 * tensors[i].elem_count) != 0) ||
                (forward / (2 * tensors[i].elem_count) > 224 * 224))
                fail_msg("%s: %s is not used a whole number of times", models[m].name, names[i]);
        }
    }
}

/* What enters the layers of 1,024 images, in MB of fp32, as FireCaffe's paper has it (arXiv
 * 1511.00175, table 1). */
static const struct volume {
    const char *name;
    double published, here; /* 0: the published one, to 1 % */
} volumes[] = {
    {"nin", 5800, 0},
    {"googlenet", 19100, 0},
    {"vgg19", 42700, 0},
    /* torchvision's: 64 and 192 channels where the network of 2012 has 96 and 256. */
    {"alexnet", 1680, 1455},
};

TEST(what_enters_the_layers_is_what_is_published)
{
    /* AlexNet as of 2012: a picture, 96 channels of 27 x 27, 256, 384 and 384 of 13 x 13, 256 of 6
     * x 6, 4,096 twice. */
    const double alexnet_2012 =
        3 * 224 * 224 + 96 * 27 * 27 + (256 + 384 + 384) * 13 * 13 + 256 * 6 * 6 + 2 * 4096;
    assert_true(fabs(alexnet_2012 * 4 * 1024 / 1e6 / 1680 - 1) < 0.01);
    for (size_t v = 0; v < LENGTH(volumes); v++) {
        double inputs = 0;
        double expected = (volumes[v].here > 0) ? volumes[v].here : volumes[v].published;
        double megabytes;
        for (size_t m = 0; m < LENGTH(models); m++)
            if (strcmp(models[m].name, volumes[v].name) == 0) model_read(&models[m]);
        for (uint32_t i = 0; i < tensor_count; i++) inputs += (double)flops[i].inputs;
        megabytes = inputs * 4 * 1024 / 1e6;
        print_message("  %-10s %8.0f MB, published %6.0f\n", volumes[v].name, megabytes,
                      volumes[v].published);
        if (fabs(megabytes / expected - 1) > 0.01)
            fail_msg("%s: %.0f MB", volumes[v].name, megabytes);
    }
}

/* A batch below it moves less if the layer's outputs are split: W / D of one image. */
TEST(fully_connected_layers_alone_are_better_split)
{
    for (size_t m = 0; m < LENGTH(models); m++) {
        if (strcmp(models[m].name, "vgg19") != 0) continue;
        model_read(&models[m]);
        for (uint32_t i = 0; i < tensor_count; i++) {
            if (flops[i].inputs == 0) continue;
            if (strcmp(names[i], "fc6.weight") == 0)
                assert_int_equal(tensors[i].elem_count / flops[i].inputs, 4096);
            if (strncmp(names[i], "conv", 4) == 0)
                assert_true(tensors[i].elem_count / flops[i].inputs < 32);
        }
    }
}

static uint32_t tensor_find(const char *name)
{
    for (uint32_t i = 0; i < tensor_count; i++)
        if (strcmp(names[i], name) == 0) return i;
    fail_msg("there is no %s", name);
    return GF_TENSOR_NONE;
}

TEST(tensors_are_in_backward_order)
{
    for (size_t m = 0; m < LENGTH(models); m++) {
        model_read(&models[m]);
        assert_int_equal(tensor_find(models[m].order[0]), 0);
        for (size_t i = 1; i < LENGTH(models[m].order); i++)
            assert_true(tensor_find(models[m].order[i]) > tensor_find(models[m].order[i - 1]));
        assert_int_equal(tensor_find(models[m].order[5]), tensor_count - 1);
        /* no name twice */
        for (uint32_t i = 0; i < tensor_count; i++) assert_int_equal(tensor_find(names[i]), i);
    }
}

TEST(the_library_takes_each)
{
    for (size_t m = 0; m < LENGTH(models); m++) {
        struct gf_config config = {.job = {.world = 512, .ignore_environment = true}};
        struct gf_footprint need;
        model_read(&models[m]);
        config.optimizer.kind = GF_OPTIMIZER_LARS;
        assert_int_equal(gf_measure(&config, tensors, tensor_count, &need), GF_OK);
        assert_true(need.exchange_bytes >= models[m].elem_count * sizeof(float));
        config.sparse.enabled = true;
        config.exchange.wire = GF_TYPE_F16;
        assert_int_equal(gf_measure(&config, tensors, tensor_count, &need), GF_OK);
    }
}
