/* Joining: offers are compared, endpoint addresses are collected and handed to everybody. What
 * differs, or who is missing, is told to all ranks that are there. */
#include "lib/membership/members_state.h"
#include "lib/settings/settings.h"

#include <inttypes.h>
#include <stdio.h>

/* At least as far as this state, and not away again. */
static bool has_come(const struct gf_members *members, uint32_t rank, member_state state)
{
    const struct member *member = gf_members_of(members, rank);
    return (member->state >= state) && (member->state < MEMBER_DISCONNECTED);
}

/* "1, 3-5 and 12 more": the ranks that are not there. */
static uint32_t missing_text(const struct gf_members *members, char *text_out, size_t bytes)
{
    uint32_t total = 0;
    uint32_t shown = 0;
    uint32_t first_missing = GF_RANK_NONE;
    size_t at = 0;
    text_out[0] = 0;
    for (uint32_t rank = 1; rank < members->setup.world; rank++) {
        if (has_come(members, rank, MEMBER_JOINED)) continue;
        if (first_missing == GF_RANK_NONE) first_missing = rank;
        uint32_t last = rank;
        while ((last + 1 < members->setup.world) && !has_come(members, last + 1, MEMBER_JOINED))
            last++;
        total += last - rank + 1;
        if (at + 32 < bytes) {
            const char *comma = (at > 0) ? ", " : "";
            int wrote = (last == rank)
                            ? snprintf(text_out + at, bytes - at, "%s%u", comma, rank)
                            : snprintf(text_out + at, bytes - at, "%s%u-%u", comma, rank, last);
            at += (size_t)wrote;
            shown += last - rank + 1;
        }
        rank = last;
    }
    if (total > shown) (void)snprintf(text_out + at, bytes - at, " and %u more", total - shown);
    return first_missing;
}

static void coordinator_deadline(struct gf_members *members)
{
    char missing[112];
    double seconds = (double)(members->now_ns - members->opened_ns) / 1e9;
    uint32_t first = missing_text(members, missing, sizeof missing);
    if ((first != GF_RANK_NONE) && (members->claim.code != GF_OK)) {
        uint32_t peer = (members->claim.peer == GF_RANK_NONE) ? first : members->claim.peer;
        gf_members_failf(members, members->claim.code, peer,
                         "rank %s of %u did not join within %.1f s; %.150s", missing,
                         members->setup.world, seconds, members->claim.text);
    } else if (first == GF_RANK_NONE) {
        gf_members_failf(
            members, GF_ERR_TIMEOUT, GF_RANK_NONE,
            "all ranks are there, but their addresses could not be handed out within %.1f s",
            seconds);
    } else {
        gf_members_failf(members, GF_ERR_TIMEOUT, first,
                         "rank %s of %u did not join within %.1f s at %.80s", missing,
                         members->setup.world, seconds, members->setup.address);
    }
}

/* Everybody who can still come is there. */
static bool join_is_full(const struct gf_members *members, bool count_ended)
{
    for (uint32_t rank = 0; rank < members->setup.world; rank++) {
        const struct member *peer = gf_members_of(members, rank);
        bool ended = (peer->state == MEMBER_DISCONNECTED) || (peer->state == MEMBER_DEAD);
        if ((rank == members->setup.rank) || has_come(members, rank, MEMBER_JOINED)) continue;
        if (!count_ended || (!ended && !peer->connected)) return false;
    }
    return true;
}

