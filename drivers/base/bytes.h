/* Bytes on the wire, little-endian on every machine. Writing past the end is a bug of the caller.
 * Reading past the end is bad input: it gives zeroes and sets `bad`, which the caller looks at
 * once, at the end. */
#ifndef GF_BYTES_H
#define GF_BYTES_H

#include "drivers/base/fault.h"

#include <stddef.h>
#include <string.h>

struct gf_put {
    unsigned char *at;
    size_t left;
};

struct gf_get {
    const unsigned char *at;
    size_t left;
    bool bad;
};

void gf_put_bytes(struct gf_put *put, const void *data, size_t bytes);
void gf_put_u64_bytes(struct gf_put *put, uint64_t value, size_t bytes);
static inline void gf_put_u32(struct gf_put *put, uint32_t value)
{
    gf_put_u64_bytes(put, value, 4);
}
static inline void gf_put_u64(struct gf_put *put, uint64_t value)
{
    gf_put_u64_bytes(put, value, 8);
}

/* text as a field of `bytes` bytes, cut or filled with zeroes; its last byte is always zero. */
void gf_put_text(struct gf_put *put, const char *text, size_t bytes);

/* `bytes` bytes in place, or NULL. */
const unsigned char *gf_get_bytes(struct gf_get *get, size_t bytes);
uint64_t gf_get_u64_bytes(struct gf_get *get, size_t bytes);
static inline uint32_t gf_get_u32(struct gf_get *get)
{
    return (uint32_t)gf_get_u64_bytes(get, 4);
}

/* Bytes of the UTF-8 letter that begins at text, of which `left` bytes are there; 0: none does, or
 * a control character. Of those that have two bytes, too: a terminal acts on U+009B as on ESC [. */
size_t gf_utf8_bytes(const void *text, size_t left);
/* A field of `bytes` bytes into text_out[bytes]: terminated, letters as they are; what a terminal
 * might act on, and what is no UTF-8, is a '?'. */
void gf_get_text(struct gf_get *get, char *text_out, size_t bytes);

/* One walk both ways, so that what is written and what is read cannot disagree; one of the two is
 * NULL. */
struct gf_walk {
    struct gf_put *put;
    struct gf_get *get;
};

void gf_walk_u32(struct gf_walk *walk, uint32_t *value);
void gf_walk_u64(struct gf_walk *walk, uint64_t *value);
void gf_walk_bool(struct gf_walk *walk, bool *value);
void gf_walk_u16(struct gf_walk *walk, uint16_t *value);
/* A record, whose fields travel in this order: integers of 2, 4 or 8 bytes, all else is a text. */
struct gf_field {
    uint16_t at, bytes;
};
#define GF_FIELD(type, member)                                               \
    {                                                                        \
        offsetof(struct type, member), sizeof(((struct type *)NULL)->member) \
    }
void gf_walk_fields(struct gf_walk *walk, void *record, const struct gf_field *fields,
                    size_t count);
/* What cannot be read is zeroed. */
void gf_walk_bytes(struct gf_walk *walk, void *data, size_t bytes);
void gf_walk_text(struct gf_walk *walk, char *text, size_t bytes);

#endif
