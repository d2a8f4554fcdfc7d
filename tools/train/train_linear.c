/* Softmax regression, 784 -> 10. Its loss is convex, so rounding is not amplified: runs of different world sizes must
 * agree, and a test that compares them means something. */
#include "tools/train/train_layers.h"
#include "tools/train/train_net.h"
#include "tools/train/train_split.h"

enum { LINEAR_WEIGHT, LINEAR_BIAS, LINEAR_TENSORS };

static const struct gf_tensor linear_tensors[LINEAR_TENSORS] = {
    [LINEAR_WEIGHT] = {.name = "linear.weight", .elem_count = DATA_CLASSES * DATA_PIXELS},
    [LINEAR_BIAS] = {.name = "linear.bias", .elem_count = DATA_CLASSES, .flags = GF_TENSOR_DENSE | GF_TENSOR_NO_DECAY},
};

static size_t linear_layout(struct net *net, char *base)
{
    size_t used = 0, images = net->images_max;
    net->input = net_take(base, &used, images * DATA_PIXELS * sizeof(float));
    net->labels = net_take(base, &used, images);
    net->logits = net_take(base, &used, images * DATA_CLASSES * sizeof(float));
    return used;
}

/* Convex: any start will do, and zero is the one that favours no class. */
static void linear_init(struct net *net, struct data_random *random)
{
    for (uint32_t i = 0; i < LINEAR_TENSORS; i++)
        net_init_normal(net->weight[i], linear_tensors[i].elem_count, 0, random);
}

static void linear_forward(struct net *net)
{
    net_full_forward(net, LINEAR_WEIGHT, net->input, DATA_PIXELS, net->logits, DATA_CLASSES, false);
}

static gf_status linear_backward(struct net *net)
{
    if (net_splits(net, LINEAR_WEIGHT)) {
        net->status = split_backward(net->split, net->logits, NULL);
        net_begin(net);
    }
    net_full_backward(net, LINEAR_WEIGHT, net->input, DATA_PIXELS, net->logits, DATA_CLASSES);
    return net->status;
}

const struct net_model net_linear = {
    .name = "linear",
    .split = {"linear", LINEAR_WEIGHT, DATA_PIXELS, DATA_CLASSES},
    .tensors = linear_tensors,
    .tensor_count = LINEAR_TENSORS,
    .learning_rate = 0.01f,
    .layout = linear_layout,
    .init = linear_init,
    .forward = linear_forward,
    .backward = linear_backward,
};
