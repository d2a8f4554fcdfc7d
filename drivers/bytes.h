/* Bytes on the wire, little-endian whatever the machine is. Writing past the end is a bug of the caller; reading past
 * it is bad input: it gives zeroes and sets `bad`, which is looked at once, at the end. */
#ifndef GF_BYTES_H
#define GF_BYTES_H

#include "drivers/fault.h"

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

static inline void gf_put_bytes(struct gf_put *put, const void *data, size_t bytes)
{
    GF_ASSERT(bytes <= put->left);
    if (bytes > 0) memcpy(put->at, data, bytes);
    put->at += bytes;
    put->left -= bytes;
}

static inline void gf_put_u64_bytes(struct gf_put *put, uint64_t value, size_t bytes)
{
    unsigned char out[8];
    for (size_t i = 0; i < bytes; i++) out[i] = (unsigned char)(value >> (8 * i));
    gf_put_bytes(put, out, bytes);
}
static inline void gf_put_u16(struct gf_put *put, uint32_t value) { gf_put_u64_bytes(put, value, 2); }
static inline void gf_put_u32(struct gf_put *put, uint32_t value) { gf_put_u64_bytes(put, value, 4); }
static inline void gf_put_u64(struct gf_put *put, uint64_t value) { gf_put_u64_bytes(put, value, 8); }

/* text as a field of `bytes` bytes, cut or filled with zeroes; its last byte is always zero. */
static inline void gf_put_text(struct gf_put *put, const char *text, size_t bytes)
{
    size_t length = strnlen(text, bytes - 1);
    GF_ASSERT(bytes <= put->left);
    memset(put->at, 0, bytes);
    memcpy(put->at, text, length);
    put->at += bytes;
    put->left -= bytes;
}

/* `bytes` bytes in place, or NULL. */
static inline const unsigned char *gf_get_bytes(struct gf_get *get, size_t bytes)
{
    const unsigned char *at = get->at;
    if (get->bad || (bytes > get->left)) {
        get->bad = true;
        return NULL;
    }
    get->at += bytes;
    get->left -= bytes;
    return at;
}

static inline uint64_t gf_get_u64_bytes(struct gf_get *get, size_t bytes)
{
    const unsigned char *in = gf_get_bytes(get, bytes);
    uint64_t value = 0;
    for (size_t i = 0; (in != NULL) && (i < bytes); i++) value |= (uint64_t)in[i] << (8 * i);
    return value;
}
static inline uint32_t gf_get_u16(struct gf_get *get) { return (uint32_t)gf_get_u64_bytes(get, 2); }
static inline uint32_t gf_get_u32(struct gf_get *get) { return (uint32_t)gf_get_u64_bytes(get, 4); }
static inline uint64_t gf_get_u64(struct gf_get *get) { return gf_get_u64_bytes(get, 8); }

/* A field of `bytes` bytes into text_out[bytes]: terminated, and what a terminal might act on is a '?'. */
static inline void gf_get_text(struct gf_get *get, char *text_out, size_t bytes)
{
    const unsigned char *in = gf_get_bytes(get, bytes);
    size_t i = 0;
    for (; (in != NULL) && (i + 1 < bytes) && (in[i] != 0); i++) {
        text_out[i] = ((in[i] < 0x20) || (in[i] >= 0x7f)) ? '?' : (char)in[i];
    }
    text_out[i] = 0;
}

/* One walk both ways, so that what is written and what is read cannot disagree; one of the two is NULL. */
struct gf_walk {
    struct gf_put *put;
    struct gf_get *get;
};

static inline void gf_walk_u32(struct gf_walk *walk, uint32_t *value)
{
    if (walk->put != NULL) gf_put_u32(walk->put, *value);
    else *value = gf_get_u32(walk->get);
}
static inline void gf_walk_u64(struct gf_walk *walk, uint64_t *value)
{
    if (walk->put != NULL) gf_put_u64(walk->put, *value);
    else *value = gf_get_u64(walk->get);
}
static inline void gf_walk_bool(struct gf_walk *walk, bool *value)
{
    uint32_t word = *value ? 1 : 0;
    gf_walk_u32(walk, &word);
    *value = (word != 0);
}
static inline void gf_walk_u16(struct gf_walk *walk, uint16_t *value)
{
    if (walk->put != NULL) gf_put_u16(walk->put, *value);
    else *value = (uint16_t)gf_get_u16(walk->get);
}
/* What cannot be read is zeroed. */
static inline void gf_walk_bytes(struct gf_walk *walk, void *data, size_t bytes)
{
    const unsigned char *in = (walk->get != NULL) ? gf_get_bytes(walk->get, bytes) : NULL;
    if (walk->put != NULL) gf_put_bytes(walk->put, data, bytes);
    else if (in != NULL) memcpy(data, in, bytes);
    else memset(data, 0, bytes);
}
static inline void gf_walk_text(struct gf_walk *walk, char *text, size_t bytes)
{
    if (walk->put != NULL) gf_put_text(walk->put, text, bytes);
    else gf_get_text(walk->get, text, bytes);
}

#endif
