/* The next epoch: survivors find each other and agree on who they are. What is done with the agreement (the link and
 * the region anew, the state made common) is in shrink.c.
 *
 *     1. Seek. Each survivor turns to the lowest rank of its newest epoch that is neither dead nor blamed; if
 *        that does not answer, to the next. Whoever is the lowest itself collects.
 *     2. REPORT, survivor to collector: the newest epoch it knows to have begun, the newest proposal it took
 *        part in, who it knows to be dead, how far it is.
 *     3. The collector waits for everybody who is neither dead, nor blamed, nor gone from it, at most settle_ns.
 *     4. Quorum: more than half of those of the newest epoch who are not known to be dead must have reported;
 *        exactly half do where the lowest of them is among them. The same must hold for each newer proposal that
 *        a reporter took part in: it may have begun elsewhere. Any two sides that pass share a rank, and a rank
 *        reports to one at a time, so at most one side goes on.
 *     5. PROPOSE, collector to everybody it can reach: number and list of the next epoch, whose state is the
 *        common one. Whoever is not on the list learns that it is out.
 *     6. The join of members_join.c runs once more under the new number: an offer says "prepared", GO says
 *        "begun". A rank that fails before GO begins with 1, and tells of the proposal; whoever has heard GO is
 *        in.
 *
 * What counts as dead: a connection that the other's kernel closed or refused without a word of turning away.
 * Silence does not (a cable, a stopped process), so silent ranks count against the quorum.
 *
 * The common state is that of the survivor that is furthest: steps are transactional, so survivors differ by at most
 * one step (a verdict that reached some of them) or by one gf_update(). The lowest rank among the furthest leads. */
#include "members_state.h"

#include <stdarg.h>
#include <stdio.h>

#define REPORT_HEAD_BYTES 40u
#define REASON_BYTES 160u

/* Where this rank's fellows are: a proposal may have begun without its having heard so. */
static const struct members_list *newest(const struct members_shrink *shrink)
{
    return (shrink->prepared.epoch > shrink->base.epoch) ? &shrink->prepared : &shrink->base;
}

void gf_members_committed(struct gf_members *members)
{
    struct members_shrink *shrink = &members->shrink;
    shrink->base = (struct members_list){.epoch = members->setup.epoch};
    shrink->prepared.epoch = 0;
    shrink->other_count = 0;
    shrink->others_full = false;
    shrink->state = MEMBERS_SHRINK_NONE;
    for (uint32_t seat = 0; seat < members->seat_count; seat++) {
        members->seats[seat].blamed = members->seats[seat].skipped = false;
    }
    for (uint32_t rank = 0; rank < members->setup.world; rank++) {
        struct members_seat *seat = &members->seats[members->seat_of[rank]];
        gf_members_list_add(&shrink->base, members->seat_of[rank]);
        memcpy(seat->address, members->blobs + rank * members->setup.blob_bytes_max, sizeof seat->address);
        seat->address[sizeof seat->address - 1] = 0;
    }
}

const uint32_t *gf_members_seats(const struct gf_members *members)
{
    return members->seat_of;
}

/* ---- ending without an epoch ---- */

__attribute__((format(printf, 3, 4))) static void shrink_fail(struct gf_members *members, gf_status code,
                                                              const char *format, ...)
{
    va_list arguments;
    char text[sizeof members->error.text]; /* the arguments may be the last error's text */
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    members->error = (struct gf_error){.code = code, .rank = members->setup.rank, .peer = GF_RANK_NONE,
                                       .operation = GF_OPERATION_SHRINK, .step = members->shrink.own.steps,
                                       .tensor = GF_TENSOR_NONE};
    memcpy(members->error.text, text, sizeof text);
    members->state = MEMBERS_FAILED;
    members->shrink.state = MEMBERS_SHRINK_FAILED;
}

static void excluded(struct gf_members *members, uint32_t epoch)
{
    members->shrink.excluded = true;
    shrink_fail(members, GF_ERR_QUORUM,
                "the other ranks went on without rank %u: epoch %u is closed, epoch %u has begun", members->setup.rank,
                members->shrink.base.epoch, epoch);
}

