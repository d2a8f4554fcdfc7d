/* The common state at the begin of a generation. If some rank lags, one rank that has the state
 * (the lead) broadcasts weights, momentum, selection, loss scale and step to all. Histories stay
 * each rank's own. A rank that lags has missed one step at most, because the vote of the last step
 * reached only some ranks; or it has missed the gf_update() of that step. A rank that has come in
 * has nothing. In a sparse step that other ranks have ended, they have applied what the lagging
 * rank had sent, so that rank takes it out of its history. What it had not sent of that step's
 * gradient is lost with the step. */
#include <string.h>

#include "drivers/base/bytes.h"
#include "lib/core/regroup.h"
#include "lib/core/accessors.h"
#include "lib/core/device_work.h"
#include "lib/core/extra.h"
#include "lib/device/device.h"

#define FLAG_EMPTY 0x2u
#define FLAG_LOCAL 0x4u
#define FLAG_SKIPPED 0x8u
#define FLAG_OWED 0x10u /* the lead has no whole weights: nobody has */

/* What is small, as it travels in gf->change.words. The flags come first: they are looked at before
 * the rest. */
struct small {
    uint32_t flags;
    float scale;
    uint32_t scale_good, scale_bad;
    uint64_t samples_before;
    uint32_t selected_count;
    uint32_t updates; /* at most UINT32_MAX */
};

static void small_walk(struct gf_walk *walk, struct small *small)
{
    gf_walk_u32(walk, &small->flags);
    gf_walk_bytes(walk, &small->scale, sizeof small->scale);
    gf_walk_u32(walk, &small->scale_good);
    gf_walk_u32(walk, &small->scale_bad);
    gf_walk_u64(walk, &small->samples_before);
    gf_walk_u32(walk, &small->selected_count);
    gf_walk_u32(walk, &small->updates);
}

static void words_put(gf_context *gf)
{
    const struct gf_sparse *sparse = &gf->sparse;
    const uint64_t updates = gf->optimizer.updates;
    struct gf_put to = {(unsigned char *)gf->change.words, sizeof gf->change.words};
    struct small small = {
        .flags = (sparse->history_empty ? FLAG_EMPTY : 0) | (sparse->local_begun ? FLAG_LOCAL : 0) |
                 (gf->skipped_last ? FLAG_SKIPPED : 0) | (gf->given.owed ? FLAG_OWED : 0),
        .scale = gf->loss_scale.value,
        .scale_good = gf->loss_scale.good,
        .scale_bad = gf->loss_scale.bad,
        .samples_before = gf->samples_before,
        .selected_count = sparse->selected_count,
        .updates = (updates < UINT32_MAX) ? (uint32_t)updates : UINT32_MAX,
    };
    small_walk(&(struct gf_walk){.put = &to}, &small);
}

static void words_take(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    struct gf_get from = {.at = (const unsigned char *)gf->change.words,
                          .left = sizeof gf->change.words};
    struct small small;
    small_walk(&(struct gf_walk){.get = &from}, &small);
    sparse->history_empty = (small.flags & FLAG_EMPTY) != 0;
    sparse->local_begun = (small.flags & FLAG_LOCAL) != 0;
    sparse->selected_count = small.selected_count;
    gf->skipped_last = (small.flags & FLAG_SKIPPED) != 0;
    gf->given.owed = gf->given.owed || ((small.flags & FLAG_OWED) != 0);
    gf->loss_scale.value = small.scale;
    gf->loss_scale.good = small.scale_good;
    gf->loss_scale.bad = small.scale_bad;
    gf->samples_before = small.samples_before;
    gf->optimizer.updates = small.updates;
}

static uint32_t words_flags(const gf_context *gf)
{
    return gf_get_u32(
        &(struct gf_get){.at = (const unsigned char *)gf->change.words, .left = sizeof(uint32_t)});
}

/* Has this rank sent chunks in a step whose end it did not see? No step is whole without the vote
 * of each of its ranks: what this rank had packed before its own was applied nowhere. Between steps
 * all that it has sent is out of its history, and the selection is what it sends next. */
static bool has_sent_without_end(const gf_context *gf)
{
    return gf->step.sparse && (gf->step.state >= GF_STEP_VOTED) && !gf_step_is_whole(gf);
}

/* Takes these chunks out of this rank's history: the others have applied them, unless they skipped
 * the step. The lead's words have arrived, its selection has not. Runs once: if the copying fails
 * and begins anew, the selection may have arrived. */
static gf_status history_give_up(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    if ((gf->change.plan.progress.steps == gf->change.own.steps) ||
        ((words_flags(gf) & FLAG_SKIPPED) != 0) || !has_sent_without_end(gf))
        return GF_OK;
    for (uint32_t i = 0; i < sparse->selected_count; i++) {
        uint64_t first = gf_chunk_first(sparse, sparse->selection[i]);
        uint64_t count = gf_chunk_end(sparse, sparse->selection[i]) - first;
        if (gf->ops->zero(&gf->queue, sparse->history + first * sizeof(float),
                          count * sizeof(float)) < 0)
            return gf_device_failed(gf, GF_OPERATION_REGROUP);
    }
    gf->step.sparse = false;
    return GF_OK;
}

