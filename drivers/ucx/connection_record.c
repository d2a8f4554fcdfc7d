/* Records, to the kernel and back. */
#include "drivers/ucx/connection_record.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

void gf_record_begin(struct gf_record *record)
{
    record->send_count = record->recv_count = 0;
    record->out_plain = record->out_bytes = record->out_sent = 0;
    record->in_bytes = record->plain_at = record->plain_end = 0;
}

/* ---- out ---- */

/* Of the parts from byte `from` on as many as a record has room for, encrypted in record->out. */
static void out_make(struct gf_record *record, const struct iovec *parts, size_t count, size_t from)
{
    unsigned char *payload = record->out + GF_RECORD_HEAD_BYTES;
    uint32_t bytes = 0;
    for (size_t i = 0; (i < count) && (bytes < GF_RECORD_BYTES); i++) {
        size_t piece = parts[i].iov_len;
        size_t room = GF_RECORD_BYTES - bytes;
        if (from >= piece) {
            from -= piece;
            continue;
        }
        piece -= from;
        if (piece > room) piece = room;
        memcpy(payload + bytes, (const unsigned char *)parts[i].iov_base + from, piece);
        bytes += (uint32_t)piece;
        from = 0;
    }
    memcpy(record->out, &bytes, GF_RECORD_HEAD_BYTES);
    gf_auth_encrypt(record->send_key, record->send_count++, record->out, GF_RECORD_HEAD_BYTES,
                    payload, bytes);
    record->out_plain = bytes;
    record->out_bytes = GF_RECORD_HEAD_BYTES + bytes + GF_AUTH_TAG_BYTES;
    record->out_sent = 0;
}

ssize_t gf_record_send(struct gf_record *record, int fd, const struct iovec *parts, size_t count)
{
    size_t total = 0;
    size_t taken = 0;
    for (size_t i = 0; i < count; i++) total += parts[i].iov_len;
    while (taken < total) {
        if (record->out_plain == 0) out_make(record, parts, count, taken);
        size_t left = record->out_bytes - record->out_sent;
        ssize_t sent = __real_send(fd, record->out + record->out_sent, left, MSG_NOSIGNAL);
        /* What was taken is UCX's no more, whatever became of the rest: it must hear so. */
        if ((sent < 0) && (taken > 0)) break;
        if (sent < 0) return -1;
        record->out_sent += (uint32_t)sent;
        if (record->out_sent < record->out_bytes) continue;
        taken += record->out_plain;
        record->out_plain = 0;
    }
    return (ssize_t)taken;
}

/* ---- in ---- */

/* A byte of each record stays with the kernel until all of it was handed out: who waits for the
 * descriptor to be readable must not be left waiting for bytes that lie here. */
static ssize_t in_read(struct gf_record *record, int fd, uint32_t until)
{
    while (record->in_bytes < until) {
        ssize_t got =
            __real_recv(fd, record->in + record->in_bytes, until - record->in_bytes, MSG_DONTWAIT);
        if (got <= 0) return got;
        record->in_bytes += (uint32_t)got;
    }
    return 1;
}

/* 1: a record lies decrypted in `in`. */
static ssize_t in_open(struct gf_record *record, int fd)
{
    uint32_t bytes = 0;
    ssize_t got = in_read(record, fd, GF_RECORD_HEAD_BYTES);
    if (got <= 0) return got;
    memcpy(&bytes, record->in, GF_RECORD_HEAD_BYTES);
    if ((bytes == 0) || (bytes > GF_RECORD_BYTES)) {
        errno = EBADMSG;
        return -1;
    }
    uint32_t last = GF_RECORD_HEAD_BYTES + bytes + GF_AUTH_TAG_BYTES - 1;
    if ((got = in_read(record, fd, last)) <= 0) return got;
    if ((got = __real_recv(fd, record->in + last, 1, MSG_PEEK | MSG_DONTWAIT)) <= 0) return got;
    if (!gf_auth_decrypt(record->recv_key, record->recv_count++, record->in, GF_RECORD_HEAD_BYTES,
                         record->in + GF_RECORD_HEAD_BYTES, bytes)) {
        errno = EBADMSG;
        return -1;
    }
    record->plain_at = GF_RECORD_HEAD_BYTES;
    record->plain_end = GF_RECORD_HEAD_BYTES + bytes;
    return 1;
}

ssize_t gf_record_recv(struct gf_record *record, int fd, void *data, size_t bytes)
{
    size_t given = 0;
    unsigned char last;
    while (given < bytes) {
        ssize_t got = (record->plain_at < record->plain_end) ? 1 : in_open(record, fd);
        if (got <= 0)
            return (given > 0) && ((got == 0) || (errno != EBADMSG)) ? (ssize_t)given : got;
        size_t piece = record->plain_end - record->plain_at;
        if (piece > bytes - given) piece = bytes - given;
        memcpy((unsigned char *)data + given, record->in + record->plain_at, piece);
        given += piece;
        record->plain_at += (uint32_t)piece;
        if (record->plain_at < record->plain_end) break;
        (void)__real_recv(fd, &last, 1, MSG_DONTWAIT);
        record->in_bytes = record->plain_at = record->plain_end = 0;
    }
    return (ssize_t)given;
}