/* ---- frames ---- */

static uint32_t report_put(struct gf_members *members)
{
    const struct members_shrink *shrink = &members->shrink;
    struct gf_put put = {members->scratch, sizeof members->scratch};
    struct members_list dead = {.epoch = 0};
    for (uint32_t seat = 0; seat < members->seat_count; seat++)
        if (members->seats[seat].dead) gf_members_list_add(&dead, seat);
    gf_put_u32(&put, members->seat_count);
    gf_put_u32(&put, shrink->epoch_last);
    gf_put_u32(&put, shrink->own.applied | (shrink->own.torn << 1));
    gf_put_u64(&put, shrink->own.steps);
    gf_put_u64(&put, shrink->own.requests);
    gf_members_list_put(&put, &shrink->base, members->seat_count);
    gf_members_list_put(&put, &shrink->prepared, members->seat_count);
    gf_members_list_put(&put, &dead, members->seat_count);
    return (uint32_t)(GF_FRAME_PAYLOAD_MAX - put.left);
}
_Static_assert(REPORT_HEAD_BYTES + 3 * (4 + GF_WORLD_MAX / 8) <= GF_FRAME_PAYLOAD_MAX, "a report fits in a frame");

static void prepared_keep(struct members_shrink *shrink, const struct members_list *list)
{
    if (list->epoch == 0) return;
    for (uint32_t i = 0; i < shrink->other_count; i++)
        if (gf_members_list_same(&shrink->others[i], list)) return;
    if (shrink->other_count == MEMBERS_PREPARED_MAX) shrink->others_full = true; /* no quorum can be counted */
    else shrink->others[shrink->other_count++] = *list;
}

static void report_take(struct gf_members *members, uint32_t from, struct gf_get *get)
{
    struct members_shrink *shrink = &members->shrink;
    uint32_t seat_count = gf_get_u32(get), epoch_last = gf_get_u32(get);
    uint32_t flags = gf_get_u32(get);
    struct gf_members_standing standing = {.applied = flags & 1u, .torn = (flags >> 1) & 1u};
    struct members_list list; /* one at a time: they are large */
    const unsigned char *base_bits, *prepared_bits, *dead_bits;
    uint32_t base_epoch, prepared_epoch;
    standing.steps = gf_get_u64(get);
    standing.requests = gf_get_u64(get);
    if (seat_count != members->seat_count) get->bad = true;
    base_epoch = gf_get_u32(get);
    base_bits = gf_get_bytes(get, (seat_count + 7) / 8);
    prepared_epoch = gf_get_u32(get);
    prepared_bits = gf_get_bytes(get, (seat_count + 7) / 8);
    (void)gf_get_u32(get);
    dead_bits = gf_get_bytes(get, (seat_count + 7) / 8);
    if (get->bad || (base_epoch == 0)) return; /* it never joined; it will not hear of a proposal and end by itself */
    if (epoch_last > shrink->epoch_last) shrink->epoch_last = epoch_last;
    if (base_epoch > shrink->base.epoch) gf_members_list_set(&shrink->base, base_epoch, base_bits, seat_count);
    gf_members_list_set(&list, prepared_epoch, prepared_bits, seat_count);
    prepared_keep(shrink, &list);
    gf_members_list_set(&list, 0, dead_bits, seat_count);
    for (uint32_t seat = 0; seat < seat_count; seat++)
        if (gf_members_list_has(&list, seat) && (seat != members->seat) && !members->seats[seat].up)
            members->seats[seat].dead = true;
    members->seats[from].standing = standing;
    members->seats[from].reported = true;
    if ((members->state != MEMBERS_JOINING) && (members->state != MEMBERS_MEMBER)) return;
    if (members->seats[from].rank == GF_RANK_NONE) {
        members->seats[from].answer = true; /* it was left behind */
    } else if (members->shrink.base.epoch != 0) {
        gf_members_failf(members, GF_ERR_PEER, GF_RANK_NONE, "rank %u has failed and asks for a new epoch",
                         members->seats[from].rank);
    }
}

