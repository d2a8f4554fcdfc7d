/* trainer.c on all ranks of a job: elastic, with checkpoints. It is what RECIPE.md's blocks make of
 * trainer.c; the tests put them together and compare. */
#include "checkpoint.h" /* first: it asks the system's headers for POSIX */
#include <gradientflow/config.h>
#include <gradientflow/gradientflow.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HIDDEN = 32, BATCH = 16, STEPS = 400 };
struct model {
    size_t count;
    float *params, *grads, *m, *v; /* [count] */
    float loss;
};
static gf_context *gf;
static const uint32_t pool_order[] = {1, 0}; /* in, out */
static const char *const state_path = "model.state";

static void gf_check(gf_status status, const char *call)
{
    if (status >= 0) return; /* below 0: an error */
    const char *why = (status == GF_ERR_SYSTEM) ? strerror(errno) : "the log says why";
    fprintf(stderr, "%s: %s: %s\n", call, gf_status_name(status), why);
    exit(1);
}

/* True: a peer has died, comes in or leaves; the step is to be begun anew. */
static int world_changed(gf_status status, const char *call, struct model *model)
{
    int died = (status == GF_ERR_PEER) || (status == GF_ERR_LINK) || (status == GF_ERR_TIMEOUT);
    if (!died) gf_check(status, call);
    if (!died && (gf_regroup_due(gf) == 0)) return 0;
    gf_check(gf_regroup_begin(gf), "gf_regroup_begin");
    gf_check(gf_regroup_wait(gf), "gf_regroup_wait"); /* more deaths are its own affair */
    if (gf_left(gf)) {                                /* this rank has called gf_leave() */
        gf_close(gf);
        exit(75);
    }
    model->grads = gf_gradient_f32(gf, pool_order[0]); /* they lie elsewhere now */
    return 1;
}

/* True once all ranks have all steps: nobody closes before, so those that lag get the last one. */
static int finished(struct model *model)
{
    struct gf_request end;
    while (gf_steps(gf) >= STEPS) {
        gf_status status = gf_barrier(gf, &end);
        if (status == GF_OK) status = gf_request_wait(gf, &end);
        if (!world_changed(status, "gf_barrier", model)) return 1;
    }
    return 0;
}

static float input_of(unsigned sample)
{
    return (float)(sample * 2654435761u >> 8) / (float)(1 << 24) * 6 - 3;
}

/* Fits sin(x) with one hidden layer: params are in.weight, in.bias, out.weight [HIDDEN] and
 * out.bias. Adds to grads. */
static void model_run(struct model *model, unsigned first_sample)
{
    const float *w = model->params;
    const float *b = w + HIDDEN;
    const float *o = b + HIDDEN;
    float *gw = model->grads;
    float *gb = gw + HIDDEN;
    float *go = gb + HIDDEN;
    float hidden[HIDDEN];
    model->loss = 0;
    for (unsigned s = first_sample; s < first_sample + BATCH; s++) {
        float x = input_of(s);
        float y = o[HIDDEN];
        float error;
        for (unsigned i = 0; i < HIDDEN; i++) y += o[i] * (hidden[i] = tanhf(w[i] * x + b[i]));
        error = (y - sinf(x)) / BATCH;
        model->loss += error * error * BATCH;
        go[HIDDEN] += error;
        for (unsigned i = 0; i < HIDDEN; i++) {
            float back = error * o[i] * (1 - hidden[i] * hidden[i]);
            go[i] += error * hidden[i];
            gw[i] += back * x;
            gb[i] += back;
        }
    }
}

static void model_update(struct model *model, float rate, unsigned step)
{
    for (size_t i = 0; i < model->count; i++) {
        model->m[i] = 0.9f * model->m[i] + 0.1f * model->grads[i];
        model->v[i] = 0.99f * model->v[i] + 0.01f * model->grads[i] * model->grads[i];
        model->params[i] -= rate * (model->m[i] / (1 - powf(0.9f, (float)step))) /
                            (sqrtf(model->v[i] / (1 - powf(0.99f, (float)step))) + 1e-8f);
    }
}

