/* See late_gpu.h. Each op is written down as it was called, and done later by the host's. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/cuda/late_gpu.h"
#include "firmware-tests/support/ops_pair.h"
#include "lib/core/arena.h"
#include "ops/ops.h"

#include <sys/mman.h>

#define WORK_MAX 65536u
#define EVENTS_MAX 256u
#define STREAM 0x57u
#define SOURCES_MAX 64u
#define ARGS_MAX 1200u
#define SPARE_BYTES 4096u /* a model may need nothing of a device */

/* One call: what is done later, with what it was given. */
struct late_work {
    gf_status (*run)(struct gf_queue *host, const void *args);
    _Alignas(8) unsigned char args[ARGS_MAX];
};

struct late {
    struct gf_gpu gpu;
    char *memory;
    size_t memory_bytes;
    struct late_work *work; /* [WORK_MAX] a ring */
    uint64_t queued, done;
    uint64_t first; /* the one that lies at work[0] */
    uint64_t marks[EVENTS_MAX];
    uint32_t random;
    gf_mem registered; /* what it reaches beside its own memory; 0: nothing */
    size_t registered_bytes;
};

#define WORK_BYTES (WORK_MAX * sizeof(struct late_work))

static inline struct late *late_of(const struct gf_gpu *gpu)
{
    return (struct late *)(uintptr_t)gpu;
}

uint32_t late_gpu_most = 3;

/* ---- its ops ---- */

static struct late_work *late_work_at(struct late *late, uint64_t index)
{
    return &late->work[(index - late->first) % WORK_MAX];
}

static void reaches(const struct gf_queue *queue, gf_mem at, uint64_t bytes)
{
    const struct late *late = late_of(queue->gpu);
    gf_mem own = (gf_mem)(uintptr_t)late->memory;
    if ((at == 0) || ((at >= own) && (at + bytes <= own + late->memory_bytes))) return;
    assert_true((at >= late->registered) &&
                (at + bytes <= late->registered + late->registered_bytes));
}

static gf_status late_put(struct gf_queue *queue,
                          gf_status (*run)(struct gf_queue *host, const void *args),
                          const void *args, size_t args_bytes)
{
    struct late *late = late_of(queue->gpu);
    struct late_work *work;
    assert_int_equal(queue->stream, STREAM);
    assert_true((late->queued - late->done < WORK_MAX) && (args_bytes <= ARGS_MAX));
    if (late->done == late->queued) late->first = late->queued; /* the same few pages again */
    work = late_work_at(late, late->queued++);
    work->run = run;
    memcpy(work->args, args, args_bytes);
    return GF_OK;
}

/* LATE_AS(name, call, ARGS, looks): late_NAME() looks and keeps its ARGS; `call` is made with them
 * when the device gets there. ARGS(V, P) lists them: V(type, name), and P(type, name) where what a
 * given pointer leads to is kept. */