static uint32_t proposal_put(struct gf_members *members)
{
    const struct members_shrink *shrink = &members->shrink;
    struct gf_put put = {members->scratch, sizeof members->scratch};
    gf_put_u32(&put, (uint32_t)shrink->answer_code);
    gf_put_u32(&put, newest(shrink)->epoch);
    gf_put_u32(&put, shrink->plan.lead);
    gf_put_u32(&put, shrink->plan.behind ? 1 : 0);
    gf_put_u32(&put, shrink->plan.standing.applied);
    gf_put_u64(&put, shrink->plan.standing.steps);
    gf_put_u64(&put, shrink->plan.standing.requests);
    gf_members_list_put(&put, newest(shrink), members->seat_count);
    gf_put_text(&put, members->error.text, REASON_BYTES);
    return (uint32_t)(GF_FRAME_PAYLOAD_MAX - put.left);
}

/* The plan's rank and world follow from the list. */
static void plan_place(struct gf_members *members, struct gf_members_plan *plan)
{
    plan->world = plan->rank = 0;
    for (uint32_t seat = 0; seat < members->seat_count; seat++) {
        if (!gf_members_list_has(&members->shrink.prepared, seat)) continue;
        if (seat == members->seat) plan->rank = plan->world;
        plan->world++;
    }
}

static void proposal_take(struct gf_members *members, uint32_t from, struct gf_get *get)
{
    struct members_shrink *shrink = &members->shrink;
    char reason[REASON_BYTES];
    gf_status code = (gf_status)(int32_t)gf_get_u32(get);
    struct gf_members_plan plan = {.epoch = gf_get_u32(get)};
    struct members_list list = {.epoch = 0};
    const unsigned char *bits;
    plan.lead = gf_get_u32(get);
    plan.behind = gf_get_u32(get) != 0;
    plan.standing.applied = gf_get_u32(get);
    plan.standing.steps = gf_get_u64(get);
    plan.standing.requests = gf_get_u64(get);
    (void)gf_get_u32(get);
    bits = gf_get_bytes(get, (members->seat_count + 7) / 8);
    if (bits != NULL) gf_members_list_set(&list, plan.epoch, bits, members->seat_count);
    gf_get_text(get, reason, sizeof reason);
    if (get->bad || shrink->excluded || (plan.epoch < shrink->base.epoch)) return;
    if ((code == GF_OK) && !gf_members_list_has(&list, members->seat)) {
        excluded(members, plan.epoch);
        return;
    }
    if ((shrink->state != MEMBERS_SHRINK_SEEK) || (from != shrink->coordinator)) return;
    if (code != GF_OK) {
        shrink_fail(members, (code < 0) ? code : GF_ERR_QUORUM, "%s", reason);
        return;
    }
    if (plan.epoch <= shrink->epoch_last) return; /* of a try that we have left */
    shrink->epoch_last = plan.epoch;
    shrink->prepared = list;
    shrink->prepared.epoch = plan.epoch;
    plan_place(members, &plan);
    shrink->plan = plan;
    shrink->state = MEMBERS_SHRINK_AGREED;
}

bool gf_members_shrink_frame(struct gf_members *members, uint32_t seat, uint32_t kind, struct gf_get *get)
{
    if (kind == MEMBERS_REPORT) report_take(members, seat, get);
    else proposal_take(members, seat, get);
    return !get->bad;
}

/* ---- seeking ---- */

