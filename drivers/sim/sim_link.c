/* The link driver of a simulated rank: checks what callers promise, keeps requests. Its region:
 * sim_region.c. */
#include "drivers/sim/sim_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct sim_request) <= SIM_REQUEST_BYTES,
               "a request fits in the bytes told for it");

struct sim_endpoint {
    uint32_t proc, generation, life;
};

gf_status sim_dead(const struct sim_rank *self, struct gf_fault *fault, const char *call)
{
    return gf_fault_set(fault, GF_ERR_ABORTED, self->rank, call, 0, "rank %u was killed",
                        self->rank);
}

/* ---- requests ---- */

void sim_request_end(struct sim_rank *self, struct sim_request *request, gf_status status)
{
    GF_ASSERT((request->status == GF_AGAIN) && (status != GF_AGAIN));
    request->status = status;
    if (request->previous != NULL)
        request->previous->next = request->next;
    else
        self->requests = request->next;
    if (request->next != NULL) request->next->previous = request->previous;
    self->request_count--;
    self->sim->counts.requests_ended++;
    self->has_moved = true;
    sim_wake(self);
}

/* Ends a request that its message has not ended. */
static void request_abort(struct sim_rank *self, struct sim_request *request)
{
    if (request->is_send) {
        if (request->message != NULL) { /* still in the port, and unread */
            request->message->is_lost = true;
            request->message->send = NULL;
        }
    } else if (!request->is_bound) {
        sim_receive_withdraw(self, request);
    } else if (request->message != NULL) {
        request->message->bound = NULL;
        request->message->is_lost = true;
    }
    sim_request_end(self, request, GF_ERR_ABORTED);
}

/* What both posts have in common. GF_OK: *fault_out is the fault that affects the message. */
static gf_status post_begin(struct sim_link *link, const char *call, uint32_t peer,
                            size_t size_bytes, const struct gf_req *req,
                            struct gf_sim_fault *fault_out)
{
    struct sim_rank *self = link->self;
    struct gf_sim *sim = self->sim;
    struct gf_fault *fault = &link->base.fault;
    GF_ASSERT((req != NULL) && (((uintptr_t)req & 63) == 0));
    GF_ASSERT((peer < link->setup.world) && (size_bytes <= link->setup.message_bytes_max));
    if (self->is_dead) return sim_dead(self, fault, call);
    if (link->peers[peer].life == 0)
        return gf_fault_set(fault, GF_ERR_STATE, peer, call, 0,
                            "rank %u was not connected to by rank %u", peer, link->setup.rank);
    /* the end of one of them wakes the rank */
    if (self->request_count >= link->setup.requests_max) return GF_FULL;
    sim->posts++;
    self->posts++;
    *fault_out = (struct gf_sim_fault){.kind = GF_SIM_FAULT_NONE};
    for (uint32_t i = 0; i < sim->setup.fault_count; i++) {
        const struct gf_sim_fault *each = &sim->setup.faults[i];
        if (each->kind == GF_SIM_FAULT_NONE) continue;
        if ((each->rank != GF_RANK_NONE) && (each->rank != self->rank)) continue;
        if (each->at == ((each->rank == GF_RANK_NONE) ? sim->posts : self->posts))
            *fault_out = *each;
    }
    if (fault_out->kind != GF_SIM_FAULT_NONE) sim->counts.fault_met = true;
    switch (fault_out->kind) {
    case GF_SIM_FAULT_FULL: sim_wake(self); return GF_FULL;
    case GF_SIM_FAULT_ERROR:
        return gf_fault_set(fault, GF_ERR_LINK, peer, call, -1,
                            "post %llu of rank %u fails, as it was told to",
                            (unsigned long long)self->posts, self->rank);
    case GF_SIM_FAULT_KILL: gf_sim_kill(sim, self->rank); return sim_dead(self, fault, call);
    case GF_SIM_FAULT_STOP: /* the post itself still happens */
        gf_sim_stop(sim, self->rank, true);
        if (fault_out->delay_ns > 0) {
            self->resume_ns = sim->now_ns + fault_out->delay_ns;
            sim_event_push(sim, self->resume_ns, SIM_RESUME, self);
        }
        return GF_OK;
    default: return GF_OK;
    }
}

static void request_begin(struct sim_rank *self, struct sim_request *request)
{
    request->next = self->requests;
    if (request->next != NULL) request->next->previous = request;
    self->requests = request;
    self->request_count++;
    self->sim->counts.requests_posted++;
}

