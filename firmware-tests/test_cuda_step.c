/* Whole contexts on the real CUDA driver, over a CUDA library without a GPU: every step ends bit by bit where that of
 * the host ends, whatever is sent how; and each kind of wait is needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "context.h"
#include "cuda_fixture.h"
#include "ops_cuda.h"
#include "state_world.h"

#define STEPS 4u /* the first two of a sparse run are dense; the last meets a value that is not finite */
#define SPACE_ELEMS 1024u

static struct cuda_fixture fixture;
static const uint32_t image = FAKE_CUDA_FATBIN;
/* The appliance's: what its backward pass computes, until its stream has brought it to the gradients. */
static _Alignas(4096) float computed[STATE_RANKS_MAX][STATE_TENSORS][SPACE_ELEMS];

/* ---- the driver, with the kernels of any build, and without one kind of wait ---- */

typedef enum lack { LACKS_NOTHING, LACKS_WAIT_FOR, LACKS_LEAD, LACKS_REACHED, LACKS_SETTLED } lack;
static lack lacking;
static struct gf_gpu_driver driver;

static struct gf_gpu_setup with_kernels(const struct gf_gpu_setup *setup)
{
    struct gf_gpu_setup whole = *setup;
    whole.image = &image;
    whole.kernels = gf_cuda_kernels;
    whole.kernel_count = gf_cuda_kernel_count;
    whole.ops = &gf_ops_cuda;
    return whole;
}

static size_t whole_state_bytes(const struct gf_gpu_setup *setup)
{
    const struct gf_gpu_setup whole = with_kernels(setup);
    return gf_gpu_cuda.state_bytes(&whole);
}

static gf_status whole_open(const struct gf_gpu_setup *setup, void *state, struct gf_gpu **gpu_out, struct gf_fault *fault_out)
{
    const struct gf_gpu_setup whole = with_kernels(setup);
    gf_status status = gf_gpu_cuda.open(&whole, state, gpu_out, fault_out);
    if (status == GF_OK) (*gpu_out)->driver = &driver;
    return status;
}

static gf_status wait_for(struct gf_queue *queue, gf_queue_handle other)
{
    return (lacking == LACKS_WAIT_FOR) ? GF_OK : gf_gpu_cuda.wait_for(queue, other);
}

static gf_status lead(struct gf_queue *queue, gf_queue_handle other)
{
    return (lacking == LACKS_LEAD) ? GF_OK : gf_gpu_cuda.lead(queue, other);
}

static gf_status reached(struct gf_gpu *gpu, uint32_t event)
{
    return (lacking == LACKS_REACHED) ? GF_OK : gf_gpu_cuda.reached(gpu, event);
}

static gf_status settled(struct gf_queue *queue)
{
    return (lacking == LACKS_SETTLED) ? GF_OK : gf_gpu_cuda.settled(queue);
}

/* ---- the appliance: it computes on the host, and its stream, the default one, brings gradients to the device ---- */

static void *gradient_of(struct world *w, uint32_t rank, uint32_t tensor)
{
    assert_true(w->ranks[rank].tensors[tensor].elem_count <= SPACE_ELEMS);
    return computed[rank][tensor];
}

static void copy_on(struct world *w, uint32_t rank, gf_queue_handle stream, gf_mem dst, gf_mem src, uint64_t bytes)
{
    struct gf_queue queue = {w->ranks[rank].gf->gpu, stream};
    assert_int_equal(gf_gpu_cuda.copy(&queue, dst, src, bytes), GF_OK);
}

static void gradient_store(struct world *w, uint32_t rank, uint32_t tensor, const void *gradient)
{
    copy_on(w, rank, 0, gf_gradient(w->ranks[rank].gf, tensor), (gf_mem)(uintptr_t)gradient,
            w->ranks[rank].tensors[tensor].elem_count * sizeof(float));
}

static const struct world_device appliance = {.stream = 0, .gradient = gradient_of, .store = gradient_store};

static struct world_setup setup_on_cuda(const struct state_run *run)
{
    struct world_setup setup = state_setup_of(run);
    setup.gpu = &driver;
    setup.device = &appliance;
    strcpy(setup.config.device.driver, "cuda");
    strcpy(setup.config.device.library, fixture.library);
    return setup;
}

