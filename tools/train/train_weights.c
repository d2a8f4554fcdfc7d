/* See train_weights.h. */
#include "drivers/base/fnv.h"
#include "tools/train/train_weights.h"

#include <string.h>

#include "tools/train/train_half.h"

static float *host(gf_mem address)
{
    return (float *)(uintptr_t)address;
}

/* This tensor is of a layer whose rows are the ranks' own. */
static bool is_split(const struct train *train, uint32_t tensor)
{
    uint32_t weight = train->options->model->split.weight_tensor;
    return (train->options->split != NULL) && ((tensor == weight) || (tensor == weight + 1u));
}

static bool is_half(const struct train *train)
{
    return train->options->precision != GF_TYPE_F32;
}

void train_tensors(struct train *train)
{
    const struct net_model *model = train->options->model;
    memcpy(train->tensors, model->tensors, model->tensor_count * sizeof *train->tensors);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        train->tensors[i].type = train->options->precision;
        if (is_split(train, i)) train->tensors[i].elem_count = 0;
    }
}

const char *train_split_refuses(const struct train *train)
{
    const struct train_options *options = train->options;
    const struct gf_config *config = train->config;
    if (options->split == NULL) return NULL;
    if (train->on_device || (options->precision != GF_TYPE_F32) || config->loss_scale.enabled)
        return "--split: allowed is device.driver = host, fp32, no loss scale";
    if ((config->optimizer.kind != GF_OPTIMIZER_SGD) || config->optimizer.nesterov ||
        (config->optimizer.clip_norm > 0))
        return "--split: allowed is sgd without nesterov and clip_norm, which the appliance does "
               "to its own rows";
    if (config->exchange.average > GF_AVERAGE_SUM)
        return "--split: allowed is exchange.average = sum";
    if (options->elastic)
        return "--split with --elastic: rows of a rank that dies are lost; allowed is one of them";
    if ((options->batch % train->world != 0) ||
        (options->model->split.out_width % train->world != 0))
        return "--split: the ranks must divide the batch and the layer's outputs (512 of fc1, 10 "
               "of linear)";
    return NULL;
}

void train_weights_layout(struct train *train, char *base, size_t *used_bytes)
{
    const struct net_model *model = train->options->model;
    for (uint32_t i = 0; is_half(train) && (i < model->tensor_count); i++) {
        size_t bytes = model->tensors[i].elem_count * sizeof(float);
        train->weight_copy[i] = net_take(base, used_bytes, bytes);
        train->gradient_copy[i] = net_take(base, used_bytes, bytes);
    }
    if (train->options->split == NULL) return;
    train->split = (struct net_split){.gf = train->gf,
                                      .rank = train->rank,
                                      .world = train->world,
                                      .images = train->options->batch,
                                      .weight_tensor = model->split.weight_tensor,
                                      .in_width = model->split.in_width,
                                      .out_width = model->split.out_width};
    split_layout(&train->split, base, used_bytes);
}

/* The gradient in the library's type, then the library's. */
static gf_status sink_ready(void *user, uint32_t tensor)
{
    struct train *train = user;
    if (is_half(train))
        half_put(train->options->precision, (uint16_t *)host(gf_gradient(train->gf, tensor)),
                 train->net.gradient[tensor], train->tensors[tensor].elem_count);
    return gf_tensor_ready(train->gf, tensor, 0);
}

static gf_status sink_poll(void *user)
{
    return gf_step_poll(((struct train *)user)->gf);
}

gf_status train_step_begin(struct train *train)
{
    uint32_t batch = train->options->batch;
    uint32_t first = train_share_first(batch, train->rank, train->world);
    uint32_t end = train_share_first(batch, train->rank + 1u, train->world);
    gf_status status = gf_step_begin(train->gf);
    return (status < 0) ? status : gf_step_samples(train->gf, end - first);
}

static gf_status sink_begin(void *user)
{
    return train_step_begin(user);
}

void train_pools(struct train *train)
{
    struct net *net = &train->net;
    net->sink = (struct net_sink){
        .user = train, .begin = sink_begin, .ready = sink_ready, .poll = sink_poll};
    net->precision = train->options->precision;
    if (train->on_device) device_pools(&train->device, train->gf);
    for (uint32_t i = 0; !train->on_device && (i < net->model->tensor_count); i++) {
        net->weight[i] = is_half(train) ? train->weight_copy[i] : host(gf_weight(train->gf, i));
        net->gradient[i] =
            is_half(train) ? train->gradient_copy[i] : host(gf_gradient(train->gf, i));
    }
    if (train->options->split == NULL) return;
    net->split = &train->split;
    net->weight[train->split.weight_tensor] = train->split.whole;
    net->weight[train->split.weight_tensor + 1u] =
        train->split.whole + (uint64_t)train->split.out_width * train->split.in_width;
}

void train_weights_fetch(struct train *train)
{
    for (uint32_t i = 0; is_half(train) && (i < train->net.model->tensor_count); i++)
        half_get(train->options->precision, train->net.weight[i],
                 (const uint16_t *)host(gf_weight_half(train->gf, i)),
                 train->tensors[i].elem_count);
}

const float *train_weight(struct train *train, uint32_t tensor)
{
    if (train->on_device || is_split(train, tensor)) return train->net.weight[tensor];
    return host(gf_weight(train->gf, tensor));
}

uint64_t train_weights_hash(struct train *train)
{
    uint64_t hash = GF_FNV_START;
    for (uint32_t i = 0; i < train->net.model->tensor_count; i++) {
        uint64_t bytes = train->net.model->tensors[i].elem_count * sizeof(float);
        hash = gf_fnv_words(hash, train_weight(train, i), bytes);
    }
    return hash;
}

/* What is counted up to here is not of the training, of which there may be none. */
static gf_status stats_begin(struct train *train)
{
    train->stats_trained.size_bytes = sizeof train->stats_trained;
    gf_status status = gf_stats_read(train->gf, &train->stats_trained);
    train->stats = train->stats_trained;
    return status;
}

gf_status train_begin_joiner(struct train *train)
{
    train_pools(train);
    gf_status status = stats_begin(train);
    return (status < 0) ? status : train_checkpoint_begin(train);
}

static gf_status weights_draw(struct train *train)
{
    struct data_random random;
    data_random_seed(&random, train->options->seed, 0);
    train->net.model->init(&train->net, &random);
    if (train->on_device) return device_weights_put(&train->device);
    for (uint32_t i = 0; is_half(train) && (i < train->net.model->tensor_count); i++)
        memcpy(host(gf_weight(train->gf, i)), train->net.weight[i],
               train->tensors[i].elem_count * sizeof(float));
    return GF_OK;
}

gf_status train_begin(struct train *train)
{
    train_pools(train);
    if (gf_weights_common(train->gf)) return stats_begin(train); /* a regroup gave them */
    /* own rows are drawn with all others */
    bool draws = (train->rank == 0) || (train->options->split != NULL);
    gf_status status = draws ? weights_draw(train) : GF_OK;
    if (train->options->split != NULL) split_begin(&train->split);
    if (status >= 0) status = gf_broadcast_weights(train->gf, 0);
    return (status < 0) ? status : stats_begin(train);
}
