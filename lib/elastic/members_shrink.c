/* The next epoch: survivors find each other and agree on who they are. What is done with the agreement (the link and
 * the region anew, the state made common) is in shrink.c.
 *
 *     1. Seek. Each survivor turns to the lowest rank of its newest epoch that is neither dead nor blamed; if
 *        that does not answer, to the next. Whoever is the lowest itself collects. (Ranks count from whoever
 *        collected for that epoch, then by seat: a restarted process does not take its old place at the head.)
 *     2. REPORT, survivor to collector: the newest epoch it knows to have begun, the newest proposal it took
 *        part in, who it knows to be dead, how far it is.
 *     3. The collector waits for everybody who is neither dead, nor blamed, nor gone from it, at most settle_ns (away_ns
 *        for those it has no connection with).
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
 * Silence does not (a cable, a stopped process), so silent ranks count against the quorum. Nor does a death of which a
 * rank hears when it has been silent itself for as long as survivors wait, or when its epoch failed that long ago
 * (doubtful): they may have gone on, and ended, without it.
 *
 * The common state is that of the survivor that is furthest: steps are transactional, so survivors differ by at most
 * one step (a verdict that reached some of them) or by one gf_update(). The lowest rank among the furthest leads. */
#include "lib/membership/members_state.h"

#include <stdarg.h>
#include <stdio.h>

#define REPORT_HEAD_BYTES 40u
#define REASON_BYTES 160u

/* Where this rank's fellows are: a proposal may have begun without its having heard so. */
static const struct members_list *newest(const struct members_shrink *shrink)
{
    return (shrink->prepared.epoch > shrink->base.epoch) ? &shrink->prepared : &shrink->base;
}