static unsigned bits_of(const float *values, size_t count, unsigned hash)
{
    for (size_t i = 0; i < count * sizeof *values; i++)
        hash = (hash ^ ((const unsigned char *)values)[i]) * 16777619u;
    return hash;
}

int main(void)
{
    struct model model = {.count = 3 * HIDDEN + 1};
    model.params = calloc(model.count, sizeof(float));
    model.grads = calloc(model.count, sizeof(float));
    model.m = calloc(model.count, sizeof(float));
    model.v = calloc(model.count, sizeof(float));
    for (unsigned i = 0; i < 3 * HIDDEN; i++) model.params[i] = (float)(i * 37 % 97) / 97 - 0.5f;
    struct gf_config config = {.exchange.average = GF_AVERAGE_RANKS,
                               .optimizer.clip_norm = 1,
                               .log = gf_log_stderr,
                               .pool_order = pool_order};
    const struct gf_tensor tensors[] = {{.name = "out", .elem_count = HIDDEN + 1},
                                        {.name = "in", .elem_count = 2 * HIDDEN}};
    const struct gf_state_extra extra[] = {{"params", model.params, model.count * sizeof(float)},
                                           {"m", model.m, model.count * sizeof(float)},
                                           {"v", model.v, model.count * sizeof(float)}};
    config.state_extra = extra;
    config.state_extra_count = 3;
    struct gf_footprint need;
    gf_check(gf_measure(&config, tensors, 2, &need), "gf_measure");
    void *memory = aligned_alloc(64, need.control_bytes);
    gf_check(gf_open(&config, tensors, 2, memory, need.control_bytes, &gf), "gf_open");
    gf_check(gf_open_wait(gf), "gf_open_wait"); /* until all ranks are there, or the deadline */
    free(model.grads);
    model.grads = gf_gradient_f32(gf, pool_order[0]); /* backward writes there: no copy */
    while (!gf_weights_common(gf)) {
        gf_status status = state_take(gf, state_path); /* no rank has the file: a new run begins */
        if ((status == GF_OK) && !gf_weights_common(gf)) status = gf_broadcast_weights(gf, 0);
        world_changed(status, "first weights", &model);
    }
    for (unsigned step = 0; !finished(&model); step++) {
        unsigned first_sample = step * BATCH;
        step = (unsigned)gf_steps(gf);
        first_sample = (step * gf_world(gf) + gf_rank(gf)) * BATCH;
        if (world_changed(gf_step_begin(gf), "gf_step_begin", &model)) continue;
        memset(model.grads, 0, model.count * sizeof(float));
        model_run(&model, first_sample);
        gf_status status = gf_step_metric(gf, 0, (double)model.loss / gf_world(gf));
        if (status == GF_OK) status = gf_tensors_ready(gf, 0, 2, 0);
        if (status == GF_OK) status = gf_step_wait(gf); /* GF_OK: grads are the mean of all ranks */
        if ((status < 0) && world_changed(status, "the exchange", &model)) continue;
        if (gf_step_skipped(gf)) continue; /* a value was not finite: on no rank it counts */
        gf_check(gf_gradient_clip(gf, NULL), "gf_gradient_clip");
        if (gf_step_skipped(gf)) continue; /* their norm was not, so clipping cannot work */
        model.loss = (float)gf_metric(gf, 0);
        model_update(&model, 0.01f, step + 1);
        gf_check(gf_updated(gf), "gf_updated");
        if ((gf_rank(gf) == 0) && (gf_steps(gf) % 100 == 0)) {
            status = state_keep(gf, state_path);
            if (status == GF_ERR_SYSTEM)
                perror(state_path); /* training goes on without it */
            else if (world_changed(status, "state_keep", &model))
                continue;
        }
        if (world_changed(GF_OK, "", &model)) continue;
        if (step % 100 == 0) printf("step %u: loss %.5f\n", step, (double)model.loss);
    }
    unsigned hash = bits_of(model.m, model.count, bits_of(model.params, model.count, 2166136261u));
    printf("loss %.5f, state %08x\n", (double)model.loss, bits_of(model.v, model.count, hash));
    gf_check(gf_close(gf), "gf_close");
    free(memory);
    return 0;
}
