/* An appliance outside of the library's tree: fits sin(x) with a network of one hidden layer on all
 * ranks of the job.
 *
 *     make && gf-run -n 2 ./appliance PREFIX/share/gradientflow/local.cfg
 *
 * with the PREFIX of `make install`.
 *
 * Copy it and put your own forward and backward pass in place of these. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <gradientflow/config.h>
#include <gradientflow/gradientflow.h>

enum { HIDDEN = 32, BATCH = 64, STEPS = 1500 };
/* In the order in which backward ends them: the last layer first. None is to decay. */
enum { OUT_WEIGHT, OUT_BIAS, IN_WEIGHT, IN_BIAS, TENSORS };
static const struct gf_tensor tensors[TENSORS] = {
    {.name = "out.weight", .elem_count = HIDDEN, .flags = GF_TENSOR_NO_DECAY},
    {.name = "out.bias", .elem_count = 1, .flags = GF_TENSOR_DENSE | GF_TENSOR_NO_DECAY},
    {.name = "in.weight", .elem_count = HIDDEN, .flags = GF_TENSOR_NO_DECAY},
    {.name = "in.bias", .elem_count = HIDDEN, .flags = GF_TENSOR_DENSE | GF_TENSOR_NO_DECAY},
};

static float *weight(gf_context *gf, unsigned tensor)
{
    return gf_weight_f32(gf, tensor);
}
static float *gradient(gf_context *gf, unsigned tensor)
{
    return gf_gradient_f32(gf, tensor);
}

/* First values by rank 0, the same everywhere. */
static gf_status weights_begin(gf_context *gf)
{
    for (unsigned i = 0; (i < HIDDEN) && (gf_rank(gf) == 0); i++) {
        weight(gf, OUT_WEIGHT)[i] = (i % 2) ? 0.2f : -0.2f;
        weight(gf, IN_WEIGHT)[i] = 1 + (float)i / HIDDEN;
        weight(gf, IN_BIAS)[i] = 4 * ((float)i / HIDDEN - 0.5f);
    }
    return gf_broadcast_weights(gf, 0);
}

/* One step: this rank's share of the batch forward and backward, the exchange, the update.
 * *loss_out is this rank's. */
static gf_status step(gf_context *gf, unsigned number, float rate, float *loss_out)
{
    static float hidden[BATCH][HIDDEN];
    static float x[BATCH];
    static float error[BATCH];
    const float scale = gf_loss_scale(gf) / BATCH;
    float loss = 0;
    gf_status status = gf_step_begin(gf);
    if (status != GF_OK) return status;
    for (unsigned b = 0; b < BATCH; b++) {
        unsigned sample = (number * gf_world(gf) + gf_rank(gf)) * BATCH + b;
        float y = weight(gf, OUT_BIAS)[0];
        x[b] = (float)(sample * 2654435761u >> 8) / (float)(1 << 24) * 6.2831853f - 3.1415927f;
        for (unsigned i = 0; i < HIDDEN; i++) {
            hidden[b][i] = tanhf(weight(gf, IN_WEIGHT)[i] * x[b] + weight(gf, IN_BIAS)[i]);
            y += weight(gf, OUT_WEIGHT)[i] * hidden[b][i];
        }
        error[b] = y - sinf(x[b]);
        loss += error[b] * error[b] / BATCH;
    }
    gradient(gf, OUT_BIAS)[0] = 0;
    for (unsigned i = 0; i < HIDDEN; i++) gradient(gf, OUT_WEIGHT)[i] = 0;
    for (unsigned b = 0; b < BATCH; b++) {
        gradient(gf, OUT_BIAS)[0] += error[b] * scale;
        for (unsigned i = 0; i < HIDDEN; i++)
            gradient(gf, OUT_WEIGHT)[i] += error[b] * hidden[b][i] * scale;
    }
    if ((status = gf_tensor_ready(gf, OUT_WEIGHT, 0)) != GF_OK) return status; /* they travel .. */
    if ((status = gf_tensor_ready(gf, OUT_BIAS, 0)) != GF_OK) return status;
    for (unsigned i = 0; i < HIDDEN; i++) { /* .. while the layer below is computed */
        float to_weight = 0;
        float to_bias = 0;
        for (unsigned b = 0; b < BATCH; b++) {
            float back =
                error[b] * weight(gf, OUT_WEIGHT)[i] * (1 - hidden[b][i] * hidden[b][i]) * scale;
            to_weight += back * x[b];
            to_bias += back;
        }
        gradient(gf, IN_WEIGHT)[i] = to_weight;
        gradient(gf, IN_BIAS)[i] = to_bias;
    }
    if ((status = gf_tensor_ready(gf, IN_WEIGHT, 0)) != GF_OK) return status;
    if ((status = gf_tensor_ready(gf, IN_BIAS, 0)) != GF_OK) return status;
    if ((status = gf_step_wait(gf)) != GF_OK) return status;
    *loss_out = loss;
    return gf_update(gf, rate);
}

