/* Settings as text: units, addresses, what is allowed. Nothing here depends on the locale. */
#include "lib/settings/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/base/address.h"
#include "drivers/base/fault.h"
#include "drivers/gpu.h"

struct unit {
    const char *name;
    uint64_t factor;
};

/* Largest first, the last one has factor 1. */
static const struct unit byte_units[] = {
    {"TiB", 1ull << 40}, {"GiB", 1ull << 30}, {"MiB", 1ull << 20}, {"KiB", 1ull << 10}, {"B", 1}};
static const struct unit time_units[] = {{"h", 3600000000000ull},
                                         {"min", 60000000000ull},
                                         {"s", 1000000000ull},
                                         {"ms", 1000000},
                                         {"us", 1000},
                                         {"ns", 1}};

static char *units_text(uint64_t value, const struct unit *unit, char *text_out)
{
    while ((value % unit->factor != 0) || ((value == 0) && (unit->factor != 1))) unit++;
    (void)snprintf(text_out, GF_UNITS_BYTES, "%llu %s", (unsigned long long)(value / unit->factor),
                   unit->name);
    return text_out;
}

char *gf_units_bytes(uint64_t bytes, char *text_out)
{
    return units_text(bytes, byte_units, text_out);
}

char *gf_units_time(uint64_t ns, char *text_out)
{
    return units_text(ns, time_units, text_out);
}

char *gf_units_real(float real, char *text_out)
{
    /* Printed and read back under the same locale, whatever it is; then anything that is no part of
     * a number must be its decimal point. */
    for (int digits = 1; digits <= 9; digits++) {
        (void)snprintf(text_out, GF_UNITS_BYTES, "%.*g", digits, (double)real);
        if (strtof(text_out, NULL) == real) break;
    }
    char *to = text_out;
    bool point = false;
    for (const char *from = text_out; *from != '\0'; from++) {
        if (strchr("0123456789+-einfa", *from) != NULL)
            *to++ = *from;
        else if (!point)
            point = (*to++ = '.') == '.';
    }
    *to = '\0';
    if (!point && (strpbrk(text_out, "eina") == NULL)) memcpy(to, ".0", 3);
    return text_out;
}

bool gf_address_numeric(const char *address)
{
    return gf_addr_parse(address, true, &(struct gf_addr){0});
}

/* An address that looks like a broken number is an error, not a name for a name server. */
bool gf_address_named(const char *address)
{
    static const char digits[] = "0123456789.";
    static const char characters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_";
    char port[16];
    const size_t length = strspn(address, characters);
    (void)snprintf(port, sizeof port, "1.1.1.1%s", address + length);
    return (length > 0) && (strspn(address, digits) < length) &&
           (strlen(address + length) <= sizeof ":65535" - 1) && gf_address_numeric(port);
}

bool gf_ip_loopback(const char *ip_or_address)
{
    struct gf_addr addr;
    return (gf_addr_parse(ip_or_address, true, &addr) ||
            gf_addr_parse(ip_or_address, false, &addr)) &&
           gf_addr_is_loopback(&addr);
}

/* ---- forms of a text ---- */

#define LOWER "abcdefghijklmnopqrstuvwxyz0123456789_"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

static bool address_valid(const char *text)
{
    return gf_address_numeric(text) || gf_address_named(text);
}

static bool ip_valid(const char *text)
{
    return gf_addr_parse(text, false, &(struct gf_addr){0});
}

/* Names of these characters, no empty one, with one of the separators between two. */
static bool list_valid(const char *list, const char *characters, const char *separators)
{
    for (;;) {
        size_t length = strspn(list, characters);
        if (length == 0) return false;
        list += length;
        if (*list == '\0') return true;
        if (strchr(separators, *list++) == NULL) return false;
    }
}

static bool transports_valid(const char *text)
{
    return list_valid(text, LOWER, ",");
}

static bool devices_valid(const char *text)
{
    return list_valid(text, LOWER UPPER ".:-@", ",;");
}

static bool ports_valid(const char *text)
{
    unsigned first;
    unsigned last;
    return gf_ports_parse(text, &first, &last) && (first >= 1024);
}

