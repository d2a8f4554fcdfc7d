/* Batch normalisation. Sums over up to millions of rows: runs of rows in fp32, which vectorises, then in double. */
#include "tools/train/train_norm.h"

#include <math.h>
#include <string.h>

#include "tools/train/train_layers.h"

#define RUN_ROWS 256u
#define NORM_EPSILON 1e-5f
#define NORM_KEPT 0.9f /* share of the running statistics that a batch leaves as it was */

static size_t run_rows(size_t left) { return (left < RUN_ROWS) ? left : RUN_ROWS; }

/* mean[] of the rows, variance[] around it. */
static void moments(const float *rows, size_t row_count, uint32_t channels, float *mean, float *variance)
{
    double sums[LAYER_CHANNELS_MAX] = {0.0}, squares[LAYER_CHANNELS_MAX] = {0.0};
    float part[LAYER_CHANNELS_MAX];
    const float *at = rows;
    for (size_t done = 0, count; done < row_count; done += count) {
        count = run_rows(row_count - done);
        memset(part, 0, sizeof part);
        for (size_t row = 0; row < count; row++, at += channels)
            for (uint32_t c = 0; c < channels; c++) part[c] += at[c];
        for (uint32_t c = 0; c < channels; c++) sums[c] += (double)part[c];
    }
    for (uint32_t c = 0; c < channels; c++) mean[c] = (float)(sums[c] / (double)row_count);
    at = rows;
    for (size_t done = 0, count; done < row_count; done += count) {
        count = run_rows(row_count - done);
        memset(part, 0, sizeof part);
        for (size_t row = 0; row < count; row++, at += channels)
            for (uint32_t c = 0; c < channels; c++) part[c] += (at[c] - mean[c]) * (at[c] - mean[c]);
        for (uint32_t c = 0; c < channels; c++) squares[c] += (double)part[c];
    }
    for (uint32_t c = 0; c < channels; c++) variance[c] = (float)(squares[c] / (double)row_count);
}

static void centre(float *rows, size_t row_count, uint32_t channels, const float *mean, const float *inverse)
{
    for (size_t row = 0; row < row_count; row++, rows += channels)
        for (uint32_t c = 0; c < channels; c++) rows[c] = (rows[c] - mean[c]) * inverse[c];
}

void norm_forward(float *rows, size_t row_count, uint32_t channels, float *inverse_out, float *running_mean,
                  float *running_variance)
{
    float mean[LAYER_CHANNELS_MAX], variance[LAYER_CHANNELS_MAX];
    moments(rows, row_count, channels, mean, variance);
    for (uint32_t c = 0; c < channels; c++) {
        inverse_out[c] = 1.0f / sqrtf(variance[c] + NORM_EPSILON);
        running_mean[c] = NORM_KEPT * running_mean[c] + (1.0f - NORM_KEPT) * mean[c];
        running_variance[c] = NORM_KEPT * running_variance[c] + (1.0f - NORM_KEPT) * variance[c];
    }
    centre(rows, row_count, channels, mean, inverse_out);
}

void norm_apply(float *rows, size_t row_count, uint32_t channels, const float *mean, const float *variance)
{
    float inverse[LAYER_CHANNELS_MAX];
    for (uint32_t c = 0; c < channels; c++) inverse[c] = 1.0f / sqrtf(variance[c] + NORM_EPSILON);
    centre(rows, row_count, channels, mean, inverse);
}

void norm_backward(float *gradient, const float *normal, size_t row_count, uint32_t channels, const float *gain,
                   const float *inverse, float *gain_gradient, float *bias_gradient)
{
    double gains[LAYER_CHANNELS_MAX] = {0.0}, biases[LAYER_CHANNELS_MAX] = {0.0};
    float gain_part[LAYER_CHANNELS_MAX], bias_part[LAYER_CHANNELS_MAX], factor[LAYER_CHANNELS_MAX];
    size_t at = 0;
    for (size_t done = 0, count; done < row_count; done += count) {
        count = run_rows(row_count - done);
        memset(gain_part, 0, sizeof gain_part);
        memset(bias_part, 0, sizeof bias_part);
        for (size_t row = 0; row < count; row++, at += channels) {
            for (uint32_t c = 0; c < channels; c++) {
                gain_part[c] += gradient[at + c] * normal[at + c];
                bias_part[c] += gradient[at + c];
            }
        }
        for (uint32_t c = 0; c < channels; c++) {
            gains[c] += (double)gain_part[c];
            biases[c] += (double)bias_part[c];
        }
    }
    for (uint32_t c = 0; c < channels; c++) {
        gain_gradient[c] = (float)gains[c];
        bias_gradient[c] = (float)biases[c];
        gain_part[c] = (float)(gains[c] / (double)row_count);
        bias_part[c] = (float)(biases[c] / (double)row_count);
        factor[c] = gain[c] * inverse[c];
    }
    for (size_t row = 0; row < row_count; row++, gradient += channels, normal += channels)
        for (uint32_t c = 0; c < channels; c++)
            gradient[c] = factor[c] * (gradient[c] - bias_part[c] - normal[c] * gain_part[c]);
}

void norm_gain(const float *normal, size_t row_count, uint32_t channels, const float *gain, float *out)
{
    for (size_t row = 0; row < row_count; row++, normal += channels, out += channels)
        for (uint32_t c = 0; c < channels; c++) out[c] = gain[c] * normal[c];
}
