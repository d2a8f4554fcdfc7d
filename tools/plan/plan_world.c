/* See plan_world.h. A rank is polled when something has happened for it, and once more after each
 * turn that has worked or moved a buffer on: then there may be more to do at once. */
#include "drivers/base/fnv.h"
#include "tools/plan/plan_world.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tools/plan/plan_gpu.h"

#define MIXER UINT64_C(8209) /* a prime beyond GF_WORLD_MAX: no world divides it */
#define FOREVER_NS (UINT64_C(24) * 3600 * 1000000000) /* the longest deadline there is */

/* Joining and leaving have turns without an event: a rank looks again after so long. */
#define CONTROL_PAUSE_NS UINT64_C(20000)

typedef enum plan_phase { PLAN_OPEN = 0, PLAN_STEP, PLAN_CLOSE } plan_phase;

struct plan_rank {
    gf_context *gf;
    struct plan_device device;
    struct gf_drivers drivers;
    void *memory;
    uint64_t memory_bytes;
    uint64_t begin_ns;        /* of the step under way */
    uint64_t messages_before; /* it */
    double stretch;           /* what it computes in this step takes so many times as long */
    uint32_t next;            /* tensor to declare */
    uint32_t steps_done;
    bool in_step;
    bool done; /* with the phase */
};

struct plan_world {
    const struct plan_setup *setup;
    struct gf_sim *sim;
    struct plan_rank *ranks;
    uint64_t *ends_ns; /* [steps] of the slowest rank */
    uint64_t begin_ns;
    uint64_t events, hash;
    plan_phase phase;
    uint32_t waiting; /* ranks that are not done with the phase */
    char *error;
};

static void log_keep(void *user, gf_log_level level, const char *text)
{
    struct plan_world *w = user;
    if ((level == GF_LOG_ERROR) && (w->error[0] == '\0'))
        (void)snprintf(w->error, PLAN_ERROR_BYTES, "%s", text);
}

static gf_status refuse(struct plan_world *w, gf_status status, const char *what)
{
    if (w->error[0] == '\0')
        (void)snprintf(w->error, PLAN_ERROR_BYTES, "%s: %s", what, gf_status_name(status));
    return status;
}

static void *memory_take(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return (memory == MAP_FAILED) ? NULL : memory;
}

static gf_status rank_open(struct plan_world *w, uint32_t rank)
{
    const struct plan_setup *setup = w->setup;
    struct plan_rank *self = &w->ranks[rank];
    struct gf_config config = setup->config;
    struct gf_footprint need;
    gf_status status;
    config.job.world = setup->world;
    config.job.rank = rank;
    config.job.ignore_environment = true;
    config.rendezvous.join_timeout_ns = FOREVER_NS;
    config.exchange.timeout_ns = FOREVER_NS;
    config.trace_records = 1;
    config.log = log_keep;
    config.log_user = w;
    self->device =
        (struct plan_device){.sim = w->sim,
                             .rank = rank,
                             .bytes_per_ns = setup->network.op_bytes_per_ns,
                             .peer_bytes_per_ns = setup->network.node_bytes_per_ns,
                             .pair_bytes_per_ns = setup->network.pair_bytes_per_ns,
                             .op_ns = setup->network.op_ns,
                             .poll_ns = setup->network.poll_ns,
                             .launch_elems = setup->network.device_ops ? PLAN_LAUNCH_ELEMS : 0,
                             .is_gpu = setup->network.gpu_memory,
                             .host_bytes_per_ns = setup->network.host_bytes_per_ns,
                             .has_data = setup->has_data};
    self->drivers = *gf_sim_drivers(w->sim, rank);
    self->drivers.gpu = setup->network.gpu_memory ? &plan_gpu_device : &plan_gpu_host;
    self->drivers.gpu_arg = &self->device;
    (void)snprintf(config.device.driver, sizeof config.device.driver, "%s",
                   self->drivers.gpu->name);
    config.drivers = &self->drivers;
    if ((status = gf_measure(&config, setup->tensors, setup->tensor_count, &need)) != GF_OK)
        return refuse(w, status, "gf_measure");
    self->memory_bytes = need.control_bytes;
    self->memory = memory_take(self->memory_bytes);
    if (self->memory == NULL)
        return refuse(w, GF_ERR_SYSTEM, "no address space for a rank's memory");
    status = gf_open(&config, setup->tensors, setup->tensor_count, self->memory, self->memory_bytes,
                     &self->gf);
    return (status < 0) ? refuse(w, status, "gf_open") : GF_OK;
}

