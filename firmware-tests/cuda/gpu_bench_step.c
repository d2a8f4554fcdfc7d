/* A step's time on a GPU, one rank, so that nothing but the way to the host and back is in it:
 * alone, behind a backward pass that takes about as long, and beside it. */
#include "firmware-tests/support/suite.h"
#include "lib/context.h"
#include "firmware-tests/cuda/gpu_program.h"
#include "firmware-tests/support/world.h"

#define TENSORS 16u
#define ROUNDS 7u

static struct gf_tensor tensors[TENSORS];
static uint32_t repeats; /* of a pass over a gradient, what stands for computing it */

static void compute(gf_context *gf, uint32_t tensor)
{
    struct gf_queue stream = {.gpu = gf->gpu, .stream = 0};
    gf_mem gradient = gf_gradient(gf, tensor);
    for (uint32_t i = 0; i < repeats; i++)
        assert_int_equal(gf->ops->cast(&stream, gradient, GF_TYPE_F32, gradient, GF_TYPE_F32,
                                       tensors[tensor].elem_count, 1.0f, 0, NULL),
                         GF_OK);
}

static void drain(gf_context *gf)
{
    struct gf_queue stream = {.gpu = gf->gpu, .stream = 0};
    while (gf->gpu->driver->finished(&stream) == GF_AGAIN) {
    }
}

/* Nothing of the host's: the gradient is on the device, and is computed there. */
static void *nowhere(struct world *w, uint32_t rank, uint32_t tensor)
{
    return NULL;
}

static void fill_nothing(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
}

static bool computes; /* inside of the step, a tensor at a time */
static void store(struct world *w, uint32_t rank, uint32_t tensor, const void *gradient)
{
    if (computes) compute(w->ranks[rank].gf, tensor);
}

static double step_run(struct world *w, bool before, bool inside)
{
    const struct world_step step = {.fill = fill_nothing};
    gf_context *gf = w->ranks[0].gf;
    uint64_t begin_ns = gf_clock_monotonic.now_ns(NULL);
    for (uint32_t i = 0; before && (i < TENSORS); i++) compute(gf, i);
    if (before) drain(gf);
    computes = inside;
    world_step_run(w, &step);
    world_expect(w, GF_OK);
    return (double)(gf_clock_monotonic.now_ns(NULL) - begin_ns) * 1e-6;
}

void gpu_steps_bench(uint64_t bytes)
{
    static const struct world_device appliance = {.stream = 0, .gradient = nowhere, .store = store};
    struct world_setup setup = {.world = 1,
                                .tensors = tensors,
                                .tensor_count = TENSORS,
                                .device = &appliance,
                                .real_time = !gpu_program.is_fake};
    uint32_t rounds = gpu_program.is_fake ? 1 : ROUNDS;
    double took[3][ROUNDS];
    double computing;
    uint64_t begin_ns;
    struct world w;
    for (uint32_t i = 0; i < TENSORS; i++)
        tensors[i] = (struct gf_tensor){.name = "t", .elem_count = bytes / TENSORS / 4};
    strcpy(setup.config.device.driver, "cuda");
    setup.config.exchange.timeout_ns = UINT64_C(60000000000);
    if (gpu_program.library != NULL)
        (void)snprintf(setup.config.device.library, sizeof setup.config.device.library, "%s",
                       gpu_program.library);
    world_open(&w, &setup);
    repeats = 1;
    (void)step_run(&w, true, false);
    computing = step_run(&w, true, false) - step_run(&w, false, false);
    if (!gpu_program.is_fake && (computing > 0))
        repeats = (uint32_t)(step_run(&w, false, false) / computing) + 1;
    for (uint32_t round = 0; round < rounds; round++) {
        took[0][round] = step_run(&w, false, false);
        took[1][round] = step_run(&w, true, false);
        took[2][round] = step_run(&w, false, true);
    }
    begin_ns = gf_clock_monotonic.now_ns(NULL);
    for (uint32_t i = 0; i < TENSORS; i++) compute(w.ranks[0].gf, i);
    drain(w.ranks[0].gf);
    computing = (double)(gf_clock_monotonic.now_ns(NULL) - begin_ns) * 1e-6;
    for (uint32_t i = 0; i < 3; i++) qsort(took[i], rounds, sizeof took[i][0], gpu_compare);
    double alone = took[0][rounds / 2];
    double after = took[1][rounds / 2];
    double beside = took[2][rounds / 2];
    double hidden = (alone > 0) ? (after - beside) / alone : 0;
    printf("  a step of %u tensors, fp32, 1 rank, through host memory: %.2f ms, %.1f GB/s to the "
           "host and as much back\n"
           "  with its backward pass: %.2f ms one after the other, %.2f ms beside each other: %.0f "
           "%% of the step is "
           "hidden, goal 90 %%\n"
           "  a backward pass of %.2f ms by itself\n",
           TENSORS, alone, (double)bytes * 1e-6 / alone, after, beside, 100 * hidden, computing);
    gpu_json_row("\"op\":\"step\",\"bytes\":%llu,\"backward_ms\":%.3f,\"alone_ms\":%.3f,\"after_"
                 "backward_ms\":%.3f,"
                 "\"beside_backward_ms\":%.3f,\"hidden\":%.3f",
                 (unsigned long long)bytes, computing, alone, after, beside, hidden);
    world_close(&w);
}