static void committed(struct gf_members *members)
{
    struct members_shrink *shrink = &members->shrink;
    shrink->base = (struct members_list){.epoch = members->setup.epoch, .first = members->seat_of[0]};
    shrink->prepared.epoch = 0;
    shrink->other_count = 0;
    shrink->others_full = false;
    shrink->state = MEMBERS_SHRINK_NONE;
    shrink->knocks = false;
    for (uint32_t seat = 0; seat < members->seat_count; seat++) {
        members->seats[seat].blamed = members->seats[seat].skipped = false;
    }
    for (uint32_t rank = 0; rank < members->setup.world; rank++) {
        struct members_seat *seat = &members->seats[members->seat_of[rank]];
        seat->joins = seat->reborn = seat->dead = seat->doubtful = false;
        gf_members_list_add(&shrink->base, members->seat_of[rank]);
        memcpy(seat->address, members->endpoints + rank * members->setup.endpoint_bytes_max, sizeof seat->address);
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

static void excluded_fail(struct gf_members *members)
{
    shrink_fail(members, GF_ERR_QUORUM,
                "the other ranks went on without rank %u: epoch %u is closed, epoch %u has begun", members->setup.rank,
                members->shrink.base.epoch, members->shrink.excluded_epoch);
}

static void excluded(struct gf_members *members, uint32_t epoch)
{
    struct members_shrink *shrink = &members->shrink;
    bool ended = (shrink->state == MEMBERS_SHRINK_NONE) || (shrink->state == MEMBERS_SHRINK_FAILED);
    shrink->excluded = true;
    shrink->excluded_epoch = epoch;
    if (ended && (members->state == MEMBERS_FAILED)) return; /* its error sticks; gf_members_shrink() will say it */
    excluded_fail(members);
}

/* ---- frames ---- */

static uint32_t report_put(struct gf_members *members)
{
    const struct members_shrink *shrink = &members->shrink;
    struct gf_put put = {members->scratch, sizeof members->scratch};
    struct members_list dead = {.epoch = 0};
    for (uint32_t seat = 0; seat < members->seat_count; seat++)
        if (members->seats[seat].dead && !members->seats[seat].doubtful) gf_members_list_add(&dead, seat);
    gf_put_u32(&put, members->seat_count);
    gf_put_u32(&put, shrink->epoch_last);
    gf_put_u32(&put, shrink->own.applied | (shrink->own.torn << 1) | (shrink->admits ? 4u : 0u));
    gf_put_u64(&put, shrink->own.steps);
    gf_put_u64(&put, shrink->own.requests);
    gf_members_list_put(&put, &shrink->base, members->seat_count);
    gf_members_list_put(&put, &shrink->prepared, members->seat_count);
    gf_members_list_put(&put, &dead, members->seat_count);
    return (uint32_t)(GF_FRAME_PAYLOAD_MAX - put.left);
}
_Static_assert(REPORT_HEAD_BYTES + 3 * (8 + GF_WORLD_MAX / 8) <= GF_FRAME_PAYLOAD_MAX, "a report fits in a frame");

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
    struct gf_get look;
    standing.steps = gf_get_u64(get);
    standing.requests = gf_get_u64(get);
    if (seat_count != members->seat_count) get->bad = true;
    look = *get;
    for (int i = 0; i < 3; i++) {
        (void)gf_members_list_get(get, seat_count, &list);
        if ((i < 2) && (list.epoch > epoch_last)) get->bad = true; /* the next epoch would be numbered below it */
    }
    if (get->bad) return;
    (void)gf_members_list_get(&look, seat_count, &list);
    if (list.epoch == 0) return; /* it never joined; it will not hear of a proposal and end by itself */
    if (epoch_last > shrink->epoch_last) shrink->epoch_last = epoch_last;
    if (list.epoch > shrink->base.epoch) shrink->base = list;
    (void)gf_members_list_get(&look, seat_count, &list);
    prepared_keep(shrink, &list);
    (void)gf_members_list_get(&look, seat_count, &list);
    for (uint32_t seat = 0; seat < seat_count; seat++)
        if (gf_members_list_has(&list, seat) && (seat != members->seat) && !members->seats[seat].up) {
            members->seats[seat].dead = true;
            members->seats[seat].doubtful = false;
        }
    members->seats[from].standing = standing;
    members->seats[from].reported = true;
    if ((members->state != MEMBERS_JOINING) && (members->state != MEMBERS_MEMBER)) return;
    if (members->seats[from].rank == GF_RANK_NONE) {
        members->seats[from].answer = true; /* it was left behind */
    } else if ((members->shrink.base.epoch != 0) && ((flags & 4u) == 0)) {
        gf_members_failf(members, GF_ERR_PEER, GF_RANK_NONE, "rank %u has failed and asks for a new epoch",
                         members->seats[from].rank);
    }
}

uint32_t gf_members_answer_put(struct gf_members *members, gf_status code, const char *text)
{
    const struct members_shrink *shrink = &members->shrink;
    struct gf_put put = {members->scratch, sizeof members->scratch};
    gf_put_u32(&put, (uint32_t)code);
    gf_put_u32(&put, newest(shrink)->epoch);
    gf_put_u32(&put, shrink->plan.lead);
    gf_put_u32(&put, shrink->plan.behind ? 1 : 0);
    gf_put_u32(&put, shrink->plan.standing.applied);
    gf_put_u64(&put, shrink->plan.standing.steps);
    gf_put_u64(&put, shrink->plan.standing.requests);
    gf_members_list_put(&put, newest(shrink), members->seat_count);
    gf_put_text(&put, text, REASON_BYTES);
    return (uint32_t)(GF_FRAME_PAYLOAD_MAX - put.left);
}

/* The plan's rank and world follow from the list. */
static void plan_place(struct gf_members *members, struct gf_members_plan *plan)
{
    plan->world = 0;
    plan->rank = gf_members_list_place(&members->shrink.prepared, members->seat);
    for (uint32_t seat = 0; seat < members->seat_count; seat++) {
        if (!gf_members_list_has(&members->shrink.prepared, seat)) continue;
        plan->world++;
        if (seat == members->seat) continue;
        members->seats[seat].dead = members->seats[seat].doubtful = false; /* it lived when this was proposed */
    }
}

static void proposal_take(struct gf_members *members, uint32_t from, struct gf_get *get)
{
    struct members_shrink *shrink = &members->shrink;
    char reason[REASON_BYTES];
    gf_status code = (gf_status)(int32_t)gf_get_u32(get);
    struct gf_members_plan plan = {.epoch = gf_get_u32(get)};
    struct members_list list;
    uint32_t world = 0;
    plan.lead = gf_get_u32(get);
    plan.behind = gf_get_u32(get) != 0;
    plan.standing.applied = gf_get_u32(get);
    plan.standing.steps = gf_get_u64(get);
    plan.standing.requests = gf_get_u64(get);
    (void)gf_members_list_get(get, members->seat_count, &list);
    gf_get_text(get, reason, sizeof reason);
    if (reason[0] == 0) (void)snprintf(reason, sizeof reason, "the coordinator gave no reason");
    if (get->bad || shrink->excluded || (plan.epoch < shrink->base.epoch)) return;
    if ((code == GF_OK) && !gf_members_list_has(&list, members->seat)) {
        excluded(members, plan.epoch);
        return;
    }
    if ((shrink->state != MEMBERS_SHRINK_SEEK) || (from != shrink->coordinator)) return;
    if ((code == GF_ERR_QUORUM) && shrink->knocks) { /* that one goes no further, but others may */
        gf_members_knock_again(members);
        return;
    }
    if (code != GF_OK) {
        shrink_fail(members, (code < 0) ? code : GF_ERR_QUORUM, "%s", reason);
        return;
    }
    if (plan.epoch <= shrink->epoch_last) return; /* of a try that we have left */
    for (uint32_t seat = 0; seat < members->seat_count; seat++) world += gf_members_list_has(&list, seat) ? 1u : 0u;
    if ((list.epoch != plan.epoch) || (list.first != from) || (plan.lead >= world)) {
        shrink_fail(members, GF_ERR_PEER, "the proposal for epoch %u is malformed: its list of %u ranks is of "
                    "epoch %u, seat %u is its first, rank %u leads", plan.epoch, world, list.epoch, list.first,
                    plan.lead);
        return;
    }
    shrink->epoch_last = plan.epoch;
    shrink->prepared = list;
    plan_place(members, &plan);
    shrink->plan = plan;
    shrink->state = MEMBERS_SHRINK_AGREED;
}

bool gf_members_shrink_frame(struct gf_members *members, uint32_t seat, uint32_t kind, struct gf_get *get)
{
    if (kind == MEMBERS_REPORT) report_take(members, seat, get);
    else if (kind == MEMBERS_KNOCK) gf_members_knock_take(members, seat, get);
    else proposal_take(members, seat, get);
    return !get->bad;
}

/* ---- seeking ---- */

/* Of a proposal that never became an epoch, in which all tell where they are, a rank may know the list alone. */
static gf_status reform(struct gf_members *members, uint32_t seat)
{
    const struct gf_rendezvous_driver *driver = members->rendezvous->driver;
    const char *address = members->seats[seat].address;
    if (driver->reform == NULL) return (seat == members->seat_of[0]) ? GF_OK : GF_ERR_STATE;
    if ((seat != members->seat) && (address[0] == 0)) return GF_ERR_STATE;
    return driver->reform(members->rendezvous, members->now_ns, seat, address);
}

static void turn_to(struct gf_members *members, uint32_t seat)
{
    struct members_shrink *shrink = &members->shrink;
    gf_status status = reform(members, seat);
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
                     (members->rendezvous->driver->reform == NULL) ? "its control channel has no such part"
                                              : members->rendezvous->fault.text);
}

