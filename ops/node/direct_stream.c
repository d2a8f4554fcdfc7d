/* Direct in device memory (direct_device.c) where streams store flags and wait for them: the CPU
 * queues all of an operation at once, before anything is packed, and no poll of it stands between
 * packing, summing and gathering.
 *
 *     CPU       TELL -> MEET -> QUEUE -> WATCH -> done
 *     packs     what data is made by, store PACKED
 *     sums      wait for all PACKED, sum of the own block, store SUMMED
 *     gathers   wait for all SUMMED, copy of the others' blocks, store READ, wait for all READ
 *
 * TELL and MEET are the CPU's flags, as on the host: where data lies, and that all ranks are in the
 * same operation. So a stream waits only for what the other rank has queued already, or queues
 * without waiting for anyone; and as all ranks queue operations in one order, no two wait for each
 * other, not even where CUDA puts all streams of a device into one of its work queues.
 *
 * A wait has no deadline of its own. The CPU watches the flags, and where a rank stays away it
 * gives up: it stores the stop word in all regions, which each later kernel looks at before it
 * touches data, a peer's or its own; then it stores the flags that its streams wait for, again and
 * again until they have ended, as a peer that lives may store smaller ones. What its streams then
 * store says too much, but the stop word is there before: who finds it never ends the operation. */
#include "ops/node/direct.h"

enum stream_state { STREAM_TELL, STREAM_MEET, STREAM_QUEUE, STREAM_WATCH };

_Static_assert(STREAM_TELL == 0, "where gf_direct_device_start() begins");
_Static_assert(GF_DIRECT_RANKS_MAX <= GF_GPU_FLAGS_MAX, "one call for all ranks");

/* In all regions, this rank's too, so that its CPU sees how far its device is. */
static gf_status store(struct gf_coll *coll, struct gf_queue *queue, uint64_t step)
{
    struct gf_gpu_flag flags[GF_DIRECT_RANKS_MAX];
    for (uint32_t turn = 0; turn < coll->size; turn++) {
        uint32_t index = (coll->index + turn) % coll->size;
        gf_mem region = gf_direct_region(coll, index);
        if (region == 0) return gf_direct_lost(coll, index);
        flags[turn] = (struct gf_gpu_flag){.at = region + gf_direct_device_at(coll, coll->index),
                                           .value = gf_direct_flag_value(coll, step)};
    }
    return queue->gpu->driver->flags(queue, flags, coll->size);
}

static void own_store(const struct gf_coll *coll, size_t at, uint64_t value)
{
    __atomic_store_n((uint64_t *)(uintptr_t)(gf_direct_region(coll, coll->index) + at), value,
                     __ATOMIC_RELEASE);
}

static gf_status await(struct gf_coll *coll, struct gf_queue *queue, uint64_t step)
{
    struct gf_gpu_flag flags[GF_DIRECT_RANKS_MAX];
    for (uint32_t turn = 1; turn < coll->size; turn++) {
        uint32_t index = (coll->index + turn) % coll->size;
        flags[turn - 1] = (struct gf_gpu_flag){.at = gf_direct_region(coll, coll->index) +
                                                     gf_direct_device_at(coll, index),
                                               .value = gf_direct_flag_value(coll, step),
                                               .is_wait = true};
    }
    return queue->gpu->driver->flags(queue, flags, coll->size - 1);
}

static gf_status all_queue(struct gf_coll *coll)
{
    struct gf_direct *direct = coll->own.direct;
    struct gf_queue *sums = &direct->sums;
    struct gf_queue *gathers = &direct->gathers;
    const struct gf_gpu_driver *driver = sums->gpu->driver;
    /* packs may hold more by now, that stands for long */
    gf_status status = driver->follow(sums, coll->event);
    if (status >= 0) status = await(coll, sums, GF_DIRECT_PACKED);
    if (status >= 0) status = gf_direct_block_sum(coll, sums);
    if (status >= 0) status = store(coll, sums, GF_DIRECT_SUMMED);
    if (status >= 0) status = driver->lead(sums, gathers->stream);
    if (status >= 0) status = await(coll, gathers, GF_DIRECT_SUMMED);
    if (status >= 0) status = gf_direct_blocks_gather(coll, gathers);
    if (status >= 0) status = store(coll, gathers, GF_DIRECT_READ);
    if (status >= 0) status = await(coll, gathers, GF_DIRECT_READ);
    return (status >= 0) ? driver->mark(gathers, coll->event) : status;
}

