/* gf-train's networks on a GPU: plain kernels, no library behind them. Each result is summed in one
 * written order, so two GPUs of a kind agree to the bit. Compiled like the kernels of ops/. */
#include "ops/element/cuda/device.cuh"
#include "tools/train/train_kernels.h"

#define DEPTH 16u
#define STEP (TRAIN_TILE / 16u) /* rows and columns of a thread's part, 16 apart */

GF_INLINE uint64_t train_first(void)
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

GF_INLINE uint64_t train_stride(void)
{
    return (uint64_t)gridDim.x * blockDim.x;
}

/* part[DEPTH][TILE] of matrix [lines][depths], or [depths][lines] if flipped; zeroes past its
 * ends. */
GF_INLINE void train_part(float *part, const float *matrix, uint32_t flipped, uint64_t line_first,
                          uint64_t line_count, uint64_t depth_first, uint64_t depth_count)
{
    for (uint32_t i = threadIdx.x; i < DEPTH * TRAIN_TILE; i += TRAIN_KERNEL_THREADS) {
        uint32_t line = flipped ? i % TRAIN_TILE : i / DEPTH,
                 depth = flipped ? i / TRAIN_TILE : i % DEPTH;
        uint64_t l = line_first + line, d = depth_first + depth;
        float value = 0.0f;
        if ((l < line_count) && (d < depth_count))
            value = matrix[flipped ? d * line_count + l : l * depth_count + d];
        part[depth * TRAIN_TILE + line] = value;
    }
}

GF_KERNEL(train_gemm)
{
    __shared__ float a_part[DEPTH * TRAIN_TILE], b_part[DEPTH * TRAIN_TILE];
    uint64_t across = (args.n + TRAIN_TILE - 1) / TRAIN_TILE,
             tiles = across * ((args.m + TRAIN_TILE - 1) / TRAIN_TILE);
    uint32_t x = threadIdx.x % 16u, y = threadIdx.x / 16u;
    float *c = (float *)args.c;
    for (uint64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        uint64_t row = tile / across * TRAIN_TILE, column = tile % across * TRAIN_TILE;
        float sum[STEP][STEP];
        for (uint32_t i = 0; i < STEP * STEP; i++) sum[i / STEP][i % STEP] = 0.0f;
        for (uint64_t depth = 0; depth < args.k; depth += DEPTH) {
            train_part(a_part, (const float *)args.a, args.a_flipped, row, args.m, depth, args.k);
            train_part(b_part, (const float *)args.b, !args.b_flipped, column, args.n, depth,
                       args.k);
            __syncthreads();
            for (uint32_t d = 0; d < DEPTH; d++) {
                float a[STEP], b[STEP];
                for (uint32_t i = 0; i < STEP; i++) a[i] = a_part[d * TRAIN_TILE + y + 16u * i];
                for (uint32_t i = 0; i < STEP; i++) b[i] = b_part[d * TRAIN_TILE + x + 16u * i];
                for (uint32_t i = 0; i < STEP * STEP; i++)
                    sum[i / STEP][i % STEP] += a[i / STEP] * b[i % STEP];
            }
            __syncthreads();
        }
        for (uint32_t i = 0; i < STEP * STEP; i++) {
            uint64_t r = row + y + 16u * (i / STEP), s = column + x + 16u * (i % STEP);
            if ((r >= args.m) || (s >= args.n)) continue;
            c[r * args.n + s] =
                args.adds ? c[r * args.n + s] + sum[i / STEP][i % STEP] : sum[i / STEP][i % STEP];
        }
    }
}

GF_KERNEL(train_unfold)
{
    const float *in = (const float *)args.in;
    float *rows = (float *)args.rows;
    uint64_t run = (uint64_t)args.kernel * args.channels, row = run * args.kernel;
    uint64_t wide = args.side + 2u * (args.kernel / 2u), line = wide * args.channels;
    uint64_t total = args.image_count * args.side * args.side * row;
    for (uint64_t i = train_first(); i < total; i += train_stride()) {
        uint64_t point = i / row, tap = i % row / run, at = i % run;
        uint64_t x = point % args.side, y = point / args.side % args.side,
                 image = point / args.side / args.side;
        rows[i] = in[image * wide * line + (y + tap) * line + x * args.channels + at];
    }
}

/* Each element collects what was read from it: no two threads write the same. */
GF_KERNEL(train_fold)
{
    const float *rows = (const float *)args.rows;
    float *out = (float *)args.out;
    uint64_t run = (uint64_t)args.kernel * args.channels, row = run * args.kernel;
    uint64_t wide = args.side + 2u * (args.kernel / 2u),
             total = args.image_count * wide * wide * args.channels;
    for (uint64_t i = train_first(); i < total; i += train_stride()) {
        uint64_t channel = i % args.channels, x = i / args.channels % wide,
                 y = i / args.channels / wide % wide;
        uint64_t image = i / args.channels / wide / wide;
        float sum = 0.0f;
        for (uint64_t ky = 0; ky < args.kernel; ky++) {
            for (uint64_t kx = 0; kx < args.kernel; kx++) {
                if ((y < ky) || (x < kx) || (y - ky >= args.side) || (x - kx >= args.side))
                    continue;
                uint64_t point = (image * args.side + y - ky) * args.side + x - kx;
                sum += rows[point * row + ky * run + kx * args.channels + channel];
            }
        }
        out[i] = sum;
    }
}

