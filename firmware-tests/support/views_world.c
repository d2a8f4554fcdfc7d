/* See views_world.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/views_world.h"

#define MS UINT64_C(1000000)
#define POLL_NS (5 * MS)
#define ENDPOINT_BYTES 16u

struct views_world views;

/* the simulator's, whose frames are counted */
static struct gf_rendezvous_driver counting;
static const struct gf_rendezvous_driver *simulated;

__attribute__((format(printf, 1, 2))) static void line(const char *format, ...)
{
    va_list arguments;
    if (views.line_count == VIEWS_LINES_MAX) return;
    va_start(arguments, format);
    (void)vsnprintf(views.lines[views.line_count++], sizeof views.lines[0], format, arguments);
    va_end(arguments);
}

static uint64_t bits_of(const struct members_list *list)
{
    uint64_t bits = 0;
    memcpy(&bits, list->bits, sizeof bits);
    return bits;
}

uint32_t views_epoch(uint32_t rank)
{
    uint32_t epoch = views.ranks[rank].members->view.epoch.epoch;
    return (epoch == 0) ? 0 : epoch - 1;
}

bool views_left_out(uint32_t rank)
{
    const struct members_view *view = &views.ranks[rank].members->view;
    return view->rejoins && (view->epoch.epoch == 0);
}

uint64_t views_members(uint32_t rank)
{
    return bits_of(&views.ranks[rank].members->view.epoch);
}

/* What a rank has done since it was looked at last, in the words of the model. */
static void lines_add(uint32_t rank)
{
    struct views_rank *self = &views.ranks[rank];
    const struct members_view *view = &self->members->view;
    bool proposed = (view->state == VIEW_PROPOSED);
    if (views_epoch(rank) > self->epoch) {
        line("%u begins epoch %u: members %llu", rank, views_epoch(rank),
             (unsigned long long)views_members(rank));
        self->view = self->accepted_view = 0;
        self->proposed = false;
    }
    self->epoch = views_epoch(rank);
    if (views_left_out(rank) && !self->left_out) {
        line("%u is left out", rank);
        self->view = self->accepted_view = 0;
    }
    self->left_out = views_left_out(rank);
    if (view->view > self->view) {
        line("%u promises view %u of epoch %u, accepted %u", rank, view->view, self->epoch,
             (view->accepted_view < view->view) ? view->accepted_view : self->accepted_view);
        self->proposed = false;
    }
    if (proposed && !self->proposed)
        line("%u proposes %llu in view %u", rank, (unsigned long long)bits_of(&view->accepted.list),
             view->view);
    else if ((view->accepted_view > self->accepted_view) && (view->accepted_view == view->view))
        line("%u accepts view %u", rank, view->view);
    self->view = view->view;
    self->accepted_view = view->accepted_view;
    self->proposed = proposed;
}

static uint32_t rank_of(const struct gf_rendezvous *rendezvous)
{
    uint32_t rank = 0;
    while (views.ranks[rank].rendezvous != rendezvous) rank++;
    return rank;
}

static gf_status send_count(struct gf_rendezvous *rendezvous, uint32_t to, uint32_t frame_kind,
                            const void *payload, uint32_t size_bytes)
{
    gf_status status = simulated->send(rendezvous, to, frame_kind, payload, size_bytes);
    uint32_t kind = frame_kind & ((1u << MEMBERS_KIND_BITS) - 1u);
    uint32_t from = rank_of(rendezvous);
    if (status != GF_OK) return status;
    views.frames[kind]++;
    if (views.size <= COMMIT_LOG_IDS) lines_add(from); /* what it had done before */
    if (views.on_send != NULL) views.on_send(from, to, kind);
    return GF_OK;
}

static void address_on_host(struct gf_rendezvous *rendezvous, char *text_out)
{
    uint32_t rank = rank_of(rendezvous);
    (void)snprintf(text_out, GF_CONTROL_ADDRESS_BYTES, "10.0.0.%u:%u", views.host[rank], rank);
}