static uint64_t due_ns(const struct plan_rank *self, uint64_t after_ns)
{
    return self->begin_ns + (uint64_t)((double)after_ns * self->stretch);
}

double plan_order_statistic(uint32_t i, uint32_t n, double tail)
{
    double above = (double)(n - i) + 1;
    return exp(lgamma((double)n + 1) + lgamma(above - 1 / tail) - lgamma(above) -
               lgamma((double)n + 1 - 1 / tail));
}

static double straggler(const struct plan_setup *setup, uint32_t rank, uint32_t step)
{
    uint32_t order = (uint32_t)((MIXER * (rank + 1) + 13 * step) % setup->world) + 1;
    if (setup->straggler_scale <= 0.0) return 1.0;
    return 1.0 + setup->straggler_scale *
                     (plan_order_statistic(order, setup->world, setup->straggler_tail) - 1.0);
}

/* The sum of twelve uniform numbers less six: near enough to a normal one, and never beyond six
 * deviations. */
static double stretch_draw(const struct plan_setup *setup, uint32_t rank, uint32_t step)
{
    uint64_t state = ((uint64_t)step << 32) ^ rank;
    double sum = -6.0;
    if (setup->compute_spread <= 0.0) return straggler(setup, rank, step);
    for (int i = 0; i < 12; i++) {
        uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)(i + 1));
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        sum += (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
    }
    sum = 1.0 + setup->compute_spread * sum;
    return ((sum > 0.1) ? sum : 0.1) * straggler(setup, rank, step);
}

/* The next thing that happens by itself: a tensor, or the end of backward. */
static void compute_go_on(struct plan_world *w, uint32_t rank)
{
    const struct plan_setup *setup = w->setup;
    struct plan_rank *self = &w->ranks[rank];
    if (self->next < setup->tensor_count)
        gf_sim_wake_at(w->sim, rank, due_ns(self, setup->ready_ns[self->next]));
    else
        gf_sim_wake_at(w->sim, rank, due_ns(self, setup->compute_ns));
}

static void step_ended(struct plan_world *w, struct plan_rank *self, uint32_t rank)
{
    uint64_t now_ns = gf_sim_free_ns(w->sim, rank);
    uint64_t least_ns = due_ns(self, w->setup->compute_ns);
    uint64_t *end_ns = &w->ends_ns[self->steps_done++];
    if (now_ns < least_ns) now_ns = least_ns; /* what has no gradient is computed last */
    if (now_ns > *end_ns) *end_ns = now_ns;
    w->hash = gf_fnv_word(w->hash, now_ns ^ ((uint64_t)rank << 40));
    self->in_step = false;
    self->begin_ns = now_ns;
    self->done = self->steps_done == w->setup->steps;
    if (!self->done) gf_sim_wake_at(w->sim, rank, now_ns);
}

static struct gf_stats stats_of(const struct plan_rank *self)
{
    struct gf_stats stats = {.size_bytes = sizeof stats};
    (void)gf_stats_read(self->gf, &stats);
    return stats;
}

