/* See control.h. */
#include "lib/control/control.h"

#include "lib/control/alone.h"
#include "lib/control/coordinator.h"
#include "lib/control/member.h"

#include <string.h>

#define ALIGN_BYTES 64u
#define ALONE_TURNS 8u
#define TELL_TURNS 2u

struct gf_control {
    struct gf_control_setup setup;
    struct gf_log log;
    struct gf_channel *channel; /* of the member */
    struct gf_member *member;
    struct gf_channel *taker; /* of the coordinator; NULL: it has a process of its own */
    struct gf_coordinator *coordinator;
    uint64_t polled_ns;          /* the last time that it was given */
    bool is_over;                /* the coordinator has told everybody */
    uint32_t number;             /* of the generation that `broken` is of */
    struct control_edges broken; /* as the failure under way found them: it ends connections */
};

/* ---- memory ---- */

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

/* Nobody else is ever to come. */
static bool is_alone(const struct gf_control_setup *setup)
{
    return setup->hosts && (setup->id_count == 1);
}

static const struct gf_channel_driver *driver_of(const struct gf_control_setup *setup)
{
    return is_alone(setup) ? &gf_channel_alone : setup->driver;
}

static struct gf_channel_setup taker_setup(const struct gf_control_setup *setup)
{
    struct gf_channel_setup taker = setup->channel;
    taker.listens = true;
    taker.connections_max = GF_COORDINATOR_CONNECTIONS(setup->id_count);
    taker.connections_expected = setup->world;
    return taker;
}

static struct gf_coordinator_setup coordinator_setup(const struct gf_control_setup *setup)
{
    return (struct gf_coordinator_setup){.world = setup->world,
                                         .id_count = setup->id_count,
                                         .host_id = setup->id,
                                         .is_first = true,
                                         .join_timeout_ns = setup->join_timeout_ns,
                                         .endpoint_bytes_max = setup->endpoint_bytes_max,
                                         .address = setup->channel.address,
                                         .log = setup->channel.log};
}

static void member_setup(const struct gf_control_setup *setup, struct gf_member_setup *member_out)
{
    *member_out =
        (struct gf_member_setup){.id = setup->id,
                                 .world = setup->world,
                                 .id_count = setup->id_count,
                                 .host_id = setup->host_id,
                                 .rejoins = setup->rejoins,
                                 .process = setup->process | 1u,
                                 .terms = {.elastic = setup->elastic,
                                           .join_timeout_ns = setup->join_timeout_ns,
                                           .keepalive_ns = setup->channel.keepalive_ns,
                                           .exchange_timeout_ns = setup->exchange_timeout_ns},
                                 .values = setup->offer,
                                 .endpoint_bytes_max = setup->endpoint_bytes_max,
                                 .address = setup->channel.address,
                                 .log = setup->channel.log};
}

size_t gf_control_state_bytes(const struct gf_control_setup *setup)
{
    struct gf_member_setup member;
    const struct gf_channel_driver *driver = driver_of(setup);
    size_t bytes = aligned(sizeof(struct gf_control));
    member_setup(setup, &member);
    bytes += aligned(gf_member_state_bytes(&member));
    bytes += aligned(driver->state_bytes(&setup->channel));
    if (!setup->hosts) return bytes;
    if (is_alone(setup)) bytes += aligned(sizeof(struct gf_alone));
    const struct gf_channel_setup taker = taker_setup(setup);
    const struct gf_coordinator_setup coordinator = coordinator_setup(setup);
    bytes += aligned(gf_coordinator_state_bytes(&coordinator));
    return bytes + aligned(driver->state_bytes(&taker));
}

/* ---- evidence ---- */

static void edge_add(struct control_edges *edges, uint32_t peer)
{
    for (uint32_t i = 0; i < edges->count; i++)
        if (edges->peers[i] == peer) return;
    if (edges->count < CONTROL_EDGES_MAX) edges->peers[edges->count++] = (uint16_t)peer;
}

/* Of several what is known best: what this rank lacks, then what the kernel says. */
static void edge_say(struct control_edges *edges, uint32_t peer, const struct gf_fault *fault)
{
    bool lacks = (fault->code == GF_ERR_SYSTEM);
    if ((fault->code == GF_OK) || (edges->code == GF_ERR_SYSTEM)) return;
    if ((edges->code != GF_OK) && !lacks &&
        ((edges->foreign_code != 0) || (fault->foreign_code == 0)))
        return;
    edges->code = lacks ? GF_ERR_SYSTEM : GF_ERR_LINK;
    edges->peer = peer;
    edges->foreign_code = fault->foreign_code;
    memcpy(edges->foreign_call, fault->foreign_call, sizeof edges->foreign_call);
    memcpy(edges->text, fault->text, sizeof edges->text);
}

