/* See late_gpu.h. Each op is written down as it was called, and done later by the host's. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/cuda/late_gpu.h"
#include "lib/core/arena.h"
#include "ops/module_ops.h"

#include <sys/mman.h>

#define WORK_MAX 65536u
#define EVENTS_MAX 256u
#define STREAM 0x57u
#define SOURCES_MAX 64u
#define SPARE_BYTES 4096u /* a model may need nothing of a device */

typedef enum late_kind { COPY, ZERO, CAST, SUM, SUM_N, CHECK, SCORE, NORM, ACCUMULATE, RATIO, UPDATE, UPDATE_PART,
               UPDATE_CHUNKS, CAST_CHUNKS, ACCUMULATE_CHUNKS, ZERO_CHUNKS, ADAM } late_kind;

/* One call as it was made. */
struct late_work {
    late_kind kind;
    gf_mem at[2];
    gf_type types[2];
    uint64_t elem_count, base, chunk_elems, piece_elems;
    float scale;
    struct gf_accumulate accumulate;
    struct gf_check *check, *sources;
    struct gf_update update;
    struct gf_adam adam;
    struct gf_ratio ratio;
    struct gf_norm norm;
    struct gf_update_part part;
    struct gf_chunks chunks;
    uint32_t dst_count, src_count;
    gf_mem tables[2][SOURCES_MAX];
};

struct late {
    struct gf_gpu gpu;
    char *memory;
    size_t memory_bytes;
    struct late_work *work;      /* [WORK_MAX] a ring */
    uint64_t queued, done;
    uint64_t first;              /* the one that lies at work[0] */
    uint64_t marks[EVENTS_MAX];
    uint32_t random;
    gf_mem registered;           /* what it reaches beside its own memory; 0: nothing */
    size_t registered_bytes;
};

#define WORK_BYTES (WORK_MAX * sizeof(struct late_work))

static inline struct late *late_of(const struct gf_gpu *gpu) { return (struct late *)(uintptr_t)gpu; }

uint32_t late_gpu_most = 3;

/* ---- its ops ---- */

static struct late_work *late_work_at(struct late *late, uint64_t index)
{
    return &late->work[(index - late->first) % WORK_MAX];
}

static void late_expect_reachable(const struct late *late, gf_mem at, uint64_t bytes)
{
    gf_mem own = (gf_mem)(uintptr_t)late->memory;
    if ((at == 0) || ((at >= own) && (at + bytes <= own + late->memory_bytes))) return;
    assert_true((at >= late->registered) && (at + bytes <= late->registered + late->registered_bytes));
}

static gf_status late_put(struct gf_queue *queue, const struct late_work *work)
{
    struct late *late = late_of(queue->gpu);
    assert_int_equal(queue->stream, STREAM);
    assert_true(late->queued - late->done < WORK_MAX);
    for (int i = 0; i < 2; i++) /* how much of it is known of the first kinds */
        late_expect_reachable(late, work->at[i], (work->kind > SUM) ? 1 : work->elem_count *
                              ((work->kind < CAST) ? 1 : gf_type_size_bytes(work->types[i])));
    if (late->done == late->queued) late->first = late->queued; /* the same few pages again */
    *late_work_at(late, late->queued++) = *work;
    return GF_OK;
}

static gf_status late_copy(struct gf_queue *queue, gf_mem dst, gf_mem src, uint64_t size_bytes)
{
    return late_put(queue, &(struct late_work){.kind = COPY, .at = {dst, src}, .elem_count = size_bytes});
}

static gf_status late_zero(struct gf_queue *queue, gf_mem dst, uint64_t size_bytes)
{
    return late_put(queue, &(struct late_work){.kind = ZERO, .at = {dst}, .elem_count = size_bytes});
}

static gf_status late_cast(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src, gf_type src_type,
                           uint64_t elem_count, float scale, uint64_t base, struct gf_check *check)
{
    return late_put(queue, &(struct late_work){.kind = CAST, .at = {dst, src}, .types = {dst_type, src_type},
                    .elem_count = elem_count, .scale = scale, .base = base, .check = check});
}

static gf_status late_sum(struct gf_queue *queue, gf_mem dst, gf_mem src, gf_type type, uint64_t elem_count,
                          uint64_t base, struct gf_check *check)
{
    return late_put(queue, &(struct late_work){.kind = SUM, .at = {dst, src}, .types = {type, type},
                    .elem_count = elem_count, .base = base, .check = check});
}

