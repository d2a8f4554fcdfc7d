/* Whose fault it is when a deadline has passed: the coordinator asks everybody where they are and for
 * what they wait, decides once and tells all.
 *
 * A message that was sent and did not come shows which connection is broken, whoever else does not
 * answer; else a rank that is waited for and waits for nobody is behind, or does not answer
 * (members_edges.c). Where nobody says for what it waits, as before the first operation, it is a
 * rank that does not answer; if all do, the one that asked. */
#include "lib/membership/members_state.h"

#include <inttypes.h>
#include <stdio.h>

/* ", buffer 3, tensor 12 \"conv1.weight\"" */
static void tensor_text(const struct gf_members *members, const struct gf_position *position,
                        char *text_out, size_t bytes)
{
    const struct gf_members_setup *setup = &members->setup;
    const char *name = NULL;
    if (setup->tensor_name != NULL) name = setup->tensor_name(setup->waits_of, position->tensor);
    if ((name != NULL) && (name[0] != '\0'))
        (void)snprintf(text_out, bytes, ", buffer %u, tensor %u \"%.32s\"", position->buffer,
                       position->tensor, name);
    else
        (void)snprintf(text_out, bytes, ", buffer %u, tensor %u", position->buffer,
                       position->tensor);
}

struct members_place gf_members_place(const struct gf_members *members,
                                      const struct gf_position *position)
{
    struct members_place place;
    bool runs = (position->operation != GF_OPERATION_NONE);
    int wrote = snprintf(place.text, sizeof place.text, "step %" PRIu64 ", %s%s", position->step,
                         runs ? "operation " : "between operations",
                         runs ? gf_operation_name((gf_operation)position->operation) : "");
    if (runs && (position->tensor != GF_TENSOR_NONE))
        tensor_text(members, position, place.text + wrote, sizeof place.text - (size_t)wrote);
    return place;
}

struct members_told *gf_members_told_own(struct gf_members *members)
{
    struct members_told *told = &gf_members_at(members, members->setup.rank)->said.told;
    *told = (struct members_told){.position = members->position,
                                  .unmoved_ns = members->now_ns - members->moved_ns,
                                  .calls = members->call_count,
                                  .call = members->calls[members->call_count % MEMBERS_CALLS]};
    told->patience_ns = gf_members_patience_own(members, &told->patience_from);
    return told;
}

struct gf_waits *gf_members_waits_own(struct gf_members *members)
{
    struct gf_waits *waits = &gf_members_at(members, members->setup.rank)->said.waits;
    waits->count = 0;
    if (members->setup.waits != NULL) members->setup.waits(members->setup.waits_of, waits);
    return waits;
}

static uint64_t passed_ns(const struct gf_members *members)
{
    const uint64_t *away_ns = members->setup.away_ns;
    return members->now_ns + ((away_ns != NULL) ? *away_ns : 0);
}

void gf_members_inquiry_note(struct gf_members *members)
{
    members->inquiry_ns = members->now_ns;
    members->inquiry_at_ns = passed_ns(members);
}

uint64_t gf_members_inquiry_age(const struct gf_members *members)
{
    return passed_ns(members) - members->inquiry_at_ns;
}

/* This rank answers at once. */
static void ask(struct gf_members *members)
{
    members->inquiry++;
    gf_members_inquiry_note(members);
    (void)gf_members_told_own(members);
    (void)gf_members_waits_own(members);
    gf_members_owe_all(members, MEMBERS_ASK);
}

void gf_members_inquiry_begin(struct gf_members *members, uint32_t asker,
                              const struct gf_error *seen)
{
    if (members->inquiring || members_over(members)) return;
    members->inquiring = true;
    members->seen = *seen;
    members->seen_by = asker;
    ask(members);
}

bool gf_members_is_silent(const struct gf_members *members, uint32_t rank)
{
    const struct member *peer = gf_members_of(members, rank);
    return (rank != 0) && gf_member_is_here(peer) && (peer->said.answered != members->inquiry);
}