/* Both begin with the same weights. */
static void worlds_open(struct world *host, struct world *cuda, const struct state_run *run)
{
    const struct world_setup on_host = state_setup_of(run), on_cuda = setup_on_cuda(run);
    struct state_save save;
    world_open(host, &on_host);
    world_open(cuda, &on_cuda);
    assert_int_equal(gf_gpu_cuda.host_register(cuda->ranks[0].gf->gpu, computed, sizeof computed), GF_OK);
    state_weights_begin(host);
    save = state_save_take(host);
    state_save_load(cuda, &save);
    state_save_free(&save);
}

static void worlds_close(struct world *host, struct world *cuda)
{
    gf_gpu_cuda.host_unregister(cuda->ranks[0].gf->gpu, computed);
    world_close(host);
    world_close(cuda);
}

static bool are_same(struct world *a, struct world *b)
{
    struct state_save left = state_save_take(a), right = state_save_take(b);
    bool same = left.bytes == right.bytes;
    for (uint32_t rank = 0; same && (rank < a->world); rank++)
        same = memcmp(left.data[rank], right.data[rank], left.bytes) == 0;
    state_save_free(&left);
    state_save_free(&right);
    return same;
}

static void halves_expect_equal(struct world *host, struct world *cuda)
{
    for (uint32_t rank = 0; rank < host->world; rank++) {
        gf_context *gf = cuda->ranks[rank].gf;
        struct gf_queue queue = {gf->gpu, gf_gpu_cuda.stream(gf->gpu)};
        for (uint32_t tensor = 0; tensor < STATE_TENSORS; tensor++) {
            gf_mem half = gf_weight_half(host->ranks[rank].gf, tensor);
            uint64_t bytes = state_tensors[tensor].elem_count * sizeof(uint16_t);
            if (half == 0) continue;
            copy_on(cuda, rank, queue.stream, (gf_mem)(uintptr_t)computed[rank][tensor], gf_weight_half(gf, tensor), bytes);
            while (gf_gpu_cuda.settled(&queue) == GF_AGAIN) {}
            assert_memory_equal((const void *)(uintptr_t)half, computed[rank][tensor], bytes);
        }
    }
}

static void begin(uint32_t seed)
{
    char text[64];
    (void)snprintf(text, sizeof text, "GF_FAKE_CUDA_SEED=%u", seed);
    cuda_fixture_init(&fixture, text, NULL);
    driver = gf_gpu_cuda;
    driver.state_bytes = whole_state_bytes;
    driver.open = whole_open;
    driver.wait_for = wait_for;
    driver.lead = lead;
    driver.reached = reached;
    driver.settled = settled;
    lacking = LACKS_NOTHING;
}

static void a_run_on_cuda_ends_where_it_ends_on_the_host(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < STATE_RUNS; i++) {
        struct world host, cuda;
        print_message("  %s\n", state_runs[i].name);
        begin(i);
        worlds_open(&host, &cuda, &state_runs[i]);
        for (uint32_t step = 1; step <= STEPS; step++) {
            state_step_run(&host, step, state_fill);
            state_step_run(&cuda, step, state_fill);
            if (!are_same(&host, &cuda)) fail_msg("%s: step %u differs", state_runs[i].name, step);
        }
        halves_expect_equal(&host, &cuda);
        assert_true(fixture.fake->live().calls > 100); /* it was the device that did it */
        worlds_close(&host, &cuda);
        cuda_fixture_clean(&fixture);
    }
}

static const char *lack_name(lack lack)
{
    static const char *const names[] = {"nothing", "wait_for()", "lead()", "reached()", "settled()"};
    return names[lack];
}

/* The driver's calls that order, one after the other, do nothing: work that met is told of, or values are wrong. */
static void a_wait_that_is_left_out_is_found(void **state)
{
    (void)state;
    for (lack lack = LACKS_WAIT_FOR; lack <= LACKS_SETTLED; lack++) {
        struct world host, cuda;
        bool same;
        begin(2);
        worlds_open(&host, &cuda, &state_runs[0]);
        lacking = lack;
        for (uint32_t step = 1; step <= 2; step++) { /* saving between them would wait for everything */
            state_step_run(&host, step, state_fill_whole);
            state_step_run(&cuda, step, state_fill_whole);
        }
        same = are_same(&host, &cuda);
        print_message("  without %s: %s\n", lack_name(lack),
                      fixture.fake->trouble() ? fixture.fake->trouble() : same ? "nothing" : "other values");
        assert_true(!same || (fixture.fake->trouble() != NULL));
        lacking = LACKS_NOTHING;
        worlds_close(&host, &cuda);
        fixture.fake->reset();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_on_cuda_ends_where_it_ends_on_the_host),
        cmocka_unit_test(a_wait_that_is_left_out_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
