/* Keys of model and cluster files, a row each: for the reader, its errors, the printed file and the
 * man page. */
#ifndef TOOL_FIELDS_H
#define TOOL_FIELDS_H

#include "config/config_source.h"

#define TOOL_FIELD_TEXT_BYTES 48 /* of a text in a struct */

struct tool_reader {
    const char *origin; /* the file */
    const char *page;   /* the man page that has all keys */
    char *error_out;
    char where[24]; /* "tensor 3: ", or "" */
};

typedef enum tool_field_kind {
    TOOL_FIELD_COUNT, /* uint32_t */
    TOOL_FIELD_LONG,  /* uint64_t */
    TOOL_FIELD_REAL,  /* double */
    TOOL_FIELD_BOOL,  /* bool */
    TOOL_FIELD_TEXT,  /* char [TOOL_FIELD_TEXT_BYTES] */
    TOOL_FIELD_OTHER  /* by `load` */
} tool_field_kind;

struct tool_field {
    const char *key; /* NULL: the table ends */
    tool_field_kind kind;
    size_t offset;    /* in the struct that is filled */
    double low, high; /* of numbers; a text's bytes at most */
    bool needed;
    const char *unit;    /* of numbers, or NULL */
    const char *allowed; /* of TOOL_FIELD_OTHER */
    const char *help;    /* what stands in the struct where the file has none is part of it */
    gf_status (*load)(const struct tool_reader *reader, const config_setting_t *node,
                      void *struct_out);
};
#define TOOL_FIELD(struct_name, member) \
    .key = #member, .offset = offsetof(struct struct_name, member)

/* Refuses what stands at this node. */
__attribute__((format(printf, 3, 4))) gf_status tool_reader_refuse(const struct tool_reader *reader,
                                                                   const config_setting_t *node,
                                                                   const char *format, ...);
/* A group's members into *struct_out; seen_out[fields] says which were there. Unknown keys and
 * wrong values are refused, missing ones with tool_fields_missing(). */
gf_status tool_fields_load(const struct tool_reader *reader, const config_setting_t *group,
                           const struct tool_field *fields, bool *seen_out, void *struct_out);
gf_status tool_fields_missing(const struct tool_reader *reader, const config_setting_t *group,
                              const struct tool_field *fields, const bool *seen);
#define TOOL_FIELDS_MAX 40

/* `key = value;  # unit: meaning`, a line a field but those of TOOL_FIELD_OTHER. */
void tool_fields_print(const struct tool_field *fields, const void *of, FILE *out);
/* Rows of a Markdown table as gf_config_print_table() has them. */
#define TOOL_FIELDS_TABLE_HEAD \
    "| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n"
void tool_fields_table(const struct tool_field *fields, const char *prefix, FILE *out);

#endif
