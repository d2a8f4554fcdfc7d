/* What a new generation must be: one world for all that are in it, behind the furthest step that
 * any of them had ended, with the state that this step left, and histories that nobody has touched.
 * Only then the model goes on from it. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/soak/soak.h"
#include "lib/core/accessors.h"

static const struct soak_generation *newest(const struct soak_model *model)
{
    return &model->generations[model->generation_count - 1];
}

bool soak_model_is_late(const struct soak_model *model, const gf_context *gf)
{
    return model->beside || (gf->generation != newest(model)->generation);
}

void soak_model_keep(struct soak_model *model, const gf_context *gf)
{
    uint64_t row = gf_first_rank(gf) * model->elem_count;
    uint64_t bytes = gf->sparse.elem_count * sizeof(float);
    if (bytes == 0) return;
    model->kept_world[gf_first_rank(gf)] = gf_world(gf);
    memcpy(model->kept + row, (const void *)(uintptr_t)gf->sparse.history, bytes);
    if (gf->optimizer.momentum != 0)
        memcpy(model->kept_local + row, (const void *)(uintptr_t)gf->optimizer.momentum, bytes);
}

/* ---- what is a rank's own ---- */

/* What waits counts as in the step that computed it, however many ranks there are now. */
static float world_factor(const struct soak_model *model, const gf_context *gf)
{
    const uint32_t was = model->kept_world[gf_first_rank(gf)];
    const bool divides = gf->config.exchange.average == GF_AVERAGE_RANKS;
    return (divides && (was != 0)) ? (float)((double)gf_world(gf) / (double)was) : 1.0f;
}

static void own_take(struct soak_model *model, const gf_context *gf, bool behind, bool joiner,
                     bool loose)
{
    uint64_t row = gf_first_rank(gf) * model->elem_count;
    const float *history = (const float *)(uintptr_t)gf->sparse.history;
    const float *local = (const float *)(uintptr_t)gf->optimizer.momentum;
    const float factor = world_factor(model, gf);
    if (factor != 1.0f) model->exact = false; /* nor is it whole numbers any more */
    for (uint64_t e = 0; e < gf->sparse.elem_count; e++) {
        float kept = joiner ? 0.0f : model->kept[row + e] * factor;
        float kept_local = model->kept_local[row + e] * factor;
        /* What it had sent in a step that others have ended is applied there. */
        if (!loose && (history[e] != kept) && (!behind || (history[e] != 0.0f)))
            soak_step_fail(gf, gf_steps(gf), "behind a shrink history[%u] is %.9g, was %.9g",
                           (unsigned)e, (double)history[e], (double)kept);
        model->history[row + e] = (double)history[e];
        model->history_size[row + e] = fmax(model->history_size[row + e], fabs((double)history[e]));
        if ((local == NULL) || !gf->sparse.local_begun) continue;
        if (!behind && !joiner && !loose && (local[e] != kept_local))
            soak_step_fail(gf, gf_steps(gf), "behind a shrink u[%u] is %.9g, was %.9g", (unsigned)e,
                           (double)local[e], (double)kept_local);
        model->local[row + e] = (double)local[e];
        model->local_size[row + e] = fmax(model->local_size[row + e], fabs((double)local[e]));
    }
}

/* ---- what is common ---- */

static void common_check(const gf_context *gf, const struct soak_mark *now,
                         const struct soak_mark *was, bool changed)
{
    const char *what = (now->weight != was->weight)           ? "weight"
                       : (now->half != was->half)             ? "half weight"
                       : changed                              ? NULL
                       : (now->momentum != was->momentum)     ? "momentum"
                       : (now->moment2 != was->moment2)       ? "second moment"
                       : (now->selection != was->selection)   ? "selection"
                       : (now->loss_scale != was->loss_scale) ? "loss scale"
                                                              : NULL;
    if (was->known && (what != NULL))
        soak_step_fail(gf, gf_steps(gf), "behind a shrink its %s is not what that step left", what);
}