static const char *const gpu_drivers[] = {GF_GPU_DRIVER_NAMES};
#define GPU_DRIVER_COUNT (sizeof gpu_drivers / sizeof gpu_drivers[0])

static bool driver_valid(const char *text)
{
    for (size_t i = 0; i < GPU_DRIVER_COUNT; i++)
        if (strcmp(text, gpu_drivers[i]) == 0) return true;
    return false;
}

static bool path_valid(const char *text)
{
    for (; *text != '\0'; text++)
        if (((unsigned char)*text < 0x20) || (*text == 0x7f)) return false;
    return true;
}

/* What a text of each form may be, and how a refusal says it. */
static const struct form {
    bool (*valid)(const char *text);
    const char *allowed; /* NULL: the names of gpu_drivers */
} forms[] = {
    [GF_FORM_ADDRESS] = {address_valid, "IP:port, for example 10.0.0.1:7117, [fd00::1]:7117 or "
                                        "[fe80::1%eth0]:7117, or host:port"},
    [GF_FORM_IP] = {ip_valid, "a numeric IP, for example 10.0.0.1, fd00::1 or fe80::1%eth0"},
    [GF_FORM_TRANSPORTS] = {transports_valid, "lower-case UCX names, comma-separated, for example "
                                              "rc or rc,cuda_copy"},
    [GF_FORM_DEVICES] = {devices_valid,
                         "device names, for example eth0, or mlx5_0:1;mlx5_1:1 by local rank"},
    [GF_FORM_PORTS] = {ports_valid, "first-last within 1024-65535"},
    [GF_FORM_DRIVER] = {driver_valid, NULL},
    [GF_FORM_PATH] = {path_valid, "a path without control characters"},
};

bool gf_setting_text_valid(const struct gf_setting *setting, const char *text)
{
    GF_ASSERT(setting->kind == GF_SETTING_TEXT);
    if ((text[0] == '\0') || (strlen(text) >= setting->size)) return false;
    return forms[setting->form].valid(text);
}

/* ---- what is allowed ---- */

static int exponent_of(float power_of_two)
{
    uint32_t bits;
    memcpy(&bits, &power_of_two, sizeof bits);
    return (int)(bits >> 23) - 127;
}

/* Of a count, a size or a time. */
static char *number_text(const struct gf_setting *setting, uint64_t number, char *text_out)
{
    if (setting->kind == GF_SETTING_BYTES) return gf_units_bytes(number, text_out);
    if (setting->kind == GF_SETTING_TIME) return gf_units_time(number, text_out);
    if (setting->flags & GF_SETTING_AUTO) number--;
    (void)snprintf(text_out, GF_UNITS_BYTES, "%llu", (unsigned long long)number);
    return text_out;
}

/* "ring, tree or direct" */
static char *names_allowed(const char *const *names, uint64_t count, char *text_out)
{
    size_t used = 0;
    for (uint64_t i = 0; i < count; i++) {
        const char *before = (i == 0) ? "" : (i == count - 1) ? " or " : ", ";
        used += (size_t)snprintf(text_out + used, GF_SETTING_ALLOWED_BYTES - used, "%s%s", before,
                                 names[i]);
        GF_ASSERT(used < GF_SETTING_ALLOWED_BYTES);
    }
    return text_out;
}

static char *text_allowed(gf_setting_form form, char *text_out)
{
    if (forms[form].allowed == NULL) return names_allowed(gpu_drivers, GPU_DRIVER_COUNT, text_out);
    (void)snprintf(text_out, GF_SETTING_ALLOWED_BYTES, "%s", forms[form].allowed);
    return text_out;
}

