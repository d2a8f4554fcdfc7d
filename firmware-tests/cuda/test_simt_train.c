/* The kernels of gf-train's networks on the SIMT emulator: each layer, forward and backward, gives
 * what train_layers.c gives on the host, at small and odd shapes. Sums are added in another order
 * there: these are near, the rest is equal.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "tools/train/train_kernels.h"
#include "tools/train/train_layers.h"
#include "firmware-tests/cuda/simt.h"

#define ROOM 20000u
#define BLOCKS 3u

static float a[ROOM], b[ROOM], want[ROOM], got[ROOM], bias[ROOM], want_bias[ROOM], got_bias[ROOM];
static uint8_t want_winner[ROOM], got_winner[ROOM];
static uint32_t random_state = 1;

#define KERNEL_EXTERN(name) extern const struct gf_simt_kernel gf_simt_kernel_##name;
TRAIN_KERNELS(KERNEL_EXTERN)

static int kernels_add(void **state)
{
#define KERNEL_ADD(name) gf_simt_add(&gf_simt_kernel_##name);
    TRAIN_KERNELS(KERNEL_ADD)
    return 0;
}

static uint64_t at(const void *address)
{
    return (uint64_t)(uintptr_t)address;
}

/* Multiples of 1/4 between -2 and 2, so that there are ties and zeroes. */
static void fill(float *values, size_t count)
{
    assert_true(count <= ROOM);
    for (size_t i = 0; i < count; i++) {
        random_state = random_state * 1664525u + 1013904223u;
        values[i] = (float)(int32_t)(random_state >> 16 & 15u) * 0.25f - 2.0f;
    }
}

static void launch(const char *name, void *args)
{
    if (gf_simt_launch(name, BLOCKS, TRAIN_KERNEL_THREADS, 0, &args) != 0)
        fail_msg("%s", gf_simt_error());
}

static void near(const float *x, const float *y, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(x[i] - y[i]) <= 1e-5f * (1.0f + fabsf(x[i]))))
            fail_msg("[%zu]: %g, the host has %g", i, y[i], x[i]);
}

TEST(products_are_the_hosts)
{
    static const uint32_t shapes[][3] = {
        {1, 1, 1}, {3, 10, 17}, {65, 66, 15}, {64, 5, 33}, {70, 130, 16}};
    for (uint32_t i = 0; i < LENGTH(shapes) * 8; i++) {
        const uint32_t m = shapes[i / 8][0];
        const uint32_t n = shapes[i / 8][1];
        const uint32_t k = shapes[i / 8][2];
        struct gf_train_gemm_args args = {at(a), at(b), at(got),    m,         n,
                                          k,     i & 1, i >> 1 & 1, i >> 2 & 1};
        fill(a, m * k);
        fill(b, k * n);
        fill(want, m * n);
        memcpy(got, want, m * n * sizeof *got);
        layers_host.gemm(NULL, i & 1, i >> 1 & 1, m, n, k, a, b, args.adds, want);
        launch("gf_kernel_train_gemm", &args);
        near(want, got, m * n);
    }
}

static const struct shape {
    uint32_t images, side, channels, kernel;
} shapes[] = {{1, 2, 1, 1}, {2, 4, 3, 5}, {1, 6, 5, 3}, {3, 4, 1, 5}};

TEST(a_convolution_is_unfolded_and_folded_as_on_the_host)
{
    for (size_t i = 0; i < LENGTH(shapes); i++) {
        const struct shape s = shapes[i];
        size_t wide = s.images * layer_bordered_elems(s.side, s.channels, s.kernel);
        size_t rows = (size_t)s.images * s.side * s.side * s.kernel * s.kernel * s.channels;
        struct gf_train_unfold_args unfold = {at(a),  at(got),    s.images,
                                              s.side, s.channels, s.kernel};
        struct gf_train_fold_args fold = {at(b), at(got), s.images, s.side, s.channels, s.kernel};
        fill(a, wide);
        layers_host.unfold(NULL, a, s.images, s.side, s.channels, s.kernel, want);
        launch("gf_kernel_train_unfold", &unfold);
        assert_memory_equal(want, got, rows * sizeof *got);
        fill(b, rows);
        layers_host.fold(NULL, b, s.images, s.side, s.channels, s.kernel, want);
        launch("gf_kernel_train_fold", &fold);
        near(want, got, wide);
    }
}