static gf_status late_copy_n(struct gf_queue *queue, const gf_mem *dst, const gf_mem *src, const uint64_t *size_bytes,
                             uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) (void)late_copy(queue, dst[i], src[i], size_bytes[i]);
    return GF_OK;
}

static gf_status late_sum_n(struct gf_queue *queue, const gf_mem *dst, uint32_t dst_count, const gf_mem *src,
                            uint32_t src_count, gf_type type, uint64_t elem_count, uint64_t base,
                            struct gf_check *check, struct gf_check *sources)
{
    struct late_work work = {.kind = SUM_N, .types = {type}, .elem_count = elem_count, .base = base, .check = check,
                             .sources = sources, .dst_count = dst_count, .src_count = src_count};
    assert_true((dst_count <= SOURCES_MAX) && (src_count <= SOURCES_MAX));
    memcpy(work.tables[0], dst, dst_count * sizeof *dst);
    memcpy(work.tables[1], src, src_count * sizeof *src);
    return late_put(queue, &work);
}

static gf_status late_check(struct gf_queue *queue, gf_mem src, gf_type type, uint64_t elem_count, uint64_t base,
                            struct gf_check *check)
{
    return late_put(queue, &(struct late_work){.kind = CHECK, .at = {src}, .types = {type}, .elem_count = elem_count,
                    .base = base, .check = check});
}

static gf_status late_score(struct gf_queue *queue, gf_mem scores_f32, gf_mem src_f32, uint64_t elem_count,
                            uint64_t chunk_elems, uint64_t piece_elems)
{
    return late_put(queue, &(struct late_work){.kind = SCORE, .at = {scores_f32, src_f32}, .elem_count = elem_count,
                    .chunk_elems = chunk_elems, .piece_elems = piece_elems});
}

/* The host's op wants no scratch. */
static gf_status late_norm(struct gf_queue *queue, gf_mem scratch_f32, gf_type type, const struct gf_norm *ranges,
                           uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        (void)late_put(queue, &(struct late_work){.kind = NORM, .types = {type}, .norm = ranges[i]});
    return GF_OK;
}

static gf_status late_accumulate(struct gf_queue *queue, const struct gf_accumulate *all, uint64_t elem_count)
{
    return late_put(queue, &(struct late_work){.kind = ACCUMULATE, .accumulate = *all, .elem_count = elem_count});
}

static gf_status late_cast_chunks(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src, gf_type src_type,
                                  const struct gf_chunks *chunks, float scale, uint64_t base, struct gf_check *check)
{
    return late_put(queue, &(struct late_work){.kind = CAST_CHUNKS, .at = {dst, src}, .types = {dst_type, src_type},
                    .scale = scale, .base = base, .check = check, .chunks = *chunks});
}

static gf_status late_accumulate_chunks(struct gf_queue *queue, const struct gf_accumulate *all,
                                        const struct gf_chunks *chunks)
{
    return late_put(queue, &(struct late_work){.kind = ACCUMULATE_CHUNKS, .accumulate = *all, .chunks = *chunks});
}

static gf_status late_zero_chunks(struct gf_queue *queue, gf_mem dst, gf_type type, const struct gf_chunks *chunks)
{
    return late_put(queue, &(struct late_work){.kind = ZERO_CHUNKS, .at = {dst}, .types = {type}, .chunks = *chunks});
}

static gf_status late_ratio(struct gf_queue *queue, const struct gf_ratio *ratios, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) (void)late_put(queue, &(struct late_work){.kind = RATIO, .ratio = ratios[i]});
    return GF_OK;
}

static gf_status late_update(struct gf_queue *queue, const struct gf_update *update, uint64_t elem_count)
{
    return late_put(queue, &(struct late_work){.kind = UPDATE, .update = *update, .elem_count = elem_count});
}

static gf_status late_update_parts(struct gf_queue *queue, const struct gf_update *update,
                                   const struct gf_update_part *parts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        (void)late_put(queue, &(struct late_work){.kind = UPDATE_PART, .update = *update, .part = parts[i]});
    return GF_OK;
}

static gf_status late_update_chunks(struct gf_queue *queue, const struct gf_update *update,
                                    const struct gf_chunks *chunks)
{
    return late_put(queue, &(struct late_work){.kind = UPDATE_CHUNKS, .update = *update, .chunks = *chunks});
}

static gf_status late_adam(struct gf_queue *queue, const struct gf_adam *adam, uint64_t elem_count)
{
    return late_put(queue, &(struct late_work){.kind = ADAM, .adam = *adam, .elem_count = elem_count});
}