static float sine_of(gf_context *gf, float x)
{
    float y = weight(gf, OUT_BIAS)[0];
    for (unsigned i = 0; i < HIDDEN; i++)
        y += weight(gf, OUT_WEIGHT)[i] *
             tanhf(weight(gf, IN_WEIGHT)[i] * x + weight(gf, IN_BIAS)[i]);
    return y;
}

/* The ranks' mean loss travels, moved by polls, while this rank looks how far its network is off
 * anywhere. */
static gf_status result_print(gf_context *gf, float loss)
{
    struct gf_request request;
    float furthest = 0;
    gf_status status = gf_allreduce(gf, (gf_mem)(uintptr_t)&loss, 1, GF_TYPE_F32, &request);
    gf_status polled = GF_AGAIN;
    if (status != GF_OK) return status;
    for (float x = -3; x <= 3; x += 0.01f) {
        furthest = fmaxf(furthest, fabsf(sine_of(gf, x) - sinf(x)));
        if (polled == GF_AGAIN) polled = gf_request_poll(gf, &request);
    }
    /* there is nothing else to do */
    if (polled == GF_AGAIN) polled = gf_request_wait(gf, &request);
    if (polled != GF_OK) return polled;
    printf("rank %u of %u: loss %.5f (at most %.2f off)\n", gf_rank(gf), gf_world(gf),
           (double)(loss / (float)gf_world(gf)), (double)furthest);
    return GF_OK;
}

int main(int argc, char **argv)
{
    const struct gf_schedule schedule = {
        .kind = GF_SCHEDULE_COSINE, .base_rate = 0.1f, .warmup_steps = 50, .step_count = STEPS};
    /* What the file says of these does not count; GF_DEBUG=info logs more. */
    const struct gf_config own = {
        .exchange = {.average = GF_AVERAGE_RANKS}, /* the loss is that of this rank's batch */
        .optimizer = {.kind = GF_OPTIMIZER_SGD, .momentum = 0.9f},
        .log = gf_log_stderr};
    void *memory = NULL; /* the only memory that the library is given */
    gf_context *gf = NULL;
    float loss = 0;
    if (argc != 2) return fprintf(stderr, "usage: appliance CONFIGURATION\n"), 2;
    gf_status status =
        gf_open_file(argv[1], &own, 0, tensors, TENSORS, aligned_alloc, &memory, &gf);
    if (status == GF_OK) status = gf_open_wait(gf);
    if (status == GF_OK) status = weights_begin(gf);
    for (unsigned s = 0; (status == GF_OK) && (s < STEPS); s++)
        status = step(gf, s, gf_schedule_rate(&schedule, s), &loss);
    if (status == GF_OK) status = result_print(gf, loss);
    /* the log has said what failed */
    gf_close(gf);
    free(memory);
    return status != GF_OK;
}
