/* See bytes.h. */
#include "drivers/base/bytes.h"

void gf_put_bytes(struct gf_put *put, const void *data, size_t bytes)
{
    GF_ASSERT(bytes <= put->left);
    if (bytes > 0) memcpy(put->at, data, bytes);
    put->at += bytes;
    put->left -= bytes;
}

void gf_put_u64_bytes(struct gf_put *put, uint64_t value, size_t bytes)
{
    unsigned char out[8];
    for (size_t i = 0; i < bytes; i++) out[i] = (unsigned char)(value >> (8 * i));
    gf_put_bytes(put, out, bytes);
}

void gf_put_text(struct gf_put *put, const char *text, size_t bytes)
{
    size_t length = strnlen(text, bytes - 1);
    GF_ASSERT(bytes <= put->left);
    memset(put->at, 0, bytes);
    memcpy(put->at, text, length);
    put->at += bytes;
    put->left -= bytes;
}

const unsigned char *gf_get_bytes(struct gf_get *get, size_t bytes)
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

uint64_t gf_get_u64_bytes(struct gf_get *get, size_t bytes)
{
    const unsigned char *in = gf_get_bytes(get, bytes);
    uint64_t value = 0;
    for (size_t i = 0; (in != NULL) && (i < bytes); i++) value |= (uint64_t)in[i] << (8 * i);
    return value;
}

size_t gf_utf8_bytes(const void *text, size_t left)
{
    const unsigned char *at = text;
    size_t bytes = 0;
    if (left == 0) return 0;
    if (at[0] < 0x80) return ((at[0] >= 0x20) && (at[0] != 0x7f)) ? 1 : 0;
    if ((at[0] >= 0xc2) && (at[0] < 0xf5)) bytes = (at[0] < 0xe0) ? 2 : (at[0] < 0xf0) ? 3 : 4;
    if ((bytes == 0) || (bytes > left)) return 0;
    for (size_t i = 1; i < bytes; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    switch (at[0]) {
    case 0xc2: return (at[1] < 0xa0) ? 0 : bytes;  /* a control character */
    case 0xe0: return (at[1] < 0xa0) ? 0 : bytes;  /* longer than need be */
    case 0xed: return (at[1] >= 0xa0) ? 0 : bytes; /* half of a pair of UTF-16 */
    case 0xf0: return (at[1] < 0x90) ? 0 : bytes;  /* longer than need be */
    case 0xf4: return (at[1] >= 0x90) ? 0 : bytes; /* past the last letter */
    default: return bytes;
    }
}

void gf_get_text(struct gf_get *get, char *text_out, size_t bytes)
{
    const unsigned char *in = gf_get_bytes(get, bytes);
    size_t i = 0;
    while ((in != NULL) && (i + 1 < bytes) && (in[i] != 0)) {
        size_t letter = gf_utf8_bytes(in + i, bytes - 1 - i);
        if (letter > 0)
            memcpy(text_out + i, in + i, letter);
        else
            text_out[i] = '?';
        i += (letter > 0) ? letter : 1;
    }
    text_out[i] = 0;
}

static uint64_t walked(struct gf_walk *walk, uint64_t value, size_t bytes)
{
    if (walk->put == NULL) return gf_get_u64_bytes(walk->get, bytes);
    gf_put_u64_bytes(walk->put, value, bytes);
    return value;
}

void gf_walk_u16(struct gf_walk *walk, uint16_t *value)
{
    *value = (uint16_t)walked(walk, *value, 2);
}
void gf_walk_u32(struct gf_walk *walk, uint32_t *value)
{
    *value = (uint32_t)walked(walk, *value, 4);
}
void gf_walk_u64(struct gf_walk *walk, uint64_t *value)
{
    *value = walked(walk, *value, 8);
}
void gf_walk_bool(struct gf_walk *walk, bool *value)
{
    *value = walked(walk, *value ? 1 : 0, 4) != 0;
}

void gf_walk_bytes(struct gf_walk *walk, void *data, size_t bytes)
{
    const unsigned char *in = (walk->get != NULL) ? gf_get_bytes(walk->get, bytes) : NULL;
    if (walk->put != NULL)
        gf_put_bytes(walk->put, data, bytes);
    else if (in != NULL)
        memcpy(data, in, bytes);
    else
        memset(data, 0, bytes);
}

void gf_walk_text(struct gf_walk *walk, char *text, size_t bytes)
{
    if (walk->put != NULL)
        gf_put_text(walk->put, text, bytes);
    else
        gf_get_text(walk->get, text, bytes);
}

void gf_walk_fields(struct gf_walk *walk, void *record, const struct gf_field *fields, size_t count)
{
    for (const struct gf_field *field = fields; field < fields + count; field++) {
        void *at = (char *)record + field->at;
        switch (field->bytes) {
        case 2: gf_walk_u16(walk, at); break;
        case 4: gf_walk_u32(walk, at); break;
        case 8: gf_walk_u64(walk, at); break;
        default: gf_walk_text(walk, at, field->bytes);
        }
    }
}