/* "a size from 4 KiB to 1 GiB, a multiple of 64 B" */
static char *range_allowed(const struct gf_setting *setting, char *text_out)
{
    static const char *const kinds[] = {[GF_SETTING_COUNT] = "a whole number",
                                        [GF_SETTING_BYTES] = "a size",
                                        [GF_SETTING_TIME] = "a time",
                                        [GF_SETTING_REAL] = "a number"};
    const bool is_auto = (setting->flags & GF_SETTING_AUTO) != 0;
    char low[GF_UNITS_BYTES];
    char high[GF_UNITS_BYTES];
    int used;
    if (setting->kind == GF_SETTING_REAL) {
        (void)gf_units_real(setting->low_real, low);
        (void)gf_units_real(setting->high_real, high);
    } else {
        /* 0 in the struct is "auto": the lowest number that a file may have comes after it */
        (void)number_text(setting, setting->low + (is_auto ? 1 : 0), low);
        (void)number_text(setting, setting->high, high);
    }
    used =
        snprintf(text_out, GF_SETTING_ALLOWED_BYTES, "%s%s %s %s %s %s", is_auto ? "auto or " : "",
                 kinds[setting->kind], (setting->flags & GF_SETTING_ABOVE_LOW) ? "above" : "from",
                 low, (setting->flags & GF_SETTING_BELOW_HIGH) ? "to below" : "to", high);
    if (setting->multiple != 0)
        (void)snprintf(text_out + used, GF_SETTING_ALLOWED_BYTES - (size_t)used,
                       ", a multiple of %u B", setting->multiple);
    return text_out;
}

char *gf_setting_allowed(const struct gf_setting *setting, char *text_out)
{
    switch ((gf_setting_kind)setting->kind) {
    case GF_SETTING_TEXT: return text_allowed((gf_setting_form)setting->form, text_out);
    case GF_SETTING_NAME:
        return names_allowed(setting->names + setting->low, setting->high - setting->low + 1,
                             text_out);
    case GF_SETTING_BOOL:
        (void)snprintf(text_out, GF_SETTING_ALLOWED_BYTES, "true or false");
        return text_out;
    case GF_SETTING_COUNT:
    case GF_SETTING_BYTES:
    case GF_SETTING_TIME:
    case GF_SETTING_REAL: break;
    }
    if ((setting->flags & GF_SETTING_POWER_OF_TWO) == 0) return range_allowed(setting, text_out);
    (void)snprintf(text_out, GF_SETTING_ALLOWED_BYTES, "a power of two from 2^%d to 2^%d",
                   exponent_of(setting->low_real), exponent_of(setting->high_real));
    return text_out;
}

char *gf_setting_value(const struct gf_setting *setting, const struct gf_config *config,
                       char *text_out)
{
    uint64_t number;
    const char *text = NULL;
    if (setting->kind == GF_SETTING_REAL)
        return gf_units_real(gf_setting_real(setting, config), text_out);
    if (setting->kind == GF_SETTING_TEXT) {
        (void)snprintf(text_out, GF_SETTING_VALUE_BYTES, "%.*s", (int)setting->size,
                       gf_setting_text(setting, config));
        return text_out;
    }
    number = gf_setting_number(setting, config);
    if ((setting->kind == GF_SETTING_BOOL) && (number <= 1)) text = number ? "true" : "false";
    if ((setting->kind == GF_SETTING_NAME) && gf_setting_number_valid(setting, number))
        text = setting->names[number];
    if ((setting->flags & GF_SETTING_AUTO) && (number == 0)) text = "auto";
    if (text == NULL) return number_text(setting, number, text_out);
    (void)snprintf(text_out, GF_SETTING_VALUE_BYTES, "%s", text);
    return text_out;
}

const struct gf_setting *gf_setting_find(const char *key)
{
    for (uint32_t i = 0; i < gf_setting_count; i++)
        if (strcmp(gf_settings[i].key, key) == 0) return &gf_settings[i];
    return NULL;
}

char *gf_setting_name(const char *key, uint64_t number, char *text_out)
{
    const struct gf_setting *setting = gf_setting_find(key);
    if ((setting != NULL) && (setting->kind == GF_SETTING_NAME) &&
        gf_setting_number_valid(setting, number))
        (void)snprintf(text_out, GF_SETTING_NAME_BYTES, "%s", setting->names[number]);
    else
        (void)snprintf(text_out, GF_SETTING_NAME_BYTES, "%llu", (unsigned long long)number);
    return text_out;
}
