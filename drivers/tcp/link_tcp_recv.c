/* The receiving half of the socket link. One system call reads the payload under way to its
 * destination, and the header that follows it into in[] (read_parts()). Small payloads are read
 * together with their header and copied from there, because a system call takes as long as a copy
 * of 20 KiB. */
#include "drivers/tcp/link_tcp_state.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "drivers/checksum.h"

#define LARGE_BYTES (16u << 10) /* after so much payload only a header is read ahead */
#define AHEAD_BYTES 64u
#define AWAITED_BYTES 256u

/* ---- receives ---- */

void gf_tcp_recv_notice(struct gf_tcp_peer *peer, struct gf_req *req)
{
    if (req->phase != TCP_RECV_REVOKED) {
        if (req->number != 0) return;
        if (++peer->number == 0) peer->number = 1;
        req->number = peer->number;
    }
    GF_ASSERT(!req->notice_due);
    req->notice_due = true;
    req->notice_next = NULL;
    if (peer->notices_last != NULL)
        peer->notices_last->notice_next = req;
    else
        peer->notices = req;
    peer->notices_last = req;
    gf_tcp_stream_list(&peer->streams[0]);
}

static void notice_drop(struct gf_tcp_peer *peer, struct gf_req *req)
{
    struct gf_req **at = &peer->notices;
    struct gf_req *before = NULL;
    if (!req->notice_due) return;
    while (*at != req) {
        before = *at;
        at = &before->notice_next;
    }
    *at = req->notice_next;
    if (peer->notices_last == req) peer->notices_last = before;
    req->notice_due = false;
}

/* Ends a receive that has not met its message. If READY has left, UNREADY must follow: the peer
 * would send the next message with this tag under the number of a receive that is gone. */
static void recv_revoke(struct gf_tcp_peer *peer, struct gf_req *req, gf_status answer)
{
    bool notified = (req->number != 0) && !req->notice_due;
    notice_drop(peer, req);
    gf_tcp_list_remove(&peer->receives, req);
    if (!notified || peer->ended) {
        gf_tcp_req_end(req, answer);
        return;
    }
    req->phase = TCP_RECV_REVOKED;
    req->later = answer;
    gf_tcp_recv_notice(peer, req);
    (void)gf_tcp_stream_write(&peer->streams[0]); /* most often UNREADY leaves here */
}

void gf_tcp_recv_begin(struct gf_tcp_peer *peer, struct gf_req *req)
{
    uint32_t index = gf_tcp_unexpected_find(peer, req->tag);
    if (index == TCP_NONE) {
        req->phase = TCP_RECV_POSTED;
        gf_tcp_list_add(&peer->receives, req);
        if (req->size > gf_tcp_whole_bytes_in(peer)) gf_tcp_recv_notice(peer, req);
    } else if (peer->unexpected[index].here) {
        gf_tcp_unexpected_deliver(peer, index, req);
    } else {
        req->phase = TCP_RECV_BOUND;
        peer->unexpected[index].req = req;
    }
}

void gf_tcp_recv_cancel(struct gf_tcp_peer *peer, struct gf_req *req)
{
    if (req->phase == TCP_RECV_POSTED) recv_revoke(peer, req, GF_ERR_ABORTED);
}

/* ---- a frame begins ---- */

/* The oldest receive whose message has not begun. MORE on another stream may have come before. */
static struct gf_req *recv_find(const struct gf_tcp_peer *peer, uint64_t tag)
{
    struct gf_req *req = peer->receives.first;
    while ((req != NULL) && ((req->tag != tag) || req->began)) req = req->next;
    return req;
}

static struct gf_req *recv_numbered(const struct gf_tcp_peer *peer, uint64_t tag, uint32_t number)
{
    struct gf_req *req = peer->receives.first;
    while ((req != NULL) && ((req->number != number) || (req->tag != tag))) req = req->next;
    return req;
}