/* Who is waited for, and whether somebody has come since: for the deadline, and for who asks. */
static void flags_look(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_direct_state *direct = gf_direct_of(coll);
    while (direct->steps <= GF_DIRECT_READ) {
        for (; direct->arrived < coll->size; direct->arrived++, coll->moved_ns = now_ns) {
            /* itself last */
            uint32_t index = (uint32_t)(coll->index + 1 + direct->arrived) % coll->size;
            uint64_t flag = gf_flag_load(coll->link, gf_direct_device_at(coll, index));
            coll->waits_for = GF_RANK_NONE;
            if (flag >= gf_direct_flag_value(coll, direct->steps)) continue;
            if (index != coll->index) coll->waits_for = gf_direct_id(coll, index);
            return;
        }
        direct->steps++;
        direct->arrived = 0;
    }
}

/* GF_OK: the device is done, and no rank has given up. */
static gf_status watch(struct gf_coll *coll, uint64_t now_ns)
{
    gf_status status = coll->queue->gpu->driver->reached(coll->queue->gpu, coll->event);
    uint64_t stop = gf_flag_load(coll->link, gf_direct_stop_at(coll->own.direct));
    coll->awaits_device = true; /* it wakes nobody */
    flags_look(coll, now_ns);
    /* all flags are there */
    if ((stop != 0) && (status == GF_OK)) coll->waits_for = (uint32_t)(stop - 1);
    return (status < 0) ? status : ((status == GF_OK) && (stop == 0)) ? GF_OK : GF_AGAIN;
}

static gf_status stream_progress(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_direct_state *direct = gf_direct_of(coll);
    struct gf_queue *packs;
    gf_status status;
    for (;;) {
        switch ((enum stream_state)direct->state) {
        case STREAM_TELL:
            packs = &coll->own.direct->packs;
            if ((status = store(coll, packs, GF_DIRECT_PACKED)) < 0) return status;
            if ((status = packs->gpu->driver->mark(packs, coll->event)) < 0) return status;
            if ((status = gf_direct_signal(coll)) < 0) return status;
            coll->moved_ns = now_ns;
            direct->state = STREAM_MEET;
            break;
        case STREAM_MEET:
            if ((status = gf_direct_wait(coll, now_ns)) != GF_OK) return status;
            direct->arrived = 0;
            direct->state = STREAM_QUEUE;
            break;
        case STREAM_QUEUE:
            coll->awaits_device = true;
            if (!coll->own.direct->may_queue) return GF_AGAIN;
            direct->queued = true;
            if ((status = all_queue(coll)) < 0) return status;
            coll->moved_ns = now_ns;
            direct->steps = GF_DIRECT_PACKED;
            direct->state = STREAM_WATCH;
            break;
        case STREAM_WATCH: return watch(coll, now_ns);
        }
    }
}

/* The others first: their devices read what this one's streams store from now on. */
static void stop_tell(struct gf_coll *coll)
{
    const struct gf_link_driver *driver = coll->link->driver;
    uint32_t id = gf_direct_id(coll, coll->index);
    size_t at = gf_direct_stop_at(coll->own.direct);
    for (uint32_t turn = 1; turn < coll->size; turn++) {
        uint32_t index = (coll->index + turn) % coll->size;
        if (gf_direct_region(coll, index) != 0)
            driver->flag_store(coll->link, gf_direct_id(coll, index), at, id + 1);
    }
    own_store(coll, at, id + 1);
}

static gf_status stream_end(struct gf_coll *coll)
{
    struct gf_direct *direct = coll->own.direct;
    struct gf_queue *const queues[] = {&direct->sums, &direct->gathers};
    gf_status status = GF_OK;
    if (!direct->state.stopped) stop_tell(coll);
    direct->state.stopped = true;
    if (!direct->state.queued) return GF_OK;
    for (uint32_t index = 0; index < coll->size; index++)
        own_store(coll, gf_direct_device_at(coll, index),
                  gf_direct_flag_value(coll, GF_DIRECT_READ));
    for (uint32_t q = 0; q < 2; q++)
        if (queues[q]->gpu->driver->finished(queues[q]) == GF_AGAIN) status = GF_AGAIN;
    return status;
}

const struct gf_coll_kind gf_coll_direct_stream = {
    .name = "direct",
    .in_memory = true,
    .collectives = 1u << GF_COLL_ALLREDUCE,
    .need = gf_direct_device_need,
    .start = gf_direct_device_start,
    .turn = stream_progress,
    .end = stream_end,
};
