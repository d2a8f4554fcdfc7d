/* The training loop: every rank takes its part of each global batch, the library sums and averages
 * what backward writes into the pool, and moves it while backward goes on. */
#include "tools/train/train_loop.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/common/tool_clock.h"
#include "tools/train/train_elastic.h"
#include "tools/train/train_layers.h"
#include "tools/train/train_ranks.h"
#include "tools/train/train_weights.h"

uint32_t train_share_first(uint32_t count, uint32_t rank, uint32_t world)
{
    return (uint32_t)((uint64_t)count * rank / world);
}

const char *train_plan(struct train *train)
{
    const struct train_options *options = train->options;
    if (options->batch > train->images.image_count)
        return "--batch is larger than the training set (60,000 images in Fashion-MNIST)";
    /* what is left over waits for the next order */
    train->epoch_steps = train->images.image_count / options->batch;
    train->step_count =
        (options->steps != 0) ? options->steps : train->epoch_steps * options->epochs;
    train->schedule = options->schedule;
    if (!options->configured_rate) {
        uint64_t fifth = train->step_count / 5u;
        train->schedule.step_count = train->step_count;
        train->schedule.warmup_steps = (fifth < 100u) ? fifth : 100u;
    }
    if (train->schedule.warmup_steps > train->step_count)
        return "rate.warmup_steps is longer than the training";
    train->series_max =
        (train->step_count < TRAIN_SERIES_MAX) ? train->step_count : TRAIN_SERIES_MAX;
    return NULL;
}

size_t train_layout(struct train *train, char *base)
{
    size_t used = 0;
    uint32_t world = train->options->elastic ? 1 : train->world; /* the fewest there may be */
    uint32_t share = (train->options->batch + world - 1u) / world;
    /* small parts make slow products in the test */
    uint32_t images_max = (share < 64u) ? 64u : share;
    void *workspace =
        net_take(base, &used, net_measure(train->options->model, &layers_host, images_max));
    train->order = net_take(base, &used, train->images.image_count * sizeof *train->order);
    uint32_t most = gf_world_max(train->gf); /* and the most: some may come */
    train->hash_limbs =
        net_take(base, &used, (size_t)most * RANKS_LIMBS * sizeof *train->hash_limbs);
    train->result.weights_hash = net_take(base, &used, (size_t)most * sizeof(uint64_t));
    train->step_seconds = net_take(base, &used, train->series_max * sizeof *train->step_seconds);
    train->exchange_seconds =
        net_take(base, &used, train->series_max * sizeof *train->exchange_seconds);
    train->step_bytes = net_take(base, &used, train->series_max * sizeof *train->step_bytes);
    train->sorted = net_take(base, &used, train->series_max * sizeof *train->sorted);
    train_weights_layout(train, base, &used);
    if (base != NULL)
        net_open(&train->net, train->options->model, &layers_host, NULL, images_max, workspace);
    return used;
}

/* What backward's gradients are multiplied by, so that after the library's sum and average they are
 * the mean over the global batch, whatever the split. */
static float gradient_scale(const struct train *train)
{
    float scale = gf_loss_scale(train->gf);
    switch (train->config->exchange.average) {
    case GF_AVERAGE_RANKS: return scale * (float)train->world / (float)train->options->batch;
    case GF_AVERAGE_SAMPLES: return scale;
    case GF_AVERAGE_SUM: break;
    }
    return scale / (float)train->options->batch;
}

