/* The gradients of the example's language model against central differences, in double precision:
 * what it computes with floats is the same text. */
#include "firmware-tests/support/suite.h"

#define float double
#define expf exp
#define logf log
#define sqrtf sqrt
#define tanhf tanh
#include "tools/example/transformer.h"
#undef float

static double values[TENSORS][VOCABULARY * WIDTH], gradients[TENSORS][VOCABULARY * WIDTH];
static unsigned declared[TENSORS];

static void ready(void *arg, unsigned first, unsigned count, double loss)
{
    assert_true((arg == NULL) && (loss > 0));
    for (unsigned t = first; t < first + count; t++) declared[t]++;
}

TEST(the_language_models_gradients_are_those_of_its_loss)
{
    double *weight[TENSORS];
    double *gradient[TENSORS];
    unsigned char text[BATCH][CONTEXT + 1];
    const unsigned char *rows[BATCH];
    uint64_t seed = 1;
    for (unsigned t = 0; t < TENSORS; t++) {
        assert_true(tensor_elems(t) <= LENGTH(values[t]));
        weight[t] = values[t];
        gradient[t] = gradients[t];
        for (unsigned i = 0; i < tensor_elems(t); i++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
            values[t][i] = 0.4 * ((double)(seed >> 40) / (1 << 24) - 0.5) +
                           ((tensor_elems(t) == WIDTH) ? 0.5 : 0);
        }
    }
    for (unsigned b = 0; b < BATCH; b++) {
        for (unsigned i = 0; i <= CONTEXT; i++)
            text[b][i] = (unsigned char)((b * 37 + i * i * 11) % VOCABULARY);
        rows[b] = text[b];
    }
    (void)model_run(weight, gradient, rows, 0.5, ready, NULL);
    for (unsigned t = 0; t < TENSORS; t++) assert_int_equal(declared[t], 1);
    for (unsigned t = 0; t < TENSORS; t++) { /* an element of each */
        const unsigned i = t * 7919 % tensor_elems(t);
        const double h = 1e-5;
        const double before = values[t][i];
        double up;
        double down;
        double expected;
        values[t][i] = before + h;
        up = model_run(weight, NULL, rows, 0, NULL, NULL);
        values[t][i] = before - h;
        down = model_run(weight, NULL, rows, 0, NULL, NULL);
        values[t][i] = before;
        expected = 0.5 * (up - down) / (2 * h);
        if (fabs(expected - gradients[t][i]) > 1e-9 + 1e-6 * fabs(expected))
            fail_msg("tensor %u, element %u: %.12g, differences say %.12g", t, i, gradients[t][i],
                     expected);
    }
}
