/* What a step must do, in double precision: the first rank that ends a step is held against the
 * rules, element by element; all others against the first, bit by bit, as is each rank's own
 * history. What is applied is taken from the library once it was found right, so that errors of
 * rounding do not pile up. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/soak/soak.h"
#include "lib/core/accessors.h"

#define FIRST_GENERATION 1u
#define ROW_EPSILON 5e-8 /* of a step, with three roundings of a float or so */

static double *zeroes(uint64_t count)
{
    double *values = calloc(count + 1, sizeof *values);
    assert_non_null(values);
    return values;
}

void soak_model_open(struct soak_model *model, const struct soak_plan *plan)
{
    const struct gf_config *config = &plan->setup.config;
    bool decays =
        (config->optimizer.kind != GF_OPTIMIZER_NONE) && (config->optimizer.weight_decay > 0);
    *model = (struct soak_model){.plan = plan, .scale = 1};
    model->exact =
        !plan->noise && (!config->sparse.enabled ||
                         ((config->sparse.momentum == GF_SPARSE_MOMENTUM_REDUCED) && !decays));
}

void soak_model_close(struct soak_model *model)
{
    double *arrays[] = {model->history, model->local,    model->history_size, model->local_size,
                        model->weight,  model->momentum, model->applied,      model->sum,
                        model->size,    model->moment2};
    for (size_t i = 0; i < LENGTH(arrays); i++) free(arrays[i]);
    free(model->kept);
    free(model->kept_local);
    free(model->kept_world);
}

void soak_model_begin(struct soak_model *model, gf_context *gf)
{
    if (model->history == NULL) {
        uint64_t count = model->elem_count = gf->pool.elem_count;
        uint32_t world = model->plan->setup.world;
        uint32_t ids = model->plan->ids;
        model->history = zeroes(ids * count);
        model->local = zeroes(ids * count);
        model->history_size = zeroes(ids * count);
        model->local_size = zeroes(ids * count);
        model->weight = zeroes(count);
        model->momentum = zeroes(count);
        model->moment2 = zeroes(count);
        model->applied = zeroes(count);
        model->sum = zeroes(count);
        model->size = zeroes(count);
        model->kept = calloc(ids * count + 1, sizeof *model->kept);
        model->kept_local = calloc(ids * count + 1, sizeof *model->kept_local);
        model->kept_world = calloc(ids, sizeof *model->kept_world);
        assert_true(model->kept_world != NULL);
        assert_true((model->kept != NULL) && (model->kept_local != NULL));
        model->scale = gf_loss_scale(gf);
        model->members = (1u << world) - 1;
        model->generations[model->generation_count++] =
            (struct soak_generation){.generation = FIRST_GENERATION, .members = model->members};
    }
    soak_model_weights(model, gf);
    if ((model->step == 0) && !model->mark.known) model->mark = soak_mark_of(model, gf);
}

void soak_model_weights(struct soak_model *model, gf_context *gf)
{
    bool all = model->step == 0; /* or this rank is late: others have gone on without it */
    soak_drain(gf);
    for (uint32_t i = 0; (gf->optimizer.weight != 0) && (i < gf->tensor_count); i++) {
        float *weight = (float *)(uintptr_t)gf_weight(gf, i);
        for (uint64_t e = 0; e < gf->tensors[i].elem_count; e++) {
            weight[e] =
                (float)soak_below(soak_draw(model->plan, SOAK_DRAW_WEIGHT, 0, i, e), 17) * 0.125f -
                1.0f;
            if (all) model->weight[gf->tensors[i].first_elem + e] = (double)weight[e];
            if (gf->optimizer.half != 0)
                world_put(gf->config.optimizer.half_weights,
                          (void *)(uintptr_t)gf_weight_half(gf, i), e, weight[e]);
        }
    }
}

/* ---- the rules ---- */

bool soak_is_local(const gf_context *gf)
{
    return gf->config.sparse.momentum != GF_SPARSE_MOMENTUM_REDUCED;
}

