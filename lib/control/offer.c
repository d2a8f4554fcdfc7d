/* Offers: what must be the same on every rank, and the text that shows a difference. */
#include "drivers/link.h"
#include "lib/control/coordinator_state.h"
#include "lib/settings/settings.h"

#include <inttypes.h>
#include <stdio.h>

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

struct summary_pair {
    const char *ours, *theirs;
    uint32_t our_rank, their_rank;
};

/* Adds "fuse_bytes is 8KiB at rank 0, 4MiB at rank 2" for each field of `summary`, one of the two,
 * that differs; with `unnamed` only those that the first does not name. False once the text is
 * full. */
static bool summary_differences(const struct summary_pair *two, const char *summary, bool unnamed,
                                char *text_out, size_t bytes, size_t *used)
{
    char our_value[GF_SETTING_VALUE_BYTES];
    char their_value[GF_SETTING_VALUE_BYTES];
    for (const char *at = summary; *at != 0;) {
        size_t field_bytes = strcspn(at, " ");
        size_t key_bytes = strcspn(at, "= ");
        bool named = summary_value(two->ours, at, key_bytes, our_value);
        (void)summary_value(two->theirs, at, key_bytes, their_value);
        if ((strcmp(our_value, their_value) != 0) && !(unnamed && named)) {
            int wrote = snprintf(text_out + *used, bytes - *used,
                                 "%s%.*s is %.40s at rank %u, %.40s at rank %u",
                                 (*used > 0) ? "; " : "", (int)key_bytes, at, our_value,
                                 two->our_rank, their_value, two->their_rank);
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
static bool summary_difference(const struct summary_pair *two, char *text_out, size_t bytes)
{
    size_t used = 0;
    text_out[0] = '\0';
    if (summary_differences(two, two->ours, false, text_out, bytes, &used))
        (void)summary_differences(two, two->theirs, true, text_out, bytes, &used);
    return text_out[0] != '\0';
}

/* Of two programs with one configuration, as two coordinators or launchers may give them. */
static bool terms_difference(const struct control_offer *first, const struct control_offer *second,
                             char *text_out, size_t bytes)
{
    const struct control_terms *a = &first->terms;
    const struct control_terms *b = &second->terms;
    const char *what = NULL;
    double values[2] = {0, 0};
    const struct {
        const char *name;
        uint64_t a, b;
    } times[] = {{"rendezvous.join_timeout", a->join_timeout_ns, b->join_timeout_ns},
                 {"rendezvous.keepalive", a->keepalive_ns, b->keepalive_ns},
                 {"exchange.timeout", a->exchange_timeout_ns, b->exchange_timeout_ns}};
    if (a->elastic != b->elastic) {
        (void)snprintf(text_out, bytes, "job.elastic is %s at rank %u, %s at rank %u",
                       a->elastic ? "true" : "false", first->id, b->elastic ? "true" : "false",
                       second->id);
        return true;
    }
    for (uint32_t i = 0; (what == NULL) && (i < 3); i++) {
        if (times[i].a == times[i].b) continue;
        what = times[i].name;
        values[0] = (double)times[i].a / 1e9;
        values[1] = (double)times[i].b / 1e9;
    }
    if (what == NULL) return false;
    (void)snprintf(text_out, bytes, "%s is %.3f s at rank %u, %.3f s at rank %u", what, values[0],
                   first->id, values[1], second->id);
    return true;
}

static bool config_difference(const struct control_offer *first, const struct control_offer *second,
                              char *text_out, size_t bytes)
{
    char words[200];
    const struct summary_pair two = {.ours = first->values.summary,
                                     .theirs = second->values.summary,
                                     .our_rank = first->id,
                                     .their_rank = second->id};
    bool is_hash = (first->values.config_hash != second->values.config_hash);
    if (!is_hash && !terms_difference(first, second, words, sizeof words)) return false;
    if (is_hash && !summary_difference(&two, words, sizeof words) &&
        !terms_difference(first, second, words, sizeof words))
        (void)snprintf(
            words, sizeof words, "hash %016" PRIx64 " at rank %u, %016" PRIx64 " at rank %u",
            first->values.config_hash, first->id, second->values.config_hash, second->id);
    (void)snprintf(text_out, bytes, "configurations differ: %s", words);
    return true;
}

static bool tensors_difference(const struct control_offer *first,
                               const struct control_offer *second, char *text_out, size_t bytes)
{
    const struct gf_offer *a = &first->values;
    const struct gf_offer *b = &second->values;
    if (a->tensor_count != b->tensor_count)
        (void)snprintf(text_out, bytes,
                       "tensor tables differ: %u tensors at rank %u, %u at rank %u",
                       a->tensor_count, first->id, b->tensor_count, second->id);
    else if (a->elem_count != b->elem_count)
        (void)snprintf(text_out, bytes,
                       "tensor tables differ: %" PRIu64 " elements at rank %u, %" PRIu64
                       " at rank %u",
                       a->elem_count, first->id, b->elem_count, second->id);
    else if (a->tensors_hash != b->tensors_hash)
        (void)snprintf(text_out, bytes,
                       "tensor tables differ in names, sizes, flags, types or order, with %u "
                       "tensors of %" PRIu64 " elements in both: hash %016" PRIx64
                       " at rank %u, %016" PRIx64 " at rank %u",
                       a->tensor_count, a->elem_count, a->tensors_hash, first->id, b->tensors_hash,
                       second->id);
    else
        return false;
    return true;
}

bool gf_coordinator_offer_difference(const struct control_offer *first,
                                     const struct control_offer *second, char *text_out,
                                     size_t bytes)
{
    const struct gf_offer *a = &first->values;
    const struct gf_offer *b = &second->values;
    if (a->version != b->version)
        (void)snprintf(text_out, bytes,
                       "library versions differ: %u.%u at rank %u, %u.%u at rank %u",
                       a->version >> 16, a->version & 0xffffu, first->id, b->version >> 16,
                       b->version & 0xffffu, second->id);
    else if (first->first_world != second->first_world)
        (void)snprintf(text_out, bytes, "world sizes differ: %u at rank %u, %u at rank %u",
                       first->first_world, first->id, second->first_world, second->id);
    else if (config_difference(first, second, text_out, bytes) ||
             tensors_difference(first, second, text_out, bytes))
        return true;
    else if ((a->network == GF_NETWORK_FABRIC) && (b->fabric != GF_FABRIC_FOUND))
        (void)snprintf(text_out, bytes,
                       "the nodes of this job are joined by a fabric, which rank %u cannot use; "
                       "its log says why",
                       second->id);
    else
        return false;
    return true;
}