static gf_status link_send_post(struct gf_link *base, uint32_t to, uint64_t tag, gf_mem data,
                                size_t size_bytes, struct gf_req *req)
{
    struct sim_link *link = sim_link(base);
    struct sim_rank *self = link->self;
    struct sim_request *request = (struct sim_request *)req;
    struct gf_sim_fault fault;
    gf_status status = post_begin(link, "send_post", to, size_bytes, req, &fault);
    if (status != GF_OK) return status;
    *request = (struct sim_request){.entry = {.tag = tag},
                                    .data = data,
                                    .size_bytes = size_bytes,
                                    .status = GF_AGAIN,
                                    .peer = to,
                                    .is_send = true};
    sim_message_send(self, request, &link->peers[to], &fault);
    request_begin(self, request);
    self->sim->counts.messages_sent++;
    self->sim->counts.bytes_sent += size_bytes;
    base->sent_messages++;
    base->sent_bytes += size_bytes;
    return GF_OK;
}

static gf_status link_recv_post(struct gf_link *base, uint32_t from, uint64_t tag, gf_mem data,
                                size_t size_bytes, struct gf_req *req)
{
    struct sim_link *link = sim_link(base);
    struct sim_rank *self = link->self;
    struct sim_request *request = (struct sim_request *)req;
    struct gf_sim_fault fault;
    gf_status status = post_begin(link, "recv_post", from, size_bytes, req, &fault);
    if (status != GF_OK) return status;
    *request = (struct sim_request){.entry = {.tag = tag, .from = from},
                                    .data = data,
                                    .size_bytes = size_bytes,
                                    .status = GF_AGAIN,
                                    .peer = from,
                                    .fault = fault.kind,
                                    .delay_ns = fault.delay_ns};
    request_begin(self, request);
    sim_receive(self, request);
    return GF_OK;
}

static gf_status link_test(struct gf_link *base, struct gf_req *req)
{
    struct sim_rank *self = sim_link(base)->self;
    struct sim_request *request = (struct sim_request *)req;
    if (self->is_stopped) return GF_AGAIN;
    if (self->is_dead && (request->status == GF_AGAIN)) request_abort(self, request);
    return request->status;
}

static void link_cancel(struct gf_link *base, struct gf_req *req)
{
    struct sim_request *request = (struct sim_request *)req;
    if ((request->status != GF_AGAIN) || request->is_send || request->is_bound) return;
    request_abort(sim_link(base)->self, request);
}

static bool link_progress(struct gf_link *base)
{
    struct sim_link *link = sim_link(base);
    struct sim_rank *self = link->self;
    if (self->is_dead) base->failed = sim_dead(self, &base->fault, "progress");
    if (self->is_dead || self->is_stopped) return false;
    const bool moved = self->has_moved;
    self->has_moved = false;
    return moved;
}

/* ---- open, connect, reset, close ---- */

static void requests_forget(struct sim_link *link)
{
    struct sim_rank *self = link->self;
    while (self->requests != NULL) request_abort(self, self->requests);
    sim_unexpected_clear(self);
    sim_streams_forget(self);
    memset(link->peers, 0, self->sim->setup.world * sizeof *link->peers);
}

static void link_forget(struct sim_link *link)
{
    requests_forget(link);
    sim_region_give(link);
}

/* A new region and a new life of the link: messages under way to the life before are lost. */
static gf_status link_begin(struct sim_link *link, uint32_t generation, struct gf_fault *fault)
{
    link->setup.generation = generation;
    link->self->life++;
    if (link->setup.rank < link->self->sim->setup.world)
        link->peers[link->setup.rank] =
            (struct sim_peer){.proc = link->self->rank, .life = link->self->life};
    return (link->base.region == NULL) ? sim_region_take(link, fault) : GF_OK;
}

static size_t link_state_bytes(const struct gf_link_setup *setup)
{
    const struct sim_rank *self = setup->arg;
    return sizeof(struct sim_link) + self->sim->setup.world * sizeof(struct sim_peer);
}

static bool link_may_reach_device(const struct gf_link_setup *setup)
{
    const struct sim_rank *self = setup->arg;
    uint64_t ranks = self->sim->setup.device_ranks;
    return (ranks == UINT64_MAX) || ((self->rank < 64) && ((ranks >> self->rank) & 1u));
}