#define KEPT(type, name) type name;
#define VALUE(type, name) , type name
#define POINTER(type, name) , const type *name
#define KEEP_VALUE(type, name) .name = name,
#define KEEP_POINTER(type, name) .name = *name,
#define GIVE_VALUE(type, name) , args->name
#define GIVE_POINTER(type, name) , &args->name
#define LATE_AS(op, call, ARGS, looks)                                      \
    struct op##_args {                                                      \
        ARGS(KEPT, KEPT)                                                    \
    };                                                                      \
    static gf_status op##_run(struct gf_queue *host, const void *kept)      \
    {                                                                       \
        const struct op##_args *args = kept;                                \
        return call;                                                        \
    }                                                                       \
    static gf_status late_##op(struct gf_queue *queue ARGS(VALUE, POINTER)) \
    {                                                                       \
        const struct op##_args args = {ARGS(KEEP_VALUE, KEEP_POINTER)};     \
        looks;                                                              \
        return late_put(queue, op##_run, &args, sizeof args);               \
    }
#define LATE(op, ops, ARGS, looks) \
    LATE_AS(op, (ops)->op(host ARGS(GIVE_VALUE, GIVE_POINTER)), ARGS, looks)
#define ELEMENT gf_element_ops_best()
#define REACH(at, type) reaches(queue, at, elem_count *gf_type_size_bytes(type))
#define FIRST(at) reaches(queue, at, 1) /* how much of it is not known here */

/* clang-format off */
#define COPY(V, P) V(gf_mem, dst) V(gf_mem, src) V(uint64_t, size_bytes)
#define ZERO(V, P) V(gf_mem, dst) V(uint64_t, size_bytes)
#define CAST(V, P) \
    V(gf_mem, dst) V(gf_type, dst_type) V(gf_mem, src) V(gf_type, src_type) \
    V(uint64_t, elem_count) V(float, scale) V(uint64_t, base) V(struct gf_check *, check)
#define SUM(V, P) \
    V(gf_mem, dst) V(gf_mem, src) V(gf_type, type) V(uint64_t, elem_count) V(uint64_t, base) \
    V(struct gf_check *, check)
#define CHECK(V, P) \
    V(gf_mem, src) V(gf_type, type) V(uint64_t, elem_count) V(uint64_t, base) \
    V(struct gf_check *, check)
#define SCORE(V, P) \
    V(gf_mem, scores) V(gf_mem, src) V(uint64_t, elem_count) V(uint64_t, chunk_elems) \
    V(uint64_t, segment_elems)
#define CAST_CHUNKS(V, P) \
    V(gf_mem, dst) V(gf_type, dst_type) V(gf_mem, src) V(gf_type, src_type) \
    P(struct gf_chunks, chunks) V(float, scale) V(uint64_t, base) V(struct gf_check *, check)
#define ACCUMULATE(V, P) P(struct gf_accumulate, all) V(uint64_t, elem_count)
#define ACCUMULATE_CHUNKS(V, P) P(struct gf_accumulate, all) P(struct gf_chunks, chunks)
#define ZERO_CHUNKS(V, P) V(gf_mem, dst) V(gf_type, type) P(struct gf_chunks, chunks)
#define UPDATE(V, P) P(struct gf_update, update) V(uint64_t, elem_count)
#define UPDATE_CHUNKS(V, P) P(struct gf_update, update) P(struct gf_chunks, chunks)
#define ADAM(V, P) P(struct gf_adam, adam) V(uint64_t, elem_count)
/* clang-format on */
LATE(copy, ELEMENT, COPY, (reaches(queue, dst, size_bytes), reaches(queue, src, size_bytes)))
LATE(zero, ELEMENT, ZERO, reaches(queue, dst, size_bytes))
LATE(cast, ELEMENT, CAST, (REACH(dst, dst_type), REACH(src, src_type)))
LATE(sum, ELEMENT, SUM, (REACH(dst, type), REACH(src, type)))
LATE(check, ELEMENT, CHECK, REACH(src, type))
LATE(score, ELEMENT, SCORE, (FIRST(scores), REACH(src, GF_TYPE_F32)))
LATE(cast_chunks, ELEMENT, CAST_CHUNKS, (FIRST(dst), FIRST(src)))
LATE(accumulate, ELEMENT, ACCUMULATE, )
LATE(accumulate_chunks, ELEMENT, ACCUMULATE_CHUNKS, )
LATE(zero_chunks, ELEMENT, ZERO_CHUNKS, FIRST(dst))
LATE(update, ELEMENT, UPDATE, )
LATE(update_chunks, ELEMENT, UPDATE_CHUNKS, )
LATE(adam, ELEMENT, ADAM, )

/* ---- calls of several at once: one work for each, so that the device may stand between them
 * ---- */

/* clang-format off */
#define NORM(V, P) V(gf_type, type) P(struct gf_norm, range)
#define RATIO(V, P) P(struct gf_ratio, ratio)
#define PART(V, P) P(struct gf_update, update) P(struct gf_update_part, part)
/* clang-format on */
/* the host's op wants no scratch */
LATE_AS(norm_one, ELEMENT->norm(host, 0, args->type, &args->range, 1), NORM, )
LATE_AS(ratio_one, ELEMENT->ratio(host, &args->ratio, 1), RATIO, )
LATE_AS(update_part, ELEMENT->update_parts(host, &args->update, &args->part, 1), PART, )

static gf_status late_copy_n(struct gf_queue *queue, const gf_mem *dst, const gf_mem *src,
                             const uint64_t *size_bytes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) (void)late_copy(queue, dst[i], src[i], size_bytes[i]);
    return GF_OK;
}

static gf_status late_norm(struct gf_queue *queue, gf_mem scratch_f64, gf_type type,
                           const struct gf_norm *ranges, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) (void)late_norm_one(queue, type, &ranges[i]);
    return GF_OK;
}

static gf_status late_ratio(struct gf_queue *queue, const struct gf_ratio *ratios, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) (void)late_ratio_one(queue, &ratios[i]);
    return GF_OK;
}

static gf_status late_update_parts(struct gf_queue *queue, const struct gf_update *update,
                                   const struct gf_update_part *parts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) (void)late_update_part(queue, update, &parts[i]);
    return GF_OK;
}

struct table {
    uint32_t count;
    gf_mem at[SOURCES_MAX];
};

static struct table table_of(const gf_mem *at, uint32_t count)
{
    struct table table = {.count = count};
    assert_true(count <= SOURCES_MAX);
    memcpy(table.at, at, count * sizeof *at);
    return table;
}

/* clang-format off */
#define SUM_N(V, P) \
    P(struct table, dst) P(struct table, src) V(gf_type, type) V(uint64_t, elem_count) \
    V(uint64_t, base) V(struct gf_check *, check) V(struct gf_check *, sources)