/* The first that is in: who is there, and behind which step. */
static void generation_add(struct soak_model *model, const gf_context *gf, uint32_t members,
                           const uint64_t *done, uint32_t loose)
{
    uint64_t furthest = 0;
    uint64_t steps = gf_steps(gf);
    bool applied = false; /* by one that is still there */
    for (uint32_t rank = 0; rank < model->plan->ids; rank++) {
        if ((members >> rank & 1u) == 0) continue;
        if (done[rank] > furthest) furthest = done[rank];
        applied = applied || ((done[rank] == steps) && ((loose >> rank & 1u) == 0));
    }
    if ((members & newest(model)->members) == 0)
        soak_step_fail(gf, steps, "generation %u has nobody of generation %u, which began before",
                       gf->generation, newest(model)->generation);
    /* is over, its ranks may have gone on; it will hear so */
    if (gf->generation < newest(model)->generation) return;
    if (steps != furthest)
        soak_step_fail(gf, steps,
                       "generation %u begins behind this step, one of its ranks has ended %llu",
                       gf->generation, (unsigned long long)furthest);
    if ((steps != model->step) && (steps + 1 != model->step) && (steps != model->step + 1))
        soak_step_fail(gf, steps, "generation %u begins, the newest step was %llu", gf->generation,
                       (unsigned long long)model->step);
    assert_true(model->generation_count < SOAK_GENERATIONS_MAX);
    model->generations[model->generation_count++] =
        (struct soak_generation){.generation = gf->generation, .members = members, .steps = steps};
    model->members = members;
    model->given_up = (steps != model->step) || !model->skipped;
    /* only the scale and what is a rank's own have changed in it */
    model->unapplied = (steps > 0) && !applied;
    if ((steps < model->step) || ((steps == model->step) && model->unapplied))
        model->mark = model->before;
    model->step = steps;
}

/* The state was found right: what follows is held against it. */
static void common_take(struct soak_model *model, gf_context *gf)
{
    const float *weight = (const float *)(uintptr_t)gf->optimizer.weight;
    const float *momentum = (const float *)(uintptr_t)gf->optimizer.momentum;
    const float *moment2 = (const float *)(uintptr_t)gf->optimizer.moment2;
    for (uint32_t i = 0; i < gf->tensor_count; i++) {
        const struct gf_pool_tensor *tensor = &gf->tensors[i];
        for (uint64_t e = tensor->first_elem; e < tensor->first_elem + tensor->elem_count; e++) {
            if (weight != NULL) model->weight[e] = (double)weight[e];
            if ((momentum != NULL) && !((tensor->sparse != 0) && gf->sparse.local_begun))
                model->momentum[e] = (double)momentum[e];
            if (moment2 != NULL) model->moment2[e] = (double)moment2[e];
        }
    }
    model->scale = gf_loss_scale(gf);
    model->updates = gf->optimizer.updates;
    model->samples_before = gf->samples_before;
    model->skipped = false;
}

void soak_model_generation(struct soak_model *model, gf_context *gf, const uint64_t *done,
                           uint32_t loose, bool joiner)
{
    uint32_t members = (uint32_t)world_members(gf);
    uint32_t member_id = gf_first_rank(gf);
    bool behind = done[member_id] < gf_steps(gf), first = true;
    struct soak_mark mark;
    soak_drain(gf);
    if (gf_steps(gf) == 0) soak_model_begin(model, gf); /* as an appliance begins its training */
    for (uint32_t i = 0; i < model->generation_count; i++) {
        const struct soak_generation *generation = &model->generations[i];
        if (generation->generation != gf->generation) continue;
        first = false;
        /* The job has ended with all that had begun it, its coordinator among them, and began anew:
         * with others, or with a process in place of one that had ended a step since. */
        bool is_anew = joiner && (gf->generation == 1) && (model->step > 0);
        if ((generation->members != members) || is_anew) model->beside = true;
        if (model->beside) break; /* the model went with the dead */
        if ((generation->members != members) || (generation->steps != gf_steps(gf)))
            soak_step_fail(
                gf, gf_steps(gf),
                "generation %u is of ranks 0x%x here, of 0x%x behind step %llu elsewhere",
                gf->generation, members, generation->members,
                (unsigned long long)generation->steps);
    }
    if (model->beside) {
        soak_model_keep(model, gf);
        return;
    }
    if (first) generation_add(model, gf, members, done, loose);
    if (!soak_model_is_late(model, gf)) {
        model->local_begun = gf->sparse.local_begun;
        mark = soak_mark_of(model, gf);
        common_check(gf, &mark, &model->mark, first && model->unapplied);
        if (first) {
            common_take(model, gf);
            model->mark = mark;
        }
    }
    own_take(model, gf, behind && model->given_up, joiner, (loose >> member_id & 1u) != 0);
    soak_model_keep(model, gf);
}