static void edges_tell(void *of, struct control_edges *edges_out)
{
    struct gf_control *control = of;
    const struct gf_generation *generation = gf_member_generation(control->member);
    if (control->number != generation->number) control->broken.count = 0;
    if (control->number != generation->number) control->broken.code = GF_OK;
    for (uint32_t rank = 0; rank < generation->world; rank++) {
        struct gf_fault fault = {.code = GF_OK, .peer = rank};
        if ((rank == generation->rank) ||
            !control->setup.edge_is_broken(control->setup.edges_of, rank, &fault))
            continue;
        edge_add(&control->broken, rank);
        edge_say(&control->broken, rank, &fault);
    }
    *edges_out = control->broken;
}

static const char *tensor_name(void *of, uint32_t tensor)
{
    const struct gf_control *control = of;
    return control->setup.tensor_name(control->setup.edges_of, tensor);
}

static uint64_t first_unbegun(void *of)
{
    const struct gf_control *control = of;
    return control->setup.begun(control->setup.edges_of);
}

/* ---- open and close ---- */

static gf_status coordinator_open(struct gf_control *control, char *at, uint64_t now_ns,
                                  struct gf_fault *fault_out)
{
    const struct gf_control_setup *setup = &control->setup;
    const struct gf_channel_setup taker = taker_setup(setup);
    const struct gf_coordinator_setup coordinator = coordinator_setup(setup);
    const struct gf_channel_driver *driver = driver_of(setup);
    char *state = at + aligned(driver->state_bytes(&taker));
    gf_status status = driver->open(&taker, at, now_ns, &control->taker, fault_out);
    if (status < 0) return status;
    control->coordinator = gf_coordinator_open(&coordinator, state, control->taker, now_ns);
    return GF_OK;
}

gf_status gf_control_open(const struct gf_control_setup *setup, void *state, uint64_t now_ns,
                          struct gf_control **control_out, struct gf_fault *fault_out)
{
    struct gf_control *control = state;
    struct gf_member_setup member;
    gf_status status;
    memset(control, 0, sizeof *control); /* which is too large for the stack, too */
    control->setup = *setup;
    control->log = setup->channel.log;
    member_setup(setup, &member);
    if (setup->edge_is_broken != NULL) member.edges = edges_tell;
    if (setup->tensor_name != NULL) member.tensor_name = tensor_name;
    if (setup->begun != NULL) member.begun = first_unbegun;
    member.edges_of = control;
    char *at = (char *)state + aligned(sizeof *control);
    char *channel = at + aligned(gf_member_state_bytes(&member));
    char *rest = channel + aligned(driver_of(setup)->state_bytes(&setup->channel));
    if (is_alone(setup)) {
        memset(rest, 0, sizeof(struct gf_alone));
        control->setup.channel.arg = rest;
        rest += aligned(sizeof(struct gf_alone));
    }
    if (setup->hosts && ((status = coordinator_open(control, rest, now_ns, fault_out)) < 0))
        return status;
    status = driver_of(setup)->open(&control->setup.channel, channel, now_ns, &control->channel,
                                    fault_out);
    if (status < 0) {
        if (control->taker != NULL) control->taker->driver->close(control->taker);
        return status;
    }
    control->member = gf_member_open(&member, at, control->channel, now_ns);
    control->polled_ns = now_ns;
    *control_out = control;
    return GF_OK;
}

void gf_control_close(struct gf_control *control)
{
    control->channel->driver->close(control->channel);
    if (control->taker != NULL) control->taker->driver->close(control->taker);
}

/* ---- the poll ---- */

static void coordinator_turn(struct gf_control *control, uint64_t now_ns)
{
    if (control->coordinator == NULL) return;
    gf_status status = gf_coordinator_poll(control->coordinator, now_ns);
    if ((status != GF_AGAIN) && !control->is_over && (control->taker->fault.code != GF_OK))
        gf_log_line(&control->log, GF_LOG_ERROR, "the coordinator's channel: %s",
                    control->taker->fault.text);
    control->is_over = (status != GF_AGAIN);
}

static gf_control_state state_of(gf_member_state state)
{
    switch (state) {
    case GF_MEMBER_JOINING:
    case GF_MEMBER_LISTED:
    case GF_MEMBER_READY: return GF_CONTROL_AWAITS;
    case GF_MEMBER_WORKS: return GF_CONTROL_WORKS;
    case GF_MEMBER_FAILED: return GF_CONTROL_FAILED;
    case GF_MEMBER_CLOSING: return GF_CONTROL_LEAVES;
    case GF_MEMBER_GONE: return GF_CONTROL_LEFT;
    case GF_MEMBER_ENDED: break;
    }
    return GF_CONTROL_ENDED;
}

gf_control_state gf_control_current_state(const struct gf_control *control)
{
    return state_of(gf_member_current_state(control->member));
}

static void report_put(struct gf_control *control, const struct gf_position *position)
{
    struct control_report *report = gf_member_report(control->member);
    report->step = position->step;
    report->sequence = position->sequence;
    report->operation = position->operation;
    report->tensor = position->tensor;
    report->waits_for = position->waits_for;
    report->buffer = position->buffer;
}