static gf_status reform_on_host(struct gf_rendezvous *rendezvous, uint64_t now_ns,
                                uint32_t coordinator, const char *address)
{
    char text[GF_CONTROL_ADDRESS_BYTES];
    (void)address;
    (void)snprintf(text, sizeof text, "sim:%u", coordinator);
    return simulated->reform(rendezvous, now_ns, coordinator, text);
}

/* ---- a rank ---- */

static void change_begin(struct gf_members *members, bool planned, bool joins)
{
    uint32_t id = members->member_id;
    uint32_t culprit = (planned || joins) ? GF_RANK_NONE : gf_members_error(members)->peer;
    const struct gf_members_reason reason = {.own = {.applied = 1, .partial = joins},
                                             .planned = planned,
                                             .leaves =
                                                 (id < 64) && (((views.leaves >> id) & 1u) != 0),
                                             .culprit = culprit,
                                             .silent_ns = VIEWS_WAIT_NS,
                                             .away_ns = VIEWS_WAIT_NS};
    gf_view_change(members, gf_sim_now_ns(views.sim), &reason);
}

static void rank_open(uint32_t rank, bool rejoins)
{
    struct views_rank *self = &views.ranks[rank];
    const struct gf_drivers *drivers = gf_sim_drivers(views.sim, rank);
    struct gf_rendezvous_setup at = {.rank = rank,
                                     .world = views.size,
                                     .join_timeout_ns = 8 * VIEWS_WAIT_NS,
                                     .rejoin = rejoins,
                                     .arg = drivers->rendezvous_arg};
    struct gf_members_setup setup = {.rank = rank,
                                     .world = views.size,
                                     .id_count = views.size,
                                     .epoch = 1,
                                     .joins = rejoins,
                                     .join_timeout_ns = at.join_timeout_ns,
                                     .answer_ns = 500 * MS,
                                     .address = "sim",
                                     .offer = {.version = GF_VERSION, .world = views.size},
                                     .endpoint_bytes_max = ENDPOINT_BYTES};
    struct gf_fault fault = {0};
    uint64_t now_ns = gf_sim_now_ns(views.sim);
    *self = (struct views_rank){.rendezvous_memory = malloc(drivers->rendezvous->state_bytes(&at))};
    void *state = malloc(gf_members_state_bytes(views.size, ENDPOINT_BYTES));
    assert_true((state != NULL) && (self->rendezvous_memory != NULL));
    assert_int_equal(
        drivers->rendezvous->open(&at, self->rendezvous_memory, now_ns, &self->rendezvous, &fault),
        GF_OK);
    simulated = drivers->rendezvous;
    counting = *simulated;
    counting.send = send_count;
    if (views.is_hosted) {
        counting.address = address_on_host;
        counting.reform = reform_on_host;
    }
    self->rendezvous->driver = &counting;
    self->members = gf_members_open(&setup, state, self->rendezvous, "endpoint", 8, now_ns);
    if (!rejoins) return;
    change_begin(self->members, false, true);
    self->state = VIEWS_CHANGES;
}

static void rank_close(uint32_t rank)
{
    struct views_rank *self = &views.ranks[rank];
    if (self->members == NULL) return;
    self->rendezvous->driver->close(self->rendezvous);
    free(self->members);
    free(self->rendezvous_memory);
    *self = (struct views_rank){.state = VIEWS_ENDED, .end = self->end};
}

void views_change(uint64_t ranks)
{
    for (uint32_t rank = 0; rank < views.size; rank++) {
        if ((((ranks >> rank) & 1u) == 0) || (views.ranks[rank].state != VIEWS_MEMBER)) continue;
        change_begin(views.ranks[rank].members, true, false);
        views.ranks[rank].state = VIEWS_CHANGES;
        gf_sim_wake_at(views.sim, rank, gf_sim_now_ns(views.sim));
    }
}

void views_fail(uint32_t culprit)
{
    for (uint32_t rank = 0; rank < views.size; rank++) {
        struct views_rank *self = &views.ranks[rank];
        if (!gf_sim_runs(views.sim, rank) || (self->state != VIEWS_MEMBER)) continue;
        self->members->error.peer = culprit;
        change_begin(self->members, false, false);
        self->state = VIEWS_CHANGES;
        gf_sim_wake_at(views.sim, rank, gf_sim_now_ns(views.sim));
    }
}

