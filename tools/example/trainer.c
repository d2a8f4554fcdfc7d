/* A trainer for one process, in the shape of many written in C: flat buffers of parameters,
 * gradients and moments, and an Adam of its own. RECIPE.md (in lib/, installed beside this folder)
 * takes it to all ranks of a job: its block N goes where "recipe N" stands, and elastic.c is what
 * comes out. */
/* recipe 1 */
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
/* recipe 2 */

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
    /* recipe 3 */
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned first_sample = step * BATCH;
        /* recipe 4 */
        memset(model.grads, 0, model.count * sizeof(float));
        model_run(&model, first_sample);
        /* recipe 5 */
        model_update(&model, 0.01f, step + 1);
        /* recipe 6 */
        if (step % 100 == 0) printf("step %u: loss %.5f\n", step, (double)model.loss);
    }
    unsigned hash = bits_of(model.m, model.count, bits_of(model.params, model.count, 2166136261u));
    printf("loss %.5f, state %08x\n", (double)model.loss, bits_of(model.v, model.count, hash));
    /* recipe 7 */
    return 0;
}
