/* Keys and values of the configuration file. The table itself is lib/settings/settings_table.c, one
 * row a key. Internal to config/. */
#ifndef GF_CONFIG_KEYS_H
#define GF_CONFIG_KEYS_H

#include "config/config.h"
#include "drivers/base/slips.h"
#include "lib/settings/settings.h"

/* Is `name` the group of some key? */
bool gf_key_group(const char *name);
/* "; did you mean exchange.wire?" for a key, group or value like a known one, else what else helps,
 * or "". All return text_out[GF_KEY_HINT_BYTES]. The units of sizes and times are named whatever
 * the value. */
#define GF_KEY_HINT_BYTES 128
char *gf_key_hint(const char *key, char *text_out);
char *gf_group_hint(const char *name, bool is_group, char *text_out);
char *gf_value_hint(const struct gf_setting *setting, const char *value, char *text_out);

/* One value over *config, checked against its row; false (and *config as it was) where it is not
 * valid. */
bool gf_key_set_number(const struct gf_setting *setting, struct gf_config *config, uint64_t number);
/* as a file says it */
bool gf_key_set_count(const struct gf_setting *setting, struct gf_config *config, uint64_t number);
bool gf_key_set_real(const struct gf_setting *setting, struct gf_config *config, double real);
/* From text: "4 MiB", "200 ms", "0.9", "fp16", "true". */
bool gf_key_set_text(const struct gf_setting *setting, struct gf_config *config, const char *text);

/* "4096", "4 KiB" or "4K"; whole numbers of bytes. */
bool gf_bytes_read(const char *text, uint64_t *bytes_out);
/* "30 s", "0.2 s", "200 ms"; a plain number is seconds. */
bool gf_time_read(const char *text, uint64_t *ns_out);
bool gf_time_of(double seconds, uint64_t *ns_out);
/* Decimal, or hexadecimal with 0x. */
bool gf_number_read(const char *text, uint64_t *number_out);
bool gf_real_read(const char *text, double *real_out); /* the whole text, "." whatever the locale */

/* As gf_config.resolve; numeric ones are copied. why_out[GF_RESOLVE_WHY_BYTES]. */
#define GF_RESOLVE_WHY_BYTES 256
gf_status gf_address_resolve(const char *address, uint64_t patience_ns, char *numeric_out,
                             char *why_out);

#endif