/* Ties go to the first of the four, as on the host. */
GF_KERNEL(train_pool)
{
    const float *in = (const float *)args.in, *bias = (const float *)args.bias;
    float *out = (float *)args.out;
    unsigned char *winner = (unsigned char *)args.winner;
    uint64_t half = args.side / 2u, wide = half + 2u * args.border,
             total = args.image_count * half * half * args.channels;
    for (uint64_t i = train_first(); i < total; i += train_stride()) {
        uint64_t channel = i % args.channels, x = i / args.channels % half,
                 y = i / args.channels / half % half;
        uint64_t image = i / args.channels / half / half;
        uint32_t at = 0;
        float best = 0.0f;
        for (uint32_t corner = 0; corner < 4u; corner++) {
            uint64_t from =
                ((image * args.side + 2u * y + corner / 2u) * args.side + 2u * x + corner % 2u) *
                args.channels;
            float value = in[from + channel];
            if ((corner > 0) && !(value > best)) continue;
            best = value;
            at = corner;
        }
        best += bias[channel];
        out[((image * wide + y + args.border) * wide + x + args.border) * args.channels + channel] =
            (best > 0.0f) ? best : 0.0f;
        winner[i] = (unsigned char)((best > 0.0f) ? at : 4u);
    }
}

GF_KERNEL(train_pool_back)
{
    const float *out_gradient = (const float *)args.out_gradient;
    const unsigned char *winner = (const unsigned char *)args.winner;
    float *in_gradient = (float *)args.in_gradient;
    uint64_t half = args.side / 2u, wide = half + 2u * args.border;
    uint64_t total = args.image_count * args.side * args.side * args.channels;
    for (uint64_t i = train_first(); i < total; i += train_stride()) {
        uint64_t channel = i % args.channels, x = i / args.channels % args.side;
        uint64_t y = i / args.channels / args.side % args.side,
                 image = i / args.channels / args.side / args.side;
        uint64_t from =
            ((image * wide + y / 2u + args.border) * wide + x / 2u + args.border) * args.channels +
            channel;
        uint32_t at = winner[((image * half + y / 2u) * half + x / 2u) * args.channels + channel];
        in_gradient[i] = (at == y % 2u * 2u + x % 2u) ? out_gradient[from] : 0.0f;
    }
}

GF_KERNEL(train_bias)
{
    float *rows = (float *)args.rows;
    const float *bias = (const float *)args.bias;
    for (uint64_t i = train_first(); i < args.row_count * args.width; i += train_stride()) {
        float value = rows[i] + bias[i % args.width];
        rows[i] = (args.relu && (value < 0.0f)) ? 0.0f : value; /* keeps a NaN */
    }
}

GF_KERNEL(train_relu_back)
{
    float *gradient = (float *)args.gradient;
    const float *out = (const float *)args.out;
    for (uint64_t i = train_first(); i < args.elem_count; i += train_stride())
        gradient[i] = (out[i] > 0.0f) ? gradient[i] : 0.0f;
}

/* The sum over the block's threads, the same for all of them. part[TRAIN_KERNEL_THREADS] is shared
 * and free again. */
GF_INLINE float train_block_sum(float *part, float own)
{
    float sum;
    part[threadIdx.x] = own;
    __syncthreads();
    for (uint32_t half = TRAIN_KERNEL_THREADS / 2u; half > 0; half /= 2u) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    sum = part[0];
    __syncthreads();
    return sum;
}

/* A block a column. */
GF_KERNEL(train_column_sum)
{
    __shared__ float part[TRAIN_KERNEL_THREADS];
    const float *rows = (const float *)args.rows;
    float *sum = (float *)args.sum;
    for (uint64_t column = blockIdx.x; column < args.width; column += gridDim.x) {
        float own = 0.0f;
        for (uint64_t row = threadIdx.x; row < args.row_count; row += TRAIN_KERNEL_THREADS)
            own += rows[row * args.width + column];
        own = train_block_sum(part, own);
        if (threadIdx.x == 0) sum[column] = args.adds ? sum[column] + own : own;
    }
}

/* A thread a row: there are ten classes. */
GF_KERNEL(train_softmax)
{
    for (uint64_t row = train_first(); row < args.row_count; row += train_stride()) {
        float *logits = (float *)args.logits + row * args.classes;
        uint64_t label = ((const unsigned char *)args.labels)[row], best = 0;
        for (uint64_t i = 1; i < args.classes; i++) best = (logits[i] > logits[best]) ? i : best;
        float top = logits[best], own = logits[label], total = 0.0f;
        for (uint64_t i = 0; i < args.classes; i++) {
            float value = expf(logits[i] - top);
            logits[i] = value;
            total += value;
        }
        ((float *)args.losses)[row] = (top - own) + logf(total);
        ((uint32_t *)args.hits)[row] = best == label;
        for (uint64_t i = 0; i < args.classes; i++)
            logits[i] = logits[i] * (args.scale / total) - ((i == label) ? args.scale : 0.0f);
    }
}
