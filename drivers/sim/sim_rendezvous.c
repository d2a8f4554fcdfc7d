/* The control channel of simulated ranks: a star around rank 0. A connection stands as soon as both ends are open, its
 * frames take FRAME_NS and keep their order. */
#include "sim_state.h"

#include <stdlib.h>
#include <string.h>

#define FRAME_NS 20000u
#define COORDINATOR 0u

static struct sim_rendezvous *sim_rendezvous(struct gf_rendezvous *rendezvous)
{
    return (struct sim_rendezvous *)rendezvous;
}

/* Each connection belongs to its end that is not the coordinator. */
static bool *wire_up(struct gf_sim *sim, uint32_t at, uint32_t other)
{
    return (at == COORDINATOR) ? &sim->ranks[other].far_up : &sim->ranks[at].near_up;
}

static struct sim_frame *frame_send(struct gf_sim *sim, uint32_t from, uint32_t to, gf_rendezvous_event_kind kind,
                                    uint64_t at_ns, uint32_t size_bytes)
{
    struct sim_frame *frame = calloc(1, sizeof *frame + size_bytes);
    GF_ASSERT(frame != NULL);
    frame->kind = kind;
    frame->from = from;
    frame->to = to;
    frame->size_bytes = size_bytes;
    sim_event_push(sim, at_ns, SIM_FRAME, frame);
    return frame;
}

static void wire_begin(struct gf_sim *sim, uint32_t rank)
{
    struct sim_rank *near = &sim->ranks[rank], *far = &sim->ranks[COORDINATOR];
    uint64_t at_ns = sim->now_ns + FRAME_NS;
    if ((near->rendezvous == NULL) || (far->rendezvous == NULL) || near->is_dead || far->is_dead) return;
    if (near->wire_quiet_ns > at_ns) at_ns = near->wire_quiet_ns; /* behind the end of the last one */
    (void)frame_send(sim, rank, COORDINATOR, GF_RENDEZVOUS_CONNECTED, at_ns, 0);
    (void)frame_send(sim, COORDINATOR, rank, GF_RENDEZVOUS_CONNECTED, at_ns, 0);
}

/* `from` no longer answers; `to` learns it behind all frames that are under way. */
static void wire_end(struct gf_sim *sim, uint32_t from, uint32_t to, const char *text)
{
    uint64_t detect_ns = (sim->setup.detect_ns > FRAME_NS) ? sim->setup.detect_ns : FRAME_NS;
    struct sim_rank *near = &sim->ranks[(from == COORDINATOR) ? to : from];
    near->wire_quiet_ns = sim->now_ns + detect_ns;
    frame_send(sim, from, to, GF_RENDEZVOUS_ENDED, near->wire_quiet_ns, 0)->text = text;
}

void sim_wires_end(struct sim_rank *self, const char *text)
{
    struct gf_sim *sim = self->sim;
    if (self->rendezvous == NULL) return;
    if (self->rank != COORDINATOR) {
        wire_end(sim, self->rank, COORDINATOR, text);
        return;
    }
    for (uint32_t rank = 1; rank < sim->setup.world; rank++) {
        if (sim->ranks[rank].rendezvous != NULL) wire_end(sim, COORDINATOR, rank, text);
    }
}

void sim_frame_happen(struct gf_sim *sim, struct sim_frame *frame)
{
    struct sim_rank *to = &sim->ranks[frame->to];
    struct sim_rendezvous *rendezvous = to->rendezvous;
    bool *up = wire_up(sim, frame->to, frame->from);
    if (sim_hold(sim, frame->from, frame->to, SIM_FRAME, frame)) return;
    if ((rendezvous == NULL) || to->is_dead || (*up == (frame->kind == GF_RENDEZVOUS_CONNECTED))) {
        free(frame); /* nobody is there, or not any more */
        return;
    }
    if (frame->kind != GF_RENDEZVOUS_FRAME) *up = (frame->kind == GF_RENDEZVOUS_CONNECTED);
    rendezvous->was_connected = true;
    if (rendezvous->last != NULL) {
        rendezvous->last->next = frame;
    } else {
        rendezvous->first = frame;
    }
    rendezvous->last = frame;
    sim_wake(to);
}

static size_t rendezvous_state_bytes(const struct gf_rendezvous_setup *setup)
{
    (void)setup;
    return sizeof(struct sim_rendezvous);
}