/* A request of its own each; regions of state_extra use them in turn. */
enum part {
    PART_WORDS = 0,
    PART_RESTS = 0,
    PART_SELECTION = 0,
    PART_WEIGHT,
    PART_MOMENTUM,
    PART_MOMENT2,
    PART_HALF,
    PART_COUNT
};
_Static_assert(PART_COUNT <= GF_REQUESTS_MAX, "all pools travel at once");

static void part_post(gf_context *gf, uint32_t part, gf_mem data, uint64_t elem_count, gf_type type)
{
    const struct gf_call call = {GF_OPERATION_REGROUP, GF_COLL_BROADCAST, gf->change.plan.lead};
    gf_status status;
    if (elem_count == 0) return;
    status = gf_request_post(gf, call, data, elem_count, type, &gf->change.requests[part]);
    GF_ASSERT(status == GF_OK);
}

/* Posts regions of config.state_extra, as many at once as there are requests. */
static void extra_post(gf_context *gf)
{
    struct gf_change *change = &gf->change;
    for (uint32_t part = 0; part < GF_REQUESTS_MAX; part++) {
        gf_mem data;
        uint64_t words = gf_extra_bulk(gf, &change->extra_next, &data);
        if (words > 0) {
            part_post(gf, part, data, words, GF_TYPE_F32);
            continue;
        }
        change->sync_next = GF_SYNC_RESTS;
        change->extra_first = change->extra_next = 0;
        return;
    }
}

/* Posts one message of the rests; the message before it has arrived. GF_OK: there are no more. */
static gf_status rests_post(gf_context *gf)
{
    struct gf_change *change = &gf->change;
    uint64_t words;
    gf_extra_rests_move(gf, change->extra_first, change->extra_next, false);
    change->extra_first = change->extra_next;
    words = gf_extra_rests(gf, change->extra_first, &change->extra_next);
    if (words == 0) return GF_OK;
    if (gf->rank == change->plan.lead)
        gf_extra_rests_move(gf, change->extra_first, change->extra_next, true);
    part_post(gf, PART_RESTS, (gf_mem)(uintptr_t)gf->extra_stage, words, GF_TYPE_F32);
    return GF_AGAIN;
}

static void words_post(gf_context *gf)
{
    const struct gf_control_progress *mine = &gf->change.own;
    const struct gf_control_progress *common = &gf->change.plan.progress;
    /* Ranks that do not lag receive the bits that they have. */
    if ((mine->steps != common->steps) || (mine->applied != common->applied))
        gf_given_lags(gf, common);
    words_put(gf);
    part_post(gf, PART_WORDS, (gf_mem)(uintptr_t)gf->change.words,
              sizeof gf->change.words / sizeof(float), GF_TYPE_F32);
    gf->change.sync_next = GF_SYNC_POOLS;
}

/* Broadcasts whole pools, gaps included, so that a flat range of a pool is the same range on all
 * ranks. Momentum that is each rank's own (the words say so) is not sent; a rank that had not
 * divided it yet has no share of it. */
_Static_assert(GF_OPTIMIZER_POOLS == 4, "a rank that comes in is given each pool here");
static gf_status pools_post(gf_context *gf)
{
    bool local = (words_flags(gf) & FLAG_LOCAL) != 0;
    uint64_t elems = gf->pool.elem_count;
    uint64_t own = local ? gf->pool.sparse_elem_count : 0;
    gf_status status = history_give_up(gf);
    if (status < 0) return status;
    if ((own > 0) && !gf->sparse.local_begun && (gf->optimizer.momentum != 0) &&
        (gf->ops->zero(&gf->queue, gf->optimizer.momentum, own * sizeof(float)) < 0))
        return gf_device_failed(gf, GF_OPERATION_REGROUP);
    part_post(gf, PART_SELECTION, (gf_mem)(uintptr_t)gf->sparse.selection, gf->sparse.chunk_count,
              GF_TYPE_F32);
    if (gf->optimizer.weight != 0)
        part_post(gf, PART_WEIGHT, gf->optimizer.weight, elems, GF_TYPE_F32);
    if (gf->optimizer.momentum != 0)
        part_post(gf, PART_MOMENTUM, gf->optimizer.momentum + own * sizeof(float), elems - own,
                  GF_TYPE_F32);
    if (gf->optimizer.moment2 != 0)
        part_post(gf, PART_MOMENT2, gf->optimizer.moment2, elems, GF_TYPE_F32);
    if (gf->optimizer.half != 0)
        part_post(gf, PART_HALF, gf->optimizer.half, elems, gf->config.optimizer.half_weights);
    gf->change.sync_next = GF_SYNC_EXTRA;
    gf->change.extra_next = 0;
    return GF_AGAIN;
}

gf_status gf_common_state_progress(gf_context *gf)
{
    if (!gf->change.plan.lags) return GF_OK;
    if (gf_request_progress(gf, NULL) < 0 || (gf->error.code != GF_OK)) return gf->error.code;
    if (!gf_requests_idle(gf)) return GF_AGAIN;
    gf_requests_reset(gf, gf->requests.posted);
    switch (gf->change.sync_next) {
    case GF_SYNC_WORDS: words_post(gf); return GF_AGAIN;
    case GF_SYNC_POOLS: return pools_post(gf);
    case GF_SYNC_EXTRA: extra_post(gf); return GF_AGAIN;
    case GF_SYNC_RESTS: break;
    }
    if (rests_post(gf) == GF_AGAIN) return GF_AGAIN;
    words_take(gf);
    return GF_OK;
}