static void turn_to(struct gf_members *members, uint32_t seat)
{
    struct members_shrink *shrink = &members->shrink;
    const struct gf_rendezvous_driver *driver = members->rendezvous->driver;
    gf_status status = (driver->reform == NULL) ? ((seat == members->seat_of[0]) ? GF_OK : GF_ERR_STATE)
                                                : driver->reform(members->rendezvous, members->now_ns, seat,
                                                                 members->seats[seat].address);
    shrink->coordinator = seat;
    shrink->since_ns = members->now_ns;
    shrink->state = (seat == members->seat) ? MEMBERS_SHRINK_COLLECT : MEMBERS_SHRINK_SEEK;
    shrink->report = (seat != members->seat) && (status == GF_OK);
    if (status >= 0) {
        for (uint32_t other = 0; (other < members->seat_count) && (seat != shrink->star); other++)
            members->seats[other].up = members->seats[other].reported = false; /* their connections are closed */
        shrink->star = seat;
        return;
    }
    if (seat != members->seat) members->seats[seat].skipped = true;
    else shrink_fail(members, GF_ERR_SYSTEM, "rank %u cannot coordinate: %.160s", members->setup.rank,
                     (driver->reform == NULL) ? "its control channel has no such part"
                                              : members->rendezvous->fault.text);
}

/* The next one to turn to; ends at this rank at the latest. */
static void seek(struct gf_members *members)
{
    const struct members_list *list = newest(&members->shrink);
    for (uint32_t seat = 0; seat <= members->seat; seat++) {
        const struct members_seat *candidate = &members->seats[seat];
        if ((seat != members->seat) &&
            (!gf_members_list_has(list, seat) || candidate->dead || candidate->blamed || candidate->skipped)) continue;
        turn_to(members, seat);
        if (!members->seats[seat].skipped) return;
    }
}

void gf_members_seat_event(struct gf_members *members, const struct gf_rendezvous_event *event)
{
    struct members_seat *seat = &members->seats[event->rank];
    struct members_shrink *shrink = &members->shrink;
    bool seeks = (shrink->state == MEMBERS_SHRINK_SEEK) && (event->rank == shrink->coordinator);
    if (event->kind == GF_RENDEZVOUS_CONNECTED) {
        seat->up = true;
        seat->turned = seat->dead = false;
        if (seeks) shrink->report = true;
    } else if (event->kind == GF_RENDEZVOUS_ENDED) {
        seat->up = seat->reported = seat->answer = false;
        seat->turned = true;
        if (!event->lives) seat->dead = true;
        if (!seeks) return;
        seat->skipped = true;
        seek(members);
    }
}

/* ---- collecting ---- */

static bool further(const struct gf_members_standing *a, const struct gf_members_standing *b)
{
    if (a->torn != b->torn) return b->torn != 0;
    return (a->steps != b->steps) ? (a->steps > b->steps) : (a->applied > b->applied);
}

/* Everybody on the list has told where it is: what is common, who leads. */
static struct gf_members_plan plan_make(const struct gf_members *members, const struct members_list *list)
{
    struct gf_members_plan plan = {.standing = members->shrink.own};
    uint32_t rank = 0;
    bool first = true;
    for (uint32_t seat = 0; seat < members->seat_count; seat++) {
        const struct gf_members_standing *standing = &members->seats[seat].standing;
        uint64_t requests = plan.standing.requests;
        if (!gf_members_list_has(list, seat)) continue;
        if (seat == members->seat) standing = &members->shrink.own;
        if (!first && (further(standing, &plan.standing) || further(&plan.standing, standing))) plan.behind = true;
        if (standing->torn != 0) plan.behind = true;
        if (first || further(standing, &plan.standing)) {
            plan.standing = *standing;
            plan.lead = rank;
        }
        plan.standing.requests = (requests > standing->requests) ? requests : standing->requests;
        first = false;
        rank++;
    }
    return plan;
}

static void answer_all(struct gf_members *members, gf_status code)
{
    members->shrink.answer_code = code;
    for (uint32_t seat = 0; seat < members->seat_count; seat++) {
        members->seats[seat].reported = false;
        members->seats[seat].answer = members->seats[seat].up;
    }
}

