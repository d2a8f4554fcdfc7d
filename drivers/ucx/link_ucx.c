/* Messages over UCX (libucp, tag-matched). Each request of UCX lives in the caller's memory: UCX
 * writes its part into gf_req.front and calls back, on the caller's thread from inside a post or
 * progress(), when it has ended. All that is under way is on one list, because some requests can
 * only be ended by destroying the worker (link_ucx_open.c): sends cannot be cancelled at all, nor
 * receives that a large message has met.
 *
 * UCX's error handling (err_mode PEER) is not used. The control channel reports that a peer has
 * ended, and endpoint_lost() that a fabric gave it up.
 *
 * UCX's pools grow with the largest window that was used, which happens in the first steps. Later
 * it allocates now and then, over its tcp for about one message in twenty
 * (test_link_ucx_memory.c).
 *
 * UCX also sets up its connections lazily: the first large message to a peer begins that. If a peer
 * dies before it is done, UCX may end the process ("got REQ message", 1.13 to 1.23). */
#include "drivers/ucx/link_ucx.h"

_Static_assert(sizeof(struct gf_req) == GF_UCX_FRONT_BYTES + 64,
               "our part of a request is one cache line");

/* ---- how a request begins and ends ---- */

static void req_begin(struct gf_ucx *ucx, struct gf_req *req, uint32_t peer, uint64_t tag,
                      size_t size_bytes, bool is_send)
{
    req->ucx = ucx;
    req->size_bytes = size_bytes;
    req->tag = tag;
    req->peer = peer;
    req->is_send = is_send;
    req->head = (struct gf_req_head){.answer = GF_AGAIN};
    req->previous = NULL;
    req->next = ucx->under_way;
    if (req->next != NULL)
        req->next->previous = req;
    else
        ucx->oldest = req;
    ucx->under_way = req;
    ucx->requests_under_way++;
}

void gf_ucx_req_end(struct gf_req *req, gf_status answer)
{
    struct gf_ucx *ucx = req->ucx;
    GF_ASSERT((req->head.answer == GF_AGAIN) && (answer != GF_AGAIN));
    GF_ASSERT(ucx->requests_under_way > 0);
    if (req->next != NULL)
        req->next->previous = req->previous;
    else
        ucx->oldest = req->previous;
    if (req->previous != NULL)
        req->previous->next = req->next;
    else
        ucx->under_way = req->next;
    ucx->requests_under_way--;
    req->head.answer = answer;
}

static void req_end(struct gf_req *req, ucs_status_t status, size_t arrived_bytes)
{
    struct gf_ucx *ucx = req->ucx;
    gf_status answer = GF_OK;
    if (status == UCS_ERR_CANCELED || (ucx->ending && (status != UCS_OK))) {
        answer = GF_ERR_ABORTED;
    } else if (!req->is_send && ((status == UCS_ERR_MESSAGE_TRUNCATED) ||
                                 ((status == UCS_OK) && (arrived_bytes != req->size_bytes)))) {
        answer = gf_ucx_fault(ucx, GF_ERR_MISMATCH, req->peer, "ucp_tag_recv_nbx", UCS_OK,
                              "rank %u sent %zu bytes where rank %u expects %zu (tag %#llx)",
                              req->peer, arrived_bytes, ucx->setup.rank, req->size_bytes,
                              (unsigned long long)req->tag);
    } else if (status != UCS_OK) {
        answer = gf_ucx_fault(
            ucx, GF_ERR_LINK, req->peer, req->is_send ? "ucp_tag_send_nbx" : "ucp_tag_recv_nbx",
            status, "%s rank %u of %zu bytes failed", req->is_send ? "send to" : "receive from",
            req->peer, req->size_bytes);
    }
    gf_ucx_req_end(req, answer);
}

static void send_ended(void *handle, ucs_status_t status, void *user_data)
{
    (void)handle;
    req_end(user_data, status, 0);
}

static void recv_ended(void *handle, ucs_status_t status, const ucp_tag_recv_info_t *info,
                       void *user_data)
{
    (void)handle;
    req_end(user_data, status, info->length);
}

/* ---- posting ---- */

/* The sender's rank lies above the 51 bits of the caller's tag. */
static ucp_tag_t wire_tag(uint32_t sender, uint64_t tag)
{
    return ((uint64_t)sender << GF_TAG_BITS) | tag;
}
_Static_assert(((uint64_t)GF_WORLD_MAX - 1) <= (UINT64_MAX >> GF_TAG_BITS),
               "the sender fits above the tag");

/* What a send and a receive over UCX have in common before UCX is called. GF_OK: the request has
 * begun, and *param_out has UCX's parameters but for the callback. GF_FULL: there is no room for it
 * now. */
static gf_status post_begin(struct gf_ucx *ucx, uint32_t peer, uint64_t tag, gf_mem data,
                            size_t size_bytes, bool is_send, struct gf_req *req,
                            ucp_request_param_t *param_out)
{
    gf_status status;
    GF_ASSERT((peer < ucx->setup.world) && (size_bytes <= ucx->setup.message_bytes_max));
    if (ucx->endpoints[peer] == NULL)
        return gf_ucx_fault(ucx, GF_ERR_STATE, peer, "post", UCS_OK,
                            "rank %u is not connected in generation %u", peer,
                            ucx->setup.generation);
    if (ucx->requests_under_way >= ucx->setup.requests_max) return GF_FULL;
    if ((status = gf_ucx_enter(ucx)) != GF_OK) return status;
    req_begin(ucx, req, peer, tag, size_bytes, is_send);
    *param_out = (ucp_request_param_t){
        .op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .request = gf_ucx_handle(req),
        .user_data = req,
        /* Said, or UCX would look it up for each message. */
        .memory_type = (ucx->gpu == NULL) ? UCS_MEMORY_TYPE_HOST : gf_ucx_memory_type(ucx, data),
    };
    return GF_OK;
}

