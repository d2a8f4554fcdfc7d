/* What a configuration means: defaults, ranges, combinations; and what must agree between ranks.
 * The fields themselves are in settings_table.c. */
#include "lib/settings/settings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "drivers/base/fault.h"
#include "drivers/gpu.h"

#define ERROR_BYTES 256 /* of gf_config_effective() */
#define refuse(error_out, ...) gf_config_refuse(error_out, GF_ERR_CONFIG, __VA_ARGS__)

static const void *field_of(const struct gf_setting *setting, const struct gf_config *config)
{
    return (const char *)config + setting->offset;
}

static uint64_t fallback_of(const struct gf_setting *setting, const struct gf_config *config)
{
    bool on_device = gf_gpu_is_device(config->device.driver);
    return (on_device && (setting->fallback_device != 0)) ? setting->fallback_device
                                                          : setting->fallback;
}

uint64_t gf_setting_number(const struct gf_setting *setting, const struct gf_config *config)
{
    uint64_t number = 0;
    uint32_t word;
    uint8_t byte;
    /* Through memcpy, also for bool and enums: a caller's garbage is then a number to refuse, not
     * undefined. */
    switch (setting->size) {
    case 1:
        memcpy(&byte, field_of(setting, config), 1);
        number = byte;
        break;
    case 4:
        memcpy(&word, field_of(setting, config), 4);
        number = word;
        break;
    case 8: memcpy(&number, field_of(setting, config), 8); break;
    default: GF_ASSERT(false);
    }
    return (number == 0) ? fallback_of(setting, config) : number;
}

void gf_setting_number_set(const struct gf_setting *setting, struct gf_config *config,
                           uint64_t number)
{
    void *field = (char *)config + setting->offset;
    uint32_t word = (uint32_t)number;
    uint8_t byte = (uint8_t)number;
    switch (setting->size) {
    case 1: memcpy(field, &byte, 1); break;
    case 4: memcpy(field, &word, 4); break;
    case 8: memcpy(field, &number, 8); break;
    default: GF_ASSERT(false);
    }
}

float gf_setting_real(const struct gf_setting *setting, const struct gf_config *config)
{
    float real;
    GF_ASSERT((setting->kind == GF_SETTING_REAL) && (setting->size == sizeof real));
    memcpy(&real, field_of(setting, config), sizeof real);
    /* -0 becomes 0 here, or two hashes would differ */
    return (real == 0) ? setting->fallback_real : real;
}

void gf_setting_real_set(const struct gf_setting *setting, struct gf_config *config, float real)
{
    memcpy((char *)config + setting->offset, &real, sizeof real);
}

const char *gf_setting_text(const struct gf_setting *setting, const struct gf_config *config)
{
    const char *text = field_of(setting, config);
    GF_ASSERT(setting->kind == GF_SETTING_TEXT);
    return (text[0] == '\0') ? setting->fallback_text : text;
}

void gf_setting_text_set(const struct gf_setting *setting, struct gf_config *config,
                         const char *text)
{
    char *field = (char *)config + setting->offset;
    size_t length = strlen(text);
    GF_ASSERT(length < setting->size);
    memmove(field, text, length);
    memset(field + length, 0, setting->size - length);
}

bool gf_setting_number_valid(const struct gf_setting *setting, uint64_t number)
{
    if ((number < setting->low) || (number > setting->high)) return false;
    return (setting->multiple == 0) || (number % setting->multiple == 0);
}

bool gf_setting_real_valid(const struct gf_setting *setting, double real)
{
    float single = (float)real;
    uint32_t bits;
    /* NaN too */
    if (!(real >= (double)setting->low_real) || !(real <= (double)setting->high_real)) return false;
    if ((setting->flags & GF_SETTING_ABOVE_LOW) && (single <= setting->low_real)) return false;
    if ((setting->flags & GF_SETTING_BELOW_HIGH) && (single >= setting->high_real)) return false;
    if (!(setting->flags & GF_SETTING_POWER_OF_TWO)) return true;
    memcpy(&bits, &single, sizeof bits);
    return ((double)single == real) && ((bits & 0x7fffffu) == 0);
}