static void hello_take(struct gf_tcp_stream *stream)
{
    struct gf_tcp_peer *peer = stream->peer;
    const struct gf_tcp_head *head = &stream->head;
    const struct gf_link_setup *setup = &peer->link->setup;
    if (peer->greeted) {
        gf_tcp_violated(stream, "a second HELLO came");
    } else if ((head->tag != TCP_LINK_VERSION) || (head->number != peer->id)) {
        gf_tcp_violated(
            stream, "it says that it is rank %u, version %llu; expected are rank %u and version %u",
            head->number, (unsigned long long)head->tag, peer->id, TCP_LINK_VERSION);
    } else if ((head->offset != setup->requests_max) ||
               ((head->returned != 0) != setup->checksum)) {
        gf_tcp_violated(stream, "it has %u requests and link.checksum = %s, this rank %u and %s",
                        head->offset, (head->returned != 0) ? "true" : "false", setup->requests_max,
                        setup->checksum ? "true" : "false");
    } else {
        peer->greeted = true;
        peer->credit_blocks = head->size;
        gf_tcp_stream_list(stream);
    }
}

/* The payload of this frame goes to the memory of a posted receive. */
static void payload_to(struct gf_tcp_stream *stream, struct gf_req *req)
{
    stream->target = TCP_TO_REQUEST;
    stream->receives = req;
    req->phase = TCP_RECV_BEGUN;
    req->given += stream->head.bytes;
}

/* A large message never arrives whole, because its receive may have sent READY, which would be left
 * over at the sender. */
static bool begin_is_valid(const struct gf_tcp_head *head, uint32_t blocks_left,
                           uint32_t whole_bytes)
{
    if (head->offset != 0) return false;
    if (head->kind == TCP_FRAME_WANT) return head->bytes == 0;
    if ((head->bytes == 0) && (head->size > 0)) return false;
    if (gf_tcp_blocks(head->bytes) > blocks_left) return false;
    return (head->bytes < head->size) ||
           ((head->bytes == head->size) && (head->size <= whole_bytes));
}

static void begin_take(struct gf_tcp_stream *stream)
{
    struct gf_tcp_peer *peer = stream->peer;
    const struct gf_tcp_head *head = &stream->head;
    bool wants = (head->kind == TCP_FRAME_WANT);
    uint32_t blocks = wants ? 0 : gf_tcp_blocks(head->bytes);
    uint32_t blocks_left = peer->link->block_count - (peer->used - peer->given);
    struct gf_req *req = recv_find(peer, head->tag);
    if (!begin_is_valid(head, blocks_left, gf_tcp_whole_bytes_in(peer))) {
        gf_tcp_violated(stream,
                        "a message of %u bytes begins with %u; %u blocks of credit are left",
                        head->size, head->bytes, blocks_left);
        return;
    }
    peer->used += blocks;
    if (req == NULL) {
        stream->unexpected = gf_tcp_unexpected_add(peer, head);
        if (stream->unexpected == TCP_NONE) {
            gf_tcp_violated(stream, "more messages were announced than there are requests");
            return;
        }
        if (!wants) stream->target = TCP_TO_UNEXPECTED;
        stream->block = peer->unexpected[stream->unexpected].block;
        stream->block_at = 0;
        return;
    }
    gf_tcp_credit_give(peer, blocks); /* its bytes take no block */
    req->began = true;
    if ((head->size != req->size) && (req->phase == TCP_RECV_POSTED)) {
        gf_tcp_mismatch(req, head->size);
        recv_revoke(peer, req, GF_ERR_MISMATCH);
        return;
    }
    if ((head->size != req->size) || (head->bytes > req->size - req->given)) {
        gf_tcp_violated(stream,
                        "a message of %u bytes begins with %u, of which %u have come already",
                        head->size, head->bytes, req->given);
        return;
    }
    if (!wants) payload_to(stream, req);
    if (wants || (head->bytes < head->size)) gf_tcp_recv_notice(peer, req);
}

/* A receive that was cancelled, or was of another size, leaves a message without a receive, which
 * is dropped. */
static void more_take(struct gf_tcp_stream *stream)
{
    struct gf_tcp_peer *peer = stream->peer;
    const struct gf_tcp_head *head = &stream->head;
    struct gf_req *req = (head->number != 0) ? recv_numbered(peer, head->tag, head->number) : NULL;
    if (req == NULL) {
        uint32_t index = gf_tcp_unexpected_find(peer, head->tag);
        if ((index != TCP_NONE) && (peer->unexpected[index].bytes < peer->unexpected[index].size))
            gf_tcp_unexpected_drop(peer, index);
        return;
    }
    if ((head->size != req->size) && (req->phase == TCP_RECV_POSTED)) {
        gf_tcp_mismatch(req, head->size);
        notice_drop(peer, req);
        gf_tcp_list_remove(&peer->receives, req);
        gf_tcp_req_end(req, GF_ERR_MISMATCH);
        return;
    }
    if ((head->size != req->size) || (head->offset > req->size) ||
        (head->bytes > req->size - head->offset) || (head->bytes > req->size - req->given) ||
        ((head->bytes == 0) && (req->size > 0)) || req->notice_due) {
        gf_tcp_violated(stream, "bytes %u to %u of a message of %u, of which %u have come already",
                        head->offset, head->offset + head->bytes, req->size, req->given);
        return;
    }
    payload_to(stream, req);
}

