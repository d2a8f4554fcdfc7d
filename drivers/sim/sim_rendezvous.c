/* The control channel of simulated ranks, each connected to the coordinator: rank 0, later another.
 * A connection stands as soon as the coordinator is open and both ends name it; its frames take
 * FRAME_NS and keep their order. */
#include "drivers/sim/sim_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_NS 20000u
#define FIRST_COORDINATOR 0u
#define REJOIN_NS 1000000u              /* until a rank that seeks a coordinator looks (again) */
#define UNHEARD_NS UINT64_C(1000000000) /* a process that polls answers whoever connects, at once */

static struct sim_rendezvous *sim_rendezvous(struct gf_rendezvous *rendezvous)
{
    return (struct sim_rendezvous *)rendezvous;
}

static struct sim_frame *frame_send(struct gf_sim *sim, uint32_t from, uint32_t to,
                                    gf_rendezvous_event_kind kind, uint64_t at_ns,
                                    uint32_t size_bytes)
{
    struct sim_frame *frame = calloc(1, sizeof *frame + size_bytes);
    GF_ASSERT(frame != NULL);
    frame->event = (struct gf_rendezvous_event){.kind = kind,
                                                .rank = from,
                                                .size_bytes = size_bytes,
                                                .payload = frame->payload,
                                                .text = ""};
    frame->to = to;
    sim_event_push(sim, at_ns, SIM_FRAME, frame);
    return frame;
}

static void wire_begin(struct gf_sim *sim, uint32_t rank, uint32_t coordinator)
{
    struct sim_rank *near = &sim->ranks[rank];
    struct sim_rank *far = &sim->ranks[coordinator];
    uint64_t at_ns = sim->now_ns + FRAME_NS;
    if ((near->rendezvous == NULL) || (far->rendezvous == NULL) || near->is_dead || far->is_dead)
        return;
    if ((near->rendezvous->coordinator != coordinator) ||
        (far->rendezvous->coordinator != coordinator))
        return;
    /* after the end of the last one */
    if (near->wire_quiet_ns > at_ns) at_ns = near->wire_quiet_ns;
    struct sim_frame *up = frame_send(sim, rank, coordinator, GF_RENDEZVOUS_CONNECTED, at_ns, 0);
    struct sim_frame *down = frame_send(sim, coordinator, rank, GF_RENDEZVOUS_CONNECTED, at_ns, 0);
    up->event.rejoins = near->rendezvous->rejoins;
    up->near = down->near = rank;
    up->near_starts = down->near_starts = near->starts;
}

/* `from` no longer answers; `to` learns it after all frames that are under way. */
static struct sim_frame *wire_end(struct gf_sim *sim, uint32_t from, uint32_t to,
                                  uint64_t detect_ns, const char *text, gf_rendezvous_end end)
{
    const struct sim_rank *self = &sim->ranks[from];
    bool to_coordinates = (self->rendezvous == NULL) || (self->rendezvous->coordinator != from);
    struct sim_rank *near = &sim->ranks[to_coordinates ? from : to];
    uint64_t at_ns = sim->now_ns + ((detect_ns > FRAME_NS) ? detect_ns : FRAME_NS);
    struct sim_frame *frame = frame_send(sim, from, to, GF_RENDEZVOUS_ENDED, at_ns, 0);
    near->wire_quiet_ns = at_ns;
    frame->near = near->rank;
    frame->event.text = text;
    frame->event.end = end;
    return frame;
}

void gf_sim_give_up(struct gf_sim *sim, uint32_t a, uint32_t b)
{
    sim_channels_give_up(sim, a, b);
    if ((a >= sim->setup.world) || (b >= sim->setup.world)) return;
    sim_held_drop(sim, a, b);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t to = (i == 0) ? a : b;
        uint32_t from = (i == 0) ? b : a;
        if (sim->ranks[to].wires[from])
            wire_end(sim, from, to, 0, "connection timed out", GF_END_CUT)->is_own = true;
    }
}

void sim_wires_end(struct sim_rank *self, const char *text)
{
    struct gf_sim *sim = self->sim;
    uint32_t coordinator;
    if (self->rendezvous == NULL) return;
    coordinator = self->rendezvous->coordinator;
    if ((coordinator != self->rank) && (coordinator != GF_RANK_NONE))
        (void)wire_end(sim, self->rank, coordinator, sim->setup.detect_ns, text, GF_END_GONE);
    /* also those who only want to come */
    for (uint32_t rank = 0; rank < sim->setup.world; rank++) {
        const struct sim_rank *other = &sim->ranks[rank];
        if ((rank != self->rank) && (other->rendezvous != NULL) &&
            (other->rendezvous->coordinator == self->rank))
            (void)wire_end(sim, self->rank, rank, sim->setup.detect_ns, text, GF_END_GONE);
    }
}

