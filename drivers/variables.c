/* See variables.h. */
#include "drivers/variables.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "drivers/base/slips.h"

#define NAME_BYTES 40u /* longer names than these are like none of ours */

/* What the library and its tools read. */
static const char *const known[] = {
    "GF_RANK",   "GF_WORLD",   "GF_LOCAL_RANK",  "GF_JOB",      "GF_ADDRESS", "GF_WORLD_MAX",
    "GF_REJOIN", "GF_ELASTIC", "GF_COORDINATOR", "GF_DATA_DIR", "GF_DEBUG",
};
#define KNOWN_COUNT (sizeof known / sizeof known[0])

/* Does the longer one begin with the shorter one? GF_WORLD_SIZE, GF_JOB_ID; GF_ADDR. */
static bool is_part(const char *name, const char *word)
{
    size_t length = strlen(name);
    size_t word_length = strlen(word);
    if (length > word_length)
        return (strncmp(name, word, word_length) == 0) && (name[word_length] == '_');
    return (length >= strlen("GF_JOB")) && (strncmp(name, word, length) == 0);
}

/* Two slips make another word where it is short, or its first letter is another one: GF_HOLD is not
 * GF_WORLD. */
static unsigned slips_of(const char *name, const char *word)
{
    const size_t first = strlen("GF_");
    unsigned slips = gf_word_slips(name, word);
    if ((slips > 1) && is_part(name, word)) return GF_SLIPS_MAX;
    bool is_other = (strlen(name) < strlen("GF_JOB")) || (name[first] != word[first]);
    return ((slips > 1) && is_other) ? GF_SLIPS_MAX + 1 : slips;
}

static bool name_is_odd(const char *name, char *text_out)
{
    const char *nearest = NULL;
    unsigned least = GF_SLIPS_MAX + 1;
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        unsigned slips = slips_of(name, known[i]);
        if (slips == 0) return false;
        if (slips >= least) continue;
        nearest = known[i];
        least = slips;
    }
    if (nearest == NULL) return false;
    (void)snprintf(text_out, GF_VARIABLE_TEXT_BYTES, "%s is set, and is not read; did you mean %s?",
                   name, nearest);
    return true;
}

static bool value_is_odd(const char *name, const char *value, char *text_out)
{
    if ((strcmp(name, "GF_DEBUG") != 0) || (value[0] == '\0')) return false;
    if ((strcmp(value, "info") == 0) || (strcmp(value, "debug") == 0)) return false;
    (void)snprintf(text_out, GF_VARIABLE_TEXT_BYTES,
                   "GF_DEBUG='%.40s' is as if it were not set; allowed are info and debug", value);
    return true;
}

bool gf_variable_odd(uint32_t *at, char text_out[GF_VARIABLE_TEXT_BYTES])
{
    char name[NAME_BYTES];
    while ((environ != NULL) && (environ[*at] != NULL)) {
        const char *one = environ[(*at)++];
        size_t length = strcspn(one, "=");
        if ((strncmp(one, "GF_", 3) != 0) || (length >= sizeof name) || (one[length] == '\0'))
            continue;
        memcpy(name, one, length);
        name[length] = '\0';
        if (name_is_odd(name, text_out) || value_is_odd(name, one + length + 1, text_out))
            return true;
    }
    return false;
}
