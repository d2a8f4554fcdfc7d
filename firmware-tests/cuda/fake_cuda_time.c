/* The fake CUDA driver: how long work takes, by a clock that the test owns. Streams do not slow
 * each other down. */
#include "firmware-tests/cuda/fake_cuda_state.h"

static struct fake_cuda_clock clock_of;

void fake_clock_set(const struct fake_cuda_clock *clock)
{
    fake_run_all();
    clock_of = (clock != NULL) ? *clock : (struct fake_cuda_clock){0};
}

bool fake_has_clock(void)
{
    return clock_of.now_ns != NULL;
}

uint64_t fake_now_ns(void)
{
    return fake_has_clock() ? clock_of.now_ns(clock_of.arg) : 0;
}

void fake_clock_advance(uint64_t now_ns)
{
    if (now_ns > fake_now_ns()) clock_of.advance(clock_of.arg, now_ns);
}

uint64_t fake_work_ns(const struct work *work, uint64_t touched_bytes)
{
    double rate =
        (work->kind == WORK_KERNEL) ? clock_of.kernel_bytes_per_ns : clock_of.copy_bytes_per_ns;
    switch (work->kind) {
    case WORK_BUSY: return work->busy_ns;
    case WORK_COPY:
    case WORK_SET:
    case WORK_KERNEL: return clock_of.work_ns + (uint64_t)((double)touched_bytes / rate);
    default: return 0;
    }
}
