/* Finding keys, and near misses. */
#include "config/config_keys.h"

#include <string.h>

const struct gf_setting *gf_key_find(const char *key)
{
    for (uint32_t i = 0; i < gf_setting_count; i++)
        if (strcmp(gf_settings[i].key, key) == 0) return &gf_settings[i];
    return NULL;
}

bool gf_key_group(const char *name)
{
    size_t length = strlen(name);
    for (uint32_t i = 0; i < gf_setting_count; i++)
        if ((strncmp(gf_settings[i].key, name, length) == 0) && (gf_settings[i].key[length] == '.')) return true;
    return false;
}

#define DISTANCE_BYTES 48 /* longer than any key */

/* Levenshtein's: insertions, deletions and replacements between two words. */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[DISTANCE_BYTES + 1];
    size_t a_length = strlen(a), b_length = strlen(b);
    if ((a_length > DISTANCE_BYTES) || (b_length > DISTANCE_BYTES)) return DISTANCE_BYTES;
    for (unsigned j = 0; j <= b_length; j++) row[j] = j;
    for (unsigned i = 1; i <= a_length; i++) {
        unsigned diagonal = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= b_length; j++) {
            unsigned best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[b_length];
}

/* A slip in the whole key, or the right name (nearly) under the wrong group or under none. */
static unsigned key_distance(const char *key, const char *known)
{
    const char *dot = strchr(key, '.'), *known_dot = strchr(known, '.');
    const char *name = (dot == NULL) ? key : dot + 1;
    unsigned whole = distance(key, known), name_alone = distance(name, known_dot + 1) + 1;
    return (whole < name_alone) ? whole : name_alone;
}

char *gf_key_hint(const char *key, char *text_out)
{
    const char *nearest = NULL;
    unsigned best = 3; /* more than two slips are another word */
    for (uint32_t i = 0; i < gf_setting_count; i++) {
        unsigned slips = key_distance(key, gf_settings[i].key);
        if (slips >= best) continue;
        best = slips;
        nearest = gf_settings[i].key;
    }
    text_out[0] = '\0';
    if (nearest != NULL) (void)snprintf(text_out, GF_KEY_HINT_BYTES, "; did you mean %s?", nearest);
    return text_out;
}