static bool is_coordinator(const struct gf_sim *sim, uint32_t rank)
{
    const struct sim_rank *self = &sim->ranks[rank];
    return !self->is_dead && (self->rendezvous != NULL) && (self->rendezvous->coordinator == rank);
}

/* Who has begun to connect still means to, as the same process, and the other one coordinates. */
static bool connects_still(const struct gf_sim *sim, const struct sim_frame *frame)
{
    const struct sim_rank *near = &sim->ranks[frame->near];
    uint32_t far = (frame->near == frame->to) ? frame->event.rank : frame->to;
    return !near->is_dead && (near->rendezvous != NULL) && (near->starts == frame->near_starts) &&
           (near->rendezvous->coordinator == far) &&
           (near->rendezvous->rejoins || is_coordinator(sim, far));
}

/* Its thread is stopped, or at work; or a stranger has its port. */
static bool is_away(const struct sim_rank *self)
{
    return self->is_stopped || self->is_dead || (self->free_ns > self->sim->now_ns);
}

/* Was the coordinator not there in all of that time? */
static bool is_unheard(const struct sim_rendezvous *rendezvous, const struct sim_frame *frame)
{
    const struct sim_rank *far = &rendezvous->self->sim->ranks[frame->event.rank];
    return (rendezvous->reforms == frame->unheard) && !rendezvous->self->wires[far->rank] &&
           is_away(far) && (far->polled_ns + UNHEARD_NS < rendezvous->self->sim->now_ns);
}

void sim_frame_happen(struct gf_sim *sim, struct sim_frame *frame)
{
    struct sim_rank *to = &sim->ranks[frame->to];
    struct sim_rendezvous *rendezvous = to->rendezvous;
    const uint32_t from = frame->event.rank;
    bool *up = &to->wires[from], connects = (frame->event.kind == GF_RENDEZVOUS_CONNECTED);
    bool ends = (frame->event.kind == GF_RENDEZVOUS_ENDED), is_lost;
    if (!frame->is_own && sim_hold(sim, from, frame->to, SIM_FRAME, frame)) return;
    is_lost = (rendezvous == NULL) || to->is_dead || /* nobody is there, or not any more */
              (connects && !connects_still(sim, frame));
    if (!is_lost) {
        bool awaited = (rendezvous->coordinator == from);
        bool again = connects && awaited && rendezvous->rejoins && !is_coordinator(sim, from);
        /* not the end of a connection in the other direction, which stood before */
        bool refuses = ends && awaited && rendezvous->was_reformed && (frame->near == frame->to);
        /* it has contacted another, or coordinates by now */
        bool elsewhere = connects && !awaited &&
                         ((rendezvous->coordinator != frame->to) || (frame->near == frame->to));
        if (again) { /* it has died or contacted another meanwhile: once more */
            rendezvous->coordinator = GF_RANK_NONE;
            gf_sim_wake_at(sim, frame->to, sim->now_ns + REJOIN_NS);
        }
        is_lost = again || elsewhere || ((*up == connects) && !refuses) ||
                  ((frame->unheard != 0) && !is_unheard(rendezvous, frame));
    }
    if (is_lost) {
        free(frame);
        return;
    }
    if (connects || ends) *up = connects;
    rendezvous->was_connected = true;
    if (rendezvous->last != NULL)
        rendezvous->last->next = frame;
    else
        rendezvous->first = frame;
    rendezvous->last = frame;
    sim_wake(to);
}

/* Rank 0 listens at the address of the job, then a coordinator once it is free. Where `seeker` is cut
 * off from that one, another may have the address on its side. */
static uint32_t job_listener_find(struct gf_sim *sim, uint32_t seeker)
{
    uint32_t found = GF_RANK_NONE;
    for (uint32_t rank = 0; rank < sim->setup.world; rank++) {
        if (sim->ranks[rank].is_stopped || !is_coordinator(sim, rank)) continue;
        if (!is_coordinator(sim, sim->job_listener)) sim->job_listener = rank;
        if ((found == GF_RANK_NONE) && !sim_are_cut(sim, seeker, rank)) found = rank;
    }
    if (!is_coordinator(sim, sim->job_listener)) return GF_RANK_NONE;
    return sim_are_cut(sim, seeker, sim->job_listener) ? found : sim->job_listener;
}

/* By the simulator's time: that of a rank which was stopped is behind it. */
static void rejoin(struct sim_rendezvous *rendezvous)
{
    struct sim_rank *self = rendezvous->self;
    uint32_t coordinator = job_listener_find(self->sim, self->rank);
    if (coordinator == GF_RANK_NONE) return;
    if (self->sim->ranks[coordinator].wires[self->rank]) return; /* its old connection stands */
    rendezvous->coordinator = coordinator;
    wire_begin(self->sim, self->rank, coordinator);
}