/* ---- a frame ends ---- */

static void frame_end(struct gf_tcp_stream *stream)
{
    struct gf_tcp_peer *peer = stream->peer;
    struct gf_req *req = stream->receives;
    const struct gf_tcp_head *head = &stream->head;
    gf_tcp_target target = stream->target;
    stream->in_payload = false;
    stream->target = TCP_TO_NOBODY;
    stream->receives = NULL;
    if (stream->checksum != head->checksum) {
        gf_tcp_violated(stream, "%u bytes of a message were damaged on their way (tag %#llx)",
                        head->bytes, (unsigned long long)head->tag);
        return;
    }
    if (target == TCP_TO_REQUEST) {
        req->done += head->bytes;
        if (req->done < req->size) return;
        notice_drop(peer, req);
        gf_tcp_list_remove(&peer->receives, req);
        gf_tcp_req_end(req, GF_OK);
    } else if (target == TCP_TO_UNEXPECTED) {
        peer->unexpected[stream->unexpected].here = true;
        req = peer->unexpected[stream->unexpected].req;
        if (req != NULL) gf_tcp_unexpected_deliver(peer, stream->unexpected, req);
    }
}

static void frame_begin(struct gf_tcp_stream *stream)
{
    struct gf_tcp_peer *peer = stream->peer;
    struct gf_tcp_head *head = &stream->head;
    bool carries = (head->kind == TCP_FRAME_BEGIN) || (head->kind == TCP_FRAME_MORE);
    bool hello = (head->kind == TCP_FRAME_HELLO);
    stream->in_payload = true;
    stream->left = head->bytes;
    stream->checksum = 0;
    stream->target = TCP_TO_NOBODY;
    if ((head->bytes > (carries ? TCP_FRAME_BYTES_MAX : 0)) || (head->tag >> GF_TAG_BITS != 0) ||
        ((stream->index != 0) && (head->kind != TCP_FRAME_MORE)) ||
        (!hello && (stream->index == 0) && !peer->greeted)) {
        gf_tcp_violated(stream, "a frame of kind %u came with %u bytes, which none may have here",
                        head->kind, head->bytes);
        return;
    }
    if (!hello && !gf_tcp_returned_heard(peer, head->returned)) {
        gf_tcp_violated(stream, "more credit came back than was taken");
        return;
    }
    switch (head->kind) {
    case TCP_FRAME_HELLO: hello_take(stream); break;
    case TCP_FRAME_BEGIN:
    case TCP_FRAME_WANT: begin_take(stream); break;
    case TCP_FRAME_READY:
        if ((head->number == 0) || !gf_tcp_ready_heard(peer, head->tag, head->number))
            gf_tcp_violated(stream, "more receives were told than there are requests");
        break;
    case TCP_FRAME_UNREADY: gf_tcp_unready_heard(peer, head->tag, head->number); break;
    case TCP_FRAME_MORE: more_take(stream); break;
    case TCP_FRAME_NOTE: break;
    }
}

/* ---- bytes ---- */

/* Where the next bytes of the payload under way belong, as at most parts_max ranges of memory;
 * *bytes_out is how many bytes these hold. */
