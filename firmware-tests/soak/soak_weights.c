/* What an optimizer must make of a step, in double precision: from the weights and moments that the
 * model had follows what they must be now. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/soak/soak.h"
#include "ops/element/host/half.h"

static void half_check(const gf_context *gf, uint64_t step, uint64_t e)
{
    float weight = ((const float *)(uintptr_t)gf->optimizer.weight)[e];
    uint16_t expected = (gf->config.optimizer.half_weights == GF_TYPE_F16) ? gf_f16_of_f32(weight)
                                                                           : gf_bf16_of_f32(weight);
    if ((gf->optimizer.half != 0) &&
        (((const uint16_t *)(uintptr_t)gf->optimizer.half)[e] != expected))
        soak_step_fail(gf, step, "half weight %u is not its weight %g", (unsigned)e,
                       (double)weight);
}

/* expected: of terms of `size`, which roundings are measured against. */
static void weight_check(struct soak_model *model, const gf_context *gf, uint64_t step, uint64_t e,
                         double expected, double size)
{
    const float *weight = (const float *)(uintptr_t)gf->optimizer.weight;
    if (!(fabs((double)weight[e] - expected) <=
          1e-6 * fabs(model->weight[e]) + 1e-4 * size + 1e-30))
        soak_step_fail(gf, step, "weight %u is %.9g, expected %.9g of terms of %.9g", (unsigned)e,
                       (double)weight[e], expected, size);
    model->weight[e] = (double)weight[e];
}

static double norm_of(const double *values, const struct gf_pool_tensor *tensor)
{
    double square = 0;
    for (uint64_t e = tensor->first_elem; e < tensor->first_elem + tensor->elem_count; e++)
        square += values[e] * values[e];
    return sqrt(square);
}

/* model->applied is multiplied by what gf_gradient_norm() says, once that was found right. */
static void clip_check(struct soak_model *model, gf_context *gf, uint64_t step)
{
    float norm = 0;
    float factor = 0;
    double square = 0;
    double most = (double)gf->config.optimizer.clip_norm;
    double expected;
    /* that of a sparse step is made before sums are rounded to the gradient's type */
    bool rounds = gf->step.sparse && (gf->sparse.type != GF_TYPE_F32) &&
                  (gf->sparse.type != gf->config.exchange.wire);
    double within = rounds ? 4e-3 : 1e-4;
    if (most == 0) return;
    for (uint32_t i = 0; i < gf->tensor_count; i++)
        square += pow(norm_of(model->applied, &gf->tensors[i]), 2);
    if (gf_gradient_norm(gf, &norm, &factor) != GF_OK)
        soak_step_fail(gf, step, "gf_gradient_norm fails");
    expected = (sqrt(square) > most) ? most / sqrt(square) : 1;
    if (!(fabs((double)norm - sqrt(square)) <= within * sqrt(square) + 1e-20) ||
        !(fabs((double)factor - expected) <= within * expected))
        soak_step_fail(gf, step, "the norm is %.9g and clips by %.9g, expected %.9g and %.9g",
                       (double)norm, (double)factor, sqrt(square), expected);
    for (uint64_t e = 0; e < model->elem_count; e++) model->applied[e] *= (double)factor;
}

/* ---- SGD and LARS ---- */

static double lars_ratio(const struct soak_model *model, const gf_context *gf,
                         const struct gf_pool_tensor *tensor, double late)
{
    const struct gf_config *config = &gf->config;
    double weights = 0;
    double gradients = 0;
    if ((config->optimizer.kind != GF_OPTIMIZER_LARS) ||
        ((tensor->flags & GF_TENSOR_NO_DECAY) != 0))
        return 1;
    for (uint64_t e = tensor->first_elem; e < tensor->first_elem + tensor->elem_count; e++) {
        if (soak_is_held(gf, tensor, e)) continue;
        weights += model->weight[e] * model->weight[e];
        gradients += model->applied[e] * model->applied[e];
    }
    if (!(weights > 0) || !(gradients > 0)) return 1;
    return (double)config->optimizer.lars_eta * sqrt(weights) /
           (sqrt(gradients) + late * sqrt(weights) + (double)config->optimizer.lars_epsilon);
}