gf_control_state gf_control_poll(struct gf_control *control, uint64_t now_ns, uint64_t away_ns,
                                 const struct gf_position *position)
{
    report_put(control, position);
    control->polled_ns = now_ns;
    if (control->coordinator != NULL) gf_coordinator_away(control->coordinator, away_ns);
    /* where only these two talk all has been said after some turns */
    for (uint32_t i = 0; i < (is_alone(&control->setup) ? ALONE_TURNS : 1); i++) {
        (void)gf_member_poll(control->member, now_ns);
        coordinator_turn(control, now_ns); /* it takes what the member has said */
    }
    gf_control_state state = gf_control_current_state(control);
    uint32_t number = gf_member_generation(control->member)->number;
    if (number == control->number) return state;
    control->number = number;
    control->broken = (struct control_edges){0};
    return state;
}

/* ---- generations ---- */

bool gf_control_list_due(const struct gf_control *control, struct gf_generation *generation_out)
{
    return gf_member_list_due(control->member, generation_out);
}

void gf_control_endpoint_set(struct gf_control *control, const void *endpoint,
                             size_t endpoint_bytes)
{
    gf_member_endpoint_set(control->member, endpoint, endpoint_bytes);
}

const struct gf_generation *gf_control_generation(const struct gf_control *control)
{
    return gf_member_generation(control->member);
}

const void *gf_control_endpoint(const struct gf_control *control, uint32_t rank, size_t *bytes_out)
{
    return gf_member_endpoint(control->member, rank, bytes_out);
}

uint32_t gf_control_joiners(const struct gf_control *control)
{
    return gf_member_joiner_count(control->member);
}

bool gf_control_closed(const struct gf_control *control, uint32_t *rank_out, uint64_t *step_out)
{
    const struct control_closed *closed = gf_member_closed(control->member);
    if (closed == NULL) return false;
    *rank_out = closed->rank;
    *step_out = closed->step;
    return true;
}

/* ---- words ---- */

void gf_control_fault(struct gf_control *control, const struct gf_error *seen, uint64_t steps,
                      bool ends)
{
    struct gf_error reported = *seen;
    reported.step = steps;
    gf_member_fault(control->member, &reported, ends);
    /* nobody may poll after this; where the coordinator is here, too, the others are told now */
    for (uint32_t i = 0; i < TELL_TURNS; i++) coordinator_turn(control, control->polled_ns);
}

bool gf_control_is_found(const struct gf_control *control)
{
    return gf_member_is_found(control->member);
}

const struct gf_error *gf_control_error(const struct gf_control *control)
{
    return gf_member_error(control->member);
}

bool gf_control_is_lost(const struct gf_control *control)
{
    return gf_member_is_lost(control->member);
}

bool gf_control_is_final(const struct gf_control *control)
{
    return gf_member_has_ended(control->member);
}

void gf_control_ready(struct gf_control *control, const struct gf_control_progress *own,
                      bool planned, bool leaves)
{
    const struct control_ready ready = {.planned = planned, .leaves = leaves, .progress = *own};
    gf_member_ready(control->member, &ready);
}

void gf_control_bye(struct gf_control *control, uint64_t steps)
{
    gf_member_report(control->member)->step = steps;
    gf_member_bye(control->member);
}

const char *gf_control_waits_for(const struct gf_control *control, uint32_t *rank_out)
{
    return gf_member_waits_for(control->member, rank_out);
}

void gf_control_heartbeat(struct gf_control *control, uint64_t now_ns, uint64_t patience_ns)
{
    gf_member_heartbeat(control->member, now_ns, patience_ns);
}

uint64_t gf_control_patience(const struct gf_control *control, uint64_t now_ns, uint64_t *from_out)
{
    return gf_member_patience(control->member, now_ns, from_out);
}

void gf_control_call(struct gf_control *control, gf_operation operation, gf_type type,
                     uint32_t root, uint64_t elem_count)
{
    gf_member_call(control->member, operation, type, root, elem_count);
}

/* ---- the rest ---- */

bool gf_control_hosts(const struct gf_control *control)
{
    return control->coordinator != NULL;
}

bool gf_control_flushed(const struct gf_control *control)
{
    return gf_member_flushed(control->member) &&
           ((control->coordinator == NULL) || control->is_over);
}

uint32_t gf_control_wake_fds(const struct gf_control *control, int fds_out[GF_CONTROL_FDS])
{
    struct gf_channel *const channels[GF_CONTROL_FDS] = {control->channel, control->taker};
    uint32_t count = 0;
    for (uint32_t i = 0; i < GF_CONTROL_FDS; i++) {
        int fd = (channels[i] != NULL) ? channels[i]->driver->wake_fd(channels[i]) : -1;
        if (fd >= 0) fds_out[count++] = fd;
    }
    return count;
}

uint64_t gf_control_sent_bytes(const struct gf_control *control)
{
    if (is_alone(&control->setup)) return 0;
    return control->channel->sent_bytes +
           ((control->taker != NULL) ? control->taker->sent_bytes : 0);
}
