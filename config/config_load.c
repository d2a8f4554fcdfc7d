/* A libconfig file to struct gf_config, strictly: what is not known or not valid is refused by
 * line. */
#include <stdlib.h>
#include <string.h>

#include "config/config_keys.h"
#include "config/config_source.h"
#include "drivers/base/arithmetic.h"

static const char *type_name(const config_setting_t *node)
{
    switch (config_setting_type(node)) {
    case CONFIG_TYPE_GROUP: return "a group";
    case CONFIG_TYPE_INT:
    case CONFIG_TYPE_INT64: return "a whole number";
    case CONFIG_TYPE_FLOAT: return "a number with a fraction";
    case CONFIG_TYPE_STRING: return "a string";
    case CONFIG_TYPE_BOOL: return "a boolean";
    case CONFIG_TYPE_ARRAY: return "an array";
    case CONFIG_TYPE_LIST: return "a list";
    }
    return "nothing";
}

/* Whole numbers; hexadecimal ones come back from libconfig as if they had a sign. */
static bool whole_of(const config_setting_t *node, long long *whole_out)
{
    if (config_setting_type(node) == CONFIG_TYPE_INT64)
        *whole_out = config_setting_get_int64(node);
    else if (config_setting_type(node) != CONFIG_TYPE_INT)
        return false;
    else if (config_setting_get_format(node) == CONFIG_FORMAT_HEX)
        *whole_out = (unsigned)config_setting_get_int(node);
    else
        *whole_out = config_setting_get_int(node);
    return true;
}

typedef enum value_vote { VALUE_TAKEN, VALUE_INVALID, VALUE_TYPE } value_vote;

static value_vote string_take(const struct gf_setting *setting, struct gf_config *config,
                              const char *text)
{
    bool takes_text = (setting->kind == GF_SETTING_BYTES) || (setting->kind == GF_SETTING_TIME) ||
                      (setting->kind == GF_SETTING_NAME) || (setting->kind == GF_SETTING_TEXT) ||
                      (setting->flags & GF_SETTING_AUTO) ||
                      (setting->high > INT64_MAX); /* a job id: libconfig's numbers have a sign */
    if (!takes_text) return VALUE_TYPE;
    return gf_key_set_text(setting, config, text) ? VALUE_TAKEN : VALUE_INVALID;
}

static value_vote value_take(const struct gf_setting *setting, struct gf_config *config,
                             const config_setting_t *node)
{
    int type = config_setting_type(node);
    long long whole;
    uint64_t ns;
    double real;
    bool taken;
    if (type == CONFIG_TYPE_STRING)
        return string_take(setting, config, config_setting_get_string(node));
    if (type == CONFIG_TYPE_BOOL) {
        if (setting->kind != GF_SETTING_BOOL) return VALUE_TYPE;
        return gf_key_set_number(setting, config, config_setting_get_bool(node) != 0)
                   ? VALUE_TAKEN
                   : VALUE_INVALID;
    }
    if (whole_of(node, &whole))
        real = (double)whole;
    else if (type == CONFIG_TYPE_FLOAT)
        real = config_setting_get_float(node);
    else
        return VALUE_TYPE;
    if (setting->kind == GF_SETTING_REAL) {
        taken = gf_key_set_real(setting, config, real);
    } else if (setting->kind == GF_SETTING_TIME) {
        taken = gf_time_of(real, &ns) && gf_key_set_number(setting, config, ns);
    } else if (((setting->kind == GF_SETTING_COUNT) || (setting->kind == GF_SETTING_BYTES)) &&
               (type != CONFIG_TYPE_FLOAT)) {
        taken = (whole >= 0) && gf_key_set_count(setting, config, (uint64_t)whole);
    } else {
        return VALUE_TYPE;
    }
    return taken ? VALUE_TAKEN : VALUE_INVALID;
}

static void value_text(const config_setting_t *node, char *text_out, size_t text_bytes)
{
    long long whole;
    if (whole_of(node, &whole))
        (void)snprintf(text_out, text_bytes, "%lld", whole);
    else if (config_setting_type(node) == CONFIG_TYPE_FLOAT)
        (void)snprintf(text_out, text_bytes, "%.9g", config_setting_get_float(node));
    else if (config_setting_type(node) == CONFIG_TYPE_STRING)
        (void)snprintf(text_out, text_bytes, "\"%.60s\"", config_setting_get_string(node));
    else
        (void)snprintf(text_out, text_bytes, "%s", type_name(node));
}

