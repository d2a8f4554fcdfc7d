/* See late_gpu.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/cuda/late_gpu.h"
#include "ops/coll.h"
#include "ops/ops.h"

#define WORK_MAX 65536u
#define EVENTS_MAX 32u
#define STREAM 0x57u
#define SOURCES_MAX 64u

typedef enum kind { COPY, ZERO, CAST, SUM, SUM_N, CHECK, SCORE, NORM, ACCUMULATE, RATIO, UPDATE, UPDATE_CHUNKS,
               CAST_CHUNKS, ACCUMULATE_CHUNKS, ZERO_CHUNKS, ADAM } kind;

/* One call as it was made. */
struct work {
    kind kind;
    gf_mem at[2];
    gf_type types[2];
    uint64_t elem_count, base, chunk_elems, piece_elems;
    float scale;
    struct gf_accumulate accumulate;
    struct gf_check *check, *sources;
    struct gf_update update;
    struct gf_adam adam;
    struct gf_ratio ratio;
    struct gf_chunks chunks;
    uint32_t dst_count, src_count;
    gf_mem tables[2][SOURCES_MAX];
};

struct late {
    struct gf_gpu gpu;
    char *memory;
    size_t memory_bytes;
    char *registered;
    size_t registered_bytes;
    struct work *work;      /* [WORK_MAX] a ring */
    uint64_t queued, done;
    uint64_t marks[EVENTS_MAX];
    uint32_t random;
};

extern const struct gf_ops late_ops;
uint32_t late_gpu_most = 3;

static struct late *late_of(const struct gf_gpu *gpu) { return (struct late *)(uintptr_t)gpu; }

static size_t state_bytes(const struct gf_gpu_setup *setup)
{
    (void)setup;
    return sizeof(struct late);
}

static gf_status late_open(const struct gf_gpu_setup *setup, void *state, struct gf_gpu **gpu_out,
                           struct gf_fault *fault_out)
{
    struct late *late = state;
    (void)fault_out;
    assert_true(setup->events_max <= EVENTS_MAX);
    memset(late, 0, sizeof *late);
    late->gpu = (struct gf_gpu){.driver = &late_gpu, .ops = &late_ops, .multiprocessors = 4, .fault.peer = GF_RANK_NONE};
    late->memory_bytes = setup->device_bytes;
    late->memory = aligned_alloc(4096, setup->device_bytes + 4096);
    late->work = calloc(WORK_MAX, sizeof *late->work);
    late->random = 1;
    assert_non_null(late->memory);
    assert_non_null(late->work);
    memset(late->memory, 0, setup->device_bytes);
    *gpu_out = &late->gpu;
    return GF_OK;
}

