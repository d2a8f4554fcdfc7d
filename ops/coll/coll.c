/* What all collectives share: starting, polling with a deadline, draining after a failure, and
 * messages in slots.
 *     RUN -> DONE      any error -> DRAIN -> FAILED, once no request is under way */
#include "ops/coll.h"

void gf_coll_block_of(uint64_t elem_count, uint64_t block_elems, uint32_t index,
                      uint64_t *first_out, uint64_t *count_out)
{
    uint64_t first = block_elems * index;
    if (first > elem_count) first = elem_count;
    *first_out = first;
    *count_out = (elem_count - first < block_elems) ? elem_count - first : block_elems;
}

void gf_coll_block(uint64_t elem_count, uint32_t size, uint32_t index, uint64_t *first_out,
                   uint64_t *count_out)
{
    gf_coll_block_of(elem_count, elem_count / size + (elem_count % size != 0), index, first_out,
                     count_out);
}

static void messages_begin(struct gf_coll *coll)
{
    struct gf_coll_limits limits = {
        .size = coll->size, .slice_bytes = coll->slice_bytes, .window = coll->window};
    struct gf_coll_need need = {0};
    limits.bytes_max = coll->bytes;
    GF_ASSERT((coll->window > 0) && (coll->window <= GF_COLL_WINDOW_MAX) && (coll->timeout_ns > 0));
    coll->kind->need(coll->kind, &limits, &need);
    GF_ASSERT((need.msg_count <= coll->msg_count) && (need.staging_bytes <= coll->staging_bytes));
    for (uint32_t i = 0; i < need.msg_count; i++) { /* the others were not used since they ended */
        coll->msgs[i].active = false;
    }
}

gf_status gf_coll_start(struct gf_coll *coll, uint64_t now_ns)
{
    size_t elem_bytes = gf_coll_elem_bytes(coll);
    GF_ASSERT((coll->state != GF_COLL_RUN) && (coll->state != GF_COLL_DRAIN));
    GF_ASSERT((coll->index < coll->size) && (coll->plan.root < coll->size));
    GF_ASSERT((coll->plan.type < GF_TYPE_COUNT) &&
              gf_coll_offers(coll->kind, coll->plan.collective));
    GF_ASSERT((elem_bytes > 0) && (elem_bytes <= GF_COLL_ELEM_BYTES_MAX) &&
              (elem_bytes <= coll->slice_bytes));
    GF_ASSERT(coll->plan.elem_count <= UINT64_MAX / GF_COLL_ELEM_BYTES_MAX);
    GF_ASSERT((coll->async == NULL) || (coll->plan.reduce == NULL));
    coll->bytes =
        (coll->plan.collective == GF_COLL_BARRIER) ? 0 : coll->plan.elem_count * elem_bytes;
    if (!coll->kind->in_memory) messages_begin(coll);
    coll->error = GF_OK;
    coll->start_progressed = false;
    coll->waits_for = GF_RANK_NONE;
    coll->awaits_device = coll->awaits_core = false;
    coll->moved_ns = now_ns;
    coll->bytes_done = 0;
    coll->bytes_mapped = 0;
    coll->state = (coll->size == 1) ? GF_COLL_DONE : GF_COLL_RUN;
    return (coll->size == 1) ? GF_OK : coll->kind->start(coll);
}

/* waits_for keeps the value that it had when the collective failed. */
static gf_status coll_drain(struct gf_coll *coll)
{
    bool active = false;
    for (uint32_t i = 0; i < coll->msg_count; i++) {
        struct gf_coll_msg *msg = &coll->msgs[i];
        if (msg->active) msg->active = coll->link->driver->test(coll->link, msg->req) == GF_AGAIN;
        active = active || msg->active;
    }
    if (active) return GF_AGAIN;
    coll->state = GF_COLL_FAILED;
    return coll->error;
}

void gf_coll_fail(struct gf_coll *coll, gf_status error)
{
    GF_ASSERT(error < 0);
    if (coll->state != GF_COLL_RUN) return;
    coll->state = GF_COLL_DRAIN;
    coll->error = error;
    for (uint32_t i = 0; i < coll->msg_count; i++) {
        struct gf_coll_msg *msg = &coll->msgs[i];
        if (msg->active) coll->link->driver->cancel(coll->link, msg->req);
    }
}

gf_status gf_coll_poll(struct gf_coll *coll, uint64_t now_ns)
{
    gf_status status = GF_ERR_STATE;
    switch (coll->state) {
    case GF_COLL_IDLE: return GF_ERR_STATE;
    case GF_COLL_RUN: status = coll->kind->progress(coll, now_ns); break;
    case GF_COLL_DRAIN: return coll_drain(coll);
    case GF_COLL_DONE: return GF_OK;
    case GF_COLL_FAILED: return coll->error;
    }
    if ((status == GF_AGAIN) && (now_ns - coll->moved_ns > coll->timeout_ns))
        status = GF_ERR_TIMEOUT;
    if (status < 0) {
        gf_coll_fail(coll, status);
        return coll_drain(coll);
    }
    if (status == GF_OK) coll->state = GF_COLL_DONE;
    return status;
}

/* A post that failed is its peer's fault. */
gf_status gf_coll_post(struct gf_coll *coll, uint32_t msg, uint32_t peer, uint64_t number,
                       gf_mem data, size_t bytes, bool is_send)
{
    const struct gf_link_driver *driver = coll->link->driver;
    struct gf_coll_msg *slot = &coll->msgs[msg];
    gf_status status;
    GF_ASSERT((peer < coll->size) && (peer != coll->index));
    GF_ASSERT((msg < coll->msg_count) && !slot->active);
    if (bytes == 0) return GF_OK;
    slot->peer = gf_rank_at(coll->ranks, peer);
    status = (is_send ? driver->send_post : driver->recv_post)(
        coll->link, slot->peer, gf_tag_message(coll->plan.tag, number), data, bytes, slot->req);
    slot->active = status == GF_OK;
    if (status < 0) coll->waits_for = slot->peer;
    if (slot->active && is_send) coll->bytes_done += bytes;
    return (status == GF_FULL) ? GF_AGAIN : status; /* in the next poll */
}

gf_status gf_coll_test(struct gf_coll *coll, uint32_t msg)
{
    struct gf_coll_msg *slot = &coll->msgs[msg];
    gf_status status;
    GF_ASSERT(msg < coll->msg_count);
    if (!slot->active) return GF_OK;
    status = coll->link->driver->test(coll->link, slot->req);
    if (status == GF_AGAIN) return GF_AGAIN;
    slot->active = false;
    if (status < 0) coll->waits_for = slot->peer;
    return status;
}

gf_status gf_coll_reduce(struct gf_coll *coll, uint64_t first_elem, gf_mem src, uint64_t elem_count)
{
    gf_mem dst = coll->plan.data + first_elem * gf_coll_elem_bytes(coll);
    GF_ASSERT((first_elem <= coll->plan.elem_count) &&
              (elem_count <= coll->plan.elem_count - first_elem));
    if (elem_count == 0) return GF_OK;
    if (coll->plan.reduce != NULL)
        return coll->plan.reduce(coll->plan.reduce_arg, dst, src, elem_count);
    return coll->ops->sum(coll->queue, dst, src, coll->plan.type, elem_count,
                          coll->plan.base + first_elem, coll->check);
}