bool gf_members_is_unheard(const struct gf_members *members, uint32_t rank)
{
    uint64_t heard_ns = gf_members_of(members, rank)->said.heard_ns;
    if (heard_ns < members->opened_ns) heard_ns = members->opened_ns;
    return gf_members_is_silent(members, rank) &&
           (members->now_ns - heard_ns >= members->setup.silent_ns);
}

/* whoever polls has answered by then, unless it computes */
#define ANSWERS_NS UINT64_C(500000000)

/* All have answered, or no more is waited for. */
static bool is_answered(const struct gf_members *members)
{
    uint64_t waited_ns = members->now_ns - members->inquiry_ns;
    uint32_t silent = 0;
    uint32_t unheard = 0;
    for (uint32_t rank = 1; rank < members->setup.world; rank++) {
        silent += gf_members_is_silent(members, rank);
        unheard += gf_members_is_unheard(members, rank);
    }
    if (silent == 0) return true;
    if (waited_ns < ANSWERS_NS) return false; /* this rank may have been suspended, or all */
    return (silent == unheard) || (gf_members_inquiry_age(members) >= members->setup.answer_ns);
}

/* What those that have answered say is enough. */
static bool is_found(const struct gf_members *members)
{
    uint32_t peer = members->seen.peer;
    if (members->now_ns - members->inquiry_ns < ANSWERS_NS) return false;
    if (members->seen.code == GF_ERR_TIMEOUT) {
        const struct members_finding found = gf_members_find(members);
        return (found.cause == MEMBERS_EDGE) && !gf_members_may_send(members, found.from);
    }
    return (peer < members->setup.world) && !gf_members_is_silent(members, peer);
}

/* Of the silent ranks the one that has been silent longest; of equals the lowest. */
static uint32_t silent_culprit(const struct gf_members *members)
{
    uint64_t oldest_ns = UINT64_MAX;
    uint32_t culprit = GF_RANK_NONE;
    for (uint32_t rank = 1; rank < members->setup.world; rank++) {
        uint64_t heard_ns = gf_members_of(members, rank)->said.heard_ns;
        if (!gf_members_is_silent(members, rank) || (heard_ns >= oldest_ns)) continue;
        oldest_ns = heard_ns;
        culprit = rank;
    }
    return culprit;
}

/* Without them those that are left decide on the next epoch; where they could not, the epoch begins
 * anew with all. */
static void cut_decide(struct gf_members *members, const struct members_cut *cut)
{
    unsigned char here[GF_WORLD_MAX / 8] = {0};
    for (uint32_t rank = 0; rank < members->setup.world; rank++)
        if ((rank == members->setup.rank) || gf_members_here(members, rank))
            gf_view_add(here, members_id(members, rank));
    for (uint32_t i = 0; i < cut->count; i++)
        gf_view_remove(here, members_id(members, cut->ranks[i]));
    members->cut = *cut;
    members->cut.told = true;
    if ((members->view.epoch.epoch != 0) && !gf_view_is_majority(members, here))
        members->cut.count = 0;
}

static void cut_one(struct gf_members *members, uint32_t rank)
{
    struct members_cut cut = {.count = (rank < members->setup.world) ? 1 : 0};
    cut.ranks[0] = (uint16_t)rank;
    cut_decide(members, &cut);
}

/* What is said of it where it is named. */
static const char *spared(const struct gf_members *members)
{
    return (members->cut.count > 0) ? "" : "; it stays: without it the others are too few";
}

static void silent_end(struct gf_members *members, uint32_t culprit)
{
    char last[160] = "before it said where it was";
    char others[40] = "";
    uint32_t silent_count = 0;
    const struct member *peer = gf_members_of(members, culprit);
    const struct gf_position *position = &peer->said.told.position;
    if (peer->said.heard_ns != 0)
        (void)snprintf(last, sizeof last, "%.1f s ago in %s",
                       (double)(members->now_ns - peer->said.heard_ns) / 1e9,
                       gf_members_place(members, position).text);
    for (uint32_t rank = 1; rank < members->setup.world; rank++)
        silent_count += gf_members_is_silent(members, rank);
    if (silent_count > 1) (void)snprintf(others, sizeof others, "; silent ranks: %u", silent_count);
    cut_one(members, culprit);
    members->cut.was_silent = true;
    gf_members_fail_in(members, GF_ERR_TIMEOUT, culprit, position,
                       "rank %u does not answer (asked %.1f s ago): it is "
                       "stopped or does not poll; last heard of %s%s%s",
                       culprit, (double)(members->now_ns - members->inquiry_ns) / 1e9, last, others,
                       spared(members));
}

