/* See world.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world.h"
#include "lib/context.h"
#include "firmware-tests/cuda/late_gpu.h"

const struct gf_sim_setup world_network = {.seed = 1,
                                           .latency_ns = 5000,
                                           .jitter_ns = 20000,
                                           .bytes_per_ns = 1.0,
                                           .message_ns = 100,
                                           .bind_receives = true};

#define GUARD_BYTES 4096u
#define GUARD_VALUE 0xa5
#define BACKOFF_MIN_NS 20000u   /* a rank polls again after this */
#define BACKOFF_MAX_NS 1000000u /* and at least this often */
#define COORDINATOR_NAP_NS 5000000u
#define LIMIT_NS UINT64_C(30000000000)

static void log_keep(void *user, gf_log_level level, const char *text)
{
    struct world_rank *rank = user;
    size_t length = strlen(text);
    assert_null(strchr(text, '\n'));
    if (level > GF_LOG_WARN) return;
    if (length + 2 > sizeof rank->log - rank->log_bytes) rank->log_bytes = 0;
    memcpy(rank->log + rank->log_bytes, text, length);
    rank->log_bytes += length;
    rank->log[rank->log_bytes++] = '\n';
    rank->log[rank->log_bytes] = '\0';
}

static void turn_take(struct world *w, uint32_t proc, world_progress turn, void *arg);

static uint64_t world_now(const struct world *w)
{
    return (w->real_ns > 0) ? gf_clock_monotonic.now_ns(NULL) - w->real_ns + 1
                            : gf_sim_now_ns(w->sim);
}

static uint64_t clock_now(const struct gf_clock *clock)
{
    struct world *w = ((const struct world_clock *)(const void *)clock)->w;
    if ((w->pump != NULL) && !w->is_pumping) {
        uint32_t rank;
        w->is_pumping = true; /* the turns look at the clock too */
        while ((rank = gf_sim_woken_next(w->sim)) != GF_RANK_NONE)
            turn_take(w, rank, w->pump, w->pump_arg);
        /* it polls without a pause */
        gf_sim_wake_at(w->sim, w->blocked, gf_sim_now_ns(w->sim) + BACKOFF_MIN_NS);
        (void)gf_sim_advance(w->sim);
        w->is_pumping = false;
    }
    w->crept_ns += w->creep_ns;
    return world_now(w) + w->crept_ns;
}

static void memory_free(struct world_rank *self)
{
    unsigned char guard[GUARD_BYTES];
    if (self->memory == NULL) return;
    memset(guard, GUARD_VALUE, GUARD_BYTES);
    assert_int_equal(memcmp(self->memory, guard, GUARD_BYTES), 0);
    assert_int_equal(
        memcmp(self->memory + GUARD_BYTES + self->footprint.control_bytes, guard, GUARD_BYTES), 0);
    free(self->memory);
}

static void rank_open(struct world *w, uint32_t rank)
{
    struct world_rank *self = &w->ranks[rank];
    uint64_t bytes;
    self->status = gf_measure(&self->config, self->tensors, self->tensor_count, &self->footprint);
    if (self->status != GF_OK) return;
    bytes = self->footprint.control_bytes;
    self->memory = aligned_alloc(GUARD_BYTES, bytes + 2 * GUARD_BYTES);
    assert_non_null(self->memory);
    memset(self->memory, GUARD_VALUE, GUARD_BYTES);
    memset(self->memory + GUARD_BYTES + bytes, GUARD_VALUE, GUARD_BYTES);
    self->status = gf_open(&self->config, self->tensors, self->tensor_count,
                           self->memory + GUARD_BYTES, bytes, &self->gf);
}

/* ---- a coordinator of its own ---- */

static void *aligned_take(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    assert_non_null(memory);
    return memory;
}

