/* The simulated world: its ranks, faults that a test causes, and counters. */
#include "drivers/sim/sim_state.h"

#include <stdlib.h>

uint64_t sim_random(struct gf_sim *sim)
{
    uint64_t z = (sim->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t sim_random_to(struct gf_sim *sim, uint64_t last)
{
    if (last == 0) return 0;
    return (uint64_t)(((unsigned __int128)sim_random(sim) * ((unsigned __int128)last + 1)) >> 64);
}

bool sim_chance(struct gf_sim *sim, double rate)
{
    return (rate > 0.0) && ((double)(sim_random(sim) >> 11) * 0x1p-53 < rate);
}

static uint32_t node_of(const struct gf_sim_setup *setup, uint32_t rank)
{
    uint32_t node = 0;
    uint32_t end = setup->node_ranks[0];
    if (end == 0) return rank / ((setup->ranks_per_node > 1) ? setup->ranks_per_node : 1);
    while ((rank >= end) && (++node < sizeof setup->node_ranks / sizeof setup->node_ranks[0]))
        end += setup->node_ranks[node];
    return node;
}

bool sim_same_node(const struct gf_sim *sim, uint32_t a, uint32_t b)
{
    if ((a == b) || (sim->ranks[a].node != sim->ranks[b].node)) return false;
    for (uint32_t pair = 0; pair < 2; pair++) {
        const uint32_t *blind = sim->setup.blind[pair];
        if (((a == blind[0]) || (a == blind[1])) && ((b == blind[0]) || (b == blind[1])))
            return false;
    }
    return true;
}

uint64_t sim_port_take(uint64_t *free_ns, uint64_t now_ns, uint64_t span_ns)
{
    uint64_t start_ns = (*free_ns > now_ns) ? *free_ns : now_ns;
    *free_ns = start_ns + span_ns;
    return start_ns;
}

uint64_t sim_climb_ns(const struct gf_sim *sim, const struct sim_message *message)
{
    double rate = sim->setup.leaf_bytes_per_ns;
    bool stays =
        message->is_node || (sim->ranks[message->sender].leaf == sim->ranks[message->to].leaf);
    return (stays || (rate <= 0.0)) ? 0 : (uint64_t)((double)message->size_bytes / rate + 0.5);
}

static uint64_t sim_clock_now_ns(const struct gf_clock *clock)
{
    return ((const struct sim_clock *)clock)->sim->now_ns;
}

/* Cards are numbered node by node, leaves group by group of nodes. There are no more of either than
 * ranks. */
static void ports_find(struct gf_sim *sim, struct sim_rank *self)
{
    const struct gf_sim_setup *setup = &sim->setup;
    uint32_t a_node = (setup->ranks_per_node > 1) ? setup->ranks_per_node : 1;
    uint32_t cards = (setup->node_cards > 1) ? setup->node_cards : 1;
    uint32_t node = self->rank / a_node;
    uint32_t group = (setup->leaf_nodes > 0) ? node / setup->leaf_nodes : 0;
    self->card = self->rank % a_node * cards / a_node;
    self->port = (setup->node_port && (a_node > 1)) ? &sim->node_ports[node * cards + self->card]
                                                    : &self->ports[0];
    self->leaf = &sim->leaves[setup->rails ? group * cards + self->card : group];
}

/* It has no link, and a node of its own. */
static void coordinator_create(struct gf_sim *sim)
{
    struct sim_rank *self = &sim->ranks[gf_sim_coordinator(sim)];
    self->sim = sim;
    self->rank = gf_sim_coordinator(sim);
    self->node = UINT32_MAX;
    self->drivers = (struct gf_drivers){
        .channel = &sim_channel_driver, .channel_arg = self, .clock = &sim->clock.clock};
}

uint32_t gf_sim_coordinator(const struct gf_sim *sim)
{
    return sim->setup.world;
}

struct gf_sim *gf_sim_create(const struct gf_sim_setup *setup)
{
    struct gf_sim *sim = calloc(1, sizeof *sim);
    GF_ASSERT((setup->world > 0) &&
              (setup->fault_count <= sizeof setup->faults / sizeof setup->faults[0]));
    if (sim == NULL) return NULL;
    sim->setup = *setup;
    sim->random = setup->seed;
    sim->clock = (struct sim_clock){.clock = {.now_ns = sim_clock_now_ns}, .sim = sim};
    sim->proc_count = setup->world + 1;
    sim->listener_proc = GF_RANK_NONE;
    sim->ranks = calloc(sim->proc_count, sizeof *sim->ranks);
    sim->woken = calloc(sim->proc_count, sizeof *sim->woken);
    sim->node_ports = calloc(setup->world + setup->ranks_per_node,
                             sizeof *sim->node_ports); /* the last node may be half empty */
    sim->leaves = calloc(setup->world + setup->ranks_per_node, sizeof *sim->leaves);
    if ((sim->ranks == NULL) || (sim->woken == NULL) || (sim->node_ports == NULL) ||
        (sim->leaves == NULL)) {
        gf_sim_destroy(sim);
        return NULL;
    }
    for (uint32_t rank = 0; rank < setup->world; rank++) {
        struct sim_rank *self = &sim->ranks[rank];
        self->sim = sim;
        self->rank = rank;
        self->node = node_of(setup, rank);
        ports_find(sim, self);
        self->drivers = (struct gf_drivers){
            .link = &sim_link_driver,
            .link_arg = self,
            .channel = &sim_channel_driver,
            .channel_arg = self,
            .clock = &sim->clock.clock,
        };
        sim_wake(self); /* each context wants a first poll */
    }
    coordinator_create(sim);
    return sim;
}

static void subject_drop(struct gf_sim *sim, enum sim_event_kind kind, void *subject)
{
    if (kind == SIM_PACKET)
        sim_packet_free(sim, subject);
    else if (kind == SIM_FLAG)
        free(subject);
    else if ((kind != SIM_WAKE) && (kind != SIM_RESUME) && (kind != SIM_RESEND))
        sim_message_release(subject);
}

void gf_sim_destroy(struct gf_sim *sim)
{
    if (sim == NULL) return;
    for (size_t i = 0; i < sim->event_count; i++)
        subject_drop(sim, sim_event_kind(&sim->events[i]), sim->events[i].subject);
    for (size_t i = 0; i < sim->held_count; i++)
        subject_drop(sim, sim->held[i].kind, sim->held[i].subject);
    sim_streams_free(sim);
    free(sim->events);
    free(sim->held);
    free(sim->cuts);
    free(sim->losses);
    free(sim->woken);
    free(sim->node_ports);
    free(sim->leaves);
    free(sim->ranks);
    free(sim);
}

const struct gf_drivers *gf_sim_drivers(struct gf_sim *sim, uint32_t rank)
{
    GF_ASSERT(rank < sim->proc_count);
    return &sim->ranks[rank].drivers;
}

bool gf_sim_runs(const struct gf_sim *sim, uint32_t rank)
{
    return !sim->ranks[rank].is_dead && !sim->ranks[rank].is_stopped;
}

bool gf_sim_is_dead(const struct gf_sim *sim, uint32_t rank)
{
    return sim->ranks[rank].is_dead;
}

void gf_sim_kill(struct gf_sim *sim, uint32_t rank)
{
    struct sim_rank *self = &sim->ranks[rank];
    if (self->is_dead) return;
    self->is_dead = true;
    sim_channels_die(self);
}

void gf_sim_restart(struct gf_sim *sim, uint32_t rank)
{
    struct sim_rank *self = &sim->ranks[rank];
    GF_ASSERT(self->is_dead && (self->link == NULL) && (self->channels == NULL));
    self->is_dead = self->is_stopped = false;
    self->resume_ns = 0;
    sim_wake(self);
}

void sim_resume(struct sim_rank *self)
{
    self->is_stopped = false;
    self->resume_ns = 0;
    sim_wake(self);
}

void gf_sim_stop(struct gf_sim *sim, uint32_t rank, bool stopped)
{
    struct sim_rank *self = &sim->ranks[rank];
    self->resume_ns = 0;
    if (stopped)
        self->is_stopped = true;
    else if (self->is_stopped)
        sim_resume(self);
}

static uint8_t *sim_cut(const struct gf_sim *sim, uint32_t a, uint32_t b)
{
    return &sim->cuts[(a < b) ? (size_t)a * sim->proc_count + b : (size_t)b * sim->proc_count + a];
}

void gf_sim_partition(struct gf_sim *sim, uint32_t a, uint32_t b, bool cut)
{
    size_t kept = 0;
    if (sim->cuts == NULL) sim->cuts = calloc(sim->proc_count, sim->proc_count);
    GF_ASSERT(sim->cuts != NULL);
    GF_ASSERT((a < sim->proc_count) && (b < sim->proc_count));
    if (sim_are_cut(sim, a, b) != cut) sim_channels_cut(sim, a, b, cut);
    *sim_cut(sim, a, b) = cut;
    sim_streams_make(sim);
    if (cut) return;
    sim_streams_mend(sim, a, b);
    /* What was held happens now, in its order. What was sent since has not arrived yet, so nothing
     * is overtaken. */
    for (size_t i = 0; i < sim->held_count; i++) {
        struct sim_held held = sim->held[i];
        bool is_between = ((held.a == a) && (held.b == b)) || ((held.a == b) && (held.b == a));
        if (is_between)
            sim_event_push(sim, sim->now_ns, held.kind, held.subject);
        else
            sim->held[kept++] = held;
    }
    sim->held_count = kept;
}

void gf_sim_give_up(struct gf_sim *sim, uint32_t a, uint32_t b)
{
    sim_channels_give_up(sim, a, b);
}

void gf_sim_fail_post(struct gf_sim *sim, uint32_t rank, uint64_t at)
{
    GF_ASSERT((rank < sim->setup.world) && (sim->setup.fault_count < 8));
    sim->setup.faults[sim->setup.fault_count++] = (struct gf_sim_fault){
        .kind = GF_SIM_FAULT_ERROR, .rank = rank, .at = sim->ranks[rank].posts + at};
}

void gf_sim_lose(struct gf_sim *sim, uint32_t from, uint32_t to, double rate)
{
    size_t world = sim->setup.world;
    if (sim->losses == NULL) sim->losses = calloc(world * world, sizeof *sim->losses);
    GF_ASSERT((sim->losses != NULL) && (from < world) && (to < world));
    sim->losses[from * world + to] = rate;
    sim_streams_make(sim);
}

double sim_loss_rate(const struct gf_sim *sim, uint32_t from, uint32_t to)
{
    return (sim->losses == NULL) ? 0 : sim->losses[(size_t)from * sim->setup.world + to];
}

void gf_sim_slow(struct gf_sim *sim, uint32_t rank, double times)
{
    GF_ASSERT((rank < sim->setup.world) && (times >= 1));
    struct sim_rank *self = &sim->ranks[rank];
    self->slow = times;
    if (times > 1) return;
    for (uint32_t i = 0; i < 2; i++)
        self->ports[i] = (struct sim_port){.out_free_ns = sim->now_ns, .in_free_ns = sim->now_ns};
}

bool sim_are_cut(const struct gf_sim *sim, uint32_t a, uint32_t b)
{
    return (sim->cuts != NULL) && (*sim_cut(sim, a, b) != 0);
}

bool sim_hold(struct gf_sim *sim, uint32_t a, uint32_t b, enum sim_event_kind kind, void *subject)
{
    if (!sim_are_cut(sim, a, b)) return false;
    if (sim->held_count == sim->held_room) {
        sim->held_room = 2 * sim->held_room + 64;
        sim->held = realloc(sim->held, sim->held_room * sizeof *sim->held);
        GF_ASSERT(sim->held != NULL);
    }
    sim->held[sim->held_count++] =
        (struct sim_held){.subject = subject, .kind = kind, .a = a, .b = b};
    return true;
}

const struct gf_sim_counts *gf_sim_counts(const struct gf_sim *sim)
{
    return &sim->counts;
}