void views_cut(uint64_t ranks, bool cut)
{
    for (uint32_t a = 0; a < views.size; a++)
        for (uint32_t b = 0; b < a; b++)
            if ((((ranks >> a) ^ (ranks >> b)) & 1u) != 0) gf_sim_partition(views.sim, a, b, cut);
}

void views_stop(uint32_t rank, bool stopped)
{
    line("%u %s", rank, stopped ? "stops" : "goes on");
    gf_sim_stop(views.sim, rank, stopped);
}

static void failed(uint32_t rank, gf_status status)
{
    struct views_rank *self = &views.ranks[rank];
    self->end = status;
    self->state = VIEWS_CHANGES;
    change_begin(self->members, false, false);
}

static void ended_tell(struct gf_members *members, uint32_t rank)
{
    unsigned char bits[GF_WORLD_MAX / 8] = {0};
    for (uint32_t id = 0; id < views.size; id++)
        if (gf_sim_is_dead(views.sim, id) || (views.lies && (id != rank)))
            bits[id / 8] |= (unsigned char)(1u << (id % 8));
    gf_view_ended(members, views.told ? bits : NULL, views.told ? views.size : 0);
}

static void progress(uint32_t rank)
{
    struct views_rank *self = &views.ranks[rank];
    uint64_t now_ns = gf_sim_now_ns(views.sim);
    struct gf_members_plan plan;
    gf_status status;
    if (self->state == VIEWS_ENDED) return;
    if (self->state != VIEWS_CHANGES) {
        status = gf_members_poll(self->members, now_ns);
        if (status < 0)
            failed(rank, status);
        else if (status == GF_OK)
            self->state = VIEWS_MEMBER;
        return;
    }
    if (views.once ? !self->told : (views.told || self->told)) ended_tell(self->members, rank);
    self->told = views.told;
    status = gf_view_poll(self->members, now_ns, &plan);
    if (status == GF_AGAIN) return;
    self->end = status;
    self->left_ended = gf_view_left_ended(self->members);
    bool left = (status == GF_OK) && (plan.world == 0);
    self->state = (left || (status < 0)) ? VIEWS_ENDED : VIEWS_JOINS;
    if (self->state == VIEWS_JOINS)
        gf_view_epoch_join(self->members, "endpoint", 8, now_ns);
    else
        line("%u %s", rank, left ? "has left" : "is out");
}

void views_expect_out(uint32_t rank)
{
    assert_int_equal(views.ranks[rank].state, VIEWS_ENDED);
    assert_int_equal(views.ranks[rank].end, GF_ERR_QUORUM);
}

static void lines_show(void)
{
    for (uint32_t i = 0; i < views.line_count; i++) print_error("%s\n", views.lines[i]);
}

static void turn(uint32_t rank)
{
    struct views_rank *self = &views.ranks[rank];
    if (!gf_sim_runs(views.sim, rank) || (self->members == NULL)) return;
    progress(rank);
    gf_sim_wake_at(views.sim, rank, gf_sim_now_ns(views.sim) + POLL_NS);
    if ((views.size > COMMIT_LOG_IDS) || gf_sim_is_dead(views.sim, rank)) return;
    lines_add(rank);
    if (strstr(gf_members_error(self->members)->text, VIEW_BROKEN) != NULL)
        fail_msg("%s", gf_members_error(self->members)->text);
    if (commit_log_look(&views.log, rank, self->members) || views.lies) return;
    lines_show();
    fail_msg("%s", views.log.error);
}

/* ---- all of them ---- */

static bool step(void)
{
    uint32_t rank = gf_sim_woken_next(views.sim);
    if (rank == GF_RANK_NONE) return gf_sim_advance(views.sim);
    turn(rank);
    return true;
}