static uint64_t samples_all(const struct soak_model *model, uint64_t step)
{
    uint64_t sum = 0;
    for (uint32_t rank = 0; rank < model->plan->ids; rank++)
        sum += soak_is_member(model, rank) ? soak_samples(model->plan, step, rank) : 0;
    return sum;
}

static uint64_t samples_divided_by(const struct soak_model *model, uint64_t step)
{
    uint64_t samples = samples_all(model, step);
    return (samples > 0) ? samples : model->samples_before;
}

/* 1 over what the sum is divided by. */
static double average_factor(const struct soak_model *model, const gf_context *gf, uint64_t step)
{
    uint64_t samples;
    switch (gf->config.exchange.average) {
    case GF_AVERAGE_SUM: return 1.0;
    case GF_AVERAGE_RANKS: return 1.0 / (double)gf->world;
    case GF_AVERAGE_SAMPLES:
        samples = samples_divided_by(model, step);
        return (samples > 0) ? 1.0 / (double)samples : 0.0;
    }
    return 0.0;
}

/* A rank's share of what is common: weight decay and the momentum that local steps begin with. */
static double share(const struct soak_model *model, const gf_context *gf)
{
    switch (gf->config.exchange.average) {
    case GF_AVERAGE_SUM: return 1.0 / (double)gf->world;
    case GF_AVERAGE_RANKS: return 1.0;
    case GF_AVERAGE_SAMPLES: return (double)model->samples_before / (double)gf->world;
    }
    return 0.0;
}

static bool chunk_was_sent(const struct gf_sparse *sparse, uint64_t elem)
{
    uint32_t chunk = (uint32_t)(elem / sparse->chunk_elems);
    uint32_t low = 0;
    uint32_t high = sparse->sent_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (sparse->sent[middle] < chunk)
            low = middle + 1;
        else
            high = middle;
    }
    return (low < sparse->sent_count) && (sparse->sent[low] == chunk);
}

bool soak_is_held(const gf_context *gf, const struct gf_pool_tensor *tensor, uint64_t elem)
{
    return gf->step.sparse && (tensor->sparse != 0) && !chunk_was_sent(&gf->sparse, elem);
}

double soak_decay_of(const gf_context *gf, const struct gf_pool_tensor *tensor)
{
    return ((gf->optimizer.weight != 0) && ((tensor->flags & GF_TENSOR_NO_DECAY) == 0))
               ? (double)gf->config.optimizer.weight_decay
               : 0;
}

/* sum and size of what this rank sends of a tensor are added; with `keep` its history is moved on
 * as well. */
static void rank_tensor(struct soak_model *model, const gf_context *gf, uint64_t step,
                        uint32_t rank, uint32_t index, bool keep)
{
    const struct gf_pool_tensor *tensor = &gf->tensors[index];
    const struct soak_plan *plan = model->plan;
    bool sparse = gf->step.sparse && (tensor->sparse != 0),
         skips = soak_skips(plan, step, rank, index);
    double decay = soak_decay_of(gf, tensor) * share(model, gf);
    double m = (double)gf->config.optimizer.momentum;
    const float *values =
        skips ? NULL : soak_values(plan, step, rank, index, model->scale, plan->passes);
    for (uint64_t i = 0; i < tensor->elem_count; i++) {
        uint64_t e = tensor->first_elem + i;
        uint64_t row = rank * model->elem_count + e;
        double g = skips ? 0 : (double)values[i] / (double)model->scale;
        double size = fabs(g);
        double own_size;
        if (sparse) {
            /* unknown of a skipped step: any */
            bool held = !model->skipped && !chunk_was_sent(&gf->sparse, e);
            g += decay * model->weight[e];
            size += fabs(decay * model->weight[e]);
            own_size = size;
            if (soak_is_local(gf)) {
                double begun = share(model, gf) * model->momentum[e];
                double before = m * (model->local_begun ? model->local[row] : begun);
                double u = before + g;
                double u_size =
                    own_size + m * (model->local_begun ? model->local_size[row] : fabs(begun));
                if (keep) model->local[row] = u;
                if (keep) model->local_size[row] = u_size;
                g = m * u + g;
                own_size += m * u_size;
            }
            /* what cancelled on the way has left its roundings */
            size = own_size + model->history_size[row];
            g += model->history[row];
            if (keep) model->history[row] = held ? g : 0;
            if (keep) model->history_size[row] = held ? own_size + model->history_size[row] : 0;
            if (held) continue;
        }
        model->sum[e] += g;
        model->size[e] += size; /* of all terms: what roundings are measured against */
    }
}