static gf_status link_open(const struct gf_link_setup *setup, void *state,
                           struct gf_link **link_out, struct gf_fault *fault_out)
{
    struct sim_rank *self = setup->arg;
    struct sim_link *link = state;
    GF_ASSERT((self != NULL) && (((uintptr_t)state & 63) == 0));
    GF_ASSERT((setup->world <= self->sim->setup.world) && (self->link == NULL));
    if (self->is_dead) return sim_dead(self, fault_out, "open");
    memset(link, 0, link_state_bytes(setup));
    link->base.driver = &sim_link_driver;
    link->base.wake_fd = -1;
    link->peers = (struct sim_peer *)(link + 1);
    link->base.region_bytes = setup->region_bytes;
    link->base.device = self->sim->setup.node_port ? self->card + 1 : 0;
    link->self = self;
    link->setup = *setup;
    link->base.reaches_device =
        (setup->gpu != NULL) && (setup->device_bytes > 0) && link_may_reach_device(setup);
    if (!link->base.reaches_device) link->setup.device_bytes = 0;
    gf_status status = link_begin(link, setup->generation, fault_out);
    if (status != GF_OK) return status;
    self->link = link;
    *link_out = &link->base;
    return GF_OK;
}

static void link_close(struct gf_link *base)
{
    struct sim_link *link = sim_link(base);
    link_forget(link);
    link->self->link = NULL;
}

static gf_status link_reset(struct gf_link *base, uint32_t generation, uint32_t rank,
                            uint32_t world)
{
    struct sim_link *link = sim_link(base);
    GF_ASSERT((rank < world) && (world <= link->setup.ranks_max));
    link->setup.rank = rank;
    link->setup.world = world;
    if (link->self->is_dead) return sim_dead(link->self, &base->fault, "reset");
    link_forget(link);
    base->fault = (struct gf_fault){.code = GF_OK};
    base->failed = GF_OK;
    return link_begin(link, generation, &base->fault);
}

/* Messages under way to this life are lost, as at a reset; the region stays. */
static void link_drop(struct gf_link *base)
{
    struct sim_link *link = sim_link(base);
    requests_forget(link);
    link->self->life++;
}

static gf_status link_endpoint(struct gf_link *base, void *endpoint_out, size_t *size_bytes_out)
{
    struct sim_link *link = sim_link(base);
    struct sim_endpoint endpoint = {link->self->rank, link->setup.generation, link->self->life};
    if (link->self->is_dead) return sim_dead(link->self, &base->fault, "endpoint");
    memcpy(endpoint_out, &endpoint, sizeof endpoint);
    *size_bytes_out = sizeof endpoint;
    return GF_OK;
}

static gf_status link_connect(struct gf_link *base, uint32_t peer, const void *endpoint_in,
                              size_t size_bytes)
{
    struct sim_link *link = sim_link(base);
    struct sim_rank *self = link->self;
    struct sim_endpoint endpoint;
    if (self->is_dead) return sim_dead(self, &base->fault, "connect");
    if (peer == link->setup.rank) return GF_OK;
    GF_ASSERT((peer < link->setup.world) && (size_bytes == sizeof endpoint));
    if (link->peers[peer].life != 0) return GF_OK;
    memcpy(&endpoint, endpoint_in, sizeof endpoint);
    GF_ASSERT((endpoint.proc != self->rank) && (endpoint.proc < self->sim->setup.world) &&
              (endpoint.generation == link->setup.generation));
    link->peers[peer] = (struct sim_peer){.proc = endpoint.proc, .is_dialled = true};
    if (!sim_stream_connects(self, endpoint.proc)) return GF_AGAIN;
    link->peers[peer].life = endpoint.life;
    return GF_OK;
}

const struct gf_link_driver sim_link_driver = {
    .name = "sim",
    .simulated = true,
    .req_size_bytes = SIM_REQUEST_BYTES,
    .endpoint_bytes_max = sizeof(struct sim_endpoint),
    .state_bytes = link_state_bytes,
    .may_reach_device = link_may_reach_device,
    .open = link_open,
    .close = link_close,
    .endpoint = link_endpoint,
    .connect = link_connect,
    .send_post = link_send_post,
    .recv_post = link_recv_post,
    .test = link_test,
    .cancel = link_cancel,
    .progress = link_progress,
    .edge_is_broken = sim_edge_is_broken,
    .map = sim_map,
    .flag_store = sim_flag_store,
    .reset = link_reset,
    .drop = link_drop,
};