static gf_status rendezvous_open(const struct gf_rendezvous_setup *setup, void *state, uint64_t now_ns,
                                 struct gf_rendezvous **rendezvous_out, struct gf_fault *fault_out)
{
    struct sim_rank *self = setup->arg;
    struct sim_rendezvous *rendezvous = state;
    GF_ASSERT((self != NULL) && (state != NULL));
    struct gf_sim *sim = self->sim;
    if (self->is_dead) {
        return gf_fault_set(fault_out, GF_ERR_ABORTED, self->rank, "open", 0, "rank %u was killed", self->rank);
    }
    if ((setup->rank != self->rank) || (setup->world > sim->setup.world)) {
        return gf_fault_set(fault_out, GF_ERR_PARAM, GF_RANK_NONE, "open", 0,
                            "rank %u of %u opens with the drivers of rank %u of %u", setup->rank, setup->world,
                            self->rank, sim->setup.world);
    }
    if (self->rendezvous != NULL) {
        return gf_fault_set(fault_out, GF_ERR_STATE, GF_RANK_NONE, "open", 0, "rank %u has an open control channel",
                            self->rank);
    }
    *rendezvous = (struct sim_rendezvous){.base.driver = &sim_rendezvous_driver, .self = self,
                                          .join_until_ns = UINT64_MAX};
    self->rendezvous = rendezvous;
    if (self->rank != COORDINATOR) {
        self->near_up = false;
        wire_begin(sim, self->rank);
        if ((setup->join_timeout_ns > 0) && (setup->join_timeout_ns < UINT64_MAX - now_ns)) {
            rendezvous->join_until_ns = now_ns + setup->join_timeout_ns;
            gf_sim_wake_at(sim, self->rank, rendezvous->join_until_ns + 1);
        }
    } else {
        for (uint32_t rank = 1; rank < sim->setup.world; rank++) {
            sim->ranks[rank].far_up = false;
            wire_begin(sim, rank);
        }
    }
    *rendezvous_out = &rendezvous->base;
    return GF_OK;
}

static gf_status rendezvous_send(struct gf_rendezvous *base, uint32_t to, uint32_t frame_kind, const void *payload,
                                 uint32_t size_bytes)
{
    struct sim_rendezvous *rendezvous = sim_rendezvous(base);
    struct sim_rank *self = rendezvous->self;
    struct gf_sim *sim = self->sim;
    if (self->is_dead) {
        return gf_fault_set(&base->fault, GF_ERR_ABORTED, self->rank, "send", 0, "rank %u was killed", self->rank);
    }
    if (size_bytes > GF_FRAME_PAYLOAD_MAX) {
        return gf_fault_set(&base->fault, GF_ERR_PARAM, to, "send", 0, "a frame of %u bytes; at most %u", size_bytes,
                            GF_FRAME_PAYLOAD_MAX);
    }
    bool is_wire = (to < sim->setup.world) && ((to == COORDINATOR) != (self->rank == COORDINATOR));
    if (!is_wire || !*wire_up(sim, self->rank, to)) return GF_ERR_PEER;
    struct sim_frame *frame = frame_send(sim, self->rank, to, GF_RENDEZVOUS_FRAME, sim->now_ns + FRAME_NS, size_bytes);
    frame->frame_kind = frame_kind;
    if (size_bytes > 0) memcpy(frame->payload, payload, size_bytes);
    base->sent_bytes += size_bytes;
    return GF_OK;
}

static gf_status rendezvous_poll(struct gf_rendezvous *base, uint64_t now_ns, struct gf_rendezvous_event *event_out)
{
    struct sim_rendezvous *rendezvous = sim_rendezvous(base);
    struct sim_rank *self = rendezvous->self;
    struct sim_frame *frame = rendezvous->first;
    if (self->is_dead) {
        return gf_fault_set(&base->fault, GF_ERR_ABORTED, self->rank, "poll", 0, "rank %u was killed", self->rank);
    }
    if (self->is_stopped) return GF_AGAIN;
    free(rendezvous->current);
    rendezvous->current = frame;
    if (frame == NULL) {
        if (rendezvous->was_connected || (now_ns <= rendezvous->join_until_ns)) return GF_AGAIN;
        return gf_fault_set(&base->fault, GF_ERR_TIMEOUT, COORDINATOR, "connect", 0,
                            "rank %u cannot reach the coordinator: it is not there", self->rank);
    }
    rendezvous->first = frame->next;
    if (frame->next == NULL) rendezvous->last = NULL;
    *event_out = (struct gf_rendezvous_event){.kind = frame->kind, .rank = frame->from,
                                              .frame_kind = frame->frame_kind, .size_bytes = frame->size_bytes,
                                              .payload = frame->payload, .text = frame->text ? frame->text : ""};
    return GF_OK;
}

static int rendezvous_wake_fd(struct gf_rendezvous *base)
{
    (void)base;
    return -1;
}

static bool rendezvous_flushed(struct gf_rendezvous *base)
{
    (void)base;
    return true;
}

static void rendezvous_close(struct gf_rendezvous *base)
{
    struct sim_rendezvous *rendezvous = sim_rendezvous(base);
    struct sim_rank *self = rendezvous->self;
    if (!self->is_dead) sim_wires_end(self, "closed by peer"); /* a dead rank's have ended */
    self->rendezvous = NULL;
    free(rendezvous->current);
    while (rendezvous->first != NULL) {
        struct sim_frame *frame = rendezvous->first;
        rendezvous->first = frame->next;
        free(frame);
    }
}

const struct gf_rendezvous_driver sim_rendezvous_driver = {
    .name = "sim",
    .state_bytes = rendezvous_state_bytes,
    .open = rendezvous_open,
    .send = rendezvous_send,
    .poll = rendezvous_poll,
    .wake_fd = rendezvous_wake_fd,
    .flushed = rendezvous_flushed,
    .close = rendezvous_close,
};
