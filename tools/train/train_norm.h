/* Batch normalisation (Ioffe and Szegedy, arXiv 1502.03167) over rows[row_count][channels]: a row is one point of one
 * image. Channels are at most LAYER_CHANNELS_MAX. */
#ifndef GF_TRAIN_NORM_H
#define GF_TRAIN_NORM_H

#include <stddef.h>
#include <stdint.h>

/* rows become (row - mean) / deviation of these rows; inverse_out[channels]: 1 / deviation. The running mean and
 * variance move towards those of these rows. row_count > 0. */
void norm_forward(float *rows, size_t row_count, uint32_t channels, float *inverse_out, float *running_mean,
                  float *running_variance);
/* The same with mean and variance given, for evaluation. */
void norm_apply(float *rows, size_t row_count, uint32_t channels, const float *mean, const float *variance);

/* gradient[] is d loss / d (gain * normal + bias) and becomes d loss / d the rows that norm_forward() was given; normal
 * is what it made of them. gain_gradient and bias_gradient are written whole. */
void norm_backward(float *gradient, const float *normal, size_t row_count, uint32_t channels, const float *gain,
                   const float *inverse, float *gain_gradient, float *bias_gradient);

/* out[row] = gain * normal[row]. */
void norm_gain(const float *normal, size_t row_count, uint32_t channels, const float *gain, float *out);

#endif
