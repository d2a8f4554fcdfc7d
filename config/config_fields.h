/* Keys of the files that gf-plan reads, a row each: for the reader, its errors, the printed file and the man page.
 * Internal to config/. */
#ifndef GF_CONFIG_FIELDS_H
#define GF_CONFIG_FIELDS_H

#include "config/config_source.h"

#define GF_FIELD_TEXT_BYTES 48 /* of a text in a struct */

struct gf_reader {
    const char *origin; /* the file */
    const char *page;   /* the man page that has all keys */
    char *error_out;
    char where[24];     /* "tensor 3: ", or "" */
};

typedef enum gf_field_kind {
    GF_FIELD_COUNT, /* uint32_t */
    GF_FIELD_LONG,  /* uint64_t */
    GF_FIELD_REAL,  /* double */
    GF_FIELD_BOOL,  /* bool */
    GF_FIELD_TEXT,  /* char [GF_FIELD_TEXT_BYTES] */
    GF_FIELD_OTHER  /* by `load` */
} gf_field_kind;

struct gf_field {
    const char *key; /* NULL: the table ends */
    gf_field_kind kind;
    size_t offset;       /* in the struct that is filled */
    double low, high;    /* of numbers; a text's bytes at most */
    bool needed;
    const char *unit;    /* of numbers, or NULL */
    const char *allowed; /* of GF_FIELD_OTHER */
    const char *help;    /* what stands in the struct where the file has none is part of it */
    gf_status (*load)(const struct gf_reader *reader, const config_setting_t *node, void *struct_out);
};
#define GF_FIELD(struct_name, member) .key = #member, .offset = offsetof(struct struct_name, member)

/* Refuses what stands at this node. */
__attribute__((format(printf, 3, 4))) gf_status gf_reader_refuse(const struct gf_reader *reader,
                                                                 const config_setting_t *node, const char *format, ...);
/* A group's members into *struct_out; seen_out[fields] says which were there. Unknown keys and wrong values are
 * refused, missing ones with gf_fields_missing(). */
gf_status gf_fields_load(const struct gf_reader *reader, const config_setting_t *group, const struct gf_field *fields,
                         bool *seen_out, void *struct_out);
gf_status gf_fields_missing(const struct gf_reader *reader, const config_setting_t *group,
                            const struct gf_field *fields, const bool *seen);
#define GF_FIELDS_MAX 40

/* `key = value;  # unit: meaning`, a line a field but those of GF_FIELD_OTHER. */
void gf_fields_print(const struct gf_field *fields, const void *of, FILE *out);
/* Rows of a Markdown table as gf_config_print_table() has them. */
#define GF_FIELDS_TABLE_HEAD "| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n"
void gf_fields_table(const struct gf_field *fields, const char *prefix, FILE *out);

#endif
