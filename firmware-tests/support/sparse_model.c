/* See sparse_model.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/sparse_model.h"
#include "lib/core/accessors.h"

static double *zeroes(uint64_t count)
{
    double *values = calloc(count + 1, sizeof *values);
    assert_non_null(values);
    return values;
}

static uint32_t mix(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint64_t value = ((a * 0x100000001b3u + b) * UINT64_C(0x9e3779b97f4a7c15) + c) *
                         UINT64_C(0xbf58476d1ce4e5b9) +
                     d;
    value = (value ^ (value >> 30)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((value ^ (value >> 31)) >> 16);
}

/* Tensors and steps differ in size, so that the order of the chunks changes all the time. */
float sparse_small_whole(const struct sparse_model *model, uint32_t rank, uint32_t tensor,
                         uint64_t elem)
{
    uint32_t span = 1 + 2 * (mix(model->number, tensor, elem / 7, 0) % 5);
    return (float)(mix(model->number, rank, tensor, elem) % span) - (float)(span / 2);
}

void sparse_open(struct sparse_model *model, const struct world_setup *setup, sparse_value value)
{
    gf_context *gf;
    *model = (struct sparse_model){.value = value, .order = WORLD_FORWARD};
    world_open(&model->w, setup);
    gf = sparse_context(model, 0);
    model->config = &gf->config;
    model->elem_count = gf->pool.elem_count;
    model->gradient = zeroes(model->w.world * model->elem_count);
    model->applied = zeroes(model->elem_count);
    model->produced_sum = zeroes(model->elem_count);
    model->applied_sum = zeroes(model->elem_count);
    for (uint32_t i = 0; (gf->optimizer.weight != 0) && (i < gf->tensor_count); i++) {
        for (uint64_t e = 0; e < gf->tensors[i].elem_count; e++) {
            float weight = (float)(mix(1, 2, i, e) % 17) * 0.125f - 1.0f;
            for (uint32_t rank = 0; rank < model->w.world; rank++)
                ((float *)(uintptr_t)gf_weight(sparse_context(model, rank), i))[e] = weight;
        }
    }
}

void sparse_close(struct sparse_model *model)
{
    double *arrays[] = {model->gradient, model->applied, model->produced_sum, model->applied_sum};
    for (size_t i = 0; i < LENGTH(arrays); i++) free(arrays[i]);
    world_close(&model->w);
}

static void fill(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    struct sparse_model *model = arg;
    gf_context *gf = w->ranks[rank].gf;
    const struct gf_pool_tensor *placed = &gf->tensors[tensor];
    double *row = model->gradient + rank * model->elem_count + placed->first_elem;
    for (uint64_t e = 0; e < placed->elem_count; e++) {
        float value = model->value(model, rank, tensor, e) * gf_loss_scale(gf);
        world_put((gf_type)placed->type, gradient, e, value);
        row[e] = (double)world_get((gf_type)placed->type, gradient, e) / (double)gf_loss_scale(gf);
    }
}

/* ---- a step ---- */

static void expect_same_bytes(const struct sparse_model *model, uint32_t rank, gf_mem mine,
                              gf_mem first, uint64_t bytes, const char *what)
{
    if ((bytes > 0) &&
        (memcmp((const void *)(uintptr_t)mine, (const void *)(uintptr_t)first, bytes) != 0))
        fail_msg("step %llu: %s of rank %u are not those of rank 0",
                 (unsigned long long)model->number, what, rank);
}

static void expect_agreement(struct sparse_model *model)
{
    const gf_context *first = sparse_context(model, 0);
    world_expect_equal(&model->w);
    for (uint32_t rank = 1; rank < model->w.world; rank++) {
        const gf_context *gf = sparse_context(model, rank);
        assert_int_equal(gf->sparse.selected_count, first->sparse.selected_count);
        expect_same_bytes(model, rank, (gf_mem)(uintptr_t)gf->sparse.selection,
                          (gf_mem)(uintptr_t)first->sparse.selection,
                          first->sparse.selected_count * sizeof(uint32_t), "selection");
        if (gf->optimizer.weight != 0)
            expect_same_bytes(model, rank, gf->optimizer.weight, first->optimizer.weight,
                              model->elem_count * sizeof(float), "weights");
    }
}

void sparse_step(struct sparse_model *model, float rate)
{
    const gf_context *gf = sparse_context(model, 0);
    const struct world_step step = {.order = model->order, .fill = fill, .arg = model};
    model->number++;
    world_step_run(&model->w, &step);
    world_expect(&model->w, GF_OK);
    if (gf_step_skipped(gf)) return;
    for (uint32_t i = 0; i < gf->tensor_count; i++) {
        const struct gf_pool_tensor *tensor = &gf->tensors[i];
        double scale =
            gf_keeps_scale(gf, (gf_type)tensor->type) ? (double)gf_gradient_scale(gf) : 1.0;
        for (uint64_t at = 0, e = tensor->first_elem; at < tensor->elem_count; at++, e++) {
            model->applied[e] = scale * (double)world_get((gf_type)tensor->type,
                                                          world_gradient(&model->w, 0, i), at);
            model->applied_sum[e] += model->applied[e];
            for (uint32_t rank = 0; rank < model->w.world; rank++)
                model->produced_sum[e] += model->gradient[rank * model->elem_count + e];
        }
    }
    for (uint32_t rank = 0;
         (model->config->optimizer.kind != GF_OPTIMIZER_NONE) && (rank < model->w.world); rank++)
        assert_int_equal(gf_update(sparse_context(model, rank), rate), GF_OK);
    expect_agreement(model);
}

/* ---- what must hold ---- */

void sparse_expect_conserved(const struct sparse_model *model)
{
    uint64_t sparse_count = sparse_context(model, 0)->sparse.elem_count;
    for (uint64_t e = 0; e < model->elem_count; e++) {
        double held = 0;
        for (uint32_t rank = 0; (e < sparse_count) && (rank < model->w.world); rank++)
            held += (double)sparse_floats(sparse_context(model, rank)->sparse.history)[e];
        if (model->applied_sum[e] + held != model->produced_sum[e])
            fail_msg("step %llu, element %llu: %.9g applied and %.9g held, but %.9g produced",
                     (unsigned long long)model->number, (unsigned long long)e,
                     model->applied_sum[e], held, model->produced_sum[e]);
    }
}

void sparse_expect_selection(const struct sparse_model *model)
{
    const gf_context *gf = sparse_context(model, 0);
    const struct gf_sparse *sparse = &gf->sparse;
    uint32_t kept = gf_sparse_kept(model->config, sparse->chunk_count, model->number + 1);
    uint32_t *expected = calloc(sparse->chunk_count, sizeof *expected);
    float *norms = calloc(sparse->chunk_count, sizeof *norms);
    assert_true((expected != NULL) && (norms != NULL));
    for (uint64_t e = 0; e < sparse->elem_count; e++) {
        double norm = gf->step.sparse ? 0 : fabs(model->applied[e]);
        for (uint32_t rank = 0; gf->step.sparse && (rank < model->w.world); rank++)
            norm +=
                fabs((model->config->sparse.momentum != GF_SPARSE_MOMENTUM_REDUCED)
                         ? model->gradient[rank * model->elem_count + e]
                         : (double)sparse_floats(sparse_context(model, rank)->sparse.history)[e]);
        norms[e / sparse->chunk_elems] += (float)norm;
    }
    gf_sparse_select(norms, sparse->chunk_count, kept, expected);
    assert_int_equal(sparse->selected_count, kept);
    assert_memory_equal(sparse->selection, expected, kept * sizeof *expected);
    free(expected);
    free(norms);
}
