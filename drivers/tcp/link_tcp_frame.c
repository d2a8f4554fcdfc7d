/* The header of a frame (link_tcp_frame.h), by offset in bytes:
 *
 *      0  checksum of the rest     24  bytes of the payload
 *      4  magic, kind              28  number of the receive
 *      8  tag                      32  blocks given back
 *     16  size of the message      36  checksum of the payload
 *     20  offset in the message    40  zeroes */
#include "drivers/tcp/link_tcp_frame.h"

#include <endian.h>
#include <string.h>

#include "drivers/checksum.h"

#define MAGIC UINT32_C(0x4c474600) /* and the kind in its lowest byte */

static void word_put(unsigned char *to, uint32_t value)
{
    value = htole32(value);
    memcpy(to, &value, sizeof value);
}

static uint32_t word_get(const unsigned char *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return le32toh(value);
}

void gf_tcp_head_put(const struct gf_tcp_head *head, unsigned char *bytes_out)
{
    uint64_t tag = htole64(head->tag);
    word_put(bytes_out + 4, MAGIC | (uint32_t)head->kind);
    memcpy(bytes_out + 8, &tag, sizeof tag);
    word_put(bytes_out + 16, head->size);
    word_put(bytes_out + 20, head->offset);
    word_put(bytes_out + 24, head->bytes);
    word_put(bytes_out + 28, head->number);
    word_put(bytes_out + 32, head->returned);
    word_put(bytes_out + 36, head->checksum);
    memset(bytes_out + 40, 0, TCP_HEAD_BYTES - 40);
    word_put(bytes_out, gf_crc32c(0, bytes_out + 4, TCP_HEAD_BYTES - 4));
}

bool gf_tcp_head_get(const unsigned char *bytes, struct gf_tcp_head *head_out)
{
    uint32_t kind = word_get(bytes + 4) ^ MAGIC;
    uint64_t tag;
    if (word_get(bytes) != gf_crc32c(0, bytes + 4, TCP_HEAD_BYTES - 4)) return false;
    if ((kind < TCP_FRAME_HELLO) || (kind > TCP_FRAME_NOTE)) return false;
    memcpy(&tag, bytes + 8, sizeof tag);
    *head_out = (struct gf_tcp_head){
        .kind = (gf_tcp_frame)kind,
        .tag = le64toh(tag),
        .size = word_get(bytes + 16),
        .offset = word_get(bytes + 20),
        .bytes = word_get(bytes + 24),
        .number = word_get(bytes + 28),
        .returned = word_get(bytes + 32),
        .checksum = word_get(bytes + 36),
    };
    return true;
}