static void coordinator_open(struct world *w)
{
    struct world_coordinator *c = &w->coordinator;
    const struct gf_config *config = &w->ranks[0].config;
    const struct gf_drivers *drivers = gf_sim_drivers(w->sim, gf_sim_coordinator(w->sim));
    struct gf_log log = {log_keep, &w->ranks[w->world]};
    struct gf_fault fault = {.code = GF_OK};
    struct gf_coordinator_setup setup = {.world = config->job.world,
                                         .id_count = w->world,
                                         .host_id = GF_RANK_NONE,
                                         .is_first = (c->starts++ == 0),
                                         .join_timeout_ns = UINT64_C(60000000000),
                                         .endpoint_bytes_max = 2048,
                                         .log = log};
    struct gf_channel_setup channel = {
        .listens = true,
        .connections_max = GF_COORDINATOR_CONNECTIONS(setup.id_count),
        .keepalive_ns = config->rendezvous.keepalive_ns ? config->rendezvous.keepalive_ns
                                                        : UINT64_C(5000000000),
        .log = log,
        .arg = drivers->channel_arg};
    c->channel_state = aligned_take(drivers->channel->state_bytes(&channel));
    c->state = aligned_take(gf_coordinator_state_bytes(&setup));
    assert_int_equal(
        drivers->channel->open(&channel, c->channel_state, world_now(w), &c->channel, &fault),
        GF_OK);
    c->machine = gf_coordinator_open(&setup, c->state, c->channel, world_now(w));
    c->status = GF_AGAIN;
    gf_sim_wake_at(w->sim, gf_sim_coordinator(w->sim), gf_sim_now_ns(w->sim));
}

static void coordinator_close(struct world *w)
{
    struct world_coordinator *c = &w->coordinator;
    if (c->machine == NULL) return;
    c->channel->driver->close(c->channel);
    free(c->state);
    free(c->channel_state);
    c->machine = NULL;
}

/* Its process ends with the job. */
static void coordinator_turn(struct world *w)
{
    struct world_coordinator *c = &w->coordinator;
    if (c->machine == NULL) return;
    c->status = gf_coordinator_poll(c->machine, world_now(w));
    if (c->status != GF_AGAIN) coordinator_close(w);
    if ((c->machine == NULL) || (c->nap_ns > gf_sim_now_ns(w->sim))) return;
    c->nap_ns = gf_sim_now_ns(w->sim) + COORDINATOR_NAP_NS;
    gf_sim_wake_at(w->sim, gf_sim_coordinator(w->sim), c->nap_ns);
}

void world_coordinator_kill(struct world *w)
{
    gf_sim_kill(w->sim, gf_sim_coordinator(w->sim));
}

void world_coordinator_start(struct world *w)
{
    coordinator_close(w);
    gf_sim_restart(w->sim, gf_sim_coordinator(w->sim));
    coordinator_open(w);
}

void world_coordinator_cut(struct world *w, uint64_t ranks, bool cut)
{
    for (uint32_t rank = 0; rank < w->world; rank++)
        if ((ranks >> rank & 1u) != 0)
            gf_sim_partition(w->sim, rank, gf_sim_coordinator(w->sim), cut);
}

struct gf_coordinator_status world_coordinator_status(const struct world *w)
{
    struct gf_coordinator_status status;
    assert_non_null(w->coordinator.machine);
    gf_coordinator_status(w->coordinator.machine, &status);
    return status;
}

