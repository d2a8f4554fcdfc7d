/* Values from text. Nothing here depends on the locale. */
#include "config/config_keys.h"

#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit byte_units[] = {{"", 1},           {"B", 1},
                                         {"K", 1ull << 10}, {"KiB", 1ull << 10},
                                         {"M", 1ull << 20}, {"MiB", 1ull << 20},
                                         {"G", 1ull << 30}, {"GiB", 1ull << 30},
                                         {"T", 1ull << 40}, {"TiB", 1ull << 40},
                                         {NULL, 0}};
static const struct unit time_units[] = {{"", 1000000000ull},
                                         {"ns", 1},
                                         {"us", 1000},
                                         {"ms", 1000000},
                                         {"s", 1000000000ull},
                                         {"min", 60000000000ull},
                                         {"h", 3600000000000ull},
                                         {NULL, 0}};

/* The factor of what follows a number, with or without a space before it; 0: no such unit. */
static uint64_t unit_read(const char *text, const struct unit *unit)
{
    if ((text[0] == ' ') && (text[1] != '\0')) text++;
    for (; unit->name != NULL; unit++)
        if (strcmp(text, unit->name) == 0) return unit->factor;
    return 0;
}

/* Digits at the start of text; returns what follows, NULL where there are none or too many. */
static const char *digits_read(const char *text, uint64_t *number_out)
{
    uint64_t number = 0;
    const char *at = text;
    for (; (*at >= '0') && (*at <= '9'); at++) {
        if (__builtin_mul_overflow(number, 10, &number)) return NULL;
        if (__builtin_add_overflow(number, (uint64_t)(*at - '0'), &number)) return NULL;
    }
    if (at == text) return NULL;
    *number_out = number;
    return at;
}

/* A decimal number at the start of text; returns what follows, NULL where there is none. */
static const char *decimal_read(const char *text, double *real_out)
{
    char *end;
    double real;
    size_t sign = (text[0] == '-') || (text[0] == '+');
    if (strchr("0123456789.", text[sign]) == NULL) return NULL; /* no blanks, no "inf", no "nan" */
    if ((text[sign] == '\0') || ((text[sign + 1] | 0x20) == 'x')) return NULL;
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c_locale == (locale_t)0) return NULL;
    real = strtod_l(text, &end, c_locale);
    freelocale(c_locale);
    if (end == text) return NULL;
    *real_out = real;
    return end;
}

bool gf_real_read(const char *text, double *real_out)
{
    double real;
    const char *rest = decimal_read(text, &real);
    if ((rest == NULL) || (*rest != '\0')) return false;
    *real_out = real;
    return true;
}

bool gf_number_read(const char *text, uint64_t *number_out)
{
    const char *rest;
    uint64_t number;
    char *end;
    if ((text[0] == '0') && ((text[1] | 0x20) == 'x')) {
        size_t digits = strspn(text + 2, "0123456789abcdefABCDEF");
        if ((digits == 0) || (digits > 16) || (text[2 + digits] != '\0')) return false;
        *number_out = strtoull(text + 2, &end, 16);
        return true;
    }
    rest = digits_read(text, &number);
    if ((rest == NULL) || (*rest != '\0')) return false;
    *number_out = number;
    return true;
}

bool gf_bytes_read(const char *text, uint64_t *bytes_out)
{
    uint64_t number;
    uint64_t factor;
    const char *rest = digits_read(text, &number);
    if (rest == NULL) return false;
    factor = unit_read(rest, byte_units);
    return (factor != 0) && !__builtin_mul_overflow(number, factor, bytes_out);
}

bool gf_time_of(double seconds, uint64_t *ns_out)
{
    /* 1e18 ns: what is longer is out of every range */
    if (!(seconds >= 0) || !(seconds <= 1e9)) return false;
    *ns_out = (uint64_t)(seconds * 1e9 + 0.5);
    return true;
}

bool gf_time_read(const char *text, uint64_t *ns_out)
{
    uint64_t number;
    uint64_t factor;
    double real;
    const char *rest = digits_read(text, &number);
    if ((rest != NULL) && ((factor = unit_read(rest, time_units)) != 0))
        return !__builtin_mul_overflow(number, factor, ns_out); /* exact */
    rest = decimal_read(text, &real);
    if ((rest == NULL) || ((factor = unit_read(rest, time_units)) == 0)) return false;
    return gf_time_of(real * ((double)factor / 1e9), ns_out);
}

bool gf_key_set_number(const struct gf_setting *setting, struct gf_config *config, uint64_t number)
{
    if (!gf_setting_number_valid(setting, number)) return false;
    gf_setting_number_set(setting, config, number);
    return true;
}

bool gf_key_set_count(const struct gf_setting *setting, struct gf_config *config, uint64_t number)
{
    uint64_t more = (setting->flags & GF_SETTING_AUTO) ? 1 : 0;
    return (number <= UINT64_MAX - more) && gf_key_set_number(setting, config, number + more);
}

bool gf_key_set_real(const struct gf_setting *setting, struct gf_config *config, double real)
{
    if (!gf_setting_real_valid(setting, real)) return false;
    gf_setting_real_set(setting, config, (float)real);
    return true;
}

bool gf_key_set_text(const struct gf_setting *setting, struct gf_config *config, const char *text)
{
    uint64_t number;
    double real;
    switch ((gf_setting_kind)setting->kind) {
    case GF_SETTING_BOOL:
        if ((strcmp(text, "true") != 0) && (strcmp(text, "false") != 0)) return false;
        return gf_key_set_number(setting, config, text[0] == 't');
    case GF_SETTING_COUNT:
        if ((setting->flags & GF_SETTING_AUTO) && (strcmp(text, "auto") == 0))
            return gf_key_set_number(setting, config, 0);
        return gf_number_read(text, &number) && gf_key_set_count(setting, config, number);
    case GF_SETTING_BYTES:
        return gf_bytes_read(text, &number) && gf_key_set_number(setting, config, number);
    case GF_SETTING_TIME:
        return gf_time_read(text, &number) && gf_key_set_number(setting, config, number);
    case GF_SETTING_REAL:
        return gf_real_read(text, &real) && gf_key_set_real(setting, config, real);
    case GF_SETTING_NAME:
        for (number = setting->low; number <= setting->high; number++)
            if (strcmp(text, setting->names[number]) == 0)
                return gf_key_set_number(setting, config, number);
        return false;
    case GF_SETTING_TEXT:
        if ((text[0] != '\0') && !gf_setting_text_valid(setting, text)) return false;
        gf_setting_text_set(setting, config, text);
        return true;
    }
    return false;
}
