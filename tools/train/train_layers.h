/* The arithmetic of the reference appliance's networks: images in rows of [side][side][channels],
 * convolutions with a border of zeroes ("same") and a kernel of odd width, pooling of 2x2. Nothing
 * allocates; every output is the caller's and is written whole unless it says "adds". */
#ifndef GF_TRAIN_LAYERS_H
#define GF_TRAIN_LAYERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Elements of one image inside the border of zeroes that a kernel of this width wants. */
static inline size_t layer_bordered_elems(uint32_t side, uint32_t channels, uint32_t kernel)
{
    size_t wide = side + 2u * (kernel / 2u);
    return wide * wide * channels;
}

#define LAYER_NONE 4u /* a winner: the ReLU let none of the four through */

struct device;

/* Where layers are computed: on the host at once, all products by BLAS (train_layers.c; device is
 * NULL), or on a GPU, in whose memory everything lies, queued (train_device.c). */
struct net_layers {
    uint32_t chunk_images; /* convolved at a time */
    /* c[m][n] = a b, added to c if adds. a is [m][k], or [k][m] if a_flipped; b is [k][n], or
     * [n][k] if b_flipped. */
    void (*gemm)(struct device *device, bool a_flipped, bool b_flipped, size_t m, size_t n,
                 size_t k, const float *a, const float *b, bool adds, float *c);
    /* rows[images * side * side][kernel^2 * channels] of in[images] with borders: a convolution
     * becomes one product. */
    void (*unfold)(struct device *device, const float *in, size_t image_count, uint32_t side,
                   uint32_t channels, uint32_t kernel, float *rows);
    /* The reverse: each element of out[images] with borders gets the sum of the rows' elements that
     * were read from it. */
    void (*fold)(struct device *device, const float *rows, size_t image_count, uint32_t side,
                 uint32_t channels, uint32_t kernel, float *out);
    /* out = max(0, max of 2x2 of in + bias). in[images][side][side][channels]; out has side / 2,
     * inside a border of `border` that is left alone. winner[images][side / 2][side / 2][channels]:
     * which of the four, or LAYER_NONE. */
    void (*relu_pool)(struct device *device, const float *in, const float *bias, size_t image_count,
                      uint32_t side, uint32_t channels, uint32_t border, float *out,
                      uint8_t *winner);
    /* Gives out_gradient (with its border) to the winners in in_gradient, zeroes to the rest.
     * bias_gradient is their sum, added to it if adds. */
    void (*relu_pool_back)(struct device *device, const float *out_gradient, const uint8_t *winner,
                           size_t image_count, uint32_t side, uint32_t channels, uint32_t border,
                           float *in_gradient, bool adds, float *bias_gradient);
    /* rows[row_count][width] += bias[width], then max(0, .) if relu. */
    void (*bias)(struct device *device, float *rows, const float *bias, size_t row_count,
                 size_t width, bool relu);
    /* Zeroes gradient where out, the result of a ReLU, is zero. */
    void (*relu_back)(struct device *device, float *gradient, const float *out, size_t elem_count);
    /* sum[width] = the sum over rows. */
    void (*column_sum)(struct device *device, const float *rows, size_t row_count, size_t width,
                       float *sum);
};
extern const struct net_layers layers_host, layers_device;

/* On the host: softmax and cross-entropy: logits[row_count][classes] become scale * d loss / d
 * logits. Returns the sum of the losses; *hits_out: how many labels had the highest logit. */
double layer_softmax_loss(float *logits, const uint8_t *labels, size_t row_count, size_t classes,
                          float scale, uint32_t *hits_out);

#endif