/* One step; *loss_out is the sum over this rank's part. */
static gf_status train_step(struct train *train, double *loss_out)
{
    uint64_t at = train->step % train->epoch_steps;
    uint64_t epoch = train->step / train->epoch_steps;
    uint32_t batch = train->options->batch;
    uint32_t hits = 0;
    uint32_t first = train_share_first(batch, train->rank, train->world);
    uint32_t count = train_share_first(batch, train->rank + 1u, train->world) - first;
    if (train->shuffled != epoch + 1u) /* a regroup can go back to the one before */
        data_shuffle(train->options->seed, epoch, train->order, train->images.image_count);
    train->shuffled = epoch + 1u;

    gf_status status = train->on_device ? device_follow(&train->device) : GF_OK;
    if ((status >= 0) && (train->net.split == NULL)) status = train_step_begin(train);
    if (status < 0) return status;
    double loss = 0.0;
    if (count == 0) {
        for (uint32_t i = 0; (i < train->net.model->tensor_count) && (status >= 0); i++)
            status = gf_tensor_skip(train->gf, i);
    } else {
        net_load(&train->net, &train->images, train->order + at * batch + first, 0, count);
    }
    if (train->on_device && (count > 0)) {
        status = device_step(&train->device, gradient_scale(train));
    } else if (count > 0) {
        train_weights_fetch(train);
        train->net.model->forward(&train->net);
        loss = layer_softmax_loss(train->net.logits, train->net.labels, count, DATA_CLASSES,
                                  gradient_scale(train), &hits);
        net_round(&train->net, train->net.logits, (uint64_t)count * DATA_CLASSES);
        status = train->net.model->backward(&train->net);
    }
    if (status >= 0) status = gf_step_wait(train->gf);
    if ((status >= 0) && train->on_device && (count > 0))
        status = device_step_end(&train->device, &loss, &hits);
    if (status < 0) return status;
    *loss_out = loss;
    float rate = gf_schedule_rate(&train->schedule, train->step);
    if ((train->net.split != NULL) && !gf_step_skipped(train->gf))
        split_update(train->net.split, rate, train->config->optimizer.momentum,
                     train->config->optimizer.weight_decay);
    return gf_update(train->gf, rate);
}

/* The mean loss of the global batch, and a live line about it. */
static gf_status train_look(struct train *train, double loss)
{
    float sums[2] = {(float)loss,
                     (float)(train->stats.wire_bytes - train->stats_trained.wire_bytes)};
    gf_status status = ranks_sum(train->gf, sums, 2);
    if (status < 0) return status;
    double mean = (double)sums[0] / train->options->batch;
    if (train->step == train->step_first) train->result.loss_first = mean;
    train->result.loss_last = mean;
    if (!isfinite(mean)) { /* the same on all ranks */
        snprintf(train->diverged, sizeof train->diverged,
                 "diverged: the loss of step %llu is %g; a lower --lr may help",
                 (unsigned long long)train->step + 1u, mean);
        return GF_ERR_NUMERIC;
    }
    if (train->rank != 0) return GF_OK;
    struct report_moment moment = {.now_ns = tool_clock_ns(),
                                   .step = train->step + 1u,
                                   .step_count = train->step_count,
                                   .epoch_steps = train->epoch_steps,
                                   .batch = train->options->batch,
                                   .loss = mean,
                                   .wire_bytes = sums[1],
                                   .wait_ns = train->stats.wait_ns - train->stats_trained.wait_ns};
    report_live(&train->report, &moment);
    return GF_OK;
}

gf_status train_checkpoint_begin(struct train *train)
{
    struct checkpoint *checkpoint = &train->checkpoint;
    const struct train_options *options = train->options;
    checkpoint->path = options->checkpoint_path;
    snprintf(checkpoint->run.model, sizeof checkpoint->run.model, "%s", options->model->name);
    checkpoint->run.seed = options->seed;
    checkpoint->run.batch = options->batch;
    checkpoint->run.image_count = train->images.image_count;
    if (options->split != NULL) { /* rows of as many ranks, or another run */
        snprintf(checkpoint->run.model, sizeof checkpoint->run.model, "%s, %s in %u",
                 options->model->name, options->split, train->world);
        checkpoint->extra = train->split.own;
        checkpoint->extra_bytes = train->split.own_count * sizeof(float);
    }
    return checkpoint_open(checkpoint, train->gf);
}

gf_status train_resume(struct train *train)
{
    struct checkpoint *checkpoint = &train->checkpoint;
    const struct train_options *options = train->options;
    gf_status status = train_checkpoint_begin(train);
    if ((status < 0) || (checkpoint->path == NULL)) return status;
    if (!options->resume) return checkpoint_begin_anew(checkpoint);
    if (!checkpoint->any_is_there) {
        if (train->rank == 0)
            fprintf(stderr, "--resume: there is no checkpoint %s.0 yet: the run begins at step 0\n",
                    checkpoint->path);
        return GF_OK;
    }
    status = checkpoint_load(checkpoint, &train->step_first);
    if (status < 0) return status;
    if (checkpoint->note[0] != '\0') fprintf(stderr, "warning: checkpoint: %s\n", checkpoint->note);
    if (train->rank == 0)
        fprintf(stderr, "resumed at step %llu%s\n", (unsigned long long)train->step_first,
                (train->step_first == train->step_count)
                    ? ": the run has ended, nothing is left to do"
                    : "");
    if (train->step_first <= train->step_count) return GF_OK;
    snprintf(checkpoint->error, sizeof checkpoint->error,
             "the checkpoint is at step %llu, the run ends at step %llu",
             (unsigned long long)train->step_first, (unsigned long long)train->step_count);
    return GF_ERR_DATA;
}

