/* See late_gpu.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/cuda/late_gpu.h"
#include "firmware-tests/cuda/late_state.h"

#include <sys/mman.h>

#define SPARE_BYTES 4096u /* a model may need nothing of a device */

uint32_t late_gpu_most = 3;

static size_t state_bytes(const struct gf_gpu_setup *setup)
{
    return sizeof(struct late);
}

static gf_status late_open(const struct gf_gpu_setup *setup, void *state, struct gf_gpu **gpu_out,
                           struct gf_fault *fault_out)
{
    struct late *late = state;
    assert_true(setup->events_max <= EVENTS_MAX);
    memset(late, 0, sizeof *late);
    late->gpu = (struct gf_gpu){.driver = &late_gpu, .ops = &late_ops, .multiprocessors = 4, .fault.peer = GF_RANK_NONE};
    late->memory_bytes = setup->device_bytes;
    late->memory = mmap(NULL, setup->device_bytes + SPARE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    late->work = calloc(WORK_MAX, sizeof *late->work);
    late->random = 1;
    assert_true(late->memory != MAP_FAILED); /* zeroes, most of which nobody touches */
    assert_non_null(late->work);
    *gpu_out = &late->gpu;
    return GF_OK;
}

static void late_close(struct gf_gpu *gpu)
{
    struct late *late = late_of(gpu);
    assert_null(late->registered); /* what was registered is given back first */
    (void)munmap(late->memory, late->memory_bytes + SPARE_BYTES);
    free(late->work);
}

static gf_mem late_arena(struct gf_gpu *gpu) { return (gf_mem)(uintptr_t)late_of(gpu)->memory; }

static gf_status late_register(struct gf_gpu *gpu, void *base, size_t size_bytes)
{
    struct late *late = late_of(gpu);
    assert_null(late->registered);
    late->registered = base;
    late->registered_bytes = size_bytes;
    return GF_OK;
}

static gf_status late_unregister(struct gf_gpu *gpu, void *base)
{
    struct late *late = late_of(gpu);
    assert_ptr_equal(late->registered, base);
    late_gpu_drain(gpu);
    return (late->registered = NULL) ? GF_AGAIN : GF_OK;
}

static gf_queue_handle late_stream(struct gf_gpu *gpu, gf_stream which)
{
    return ((gpu != NULL) && (which < GF_STREAM_COUNT)) ? STREAM : 0;
}

void late_expect_reachable(struct late *late, gf_mem at, uint64_t bytes)
{
    const char *from = (const char *)(uintptr_t)at;
    if ((at == 0) || (bytes == 0)) return;
    if ((from >= late->memory) && (from + bytes <= late->memory + late->memory_bytes)) return;
    assert_non_null(late->registered);
    assert_true((from >= late->registered) && (from + bytes <= late->registered + late->registered_bytes));
}

static struct late_work *late_work_at(struct late *late, uint64_t index)
{
    return &late->work[(index - late->first) % WORK_MAX];
}

struct late_work *late_work_new(struct gf_queue *queue, late_kind kind)
{
    struct late *late = late_of(queue->gpu);
    if (late->done == late->queued) late->first = late->queued; /* the same few pages again */
    struct late_work *work = late_work_at(late, late->queued);
    assert_int_equal(queue->stream, STREAM);
    assert_true(late->queued - late->done < WORK_MAX);
    late->queued++;
    *work = (struct late_work){.kind = kind};
    return work;
}

static void work_some(struct late *late, uint64_t most)
{
    for (; (late->done < late->queued) && (most > 0); most--) late_work_do(late, late_work_at(late, late->done++));
}

/* Each look lets the device do a little, sometimes nothing. */
static void time_passes(struct late *late)
{
    late->random = late->random * 1664525u + 1013904223u;
    work_some(late, (late->random >> 16) % (late_gpu_most + 1u));
}

static gf_status late_mark(struct gf_queue *queue, uint32_t event)
{
    struct late *late = late_of(queue->gpu);
    assert_true(event < EVENTS_MAX);
    late->marks[event] = late->queued;
    return GF_OK;
}

/* All is of one stream. */
static gf_status late_follow(struct gf_queue *queue, uint32_t event)
{
    assert_true(event < EVENTS_MAX);
    return GF_OK;
}

static gf_status late_reached(struct gf_gpu *gpu, uint32_t event)
{
    struct late *late = late_of(gpu);
    if (late->done < late->marks[event]) time_passes(late);
    return (late->done < late->marks[event]) ? GF_AGAIN : GF_OK;
}

static gf_status late_finished(struct gf_queue *queue)
{
    struct late *late = late_of(queue->gpu);
    time_passes(late);
    return (late->done < late->queued) ? GF_AGAIN : GF_OK;
}

/* Other streams do not exist here: a test writes gradients itself, after late_gpu_drain(). */
static gf_status late_order(struct gf_queue *queue, gf_queue_handle other)
{
    assert_int_equal(other, 0);
    return GF_OK;
}

void late_gpu_drain(struct gf_gpu *gpu) { work_some(late_of(gpu), UINT64_MAX); }
uint64_t late_gpu_done(const struct gf_gpu *gpu) { return late_of(gpu)->done; }
uint32_t late_gpu_waiting(const struct gf_gpu *gpu)
{
    return (uint32_t)(late_of(gpu)->queued - late_of(gpu)->done);
}

const struct gf_gpu_driver late_gpu = {
    .name = "cuda", /* it stands for one; no other name is a device's */
    .state_bytes = state_bytes,
    .open = late_open,
    .close = late_close,
    .arena = late_arena,
    .host_register = late_register,
    .host_unregister = late_unregister,
    .stream = late_stream,
    .copy = late_copy,
    .zero = late_zero,
    .lead = late_order,
    .mark = late_mark,
    .reached = late_reached,
    .follow = late_follow,
    .finished = late_finished,
};