static void late_close(struct gf_gpu *gpu)
{
    struct late *late = late_of(gpu);
    assert_null(late->registered); /* what was registered is given back first */
    free(late->memory);
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

/* A device reaches its arena and registered memory, nothing else. */
static void expect_reachable(struct late *late, gf_mem at, uint64_t bytes)
{
    const char *from = (const char *)(uintptr_t)at;
    if ((at == 0) || (bytes == 0)) return;
    if ((from >= late->memory) && (from + bytes <= late->memory + late->memory_bytes)) return;
    assert_non_null(late->registered);
    assert_true((from >= late->registered) && (from + bytes <= late->registered + late->registered_bytes));
}

static struct work *work_new(struct gf_queue *queue, kind kind)
{
    struct late *late = late_of(queue->gpu);
    struct work *work = &late->work[late->queued % WORK_MAX];
    assert_int_equal(queue->stream, STREAM);
    assert_true(late->queued - late->done < WORK_MAX);
    late->queued++;
    *work = (struct work){.kind = kind};
    return work;
}

static gf_status late_copy(struct gf_queue *queue, gf_mem dst, gf_mem src, uint64_t size_bytes)
{
    struct work *work = work_new(queue, COPY);
    expect_reachable(late_of(queue->gpu), dst, size_bytes);
    expect_reachable(late_of(queue->gpu), src, size_bytes);
    work->at[0] = dst;
    work->at[1] = src;
    work->elem_count = size_bytes;
    return GF_OK;
}

static gf_status late_zero(struct gf_queue *queue, gf_mem dst, uint64_t size_bytes)
{
    struct work *work = work_new(queue, ZERO);
    expect_reachable(late_of(queue->gpu), dst, size_bytes);
    work->at[0] = dst;
    work->elem_count = size_bytes;
    return GF_OK;
}

static gf_status late_cast(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src, gf_type src_type,
                           uint64_t elem_count, float scale, uint64_t base, struct gf_check *check)
{
    struct late *late = late_of(queue->gpu);
    struct work *work = work_new(queue, CAST);
    expect_reachable(late, dst, elem_count * gf_type_size_bytes(dst_type));
    expect_reachable(late, src, elem_count * gf_type_size_bytes(src_type));
    expect_reachable(late, (gf_mem)(uintptr_t)check, sizeof *check);
    *work = (struct work){.kind = CAST, .at = {dst, src}, .types = {dst_type, src_type}, .elem_count = elem_count,
                          .scale = scale, .base = base, .check = check};
    return GF_OK;
}

static gf_status late_sum(struct gf_queue *queue, gf_mem dst, gf_mem src, gf_type type, uint64_t elem_count,
                          uint64_t base, struct gf_check *check)
{
    struct late *late = late_of(queue->gpu);
    struct work *work = work_new(queue, SUM);
    expect_reachable(late, dst, elem_count * gf_type_size_bytes(type));
    expect_reachable(late, src, elem_count * gf_type_size_bytes(type));
    *work = (struct work){.kind = SUM, .at = {dst, src}, .types = {type}, .elem_count = elem_count, .base = base,
                          .check = check};
    return GF_OK;
}

static gf_status late_sum_n(struct gf_queue *queue, const gf_mem *dst, uint32_t dst_count, const gf_mem *src,
                            uint32_t src_count, gf_type type, uint64_t elem_count, uint64_t base,
                            struct gf_check *check, struct gf_check *sources)
{
    struct work *work = work_new(queue, SUM_N);
    assert_true((dst_count <= SOURCES_MAX) && (src_count <= SOURCES_MAX));
    work->types[0] = type;
    work->elem_count = elem_count;
    work->base = base;
    work->check = check;
    work->sources = sources;
    work->dst_count = dst_count;
    work->src_count = src_count;
    memcpy(work->tables[0], dst, dst_count * sizeof *dst);
    memcpy(work->tables[1], src, src_count * sizeof *src);
    return GF_OK;
}

static gf_status late_check(struct gf_queue *queue, gf_mem src, gf_type type, uint64_t elem_count, uint64_t base,
                            struct gf_check *check)
{
    struct work *work = work_new(queue, CHECK);
    expect_reachable(late_of(queue->gpu), src, elem_count * gf_type_size_bytes(type));
    expect_reachable(late_of(queue->gpu), (gf_mem)(uintptr_t)check, sizeof *check);
    *work = (struct work){.kind = CHECK, .at = {src}, .types = {type}, .elem_count = elem_count, .base = base,
                          .check = check};
    return GF_OK;
}

static gf_status late_score(struct gf_queue *queue, gf_mem scores_f32, gf_mem src_f32, uint64_t elem_count,
                            uint64_t chunk_elems, uint64_t piece_elems)
{
    struct work *work = work_new(queue, SCORE);
    expect_reachable(late_of(queue->gpu), src_f32, elem_count * sizeof(float));
    expect_reachable(late_of(queue->gpu), scores_f32,
                     (elem_count + chunk_elems - 1) / (chunk_elems + (chunk_elems == 0)) * sizeof(float));
    *work = (struct work){.kind = SCORE, .at = {scores_f32, src_f32}, .elem_count = elem_count,
                          .chunk_elems = chunk_elems, .piece_elems = piece_elems};
    return GF_OK;
}

static gf_status late_norm(struct gf_queue *queue, gf_mem square_f32, gf_mem scratch_f32, gf_mem src, gf_type type,
                           uint64_t elem_count)
{
    (void)scratch_f32; /* the host's op wants none */
    struct work *work = work_new(queue, NORM);
    expect_reachable(late_of(queue->gpu), scratch_f32, GF_NORM_SCRATCH_ELEMS * sizeof(float));
    expect_reachable(late_of(queue->gpu), square_f32, sizeof(float));
    expect_reachable(late_of(queue->gpu), src, elem_count * gf_type_size_bytes(type));
    *work = (struct work){.kind = NORM, .at = {square_f32, src}, .types = {type}, .elem_count = elem_count};
    return GF_OK;
}

static void expect_accumulate(struct late *late, const struct gf_accumulate *a, uint64_t dst_elems, uint64_t src_elems)
{
    expect_reachable(late, a->dst_h_f32, dst_elems * sizeof(float));
    expect_reachable(late, a->dst_u_f32, dst_elems * sizeof(float));
    expect_reachable(late, a->h_f32, src_elems * sizeof(float));
    expect_reachable(late, a->u_f32, src_elems * sizeof(float));
    expect_reachable(late, a->weight_f32, src_elems * sizeof(float));
    expect_reachable(late, a->src, src_elems * gf_type_size_bytes(a->src_type));
}

static gf_status late_accumulate(struct gf_queue *queue, const struct gf_accumulate *accumulate, uint64_t elem_count)
{
    struct work *work = work_new(queue, ACCUMULATE);
    work->accumulate = *accumulate;
    work->elem_count = elem_count;
    expect_accumulate(late_of(queue->gpu), accumulate, elem_count, elem_count);
    return GF_OK;
}

/* Lists are read late, too. */
static void expect_chunks(struct late *late, const struct gf_chunks *chunks)
{
    expect_reachable(late, chunks->dst_list_u32, chunks->count * sizeof(uint32_t));
    expect_reachable(late, chunks->src_list_u32, chunks->count * sizeof(uint32_t));
}

static gf_status late_cast_chunks(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src, gf_type src_type,
                                  const struct gf_chunks *chunks, float scale, uint64_t base, struct gf_check *check)
{
    struct late *late = late_of(queue->gpu);
    struct work *work = work_new(queue, CAST_CHUNKS);
    expect_chunks(late, chunks);
    expect_reachable(late, dst, chunks->dst_elems * gf_type_size_bytes(dst_type));
    expect_reachable(late, src, chunks->src_elems * gf_type_size_bytes(src_type));
    *work = (struct work){.kind = CAST_CHUNKS, .at = {dst, src}, .types = {dst_type, src_type}, .scale = scale,
                          .base = base, .check = check, .chunks = *chunks};
    return GF_OK;
}

static gf_status late_accumulate_chunks(struct gf_queue *queue, const struct gf_accumulate *accumulate,
                                        const struct gf_chunks *chunks)
{
    struct late *late = late_of(queue->gpu);
    struct work *work = work_new(queue, ACCUMULATE_CHUNKS);
    work->accumulate = *accumulate;
    work->chunks = *chunks;
    expect_chunks(late, chunks);
    expect_accumulate(late, accumulate, chunks->dst_elems, chunks->src_elems);
    return GF_OK;
}

static gf_status late_zero_chunks(struct gf_queue *queue, gf_mem dst, gf_type type, const struct gf_chunks *chunks)
{
    struct late *late = late_of(queue->gpu);
    struct work *work = work_new(queue, ZERO_CHUNKS);
    expect_chunks(late, chunks);
    expect_reachable(late, dst, chunks->dst_elems * gf_type_size_bytes(type));
    *work = (struct work){.kind = ZERO_CHUNKS, .at = {dst}, .types = {type}, .chunks = *chunks};
    return GF_OK;
}

static gf_status late_ratio(struct gf_queue *queue, gf_mem ratio_f32, const struct gf_ratio *ratio)
{
    struct work *work = work_new(queue, RATIO);
    expect_reachable(late_of(queue->gpu), ratio_f32, sizeof(float));
    expect_reachable(late_of(queue->gpu), ratio->weight_square_f32, sizeof(float));
    expect_reachable(late_of(queue->gpu), ratio->gradient_square_f32, sizeof(float));
    work->at[0] = ratio_f32;
    work->ratio = *ratio;
    return GF_OK;
}

static gf_status late_update(struct gf_queue *queue, const struct gf_update *update, uint64_t elem_count)
{
    struct work *work = work_new(queue, UPDATE);
    expect_reachable(late_of(queue->gpu), update->weight_f32, elem_count * sizeof(float));
    expect_reachable(late_of(queue->gpu), update->gradient, elem_count * gf_type_size_bytes(update->gradient_type));
    work->update = *update;
    work->elem_count = elem_count;
    return GF_OK;
}

static gf_status late_update_chunks(struct gf_queue *queue, const struct gf_update *update, const struct gf_chunks *chunks)
{
    struct late *late = late_of(queue->gpu);
    struct work *work = work_new(queue, UPDATE_CHUNKS);
    expect_chunks(late, chunks);
    expect_reachable(late, update->weight_f32, chunks->dst_elems * sizeof(float));
    expect_reachable(late, update->gradient, chunks->dst_elems * gf_type_size_bytes(update->gradient_type));
    work->update = *update;
    work->chunks = *chunks;
    return GF_OK;
}

static gf_status late_adam(struct gf_queue *queue, const struct gf_adam *adam, uint64_t elem_count)
{
    struct work *work = work_new(queue, ADAM);
    expect_reachable(late_of(queue->gpu), adam->weight_f32, elem_count * sizeof(float));
    expect_reachable(late_of(queue->gpu), adam->moment1_f32, elem_count * sizeof(float));
    expect_reachable(late_of(queue->gpu), adam->moment2_f32, elem_count * sizeof(float));
    expect_reachable(late_of(queue->gpu), adam->direction_f32, elem_count * sizeof(float));
    expect_reachable(late_of(queue->gpu), adam->gradient, elem_count * gf_type_size_bytes(adam->gradient_type));
    work->adam = *adam;
    work->elem_count = elem_count;
    return GF_OK;
}

static void work_do(struct late *late, const struct work *work)
{
    struct gf_queue host = {.gpu = &late->gpu};
    const struct gf_ops *ops = &gf_ops_host;
    gf_status status = GF_OK;
    switch (work->kind) {
    case COPY: memmove((void *)(uintptr_t)work->at[0], (const void *)(uintptr_t)work->at[1], work->elem_count); break;
    case ZERO: memset((void *)(uintptr_t)work->at[0], 0, work->elem_count); break;
    case CAST:
        status = ops->cast(&host, work->at[0], work->types[0], work->at[1], work->types[1], work->elem_count,
                           work->scale, work->base, work->check);
        break;
    case SUM:
        status = ops->sum(&host, work->at[0], work->at[1], work->types[0], work->elem_count, work->base, work->check);
        break;
    case SUM_N:
        status = ops->sum_n(&host, work->tables[0], work->dst_count, work->tables[1], work->src_count, work->types[0],
                            work->elem_count, work->base, work->check, work->sources);
        break;
    case CHECK:
        status = ops->check(&host, work->at[0], work->types[0], work->elem_count, work->base, work->check);
        break;
    case SCORE:
        status = ops->score(&host, work->at[0], work->at[1], work->elem_count, work->chunk_elems, work->piece_elems);
        break;
    case NORM: status = ops->norm(&host, work->at[0], 0, work->at[1], work->types[0], work->elem_count); break;
    case ACCUMULATE: status = ops->accumulate(&host, &work->accumulate, work->elem_count); break;
    case RATIO: status = ops->ratio(&host, work->at[0], &work->ratio); break;
    case UPDATE: status = ops->update(&host, &work->update, work->elem_count); break;
    case ADAM: status = ops->adam(&host, &work->adam, work->elem_count); break;
    case UPDATE_CHUNKS: status = ops->update_chunks(&host, &work->update, &work->chunks); break;
    case CAST_CHUNKS:
        status = ops->cast_chunks(&host, work->at[0], work->types[0], work->at[1], work->types[1], &work->chunks,
                                  work->scale, work->base, work->check);
        break;
    case ACCUMULATE_CHUNKS: status = ops->accumulate_chunks(&host, &work->accumulate, &work->chunks); break;
    case ZERO_CHUNKS: status = ops->zero_chunks(&host, work->at[0], work->types[0], &work->chunks); break;
    }
    assert_int_equal(status, GF_OK);
}

static void work_some(struct late *late, uint64_t most)
{
    for (; (late->done < late->queued) && (most > 0); most--) work_do(late, &late->work[late->done++ % WORK_MAX]);
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
    (void)queue;
    assert_int_equal(other, 0);
    return GF_OK;
}

void late_gpu_drain(struct gf_gpu *gpu) { work_some(late_of(gpu), UINT64_MAX); }
uint64_t late_gpu_done(const struct gf_gpu *gpu) { return late_of(gpu)->done; }
uint32_t late_gpu_waiting(const struct gf_gpu *gpu)
{
    return (uint32_t)(late_of(gpu)->queued - late_of(gpu)->done);
}

const struct gf_ops late_ops = {
    .name = "late", .cast = late_cast, .sum = late_sum, .sum_n = late_sum_n, .check = late_check, .copy = late_copy,
    .zero = late_zero, .score = late_score, .norm = late_norm, .ratio = late_ratio, .accumulate = late_accumulate, .update = late_update,
    .cast_chunks = late_cast_chunks, .accumulate_chunks = late_accumulate_chunks, .zero_chunks = late_zero_chunks,
    .update_chunks = late_update_chunks,
    .adam = late_adam,
};

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
    .wait_for = late_order,
    .lead = late_order,
    .mark = late_mark,
    .reached = late_reached,
    .finished = late_finished,
};