/* How many of the series were filled; at least one, of zeroes. */
static uint64_t series_count(const struct train *train)
{
    uint64_t steps = train->step_count - train->loop_first;
    if (steps == 0) return 1;
    return (steps < train->series_max) ? steps : train->series_max;
}

gf_status train_save(struct train *train, uint64_t step)
{
    uint64_t begin_ns = tool_clock_ns();
    if ((train->checkpoint.path == NULL) || (train->checkpoint.saved == step)) return GF_OK;
    gf_status status = checkpoint_save(&train->checkpoint, step);
    if (status >= 0) status = gf_trace_checkpoint(train->gf, begin_ns, tool_clock_ns());
    return status;
}

/* The step at train->step, and what follows it; the last one's checkpoint is train_finish()'s. */
static gf_status train_one(struct train *train, uint64_t *step_ns)
{
    double loss = 0.0;
    uint64_t slot = (train->step - train->loop_first) % train->series_max;
    gf_status status = train_step(train, &loss);
    if (status < 0) return status;
    status = gf_stats_read(train->gf, &train->stats);
    if (status < 0) return status;
    uint64_t now_ns = tool_clock_ns();
    train->step_seconds[slot] = (float)(now_ns - *step_ns) * 1e-9f;
    train->exchange_seconds[slot] = (float)train->stats.last_exchange_ns * 1e-9f;
    train->step_bytes[slot] = train->stats.last_wire_bytes;
    bool last = train->step + 1u == train->step_count;
    bool first = train->step == train->step_first;
    if ((train->step % TRAIN_LIVE_STEPS == 0) || first || last) status = train_look(train, loss);
    if (status < 0) return status;
    if (!last && ((train->step + 1u) % train->options->checkpoint_every == 0))
        status = train_save(train, train->step + 1u);
    *step_ns = tool_clock_ns();
    return status;
}

gf_status train_steps(struct train *train)
{
    uint64_t begin_ns = tool_clock_ns();
    uint64_t step_ns = begin_ns;
    train->loop_first = train->step;
    report_begin(&train->report, begin_ns, train->step);
    while (train->step < train->step_count) {
        gf_status status = train_one(train, &step_ns);
        if (status >= 0) train->step++;
        if (status >= 0)
            status = train_admit(train);
        else
            status = train_shrink(train, status); /* says which step is next */
        if (status < 0) return status;
        if (gf_left(train->gf)) break;
    }
    train->loop_ns = step_ns - begin_ns;
    report_end(&train->report);
    return train->on_device ? device_weights_get(&train->device) : GF_OK;
}

gf_status train_test(struct train *train)
{
    struct net *net = &train->net;
    gf_status status = (net->split != NULL) ? split_gather(net->split) : GF_OK;
    if (status < 0) return status;
    net->training = false;
    if (!train->on_device) train_weights_fetch(train);
    uint32_t total = train->tests.image_count;
    uint32_t hits = 0;
    uint32_t first = train_share_first(total, train->rank, train->world);
    uint32_t end = train_share_first(total, train->rank + 1u, train->world);
    while (first < end) {
        uint32_t count = (end - first < net->images_max) ? end - first : net->images_max;
        uint32_t right = 0;
        net_load(net, &train->tests, NULL, first, count);
        net->model->forward(net);
        layer_softmax_loss(net->logits, net->labels, count, DATA_CLASSES, 0.0f, &right);
        hits += right;
        first += count;
        status = gf_heartbeat(train->gf);
        if (status < 0) return status;
    }
    net->training = true;
    float sum = (float)hits; /* exact: there are at most 2^24 images */
    status = ranks_sum(train->gf, &sum, 1);
    if (status < 0) return status;
    train->result.test_accuracy = 100.0 * (double)sum / total;
    return GF_OK;
}

/* Steps of the last half, none in which sparse communication still warms up or ramps; as far as
 * they are remembered. */
