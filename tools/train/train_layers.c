/* Layers as data movement around BLAS. Channels are innermost, so that a row of taps is one run of
 * memory. */
#include "tools/train/train_layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>

/* OpenBLAS takes processors that are younger than itself for the oldest it knows: Debian 12's runs
 * on SSE3 there, four times slower. So it is told what it would find out if it asked for the
 * instructions rather than the model. It chooses in a constructor of its own, hence one that runs
 * before it; OPENBLAS_CORETYPE from outside is kept. */
#if defined(__x86_64__)
__attribute__((constructor(101))) static void blas_core_choose(void)
{
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx2) setenv("OPENBLAS_CORETYPE", avx512 ? "SkylakeX" : "Haswell", 0);
}
#endif

static void host_gemm(struct device *device, bool a_flipped, bool b_flipped, size_t m, size_t n,
                      size_t k, const float *a, const float *b, bool adds, float *c)
{
    int rows = (int)m;
    int columns = (int)n;
    int depth = (int)k;
    (void)device;
    if (rows == 0) return;
    cblas_sgemm(CblasRowMajor, a_flipped ? CblasTrans : CblasNoTrans,
                b_flipped ? CblasTrans : CblasNoTrans, rows, columns, depth, 1.0f, a,
                a_flipped ? rows : depth, b, b_flipped ? depth : columns, adds ? 1.0f : 0.0f, c,
                columns);
}

static void host_unfold(struct device *device, const float *in, size_t image_count, uint32_t side,
                        uint32_t channels, uint32_t kernel, float *rows)
{
    (void)device;
    size_t line = (side + 2u * (kernel / 2u)) * (size_t)channels;
    size_t run = kernel * (size_t)channels;
    for (size_t image = 0; image < image_count; image++) {
        for (size_t y = 0; y < side; y++) {
            for (size_t x = 0; x < side; x++) {
                const float *from = in + y * line + x * channels;
                for (size_t tap = 0; tap < kernel; tap++, rows += run, from += line)
                    memcpy(rows, from, run * sizeof *rows);
            }
        }
        in += layer_bordered_elems(side, channels, kernel);
    }
}

static void host_fold(struct device *device, const float *rows, size_t image_count, uint32_t side,
                      uint32_t channels, uint32_t kernel, float *out)
{
    (void)device;
    size_t line = (side + 2u * (kernel / 2u)) * (size_t)channels;
    size_t run = kernel * (size_t)channels;
    memset(out, 0, image_count * layer_bordered_elems(side, channels, kernel) * sizeof *out);
    for (size_t image = 0; image < image_count; image++) {
        for (size_t y = 0; y < side; y++) {
            for (size_t x = 0; x < side; x++) {
                float *to = out + y * line + x * channels;
                for (size_t tap = 0; tap < kernel; tap++, rows += run, to += line) {
                    for (size_t i = 0; i < run; i++) to[i] += rows[i];
                }
            }
        }
        out += layer_bordered_elems(side, channels, kernel);
    }
}

/* One output point: the four inputs in the order of `winner`. Ties go to the first. */
static void pool_point(const float *const corner[4], const float *bias, uint32_t channels,
                       float *restrict out, uint8_t *restrict winner)
{
    for (uint32_t c = 0; c < channels; c++) {
        float top = corner[0][c];
        float bottom = corner[2][c];
        uint32_t top_at = corner[1][c] > top;
        uint32_t bottom_at = 2u + (corner[3][c] > bottom);
        top = top_at ? corner[1][c] : top;
        bottom = (bottom_at == 3u) ? corner[3][c] : bottom;
        float best = ((bottom > top) ? bottom : top) + bias[c];
        uint32_t at = (bottom > top) ? bottom_at : top_at;
        out[c] = (best > 0.0f) ? best : 0.0f;
        winner[c] = (uint8_t)((best > 0.0f) ? at : LAYER_NONE);
    }
}

static void host_relu_pool(struct device *device, const float *in, const float *bias,
                           size_t image_count, uint32_t side, uint32_t channels, uint32_t border,
                           float *out, uint8_t *winner)
{
    (void)device;
    size_t half = side / 2u;
    size_t wide = half + 2u * (size_t)border;
    size_t line = side * (size_t)channels;
    for (size_t image = 0; image < image_count; image++) {
        for (size_t y = 0; y < half; y++) {
            float *to = out + ((y + border) * wide + border) * channels;
            for (size_t x = 0; x < half; x++, to += channels, winner += channels) {
                const float *first = in + 2u * y * line + 2u * x * channels;
                const float *corner[4] = {first, first + channels, first + line,
                                          first + line + channels};
                pool_point(corner, bias, channels, to, winner);
            }
        }
        in += side * line;
        out += wide * wide * channels;
    }
}