static gf_status address_set(const struct gf_setting *setting, struct gf_config *config,
                             const char *address, const char *origin, int line, char *error_out)
{
    char numeric[GF_TEXT_MAX];
    char why[GF_RESOLVE_WHY_BYTES];
    gf_status status = gf_address_resolve(address, 0, numeric, why);
    if (status < 0)
        return gf_source_refuse(error_out, origin, line, "%s = \"%.60s\": %s", setting->key,
                                address, why);
    /* a name that is not known yet stays: gf_open() asks again */
    gf_setting_text_set(setting, config, (status == GF_OK) ? numeric : address);
    return GF_OK;
}

static gf_status key_load(const char *group, const config_setting_t *node, const char *origin,
                          struct gf_config *config, char *error_out)
{
    char key[160];
    char hint[GF_KEY_HINT_BYTES];
    char allowed[GF_SETTING_ALLOWED_BYTES];
    char value[80];
    int line = (int)config_setting_source_line(node);
    const struct gf_setting *setting;
    const char *text = config_setting_get_string(node);
    (void)snprintf(key, sizeof key, "%s.%.100s", group, config_setting_name(node));
    setting = gf_setting_find(key);
    if (setting == NULL)
        return gf_source_refuse(error_out, origin, line, "unknown key %s%s", key,
                                gf_key_hint(key, hint));
    if ((text != NULL) && (text[0] != '\0') && (setting->kind == GF_SETTING_TEXT) &&
        (setting->form == GF_FORM_ADDRESS))
        return address_set(setting, config, text, origin, line, error_out);
    switch (value_take(setting, config, node)) {
    case VALUE_TAKEN: return GF_OK;
    case VALUE_TYPE:
        return gf_source_refuse(error_out, origin, line, "%s is %s: allowed is %s%s", key,
                                type_name(node), gf_setting_allowed(setting, allowed),
                                gf_value_hint(setting, text ? text : "", hint));
    case VALUE_INVALID: break;
    }
    value_text(node, value, sizeof value);
    return gf_source_refuse(error_out, origin, line, "%s = %s: allowed is %s%s", key, value,
                            gf_setting_allowed(setting, allowed),
                            gf_value_hint(setting, text ? text : "", hint));
}

static gf_status group_load(const config_setting_t *node, const char *origin,
                            struct gf_config *config, char *error_out)
{
    const char *name = config_setting_name(node);
    char hint[GF_KEY_HINT_BYTES];
    int line = (int)config_setting_source_line(node);
    int count = config_setting_length(node);
    gf_status status = GF_OK;
    if (!gf_key_group(name))
        return gf_source_refuse(error_out, origin, line, "unknown %s %.100s%s",
                                config_setting_is_group(node) ? "group" : "key", name,
                                gf_group_hint(name, config_setting_is_group(node), hint));
    if (!config_setting_is_group(node))
        return gf_source_refuse(error_out, origin, line,
                                "%s is %s: allowed is a group, %s = { .. };", name, type_name(node),
                                name);
    for (int i = 0; (i < count) && (status == GF_OK); i++)
        status =
            key_load(name, config_setting_get_elem(node, (unsigned)i), origin, config, error_out);
    return status;
}

/* gf_config_effective() begins its text with a key; where the file has that key, its line helps. */
static gf_status combination_refuse(const config_t *tree, const char *why, const char *origin,
                                    char *error_out)
{
    char key[64];
    size_t length = strcspn(why, " :");
    const config_setting_t *node;
    (void)snprintf(key, sizeof key, "%.*s", (int)(length < 60 ? length : 60), why);
    node = config_lookup(tree, key);
    return gf_source_refuse(error_out, origin, node ? (int)config_setting_source_line(node) : 0,
                            "%s", why);
}

static gf_status tree_load(const config_t *tree, const char *origin, struct gf_config *config,
                           char *error_out)
{
    const config_setting_t *root = config_root_setting(tree);
    int count = config_setting_length(root);
    char why[256];
    gf_status status = GF_OK;
    uint32_t unsaid;
    for (int i = 0; (i < count) && (status == GF_OK); i++)
        status = group_load(config_setting_get_elem(root, (unsigned)i), origin, config, error_out);
    unsaid = gf_config_unset_mask(config);
    if ((status == GF_OK) && (gf_config_effective(config, config, why) != GF_OK))
        status = combination_refuse(tree, why, origin, error_out);
    gf_config_unset(config, unsaid);
    return status;
}

/* Ends the tree. */
static gf_status config_of(config_t *tree, const char *origin, struct gf_config *config_out,
                           char *error_out)
{
    static const struct gf_config zero;
    struct gf_config config = zero;
    config.resolve = gf_address_resolve;
    gf_status status = tree_load(tree, origin, &config, error_out);
    config_destroy(tree);
    if (status == GF_OK) *config_out = config;
    return status;
}