void gf_members_join_time(struct gf_members *members)
{
    uint64_t now_ns = members->now_ns;
    uint64_t timeout_ns = members->setup.join_timeout_ns;
    if (members->state != MEMBERS_JOINING) return;
    if (!members_coordinates(members)) {
        /* The coordinator began no later than it took this connection, so by then it has spoken.
         * Until there is a connection the rendezvous driver has the deadline of the first join,
         * this the one of each later epoch. */
        bool is_here = gf_members_here(members, 0);
        if (!is_here && (members->view.epoch.epoch != 0) &&
            (now_ns - members->opened_ns >= timeout_ns))
            gf_members_failf(members, GF_ERR_TIMEOUT, 0,
                             "rank 0 of epoch %u was not reached within %.1f s",
                             members->setup.epoch, (double)timeout_ns / 1e9);
        else if (is_here && (now_ns - members->connected_ns >= timeout_ns + 2 * MEMBERS_GRACE_NS)) {
            gf_members_failf(members, GF_ERR_TIMEOUT, 0,
                             "joined rank 0 at %.80s, which then said nothing for %.1f s",
                             members->setup.address,
                             (double)(now_ns - members->connected_ns) / 1e9);
        }
        return;
    }
    if (members->join_fails_ns != 0) {
        if (join_is_full(members, true) || (now_ns >= members->join_fails_ns) ||
            (now_ns - members->opened_ns >= timeout_ns))
            gf_members_fail(members, &members->error, &members->error);
        return;
    }
    if (now_ns - members->opened_ns >= timeout_ns) coordinator_deadline(members);
}

/* Anybody may say anything: the join waits for the right process, and tells of this one if none
 * came. What differs says more than that a connection ended. */
static void claim_keep(struct gf_members *members, gf_status code, uint32_t rank, const char *text)
{
    struct gf_error *claim = &members->claim;
    if ((claim->code == GF_ERR_MISMATCH) || (claim->code == code)) return;
    *claim = (struct gf_error){
        .code = code, .peer = rank, .operation = GF_OPERATION_JOIN, .tensor = GF_TENSOR_NONE};
    (void)snprintf(claim->text, sizeof claim->text, "a process that proved nothing: %.200s", text);
    gf_log_line(&members->setup.log, GF_LOG_WARN, "%s; the join goes on without it", claim->text);
}

bool gf_members_rejected(struct gf_members *members, const struct gf_error *error)
{
    const struct gf_rendezvous_driver *driver = members->rendezvous->driver;
    bool first_join = (members->state == MEMBERS_JOINING) && (members->view.epoch.epoch == 0);
    if (!first_join || !members_coordinates(members) || (error->peer >= members->setup.world))
        return false;
    if ((driver->reject == NULL) ||
        !driver->reject(members->rendezvous, members_id(members, error->peer), error->text))
        return false;
    struct member *member = gf_members_at(members, error->peer);
    member->state = MEMBER_EXPECTED;
    member->connected = member->leaves = false;
    member->owed = 0;
    memset(&member->said, 0, sizeof member->said);
    claim_keep(members, error->code, error->peer, error->text);
    return true;
}

void gf_members_join_refused(struct gf_members *members, const struct gf_rendezvous_event *event)
{
    if ((members->state != MEMBERS_JOINING) || !members_coordinates(members)) return;
    if (event->unproven) {
        claim_keep(members, GF_ERR_MISMATCH, event->rank, event->text);
        return;
    }
    if ((event->rank > 0) && (event->rank < members->setup.world) &&
        !gf_members_of(members, event->rank)->connected)
        gf_members_at(members, event->rank)->state = MEMBER_DISCONNECTED; /* it will not come */
    gf_members_join_failf(members, GF_ERR_MISMATCH, event->rank, "ranks differ: %s", event->text);
}

/* ---- offers ---- */

/* Writes the value of a field "key=value" of a summary to value_out[GF_SETTING_VALUE_BYTES]; what a
 * summary does not name has its default. True where it names it. */
static bool summary_value(const char *summary, const char *key, size_t key_bytes, char *value_out)
{
    for (const char *at = summary; *at != 0;) {
        size_t bytes = strcspn(at, " ");
        if ((bytes > key_bytes) && (at[key_bytes] == '=') && (memcmp(at, key, key_bytes) == 0)) {
            (void)snprintf(value_out, GF_SETTING_VALUE_BYTES, "%.*s", (int)(bytes - key_bytes - 1),
                           at + key_bytes + 1);
            return true;
        }
        at += bytes + ((at[bytes] == ' ') ? 1u : 0u);
    }
    if (!gf_setting_default(key, key_bytes, value_out))
        (void)snprintf(value_out, GF_SETTING_VALUE_BYTES, "nothing");
    return false;
}