/* clang-format on */
LATE_AS(sum_tables,
        ELEMENT->sum_n(host, args->dst.at, args->dst.count, args->src.at, args->src.count,
                       args->type, args->elem_count, args->base, args->check, args->sources),
        SUM_N, )

static gf_status late_sum_n(struct gf_queue *queue, const gf_mem *dst, uint32_t dst_count,
                            const gf_mem *src, uint32_t src_count, gf_type type,
                            uint64_t elem_count, uint64_t base, struct gf_check *check,
                            struct gf_check *sources)
{
    const struct table to = table_of(dst, dst_count);
    const struct table from = table_of(src, src_count);
    return late_sum_tables(queue, &to, &from, type, elem_count, base, check, sources);
}

static const struct gf_element_ops late_ops = {
    .name = "late",
    .cast = late_cast,
    .sum = late_sum,
    .check = late_check,
    .copy = late_copy,
    .zero = late_zero,
    .sum_n = late_sum_n,
    .copy_n = late_copy_n,
    .score = late_score,
    .accumulate = late_accumulate,
    .cast_chunks = late_cast_chunks,
    .accumulate_chunks = late_accumulate_chunks,
    .zero_chunks = late_zero_chunks,
    .norm = late_norm,
    .ratio = late_ratio,
    .update = late_update,
    .update_parts = late_update_parts,
    .update_chunks = late_update_chunks,
    .adam = late_adam,
};

/* ---- the driver ---- */

static size_t state_bytes(const struct gf_gpu_setup *setup)
{
    return sizeof(struct late);
}

static gf_status late_open(const struct gf_gpu_setup *setup, void *state, struct gf_gpu **gpu_out,
                           struct gf_fault *fault_out)
{
    struct late *late = state;
    assert_true(setup->events_max <= EVENTS_MAX);
    assert_true(ops_table_is_whole(&late_ops));
    memset(late, 0, sizeof *late);
    late->gpu = (struct gf_gpu){
        .driver = &late_gpu, .ops = &late_ops, .multiprocessors = 4, .fault.peer = GF_RANK_NONE};
    late->memory_bytes = gf_align_up(setup->device_bytes + SPARE_BYTES, 4096);
    late->memory = mmap(NULL, late->memory_bytes + WORK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(late->memory != MAP_FAILED); /* zeroes, most of which nobody touches */
    late->gpu.arena = (gf_mem)(uintptr_t)late->memory;
    for (uint32_t i = 0; i < GF_STREAM_COUNT; i++) late->gpu.streams[i] = STREAM;
    late->work = (struct late_work *)(void *)(late->memory + late->memory_bytes);
    late->random = 1;
    *gpu_out = &late->gpu;
    return GF_OK;
}

static void late_close(struct gf_gpu *gpu)
{
    struct late *late = late_of(gpu);
    (void)munmap(late->memory, late->memory_bytes + WORK_BYTES);
}

static gf_status late_register(struct gf_gpu *gpu, void *base, size_t size_bytes)
{
    late_of(gpu)->registered = (gf_mem)(uintptr_t)base;
    late_of(gpu)->registered_bytes = size_bytes;
    return GF_OK;
}

static gf_status late_unregister(struct gf_gpu *gpu, void *base)
{
    late_gpu_drain(gpu);
    late_of(gpu)->registered_bytes = 0;
    return GF_OK;
}

static void work_some(struct late *late, uint64_t most)
{
    struct gf_queue host = {.gpu = &late->gpu};
    for (; (late->done < late->queued) && (most > 0); most--) {
        const struct late_work *work = late_work_at(late, late->done++);
        assert_int_equal(work->run(&host, work->args), GF_OK);
    }
}

/* Each look lets the device do a little, sometimes nothing. */
static void time_passes(struct late *late)
{
    late->random = late->random * 1664525u + 1013904223u;
    work_some(late, (late->random >> 16) % (late_gpu_most + 1u));
}

static gf_status late_event_record(struct gf_queue *queue, uint32_t event)
{
    struct late *late = late_of(queue->gpu);
    assert_true(event < EVENTS_MAX);
    late->marks[event] = late->queued;
    return GF_OK;
}

static gf_status late_event_query(struct gf_gpu *gpu, uint32_t event)
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

void late_gpu_drain(struct gf_gpu *gpu)
{
    work_some(late_of(gpu), UINT64_MAX);
}
uint32_t late_gpu_waiting(const struct gf_gpu *gpu)
{
    return (uint32_t)(late_of(gpu)->queued - late_of(gpu)->done);
}

const struct gf_gpu_driver late_gpu = {
    .name = "cuda", /* it stands for one; no other name is a device's */
    .state_bytes = state_bytes,
    .open = late_open,
    .close = late_close,
    .host_register = late_register,
    .host_unregister = late_unregister,
    .copy = late_copy,
    .zero = late_zero,
    .stream_wait = late_order,
    .event_record = late_event_record,
    .event_query = late_event_query,
    .finished = late_finished,
};
