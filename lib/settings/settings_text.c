/* Settings as text: units, addresses, what is allowed. Nothing here depends on the locale. */
#include "lib/settings/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/address.h"
#include "drivers/fault.h"

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

static bool ip_numeric(const char *ip)
{
    return gf_addr_parse(ip, false, &(struct gf_addr){0});
}
bool gf_address_numeric(const char *address)
{
    return gf_addr_parse(address, true, &(struct gf_addr){0});
}

/* What looks like a broken number is one, and not a name to ask a name server for. */
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

static bool ports_valid(const char *ports)
{
    unsigned first;
    unsigned last;
    return gf_ports_parse(ports, &first, &last) && (first >= 1024);
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

#define LOWER "abcdefghijklmnopqrstuvwxyz0123456789_"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

bool gf_setting_text_valid(const struct gf_setting *setting, const char *text)
{
    GF_ASSERT(setting->kind == GF_SETTING_TEXT);
    if ((text[0] == '\0') || (strlen(text) >= setting->size)) return false;
    switch ((gf_setting_form)setting->form) {
    case GF_FORM_ADDRESS: return gf_address_numeric(text) || gf_address_named(text);
    case GF_FORM_IP: return ip_numeric(text);
    case GF_FORM_TRANSPORTS: return list_valid(text, LOWER, ",");
    case GF_FORM_DEVICES: return list_valid(text, LOWER UPPER ".:-@", ",;");
    case GF_FORM_PORTS: return ports_valid(text);
    case GF_FORM_DRIVER: return (strcmp(text, "host") == 0) || (strcmp(text, "cuda") == 0);
    case GF_FORM_PATH: break;
    }
    for (const char *at = text; *at != '\0'; at++)
        if (((unsigned char)*at < 0x20) || (*at == 0x7f)) return false;
    return true;
}

static const char *form_text(gf_setting_form form)
{
    switch (form) {
    case GF_FORM_ADDRESS:
        return "IP:port, for example 10.0.0.1:7117, [fd00::1]:7117 or [fe80::1%eth0]:7117, or "
               "host:port";
    case GF_FORM_IP: return "a numeric IP, for example 10.0.0.1, fd00::1 or fe80::1%eth0";
    case GF_FORM_TRANSPORTS:
        return "lower-case UCX names, comma-separated, for example rc or rc,cuda_copy";
    case GF_FORM_DEVICES:
        return "device names, for example eth0, or mlx5_0:1;mlx5_1:1 by local rank";
    case GF_FORM_PORTS: return "first-last within 1024-65535";
    case GF_FORM_DRIVER: return "host or cuda";
    case GF_FORM_PATH: break;
    }
    return "a path without control characters";
}

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

static char *names_allowed(const struct gf_setting *setting, char *text_out)
{
    size_t used = 0;
    for (uint64_t i = 0; i <= setting->high; i++) {
        const char *before = (i == 0) ? "" : (i == setting->high) ? " or " : ", ";
        used += (size_t)snprintf(text_out + used, GF_SETTING_ALLOWED_BYTES - used, "%s%s", before,
                                 setting->names[i]);
        GF_ASSERT(used < GF_SETTING_ALLOWED_BYTES);
    }
    return text_out;
}

char *gf_setting_allowed(const struct gf_setting *setting, char *text_out)
{
    static const char *const kinds[] = {[GF_SETTING_COUNT] = "a whole number",
                                        [GF_SETTING_BYTES] = "a size",
                                        [GF_SETTING_TIME] = "a time",
                                        [GF_SETTING_REAL] = "a number"};
    char low[GF_UNITS_BYTES];
    char high[GF_UNITS_BYTES];
    uint64_t is_auto = (setting->flags & GF_SETTING_AUTO) ? 1 : 0;
    int used;
    if (setting->kind == GF_SETTING_NAME) return names_allowed(setting, text_out);
    if ((setting->kind == GF_SETTING_TEXT) || (setting->kind == GF_SETTING_BOOL)) {
        bool is_text = setting->kind == GF_SETTING_TEXT;
        (void)snprintf(text_out, GF_SETTING_ALLOWED_BYTES, "%s",
                       is_text ? form_text((gf_setting_form)setting->form) : "true or false");
        return text_out;
    }
    if (setting->flags & GF_SETTING_POWER_OF_TWO) {
        (void)snprintf(text_out, GF_SETTING_ALLOWED_BYTES, "a power of two from 2^%d to 2^%d",
                       exponent_of(setting->low_real), exponent_of(setting->high_real));
        return text_out;
    }
    if (setting->kind == GF_SETTING_REAL) {
        (void)gf_units_real(setting->low_real, low);
        (void)gf_units_real(setting->high_real, high);
    } else {
        (void)number_text(setting, setting->low + is_auto, low);
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
    if ((setting->kind == GF_SETTING_NAME) && (number <= setting->high))
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
    if ((setting != NULL) && (setting->kind == GF_SETTING_NAME) && (number <= setting->high))
        (void)snprintf(text_out, GF_SETTING_NAME_BYTES, "%s", setting->names[number]);
    else
        (void)snprintf(text_out, GF_SETTING_NAME_BYTES, "%llu", (unsigned long long)number);
    return text_out;
}
