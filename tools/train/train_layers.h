/* The arithmetic of the reference appliance's networks: images in rows of [side][side][channels], convolutions with a
 * border of zeroes ("same") and a kernel of odd width, pooling of 2x2. All products go through BLAS; what is here moves
 * data for it. Nothing allocates, every output is the caller's and is written whole unless it says "adds". */
#ifndef GF_TRAIN_LAYERS_H
#define GF_TRAIN_LAYERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAYER_CHANNELS_MAX 64u

/* Elements of one image inside the border of zeroes that a kernel of this width wants. */
static inline size_t layer_bordered_elems(uint32_t side, uint32_t channels, uint32_t kernel)
{
    size_t wide = side + 2u * (kernel / 2u);
    return wide * wide * channels;
}

/* c[m][n] = beta c + a b, where a is [m][k], or [k][m] if a_flipped, and b is [k][n], or [n][k] if b_flipped. */
void layer_gemm(bool a_flipped, bool b_flipped, size_t m, size_t n, size_t k, const float *a, const float *b,
                float beta, float *c);

/* rows[images * side * side][kernel^2 * channels] of in[images] with borders: a convolution becomes one product. */
void layer_unfold(const float *in, size_t image_count, uint32_t side, uint32_t channels, uint32_t kernel, float *rows);
/* The reverse: each element of out[images] with borders gets the sum of the rows' elements that were read from it. */
void layer_fold(const float *rows, size_t image_count, uint32_t side, uint32_t channels, uint32_t kernel, float *out);

/* out = max(0, max of 2x2 of in + bias). in[images][side][side][channels]; out has side / 2, inside a border of
 * `border` that is left alone. winner[images][side / 2][side / 2][channels]: which of the four, or LAYER_NONE. */
#define LAYER_NONE 4u
void layer_relu_pool(const float *in, const float *bias, size_t image_count, uint32_t side, uint32_t channels,
                     uint32_t border, float *out, uint8_t *winner);
/* Gives out_gradient (with its border) to the winners in in_gradient, zeroes to the rest; adds to bias_gradient. */
void layer_relu_pool_back(const float *out_gradient, const uint8_t *winner, size_t image_count, uint32_t side,
                          uint32_t channels, uint32_t border, float *in_gradient, float *bias_gradient);

/* rows[row_count][width] += bias[width], then max(0, .) if relu. */
void layer_bias(float *rows, const float *bias, size_t row_count, size_t width, bool relu);
/* Zeroes gradient where out, the result of a ReLU, is zero. */
void layer_relu_back(float *gradient, const float *out, size_t elem_count);
/* sum[width] = the sum over rows. */
void layer_column_sum(const float *rows, size_t row_count, size_t width, float *sum);

/* Softmax and cross-entropy: logits[row_count][classes] become scale * d loss / d logits. Returns the sum of the
 * losses; *hits_out: how many labels had the highest logit. */
double layer_softmax_loss(float *logits, const uint8_t *labels, size_t row_count, size_t classes, float scale,
                          uint32_t *hits_out);

#endif