/* The next one to turn to; ends at this rank at the latest. */
static void seek(struct gf_members *members)
{
    const struct members_list *list = newest(&members->shrink);
    uint32_t own = gf_members_list_place(list, members->seat);
    for (uint32_t place = 0; place <= own; place++) {
        uint32_t seat = (place == own) ? members->seat : gf_members_list_seat(list, place, members->seat_count);
        const struct members_seat *candidate = &members->seats[seat];
        if ((seat != members->seat) && (candidate->dead || candidate->reborn || candidate->blamed ||
                                        candidate->skipped)) continue;
        turn_to(members, seat);
        if (!members->seats[seat].skipped) return;
    }
}

void gf_members_seat_event(struct gf_members *members, const struct gf_rendezvous_event *event)
{
    struct members_seat *seat = &members->seats[event->rank];
    struct members_shrink *shrink = &members->shrink;
    if (shrink->knocks && (shrink->state == MEMBERS_SHRINK_SEEK) && (event->kind == GF_RENDEZVOUS_CONNECTED))
        shrink->coordinator = shrink->star = event->rank; /* whoever it is */
    bool seeks = (shrink->state == MEMBERS_SHRINK_SEEK) && (event->rank == shrink->coordinator);
    if (event->kind == GF_RENDEZVOUS_CONNECTED) {
        seat->up = true;
        seat->joins = event->rejoins;
        if (event->rejoins) seat->reborn = true;
        seat->turned = seat->dead = seat->doubtful = seat->reported = false;
        if (seeks) shrink->report = true;
    } else if (event->kind == GF_RENDEZVOUS_ENDED) {
        gf_members_admit_event(members, event);
        seat->up = seat->reported = seat->answer = seat->joins = false;
        seat->turned = true;
        if (!event->lives) {
            seat->doubtful = seat->dead ? seat->doubtful : gf_members_behind(members);
            seat->dead = true;
        }
        if (!seeks) return;
        if (shrink->knocks) {
            gf_members_knock_again(members);
            return;
        }
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
    struct gf_members_plan plan = {.standing = members->shrink.own, .behind = members->shrink.own.torn != 0};
    for (uint32_t seat = 0; seat < members->seat_count; seat++) { /* this rank has place 0 */
        const struct gf_members_standing *standing = &members->seats[seat].standing;
        uint64_t requests = plan.standing.requests;
        uint32_t rank;
        if (!gf_members_list_has(list, seat) || (seat == members->seat)) continue;
        rank = gf_members_list_place(list, seat);
        if (further(standing, &plan.standing) || further(&plan.standing, standing)) plan.behind = true;
        if (standing->torn != 0) plan.behind = true;
        if (further(standing, &plan.standing)) {
            plan.standing = *standing;
            plan.lead = rank;
        }
        plan.standing.requests = (requests > standing->requests) ? requests : standing->requests;
    }
    return plan;
}

static void answer_all(struct gf_members *members, gf_status code)
{
    members->shrink.answer_code = code;
    for (uint32_t s = 0; s < members->seat_count; s++) {
        struct members_seat *seat = &members->seats[s];
        bool waits_on = seat->joins && !gf_members_list_has(&members->shrink.prepared, s);
        if ((code == GF_OK) && waits_on) continue;
        seat->reported = false;
        seat->answer = seat->up;
    }
}

/* Those who were started anew and wait: no more at once than there are survivors, who keep a quorum without them. */
static void joiners_add(struct gf_members *members, struct members_list *list, uint32_t room)
{
    for (uint32_t s = 0; (s < members->seat_count) && (room > 0); s++) {
        const struct members_seat *seat = &members->seats[s];
        if (!seat->joins || !seat->reported || !seat->up || gf_members_list_has(list, s)) continue;
        gf_members_list_add(list, s);
        room--;
    }
}

static void collect(struct gf_members *members)
{
    struct members_shrink *shrink = &members->shrink;
    struct members_list list = {.first = members->seat};
    uint32_t missing = 0, connected = 0, here = 0, alive = 0, turned = 0;
    for (uint32_t s = 0; s < members->seat_count; s++) {
        const struct members_seat *seat = &members->seats[s];
        if (!gf_members_list_has(&shrink->base, s) || seat->reborn) continue;
        alive += (seat->dead && !seat->doubtful) ? 0u : 1u;
        if ((s == members->seat) || (seat->reported && seat->up && !seat->dead && !seat->blamed)) {
            gf_members_list_add(&list, s);
            here++;
        } else if (!seat->dead && !seat->blamed && !seat->turned) {
            missing++;
            connected += seat->up ? 1u : 0u;
        }
        turned += (seat->turned && !seat->dead) ? 1u : 0u;
    }
    if ((missing > 0) &&
        (members->now_ns - shrink->since_ns < ((connected > 0) ? shrink->settle_ns : shrink->away_ns))) return;
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
    joiners_add(members, &list, here);
    shrink->plan = plan_make(members, &list);
    if (shrink->plan.standing.torn != 0) {
        shrink_fail(members, GF_ERR_DATA, "no survivor holds whole weights: the ranks they were copied from have died");
        answer_all(members, GF_ERR_DATA);
        return;
    }
    if (shrink->epoch_last == UINT32_MAX) {
        shrink_fail(members, GF_ERR_PEER, "a malformed report has used up the numbers of epochs");
        answer_all(members, GF_ERR_PEER);
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
        uint32_t bytes = shrink->knocks ? gf_members_knock_put(members) : report_put(members);
        uint32_t kind = shrink->knocks ? MEMBERS_KNOCK : MEMBERS_REPORT;
        gf_status status = driver->send(members->rendezvous, shrink->coordinator, kind, members->scratch, bytes);
        if (status != GF_AGAIN) shrink->report = false; /* an end of the connection is on its way to us */
    }
    for (uint32_t seat = 0; seat < members->seat_count; seat++) {
        if (!members->seats[seat].answer) continue;
        uint32_t bytes = gf_members_answer_put(members, shrink->answer_code, members->error.text);
        gf_status status = driver->send(members->rendezvous, seat, MEMBERS_PROPOSE, members->scratch, bytes);
        if (status != GF_AGAIN) members->seats[seat].answer = false;
    }
}

void gf_members_shrink(struct gf_members *members, uint64_t now_ns, uint32_t blamed,
                       const struct gf_members_standing *own, uint64_t settle_ns)
{
    struct members_shrink *shrink = &members->shrink;
    gf_members_touch(members, now_ns);
    shrink->own = *own;
    shrink->settle_ns = shrink->away_ns = settle_ns;
    shrink->admits = false;
    members->state = MEMBERS_FAILED;
    if (members->failed_ns == 0) members->failed_ns = now_ns;
    if (blamed == members->setup.rank) {
        shrink_fail(members, GF_ERR_QUORUM, "the other ranks go on without this one: %.200s", members->error.text);
        return;
    }
    if (blamed < members->setup.world) members->seats[members->seat_of[blamed]].blamed = true; /* not GF_RANK_NONE */
    if (shrink->base.epoch == 0) shrink->knocks = members->setup.rejoin;
    if (shrink->knocks) {
        gf_members_knock(members, now_ns, settle_ns);
        return;
    }
    if (shrink->excluded) {
        excluded_fail(members);
        return;
    }
    if (shrink->base.epoch == 0) {
        shrink->state = MEMBERS_SHRINK_FAILED;
        members->error.code = GF_ERR_QUORUM;
        return;
    }
    seek(members);
}

gf_status gf_members_shrink_poll(struct gf_members *members, uint64_t now_ns, struct gf_members_plan *plan_out)
{
    struct members_shrink *shrink = &members->shrink;
    gf_members_touch(members, now_ns);
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
        if ((event.kind == GF_RENDEZVOUS_FRAME) && gf_members_of_no_epoch(kind))
            (void)gf_members_shrink_frame(members, event.rank, kind, &get);
        else if (event.kind == GF_RENDEZVOUS_FRAME)
            gf_members_admit_event(members, &event);
        if ((shrink->state != MEMBERS_SHRINK_SEEK) && (shrink->state != MEMBERS_SHRINK_COLLECT)) break;
    }
    if (shrink->state == MEMBERS_SHRINK_COLLECT) collect(members);
    if ((shrink->state == MEMBERS_SHRINK_SEEK) && !shrink->knocks &&
        (now_ns - shrink->since_ns >= shrink->settle_ns + shrink->away_ns)) {
        members->seats[shrink->coordinator].skipped = true;
        seek(members);
    }
    gf_members_shrink_flush(members);
    if (shrink->state == MEMBERS_SHRINK_FAILED) return members->error.code;
    if (shrink->state != MEMBERS_SHRINK_AGREED) return GF_AGAIN;
    *plan_out = shrink->plan;
    return GF_OK;
}