TEST(pooling_takes_and_gives_as_on_the_host)
{
    for (size_t i = 0; i < LENGTH(shapes) * 2; i++) {
        const struct shape s = shapes[i / 2];
        const uint32_t border = (uint32_t)(i % 2) * 2;
        const uint32_t half = s.side / 2;
        const uint32_t wide = half + 2 * border;
        size_t in = (size_t)s.images * s.side * s.side * s.channels;
        size_t out = (size_t)s.images * wide * wide * s.channels;
        size_t points = (size_t)s.images * s.side * s.side;
        struct gf_train_pool_args pool = {at(a),    at(bias), at(got),    at(got_winner),
                                          s.images, s.side,   s.channels, border};
        struct gf_train_pool_back_args back = {at(b),  at(got_winner), at(got), s.images,
                                               s.side, s.channels,     border};
        struct gf_train_column_sum_args sum = {at(got), at(got_bias), points, s.channels, i % 2};
        fill(a, in);
        fill(bias, s.channels);
        fill(want, out);
        memcpy(got, want, out * sizeof *got); /* the border is left alone */
        layers_host.relu_pool(NULL, a, bias, s.images, s.side, s.channels, border, want,
                              want_winner);
        launch("gf_kernel_train_pool", &pool);
        assert_memory_equal(want, got, out * sizeof *got);
        assert_memory_equal(want_winner, got_winner, (size_t)s.images * half * half * s.channels);

        fill(b, out);
        fill(want_bias, s.channels);
        memcpy(got_bias, want_bias, s.channels * sizeof *got_bias);
        layers_host.relu_pool_back(NULL, b, want_winner, s.images, s.side, s.channels, border, want,
                                   sum.adds, want_bias);
        launch("gf_kernel_train_pool_back", &back);
        assert_memory_equal(want, got, in * sizeof *got);
        launch("gf_kernel_train_column_sum", &sum);
        near(want_bias, got_bias, s.channels);
    }
}

TEST(rows_of_full_layers_are_the_hosts)
{
    static const uint32_t sizes[][2] = {{1, 1}, {3, 10}, {300, 7}, {17, 33}};
    for (uint32_t i = 0; i < LENGTH(sizes) * 2; i++) {
        const uint32_t rows = sizes[i / 2][0];
        const uint32_t width = sizes[i / 2][1];
        const uint32_t elems = rows * width;
        struct gf_train_bias_args add = {at(got), at(bias), rows, width, i % 2};
        struct gf_train_relu_back_args back = {at(got), at(b), elems};
        struct gf_train_column_sum_args sum = {at(a), at(got_bias), rows, width, i % 2};
        fill(want, elems);
        fill(bias, width);
        memcpy(got, want, elems * sizeof *got);
        layers_host.bias(NULL, want, bias, rows, width, i % 2);
        launch("gf_kernel_train_bias", &add);
        for (uint32_t e = 0; e < elems; e++) assert_true(want[e] == got[e]);

        fill(b, elems);
        layers_host.relu_back(NULL, want, b, elems);
        launch("gf_kernel_train_relu_back", &back);
        for (uint32_t e = 0; e < elems; e++) assert_true(want[e] == got[e]);

        fill(a, elems);
        fill(got_bias, width);
        layers_host.column_sum(NULL, a, rows, width, want_bias);
        for (uint32_t e = 0; (i % 2 == 1) && (e < width); e++) want_bias[e] += got_bias[e];
        launch("gf_kernel_train_column_sum", &sum);
        near(want_bias, got_bias, width);
    }
}

TEST(the_loss_is_the_hosts)
{
    static const uint32_t row_counts[] = {1, 7, 300};
    static uint32_t hits[300];
    static float losses[300];
    for (size_t i = 0; i < LENGTH(row_counts); i++) {
        const uint32_t rows = row_counts[i];
        struct gf_train_softmax_args args = {at(got), at(got_winner), at(losses), at(hits), rows,
                                             10,      0.125f};
        uint32_t want_hits;
        uint32_t got_hits = 0;
        double loss = 0.0;
        double want_loss;
        fill(want, rows * 10);
        memcpy(got, want, rows * 10 * sizeof *got);
        for (uint32_t row = 0; row < rows; row++) got_winner[row] = (uint8_t)(row * 7 % 10);
        want_loss = layer_softmax_loss(want, got_winner, rows, 10, 0.125f, &want_hits);
        launch("gf_kernel_train_softmax", &args);
        near(want, got, rows * 10);
        for (uint32_t row = 0; row < rows; row++) {
            loss += (double)losses[row];
            got_hits += hits[row];
        }
        assert_int_equal(want_hits, got_hits);
        assert_true(fabs(loss - want_loss) <= 1e-5 * want_loss);
    }
}

TEST_AROUND(kernels_add, NULL)