void world_create(struct world *w, const struct world_setup *setup)
{
    struct gf_sim_setup sim = setup->sim;
    uint32_t first = (setup->world == 0) ? 1 : setup->world;
    uint32_t most = setup->config.job.world_max;
    *w = (struct world){
        .world = (most > first) ? most : first, .device = setup->device, .limit_ns = LIMIT_NS};
    sim.world = w->world;
    w->links = real_links_create(&sim);
    if (setup->real_time || (w->links != NULL)) w->real_ns = gf_clock_monotonic.now_ns(NULL);
    w->sim = gf_sim_create(&sim);
    assert_non_null(w->sim);
    w->ranks = calloc(w->world + 1, sizeof *w->ranks);
    assert_non_null(w->ranks);
    for (uint32_t rank = 0; rank < w->world; rank++) {
        struct world_rank *self = &w->ranks[rank];
        self->config = setup->config;
        self->config.job.world = first;
        self->config.job.rank = rank;
        self->config.job.ignore_environment = true;
        if (setup->separate) self->config.rendezvous.coordinator = GF_COORDINATOR_SEPARATE;
        self->config.log = log_keep;
        self->config.log_user = self;
        self->clock = (struct world_clock){.clock.now_ns = clock_now, .w = w};
        self->drivers = *gf_sim_drivers(w->sim, rank);
        self->drivers.clock = &self->clock.clock;
        if (w->links != NULL) {
            self->drivers.link = real_links_driver();
            self->drivers.link_arg = real_links_arg(w->links, rank);
        }
        if (setup->gpu != NULL) self->drivers.gpu = setup->gpu;
        self->config.drivers = &self->drivers;
        self->tensors = setup->tensors;
        self->tensor_count = setup->tensor_count;
        if (setup->vary != NULL)
            setup->vary(rank, &self->config, &self->tensors, &self->tensor_count);
        if (rank < first)
            rank_open(w, rank);
        else
            gf_sim_kill(w->sim, rank); /* never started: world_restart() starts it as a new one */
    }
    if (setup->separate) coordinator_open(w);
}

void world_restart(struct world *w, uint32_t rank)
{
    struct world_rank *self = &w->ranks[rank];
    assert_int_equal(gf_close(self->gf), GF_OK);
    memory_free(self);
    self->gf = NULL;
    gf_sim_restart(w->sim, rank);
    self->config.rendezvous.rejoin = (self->memory != NULL);
    self->nap_count = 0;
    self->log_bytes = 0;
    self->log[0] = '\0';
    rank_open(w, rank);
    assert_int_equal(self->status, GF_OK);
    self->status = GF_AGAIN;
    gf_sim_wake_at(w->sim, rank, gf_sim_now_ns(w->sim));
}

static gf_status open_progress(struct world *w, uint32_t rank, void *arg)
{
    gf_context *gf = w->ranks[rank].gf;
    if (gf == NULL) return GF_ERR_STATE;
    return (rank % 2 == 0) ? gf_open_poll(gf) : gf_open_wait_for(gf, 0); /* which is a poll */
}

void world_join(struct world *w)
{
    world_run(w, open_progress, NULL);
}

void world_open(struct world *w, const struct world_setup *setup)
{
    world_create(w, setup);
    world_expect(w, GF_OK);
    world_join(w);
    world_expect(w, GF_OK);
}

static gf_status close_progress(struct world *w, uint32_t rank, void *arg)
{
    gf_context *gf = w->ranks[rank].gf;
    if (gf == NULL) return GF_OK;
    gf_status status = (rank % 2 == 0) ? gf_close_poll(gf) : gf_close_wait_for(gf, 0);
    if ((status == GF_AGAIN) || (gf_error_last(gf)->code == GF_OK) || gf_sim_is_dead(w->sim, rank))
        return status;
    /* a program that has failed closes at once: others may wait for it */
    assert_int_equal(gf_close(gf), GF_OK);
    w->ranks[rank].gf = NULL;
    return status;
}

void world_close(struct world *w)
{
    for (uint32_t rank = 0; rank < w->world; rank++)
        if (!gf_sim_runs(w->sim, rank)) gf_sim_kill(w->sim, rank);
    if (!gf_sim_runs(w->sim, gf_sim_coordinator(w->sim))) world_coordinator_kill(w);
    world_run(w, close_progress, NULL);
    for (uint32_t rank = 0; rank < w->world; rank++) {
        struct world_rank *self = &w->ranks[rank];
        if (self->gf != NULL) assert_int_equal(gf_close(self->gf), GF_OK);
        memory_free(self);
    }
    coordinator_close(w);
    assert_int_equal(gf_sim_counts(w->sim)->requests_posted, gf_sim_counts(w->sim)->requests_ended);
    gf_sim_destroy(w->sim);
    real_links_destroy(w->links);
    free(w->ranks);
}