static void rejoin_begin(struct sim_rendezvous *rendezvous)
{
    struct sim_rank *self = rendezvous->self;
    rendezvous->rejoins = true;
    rendezvous->was_reformed = false;
    rendezvous->coordinator = GF_RANK_NONE;
    gf_sim_wake_at(self->sim, self->rank, self->sim->now_ns + REJOIN_NS);
}

static size_t rendezvous_state_bytes(const struct gf_rendezvous_setup *setup)
{
    (void)setup;
    return sizeof(struct sim_rendezvous);
}

static gf_status rendezvous_open(const struct gf_rendezvous_setup *setup, void *state,
                                 uint64_t now_ns, struct gf_rendezvous **rendezvous_out,
                                 struct gf_fault *fault_out)
{
    struct sim_rank *self = setup->arg;
    struct sim_rendezvous *rendezvous = state;
    GF_ASSERT((self != NULL) && (state != NULL));
    struct gf_sim *sim = self->sim;
    GF_ASSERT((setup->rank == self->rank) && (setup->world == sim->setup.world) &&
              (self->rendezvous == NULL));
    if (self->is_dead) return sim_dead(self, fault_out, "open");
    *rendezvous = (struct sim_rendezvous){.base.driver = &sim_rendezvous_driver,
                                          .self = self,
                                          .join_until_ns = UINT64_MAX,
                                          .coordinator = FIRST_COORDINATOR};
    self->rendezvous = rendezvous;
    memset(self->wires, 0, sim->setup.world * sizeof *self->wires);
    bool waits = setup->rejoin || (self->rank != FIRST_COORDINATOR);
    if (setup->rejoin)
        rejoin_begin(rendezvous);
    else if (waits)
        wire_begin(sim, self->rank, FIRST_COORDINATOR);
    for (uint32_t rank = 1; !waits && (rank < sim->setup.world); rank++)
        wire_begin(sim, rank, FIRST_COORDINATOR);
    if (waits && (setup->join_timeout_ns > 0) && (setup->join_timeout_ns < UINT64_MAX - now_ns)) {
        rendezvous->join_until_ns = now_ns + setup->join_timeout_ns;
        gf_sim_wake_at(sim, self->rank, rendezvous->join_until_ns + 1);
    }
    *rendezvous_out = &rendezvous->base;
    return GF_OK;
}

static gf_status rendezvous_send(struct gf_rendezvous *base, uint32_t to, uint32_t frame_kind,
                                 const void *payload, uint32_t size_bytes)
{
    struct sim_rendezvous *rendezvous = sim_rendezvous(base);
    struct sim_rank *self = rendezvous->self;
    struct gf_sim *sim = self->sim;
    GF_ASSERT(size_bytes <= GF_FRAME_PAYLOAD_MAX);
    if (self->is_dead) return sim_dead(self, &base->fault, "send");
    if ((to >= sim->setup.world) || !self->wires[to]) return GF_ERR_PEER;
    struct sim_frame *frame =
        frame_send(sim, self->rank, to, GF_RENDEZVOUS_FRAME, sim->now_ns + FRAME_NS, size_bytes);
    frame->event.frame_kind = frame_kind;
    if (size_bytes > 0) memcpy(frame->payload, payload, size_bytes);
    base->sent_bytes += size_bytes;
    return GF_OK;
}

