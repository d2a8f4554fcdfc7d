/* What a quantized step must do. What a rank sends and keeps is known to the last bit: x = r + g in
 * fp32, and what the scalar ops (unit/test_quantize) make of it. What owners make of their sum is
 * held against the words of ops/ops.h in double precision, as they add in any order; and nothing is
 * lost: e' = e + all that was sent - the result. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/soak/soak.h"
#include "ops/element/host/ops_host.h"

/* of a step, as of a row (soak_model.c); of all terms of a group in this epoch */
#define EPSILON 5e-8

static gf_mem mem(void *memory)
{
    return (gf_mem)(uintptr_t)memory;
}

/* r + g of a rank; zeroes between tensors. */
static void rank_values(const struct soak_model *model, const gf_context *gf, uint64_t step,
                        uint32_t rank, float *x)
{
    const double *r = model->history + rank * model->elem_count;
    for (uint64_t e = 0; e < model->elem_count; e++) x[e] = (float)r[e];
    for (uint32_t i = 0; i < gf->tensor_count; i++) {
        const float *values;
        if (soak_skips(model->plan, step, rank, i)) continue;
        values = soak_values(model->plan, step, rank, i, model->scale, model->plan->passes);
        for (uint64_t e = 0; e < gf->tensors[i].elem_count; e++)
            x[gf->tensors[i].first_elem + e] += values[e] * (1.0f / model->scale);
    }
}

/* One group of the result; s is what its owner had. */
static void group_check(struct soak_model *model, const gf_context *gf, uint64_t step,
                        uint64_t first, uint64_t count, double average)
{
    const float *got = (const float *)(uintptr_t)gf->gradient + first;
    const double *s = model->sum + first;
    double most = 0;
    double mean = 0;
    double size = 0;
    double epsilon;
    for (uint64_t e = 0; e < count; e++) {
        most = fmax(most, fabs(s[e]));
        mean += fabs(s[e]) / (double)count;
        size = fmax(size, model->owed_size[first + e]);
    }
    epsilon = EPSILON * (double)(20 + step) * size;
    for (uint64_t e = 0; e < count; e++) {
        double p = (double)got[e] / average;
        double missing = s[e] - p;
        bool right =
            (gf->world == 1) ? fabs(missing) <= epsilon
            : (gf->quantized.form.bits == 8)
                ? fabs(missing) <= most / 127 * 0.5 + epsilon
                : (fabs(fabs(p) - mean) <= epsilon) && ((p * s[e] >= 0) || (fabs(s[e]) <= epsilon));
        if (!right)
            soak_step_fail(
                gf, step,
                "element %llu of the pool is %.9g, quantized from %.9g of a group of %.9g at most "
                "and %.9g in the mean",
                (unsigned long long)(first + e), p, s[e], most, mean);
        model->owed[first + e] = (gf->world == 1) ? 0 : missing;
        model->applied[first + e] = (double)got[e];
    }
}

void soak_quantize_check(struct soak_model *model, const gf_context *gf, uint64_t step)
{
    const struct gf_groups *form = &gf->quantized.form;
    double average =
        (gf->config.exchange.average == GF_AVERAGE_RANKS) ? 1.0 / (double)gf->world : 1.0;
    uint64_t count = model->elem_count;
    float *x = calloc(3 * count + GF_GROUP_ELEMS_MAX, sizeof *x);
    float *q = x + count;
    float *groups = q + count;
    assert_non_null(x);
    for (uint64_t e = 0; e < count; e++) model->sum[e] = model->owed[e];
    memset(model->size, 0, count * sizeof *model->size);
    for (uint32_t rank = 0; rank < model->plan->ids; rank++) {
        if (!soak_is_member(model, rank)) continue;
        rank_values(model, gf, step, rank, x);
        for (uint32_t b = 0; b < gf->buffers.dense_count; b++) {
            const struct gf_buffer *buffer = &gf->buffers.dense[b];
            (void)gf_element_ops_scalar.quantize(NULL, mem(groups), mem(x + buffer->first_elem),
                                                 buffer->elem_count, form, 0, NULL);
            (void)gf_element_ops_scalar.dequantize(NULL, mem(q + buffer->first_elem), mem(groups),
                                                   buffer->elem_count, form, 1.0f, false);
        }
        for (uint64_t e = 0; e < count; e++) {
            model->sum[e] += (double)q[e];
            model->size[e] += fabs((double)q[e]);
            model->history[rank * count + e] = (double)x[e]; /* r' */
        }
    }
    for (uint64_t e = 0; e < count; e++) /* what has cancelled has left its roundings */
        model->owed_size[e] = fmax(model->owed_size[e], model->size[e] + fabs(model->owed[e]));
    for (uint32_t b = 0; b < gf->buffers.dense_count; b++) {
        const struct gf_buffer *buffer = &gf->buffers.dense[b];
        for (uint64_t e = 0; e < buffer->elem_count; e += form->elems)
            group_check(model, gf, step, buffer->first_elem + e,
                        (buffer->elem_count - e < form->elems) ? buffer->elem_count - e
                                                               : form->elems,
                        average);
    }
    free(x);
}

/* What this rank still owes, bit by bit. */
void soak_quantize_own(const struct soak_model *model, const gf_context *gf, uint64_t step)
{
    const float *got = (const float *)(uintptr_t)gf->sparse.history;
    const double *expected = model->history + gf_first_rank(gf) * model->elem_count;
    for (uint64_t e = 0; e < model->elem_count; e++)
        if ((double)got[e] != expected[e])
            soak_step_fail(gf, step, "residual %llu is %.9g, expected %.9g", (unsigned long long)e,
                           (double)got[e], expected[e]);
}
