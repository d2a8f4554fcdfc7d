/* The CUDA backend: which kernel, how many blocks, which numbers. What CUDA is, only the GPU driver
 * knows. */
#include "ops/element/cuda/ops_cuda.h"

#include "ops/element/cuda/kernels.h"

_Static_assert((GF_TYPE_F32 == GF_KERNEL_F32) && (GF_TYPE_F16 == GF_KERNEL_F16) &&
                   (GF_TYPE_BF16 == GF_KERNEL_BF16),
               "kernels know types by number");
_Static_assert(GF_DIRECT_RANKS_MAX <= GF_KERNEL_RANKS_MAX,
               "sum_n's tables hold all ranks of a node");
_Static_assert((sizeof(struct gf_norm_args) <= 4096) && (sizeof(struct gf_ratio_args) <= 4096) &&
                   (sizeof(struct gf_update_args) <= 4096),
               "what a kernel of CUDA 12.0 may be given");
_Static_assert(sizeof(struct gf_check) == 16,
               "kernels add to the count at 0 and the first index at 8");

#define KERNEL_NAME(name) "gf_kernel_" #name,
static const char *const names[] = {GF_KERNELS(KERNEL_NAME)};

#define KERNEL_NUMBER(name) KERNEL_##name,
enum { GF_KERNELS(KERNEL_NUMBER) };
_Static_assert(KERNEL_sum_bf16 - KERNEL_sum_f32 + 1 == GF_TYPE_COUNT,
               "a kernel is chosen by adding a type to its number: GF_KERNELS_TYPES has all types");

_Static_assert(GF_KERNEL_THREADS == GF_GPU_BLOCK_THREADS,
               "it says how many blocks it has room for");
_Static_assert(GF_KERNEL_CHANNEL_THREADS == GF_GPU_CHANNEL_THREADS, "what a kernel is built for");

/* Of a block. */
static uint32_t threads_of(const struct gf_queue *queue, uint32_t kernel)
{
    bool is_sum_n = (kernel >= KERNEL_sum_n_f32) && (kernel < KERNEL_sum_n_f32 + GF_TYPE_COUNT);
    if ((queue->block_threads == 0) || (!is_sum_n && (kernel != KERNEL_copy_n)))
        return GF_KERNEL_THREADS;
    GF_ASSERT(queue->block_threads <= GF_KERNEL_CHANNEL_THREADS);
    return queue->block_threads;
}

/* Enough blocks for `work` threads, but no more than run at once: a thread then takes several
 * items. */
static uint32_t blocks_for(const struct gf_queue *queue, uint32_t kernel, uint64_t work)
{
    const uint64_t threads = threads_of(queue, kernel);
    uint64_t most = queue->gpu->blocks[kernel] * (uint64_t)GF_KERNEL_THREADS / threads;
    if (most == 0) most = 1;
    if ((queue->blocks_max > 0) && (queue->blocks_max < most)) most = queue->blocks_max;
    uint64_t wanted = (work + threads - 1) / threads;
    return (uint32_t)((wanted < most) ? wanted : most);
}

/* args is the one struct that the kernel takes. An empty grid is not valid, an empty range is. */
static gf_status start(struct gf_queue *queue, uint32_t kernel, uint64_t work, void *args)
{
    void *list[] = {args};
    if (work == 0) return GF_OK;
    return queue->gpu->driver->launch(queue, kernel, blocks_for(queue, kernel, work),
                                      threads_of(queue, kernel), list);
}

/* Threads for elements of which one takes at least `pack` at a time. */
static uint64_t packs_of(uint64_t elem_count, uint64_t pack)
{
    return (elem_count == 0) ? 0 : elem_count / pack + 1;
}

static uint64_t check_at(const struct gf_check *check)
{
    return (uint64_t)(uintptr_t)check;
}

/* A block a tile. */
static uint64_t chunks_work(const struct gf_chunks *chunks)
{
    GF_ASSERT(chunks->chunk_elems > 0);
    return (chunks->chunk_elems + GF_KERNEL_TILE_ELEMS - 1) / GF_KERNEL_TILE_ELEMS * chunks->count *
           GF_KERNEL_THREADS;
}

static gf_status cast_start(struct gf_queue *queue, struct gf_cast_args *args, uint64_t work)
{
    GF_ASSERT((args->dst_type < GF_TYPE_COUNT) && (args->src_type < GF_TYPE_COUNT));
    return start(queue, KERNEL_cast_f32_f32 + args->dst_type * GF_TYPE_COUNT + args->src_type, work,
                 args);
}

static gf_status cuda_cast(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src,
                           gf_type src_type, uint64_t elem_count, float scale, uint64_t base,
                           struct gf_check *check)
{
    struct gf_cast_args args = {.dst = dst,
                                .src = src,
                                .elem_count = elem_count,
                                .base = base,
                                .check = check_at(check),
                                .scale = scale,
                                .dst_type = dst_type,
                                .src_type = src_type};
    return cast_start(queue, &args, packs_of(elem_count, 4));
}