static void all_sums(struct soak_model *model, const gf_context *gf, uint64_t step)
{
    memset(model->sum, 0, model->elem_count * sizeof *model->sum);
    memset(model->size, 0, model->elem_count * sizeof *model->size);
    for (uint32_t rank = 0; rank < model->plan->ids; rank++)
        for (uint32_t i = 0; soak_is_member(model, rank) && (i < gf->tensor_count); i++)
            rank_tensor(model, gf, step, rank, i, false);
}

static void all_keep(struct soak_model *model, const gf_context *gf, uint64_t step)
{
    for (uint32_t rank = 0; gf->step.sparse && (rank < model->plan->ids); rank++)
        for (uint32_t i = 0; soak_is_member(model, rank) && (i < gf->tensor_count); i++)
            if (gf->tensors[i].sparse != 0) rank_tensor(model, gf, step, rank, i, true);
}

/* ---- whether a step is skipped ---- */

static double type_max(gf_type type)
{
    return (type == GF_TYPE_F16) ? 65504.0 : 3.3e38;
}

static bool has_bad(const struct soak_model *model, uint64_t step)
{
    uint32_t tensor;
    uint64_t elem;
    for (uint32_t rank = 0; rank < model->plan->ids; rank++)
        if (soak_is_member(model, rank) && soak_bad(model->plan, step, rank, &tensor, &elem))
            return true;
    return false;
}

/* Could a sum, in part or whole, leave the range of a type it goes through? Of sums already
 * made. */
static bool could_overflow(const struct soak_model *model, const gf_context *gf)
{
    double scale = (double)model->scale;
    double pre = (double)gf->config.exchange.pre_scale;
    for (uint32_t i = 0; i < gf->tensor_count; i++) {
        const struct gf_pool_tensor *tensor = &gf->tensors[i];
        double most =
            fmin(type_max(gf->config.exchange.wire), type_max((gf_type)tensor->type)) * 0.99;
        for (uint64_t e = tensor->first_elem; e < tensor->first_elem + tensor->elem_count; e++)
            if (!(model->size[e] * scale * fmax(pre, 1.0) <= most)) return true;
    }
    return false;
}

bool soak_model_may_be_bad(const struct soak_model *model, uint64_t step)
{
    const struct gf_config *config = &model->plan->setup.config;
    float floor = (config->loss_scale.floor == 0) ? 1 : config->loss_scale.floor;
    bool narrow = config->exchange.wire == GF_TYPE_F16;
    for (uint32_t i = 0; i < model->plan->setup.tensor_count; i++)
        narrow = narrow || (model->plan->tensors[i].type == GF_TYPE_F16);
    if (!config->loss_scale.enabled || (model->scale > floor)) return false;
    return has_bad(model, step) || narrow;
}

static void scale_move(struct soak_model *model, gf_context *gf, bool skipped)
{
    const struct gf_config *config = &gf->config;
    if (!config->loss_scale.enabled) return;
    /* its rule has a suite of its own; here: up after good steps, down after bad */
    model->scale = gf_loss_scale(gf);
    if (skipped ? (model->scale > model->mark.loss_scale) : (model->scale < model->mark.loss_scale))
        soak_step_fail(gf, model->step, "the loss scale went from %g to %g",
                       (double)model->mark.loss_scale, (double)model->scale);
}

/* ---- gradients ---- */

static double type_epsilon(gf_type type)
{
    return (type == GF_TYPE_F32) ? 0x1p-22 : (type == GF_TYPE_F16) ? 0x1p-10 : 0x1p-7;
}
static double exact_max(gf_type type)
{
    return (type == GF_TYPE_F32) ? 0x1p23 : (type == GF_TYPE_F16) ? 0x1p11 : 0x1p8;
}