/* Who waits in vain may wait because ranks made different calls: then nobody is late. */
static bool calls_end(struct gf_members *members)
{
    char text[sizeof members->error.text];
    for (uint32_t rank = 1; rank < members->setup.world; rank++) {
        if (!gf_members_calls_differ(members, rank, text, sizeof text)) continue;
        gf_members_fail_in(members, GF_ERR_MISMATCH, rank,
                           &gf_members_of(members, rank)->said.told.position, "%s", text);
        return true;
    }
    return false;
}

static void lag_end(struct gf_members *members, uint32_t culprit)
{
    char waits[80] = "computing";
    char gap[48] = "";
    const struct members_told *told = &gf_members_of(members, culprit)->said.told;
    if (gf_members_has_left(members, culprit))
        (void)snprintf(waits, sizeof waits, "it has closed its context, the others have not");
    else if (told->position.waits_for != GF_RANK_NONE)
        (void)snprintf(waits, sizeof waits, "it waits for rank %u, whose message has not arrived",
                       told->position.waits_for);
    else if (members->leaving)
        (void)snprintf(waits, sizeof waits, "it has not closed its context, rank 0 has");
    if (told->position.unpolled_ns >= UINT64_C(1000000000))
        (void)snprintf(gap, sizeof gap, ", did not poll for %.1f s",
                       (double)told->position.unpolled_ns / 1e9);
    cut_one(members, culprit);
    gf_members_fail_in(members, GF_ERR_TIMEOUT, culprit, &told->position,
                       "rank %u is behind in %s: %s; last moved "
                       "%.1f s ago%s (rank %u asked)%s",
                       culprit, gf_members_place(members, &told->position).text, waits,
                       (double)told->unmoved_ns / 1e9, gap, members->seen_by, spared(members));
}

/* What either end knows of large packets on this edge. */
static void large_text(const struct gf_members *members, uint32_t from, uint32_t to,
                       char text_out[72])
{
    const struct gf_waits *waits = &gf_members_of(members, from)->said.waits;
    text_out[0] = '\0';
    if ((waits->large_bytes == 0) || (waits->large_to != to)) {
        waits = &gf_members_of(members, to)->said.waits;
        if ((waits->large_bytes == 0) || (waits->large_to != from)) return;
    }
    (void)snprintf(text_out, 72, " (small messages pass, packets of %u bytes do not: MTU?)",
                   waits->large_bytes);
}

static void edge_end(struct gf_members *members, const struct members_finding *found)
{
    const struct gf_position *at = &gf_members_of(members, found->culprit)->said.told.position;
    char large[72];
    char others[80] = "";
    char goes[80] = "nobody goes: the others would be too few";
    cut_decide(members, &found->cut);
    large_text(members, found->from, found->to, large);
    if (found->edges > 1)
        (void)snprintf(others, sizeof others, "; broken connections: %u", found->edges);
    if (members->cut.count > 0)
        (void)snprintf(goes, sizeof goes, "rank %u is the one to go", found->culprit);
    if (members->cut.count > 1)
        (void)snprintf(goes, sizeof goes, "rank %u and %u more are to go", found->culprit,
                       members->cut.count - 1);
    gf_members_fail_in(members, GF_ERR_TIMEOUT, found->culprit, at,
                       "messages of rank %u do not reach rank %u: it lacks one that was sent, and "
                       "nothing has come for %.1f s%s%s; %s (rank %u asked)",
                       found->from, found->to, (double)found->quiet_ns / 1e9, large, others, goes,
                       members->seen_by);
}

/* "0 for 1, 1 for 2": where all wait, as far as it fits. The epoch begins anew with all; if the same
 * step comes to the same, it is no use. */