static gf_status cuda_cast_chunks(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src,
                                  gf_type src_type, const struct gf_chunks *chunks, float scale,
                                  uint64_t base, struct gf_check *check)
{
    struct gf_cast_args args = {.dst = dst,
                                .src = src,
                                .base = base,
                                .check = check_at(check),
                                .scale = scale,
                                .dst_type = dst_type,
                                .src_type = src_type,
                                .chunks = *chunks};
    return cast_start(queue, &args, chunks_work(chunks));
}

static gf_status cuda_sum(struct gf_queue *queue, gf_mem dst, gf_mem src, gf_type type,
                          uint64_t elem_count, uint64_t base, struct gf_check *check)
{
    struct gf_sum_args args = {.dst = dst,
                               .src = src,
                               .elem_count = elem_count,
                               .base = base,
                               .check = check_at(check),
                               .type = type};
    GF_ASSERT(type < GF_TYPE_COUNT);
    return start(queue, KERNEL_sum_f32 + (uint32_t)type, packs_of(elem_count, 4), &args);
}

static gf_status cuda_sum_n(struct gf_queue *queue, const gf_mem *dst, uint32_t dst_count,
                            const gf_mem *src, uint32_t src_count, gf_type type,
                            uint64_t elem_count, uint64_t base, struct gf_check *check,
                            struct gf_check *sources)
{
    struct gf_sum_n_args args = {.elem_count = elem_count,
                                 .base = base,
                                 .check = check_at(check),
                                 .sources = check_at(sources),
                                 .dst_count = dst_count,
                                 .src_count = src_count,
                                 .type = type};
    GF_ASSERT((type < GF_TYPE_COUNT) && (src_count > 0));
    GF_ASSERT((sources == NULL) || (check != NULL));
    GF_ASSERT((src_count <= GF_KERNEL_RANKS_MAX) && (dst_count <= GF_KERNEL_RANKS_MAX));
    for (uint32_t s = 0; s < src_count; s++) args.src[s] = src[s];
    for (uint32_t d = 0; d < dst_count; d++) args.dst[d] = dst[d];
    return start(queue, KERNEL_sum_n_f32 + (uint32_t)type, packs_of(elem_count, 4), &args);
}

static gf_status cuda_check(struct gf_queue *queue, gf_mem src, gf_type type, uint64_t elem_count,
                            uint64_t base, struct gf_check *check)
{
    struct gf_sum_args args = {
        .src = src, .elem_count = elem_count, .base = base, .check = check_at(check), .type = type};
    GF_ASSERT(type < GF_TYPE_COUNT);
    return start(queue, KERNEL_check_f32 + (uint32_t)type, packs_of(elem_count, 4), &args);
}

static gf_status cuda_copy(struct gf_queue *queue, gf_mem dst, gf_mem src, uint64_t size_bytes)
{
    if ((size_bytes == 0) || (dst == src)) return GF_OK;
    return queue->gpu->driver->copy(queue, dst, src, size_bytes);
}

/* As many blocks to each range. */
static gf_status copy_n_start(struct gf_queue *queue, struct gf_copy_n_args *args)
{
    void *list[] = {args};
    uint64_t most = 0;
    if (args->count == 0) return GF_OK;
    for (uint32_t i = 0; i < args->count; i++)
        if (args->bytes[i] > most) most = args->bytes[i];
    uint32_t each =
        blocks_for(queue, KERNEL_copy_n, packs_of(most, 16) * args->count) / args->count;
    if (each == 0) each = 1;
    return queue->gpu->driver->launch(queue, KERNEL_copy_n, args->count * each,
                                      threads_of(queue, KERNEL_copy_n), list);
}

/* In several launches where a queue has fewer blocks than there are ranges. */
static gf_status cuda_copy_n(struct gf_queue *queue, const gf_mem *dst, const gf_mem *src,
                             const uint64_t *size_bytes, uint32_t count)
{
    uint32_t most = (queue->blocks_max > 0) ? queue->blocks_max : GF_KERNEL_RANKS_MAX;
    gf_status status = GF_OK;
    GF_ASSERT(count <= GF_KERNEL_RANKS_MAX);
    for (uint32_t next = 0; (next < count) && (status == GF_OK);) {
        struct gf_copy_n_args args = {.count = 0};
        for (; (next < count) && (args.count < most); next++) {
            GF_ASSERT(size_bytes[next] % sizeof(uint16_t) == 0);
            if (size_bytes[next] == 0) continue;
            args.dst[args.count] = dst[next];
            args.src[args.count] = src[next];
            args.bytes[args.count++] = size_bytes[next];
        }
        status = copy_n_start(queue, &args);
    }
    return status;
}