static void sgd_check(struct soak_model *model, const gf_context *gf, uint64_t step,
                      const struct gf_pool_tensor *tensor)
{
    const struct gf_config *config = &gf->config;
    bool sparse = gf->step.sparse && (tensor->sparse != 0), local = sparse && soak_is_local(gf);
    double late = sparse ? 0 : soak_decay_of(gf, tensor);
    double m = (double)config->optimizer.momentum;
    bool lars = config->optimizer.kind == GF_OPTIMIZER_LARS;
    double rate = lars ? 1 : (double)model->plan->rate;
    double rate_in = lars ? (double)model->plan->rate * lars_ratio(model, gf, tensor, late) : 1;
    const float *momentum = (const float *)(uintptr_t)gf->optimizer.momentum;
    for (uint64_t e = tensor->first_elem; e < tensor->first_elem + tensor->elem_count; e++) {
        double decay = late * model->weight[e];
        double d = rate_in * (model->applied[e] + decay);
        double v = model->momentum[e];
        double size = rate_in * (fabs(model->applied[e]) + fabs(decay)) + fabs(v);
        bool held = soak_is_held(gf, tensor, e);
        if (!held && (m > 0) && !local) {
            v = m * v + d;
            d = config->optimizer.nesterov ? m * v + d : v;
        }
        weight_check(model, gf, step, e, held ? model->weight[e] : model->weight[e] - rate * d,
                     rate * size);
        if ((momentum != NULL) && !local && !(sparse && model->local_begun)) {
            if (!(fabs((double)momentum[e] - v) <= 1e-5 * size + 1e-30))
                soak_step_fail(gf, step, "momentum %u is %.9g, expected %.9g", (unsigned)e,
                               (double)momentum[e], v);
            model->momentum[e] = (double)momentum[e];
        }
        if (!held) half_check(gf, step, e);
    }
}

/* ---- AdamW ---- */

static double moment_check(const gf_context *gf, uint64_t step, uint64_t e, float got,
                           double expected, double size)
{
    if (!(fabs((double)got - expected) <= 1e-5 * size + 1e-30))
        soak_step_fail(gf, step, "a moment of %u is %.9g, expected %.9g", (unsigned)e, (double)got,
                       expected);
    return (double)got;
}

/* model->sum and size become the direction and that of its terms. */
static void adam_check(struct soak_model *model, const gf_context *gf, uint64_t step,
                       const struct gf_pool_tensor *tensor)
{
    const struct gf_config *config = &gf->config;
    double beta1 = (double)config->optimizer.adam_beta1;
    double beta2 = (double)config->optimizer.adam_beta2;
    double correct1 = 1 / (1 - pow(beta1, (double)model->updates));
    double correct2 = 1 / (1 - pow(beta2, (double)model->updates));
    double rate = (double)model->plan->rate;
    double late = soak_decay_of(gf, tensor);
    const float *moment1 = (const float *)(uintptr_t)gf->optimizer.momentum;
    const float *moment2 = (const float *)(uintptr_t)gf->optimizer.moment2;
    for (uint64_t e = tensor->first_elem; e < tensor->first_elem + tensor->elem_count; e++) {
        double g = model->applied[e];
        double m = beta1 * model->momentum[e] + (1 - beta1) * g;
        double over;
        double terms = fabs(beta1 * model->momentum[e]) + fabs((1 - beta1) * g);
        double v = beta2 * model->moment2[e] + (1 - beta2) * g * g;
        model->momentum[e] = moment_check(gf, step, e, moment1[e], m, terms);
        model->moment2[e] = moment_check(gf, step, e, moment2[e], v, v);
        over = correct1 / (sqrt(v * correct2) + (double)config->optimizer.adam_epsilon);
        model->sum[e] = m * over + late * model->weight[e];
        model->size[e] = terms * over + fabs(late * model->weight[e]);
    }
    for (uint64_t e = tensor->first_elem; e < tensor->first_elem + tensor->elem_count; e++) {
        weight_check(model, gf, step, e, model->weight[e] - rate * model->sum[e],
                     rate * model->size[e]);
        half_check(gf, step, e);
    }
}

void soak_weights_check(struct soak_model *model, gf_context *gf, uint64_t step)
{
    model->updates++;
    if (gf->optimizer.updates != model->updates)
        soak_step_fail(gf, step, "%u updates, expected %u", (unsigned)gf->optimizer.updates,
                       (unsigned)model->updates);
    clip_check(model, gf, step);
    for (uint32_t i = 0; i < gf->tensor_count; i++)
        (gf->config.optimizer.kind == GF_OPTIMIZER_ADAMW ? adam_check : sgd_check)(model, gf, step,
                                                                                   &gf->tensors[i]);
}