static gf_status rendezvous_poll(struct gf_rendezvous *base, uint64_t now_ns,
                                 struct gf_rendezvous_event *event_out)
{
    struct sim_rendezvous *rendezvous = sim_rendezvous(base);
    struct sim_rank *self = rendezvous->self;
    struct sim_frame *frame = rendezvous->first;
    if (self->is_dead) return sim_dead(self, &base->fault, "poll");
    if (self->is_stopped) return GF_AGAIN;
    self->polled_ns = self->sim->now_ns;
    if (rendezvous->coordinator == GF_RANK_NONE) rejoin(rendezvous);
    free(rendezvous->current);
    rendezvous->current = frame;
    if (frame == NULL) {
        if (rendezvous->was_connected || (now_ns <= rendezvous->join_until_ns)) return GF_AGAIN;
        return gf_fault_set(&base->fault, GF_ERR_TIMEOUT, rendezvous->coordinator, "connect", 0,
                            "rank %u cannot reach the coordinator: it is not there", self->rank);
    }
    rendezvous->first = frame->next;
    if (frame->next == NULL) rendezvous->last = NULL;
    *event_out = frame->event;
    if (rendezvous->rejoins && (event_out->rank == rendezvous->coordinator) &&
        (event_out->kind == GF_RENDEZVOUS_CONNECTED)) {
        rendezvous->rejoins = false;
        rendezvous->was_reformed = true;
    }
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

static void rendezvous_address(struct gf_rendezvous *base, char *text_out)
{
    (void)snprintf(text_out, GF_CONTROL_ADDRESS_BYTES, "sim:%u", sim_rendezvous(base)->self->rank);
}

/* Frames of a connection that this rank has closed are not read any more. */
static void queue_forget(struct sim_rendezvous *rendezvous, uint32_t from)
{
    struct sim_frame **at = &rendezvous->first;
    rendezvous->last = NULL;
    while (*at != NULL) {
        struct sim_frame *frame = *at;
        if (frame->event.rank == from) {
            *at = frame->next;
            free(frame);
        } else {
            rendezvous->last = frame;
            at = &frame->next;
        }
    }
}

/* Where nothing answers there until then. */
static void silent_look(struct sim_rendezvous *rendezvous, uint32_t coordinator)
{
    struct sim_rank *self = rendezvous->self;
    struct sim_frame *frame = frame_send(self->sim, coordinator, self->rank, GF_RENDEZVOUS_ENDED,
                                         self->sim->now_ns + FRAME_NS + UNHEARD_NS, 0);
    frame->near = self->rank;
    frame->unheard = rendezvous->reforms;
    frame->event.text = "what listens at its port says nothing";
    frame->event.end = GF_END_SILENT;
}

static gf_status rendezvous_reform(struct gf_rendezvous *base, uint64_t now_ns,
                                   uint32_t coordinator, const char *address)
{
    struct sim_rendezvous *rendezvous = sim_rendezvous(base);
    struct sim_rank *self = rendezvous->self;
    struct gf_sim *sim = self->sim;
    char expected[GF_CONTROL_ADDRESS_BYTES];
    (void)now_ns;
    (void)snprintf(expected, sizeof expected, "sim:%u", coordinator);
    GF_ASSERT((coordinator == GF_RANK_NONE) || (coordinator == self->rank) ||
              ((coordinator < sim->setup.world) && (strcmp(address, expected) == 0)));
    if ((coordinator == rendezvous->coordinator) && (coordinator != GF_RANK_NONE) &&
        ((coordinator == self->rank) || self->wires[coordinator]))
        return GF_OK;
    rendezvous->was_reformed = true;
    for (uint32_t rank = 0; rank < sim->setup.world; rank++) {
        if (rank == self->rank) continue;
        const struct sim_rendezvous *other = sim->ranks[rank].rendezvous;
        bool comes = (other != NULL) && other->rejoins && (other->coordinator == self->rank);
        if (self->wires[rank] || comes)
            (void)wire_end(sim, self->rank, rank, 0, "contacted another coordinator", GF_END_LEFT);
        self->wires[rank] = false;
        queue_forget(rendezvous, rank);
    }
    rendezvous->coordinator = coordinator;
    rendezvous->rejoins = false;
    rendezvous->reforms++;
    if (coordinator == GF_RANK_NONE) {
        rejoin_begin(rendezvous);
        return GF_AGAIN;
    }
    if (coordinator != self->rank) {
        const struct sim_rank *far = &sim->ranks[coordinator];
        if ((far->is_dead && !far->port_is_held) || (far->rendezvous == NULL)) {
            struct sim_frame *refused = frame_send(sim, coordinator, self->rank,
                                                   GF_RENDEZVOUS_ENDED, sim->now_ns + FRAME_NS, 0);
            refused->near = self->rank;
            refused->event.text = "connection refused";
        } else {
            wire_begin(sim, self->rank, coordinator); /* or once it coordinates */
            if (is_away(far)) silent_look(rendezvous, coordinator);
        }
        return GF_AGAIN;
    }
    for (uint32_t rank = 0; rank < sim->setup.world; rank++) {
        const struct sim_rendezvous *other = sim->ranks[rank].rendezvous;
        if (rank != self->rank) wire_begin(sim, rank, self->rank);
        /* it seeks one, and may sleep */
        if ((other != NULL) && (other->coordinator == GF_RANK_NONE))
            gf_sim_wake_at(sim, rank, sim->now_ns + REJOIN_NS);
    }
    return GF_OK;
}

const struct gf_rendezvous_driver sim_rendezvous_driver = {
    .name = "sim",
    .state_bytes = rendezvous_state_bytes,
    .open = rendezvous_open,
    .send = rendezvous_send,
    .poll = rendezvous_poll,
    .wake_fd = rendezvous_wake_fd,
    .flushed = rendezvous_flushed,
    .address = rendezvous_address,
    .reform = rendezvous_reform,
    .close = rendezvous_close,
};