gf_status gf_config_load_text(const char *text, const char *origin, struct gf_config *config_out,
                              char *error_out)
{
    config_t tree;
    gf_status status = gf_tree_parse(text, origin, &tree, error_out);
    return (status == GF_OK) ? config_of(&tree, origin, config_out, error_out) : status;
}

gf_status gf_config_load(const char *path, struct gf_config *config_out, char *error_out)
{
    GF_COMPUTES();
    config_t tree;
    gf_status status;
    if ((config_out == NULL) || (error_out == NULL)) return GF_ERR_PARAM;
    if (path == NULL) {
        (void)snprintf(error_out, GF_CONFIG_ERROR_BYTES, "gf_config_load: there is no path");
        return GF_ERR_PARAM;
    }
    status = gf_tree_read(path, GF_CONFIG_FILE_BYTES_MAX, &tree, error_out);
    return (status == GF_OK) ? config_of(&tree, path, config_out, error_out) : status;
}

static gf_status key_set(struct gf_config *config, const char *key, const char *value,
                         const char *origin, char *error_out)
{
    char hint[GF_KEY_HINT_BYTES];
    char allowed[GF_SETTING_ALLOWED_BYTES];
    const struct gf_setting *setting = gf_setting_find(key);
    if (setting == NULL)
        return gf_source_refuse(error_out, origin, 0, "unknown key %.100s%s", key,
                                gf_key_hint(key, hint));
    if ((setting->kind == GF_SETTING_TEXT) && (setting->form == GF_FORM_ADDRESS) &&
        (value[0] != '\0'))
        return address_set(setting, config, value, origin, 0, error_out);
    if (gf_key_set_text(setting, config, value)) return GF_OK;
    return gf_source_refuse(error_out, origin, 0, "%s = \"%.60s\": allowed is %s%s", key, value,
                            gf_setting_allowed(setting, allowed),
                            gf_value_hint(setting, value, hint));
}

/* *changed is *config with keys set, each by itself valid. */
static gf_status set_checked(struct gf_config *config, struct gf_config *changed,
                             const char *origin, char *error_out)
{
    char why[256];
    if (gf_config_effective(changed, config, why) != GF_OK)
        return gf_source_refuse(error_out, origin, 0, "%s", why);
    gf_config_unset(config, gf_config_unset_mask(changed));
    return GF_OK;
}

static gf_status null_refuse(const char *text, char *error_out)
{
    if (error_out != NULL) (void)snprintf(error_out, GF_CONFIG_ERROR_BYTES, "%s", text);
    return GF_ERR_PARAM;
}

gf_status gf_config_set(struct gf_config *config, const char *key, const char *value,
                        const char *origin, char *error_out)
{
    GF_COMPUTES();
    if ((config == NULL) || (key == NULL) || (value == NULL) || (origin == NULL))
        return null_refuse("gf_config_set: config, key, value or origin is NULL", error_out);
    if (error_out == NULL) return GF_ERR_PARAM;
    struct gf_config changed = *config;
    if (changed.resolve == NULL) changed.resolve = gf_address_resolve;
    gf_status status = key_set(&changed, key, value, origin, error_out);
    return (status == GF_OK) ? set_checked(config, &changed, origin, error_out) : status;
}

gf_status gf_config_set_all(struct gf_config *config, const char *const *texts, uint32_t count,
                            const char *origin, char *error_out)
{
    GF_COMPUTES();
    bool has_null = (config == NULL) || (origin == NULL) || ((texts == NULL) && (count > 0));
    for (uint32_t i = 0; !has_null && (i < count); i++) has_null = texts[i] == NULL;
    if (has_null)
        return null_refuse("gf_config_set_all: config, texts, one of them or origin is NULL",
                           error_out);
    if (error_out == NULL) return GF_ERR_PARAM;
    struct gf_config changed = *config;
    gf_status status = GF_OK;
    if (changed.resolve == NULL) changed.resolve = gf_address_resolve;
    for (uint32_t i = 0; (i < count) && (status == GF_OK); i++) {
        const size_t key_bytes = strcspn(texts[i], "=");
        char key[64];
        (void)snprintf(key, sizeof key, "%.*s", (int)key_bytes, texts[i]);
        status = key_set(&changed, key, texts[i] + key_bytes + (texts[i][key_bytes] == '='), origin,
                         error_out);
    }
    return (status == GF_OK) ? set_checked(config, &changed, origin, error_out) : status;
}
