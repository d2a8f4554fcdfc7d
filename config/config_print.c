/* The effective configuration as a file that loads to the same again, and the key table for
 * people. */
#include <string.h>

#include "config/config_keys.h"
#include "config/config_source.h"
#include "drivers/base/arithmetic.h"

static void string_print(const char *text, FILE *out)
{
    (void)fputc('"', out);
    for (; *text != '\0'; text++) {
        if ((*text == '"') || (*text == '\\')) (void)fputc('\\', out);
        (void)fputc(*text, out);
    }
    (void)fputc('"', out);
}

/* Whole numbers past 32 bits want an L, and libconfig has none past 63. */
static void count_print(const struct gf_setting *setting, uint64_t count, const char *value,
                        FILE *out)
{
    if ((setting->flags & GF_SETTING_AUTO) || (count > INT64_MAX))
        string_print(value, out);
    else
        (void)fprintf(out, "%s%s", value, (count > INT32_MAX) ? "L" : "");
}

static void value_print(const struct gf_setting *setting, const struct gf_config *config, FILE *out)
{
    char value[GF_SETTING_VALUE_BYTES];
    (void)gf_setting_value(setting, config, value);
    switch ((gf_setting_kind)setting->kind) {
    case GF_SETTING_COUNT:
        count_print(setting, gf_setting_number(setting, config), value, out);
        break;
    case GF_SETTING_BOOL:
    case GF_SETTING_REAL: (void)fputs(value, out); break;
    case GF_SETTING_BYTES:
    case GF_SETTING_TIME:
    case GF_SETTING_NAME:
    case GF_SETTING_TEXT: string_print(value, out); break;
    }
}

void gf_config_print(const struct gf_config *config, const char *path, FILE *out)
{
    GF_COMPUTES();
    char allowed[GF_SETTING_ALLOWED_BYTES];
    char error[GF_CONFIG_ERROR_BYTES];
    config_t tree; /* what the file says; empty where it cannot be read */
    const char *group = "";
    size_t group_length = 0;
    if ((config == NULL) || (out == NULL)) return;
    if ((path == NULL) || (gf_tree_read(path, GF_CONFIG_FILE_BYTES_MAX, &tree, error) != GF_OK))
        config_init(&tree);
    if (path != NULL)
        (void)fprintf(out, "# What the file sets is marked with *, the rest are defaults.\n");
    for (uint32_t i = 0; i < gf_setting_count; i++) {
        const struct gf_setting *setting = &gf_settings[i];
        size_t length = strcspn(setting->key, ".");
        if ((length != group_length) || (strncmp(setting->key, group, length) != 0)) {
            if (group_length != 0) (void)fputs("};\n", out);
            (void)fprintf(out, "%.*s = {\n", (int)length, setting->key);
            group = setting->key;
            group_length = length;
        }
        (void)fprintf(out, "    %s = ", setting->key + length + 1);
        value_print(setting, config, out);
        (void)fprintf(out, ";  #%s %s\n", (config_lookup(&tree, setting->key) != NULL) ? " *" : "",
                      gf_setting_allowed(setting, allowed));
    }
    (void)fputs("};\n", out);
    config_destroy(&tree);
}

static const char *kind_name(const struct gf_setting *setting)
{
    switch ((gf_setting_kind)setting->kind) {
    case GF_SETTING_BOOL: return "boolean";
    case GF_SETTING_COUNT: return "whole number";
    case GF_SETTING_BYTES: return "size";
    case GF_SETTING_TIME: return "time";
    case GF_SETTING_REAL: return "number";
    case GF_SETTING_NAME: return "name";
    case GF_SETTING_TEXT: break;
    }
    return "text";
}

static void row_print(const struct gf_setting *setting, const struct gf_config *defaults, FILE *out)
{
    char allowed[GF_SETTING_ALLOWED_BYTES];
    char value[GF_SETTING_VALUE_BYTES];
    (void)gf_setting_value(setting, defaults, value);
    (void)fprintf(out, "| `%s` | %s | %s%s%s | %s | %s%s |\n", setting->key, kind_name(setting),
                  value[0] ? "`" : "", value[0] ? value : "empty", value[0] ? "`" : "",
                  gf_setting_allowed(setting, allowed), setting->help,
                  (setting->flags & GF_SETTING_AGREES) ? " (the same on all ranks)" : "");
}

void gf_config_print_table(FILE *out)
{
    GF_COMPUTES();
    static const struct gf_config zero; /* its effective values are the defaults */
    if (out == NULL) return;
    (void)fputs("| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n", out);
    for (uint32_t i = 0; i < gf_setting_count; i++) row_print(&gf_settings[i], &zero, out);
}