/* The same after UCX was called. An error: UCX refused, nothing was posted, and no callback
 * follows. */
static gf_status post_end(struct gf_req *req, ucs_status_ptr_t result, const char *call)
{
    struct gf_ucx *ucx = req->ucx;
    gf_status answer;
    gf_ucx_leave(ucx);
    if (!UCS_PTR_IS_ERR(result)) return GF_OK;
    answer = gf_ucx_fault(ucx, GF_ERR_LINK, req->peer, call, UCS_PTR_STATUS(result),
                          "cannot post %zu bytes for rank %u", req->size_bytes, req->peer);
    gf_ucx_req_end(req, answer);
    return answer;
}

static gf_status send_post(struct gf_link *link, uint32_t to, uint64_t tag, gf_mem data,
                           size_t size_bytes, struct gf_req *req)
{
    struct gf_ucx *ucx = gf_ucx_of(link);
    ucp_request_param_t param;
    ucs_status_ptr_t result;
    gf_status status = post_begin(ucx, to, tag, data, size_bytes, true, req, &param);
    if (status != GF_OK) return status;
    param.cb.send = send_ended;
    /* The threshold of UCX for quick completion counts: a slice of a ring goes at once, where UCX
     * would announce it and await the peer's answer (over rc 64 KiB in 0.79 of the speed). */
    param.op_attr_mask |= UCP_OP_ATTR_FLAG_FAST_CMPL;
    result = ucp_tag_send_nbx(ucx->endpoints[to], (const void *)(uintptr_t)data, size_bytes,
                              wire_tag(ucx->setup.rank, tag), &param);
    status = post_end(req, result, "ucp_tag_send_nbx");
    if (status != GF_OK) return status;
    if (result == NULL) gf_ucx_req_end(req, GF_OK); /* done at once: no callback */
    ucx->link.sent_bytes += size_bytes;
    ucx->link.sent_messages++;
    return GF_OK;
}

static gf_status recv_post(struct gf_link *link, uint32_t from, uint64_t tag, gf_mem data,
                           size_t size_bytes, struct gf_req *req)
{
    struct gf_ucx *ucx = gf_ucx_of(link);
    ucp_request_param_t param;
    ucs_status_ptr_t result;
    gf_status status = post_begin(ucx, from, tag, data, size_bytes, false, req, &param);
    if (status != GF_OK) return status;
    param.cb.recv = recv_ended;
    /* Never at once without the callback: it alone learns how long a message was that did not
     * fit. */
    param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    result = ucp_tag_recv_nbx(ucx->worker, (void *)(uintptr_t)data, size_bytes, wire_tag(from, tag),
                              UINT64_MAX, &param);
    status = post_end(req, result, "ucp_tag_recv_nbx");
    GF_ASSERT((status != GF_OK) || (result != NULL));
    return status;
}

static void cancel(struct gf_link *link, struct gf_req *req)
{
    struct gf_ucx *ucx = gf_ucx_of(link);
    GF_ASSERT(req->ucx == ucx);
    if ((req->head.answer != GF_AGAIN) || req->is_send || (gf_ucx_enter(ucx) != GF_OK)) return;
    ucp_request_cancel(ucx->worker, gf_ucx_handle(req));
    gf_ucx_leave(ucx);
}

/* ---- moving and sleeping ---- */

static bool progress(struct gf_link *link)
{
    struct gf_ucx *ucx = gf_ucx_of(link);
    unsigned moved;
    if (!ucx->is_open || (link->failed != GF_OK)) return false;
    if ((link->failed = gf_ucx_enter(ucx)) != GF_OK) return false;
    moved = ucp_worker_progress(ucx->worker);
    gf_ucx_leave(ucx);
    gf_ucx_lines_log(ucx);
    return moved != 0;
}

static bool arm(struct gf_link *link)
{
    struct gf_ucx *ucx = gf_ucx_of(link);
    ucs_status_t status;
    if (!ucx->is_open || (link->failed != GF_OK)) return false;
    status = ucp_worker_arm(ucx->worker);
    if (status == UCS_OK) return true;
    if (status != UCS_ERR_BUSY)
        link->failed = gf_ucx_fault(ucx, GF_ERR_LINK, GF_RANK_NONE, "ucp_worker_arm", status,
                                    "cannot sleep on the link");
    return false;
}

const struct gf_link_driver gf_link_ucx = {
    .name = "ucx",
    .req_size_bytes = sizeof(struct gf_req),
    .endpoint_bytes_max = GF_UCX_ENDPOINT_BYTES_MAX,
    .state_bytes = gf_ucx_state_bytes,
    .may_reach_device = gf_ucx_may_reach_device,
    .probe = gf_ucx_probe,
    .open = gf_ucx_open,
    .close = gf_ucx_close,
    .endpoint = gf_ucx_endpoint,
    .connect = gf_ucx_connect,
    .send_post = send_post,
    .recv_post = recv_post,
    .test = gf_req_answer,
    .cancel = cancel,
    .progress = progress,
    .edge_is_broken = gf_ucx_edge_is_broken,
    .arm = arm,
    .reset = gf_ucx_reset,
    .drop = gf_ucx_drop,
};
