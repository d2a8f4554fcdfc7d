/* See train_weights.h. */
#include "tools/train/train_weights.h"

#include <string.h>

#include "tools/train/train_half.h"

static float *host(gf_mem address) { return (float *)(uintptr_t)address; }

static bool is_half(const struct train *train) { return train->options->precision != GF_TYPE_F32; }

void train_tensors(struct train *train)
{
    const struct net_model *model = train->options->model;
    memcpy(train->tensors, model->tensors, model->tensor_count * sizeof *train->tensors);
    for (uint32_t i = 0; i < model->tensor_count; i++) train->tensors[i].type = train->options->precision;
}

void train_weights_layout(struct train *train, char *base, size_t *used_bytes)
{
    const struct net_model *model = train->options->model;
    for (uint32_t i = 0; is_half(train) && (i < model->tensor_count); i++) {
        size_t bytes = model->tensors[i].elem_count * sizeof(float);
        train->weight_copy[i] = net_take(base, used_bytes, bytes);
        train->gradient_copy[i] = net_take(base, used_bytes, bytes);
    }
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

void train_pools(struct train *train)
{
    struct net *net = &train->net;
    net->sink = (struct net_sink){.user = train, .ready = sink_ready, .poll = sink_poll};
    net->precision = train->options->precision;
    if (train->on_device) device_pools(&train->device, train->gf);
    for (uint32_t i = 0; !train->on_device && (i < net->model->tensor_count); i++) {
        net->weight[i] = is_half(train) ? train->weight_copy[i] : host(gf_weight(train->gf, i));
        net->gradient[i] = is_half(train) ? train->gradient_copy[i] : host(gf_gradient(train->gf, i));
    }
}

void train_weights_fetch(struct train *train)
{
    for (uint32_t i = 0; is_half(train) && (i < train->net.model->tensor_count); i++)
        half_get(train->options->precision, train->net.weight[i], (const uint16_t *)host(gf_weight_half(train->gf, i)),
                 train->tensors[i].elem_count);
}

const float *train_weight(struct train *train, uint32_t tensor)
{
    return train->on_device ? train->net.weight[tensor] : host(gf_weight(train->gf, tensor));
}

/* FNV-1a over 32-bit words: any single bit that differs makes the hashes differ. */
uint64_t train_weights_hash(struct train *train)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < train->net.model->tensor_count; i++) {
        const float *weight = train_weight(train, i);
        for (uint64_t at = 0; at < train->tensors[i].elem_count; at++) {
            uint32_t word;
            memcpy(&word, weight + at, sizeof word);
            hash = (hash ^ word) * 0x100000001b3u;
        }
    }
    return hash;
}

gf_status train_begin_joiner(struct train *train)
{
    train_pools(train);
    train->stats_trained.size_bytes = sizeof train->stats_trained;
    gf_status status = gf_stats(train->gf, &train->stats_trained);
    return (status < 0) ? status : train_checkpoint_begin(train);
}

static gf_status weights_draw(struct train *train)
{
    struct data_random random;
    data_random_seed(&random, train->options->seed, 0);
    train->net.model->init(&train->net, &random);
    if (train->on_device) return device_weights_put(&train->device);
    for (uint32_t i = 0; is_half(train) && (i < train->net.model->tensor_count); i++)
        memcpy(host(gf_weight(train->gf, i)), train->net.weight[i], train->tensors[i].elem_count * sizeof(float));
    return GF_OK;
}

gf_status train_begin(struct train *train)
{
    train_pools(train);
    gf_status status = (train->rank == 0) ? weights_draw(train) : GF_OK;
    if (status >= 0) status = gf_broadcast_weights(train->gf, 0);
    if (status < 0) return status;
    train->stats_trained.size_bytes = sizeof train->stats_trained;
    return gf_stats(train->gf, &train->stats_trained);
}