static int payload_parts(const struct gf_tcp_stream *stream, struct iovec *parts, int parts_max,
                         uint32_t *bytes_out)
{
    const struct gf_tcp_peer *peer = stream->peer;
    uint32_t block = stream->block;
    uint32_t at = stream->block_at;
    uint32_t left = stream->left;
    int count = 0;
    *bytes_out = 0;
    if (left == 0) return 0;
    if (stream->target != TCP_TO_UNEXPECTED) {
        bool scratch = (stream->target == TCP_TO_NOBODY);
        if (scratch && (left > TCP_SCRATCH_BYTES)) left = TCP_SCRATCH_BYTES;
        parts[0].iov_base = scratch ? peer->link->scratch
                                    : stream->receives->data + stream->head.offset +
                                          (stream->head.bytes - stream->left);
        parts[0].iov_len = left;
        *bytes_out = left;
        return 1;
    }
    while ((left > 0) && (count < parts_max)) {
        unsigned char *base = peer->blocks + (size_t)block * TCP_BLOCK_BYTES + at;
        uint32_t bytes = TCP_BLOCK_BYTES - at;
        uint32_t run = block;
        while ((bytes < left) &&
               (peer->chain[run] == run + 1)) { /* adjacent blocks are one range */
            run++;
            bytes += TCP_BLOCK_BYTES;
        }
        if (bytes > left) bytes = left;
        parts[count++] = (struct iovec){.iov_base = base, .iov_len = bytes};
        *bytes_out += bytes;
        left -= bytes;
        block = peer->chain[run];
        at = 0;
    }
    return count;
}

/* The next bytes of the payload are where they belong, at `at`. */
static void payload_advance(struct gf_tcp_stream *stream, const void *at, uint32_t bytes)
{
    const struct gf_tcp_peer *peer = stream->peer;
    if (peer->link->setup.checksum) stream->checksum = gf_crc32c(stream->checksum, at, bytes);
    stream->left -= bytes;
    if (stream->target != TCP_TO_UNEXPECTED) return;
    stream->block_at += bytes;
    while ((stream->block_at >= TCP_BLOCK_BYTES) && (stream->left > 0)) {
        stream->block_at -= TCP_BLOCK_BYTES;
        stream->block = peer->chain[stream->block];
    }
}

/* A header at `from` begins a frame, or ends the stream. */
static void head_take(struct gf_tcp_stream *stream, const unsigned char *from)
{
    if (gf_tcp_head_get(from, &stream->head))
        frame_begin(stream);
    else
        gf_tcp_violated(stream, "a header was damaged on its way, or something else writes there");
}

/* As much of the payload under way as lies at `from`; returns how many bytes that is. */
static uint32_t payload_take(struct gf_tcp_stream *stream, const unsigned char *from, uint32_t have)
{
    uint32_t taken = 0;
    while ((taken < have) && (stream->left > 0)) {
        struct iovec part;
        uint32_t bytes;
        (void)payload_parts(stream, &part, 1, &bytes);
        if (bytes > have - taken) bytes = have - taken;
        if (part.iov_base != from + taken) memmove(part.iov_base, from + taken, bytes);
        payload_advance(stream, part.iov_base, bytes);
        taken += bytes;
    }
    return taken;
}

/* Takes the next bytes of the stream, which lie at `from`: headers are read, and payload is copied
 * to where it belongs unless it lies there. Returns how many bytes at the end are less than a
 * header, or 0 where the stream has ended.
 *
 * `from` may be the memory of a posted receive. read_parts() expected its message W next, and where
 * another frame X arrived in its place, all that follows the header of X lies there. X goes where
 * it belongs first, and W is then moved down over what has been taken already:
 *
 *     stream            | head X |   X   | head W |        W        | ..
 *     was read to       | in[]   | the receive's memory             | in[]
 *     W belongs to               | W                |
 *
 * So a payload never lies before its destination in the same receive, and memmove() writes nothing
 * that is still to be taken. */
static uint32_t take(struct gf_tcp_stream *stream, const unsigned char *from, uint32_t have)
{
    while (stream->fd >= 0) {
        if (!stream->in_payload) {
            if (have < TCP_HEAD_BYTES) break;
            head_take(stream, from);
            from += TCP_HEAD_BYTES;
            have -= TCP_HEAD_BYTES;
            if (stream->fd < 0) break;
        }
        const uint32_t bytes = payload_take(stream, from, have);
        from += bytes;
        have -= bytes;
        if (stream->left > 0) break;
        frame_end(stream);
    }
    return (stream->fd >= 0) ? have : 0;
}

/* ---- reading ---- */

/* The receive whose message is expected next, whole after one header; NULL: none is. Another
 * frame may arrive in its place. */
static const struct gf_req *whole_expected(const struct gf_tcp_stream *stream)
{
    const struct gf_req *req = stream->peer->receives.first;
    if (stream->in_payload || (stream->held > 0) || (stream->index != 0) || (req == NULL))
        return NULL;
    bool whole = (req->size >= LARGE_BYTES) && (req->size <= gf_tcp_whole_bytes_in(stream->peer));
    return (whole && (req->phase == TCP_RECV_POSTED) && !req->began) ? req : NULL;
}