/* ---- running ---- */

static bool all_answered(const struct world *w)
{
    for (uint32_t rank = 0; rank < w->world; rank++)
        if ((w->ranks[rank].status == GF_AGAIN) && gf_sim_runs(w->sim, rank)) return false;
    return true;
}

/* True: this wake-up was a nap's end, else something has happened. */
static bool naps_end(struct world_rank *self, uint64_t now_ns)
{
    uint32_t left = 0;
    bool ended = false;
    for (uint32_t i = 0; i < self->nap_count; i++) {
        if (self->naps[i] <= now_ns)
            ended = ended || (self->naps[i] == now_ns);
        else
            self->naps[left++] = self->naps[i];
    }
    self->nap_count = left;
    return ended;
}

/* A nap that another one ends before is not asked for: they would never become fewer. */
static void nap(struct world *w, uint32_t rank, uint64_t until_ns)
{
    struct world_rank *self = &w->ranks[rank];
    for (uint32_t i = 0; i < self->nap_count; i++)
        if (self->naps[i] <= until_ns) return;
    if (self->nap_count == sizeof self->naps / sizeof self->naps[0]) return;
    self->naps[self->nap_count++] = until_ns;
    gf_sim_wake_at(w->sim, rank, until_ns);
}

static void rank_progress(struct world *w, uint32_t rank, world_progress turn, void *arg)
{
    struct world_rank *self = &w->ranks[rank];
    uint64_t now_ns = gf_sim_now_ns(w->sim);
    if (self->status != GF_AGAIN) return;
    /* News begins anew with short naps; without any they get longer. */
    self->backoff_ns = (naps_end(self, now_ns) && (w->real_ns == 0)) ? 2 * self->backoff_ns : 0;
    if (self->backoff_ns < BACKOFF_MIN_NS) self->backoff_ns = BACKOFF_MIN_NS;
    if (self->backoff_ns > BACKOFF_MAX_NS) self->backoff_ns = BACKOFF_MAX_NS;
    self->status = self->tells ? gf_step_poll(self->gf) : turn(w, rank, arg);
    /* the coordinator of all others lives in it, and has still to tell them */
    self->tells = (self->status < 0) && (self->gf != NULL) &&
                  (self->gf->phase == GF_PHASE_FAILING) && gf_control_hosts(self->gf->control);
    if (self->tells) self->status = GF_AGAIN;
    if (self->status != GF_AGAIN) return;
    nap(w, rank, now_ns + self->backoff_ns);
}

/* One turn of a rank, or of the coordinator that is none. */
static void turn_take(struct world *w, uint32_t proc, world_progress turn, void *arg)
{
    if (proc == gf_sim_coordinator(w->sim))
        coordinator_turn(w);
    else
        rank_progress(w, proc, turn, arg);
}

static void all_begin(struct world *w)
{
    for (uint32_t rank = 0; rank < w->world; rank++) {
        w->ranks[rank].status = GF_AGAIN;
        w->ranks[rank].next = 0;
        gf_sim_wake_at(w->sim, rank, gf_sim_now_ns(w->sim));
    }
}

void world_block(struct world *w, uint32_t rank, world_progress turn, void *arg)
{
    all_begin(w);
    w->ranks[rank].status = GF_OK;
    w->blocked = rank;
    w->pump = turn;
    w->pump_arg = arg;
}

void world_unblock(struct world *w)
{
    w->pump = NULL;
}

static void hung(const struct world *w)
{
    for (uint32_t rank = 0; rank < w->world; rank++)
        if (w->ranks[rank].status == GF_AGAIN)
            fail_msg("rank %u of %u has not ended after %.0f s", rank, w->world,
                     (double)w->limit_ns * 1e-9);
}