static gf_status step_progress(struct plan_world *w, uint32_t rank)
{
    const struct plan_setup *setup = w->setup;
    struct plan_rank *self = &w->ranks[rank];
    uint64_t now_ns = gf_sim_now_ns(w->sim);
    bool declared = false;
    gf_status status;
    if (now_ns < self->begin_ns) return GF_AGAIN;
    if (!self->in_step) {
        if ((status = gf_step_begin(self->gf)) != GF_OK) return status;
        self->messages_before = stats_of(self).messages;
        self->in_step = true;
        self->next = 0;
        self->stretch = stretch_draw(setup, rank, self->steps_done);
        compute_go_on(w, rank);
        if (setup->ready_ns[0] > 0) return GF_AGAIN;
    }
    while ((self->next < setup->tensor_count) &&
           (now_ns >= due_ns(self, setup->ready_ns[self->next]))) {
        if ((status = gf_tensor_ready(self->gf, self->next++, 0)) < 0) return status;
        declared = true;
    }
    if (declared) {
        compute_go_on(w, rank);
        self->device.moved = true;
        return GF_AGAIN;
    }
    status = gf_step_poll(self->gf);
    if (status == GF_OK) step_ended(w, self, rank);
    return (status == GF_OK) ? GF_AGAIN : status;
}

/* One turn in the phase. */
static gf_status rank_progress(struct plan_world *w, uint32_t rank)
{
    struct plan_rank *self = &w->ranks[rank];
    struct gf_trace_record ended;
    gf_status status = GF_AGAIN;
    if (self->done) return GF_OK;
    self->device.moved = false;
    w->events++;
    switch (w->phase) {
    case PLAN_OPEN:
        status = gf_open_poll(self->gf);
        self->done = status == GF_OK;
        self->device.moved = true;
        break;
    case PLAN_STEP:
        status = step_progress(w, rank);
        /* its slot is free for another */
        if (gf_trace_read(self->gf, &ended, 1) > 0) self->device.moved = true;
        break;
    case PLAN_CLOSE:
        status = gf_close_poll(self->gf);
        self->done = status == GF_OK;
        self->device.moved = true;
        break;
    }
    if (status < 0) return refuse(w, status, gf_error_last(self->gf)->text);
    if (self->done) w->waiting--;
    return GF_OK;
}

/* Until every rank is done with the phase. */
static gf_status phase_run(struct plan_world *w, plan_phase phase)
{
    uint64_t pause_ns = (phase == PLAN_STEP) ? 0 : CONTROL_PAUSE_NS;
    w->phase = phase;
    w->waiting = w->setup->world;
    for (uint32_t rank = 0; rank < w->setup->world; rank++) {
        w->ranks[rank].done = false;
        /* what a join agrees on is real */
        w->ranks[rank].device.has_data = w->setup->has_data || (phase == PLAN_OPEN);
        w->ranks[rank].device.at_once = phase != PLAN_STEP;
        gf_sim_wake_at(w->sim, rank, gf_sim_now_ns(w->sim));
    }
    while (w->waiting > 0) {
        uint32_t rank;
        while ((rank = gf_sim_woken_next(w->sim)) != GF_RANK_NONE) {
            gf_status status = rank_progress(w, rank);
            if (status < 0) return status;
            uint64_t free_ns = gf_sim_free_ns(w->sim, rank);
            if (!w->ranks[rank].done &&
                (w->ranks[rank].device.moved || (free_ns > gf_sim_now_ns(w->sim))))
                gf_sim_wake_at(w->sim, rank, free_ns + pause_ns);
        }
        if ((w->waiting > 0) && !gf_sim_advance(w->sim))
            return refuse(w, GF_ERR_STATE, "nothing happens any more");
        for (uint32_t each = 0; w->setup->polls_all && (each < w->setup->world); each++)
            gf_sim_wake_at(w->sim, each, gf_sim_now_ns(w->sim));
    }
    return GF_OK;
}