static gf_status cuda_zero(struct gf_queue *queue, gf_mem dst, uint64_t size_bytes)
{
    if (size_bytes == 0) return GF_OK;
    return queue->gpu->driver->zero(queue, dst, size_bytes);
}

static gf_status cuda_score(struct gf_queue *queue, gf_mem scores_f32, gf_mem src_f32,
                            uint64_t elem_count, uint64_t chunk_elems, uint64_t segment_elems)
{
    const struct gf_gpu_driver *driver = queue->gpu->driver;
    const gf_mem scores =
        (driver->host_reach != NULL) ? driver->host_reach(queue->gpu, scores_f32) : scores_f32;
    struct gf_score_args args = {.scores = scores, .src = src_f32, .elem_count = elem_count};
    if (elem_count == 0) return GF_OK;
    GF_ASSERT((chunk_elems > 0) && (segment_elems > 0));
    if (chunk_elems > elem_count) chunk_elems = elem_count;
    if (segment_elems > chunk_elems) segment_elems = chunk_elems;
    GF_ASSERT(chunk_elems <= UINT32_MAX / 2);
    args.chunk_count = (elem_count - 1) / chunk_elems + 1;
    args.chunk_elems = (uint32_t)chunk_elems;
    args.segment_elems = (uint32_t)segment_elems;
    args.segment_runs = (uint32_t)gf_runs(segment_elems);
    uint64_t threads = (chunk_elems > GF_RUN_ELEMS) ? GF_KERNEL_THREADS : 16; /* a chunk */
    gf_status status = start(queue, KERNEL_score, args.chunk_count * threads, &args);
    if ((status < 0) || (scores == scores_f32)) return status;
    return driver->copy(queue, scores_f32, scores, args.chunk_count * sizeof(float));
}

/* As many ranges as the table holds at a time; two launches each. */
static gf_status cuda_norm(struct gf_queue *queue, gf_mem scratch_f64, gf_type type,
                           const struct gf_norm *ranges, uint32_t count)
{
    uint64_t threads = (type == GF_TYPE_F32) ? 16 : 8; /* a run */
    gf_status status = GF_OK;
    GF_ASSERT(type < GF_TYPE_COUNT);
    for (uint32_t next = 0; (next < count) && (status == GF_OK);) {
        struct gf_norm_args args;
        void *list[] = {&args};
        args.runs = scratch_f64;
        args.count = args.run_count = 0;
        for (; (next < count) && (args.count < GF_KERNEL_NORMS_MAX); next++) {
            if (ranges[next].elem_count == 0) continue;
            args.ranges[args.count].of = ranges[next];
            args.ranges[args.count++].first_run = args.run_count;
            args.run_count += (uint32_t)gf_runs(ranges[next].elem_count);
        }
        if (args.count == 0) break;
        GF_ASSERT(scratch_f64 != 0);
        status =
            start(queue, KERNEL_norm_runs_f32 + (uint32_t)type, args.run_count * threads, &args);
        if (status == GF_OK)
            status = queue->gpu->driver->launch(queue, KERNEL_norm_end, args.count, GF_KERNEL_LANES,
                                                list);
    }
    return status;
}

static gf_status cuda_ratio(struct gf_queue *queue, const struct gf_ratio *ratios, uint32_t count)
{
    gf_status status = GF_OK;
    for (uint32_t next = 0; (next < count) && (status == GF_OK);) {
        struct gf_ratio_args args;
        void *list[] = {&args};
        for (args.count = 0; (next < count) && (args.count < GF_KERNEL_RATIOS_MAX); next++)
            args.of[args.count++] = ratios[next];
        status = queue->gpu->driver->launch(queue, KERNEL_ratio, 1, GF_KERNEL_RATIOS_MAX, list);
    }
    return status;
}

static gf_status accumulate_start(struct gf_queue *queue, struct gf_accumulate_args *args,
                                  uint64_t work)
{
    GF_ASSERT(args->of.src_type < GF_TYPE_COUNT);
    GF_ASSERT((args->of.u_f32 != 0) || (args->of.dst_u_f32 == 0));
    return start(queue, KERNEL_accumulate_f32 + args->of.src_type, work, args);
}

static gf_status cuda_accumulate(struct gf_queue *queue, const struct gf_accumulate *accumulate,
                                 uint64_t elem_count)
{
    struct gf_accumulate_args args = {.of = *accumulate, .elem_count = elem_count};
    return accumulate_start(queue, &args, packs_of(elem_count, 4));
}

static gf_status cuda_accumulate_chunks(struct gf_queue *queue,
                                        const struct gf_accumulate *accumulate,
                                        const struct gf_chunks *chunks)
{
    struct gf_accumulate_args args = {.of = *accumulate, .chunks = *chunks};
    return accumulate_start(queue, &args, chunks_work(chunks));
}