void gf_members_shrink_join(struct gf_members *members, const void *endpoint, size_t endpoint_bytes, uint64_t now_ns)
{
    const struct gf_members_plan plan = members->shrink.plan;
    const struct members_list *list = &members->shrink.prepared;
    uint32_t rank = 1;
    GF_ASSERT(members->shrink.state == MEMBERS_SHRINK_AGREED);
    for (uint32_t seat = 0; seat < members->seat_count; seat++) {
        bool of_it = gf_members_list_has(list, seat);
        members->seats[seat].rank = !of_it ? GF_RANK_NONE : (seat == list->first) ? 0 : rank++;
        if (!of_it) continue;
        members->seat_of[members->seats[seat].rank] = seat;
        members->seats[seat].joins = false;
    }
    GF_ASSERT((rank == plan.world) && (members->seat_of[plan.rank] == members->seat));
    members->setup.rank = plan.rank;
    members->setup.world = plan.world;
    members->setup.epoch = plan.epoch;
    members->setup.offer.world = plan.world;
    members->setup.join_timeout_ns = members->shrink.away_ns;
    members->shrink.state = MEMBERS_SHRINK_NONE;
    gf_members_epoch_begin(members, endpoint, endpoint_bytes, now_ns);
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
    gf_members_owe(members, 0, MEMBERS_ENDPOINTS);
}

const struct gf_members_elastic gf_members_elastic = {
    .committed = committed,
    .connection = gf_members_seat_event,
    .of_no_epoch = gf_members_of_no_epoch,
    .frame = gf_members_shrink_frame,
    .flush = gf_members_shrink_flush,
    .turn_away = gf_members_turn_away,
    .waiting = gf_members_knocking,
};