static void host_relu_pool_back(struct device *device, const float *out_gradient,
                                const uint8_t *winner, size_t image_count, uint32_t side,
                                uint32_t channels, uint32_t border, float *in_gradient, bool adds,
                                float *bias_gradient)
{
    (void)device;
    if (!adds) memset(bias_gradient, 0, channels * sizeof *bias_gradient);
    size_t half = side / 2u;
    size_t wide = half + 2u * (size_t)border;
    size_t line = side * (size_t)channels;
    for (size_t image = 0; image < image_count; image++) {
        for (size_t y = 0; y < half; y++) {
            const float *from = out_gradient + ((y + border) * wide + border) * channels;
            for (size_t x = 0; x < half; x++, from += channels, winner += channels) {
                float *first = in_gradient + 2u * y * line + 2u * x * channels;
                for (uint32_t c = 0; c < channels; c++) {
                    float value = from[c];
                    uint32_t at = winner[c];
                    first[c] = (at == 0u) ? value : 0.0f;
                    first[channels + c] = (at == 1u) ? value : 0.0f;
                    first[line + c] = (at == 2u) ? value : 0.0f;
                    first[line + channels + c] = (at == 3u) ? value : 0.0f;
                    bias_gradient[c] += (at == LAYER_NONE) ? 0.0f : value;
                }
            }
        }
        in_gradient += side * line;
        out_gradient += wide * wide * channels;
    }
}

static void host_bias(struct device *device, float *rows, const float *bias, size_t row_count,
                      size_t width, bool relu)
{
    (void)device;
    float least = relu ? 0.0f : -INFINITY;
    for (size_t row = 0; row < row_count; row++, rows += width) {
        for (size_t i = 0; i < width; i++) {
            float value = rows[i] + bias[i];
            rows[i] = (value < least)
                          ? least
                          : value; /* keeps a NaN, so that the vote of the step sees it */
        }
    }
}

static void host_relu_back(struct device *device, float *gradient, const float *out,
                           size_t elem_count)
{
    (void)device;
    for (size_t i = 0; i < elem_count; i++) gradient[i] = (out[i] > 0.0f) ? gradient[i] : 0.0f;
}

static void host_column_sum(struct device *device, const float *rows, size_t row_count,
                            size_t width, float *sum)
{
    (void)device;
    memset(sum, 0, width * sizeof *sum);
    for (size_t row = 0; row < row_count; row++, rows += width) {
        for (size_t i = 0; i < width; i++) sum[i] += rows[i];
    }
}

/* Two images: the unfolded ones (627 KB each) should stay in a core's cache and the products be
 * long enough: 2 was the fastest on a core with 2 MB. Backward polls after each chunk, so the wire
 * never waits long. */
const struct net_layers layers_host = {
    .chunk_images = 2,
    .gemm = host_gemm,
    .unfold = host_unfold,
    .fold = host_fold,
    .relu_pool = host_relu_pool,
    .relu_pool_back = host_relu_pool_back,
    .bias = host_bias,
    .relu_back = host_relu_back,
    .column_sum = host_column_sum,
};

double layer_softmax_loss(float *logits, const uint8_t *labels, size_t row_count, size_t classes,
                          float scale, uint32_t *hits_out)
{
    double loss = 0.0;
    uint32_t hits = 0;
    for (size_t row = 0; row < row_count; row++, logits += classes) {
        size_t label = labels[row];
        size_t best = 0;
        for (size_t i = 1; i < classes; i++) best = (logits[i] > logits[best]) ? i : best;
        float top = logits[best];
        float own = logits[label];
        float total = 0.0f;
        for (size_t i = 0; i < classes; i++) total += logits[i] = expf(logits[i] - top);
        loss += (double)(top - own) + log((double)total);
        for (size_t i = 0; i < classes; i++) logits[i] *= scale / total;
        logits[label] -= scale;
        hits += best == label;
    }
    *hits_out = hits;
    return loss;
}
