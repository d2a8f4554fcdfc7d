/* The kernels of gf-train's networks (train.cu): each takes one struct by value. Addresses are the
 * device's; layouts are those of train_layers.h. */
#ifndef GF_TRAIN_KERNELS_H
#define GF_TRAIN_KERNELS_H

#include <stdint.h>

/* In the order of launch()'s numbers; the kernel is gf_kernel_NAME and takes a struct
 * gf_NAME_args. */
/* clang-format off */
#define TRAIN_KERNELS(X) \
    X(train_gemm) X(train_unfold) X(train_fold) X(train_pool) X(train_pool_back) \
    X(train_bias) X(train_relu_back) X(train_column_sum) X(train_softmax)
/* clang-format on */

#define TRAIN_KERNEL_THREADS 256u /* of every block */
#define TRAIN_TILE 64u            /* rows and columns of a block's part of a product */

struct gf_train_gemm_args {
    uint64_t a, b, c, m, n, k;
    uint32_t a_flipped, b_flipped, adds; /* adds: to what c holds */
};
struct gf_train_unfold_args {
    uint64_t in, rows, image_count;
    uint32_t side, channels, kernel;
};
struct gf_train_fold_args {
    uint64_t rows, out, image_count;
    uint32_t side, channels, kernel;
};
struct gf_train_pool_args {
    uint64_t in, bias, out, winner, image_count;
    uint32_t side, channels, border;
};
struct gf_train_pool_back_args {
    uint64_t out_gradient, winner, in_gradient, image_count;
    uint32_t side, channels, border;
};
struct gf_train_bias_args {
    uint64_t rows, bias, row_count, width;
    uint32_t relu;
};
struct gf_train_relu_back_args {
    uint64_t gradient, out, elem_count;
};
struct gf_train_column_sum_args {
    uint64_t rows, sum, row_count, width;
    uint32_t adds;
};
/* losses[row_count] fp32, hits[row_count] u32: 1 where the label had the highest logit. */
struct gf_train_softmax_args {
    uint64_t logits, labels, losses, hits, row_count, classes;
    float scale;
};

#endif