static void nobody_end(struct gf_members *members)
{
    uint64_t step = members->position.step + 1;
    char waits[120] = "";
    size_t used = 0;
    for (uint32_t rank = 0; (rank < members->setup.world) && (used + 24 < sizeof waits); rank++) {
        uint32_t awaited = gf_members_of(members, rank)->said.told.position.waits_for;
        if (awaited == GF_RANK_NONE) continue;
        used += (size_t)snprintf(waits + used, sizeof waits - used, "%s%u for %u",
                                 (used > 0) ? ", " : "", rank, awaited);
    }
    members->cut = (struct members_cut){.told = true, .is_final = (members->circle_step == step)};
    members->circle_step = step;
    gf_members_fail_in(members, GF_ERR_TIMEOUT, GF_RANK_NONE, &members->position,
                       "ranks wait for each other%s, and no message is known to be lost (rank %u "
                       "asked; %s)",
                       members->cut.is_final ? ", in this step for the second time" : "",
                       members->seen_by, waits);
}

static void waits_end(struct gf_members *members)
{
    const struct members_finding found = gf_members_find(members);
    uint32_t silent = silent_culprit(members);
    if (calls_end(members)) return;
    switch (found.cause) {
    case MEMBERS_EDGE: edge_end(members, &found); break;
    case MEMBERS_LAG: lag_end(members, found.culprit); break;
    case MEMBERS_SILENT: silent_end(members, found.culprit); break;
    case MEMBERS_NOBODY: nobody_end(members); break;
    case MEMBERS_APART:
    case MEMBERS_LACKS:
    case MEMBERS_NO_CAUSE:
        if (silent != GF_RANK_NONE)
            silent_end(members, silent);
        else
            lag_end(members, members->seen_by);
        break;
    }
}

/* A connection failed, and both its ends answer: it is a broken edge, of which nobody can say which
 * end it was. Not the coordinator goes, else the higher one. */
static uint32_t failed_end(const struct gf_members *members)
{
    uint32_t peer = members->seen.peer;
    if ((members->seen.code != GF_ERR_LINK) || (peer >= members->setup.world)) return peer;
    return (peer > members->seen_by) ? peer : members->seen_by;
}

/* No deadline has passed: unless the other end does not answer, what the first rank saw is the best
 * there is. */
static void seen_end(struct gf_members *members)
{
    struct gf_error error = members->seen;
    uint32_t silent = silent_culprit(members);
    if (error.peer < members->setup.world)
        silent = gf_members_is_silent(members, error.peer) ? error.peer : GF_RANK_NONE;
    if (silent != GF_RANK_NONE) {
        silent_end(members, silent);
        return;
    }
    error.peer = failed_end(members); /* it would fail again at once: it goes, whoever is left */
    (void)snprintf(error.text, sizeof error.text, "rank %u: %.220s", members->seen_by,
                   members->seen.text);
    gf_members_fail(members, &error, &error);
}

/* What a rank's link said of this edge; of several with what the kernel says. */
static const struct gf_unreached *apart_said(const struct gf_members *members,
                                             const struct members_finding *found)
{
    const struct gf_unreached *best = NULL;
    /* what the other end saw of it, as a reset, does not lead to the limit */
    if (found->cause == MEMBERS_LACKS)
        return &gf_members_of(members, found->culprit)->said.waits.unreached;
    for (uint32_t rank = 0; rank < members->setup.world; rank++) {
        const struct gf_unreached *said = &gf_members_of(members, rank)->said.waits.unreached;
        bool is_of = (rank == found->culprit) || (said->peer == found->culprit);
        if (gf_members_is_silent(members, rank) || !is_of || (said->code == GF_OK)) continue;
        if ((best == NULL) || ((best->foreign_code == 0) && (said->foreign_code != 0))) best = said;
    }
    return best;
}

/* Nobody can say which end it is: the text has both, and the highest of those with most such
 * connections is named. */
