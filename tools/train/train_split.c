/* See train_split.h. Ranks have equal numbers of images and rows: a block of a collective is what
 * one rank holds. */
#include "tools/train/train_split.h"

#include <string.h>

#include "tools/train/train_layers.h"
#include "tools/train/train_net.h"

static uint64_t sent_bytes(const gf_context *gf)
{
    struct gf_stats stats = {.size_bytes = sizeof stats};
    return (gf_stats_read(gf, &stats) < 0) ? 0 : stats.wire_bytes + stats.mapped_bytes;
}

static gf_status exchange(struct net_split *split,
                          gf_status (*post)(gf_context *, gf_mem, uint64_t, gf_type,
                                            struct gf_request *),
                          float *data, uint64_t count)
{
    struct gf_request request = {0};
    uint64_t before = sent_bytes(split->gf);
    gf_status status = post(split->gf, (gf_mem)(uintptr_t)data, count, GF_TYPE_F32, &request);
    if (status >= 0) status = gf_request_wait(split->gf, &request);
    split->exchanged += sent_bytes(split->gf) - before;
    return status;
}

static uint32_t own_images(const struct net_split *split)
{
    return split->images / split->world;
}

static float *own_block(const struct net_split *split, float *data, uint64_t count)
{
    return data + count / split->world * split->rank;
}

/* Between [world][images][rows], as ranks compute them, and [count][out_width] of images from
 * `first` on. */
static void columns_join(const struct net_split *split, uint32_t first, uint32_t count, float *out)
{
    for (uint32_t r = 0; r < split->world; r++)
        for (uint32_t i = 0; i < count; i++)
            memcpy(out + (size_t)i * split->out_width + r * split->rows,
                   split->out + ((size_t)r * split->images + first + i) * split->rows,
                   split->rows * sizeof *out);
}

void split_layout(struct net_split *split, char *base, size_t *used_bytes)
{
    uint64_t width = split->in_width + 1u;
    split->rows = split->out_width / split->world;
    split->own_count = 2u * width * split->rows;
    split->whole = net_take(base, used_bytes, width * split->out_width * sizeof(float));
    split->own = net_take(base, used_bytes, split->own_count * sizeof(float));
    split->gradient = net_take(base, used_bytes, width * split->rows * sizeof(float));
    split->in = net_take(base, used_bytes, (size_t)split->images * split->in_width * sizeof(float));
    split->part = net_take(base, used_bytes, (size_t)split->images * split->rows * sizeof(float));
    split->out =
        net_take(base, used_bytes, (size_t)split->images * split->out_width * sizeof(float));
}

/* Weights and biases of the rows lie in `whole` as [out_width][in_width], [out_width]. */
void split_begin(struct net_split *split)
{
    uint64_t count = (uint64_t)split->rows * split->in_width;
    const float *biases = split->whole + (uint64_t)split->out_width * split->in_width;
    memset(split->own, 0, split->own_count * sizeof(float));
    memcpy(split->own, split->whole + split->rank * count, count * sizeof(float));
    memcpy(split->own + count, biases + split->rank * split->rows, split->rows * sizeof(float));
}

void split_forward(struct net_split *split, const float *in, float *out, bool relu)
{
    uint64_t in_count = (uint64_t)split->images * split->in_width;
    uint64_t out_count = (uint64_t)split->images * split->out_width;
    memcpy(own_block(split, split->in, in_count), in, in_count / split->world * sizeof *in);
    split->status = exchange(split, gf_allgather, split->in, in_count);
    if (split->status < 0) return;
    float *columns = own_block(split, split->out, out_count);
    layers_host.gemm(NULL, false, true, split->images, split->rows, split->in_width, split->in,
                     split->own, false, columns);
    layers_host.bias(NULL, columns, split->own + (uint64_t)split->rows * split->in_width,
                     split->images, split->rows, relu);
    split->status = exchange(split, gf_allgather, split->out, out_count);
    if (split->status >= 0)
        columns_join(split, own_images(split) * split->rank, own_images(split), out);
}

gf_status split_backward(struct net_split *split, const float *out_gradient, float *in_gradient)
{
    uint64_t in_count = (uint64_t)split->images * split->in_width;
    uint64_t out_count = (uint64_t)split->images * split->out_width;
    uint64_t weights = (uint64_t)split->rows * split->in_width;
    if (split->status < 0) return split->status;
    memcpy(own_block(split, split->out, out_count), out_gradient,
           out_count / split->world * sizeof *out_gradient);
    gf_status status = exchange(split, gf_allgather, split->out, out_count);
    if (status < 0) return status;
    for (uint32_t i = 0; i < split->images; i++)
        memcpy(split->part + (size_t)i * split->rows,
               split->out + (size_t)i * split->out_width + split->rank * split->rows,
               split->rows * sizeof(float));
    layers_host.gemm(NULL, true, false, split->rows, split->in_width, split->images, split->part,
                     split->in, false, split->gradient);
    layers_host.column_sum(NULL, split->part, split->images, split->rows,
                           split->gradient + weights);
    if (in_gradient == NULL) return GF_OK;
    layers_host.gemm(NULL, false, false, split->images, split->in_width, split->rows, split->part,
                     split->own, false, split->in);
    status = exchange(split, gf_reduce_scatter, split->in, in_count);
    if (status >= 0)
        memcpy(in_gradient, own_block(split, split->in, in_count),
               in_count / split->world * sizeof *in_gradient);
    return status;
}

void split_update(struct net_split *split, float rate, float momentum, float decay)
{
    uint64_t weights = (uint64_t)split->rows * split->in_width;
    uint64_t count = split->own_count / 2u;
    float *weight = split->own;
    float *velocity = split->own + count;
    for (uint64_t i = 0; i < count; i++) {
        velocity[i] = momentum * velocity[i] +
                      (split->gradient[i] + ((i < weights) ? decay * weight[i] : 0.0f));
        weight[i] -= rate * velocity[i];
    }
}

gf_status split_gather(struct net_split *split)
{
    uint64_t count = (uint64_t)split->rows * split->in_width;
    float *biases = split->whole + (uint64_t)split->out_width * split->in_width;
    memcpy(split->whole + split->rank * count, split->own, count * sizeof(float));
    memcpy(biases + split->rank * split->rows, split->own + count, split->rows * sizeof(float));
    uint64_t before = split->exchanged;
    gf_status status = exchange(split, gf_allgather, split->whole, count * split->world);
    if (status >= 0) status = exchange(split, gf_allgather, biases, split->out_width);
    split->exchanged = before; /* not of a step */
    return status;
}
