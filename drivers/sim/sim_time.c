/* Virtual time: the heap of events, and which ranks are to be woken. */
#include "drivers/sim/sim_state.h"

#include <stdlib.h>

static bool event_before(const struct sim_event *a, const struct sim_event *b)
{
    return (a->at_ns != b->at_ns) ? (a->at_ns < b->at_ns) : (a->order < b->order);
}

void sim_event_push(struct gf_sim *sim, uint64_t at_ns, enum sim_event_kind kind, void *subject)
{
    struct sim_event event = {.at_ns = at_ns, .subject = subject};
    size_t at = sim->event_count;
    GF_ASSERT(at_ns >= sim->now_ns);
    if (at == sim->event_room) {
        sim->event_room = (at == 0) ? 1024 : 2 * at;
        sim->events = realloc(sim->events, sim->event_room * sizeof *sim->events);
        GF_ASSERT(sim->events != NULL);
    }
    event.order = (sim->event_serial++ << SIM_EVENT_KIND_BITS) | kind;
    sim->event_count++;
    while (at > 0) {
        size_t parent = (at - 1) / 4;
        if (!event_before(&event, &sim->events[parent])) break;
        sim->events[at] = sim->events[parent];
        at = parent;
    }
    sim->events[at] = event;
}

static struct sim_event event_pop(struct gf_sim *sim)
{
    struct sim_event first = sim->events[0];
    struct sim_event last = sim->events[--sim->event_count];
    size_t at = 0;
    for (;;) {
        size_t child = 4 * at + 1;
        size_t best = child;
        if (child >= sim->event_count) break;
        for (size_t other = child + 1; (other < child + 4) && (other < sim->event_count); other++) {
            if (event_before(&sim->events[other], &sim->events[best])) best = other;
        }
        if (!event_before(&sim->events[best], &last)) break;
        sim->events[at] = sim->events[best];
        at = best;
    }
    sim->events[at] = last;
    return first;
}

static void event_happen(struct gf_sim *sim)
{
    struct sim_event event = event_pop(sim);
    enum sim_event_kind kind = sim_event_kind(&event);
    struct sim_rank *self = event.subject;
    sim->now_ns = event.at_ns;
    switch (kind) {
    case SIM_SEND_END:
    case SIM_ARRIVE:
    case SIM_CLIMB:
    case SIM_LAND: sim_message_happen(sim, kind, event.subject); break;
    case SIM_PACKET: sim_packet_happen(sim, event.subject); break;
    case SIM_FLAG: sim_flag_happen(sim, event.subject); break;
    case SIM_RESEND: sim_stream_happen(sim, event.subject); break;
    case SIM_WAKE:
        if (event.at_ns == self->free_ns) self->wakes_free = false;
        sim_wake(self);
        break;
    case SIM_RESUME:
        /* else that stop was ended or prolonged by hand */
        if (self->resume_ns == event.at_ns) sim_resume(self);
        break;
    }
}

uint64_t gf_sim_now_ns(const struct gf_sim *sim)
{
    return sim->now_ns;
}

/* Passes events that wake no rank (a first byte at a port), so that after each call some woken rank
 * has something to do. Never stops between two events of one time. */
bool gf_sim_advance(struct gf_sim *sim)
{
    if (sim->event_count == 0) return false;
    sim->is_stirred = false;
    while ((sim->event_count > 0) && (!sim->is_stirred || (sim->events[0].at_ns == sim->now_ns)))
        event_happen(sim);
    return true;
}

void gf_sim_advance_to(struct gf_sim *sim, uint64_t now_ns)
{
    while ((sim->event_count > 0) && (sim->events[0].at_ns <= now_ns)) event_happen(sim);
    if (now_ns > sim->now_ns) sim->now_ns = now_ns;
}

void sim_wake(struct sim_rank *self)
{
    struct gf_sim *sim = self->sim;
    if (!gf_sim_runs(sim, self->rank)) return; /* sim_resume() wakes it */
    if (self->free_ns > sim->now_ns) {         /* when its work is done */
        if (!self->wakes_free) sim_event_push(sim, self->free_ns, SIM_WAKE, self);
        self->wakes_free = true;
        return;
    }
    sim->is_stirred = true;
    if (self->is_queued) return;
    self->is_queued = true;
    sim->woken[(sim->woken_first + sim->woken_count++) % sim->proc_count] = self->rank;
}

void gf_sim_wake_at(struct gf_sim *sim, uint32_t rank, uint64_t at_ns)
{
    struct sim_rank *self = &sim->ranks[rank];
    if (at_ns <= sim->now_ns)
        sim_wake(self);
    else if (at_ns != self->wake_ns) { /* a deadline is often asked for at each poll */
        self->wake_ns = at_ns;
        sim_event_push(sim, at_ns, SIM_WAKE, self);
    }
}

void gf_sim_work(struct gf_sim *sim, uint32_t rank, uint64_t work_ns)
{
    struct sim_rank *self = &sim->ranks[rank];
    self->free_ns = gf_sim_free_ns(sim, rank) + work_ns;
    self->wakes_free = false; /* the end before it wakes no rank */
}

uint64_t gf_sim_free_ns(const struct gf_sim *sim, uint32_t rank)
{
    uint64_t free_ns = sim->ranks[rank].free_ns;
    return (free_ns > sim->now_ns) ? free_ns : sim->now_ns;
}

uint32_t gf_sim_woken_next(struct gf_sim *sim)
{
    while (sim->woken_count > 0) {
        struct sim_rank *self = &sim->ranks[sim->woken[sim->woken_first]];
        sim->woken_first = (sim->woken_first + 1) % sim->proc_count;
        sim->woken_count--;
        self->is_queued = false;
        if (gf_sim_runs(sim, self->rank) && (self->free_ns <= sim->now_ns)) return self->rank;
        sim_wake(self); /* stopped since, or woken by what it did itself before it began to work */
    }
    return GF_RANK_NONE;
}
