/* Offers: what must be the same on every rank, and the text that says where it is not. */
#include "lib/membership/members_state.h"
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
    } else if ((ours->network == GF_NETWORK_FABRIC) && (theirs->fabric != GF_FABRIC_FOUND)) {
        (void)snprintf(text_out, bytes,
                       "the nodes of this job are joined by a fabric, which rank %u cannot use; "
                       "its log says why",
                       rank);
    } else {
        return false;
    }
    return true;
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