static void collect(struct gf_members *members)
{
    struct members_shrink *shrink = &members->shrink;
    struct members_list list = {.epoch = 0};
    uint32_t missing = 0, here = 0, alive = 0, turned = 0;
    for (uint32_t s = 0; s < members->seat_count; s++) {
        const struct members_seat *seat = &members->seats[s];
        if (!gf_members_list_has(&shrink->base, s)) continue;
        alive += seat->dead ? 0u : 1u;
        if ((s == members->seat) || (seat->reported && seat->up && !seat->dead && !seat->blamed)) {
            gf_members_list_add(&list, s);
            here++;
        } else if (!seat->dead && !seat->blamed && !seat->turned) {
            missing++;
        }
        turned += (seat->turned && !seat->dead) ? 1u : 0u;
    }
    if ((missing > 0) && (members->now_ns - shrink->since_ns < shrink->settle_ns)) return;
    if (!gf_members_list_has(&list, members->seat)) {
        excluded(members, shrink->base.epoch);
        return;
    }
    if ((turned > 0) && !gf_members_quorum(members, &list)) {
        shrink_fail(members, GF_ERR_QUORUM, "the other ranks went on without rank %u: %u of the %u of epoch %u have "
                    "turned to another coordinator", members->setup.rank, turned, alive, shrink->base.epoch);
        answer_all(members, GF_ERR_QUORUM);
        return;
    }
    if (!gf_members_quorum(members, &list)) {
        shrink_fail(members, GF_ERR_QUORUM, "%u of the %u ranks of epoch %u that are not known to be dead are here: "
                    "too few to go on", here, alive, shrink->base.epoch);
        answer_all(members, GF_ERR_QUORUM);
        return;
    }
    shrink->plan = plan_make(members, &list);
    if (shrink->plan.standing.torn != 0) {
        shrink_fail(members, GF_ERR_DATA, "no survivor holds whole weights: the ranks they were copied from have died");
        answer_all(members, GF_ERR_DATA);
        return;
    }
    shrink->plan.epoch = ++shrink->epoch_last;
    shrink->prepared = list;
    shrink->prepared.epoch = shrink->plan.epoch;
    plan_place(members, &shrink->plan);
    answer_all(members, GF_OK);
    shrink->state = MEMBERS_SHRINK_AGREED;
}

/* ---- running ---- */

void gf_members_shrink_flush(struct gf_members *members)
{
    struct members_shrink *shrink = &members->shrink;
    const struct gf_rendezvous_driver *driver = members->rendezvous->driver;
    if (shrink->report && (shrink->state == MEMBERS_SHRINK_SEEK)) {
        uint32_t bytes = report_put(members);
        gf_status status = driver->send(members->rendezvous, shrink->coordinator, MEMBERS_REPORT, members->scratch,
                                        bytes);
        if (status != GF_AGAIN) shrink->report = false; /* an end of the connection is on its way to us */
    }
    for (uint32_t seat = 0; seat < members->seat_count; seat++) {
        if (!members->seats[seat].answer) continue;
        uint32_t bytes = proposal_put(members);
        gf_status status = driver->send(members->rendezvous, seat, MEMBERS_PROPOSE, members->scratch, bytes);
        if (status != GF_AGAIN) members->seats[seat].answer = false;
    }
}

void gf_members_shrink(struct gf_members *members, uint64_t now_ns, uint32_t blamed,
                       const struct gf_members_standing *own, uint64_t settle_ns)
{
    struct members_shrink *shrink = &members->shrink;
    members->now_ns = now_ns;
    shrink->own = *own;
    shrink->settle_ns = settle_ns;
    members->state = MEMBERS_FAILED;
    if (blamed == members->setup.rank) {
        shrink_fail(members, GF_ERR_QUORUM, "the other ranks go on without this one: %.200s", members->error.text);
        return;
    }
    if (blamed < members->setup.world) members->seats[members->seat_of[blamed]].blamed = true; /* not GF_RANK_NONE */
    if (shrink->excluded || (shrink->base.epoch == 0)) {
        shrink->state = MEMBERS_SHRINK_FAILED;
        members->error.code = GF_ERR_QUORUM;
        return;
    }
    seek(members);
}