struct factors {
    float post, samples, both;
};

static struct factors factors_of(const struct soak_model *model, const gf_context *gf,
                                 uint64_t step)
{
    double post = 1.0 / ((double)model->scale * (double)gf->config.exchange.pre_scale);
    uint64_t samples = samples_divided_by(model, step);
    struct factors f = {.samples = 1};
    if (gf->config.exchange.average == GF_AVERAGE_RANKS) post /= (double)gf->world;
    f.post = (float)post;
    if (gf->config.exchange.average == GF_AVERAGE_SAMPLES)
        f.samples = (samples > 0) ? (float)(1.0 / (double)samples) : 0;
    f.both = f.post * f.samples;
    return f;
}

static float rounded(gf_type type, float value)
{
    uint32_t data = 0;
    world_put(type, &data, 0, value);
    return world_get(type, &data, 0);
}

/* What gf_gradient() holds: sums are whole numbers in every type. */
static float exact_gradient(const struct soak_model *model, const gf_context *gf,
                            const struct gf_pool_tensor *tensor, uint64_t e,
                            const struct factors *f)
{
    float sum =
        (float)(model->sum[e] * (double)model->scale * (double)gf->config.exchange.pre_scale);
    bool sparse = gf->step.sparse && (tensor->sparse != 0);
    gf_type type = (gf_type)tensor->type;
    if (gf_keeps_scale(gf, type)) return sum;
    if (type == GF_TYPE_F32) return sparse ? sum * f->both : sum * f->post * f->samples;
    /* in one rounding, unless a sum too small for its average was looked at first */
    if (sparse || (f->post <= 1) || (gf->config.exchange.average != GF_AVERAGE_SAMPLES))
        return rounded(type, sum * f->both);
    return rounded(type, rounded(type, sum * f->post) * f->samples);
}

static void tensor_check(struct soak_model *model, gf_context *gf, uint64_t step, uint32_t index,
                         const struct factors *f)
{
    const struct gf_pool_tensor *tensor = &gf->tensors[index];
    const void *gradient = (const void *)(uintptr_t)gf_gradient(gf, index);
    gf_type type = (gf_type)tensor->type;
    gf_type wire = gf->config.exchange.wire;
    double epsilon = (double)(gf->world + 2) * type_epsilon(wire) + 2 * type_epsilon(type) + 1e-5 +
                     ROW_EPSILON * (double)step;
    double lowest =
        (double)(gf->world + 2) * 0x1p-24 /
            ((double)model->scale * (double)gf->config.exchange.pre_scale) +
        (model->exact ? 0 : 1e-6); /* what waits in a history is not the same to the last bit */
    double most = fmin(exact_max(wire), exact_max(type));
    double average = average_factor(model, gf, step);
    /* an average in fp16 is a multiple of this */
    double least = ((type == GF_TYPE_F16) && !gf_keeps_scale(gf, type)) ? 0x1p-24 : 1e-30;
    for (uint64_t i = 0; i < tensor->elem_count; i++) {
        uint64_t e = tensor->first_elem + i;
        float got = world_get(type, gradient, i);
        float expected;
        double applied =
            (double)got * (gf_keeps_scale(gf, type) ? (double)gf_gradient_scale(gf) : 1.0);
        model->applied[e] = applied;
        if (soak_is_held(gf, tensor, e)) {
            if (got != 0)
                soak_step_fail(gf, step, "tensor %u[%u] was not sent but is %g", index, (unsigned)i,
                               (double)got);
        } else if (model->exact && (model->size[e] <= most)) {
            expected = exact_gradient(model, gf, tensor, e, f);
            if (got != expected)
                soak_step_fail(gf, step, "tensor %u[%u] is %.9g, expected %.9g", index, (unsigned)i,
                               (double)got, (double)expected);
        } else if (!(fabs(applied - model->sum[e] * average) <=
                     (model->size[e] * epsilon + lowest) * average + least)) {
            soak_step_fail(gf, step, "tensor %u[%u] is %.9g, expected about %.9g of terms of %.9g",
                           index, (unsigned)i, applied, model->sum[e] * average,
                           model->size[e] * average);
        }
    }
}