void views_until(bool (*done)(void), uint64_t limit_ns)
{
    uint64_t end_ns = gf_sim_now_ns(views.sim) + limit_ns;
    uint64_t looked_ns = UINT64_MAX;
    for (;;) {
        uint64_t now_ns = gf_sim_now_ns(views.sim);
        if ((looked_ns != now_ns) && done()) return;
        looked_ns = now_ns;
        if (step() && (now_ns < end_ns)) continue;
        lines_show();
        for (uint32_t rank = 0; rank < views.size; rank++) {
            const struct gf_members *members = views.ranks[rank].members;
            if (members == NULL) continue;
            print_error("%u: state %d, members' %d, view's %d, coordinator %u: %s\n", rank,
                        (int)views.ranks[rank].state, (int)members->state, (int)members->view.state,
                        members->view.coordinator, gf_members_error(members)->text);
        }
        fail_msg("not done after %.3f s", (double)limit_ns * 1e-9);
    }
}

void views_for(uint64_t span_ns)
{
    uint64_t end_ns = gf_sim_now_ns(views.sim) + span_ns;
    while ((gf_sim_now_ns(views.sim) < end_ns) && step()) {
    }
}

bool views_done(void)
{
    for (uint32_t rank = 0; rank < views.size; rank++) {
        const struct views_rank *self = &views.ranks[rank];
        if (!gf_sim_runs(views.sim, rank) || (self->state == VIEWS_ENDED)) continue;
        if (views_left_out(rank)) continue;
        if (self->state != VIEWS_MEMBER) return false;
        for (uint32_t id = 0; id < views.size; id++)
            if (gf_view_has(self->members->view.epoch.bits, id) &&
                (gf_sim_is_dead(views.sim, id) ||
                 (views.ranks[id].members->view.epoch.epoch != self->members->view.epoch.epoch)))
                return false;
    }
    return true;
}

bool views_run(void)
{
    for (uint32_t rank = 0; rank < views.size; rank++)
        if (gf_sim_runs(views.sim, rank) && (views.ranks[rank].state != VIEWS_MEMBER)) return false;
    return true;
}

void views_open(uint32_t size, bool told)
{
    views_open_on(size, told, NULL);
}

void views_open_on(uint32_t size, bool told, const uint32_t *hosts)
{
    const struct gf_sim_setup setup = {.world = size, .seed = size, .detect_ns = MS};
    memset(&views, 0, sizeof views);
    views.size = size;
    views.told = told;
    views.is_hosted = (hosts != NULL);
    if (hosts != NULL) memcpy(views.host, hosts, size * sizeof *hosts);
    views.sim = gf_sim_create(&setup);
    assert_non_null(views.sim);
    commit_log_open(&views.log, (size <= COMMIT_LOG_IDS) ? size : 0);
    for (uint32_t rank = 0; rank < size; rank++) rank_open(rank, false);
    views_until(views_done, 60000 * MS);
    memset(views.frames, 0, sizeof views.frames);
    views.line_count = 0;
}

void views_close(void)
{
    for (uint32_t rank = 0; rank < views.size; rank++) rank_close(rank);
    gf_sim_destroy(views.sim);
}

void views_crash(uint32_t rank)
{
    gf_sim_kill(views.sim, rank);
    if (views.size <= COMMIT_LOG_IDS) commit_log_died(&views.log, rank);
    line("%u crashes", rank);
}

void views_start(uint32_t rank)
{
    rank_close(rank);
    gf_sim_restart(views.sim, rank);
    commit_log_started(&views.log, rank);
    rank_open(rank, true);
    line("%u starts", rank);
}

void views_sender_crashes(void)
{
    views_crash(views.when.from);
}

static void when_sent(uint32_t from, uint32_t to, uint32_t kind)
{
    const struct views_when when = views.when;
    if ((when.then == NULL) || (from != when.from) || (to != when.to) || (kind != when.kind))
        return;
    views.when.then = NULL;
    when.then();
}

void views_when(uint32_t from, uint32_t to, members_frame kind, void (*then)(void))
{
    views.when = (struct views_when){from, to, kind, then};
    views.on_send = when_sent;
}

void views_expect(const char *const *lines)
{
    uint32_t at = 0;
    for (; *lines != NULL; lines++, at++) {
        while ((at < views.line_count) && (strcmp(views.lines[at], *lines) != 0)) at++;
        if (at < views.line_count) continue;
        lines_show();
        fail_msg("no line \"%s\" behind those before it", *lines);
    }
}