static gf_status steps_run(struct plan_world *w, struct plan_result *result_out)
{
    gf_status status;
    w->begin_ns = gf_sim_now_ns(w->sim);
    for (uint32_t rank = 0; rank < w->setup->world; rank++) w->ranks[rank].begin_ns = w->begin_ns;
    w->events = 0;
    if ((status = phase_run(w, PLAN_STEP)) < 0) return status;
    for (uint32_t rank = 0; rank < w->setup->world; rank++) {
        struct gf_stats stats = stats_of(&w->ranks[rank]);
        result_out->messages += stats.messages - w->ranks[rank].messages_before;
        if (stats.last_wire_bytes > result_out->wire_bytes)
            result_out->wire_bytes = stats.last_wire_bytes;
        result_out->buffer_count = stats.buffer_count;
    }
    result_out->first_ns = w->ends_ns[0] - w->begin_ns;
    result_out->step_ns = w->ends_ns[w->setup->steps - 1];
    result_out->step_ns -= (w->setup->steps > 1) ? w->ends_ns[w->setup->steps - 2] : w->begin_ns;
    if (result_out->step_ns > w->setup->compute_ns)
        result_out->exposed_ns = result_out->step_ns - w->setup->compute_ns;
    result_out->events = w->events;
    result_out->hash = w->hash;
    return GF_OK;
}

static gf_status world_run(struct plan_world *w, struct plan_result *result_out)
{
    gf_status status;
    for (uint32_t rank = 0; rank < w->setup->world; rank++)
        if ((status = rank_open(w, rank)) < 0) return status;
    if ((status = phase_run(w, PLAN_OPEN)) < 0) return status;
    if ((status = steps_run(w, result_out)) < 0) return status;
    return phase_run(w, PLAN_CLOSE);
}

gf_status plan_world_run(const struct plan_setup *setup, struct plan_result *result_out,
                         char *error_out)
{
    const struct plan_network *network = &setup->network;
    struct gf_sim_setup sim = {.world = setup->world,
                               .ranks_per_node = network->ranks_per_node,
                               .bytes_per_ns = network->bytes_per_ns,
                               .node_bytes_per_ns = network->node_bytes_per_ns,
                               .latency_ns = network->latency_ns,
                               .node_latency_ns = network->node_latency_ns,
                               .message_ns = network->message_ns,
                               .node_port = true,
                               .late_flags = true,
                               .node_cards = network->node_cards,
                               .rails = network->rails,
                               .leaf_nodes = network->leaf_nodes,
                               .leaf_bytes_per_ns = network->leaf_bytes_per_ns,
                               .device_ranks = network->gpu_direct ? UINT64_MAX : 0,
                               .no_data = !setup->has_data};
    if (network->pair_bytes_per_ns > 0.0)
        sim.node_bytes_per_ns = fmin(network->pair_bytes_per_ns, sim.node_bytes_per_ns);
    struct plan_world w = {
        .setup = setup, .sim = gf_sim_create(&sim), .error = error_out, .hash = GF_FNV_START};
    struct plan_result result = {0};
    gf_status status = GF_ERR_SYSTEM;
    error_out[0] = '\0';
    w.ranks = calloc(setup->world, sizeof *w.ranks);
    w.ends_ns = calloc(setup->steps, sizeof *w.ends_ns);
    if ((w.sim == NULL) || (w.ranks == NULL) || (w.ends_ns == NULL))
        (void)refuse(&w, status, "no memory");
    else
        status = world_run(&w, &result);
    for (uint32_t rank = 0; (w.ranks != NULL) && (rank < setup->world); rank++) {
        if (status == GF_OK) (void)gf_close(w.ranks[rank].gf); /* all have left: returns at once */
        if (w.ranks[rank].memory != NULL)
            (void)munmap(w.ranks[rank].memory, w.ranks[rank].memory_bytes);
    }
    if (status == GF_OK) *result_out = result;
    gf_sim_destroy(w.sim);
    free(w.ranks);
    free(w.ends_ns);
    return status;
}