/* How much is read into in[] after `payload` bytes: whole small messages, but little more than the
 * header of a large message that is awaited, because what is read there is copied once more. */
static uint32_t ahead_bytes(const struct gf_tcp_stream *stream, uint32_t payload)
{
    const struct gf_req *awaited = stream->peer->receives.first;
    if (payload >= LARGE_BYTES) return AHEAD_BYTES;
    if ((awaited != NULL) && (awaited->size >= LARGE_BYTES)) return AWAITED_BYTES;
    return TCP_IN_BYTES;
}

/* Where the next bytes of the stream are read to, as ranges of memory in the order of the stream:
 *
 *     a payload is under way             its destination, in[]
 *     a whole large message is expected  in[] for its header, its receive's memory, in[]
 *     otherwise                          in[]
 *
 * The last range begins at in + TCP_HEAD_BYTES. *bytes_out is how many bytes all ranges hold. */
static int read_parts(struct gf_tcp_stream *stream, struct iovec *parts, uint32_t *bytes_out)
{
    unsigned char *in = stream->in;
    const struct gf_req *whole = whole_expected(stream);
    uint32_t payload;
    uint32_t ahead;
    int count;
    if (whole != NULL) {
        parts[0] = (struct iovec){.iov_base = in, .iov_len = TCP_HEAD_BYTES};
        parts[1] = (struct iovec){.iov_base = whole->data, .iov_len = whole->size};
        payload = TCP_HEAD_BYTES + whole->size;
        count = 2;
    } else {
        count = payload_parts(stream, parts, TCP_PARTS_MAX, &payload);
        if (payload < stream->left) { /* more of it follows */
            *bytes_out = payload;
            return count;
        }
    }
    ahead = ahead_bytes(stream, payload);
    parts[count] = (struct iovec){.iov_base = in + TCP_HEAD_BYTES, .iov_len = ahead};
    *bytes_out = payload + ahead;
    return count + 1;
}

/* Takes `got` bytes that were read into these ranges. Less than a header at the end of a range is
 * kept in front of the last one, so that the header is whole there. */
static void parts_take(struct gf_tcp_stream *stream, const struct iovec *parts, uint32_t got)
{
    for (; (got > 0) && (stream->fd >= 0); parts++) {
        const unsigned char *from = parts->iov_base;
        uint32_t bytes = (got < parts->iov_len) ? got : (uint32_t)parts->iov_len;
        uint32_t have = stream->held + bytes;
        GF_ASSERT((stream->held == 0) || (from == stream->in + TCP_HEAD_BYTES));
        stream->held = take(stream, from - stream->held, have);
        memmove(stream->in + TCP_HEAD_BYTES - stream->held, from + bytes - stream->held,
                stream->held);
        got -= bytes;
    }
}

/* One call of the kernel: how many bytes it read. */
static uint32_t read_some(struct gf_tcp_stream *stream)
{
    struct iovec parts[TCP_PARTS_MAX + 1];
    uint32_t asked;
    int count = read_parts(stream, parts, &asked);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    ssize_t got;
    if (count == 1)
        got = recv(stream->fd, parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT);
    else
        got = recvmsg(stream->fd, &message, MSG_DONTWAIT);
    if ((got < 0) && (errno == EINTR)) return 0;
    if (got <= 0) {
        int error = (got < 0) ? errno : 0;
        stream->readable = false;
        if ((error != EAGAIN) && (error != EWOULDBLOCK)) gf_tcp_stream_ended(stream, error);
        return 0;
    }
    /* The kernel had no more, and epoll will report more; of an end that it has reported it reports
     * nothing again. */
    if ((uint32_t)got < asked) stream->readable = stream->hung_up;
    parts_take(stream, parts, (uint32_t)got);
    return (uint32_t)got;
}

bool gf_tcp_stream_read(struct gf_tcp_stream *stream)
{
    uint32_t bytes = 0;
    while ((stream->fd >= 0) && (bytes < TCP_PROGRESS_BYTES)) {
        uint32_t some = read_some(stream);
        bytes += some;
        if ((some == 0) || !stream->readable) break;
    }
    if ((stream->fd >= 0) && stream->readable) gf_tcp_stream_list(stream);
    return bytes > 0;
}
