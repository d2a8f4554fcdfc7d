/* Direct in device memory: ranks of one node whose devices reach each other's memory (NVLink or
 * PCIe). Blocks and order of adding are those of direct.c, so the bits are the same; data
 * never passes the host, only flags do:
 *
 *     SIGNAL -> WAIT -> SUM -> FINISH       packed: all ranks' data is there; this block is summed
 *            -> SIGNAL -> WAIT -> GATHER -> FINISH    summed: the others' blocks are copied
 *            -> SIGNAL -> WAIT -> done                read: all ranks have copied
 *
 * A rank writes to its own memory alone and reads the others': first all ranks' share of its block,
 * then the blocks that the others have summed. The bytes that cross are those of writing the sum to
 * all ranks. But a rank that an old generation left behind, and that still runs, cannot write into
 * memory that is in use again. No flag could prevent that: unlike an exchange region, device memory
 * is not mapped anew.
 *
 * A device works asynchronously: an event follows what it was given, and the CPU sets a flag only
 * once that event is complete. The CPU waits for its own device by the event and for its peers by
 * flags, and only then queues the sum or the copy. No stream ever waits for another process. So
 * streams may share one of the device's work queues, launches may block, and another library's
 * waits may stand in the same queue. README.md says why this is right. A reduce-scatter ends with
 * the second barrier, and an allgather leaves out the sum and its barrier: hierarchy is made of
 * these halves. Data is complete before start. */
#include "ops/node/direct.h"

#include "ops/ops.h"

enum device_state { DEVICE_SIGNAL, DEVICE_WAIT, DEVICE_FINISH };
_Static_assert(DEVICE_SIGNAL == 0, "where device_start() begins");
enum { BARRIER_PACKED = 1, BARRIER_SUMMED, BARRIER_READ }; /* flags given */

static gf_status device_start(struct gf_coll *coll)
{
    GF_ASSERT((coll->async != NULL) && (coll->own.direct->exported != NULL));
    GF_ASSERT(coll->size <= coll->own.direct->flag_ranks);
    GF_ASSERT(coll->plan.data - coll->own.direct->exported[coll->index] <=
              coll->own.direct->region_bytes);
    gf_direct_begin(coll);
    gf_direct_of(coll)->block_elems = gf_direct_block_elems(coll);
    return GF_OK;
}

static void block_of(struct gf_coll *coll, uint32_t index, uint64_t *first_out, uint64_t *count_out)
{
    gf_coll_block_of(coll->plan.elem_count, gf_direct_of(coll)->block_elems, index, first_out,
                     count_out);
}

/* Element `first` of a rank's data, as this rank's device reaches it. */
static gf_mem data_at(const struct gf_coll *coll, uint32_t index, uint64_t first)
{
    gf_mem data = coll->plan.data;
    if (index != coll->index)
        data = coll->own.direct->exported[index] + gf_direct_of(coll)->where[index];
    return data + first * gf_coll_elem_bytes(coll);
}

/* This rank's block of all ranks, into its own memory. */
static gf_status block_sum(struct gf_coll *coll, struct gf_queue *queue)
{
    gf_mem src[GF_DIRECT_RANKS_MAX];
    gf_mem dst;
    uint64_t first;
    uint64_t count;
    block_of(coll, coll->index, &first, &count);
    if (count == 0) return GF_OK;
    for (uint32_t index = 0; index < coll->size; index++) src[index] = data_at(coll, index, first);
    dst = data_at(coll, coll->index, first);
    coll->bytes_mapped += count * gf_coll_elem_bytes(coll) * (coll->size - 1);
    return coll->ops->sum_n(queue, &dst, 1, src, coll->size, coll->plan.type, count,
                            coll->plan.base + first, coll->check, coll->sources);
}

/* The others' blocks: large ones by copy engines, which take no multiprocessor, all others by one
 * kernel. */
static gf_status blocks_gather(struct gf_coll *coll, struct gf_queue *queue)
{
    gf_mem dst[GF_DIRECT_RANKS_MAX];
    gf_mem src[GF_DIRECT_RANKS_MAX];
    uint64_t bytes[GF_DIRECT_RANKS_MAX];
    uint32_t count = 0;
    gf_status status = GF_OK;
    for (uint32_t distance = 1; (distance < coll->size) && (status >= 0); distance++) {
        uint32_t index = gf_direct_after(coll, distance);
        uint64_t first;
        uint64_t elems;
        block_of(coll, index, &first, &elems);
        dst[count] = data_at(coll, coll->index, first);
        src[count] = data_at(coll, index, first);
        bytes[count] = elems * gf_coll_elem_bytes(coll);
        coll->bytes_mapped += bytes[count];
        if (bytes[count] < coll->own.direct->engine_bytes)
            count++;
        else
            status = queue->gpu->driver->copy(queue, dst[count], src[count], bytes[count]);
    }
    return (status < 0) ? status : coll->ops->copy_n(queue, dst, src, bytes, count);
}

static bool has_ended(const struct gf_coll *coll)
{
    uint64_t last = (coll->plan.collective == GF_COLL_ALLREDUCE) ? BARRIER_READ : BARRIER_SUMMED;
    return coll->own.direct->state.barriers == last;
}

/* Queues what the flags of all ranks allow, and the event after it. */
static gf_status work_queue(struct gf_coll *coll)
{
    struct gf_direct *direct = coll->own.direct;
    bool sums =
        (direct->state.barriers == BARRIER_PACKED) && (coll->plan.collective != GF_COLL_ALLGATHER);
    struct gf_queue *queue = sums ? &direct->sums : &direct->gathers;
    gf_status status = (sums ? block_sum : blocks_gather)(coll, queue);
    return (status < 0) ? status : queue->gpu->driver->event_record(queue, coll->event);
}

static gf_status device_progress(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_direct_state *direct = gf_direct_of(coll);
    const struct gf_gpu_driver *driver = coll->queue->gpu->driver;
    gf_status status;
    for (;;) {
        switch ((enum device_state)direct->state) {
        case DEVICE_SIGNAL:
            if ((status = gf_direct_signal(coll)) < 0) return status;
            coll->moved_ns = now_ns;
            direct->state = DEVICE_WAIT;
            break;
        case DEVICE_WAIT:
            if ((status = gf_direct_flags_poll(coll, now_ns)) != GF_OK) return status;
            if (has_ended(coll)) return GF_OK;
            if ((status = work_queue(coll)) < 0) return status;
            direct->state = DEVICE_FINISH;
            break;
        case DEVICE_FINISH:
            status = driver->event_query(coll->queue->gpu, coll->event);
            coll->awaits_device = (status == GF_AGAIN);
            if (status != GF_OK) return status;
            direct->state = DEVICE_SIGNAL;
            break;
        }
    }
}

static void device_need(const struct gf_coll_kind *kind, const struct gf_coll_limits *limits,
                        struct gf_coll_need *need_out)
{
    (void)kind, (void)limits;
    *need_out = (struct gf_coll_need){0};
}

const struct gf_coll_kind gf_coll_direct_device = {
    .name = "direct",
    .in_memory = true,
    .collectives = 1u << GF_COLL_ALLREDUCE | 1u << GF_COLL_REDUCE_SCATTER | 1u << GF_COLL_ALLGATHER,
    .need = device_need,
    .start = device_start,
    .progress = device_progress,
};