static gf_status cuda_zero_chunks(struct gf_queue *queue, gf_mem dst, gf_type type,
                                  const struct gf_chunks *chunks)
{
    const uint64_t halves = (type == GF_TYPE_F32) ? 2 : 1; /* of 16 bits, an element */
    struct gf_zero_chunks_args args = {.dst = dst, .chunks = *chunks};
    GF_ASSERT(type < GF_TYPE_COUNT);
    args.chunks.chunk_elems *= halves;
    args.chunks.elems *= halves;
    return start(queue, KERNEL_zero_chunks, chunks_work(chunks) * halves, &args);
}

/* Without parts. */
static void update_fill(struct gf_update_args *args, const struct gf_update *update)
{
    GF_ASSERT((update->gradient_type < GF_TYPE_COUNT) && (update->half_type < GF_TYPE_COUNT));
    args->of = *update;
    args->part_count = args->tiles = 0;
    args->chunks = (struct gf_chunks){.count = 0};
}

static void part_add(struct gf_update_args *args, const struct gf_update_part *part)
{
    args->parts[args->part_count] = *part;
    args->parts[args->part_count++].first_tile = args->tiles;
    args->tiles += (uint32_t)((part->elem_count + GF_KERNEL_TILE_ELEMS - 1) / GF_KERNEL_TILE_ELEMS);
}

static gf_status cuda_update_parts(struct gf_queue *queue, const struct gf_update *update,
                                   const struct gf_update_part *parts, uint32_t count)
{
    struct gf_update_args args;
    gf_status status = GF_OK;
    for (uint32_t next = 0; (next < count) && (status == GF_OK);) {
        update_fill(&args, update);
        for (; (next < count) && (args.part_count < GF_KERNEL_PARTS_MAX); next++)
            if (parts[next].elem_count > 0) part_add(&args, &parts[next]);
        uint64_t work = (args.part_count == 1) ? packs_of(args.parts[0].elem_count, 4)
                                               : (uint64_t)args.tiles * GF_KERNEL_THREADS;
        if (args.part_count > 0)
            status = start(queue, KERNEL_update_f32 + (uint32_t)update->gradient_type, work, &args);
    }
    return status;
}

static gf_status cuda_update(struct gf_queue *queue, const struct gf_update *update,
                             uint64_t elem_count)
{
    const struct gf_update_part whole = {0, elem_count, update->ratio_f32, update->decay, 0};
    return cuda_update_parts(queue, update, &whole, 1);
}

static gf_status cuda_update_chunks(struct gf_queue *queue, const struct gf_update *update,
                                    const struct gf_chunks *chunks)
{
    struct gf_update_args args;
    const struct gf_update_part all = {.ratio_f32 = update->ratio_f32, .decay = update->decay};
    update_fill(&args, update);
    part_add(&args, &all);
    args.chunks = *chunks;
    return start(queue, KERNEL_update_f32 + (uint32_t)update->gradient_type, chunks_work(chunks),
                 &args);
}

static gf_status cuda_adam(struct gf_queue *queue, const struct gf_adam *adam, uint64_t elem_count)
{
    struct gf_adam_args args = {.of = *adam, .elem_count = elem_count};
    GF_ASSERT((adam->gradient_type < GF_TYPE_COUNT) && (adam->half_type < GF_TYPE_COUNT));
    return start(queue, KERNEL_adam_f32 + (uint32_t)adam->gradient_type, packs_of(elem_count, 4),
                 &args);
}

const struct gf_element_ops gf_element_ops_cuda = {
    .name = "cuda",
    .cast = cuda_cast,
    .sum = cuda_sum,
    .check = cuda_check,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .sum_n = cuda_sum_n,
    .copy_n = cuda_copy_n,
    .score = cuda_score,
    .accumulate = cuda_accumulate,
    .cast_chunks = cuda_cast_chunks,
    .accumulate_chunks = cuda_accumulate_chunks,
    .zero_chunks = cuda_zero_chunks,
    .norm = cuda_norm,
    .ratio = cuda_ratio,
    .update = cuda_update,
    .update_parts = cuda_update_parts,
    .update_chunks = cuda_update_chunks,
    .adam = cuda_adam,
};

/* The fatbin is linked in by the Makefile where nvcc was found. */
#if GF_WITH_NVCC
extern const char gf_kernels_fatbin[];
extern const uint32_t gf_kernels_fatbin_cuda[];
#else
#define gf_kernels_fatbin NULL
#define gf_kernels_fatbin_cuda NULL
#endif
const struct gf_gpu_kernels gf_gpu_cuda_kernels = {gf_kernels_fatbin, gf_kernels_fatbin_cuda, names,
                                                   sizeof names / sizeof names[0],
                                                   &gf_element_ops_cuda};
