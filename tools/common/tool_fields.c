/* Groups of a libconfig file to a struct, by a table of its keys. */
#include "tools/common/tool_fields.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "config/config_keys.h"

#define ALLOWED_BYTES 96

gf_status tool_reader_refuse(const struct tool_reader *reader, const config_setting_t *node,
                             const char *format, ...)
{
    char text[GF_CONFIG_ERROR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return gf_source_refuse(reader->error_out, reader->origin,
                            (node != NULL) ? (int)config_setting_source_line(node) : 0, "%s%s",
                            reader->where, text);
}

static const char *allowed_of(const struct tool_field *field, char *text_out)
{
    const char *unit = (field->unit != NULL) ? field->unit : "";
    const char *space = (field->unit != NULL) ? ", " : "";
    switch (field->kind) {
    case TOOL_FIELD_COUNT:
    case TOOL_FIELD_LONG:
        (void)snprintf(text_out, ALLOWED_BYTES, "a whole number from %.0f to %.0f%s%s", field->low,
                       field->high, space, unit);
        break;
    case TOOL_FIELD_REAL:
        (void)snprintf(text_out, ALLOWED_BYTES, "a number from %g to %g%s%s", field->low,
                       field->high, space, unit);
        break;
    case TOOL_FIELD_BOOL: (void)snprintf(text_out, ALLOWED_BYTES, "true or false"); break;
    case TOOL_FIELD_TEXT:
        (void)snprintf(text_out, ALLOWED_BYTES, "a string of 1 to %.0f bytes", field->high);
        break;
    case TOOL_FIELD_OTHER: return field->allowed;
    }
    return text_out;
}

static bool number_of(const config_setting_t *node, bool whole, double *value_out)
{
    int type = config_setting_type(node);
    if (type == CONFIG_TYPE_INT)
        *value_out = config_setting_get_int(node);
    else if (type == CONFIG_TYPE_INT64)
        *value_out = (double)config_setting_get_int64(node);
    else if ((type == CONFIG_TYPE_FLOAT) && !whole)
        *value_out = config_setting_get_float(node);
    else
        return false;
    return isfinite(*value_out);
}

static gf_status text_load(const struct tool_reader *reader, const config_setting_t *node,
                           const struct tool_field *field, char *text_out)
{
    const char *text = config_setting_get_string(node);
    char allowed[ALLOWED_BYTES];
    if ((text == NULL) || (text[0] == '\0') || ((double)strlen(text) > field->high))
        return tool_reader_refuse(reader, node, "%s must be %s", field->key,
                                  allowed_of(field, allowed));
    for (const char *at = text; *at != '\0'; at++)
        if (((unsigned char)*at < 0x20) || (*at == 0x7f))
            return tool_reader_refuse(reader, node, "%s holds a control character", field->key);
    memcpy(text_out, text, strlen(text) + 1);
    return GF_OK;
}

static gf_status field_load(const struct tool_reader *reader, const config_setting_t *node,
                            const struct tool_field *field, void *struct_out)
{
    void *at = (char *)struct_out + field->offset;
    bool whole = (field->kind == TOOL_FIELD_COUNT) || (field->kind == TOOL_FIELD_LONG);
    char allowed[ALLOWED_BYTES];
    double value = 0;
    if (field->kind == TOOL_FIELD_OTHER) return field->load(reader, node, struct_out);
    if (field->kind == TOOL_FIELD_TEXT) return text_load(reader, node, field, at);
    if (field->kind == TOOL_FIELD_BOOL) {
        if (config_setting_type(node) != CONFIG_TYPE_BOOL)
            return tool_reader_refuse(reader, node, "%s must be true or false", field->key);
        *(bool *)at = config_setting_get_bool(node) != 0;
        return GF_OK;
    }
    if (!number_of(node, whole, &value) || (value < field->low) || (value > field->high))
        return tool_reader_refuse(reader, node, "%s must be %s", field->key,
                                  allowed_of(field, allowed));
    if (field->kind == TOOL_FIELD_COUNT)
        *(uint32_t *)at = (uint32_t)value;
    else if (field->kind == TOOL_FIELD_LONG)
        *(uint64_t *)at = (uint64_t)value;
    else
        *(double *)at = value;
    return GF_OK;
}

static gf_status unknown_refuse(const struct tool_reader *reader, const config_setting_t *node,
                                const struct tool_field *fields)
{
    const char *key = config_setting_name(node);
    const char *near = NULL;
    unsigned least = GF_SLIPS_MAX + 1;
    for (size_t f = 0; fields[f].key != NULL; f++) {
        unsigned slips = gf_word_slips(key, fields[f].key);
        if (slips >= least) continue;
        least = slips;
        near = fields[f].key;
    }
    if (near == NULL)
        return tool_reader_refuse(reader, node, "unknown key %.60s; %s has all there are", key,
                                  reader->page);
    return tool_reader_refuse(reader, node, "unknown key %.60s; did you mean %s?", key, near);
}

gf_status tool_fields_load(const struct tool_reader *reader, const config_setting_t *group,
                           const struct tool_field *fields, bool *seen_out, void *struct_out)
{
    for (int i = 0; i < config_setting_length(group); i++) {
        const config_setting_t *node = config_setting_get_elem(group, (unsigned)i);
        size_t f = 0;
        gf_status status;
        while ((fields[f].key != NULL) && (strcmp(fields[f].key, config_setting_name(node)) != 0))
            f++;
        if (fields[f].key == NULL) return unknown_refuse(reader, node, fields);
        if ((status = field_load(reader, node, &fields[f], struct_out)) != GF_OK) return status;
        seen_out[f] = true;
    }
    return GF_OK;
}

gf_status tool_fields_missing(const struct tool_reader *reader, const config_setting_t *group,
                              const struct tool_field *fields, const bool *seen)
{
    char allowed[ALLOWED_BYTES];
    for (size_t f = 0; fields[f].key != NULL; f++)
        if (fields[f].needed && !seen[f])
            return tool_reader_refuse(reader, group, "%s is missing: %s", fields[f].key,
                                      allowed_of(&fields[f], allowed));
    return GF_OK;
}

void tool_fields_print(const struct tool_field *fields, const void *of, FILE *out)
{
    for (const struct tool_field *field = fields; field->key != NULL; field++) {
        const void *at = (const char *)of + field->offset;
        char real[32];
        if ((field->kind == TOOL_FIELD_OTHER) ||
            ((field->kind == TOOL_FIELD_TEXT) && (*(const char *)at == '\0')))
            continue;
        if ((field->kind == TOOL_FIELD_REAL) && (*(const double *)at < field->low))
            continue; /* 0: it is not there */
        if ((field->kind == TOOL_FIELD_COUNT) && ((double)*(const uint32_t *)at < field->low))
            continue;
        (void)fprintf(out, "    %s = ", field->key);
        switch (field->kind) {
        case TOOL_FIELD_COUNT: (void)fprintf(out, "%u;", *(const uint32_t *)at); break;
        case TOOL_FIELD_LONG:
            (void)fprintf(out, "%lluL;", (unsigned long long)*(const uint64_t *)at);
            break;
        case TOOL_FIELD_REAL:
            (void)snprintf(real, sizeof real, "%.15g", *(const double *)at);
            (void)fprintf(out, "%s%s;", real, (strpbrk(real, ".e") != NULL) ? "" : ".0");
            break;
        case TOOL_FIELD_BOOL:
            (void)fprintf(out, "%s;", *(const bool *)at ? "true" : "false");
            break;
        case TOOL_FIELD_TEXT:
            (void)fputc('"', out);
            for (const char *c = at; *c != '\0'; c++)
                (void)fprintf(out, "%s%c", ((*c == '"') || (*c == '\\')) ? "\\" : "", *c);
            (void)fputs("\";", out);
            break;
        case TOOL_FIELD_OTHER: break;
        }
        (void)fprintf(out, "  # %s%s%s\n", (field->unit != NULL) ? field->unit : "",
                      (field->unit != NULL) ? ": " : "", field->help);
    }
}

void tool_fields_table(const struct tool_field *fields, const char *prefix, FILE *out)
{
    static const char *const kinds[] = {"whole number", "whole number", "number",
                                        "boolean",      "text",         "other"};
    char allowed[ALLOWED_BYTES];
    for (const struct tool_field *field = fields; field->key != NULL; field++)
        (void)fprintf(out, "| `%s%s` | %s | %s | %s | %s |\n", prefix, field->key,
                      kinds[field->kind], field->needed ? "required" : "left out",
                      allowed_of(field, allowed), field->help);
}
