/* What the appliance of each rank writes: pure functions of the plan, so that the model needs
 * nobody to tell it. */
#include "firmware-tests/soak/soak.h"

#include <math.h>
#include <string.h>

bool soak_skips(const struct soak_plan *plan, uint64_t step, uint32_t rank, uint32_t tensor)
{
    return soak_below(soak_draw(plan, SOAK_DRAW_SKIP, step, rank, tensor), 100) <
           plan->skip_percent;
}

static float value_of(bool noise, uint64_t draw, uint64_t moment, uint64_t elem)
{
    /* what matters most changes all the time */
    uint32_t size = 1 + (uint32_t)(elem / 7 + moment) % 4;
    if (noise) return ((float)(draw >> 40) - 0x1p23f) * 0x1p-25f * (float)size;
    return (float)soak_below(draw, 2 * size + 1) - (float)size;
}

bool soak_bad(const struct soak_plan *plan, uint64_t step, uint32_t rank, uint32_t *tensor_out,
              uint64_t *elem_out)
{
    uint64_t draw = soak_draw(plan, SOAK_DRAW_BAD, step, rank, 0);
    uint64_t where = soak_draw(plan, SOAK_DRAW_BAD, step, rank, 1);
    uint32_t tensor = soak_below(where, plan->setup.tensor_count);
    if (soak_below(draw, 1000) >= plan->bad_permille) return false;
    if ((plan->tensors[tensor].elem_count == 0) || soak_skips(plan, step, rank, tensor))
        return false;
    *tensor_out = tensor;
    *elem_out = (where & 0xffffffu) % plan->tensors[tensor].elem_count;
    return true;
}

uint64_t soak_samples(const struct soak_plan *plan, uint64_t step, uint32_t rank)
{
    uint64_t draw = soak_draw(plan, SOAK_DRAW_SAMPLES, step, rank, 0);
    bool nobody = soak_below(soak_draw(plan, SOAK_DRAW_SAMPLES, step, 0, 1), 10) == 0;
    return (nobody || (soak_below(draw, 4) == 0)) ? 0 : 1 + (draw & 31);
}

/* What the gradient holds once so many of `passes` micro-batches have been added. */
static float value_after(gf_type type, float part, uint32_t done)
{
    float sum = 0;
    uint32_t memory = 0;
    for (uint32_t pass = 0; (type == GF_TYPE_F32) && (pass < done); pass++) sum += part;
    for (uint32_t pass = 0; (type != GF_TYPE_F32) && (pass < done); pass++) {
        world_put(type, &memory, 0, sum + part);
        sum = world_get(type, &memory, 0);
    }
    return sum;
}

const float *soak_values(const struct soak_plan *plan, uint64_t step, uint32_t rank,
                         uint32_t tensor, float scale, uint32_t done)
{
    static float values[SOAK_ELEMS_MAX];
    const uint64_t begun =
        soak_draw_begin(plan, SOAK_DRAW_VALUE, step * SOAK_RANKS_MAX + rank, tensor);
    const gf_type type = plan->tensors[tensor].type;
    const bool noise = plan->noise;
    const float passes = (float)plan->passes;
    for (uint64_t e = 0, count = plan->tensors[tensor].elem_count; e < count; e++)
        values[e] = value_after(
            type, value_of(noise, soak_draw_end(begun, e), tensor + step, e) * scale / passes,
            done);
    return values;
}

void soak_fill(const struct soak_plan *plan, gf_context *gf, uint64_t step, uint32_t tensor,
               uint32_t pass)
{
    void *gradient = (void *)(uintptr_t)gf_gradient(gf, tensor);
    gf_type type = plan->tensors[tensor].type;
    uint32_t rank = gf_first_rank(gf);
    uint32_t bad_tensor = 0;
    uint64_t bad_elem = 0;
    const float *values = soak_values(plan, step, rank, tensor, gf_loss_scale(gf), pass + 1);
    soak_drain(gf);
    if (type == GF_TYPE_F32)
        memcpy(gradient, values, plan->tensors[tensor].elem_count * sizeof *values);
    for (uint64_t e = 0; (type != GF_TYPE_F32) && (e < plan->tensors[tensor].elem_count); e++)
        world_put(type, gradient, e, values[e]);
    if (soak_bad(plan, step, rank, &bad_tensor, &bad_elem) && (bad_tensor == tensor))
        world_put(type, gradient, bad_elem, (bad_elem % 2 == 0) ? INFINITY : NAN);
}