gf_status gf_config_refuse(char *error_out, gf_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(error_out, ERROR_BYTES, format, arguments);
    va_end(arguments);
    for (char *at = error_out; *at != '\0'; at++)
        if (((unsigned char)*at < 0x20) || (*at == 0x7f)) *at = '?'; /* a quoted value; one line */
    return status;
}

static gf_status value_refuse(const struct gf_setting *setting, const struct gf_config *config,
                              char *error_out)
{
    char value[GF_SETTING_VALUE_BYTES];
    char allowed[GF_SETTING_ALLOWED_BYTES];
    return refuse(error_out, "%s = %.60s: allowed is %s", setting->key,
                  gf_setting_value(setting, config, value), gf_setting_allowed(setting, allowed));
}

/* Checks one field and writes what it means. */
static gf_status field_effective(const struct gf_setting *setting, struct gf_config *config,
                                 char *error_out)
{
    uint64_t number;
    float real;
    const char *text = field_of(setting, config);
    switch ((gf_setting_kind)setting->kind) {
    case GF_SETTING_REAL:
        real = gf_setting_real(setting, config);
        if (!gf_setting_real_valid(setting, (double)real))
            return value_refuse(setting, config, error_out);
        gf_setting_real_set(setting, config, real);
        return GF_OK;
    case GF_SETTING_TEXT:
        if (memchr(text, '\0', setting->size) == NULL)
            return refuse(error_out, "%s: the text has no end within its %u bytes", setting->key,
                          setting->size);
        text = gf_setting_text(setting, config);
        if ((text[0] != '\0') && !gf_setting_text_valid(setting, text))
            return value_refuse(setting, config, error_out);
        gf_setting_text_set(setting, config, text);
        return GF_OK;
    default: break;
    }
    number = gf_setting_number(setting, config);
    if (!gf_setting_number_valid(setting, number)) return value_refuse(setting, config, error_out);
    gf_setting_number_set(setting, config, number);
    return GF_OK;
}

/* After the warm-up; 0: no rate is given. */
static float rate_highest(const struct gf_schedule *rate)
{
    struct gf_schedule flat = *rate;
    flat.kind = GF_SCHEDULE_CONSTANT;
    flat.warmup_steps = 0;
    return gf_schedule_rate(&flat, 0);
}

static bool rate_rises(const struct gf_schedule *rate)
{
    bool ends = (rate->kind == GF_SCHEDULE_POLYNOMIAL) || (rate->kind == GF_SCHEDULE_COSINE);
    return ends && (rate->base_rate > 0) && (rate->end_rate > rate_highest(rate));
}

/* Checks fields against each other. Each text begins with the key, which config/ looks up for the
 * line. */
