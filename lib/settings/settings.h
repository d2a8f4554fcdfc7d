/* The settings of struct gf_config as a table: one row a field, with all that is known about it.
 * Defaults, range checks, the hash, the summary and (in config/) the file format are loops over it,
 * so they cannot disagree. */
#ifndef GF_SETTINGS_H
#define GF_SETTINGS_H

#include "gradientflow.h"
#include "ops/ops.h" /* gf_type_names */

typedef enum gf_setting_kind {
    GF_SETTING_BOOL,
    GF_SETTING_COUNT, /* a whole number without unit */
    GF_SETTING_BYTES,
    GF_SETTING_TIME, /* nanoseconds in the struct */
    GF_SETTING_REAL, /* float */
    GF_SETTING_NAME, /* an enum, by name */
    GF_SETTING_TEXT  /* characters in the struct, NUL-terminated */
} gf_setting_kind;

/* What a text must look like. Empty is valid everywhere and means the default. */
typedef enum gf_setting_form {
    GF_FORM_ADDRESS,    /* 10.0.0.1:7117 or [fd00::1]:7117 */
    GF_FORM_IP,         /* the same without port */
    GF_FORM_TRANSPORTS, /* lower-case names, comma-separated */
    GF_FORM_DEVICES,    /* device names, comma-separated */
    GF_FORM_PORTS,      /* first-last */
    GF_FORM_DRIVER,     /* one of GF_GPU_DRIVER_NAMES */
    GF_FORM_PATH        /* no control characters */
} gf_setting_form;

#define GF_OPS_MAX 16u         /* exchange.buffers_active, at most */
#define GF_SETTING_AGREES 0x1u /* must be the same on all ranks */
#define GF_SETTING_POWER_OF_TWO 0x2u
#define GF_SETTING_ABOVE_LOW 0x4u  /* the lower bound itself is not valid */
#define GF_SETTING_BELOW_HIGH 0x8u /* likewise the upper one */
/* a count: 0 in the struct is "auto", n + 1 is n; low and high are the struct's */
#define GF_SETTING_AUTO 0x10u

/* In the struct 0 and empty text mean the fallback. Where the fallback is not 0, low is not 0
 * either, so that a file cannot say 0 and silently get something else. */
struct gf_setting {
    const char *key; /* "group.name" */
    const char *help;
    uint16_t offset;                    /* in struct gf_config */
    uint16_t size;                      /* of the field */
    uint8_t kind;                       /* gf_setting_kind */
    uint8_t form;                       /* gf_setting_form of a text */
    uint8_t flags;                      /* GF_SETTING_.. */
    uint8_t multiple;                   /* of this many; 0: any */
    uint64_t low, high;                 /* bool, count, bytes, time, name */
    uint64_t fallback, fallback_device; /* where device.driver is not host; 0: the same */
    float low_real, high_real;          /* real */
    float fallback_real;
    const char *const *names; /* [high + 1] of a name; NULL below low */
    const char *fallback_text;
};

extern const struct gf_setting gf_settings[];
extern const uint32_t gf_setting_count;
const struct gf_setting *gf_setting_find(const char *key); /* NULL: there is none */

/* Which settings are unset whose default is known only later (by device.driver, or by the launcher
 * for rendezvous.address), a bit each; gf_config_unset() unsets those again. */
uint32_t gf_config_unset_mask(const struct gf_config *config);
void gf_config_unset(struct gf_config *config, uint32_t unsaid);
/* Effective values: the fallback where the field is 0 or empty. Number is for bool, count, bytes,
 * time and name. */
uint64_t gf_setting_number(const struct gf_setting *setting, const struct gf_config *config);
float gf_setting_real(const struct gf_setting *setting, const struct gf_config *config);
const char *gf_setting_text(const struct gf_setting *setting, const struct gf_config *config);
/* Unchecked. Text must fit the field; the rest of the field is zeroed. text may lie in the field
 * itself. */
void gf_setting_number_set(const struct gf_setting *setting, struct gf_config *config,
                           uint64_t number);
void gf_setting_real_set(const struct gf_setting *setting, struct gf_config *config, float real);
void gf_setting_text_set(const struct gf_setting *setting, struct gf_config *config,
                         const char *text);

bool gf_setting_number_valid(const struct gf_setting *setting, uint64_t number);
bool gf_setting_real_valid(const struct gf_setting *setting, double real);
bool gf_setting_text_valid(const struct gf_setting *setting, const char *text); /* empty is not */

#define GF_SETTING_ALLOWED_BYTES 160
#define GF_SETTING_VALUE_BYTES 280
/* "a whole number from 1 to 32"; returns text_out[GF_SETTING_ALLOWED_BYTES]. */
char *gf_setting_allowed(const struct gf_setting *setting, char *text_out);
/* The effective value as a file would say it, without quotes; returns
 * text_out[GF_SETTING_VALUE_BYTES]. */
char *gf_setting_value(const struct gf_setting *setting, const struct gf_config *config,
                       char *text_out);

/* A value of a key as its name, as "sgd" of optimizer.kind; the number where it has none. Returns
 * text_out[GF_SETTING_NAME_BYTES]. */
#define GF_SETTING_NAME_BYTES 24
char *gf_setting_name(const char *key, uint64_t number, char *text_out);

/* "4 MiB", "200 ms", "0.9": exact, in the largest unit that divides; return
 * text_out[GF_UNITS_BYTES]. */
#define GF_UNITS_BYTES 32
char *gf_units_bytes(uint64_t bytes, char *text_out);
char *gf_units_time(uint64_t ns, char *text_out);
/* the shortest that reads back as the same float; always a "." */
char *gf_units_real(float real, char *text_out);

/* 10.0.0.1:7117 or [fd00::1]:7117, nothing else. */
bool gf_address_numeric(const char *address);
/* host:port; what looks like a broken number is none. */
bool gf_address_named(const char *address);
bool gf_ip_loopback(const char *ip_or_address); /* of a numeric one */

/* The default of a field as gf_config_summary() names and writes it, in
 * value_out[GF_SETTING_VALUE_BYTES]; false where there is no such field. */
bool gf_setting_default(const char *key, size_t key_bytes, char *value_out);

extern const char *const gf_algorithm_names[GF_ALGORITHM_COUNT];

/* gf_config_effective() without the checks of settings_together.c. The result is written in any
 * case. */
gf_status gf_config_own(const struct gf_config *config, struct gf_config *effective,
                        char *error_out);
/* The line that a refusal gives its caller, in error_out[256]; returns status. */
__attribute__((format(printf, 3, 4))) gf_status gf_config_refuse(char *error_out, gf_status status,
                                                                 const char *format, ...);

const char *gf_reduction_name(gf_reduction reduction); /* "sum", .. */

#endif
