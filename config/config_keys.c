/* Near misses of keys, groups and values. */
#include "config/config_keys.h"

#include <string.h>

bool gf_key_group(const char *name)
{
    size_t length = strlen(name);
    for (uint32_t i = 0; i < gf_setting_count; i++)
        if ((strncmp(gf_settings[i].key, name, length) == 0) && (gf_settings[i].key[length] == '.'))
            return true;
    return false;
}

/* A slip in the whole key, or the right name (nearly) under the wrong group or under none. */
static unsigned key_distance(const char *key, const char *known)
{
    const char *dot = strchr(key, '.');
    const char *known_dot = strchr(known, '.');
    const char *name = (dot == NULL) ? key : dot + 1;
    unsigned whole = gf_word_slips(key, known);
    unsigned name_alone = gf_word_slips(name, known_dot + 1) + 1;
    return (whole < name_alone) ? whole : name_alone;
}

/* The nearest word yet, and how far it is. */
struct nearest {
    const char *word;
    unsigned slips;
};

static void nearest_offer(struct nearest *nearest, const char *word, unsigned slips)
{
    if (slips >= nearest->slips) return;
    *nearest = (struct nearest){word, slips};
}

static char *nearest_text(const struct nearest *nearest, char *text_out)
{
    text_out[0] = '\0';
    if (nearest->word != NULL)
        (void)snprintf(text_out, GF_KEY_HINT_BYTES, "; did you mean %s?", nearest->word);
    return text_out;
}

char *gf_key_hint(const char *key, char *text_out)
{
    struct nearest nearest = {NULL, GF_SLIPS_MAX + 1};
    for (uint32_t i = 0; i < gf_setting_count; i++)
        nearest_offer(&nearest, gf_settings[i].key, key_distance(key, gf_settings[i].key));
    return nearest_text(&nearest, text_out);
}

char *gf_group_hint(const char *name, bool is_group, char *text_out)
{
    struct nearest nearest = {NULL, GF_SLIPS_MAX + 1};
    char group[GF_KEY_HINT_BYTES];
    char best[GF_KEY_HINT_BYTES] = "";
    if ((strcmp(name, "tensors") == 0) || (strcmp(name, "tokens") == 0) ||
        (strcmp(name, "activation_bytes") == 0))
        return strcpy(
            text_out,
            "; a model has that: it goes to --tensors of gf-check, --model of gf-perf and gf-plan");
    if (strcmp(name, "cluster") == 0)
        return strcpy(text_out,
                      "; a cluster to plan for has that: it goes to --cluster of gf-plan");
    for (uint32_t i = 0; is_group && (i < gf_setting_count); i++) {
        (void)snprintf(group, sizeof group, "%.*s", (int)strcspn(gf_settings[i].key, "."),
                       gf_settings[i].key);
        if (gf_word_slips(name, group) >= nearest.slips) continue;
        nearest_offer(&nearest, strcpy(best, group), gf_word_slips(name, group));
    }
    return is_group ? nearest_text(&nearest, text_out) : gf_key_hint(name, text_out);
}

char *gf_value_hint(const struct gf_setting *setting, const char *value, char *text_out)
{
    static const char *const truths[] = {"false", "true"};
    struct nearest nearest = {NULL, GF_SLIPS_MAX + 1};
    const char *const *names = (setting->kind == GF_SETTING_BOOL) ? truths : setting->names;
    text_out[0] = '\0';
    if (setting->kind == GF_SETTING_BYTES)
        return strcpy(text_out, "; units are B, KiB, MiB, GiB and TiB, or K, M, G and T");
    if (setting->kind == GF_SETTING_TIME)
        return strcpy(text_out, "; units are ns, us, ms, s, min and h; a number alone is seconds");
    if ((setting->kind != GF_SETTING_BOOL) && (setting->kind != GF_SETTING_NAME)) return text_out;
    for (uint64_t i = setting->low; i <= setting->high; i++) {
        unsigned slips = gf_word_slips(value, names[i]);
        if (slips == nearest.slips) nearest.word = NULL; /* fp8 is no nearer to fp16 than to fp32 */
        nearest_offer(&nearest, names[i], slips);
    }
    return nearest_text(&nearest, text_out);
}