static void late_work_do(struct late *late, const struct late_work *work)
{
    struct gf_queue host = {.gpu = &late->gpu};
    const struct gf_element_ops *ops = gf_element_ops_best();
    const struct gf_sparse_ops *sparse = gf_sparse_ops(ops);
    const struct gf_optimizer_ops *optimizer = gf_optimizer_ops(ops);
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
        status = gf_node_ops(ops)->sum_n(&host, work->tables[0], work->dst_count, work->tables[1], work->src_count,
                                         work->types[0], work->elem_count, work->base, work->check, work->sources);
        break;
    case CHECK:
        status = ops->check(&host, work->at[0], work->types[0], work->elem_count, work->base, work->check);
        break;
    case SCORE:
        status = sparse->score(&host, work->at[0], work->at[1], work->elem_count, work->chunk_elems, work->piece_elems);
        break;
    case NORM: status = optimizer->norm(&host, 0, work->types[0], &work->norm, 1); break;
    case ACCUMULATE: status = sparse->accumulate(&host, &work->accumulate, work->elem_count); break;
    case RATIO: status = optimizer->ratio(&host, &work->ratio, 1); break;
    case UPDATE: status = optimizer->update(&host, &work->update, work->elem_count); break;
    case UPDATE_PART: status = optimizer->update_parts(&host, &work->update, &work->part, 1); break;
    case ADAM: status = optimizer->adam(&host, &work->adam, work->elem_count); break;
    case UPDATE_CHUNKS: status = optimizer->update_chunks(&host, &work->update, &work->chunks); break;
    case CAST_CHUNKS:
        status = sparse->cast_chunks(&host, work->at[0], work->types[0], work->at[1], work->types[1], &work->chunks,
                                  work->scale, work->base, work->check);
        break;
    case ACCUMULATE_CHUNKS: status = sparse->accumulate_chunks(&host, &work->accumulate, &work->chunks); break;
    case ZERO_CHUNKS: status = sparse->zero_chunks(&host, work->at[0], work->types[0], &work->chunks); break;
    }
    assert_int_equal(status, GF_OK);
}

static const struct gf_node_ops late_node_ops = {.sum_n = late_sum_n, .copy_n = late_copy_n};
static const struct gf_sparse_ops late_sparse_ops = {
    .score = late_score, .accumulate = late_accumulate, .cast_chunks = late_cast_chunks,
    .accumulate_chunks = late_accumulate_chunks, .zero_chunks = late_zero_chunks,
};
static const struct gf_optimizer_ops late_optimizer_ops = {
    .norm = late_norm, .ratio = late_ratio, .update = late_update, .update_parts = late_update_parts,
    .update_chunks = late_update_chunks, .adam = late_adam,
};
static const struct gf_element_ops late_ops = {
    .name = "late", .node = &late_node_ops, .sparse = &late_sparse_ops, .optimizer = &late_optimizer_ops,
    .cast = late_cast, .sum = late_sum, .check = late_check, .copy = late_copy, .zero = late_zero,
};

/* ---- the driver ---- */

static size_t state_bytes(const struct gf_gpu_setup *setup) { return sizeof(struct late); }

static gf_status late_open(const struct gf_gpu_setup *setup, void *state, struct gf_gpu **gpu_out,
                           struct gf_fault *fault_out)
{
    struct late *late = state;
    assert_true(setup->events_max <= EVENTS_MAX);
    memset(late, 0, sizeof *late);
    late->gpu = (struct gf_gpu){.driver = &late_gpu, .ops = &late_ops, .multiprocessors = 4, .fault.peer = GF_RANK_NONE};
    late->memory_bytes = gf_align_up(setup->device_bytes + SPARE_BYTES, 4096);
    late->memory = mmap(NULL, late->memory_bytes + WORK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(late->memory != MAP_FAILED); /* zeroes, most of which nobody touches */
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

static gf_mem late_arena(struct gf_gpu *gpu) { return (gf_mem)(uintptr_t)late_of(gpu)->memory; }

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

static gf_queue_handle late_stream(struct gf_gpu *gpu, gf_stream which)
{
    return ((gpu != NULL) && (which < GF_STREAM_COUNT)) ? STREAM : 0;
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
uint32_t late_gpu_waiting(const struct gf_gpu *gpu) { return (uint32_t)(late_of(gpu)->queued - late_of(gpu)->done); }

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
