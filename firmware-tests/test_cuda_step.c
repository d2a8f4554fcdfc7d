/* Whole contexts on the real CUDA driver, over a CUDA library without a GPU, through host memory: every step ends bit
 * by bit where that of the host ends, whatever is sent how; and each kind of wait is needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cuda_world.h"

#define STEPS 4u /* the first two of a sparse run are dense; the last meets a value that is not finite */

static struct cuda_world *const both = &cuda_world;

static void open_of(const struct state_run *run)
{
    const struct world_setup setup = state_setup_of(run);
    cuda_world_open(&setup);
}

static void a_run_on_cuda_ends_where_it_ends_on_the_host(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < STATE_RUNS; i++) {
        print_message("  %s\n", state_runs[i].name);
        cuda_world_begin(i, NULL);
        open_of(&state_runs[i]);
        for (uint32_t step = 1; step <= STEPS; step++) {
            state_step_run(&both->host, step, state_fill);
            state_step_run(&both->cuda, step, state_fill);
            if (!cuda_world_same()) fail_msg("%s: step %u differs", state_runs[i].name, step);
        }
        cuda_world_halves_expect_equal();
        assert_true(both->fixture.fake->live().calls > 100); /* it was the device that did it */
        assert_int_equal(world_stats(&both->cuda, 0).path, GF_PATH_STAGED);
        cuda_world_close();
        cuda_fixture_clean(&both->fixture);
    }
}

/* The driver's calls that order, one after the other, do nothing: work that met is told of, or values are wrong. */
static void a_wait_that_is_left_out_is_found(void **state)
{
    (void)state;
    for (cuda_lack lack = LACKS_WAIT_FOR; lack <= LACKS_SETTLED; lack++) {
        bool same;
        cuda_world_begin(2, NULL);
        open_of(&state_runs[0]);
        both->lack = lack;
        for (uint32_t step = 1; step <= 2; step++) { /* saving between them would wait for everything */
            state_step_run(&both->host, step, state_fill_whole);
            state_step_run(&both->cuda, step, state_fill_whole);
        }
        same = cuda_world_same();
        print_message("  without %s: %s\n", cuda_lack_name(lack),
                      both->fixture.fake->trouble() ? both->fixture.fake->trouble() : same ? "nothing" : "other values");
        assert_true(!same || (both->fixture.fake->trouble() != NULL));
        both->lack = LACKS_NOTHING;
        cuda_world_close();
        both->fixture.fake->reset();
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