static void apart_end(struct gf_members *members, const struct members_finding *found)
{
    const struct gf_unreached *said = apart_said(members, found);
    struct gf_error error = {.code = GF_ERR_LINK,
                             .peer = found->culprit,
                             .operation = GF_OPERATION_JOIN,
                             .step = members->position.step,
                             .tensor = GF_TENSOR_NONE,
                             .foreign_call = "connect"};
    size_t used;
    if (said != NULL) {
        error.code = said->code;
        error.foreign_code = said->foreign_code;
        (void)snprintf(error.text, sizeof error.text, "%s", said->text);
    } else {
        (void)snprintf(error.text, sizeof error.text,
                       "rank %u does not answer rank %u, which connects to it", found->to,
                       found->from);
    }
    used = strlen(error.text);
    if (found->edges > 1)
        (void)snprintf(error.text + used, sizeof error.text - used, " (%u such)", found->edges);
    if (found->cause == MEMBERS_APART)
        cut_decide(members, &found->cut);
    else
        cut_one(members, found->culprit);
    gf_members_fail(members, &error, &error);
}

/* Connections that could not be made; false: all could. */
static bool connects_end(struct gf_members *members)
{
    const struct members_finding found = gf_members_find_apart(members);
    if (found.cause == MEMBERS_NO_CAUSE) return false;
    if (found.cause == MEMBERS_LAG)
        lag_end(members, found.culprit);
    else
        apart_end(members, &found);
    return true;
}

void gf_members_inquiry_time(struct gf_members *members)
{
    if (!members->inquiring || members_over(members)) return;
    if (!is_answered(members) && !is_found(members)) return;
    if (connects_end(members)) return;
    if (members->seen.code != GF_ERR_TIMEOUT)
        seen_end(members);
    else
        waits_end(members);
}

/* It has not asked this rank where it is; or it has, and has not decided since: it waits for answers,
 * and may compute at the beginning of that, at its end and once in between. */
static bool coordinator_is_silent(const struct gf_members *members)
{
    uint64_t asked_ns = members->asked_ns;
    uint64_t most_ns = members->setup.answer_ns;
    if (members->inquiry_ns != 0) most_ns *= 4;
    if (members->inquiry_ns > asked_ns) asked_ns = members->inquiry_ns;
    return members->now_ns - asked_ns >= most_ns;
}

gf_status gf_members_attribute(struct gf_members *members, uint64_t now_ns,
                               const struct gf_error *seen, struct gf_error *error_out)
{
    gf_members_touch(members, now_ns);
    if (!members->asked) {
        members->asked = true;
        members->asked_ns = now_ns;
        if (members->setup.world == 1) {
            gf_members_fail(members, seen, seen);
        } else if (members_coordinates(members)) {
            gf_members_inquiry_begin(members, 0, seen);
        } else if ((members->state == MEMBERS_MEMBER) || (members->state == MEMBERS_JOINING)) {
            members->seen = *seen;
            gf_members_owe(members, 0, MEMBERS_FAULT);
        }
    }
    gf_members_pump(members);
    if ((members->state != MEMBERS_FAILED) && !members_coordinates(members) &&
        coordinator_is_silent(members)) {
        gf_members_failf(members, GF_ERR_TIMEOUT, 0,
                         "rank 0, which coordinates, was asked who is late and did not "
                         "answer for %.1f s: it is stopped or does not poll",
                         (double)(now_ns - members->asked_ns) / 1e9);
        gf_members_flush(members);
    }
    if (members->state == MEMBERS_FAILED)
        *error_out = members->error;
    else if (members->state == MEMBERS_GONE)
        *error_out = *seen;
    else
        return GF_AGAIN;
    return GF_OK;
}

/* Positions may be a second old: the ranks that are still there are asked for new ones, and those
 * that leave whether they are. */
gf_status gf_members_leave_late(struct gf_members *members)
{
    bool ends;
    if (!members_coordinates(members) || (members->state != MEMBERS_MEMBER)) return GF_OK;
    if (!members->leave_asks) ask(members);
    members->leave_asks = true;
    ends = is_answered(members);
    if (ends) waits_end(members);
    gf_members_flush(members);
    return ends ? GF_OK : GF_AGAIN;
}