gf_status gf_members_shrink_poll(struct gf_members *members, uint64_t now_ns, struct gf_members_plan *plan_out)
{
    struct members_shrink *shrink = &members->shrink;
    members->now_ns = now_ns;
    gf_members_flush(members); /* the last verdict may still be owed */
    for (uint32_t i = 0; (i < MEMBERS_EVENTS_MAX) && (members->seat_count > 1); i++) {
        struct gf_rendezvous_event event = {0};
        struct gf_get get;
        uint32_t kind;
        gf_status status = members->rendezvous->driver->poll(members->rendezvous, now_ns, &event);
        if (status == GF_AGAIN) break;
        if (status < 0) {
            shrink_fail(members, status, "%.200s", members->rendezvous->fault.text);
            break;
        }
        if (event.kind == GF_RENDEZVOUS_REFUSED) continue;
        gf_members_seat_event(members, &event);
        kind = event.frame_kind & ((1u << MEMBERS_KIND_BITS) - 1u);
        get = (struct gf_get){.at = event.payload, .left = event.size_bytes};
        if ((event.kind == GF_RENDEZVOUS_FRAME) && ((kind == MEMBERS_REPORT) || (kind == MEMBERS_PROPOSE)))
            (void)gf_members_shrink_frame(members, event.rank, kind, &get);
        if ((shrink->state != MEMBERS_SHRINK_SEEK) && (shrink->state != MEMBERS_SHRINK_COLLECT)) break;
    }
    if (shrink->state == MEMBERS_SHRINK_COLLECT) collect(members);
    if ((shrink->state == MEMBERS_SHRINK_SEEK) && (now_ns - shrink->since_ns >= 2 * shrink->settle_ns)) {
        members->seats[shrink->coordinator].skipped = true;
        seek(members);
    }
    gf_members_shrink_flush(members);
    if (shrink->state == MEMBERS_SHRINK_FAILED) return members->error.code;
    if (shrink->state != MEMBERS_SHRINK_AGREED) return GF_AGAIN;
    *plan_out = shrink->plan;
    return GF_OK;
}

void gf_members_shrink_join(struct gf_members *members, const void *blob, size_t blob_bytes, uint64_t now_ns)
{
    const struct gf_members_plan plan = members->shrink.plan;
    uint32_t rank = 0;
    GF_ASSERT(members->shrink.state == MEMBERS_SHRINK_AGREED);
    for (uint32_t seat = 0; seat < members->seat_count; seat++) {
        members->seats[seat].rank = gf_members_list_has(&members->shrink.prepared, seat) ? rank : GF_RANK_NONE;
        if (members->seats[seat].rank != GF_RANK_NONE) members->seat_of[rank++] = seat;
    }
    GF_ASSERT((rank == plan.world) && (members->seat_of[plan.rank] == members->seat));
    members->setup.rank = plan.rank;
    members->setup.world = plan.world;
    members->setup.epoch = plan.epoch;
    members->setup.offer.world = plan.world;
    members->setup.join_timeout_ns = members->shrink.settle_ns;
    members->shrink.state = MEMBERS_SHRINK_NONE;
    gf_members_epoch_begin(members, blob, blob_bytes, now_ns);
    for (uint32_t other = 0; other < plan.world; other++)
        members->peers[other].connected = members->seats[members->seat_of[other]].up;
    for (uint32_t other = 0; other < plan.world; other++) {
        bool needed = members_coordinates(members) ? (other != plan.rank) : (other == 0);
        if (!needed || members->peers[other].connected) continue;
        gf_members_failf(members, GF_ERR_PEER, other, "rank %u went away while epoch %u was agreed upon", other,
                         plan.epoch);
    }
    if (members_coordinates(members) || (members->state != MEMBERS_JOINING)) return;
    gf_members_owe(members, 0, MEMBERS_OFFER);
    gf_members_owe(members, 0, MEMBERS_BLOBS);
}