/* ---- what a rank holds for itself ---- */

/* A sum may cancel to next to nothing, its roundings do not: they are measured against all that
 * went into it. */
static void row_check(const struct soak_model *model, const gf_context *gf, uint64_t step,
                      gf_mem at, const double *all, const double *all_sizes, bool exact,
                      const char *what)
{
    const float *got = (const float *)(uintptr_t)at;
    const double *expected = all + gf_first_rank(gf) * model->elem_count;
    const double *size = all_sizes + gf_first_rank(gf) * model->elem_count;
    /* who waits for a process to come in makes hundreds of steps */
    double epsilon = ROW_EPSILON * (double)(20 + step);
    for (uint64_t e = 0; e < gf->sparse.elem_count; e++)
        if (exact ? ((double)got[e] != expected[e])
                  : !(fabs((double)got[e] - expected[e]) <= epsilon * size[e] + 1e-30))
            soak_step_fail(gf, step, "%s[%u] is %.9g, expected %.9g of terms of %.9g", what,
                           (unsigned)e, (double)got[e], expected[e], size[e]);
}

static void own_check(const struct soak_model *model, const gf_context *gf, uint64_t step)
{
    if (gf->sparse.chunk_count == 0) return;
    row_check(model, gf, step, gf->sparse.history, model->history, model->history_size,
              model->exact, "history");
    if (model->local_begun && (gf->optimizer.momentum != 0))
        row_check(model, gf, step, gf->optimizer.momentum, model->local, model->local_size, false,
                  "u");
}

/* ---- a step ---- */

static void first_ends(struct soak_model *model, gf_context *gf, uint64_t step)
{
    bool skipped = gf_step_skipped(gf);
    struct factors f = factors_of(model, gf, step);
    model->before = model->mark;
    model->step = step;
    model->mark.loss_scale = model->scale;
    model->skipped = skipped;
    all_sums(model, gf, step);
    if (!skipped && has_bad(model, step))
        soak_step_fail(gf, step, "a value was not finite, but the step was not skipped");
    if (skipped && !has_bad(model, step) && !could_overflow(model, gf))
        soak_step_fail(gf, step, "skipped for no reason");
    if (!skipped) {
        for (uint32_t i = 0; i < gf->tensor_count; i++) tensor_check(model, gf, step, i, &f);
        all_keep(model, gf, step);
    }
}

static void first_updated(struct soak_model *model, gf_context *gf, uint64_t step)
{
    bool skipped = gf_step_skipped(gf);
    if (!skipped && gf->step.sparse && soak_is_local(gf)) model->local_begun = true;
    if (!skipped && (gf->optimizer.weight != 0)) soak_weights_check(model, gf, step);
    if (!skipped && (samples_all(model, step) > 0))
        model->samples_before = samples_all(model, step);
    scale_move(model, gf, skipped);
    soak_selection_check(model, gf, step);
    model->mark = soak_mark_of(model, gf);
}

void soak_model_step(struct soak_model *model, gf_context *gf, uint64_t step)
{
    bool first = step != model->step, late = soak_model_is_late(model, gf);
    soak_drain(gf);
    if (!late && first) {
        if (step != model->step + 1)
            soak_step_fail(gf, step, "whole before step %llu was",
                           (unsigned long long)model->step + 1);
        first_ends(model, gf, step);
    }
    if (gf->config.optimizer.kind != GF_OPTIMIZER_NONE) {
        gf_status status = gf_update(gf, model->plan->rate);
        if (status != GF_OK) soak_step_fail(gf, step, "gf_update: %s", gf_status_name(status));
        if (gf_update(gf, model->plan->rate) != GF_ERR_STATE)
            soak_step_fail(gf, step, "applied twice");
    }
    soak_drain(gf);
    soak_model_keep(model, gf);
    if (late) return; /* who knows what it saw */
    if (first) {
        first_updated(model, gf, step);
    } else {
        struct soak_mark mark = soak_mark_of(model, gf);
        soak_mark_check(gf, step, &mark, &model->mark);
    }
    own_check(model, gf, step);
}