/* Adds "fuse_bytes is 8KiB at rank 0, 4MiB at rank 2" for each field of `summary`, one of the two,
 * that differs; with `unnamed` only those that rank 0 does not name. False once the text is
 * full. */
static bool summary_differences(const char *summary, const char *ours, const char *theirs,
                                bool unnamed, uint32_t rank, char *text_out, size_t bytes,
                                size_t *used)
{
    char our_value[GF_SETTING_VALUE_BYTES];
    char their_value[GF_SETTING_VALUE_BYTES];
    for (const char *at = summary; *at != 0;) {
        size_t field_bytes = strcspn(at, " ");
        size_t key_bytes = strcspn(at, "= ");
        bool named = summary_value(ours, at, key_bytes, our_value);
        (void)summary_value(theirs, at, key_bytes, their_value);
        if ((strcmp(our_value, their_value) != 0) && !(unnamed && named)) {
            int wrote = snprintf(
                text_out + *used, bytes - *used, "%s%.*s is %.40s at rank 0, %.40s at rank %u",
                (*used > 0) ? "; " : "", (int)key_bytes, at, our_value, their_value, rank);
            if ((wrote < 0) || ((size_t)wrote >= bytes - *used)) {
                if (*used > 0) text_out[*used] = '\0'; /* what does not fit whole is left out */
                return false;
            }
            *used += (size_t)wrote;
        }
        at += field_bytes + ((at[field_bytes] == ' ') ? 1u : 0u);
    }
    return true;
}

/* The fields of two summaries that differ, as many as fit; false where none do. */
static bool summary_difference(const char *ours, const char *theirs, uint32_t rank, char *text_out,
                               size_t bytes)
{
    size_t used = 0;
    text_out[0] = '\0';
    if (summary_differences(ours, ours, theirs, false, rank, text_out, bytes, &used))
        (void)summary_differences(theirs, ours, theirs, true, rank, text_out, bytes, &used);
    return text_out[0] != '\0';
}

bool gf_members_offer_difference(const struct gf_members *members, const struct gf_offer *theirs,
                                 uint32_t rank, char *text_out, size_t bytes)
{
    const struct gf_offer *ours = &members->setup.offer;
    char words[200];
    if (ours->version != theirs->version) {
        (void)snprintf(text_out, bytes,
                       "library versions differ: %u.%u at rank 0, %u.%u at rank %u",
                       ours->version >> 16, ours->version & 0xffffu, theirs->version >> 16,
                       theirs->version & 0xffffu, rank);
    } else if (ours->world != theirs->world) {
        (void)snprintf(text_out, bytes, "world sizes differ: %u at rank 0, %u at rank %u",
                       ours->world, theirs->world, rank);
    } else if (members->setup.epoch != theirs->epoch) {
        (void)snprintf(text_out, bytes, "epochs differ: %u at rank 0, %u at rank %u",
                       members->setup.epoch, theirs->epoch, rank);
    } else if (ours->config_hash != theirs->config_hash) {
        if (!summary_difference(ours->summary, theirs->summary, rank, words, sizeof words))
            (void)snprintf(words, sizeof words,
                           "hash %016" PRIx64 " at rank 0, %016" PRIx64 " at rank %u",
                           ours->config_hash, theirs->config_hash, rank);
        (void)snprintf(text_out, bytes, "configurations differ: %s", words);
    } else if (ours->tensor_count != theirs->tensor_count) {
        (void)snprintf(text_out, bytes, "tensor tables differ: %u tensors at rank 0, %u at rank %u",
                       ours->tensor_count, theirs->tensor_count, rank);
    } else if (ours->elem_count != theirs->elem_count) {
        (void)snprintf(text_out, bytes,
                       "tensor tables differ: %" PRIu64 " elements at rank 0, %" PRIu64
                       " at rank %u",
                       ours->elem_count, theirs->elem_count, rank);
    } else if (ours->tensors_hash != theirs->tensors_hash) {
        (void)snprintf(text_out, bytes,
                       "tensor tables differ in names, sizes, flags, types or order, with %u "
                       "tensors of %" PRIu64 " elements in both: hash %016" PRIx64
                       " at rank 0, %016" PRIx64 " at rank %u",
                       ours->tensor_count, ours->elem_count, ours->tensors_hash,
                       theirs->tensors_hash, rank);
    } else if ((ours->network == GF_NETWORK_FABRIC) && (theirs->fabric == 0)) {
        (void)snprintf(text_out, bytes,
                       "the nodes of this job are joined by a fabric, which rank %u cannot use; "
                       "its log says why",
                       rank);
    } else {
        return false;
    }
    return true;
}

