/* Mixed precision: forward and backward read a bf16 copy of the weights and leave bf16 gradients,
 * which travel as they are; the library keeps the weights themselves in fp32. Fits y = 3x + 1 on
 * all ranks of the job.
 *
 *     make half && gf-run -n 2 ./half */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradientflow/gradientflow.h>

enum { SLOPE, OFFSET, TENSORS, BATCH = 32, STEPS = 300 };
static const struct gf_tensor tensors[TENSORS] = {
    {.name = "slope", .elem_count = 1, .type = GF_TYPE_BF16},
    {.name = "offset", .elem_count = 1, .type = GF_TYPE_BF16},
};

/* bf16 is the upper half of an fp32 value. */
static float of_bf16(const uint16_t *at)
{
    uint32_t bits = (uint32_t)*at << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void to_bf16(uint16_t *at, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    /* to nearest even */
    *at = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Every rank has the same first values, so there is nothing to send; but the bf16 copies are to be
 * made of them. */
static gf_status weights_begin(gf_context *gf)
{
    *gf_weight_f32(gf, SLOPE) = -1;
    *gf_weight_f32(gf, OFFSET) = 0.5f;
    return gf_weights_written(gf);
}

static gf_status step(gf_context *gf, unsigned number)
{
    float slope = of_bf16(gf_weight_bits16(gf, SLOPE));
    float offset = of_bf16(gf_weight_bits16(gf, OFFSET));
    float to_slope = 0;
    float to_offset = 0;
    float scale = gf_loss_scale(gf) / (float)BATCH;
    gf_status status = gf_step_begin(gf);
    for (unsigned i = 0; i < BATCH; i++) {
        float x = (float)((number * BATCH + i + 7 * gf_rank(gf)) % 100) / 100;
        float error = slope * x + offset - (3 * x + 1);
        to_slope += error * x * scale;
        to_offset += error * scale;
    }
    if (status != GF_OK) return status;
    to_bf16(gf_gradient_bits16(gf, SLOPE), to_slope);
    to_bf16(gf_gradient_bits16(gf, OFFSET), to_offset);
    if ((status = gf_tensors_ready(gf, SLOPE, TENSORS, 0)) != GF_OK) return status;
    if ((status = gf_step_wait(gf)) != GF_OK) return status;
    /* With an optimizer of the library's the averages keep the loss scale, for 16 bits could
     * underflow without it. gf_update() undoes it; so does whoever looks at them. */
    if ((number % 100 == 0) && (gf_rank(gf) == 0) && !gf_step_skipped(gf))
        printf("step %u: gradient of the slope %.4f\n", number,
               (double)(of_bf16(gf_gradient_bits16(gf, SLOPE)) * gf_gradient_scale(gf)));
    return gf_update(gf, 0.2f);
}

int main(void)
{
    static struct gf_config config = {
        .exchange = {.wire = GF_TYPE_BF16, .average = GF_AVERAGE_RANKS},
        .loss_scale.enabled = true,
        .optimizer = {.kind = GF_OPTIMIZER_SGD, .momentum = 0.9f, .half_weights = GF_TYPE_BF16},
        .log = gf_log_stderr,
    };
    struct gf_footprint need;
    gf_context *gf = NULL;
    if (gf_measure(&config, tensors, TENSORS, &need) != GF_OK) return 1;
    void *memory = aligned_alloc(64, need.control_bytes); /* the only memory the library is given */
    gf_status status = gf_open(&config, tensors, TENSORS, memory, need.control_bytes, &gf);
    if (status == GF_OK) status = gf_open_wait(gf);
    if (status == GF_OK) status = weights_begin(gf);
    for (unsigned number = 0; (status == GF_OK) && (number < STEPS); number++)
        status = step(gf, number);
    if (status == GF_OK)
        printf("rank %u: y = %.1f x + %.1f\n", gf_rank(gf), (double)*gf_weight_f32(gf, SLOPE),
               (double)*gf_weight_f32(gf, OFFSET));
    gf_close(gf);
    free(memory);
    return status != GF_OK;
}