void world_run(struct world *w, world_progress turn, void *arg)
{
    uint64_t begin_ns = world_now(w);
    all_begin(w);
    for (;;) {
        uint32_t rank;
        while ((rank = gf_sim_woken_next(w->sim)) != GF_RANK_NONE) turn_take(w, rank, turn, arg);
        if (all_answered(w)) break;
        assert_true(gf_sim_advance(w->sim)); /* a rank that waits has asked to be woken */
        if (world_now(w) - begin_ns > w->limit_ns) hung(w);
    }
}

void world_expect(const struct world *w, gf_status status)
{
    for (uint32_t rank = 0; rank < w->world; rank++) {
        const struct world_rank *self = &w->ranks[rank];
        if ((self->status != status) && ((self->memory != NULL) || !gf_sim_is_dead(w->sim, rank)))
            fail_msg("rank %u of %u: %s, expected %s\n%s%s", rank, w->world,
                     gf_status_name(self->status), gf_status_name(status), self->log,
                     (self->gf != NULL) ? gf_error_last(self->gf)->text : "");
    }
}

/* ---- steps ---- */

static uint32_t gcd(uint32_t a, uint32_t b)
{
    while (b != 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

uint32_t world_order_at(world_order order, uint32_t rank, uint32_t place, uint32_t tensor_count)
{
    uint32_t stride = 7919u % tensor_count;
    switch (order) {
    case WORLD_FORWARD: break;
    case WORLD_BACKWARD: return tensor_count - 1 - place;
    case WORLD_RANDOM: /* any stride without a common divisor visits all */
        while ((stride == 0) || (gcd(stride, tensor_count) != 1)) stride++;
        return (uint32_t)(((uint64_t)place * stride + 3) % tensor_count);
    case WORLD_ROTATED: return (place + rank) % tensor_count;
    case WORLD_ORDER_COUNT: break;
    }
    return place;
}

void world_drain(struct world *w, uint32_t rank)
{
    gf_context *gf = w->ranks[rank].gf;
    if ((gf != NULL) && (gf->gpu != NULL) && (gf->gpu->driver->finished == late_gpu.finished))
        late_gpu_drain(gf->gpu);
}

static gf_status gradient_write(struct world *w, uint32_t rank, uint32_t tensor,
                                const struct world_step *step)
{
    const struct world_device *device = w->device;
    gf_context *gf = w->ranks[rank].gf;
    void *gradient = (device != NULL) ? device->gradient(w, rank, tensor)
                                      : (void *)(uintptr_t)gf_gradient(gf, tensor);
    world_drain(w, rank);
    if (step->fill != NULL)
        step->fill(w, rank, tensor, gradient, step->arg);
    else
        world_fill(w, rank, tensor, gradient, step->arg);
    if (device != NULL) device->store(w, rank, tensor, gradient);
    gf_status status = gf_tensor_ready(gf, tensor, (device != NULL) ? device->stream : 0);
    /* An appliance that gives up here and closes must have been told why, and by whose fault. */
    if ((status < 0) && !world_logged(w, rank, gf_error_last(gf)->text))
        fail_msg("rank %u: gf_tensor_ready() gave %s and no word: %s", rank, gf_status_name(status),
                 gf_error_last(gf)->text);
    return status;
}

gf_status world_step_progress(struct world *w, uint32_t rank, void *arg)
{
    const struct world_step *step = arg;
    struct world_rank *self = &w->ranks[rank];
    gf_status status;
    uint32_t tensor;
    if (self->next == 0) {
        if ((w->device != NULL) &&
            ((status = gf_queue_follow(self->gf, w->device->stream)) != GF_OK))
            return status;
        if ((status = gf_step_begin(self->gf)) != GF_OK) return status;
        (void)gf_loss_scale(self->gf); /* the values that steps write are scaled as they are */
        if ((step->samples != NULL) &&
            ((status = gf_step_samples(self->gf, step->samples[rank])) != GF_OK))
            return status;
    }
    if (self->next == self->tensor_count) return gf_step_poll(self->gf);
    tensor = world_order_at(step->order, rank, self->next++, self->tensor_count);
    if ((step->skips != NULL) && step->skips(rank, tensor)) {
        status = gf_tensor_skip(self->gf, tensor);
    } else {
        status = gradient_write(w, rank, tensor, step);
    }
    if (status != GF_OK) return status;
    if (step->pause_ns > 0) self->backoff_ns = step->pause_ns / 2;
    return GF_AGAIN;
}

gf_status world_interrupted_progress(struct world *w, uint32_t rank, void *arg)
{
    struct world_interrupt *interrupt = arg;
    gf_status status = world_step_progress(w, rank, &interrupt->step);
    if (!interrupt->done && (rank == interrupt->rank) &&
        (w->ranks[rank].next == interrupt->after_tensors)) {
        interrupt->done = true;
        interrupt->act(w, rank);
    }
    return status;
}

static gf_status unclosed_progress(struct world *w, uint32_t rank, void *arg)
{
    return (w->ranks[rank].gf == NULL) ? GF_OK : world_interrupted_progress(w, rank, arg);
}

uint64_t world_interrupted_run(struct world *w, const struct world_setup *setup, uint32_t rank,
                               uint32_t after_tensors, void (*act)(struct world *w, uint32_t rank))
{
    struct world_interrupt interrupt = {.rank = rank, .after_tensors = after_tensors, .act = act};
    uint64_t begin_ns;
    world_open(w, setup);
    begin_ns = gf_sim_now_ns(w->sim);
    world_run(w, unclosed_progress, &interrupt);
    assert_true(interrupt.done);
    return gf_sim_now_ns(w->sim) - begin_ns;
}

gf_status world_regroup_progress(struct world *w, uint32_t rank, void *arg)
{
    if (w->ranks[rank].next++ == 0) {
        gf_status status = gf_regroup_begin(w->ranks[rank].gf);
        if (status != GF_OK) return status;
    }
    return gf_regroup_poll(w->ranks[rank].gf);
}

void world_step_run(struct world *w, const struct world_step *step)
{
    struct world_step copy = *step;
    world_run(w, world_step_progress, &copy);
}

bool world_logged(const struct world *w, uint32_t rank, const char *text)
{
    return strstr(w->ranks[rank].log, text) != NULL;
}

void world_log_clear(struct world *w)
{
    for (uint32_t rank = 0; rank < w->world; rank++) {
        w->ranks[rank].log_bytes = 0;
        w->ranks[rank].log[0] = '\0';
    }
}

void world_expect_log(const struct world *w, uint32_t rank, const char *text)
{
    if (!world_logged(w, rank, text))
        fail_msg("rank %u did not log \"%s\" but\n%s", rank, text, w->ranks[rank].log);
}

struct gf_stats world_stats(const struct world *w, uint32_t rank)
{
    struct gf_stats stats = {.size_bytes = sizeof stats};
    assert_int_equal(gf_stats_read(w->ranks[rank].gf, &stats), GF_OK);
    return stats;
}

/* A simulated endpoint begins with the number of its process. */
uint32_t world_member(const gf_context *gf, uint32_t rank)
{
    size_t bytes;
    uint32_t proc;
    const void *endpoint;
    if (gf_world(gf) == 1) return gf_first_rank(gf);
    endpoint = gf_control_endpoint(gf->control, rank, &bytes);
    assert_true(bytes >= sizeof proc);
    memcpy(&proc, endpoint, sizeof proc);
    return proc;
}

uint64_t world_members(const gf_context *gf)
{
    const struct gf_generation *generation = gf_control_generation(gf->control);
    uint64_t members = 0;
    for (uint32_t rank = 0; (generation->number > 0) && (rank < generation->world); rank++)
        members |= UINT64_C(1) << world_member(gf, rank);
    return members;
}