static uint64_t steady_steps(const struct train *train)
{
    const struct gf_config *config = train->config;
    uint64_t count = train->step_count;
    uint64_t done = count - train->step_first;
    uint64_t steps = (count + 1u) / 2u;
    uint64_t rise = 0;
    if (config->sparse.enabled) rise = config->sparse.warmup_steps + config->sparse.ramp_steps;
    if (rise >= count) return 0;
    if (steps > count - rise) steps = count - rise;
    if (steps > done) steps = done;
    return (steps < train->series_max) ? steps : train->series_max;
}

static uint64_t steady_bytes(const struct train *train, uint64_t steps)
{
    uint64_t done = train->step_count - train->loop_first;
    uint64_t bytes = 0;
    if (steps > done) steps = done;
    for (uint64_t i = 0; i < steps; i++)
        bytes += train->step_bytes[(done - 1u - i) % train->series_max];
    return bytes;
}

gf_status train_end(struct train *train)
{
    enum { WIRE, SPLIT, STEADY, SETUP, MAPPED, CONTROL, WAIT, EXCHANGE, PRODUCED, MESSAGES, SUMS };
    const struct gf_stats *end = &train->stats;
    const struct gf_stats *begin = &train->stats_trained;
    uint64_t steady = steady_steps(train);
    if (train->step_first == train->step_count) /* a finished run: no step was made */
        train->result.loss_first = train->result.loss_last = (double)NAN;
    uint64_t sums[SUMS] = {
        [WIRE] = end->wire_bytes - begin->wire_bytes,
        [SPLIT] = train->split.exchanged,
        [STEADY] = steady_bytes(train, steady),
        [SETUP] = begin->wire_bytes,
        [MAPPED] = end->mapped_bytes - begin->mapped_bytes,
        [CONTROL] = end->control_bytes,
        [WAIT] = end->wait_ns - begin->wait_ns,
        [EXCHANGE] = end->exchange_ns - begin->exchange_ns,
        [PRODUCED] = end->produced_bytes - begin->produced_bytes,
        [MESSAGES] = end->messages - begin->messages,
    };
    gf_status status = ranks_sum_u64(train->gf, sums, SUMS);
    if (status < 0) return status;
    status = ranks_gather_u64(train->gf, train_weights_hash(train), train->hash_limbs,
                              train->result.weights_hash);
    if (status < 0) return status;

    struct report_result *result = &train->result;
    double hidden = (sums[EXCHANGE] == 0) ? 1.0 : 1.0 - (double)sums[WAIT] / (double)sums[EXCHANGE];
    result->model = train->options->model->name;
    result->algorithm = gf_algorithm_name(train->config->exchange.algorithm);
    result->path = train->on_device ? gf_path_name((gf_path)end->path) : NULL;
    result->ranks = train->world;
    result->batch = train->options->batch;
    result->seed = train->options->seed;
    result->steps = train->step_count;
    result->steps_skipped = end->steps_skipped;
    result->slowest = end->slowest_peer;
    result->slowest_percent = end->slowest_share_percent;
    result->slowest_seconds = (double)end->slowest_late_ns * 1e-9;
    result->images = (train->step_count - train->step_first) * train->options->batch;
    result->images_timed = (train->step_count - train->loop_first) * train->options->batch;
    result->wire_bytes = sums[WIRE];
    result->split = train->options->split;
    result->split_bytes = sums[SPLIT];
    result->split_weight_bytes =
        sizeof(float) * (train->split.in_width + UINT64_C(1)) * train->split.out_width;
    result->split_input_bytes =
        sizeof(float) * (uint64_t)train->split.in_width * train->split.images;
    result->wire_bytes_steady = (steady == 0) ? (double)NAN : (double)sums[STEADY] / (double)steady;
    result->produced_bytes = sums[PRODUCED];
    result->messages = sums[MESSAGES];
    result->keep_share =
        train->config->sparse.enabled ? (double)train->config->sparse.keep_share : 1.0;
    result->tensor_count = train->options->model->tensor_count;
    result->buffer_count = end->buffer_count;
    result->wire_bytes_setup = sums[SETUP];
    result->mapped_bytes = sums[MAPPED];
    result->control_bytes = sums[CONTROL];
    result->train_seconds = (double)train->loop_ns * 1e-9;
    result->step_seconds = ranks_median(train->step_seconds, series_count(train), train->sorted);
    result->exchange_seconds =
        ranks_median(train->exchange_seconds, series_count(train), train->sorted);
    result->hidden_share = (hidden < 0.0) ? 0.0 : hidden;
    return GF_OK;
}