void gf_members_join_offer(struct gf_members *members, uint32_t from, struct gf_get *get)
{
    struct gf_offer offer;
    char difference[240];
    if (!gf_members_offer_get(get, &offer) ||
        (gf_members_of(members, from)->state != MEMBER_EXPECTED)) {
        gf_members_join_failf(members, GF_ERR_PEER, from, "rank %u sent a malformed offer", from);
        return;
    }
    struct member *member = gf_members_at(members, from);
    member->state = MEMBER_OFFERED;
    member->said.node = offer.node;
    member->said.network = offer.network;
    member->said.fabric = offer.fabric;
    if (!gf_members_offer_difference(members, &offer, from, difference, sizeof difference)) return;
    gf_members_join_failf(members, GF_ERR_MISMATCH, from, "%s", difference);
}

void gf_members_offer_refuse(struct gf_members *members, uint32_t id, struct gf_get *get)
{
    struct gf_offer offer;
    struct gf_error error = {
        .code = GF_ERR_MISMATCH, .operation = GF_OPERATION_JOIN, .tensor = GF_TENSOR_NONE};
    if (!members_coordinates(members) || members_over(members) ||
        gf_members_owes(members, 1u << MEMBERS_ERROR) || !gf_members_offer_get(get, &offer) ||
        !gf_members_offer_difference(members, &offer, id, error.text, sizeof error.text))
        return;
    members->tell = error;
    gf_members_owe_id(members, id, MEMBERS_ERROR);
    gf_members_flush(members); /* the next one hears its own */
}

void gf_members_join_endpoints(struct gf_members *members, uint32_t from, struct gf_get *get)
{
    if (!gf_members_endpoints_take(members, from, get)) {
        gf_members_join_failf(members, GF_ERR_PEER, from, "rank %u sent a malformed address", from);
        return;
    }
    if (members_coordinates(members)) gf_members_join_full(members);
}

void gf_members_join_full(struct gf_members *members)
{
    if ((members->join_fails_ns != 0) || !join_is_full(members, false) ||
        !gf_members_links_fit(members))
        return;
    members->go = true;
    if (members->rendezvous->driver->joined != NULL)
        members->rendezvous->driver->joined(members->rendezvous);
    gf_view_epoch_begun(members);
    for (uint32_t rank = 1; rank < members->setup.world; rank++) {
        gf_members_at(members, rank)->said.endpoint_rank = 0;
        gf_members_at(members, rank)->said.endpoint_at = 0;
        gf_members_owe(members, rank, MEMBERS_ENDPOINTS);
        gf_members_owe(members, rank, MEMBERS_GO);
    }
}

void gf_members_join_go(struct gf_members *members)
{
    if (join_is_full(members, false)) {
        members->state = MEMBERS_MEMBER;
        gf_view_epoch_begun(members);
        return;
    }
    gf_members_failf(members, GF_ERR_PEER, 0,
                     "rank 0 ended the join before all addresses were here");
}