static gf_status combinations_check(const struct gf_config *config, char *error_out)
{
    gf_algorithm algorithm = config->exchange.algorithm;
    const char *address = config->rendezvous.address;
    const char *bind = config->rendezvous.bind;
    char initial[GF_UNITS_BYTES];
    char floor[GF_UNITS_BYTES];

    if ((config->job.world_max != 0) && (config->job.world_max < config->job.world))
        return refuse(error_out, "job.world_max = %u: allowed is 0 or at least job.world = %u",
                      config->job.world_max, config->job.world);
    uint32_t most = (config->job.world_max != 0) ? config->job.world_max : config->job.world;
    if ((config->job.world != 0) && (config->job.rank >= most))
        return refuse(error_out, "job.rank = %u: allowed is a rank below job.world%s = %u",
                      config->job.rank, (config->job.world_max != 0) ? "_max" : "", most);
    if (config->job.ignore_environment && (config->job.world == 0))
        return refuse(error_out,
                      "job.ignore_environment = true: allowed only where job.world is set");
    if (config->exchange.deterministic && (algorithm == GF_ALGORITHM_RING))
        return refuse(error_out,
                      "exchange.algorithm = ring: its order of adding depends on fusion; with "
                      "exchange.deterministic allowed is any but ring");
    if (((config->rate.kind == GF_SCHEDULE_POLYNOMIAL) ||
         (config->rate.kind == GF_SCHEDULE_COSINE)) &&
        (config->rate.step_count <= config->rate.warmup_steps))
        return refuse(error_out,
                      "rate.steps = %llu: polynomial and cosine end there; allowed is more than "
                      "rate.warmup_steps",
                      (unsigned long long)config->rate.step_count);
    if (rate_rises(&config->rate))
        return refuse(error_out,
                      "rate.end = %s: polynomial and cosine would rise to it; allowed is at most "
                      "the highest rate = %s",
                      gf_units_real(config->rate.end_rate, floor),
                      gf_units_real(rate_highest(&config->rate), initial));
    if (config->loss_scale.floor > config->loss_scale.initial)
        return refuse(error_out,
                      "loss_scale.floor = %s: allowed is at most loss_scale.initial = %s",
                      gf_units_real(config->loss_scale.floor, floor),
                      gf_units_real(config->loss_scale.initial, initial));
    if (!gf_address_numeric(address) && (config->resolve == NULL))
        return refuse(error_out,
                      "rendezvous.address = %s: allowed is a numeric IP:port, for example "
                      "10.0.0.1:7117; this program resolves no names (config.resolve)",
                      address);
    if (config->rendezvous.insecure || (config->rendezvous.key_file[0] != '\0')) return GF_OK;
    if (gf_address_numeric(address) && !gf_ip_loopback(address))
        return refuse(
            error_out,
            "rendezvous.address = %s: beyond loopback allowed only with rendezvous.key_file, or "
            "with rendezvous.insecure = true",
            address);
    if ((bind[0] != '\0') && !gf_ip_loopback(bind))
        return refuse(
            error_out,
            "rendezvous.bind = %s: beyond loopback allowed only with rendezvous.key_file, or "
            "with rendezvous.insecure = true",
            bind);
    return GF_OK;
}

/* Is it a setting whose default is known only later, from the device or the launcher? */
static bool is_left_open(const struct gf_setting *setting)
{
    return (setting->fallback_device != 0) ||
           (setting->offset == offsetof(struct gf_config, rendezvous.address));
}

uint32_t gf_config_unset_mask(const struct gf_config *config)
{
    uint32_t unsaid = 0;
    uint32_t bit = 1;
    for (uint32_t i = 0; i < gf_setting_count; i++) {
        static const char nothing[sizeof(uint64_t)];
        const struct gf_setting *setting = &gf_settings[i];
        size_t bytes = (setting->kind == GF_SETTING_TEXT) ? 1 : setting->size;
        if (!is_left_open(setting)) continue;
        GF_ASSERT(bytes <= sizeof nothing);
        if (memcmp(nothing, field_of(setting, config), bytes) == 0) unsaid |= bit;
        bit <<= 1;
    }
    return unsaid;
}

void gf_config_unset(struct gf_config *config, uint32_t unsaid)
{
    for (uint32_t i = 0; i < gf_setting_count; i++) {
        if (!is_left_open(&gf_settings[i])) continue;
        if (unsaid & 1u) memset((char *)config + gf_settings[i].offset, 0, gf_settings[i].size);
        unsaid >>= 1;
    }
}

gf_status gf_config_own(const struct gf_config *config, struct gf_config *effective,
                        char *error_out)
{
    gf_status status = GF_OK;
    if ((config->size_bytes != 0) && (config->size_bytes != sizeof *config))
        return refuse(error_out,
                      "size_bytes = %u: allowed is 0 or %zu; was the caller built with another "
                      "gradientflow.h?",
                      config->size_bytes, sizeof *config);
    *effective = *config;
    effective->size_bytes = sizeof *effective;
    for (uint32_t i = 0; (i < gf_setting_count) && (status == GF_OK); i++)
        status = field_effective(&gf_settings[i], effective, error_out);
    return (status == GF_OK) ? combinations_check(effective, error_out) : status;
}
