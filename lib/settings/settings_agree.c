/* What ranks compare when they join: a hash of all values that must agree, and a text that shows a
 * difference. */
#include "lib/settings/settings.h"
#include "drivers/base/arithmetic.h"

#include <stdio.h>
#include <string.h>

#include "drivers/base/fnv.h"

/* With its end, or "a","bc" and "ab","c" would be the same. */
static uint64_t hash_text(uint64_t hash, const char *text)
{
    return gf_fnv_bytes(hash, text, strlen(text) + 1);
}

uint64_t gf_config_hash(const struct gf_config *config)
{
    GF_COMPUTES();
    uint64_t hash = GF_FNV_START;
    if (config == NULL) return 0;
    for (uint32_t i = 0; i < gf_setting_count; i++) {
        const struct gf_setting *setting = &gf_settings[i];
        if (!(setting->flags & GF_SETTING_AGREES)) continue;
        hash = hash_text(hash, setting->key);
        if (setting->kind == GF_SETTING_TEXT) {
            hash = hash_text(hash, gf_setting_text(setting, config));
        } else if (setting->kind == GF_SETTING_REAL) {
            float real = gf_setting_real(setting, config);
            uint32_t bits;
            memcpy(&bits, &real, sizeof bits);
            hash = gf_fnv_u64(hash, bits);
        } else {
            hash = gf_fnv_u64(hash, gf_setting_number(setting, config));
        }
    }
    return hash;
}

#define SHORT_GROUP "exchange." /* left out in a summary */

/* "4 MiB" as "4MiB": blanks part the fields. */
static void blanks_drop(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; from++)
        if (*from != ' ') *to++ = *from;
    *to = '\0';
}

static const char *short_key(const struct gf_setting *setting)
{
    const size_t group_bytes = sizeof SHORT_GROUP - 1;
    return setting->key +
           ((strncmp(setting->key, SHORT_GROUP, group_bytes) == 0) ? group_bytes : 0);
}

static void short_value(const struct gf_setting *setting, const struct gf_config *config,
                        char *text_out)
{
    (void)gf_setting_value(setting, config, text_out);
    blanks_drop(text_out);
}

static const struct gf_config defaults; /* where 0 means them */

/* All fields would not fit an offer. The text has wire and algorithm, then every field that differs
 * from its default. Where two ranks differ, one of them differs from the default, so one of the two
 * texts shows it. */
char *gf_config_summary(const struct gf_config *config, char *text_out, size_t text_bytes)
{
    GF_COMPUTES();
    char value[GF_SETTING_VALUE_BYTES];
    char fallback[GF_SETTING_VALUE_BYTES];
    size_t used = 0;
    if ((text_out == NULL) || (text_bytes == 0)) return text_out;
    text_out[0] = '\0';
    if (config == NULL) return text_out;
    for (uint32_t i = 0; i < 2 * gf_setting_count; i++) {
        const struct gf_setting *setting = &gf_settings[i % gf_setting_count];
        bool first = (setting->offset == offsetof(struct gf_config, exchange.wire)) ||
                     (setting->offset == offsetof(struct gf_config, exchange.algorithm));
        if (!(setting->flags & GF_SETTING_AGREES) || (first != (i < gf_setting_count))) continue;
        short_value(setting, config, value);
        short_value(setting, &defaults, fallback);
        if (!first && (strcmp(value, fallback) == 0)) continue;
        int length = snprintf(text_out + used, text_bytes - used, "%s%s=%s", used ? " " : "",
                              short_key(setting), value);
        if ((length < 0) || ((size_t)length >= text_bytes - used)) {
            if (text_bytes > 3) memcpy(text_out + text_bytes - 3, "..", 3); /* there was more */
            return text_out;
        }
        used += (size_t)length;
    }
    return text_out;
}

bool gf_setting_default(const char *key, size_t key_bytes, char *value_out)
{
    for (uint32_t i = 0; i < gf_setting_count; i++) {
        const char *name = short_key(&gf_settings[i]);
        if ((strlen(name) != key_bytes) || (memcmp(name, key, key_bytes) != 0)) continue;
        short_value(&gf_settings[i], &defaults, value_out);
        return true;
    }
    return false;
}
