/* The sending half of the socket link. Stream 0 carries, in this order: control frames,
 * beginnings of messages, and the rest of messages for which the peer is ready. The other streams
 * carry such rests alone. One system call sends a batch: all frames that are due, up to 512 KiB.
 * So a vote waits for no more than the batch under way. */
#include "drivers/tcp/link_tcp_state.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "drivers/checksum.h"

/* ---- a batch of frames ---- */

static uint32_t room(const struct gf_tcp_stream *stream)
{
    return TCP_OUT_BYTES - stream->out_end;
}

/* Is there room for another frame, whose payload stays where it lies? */
static bool batch_is_open(const struct gf_tcp_stream *stream)
{
    return (room(stream) >= TCP_HEAD_BYTES) && (stream->part_count + 2 <= TCP_OUT_PARTS_MAX) &&
           (stream->sent_count < TCP_BATCH_FRAMES_MAX) && (stream->batch_bytes < TCP_BATCH_BYTES);
}

/* Extends the last part if these bytes follow it in memory. */
static void part_add(struct gf_tcp_stream *stream, const unsigned char *base, uint32_t bytes)
{
    struct iovec *last = &stream->parts[stream->part_count];
    stream->batch_bytes += bytes;
    if ((stream->part_count > 0) &&
        ((unsigned char *)last[-1].iov_base + last[-1].iov_len == base)) {
        last[-1].iov_len += bytes;
    } else {
        *last = (struct iovec){.iov_base = (void *)(uintptr_t)base, .iov_len = bytes};
        stream->part_count++;
    }
}

/* Every header carries how much credit was given back. */
static void head_put(struct gf_tcp_stream *stream, struct gf_tcp_head head)
{
    struct gf_tcp_peer *peer = stream->peer;
    unsigned char *at = stream->out + stream->out_end;
    if (head.kind != TCP_FRAME_HELLO) {
        head.returned = peer->given;
        peer->given_sent = peer->given;
    }
    gf_tcp_head_put(&head, at);
    stream->out_end += TCP_HEAD_BYTES;
    part_add(stream, at, TCP_HEAD_BYTES);
}

/* A header and the next `bytes` of the message, which are copied after the header if they are
 * few. */
static void message_put(struct gf_tcp_stream *stream, struct gf_req *req, gf_tcp_frame kind,
                        uint32_t bytes)
{
    const unsigned char *payload = (bytes > 0) ? req->data + req->given : NULL;
    struct gf_tcp_head head = {.kind = kind, .tag = req->tag, .size = req->size, .bytes = bytes};
    if (kind == TCP_FRAME_MORE) {
        head.offset = req->given;
        head.number = req->number;
    }
    if (stream->peer->link->setup.checksum) head.checksum = gf_crc32c(0, payload, bytes);
    head_put(stream, head);
    req->given += bytes;
    if ((bytes > 0) && (bytes <= TCP_COPY_BYTES_MAX) && (bytes <= room(stream))) {
        unsigned char *copy = stream->out + stream->out_end;
        memcpy(copy, payload, bytes);
        stream->out_end += bytes;
        part_add(stream, copy, bytes);
    } else if (bytes > 0) {
        part_add(stream, payload, bytes);
    }
    stream->sent[stream->sent_count] =
        (struct gf_tcp_sent){.req = req, .bytes = bytes, .end = stream->batch_bytes};
    stream->sent_count++;
}

/* ---- what is in it ---- */

/* READY and UNREADY. A cancelled receive ends when its UNREADY is put. */
static void notices_put(struct gf_tcp_stream *stream)
{
    struct gf_tcp_peer *peer = stream->peer;
    while ((peer->notices != NULL) && batch_is_open(stream)) {
        struct gf_req *req = peer->notices;
        bool revoked = (req->phase == TCP_RECV_REVOKED);
        peer->notices = req->notice_next;
        if (peer->notices == NULL) peer->notices_last = NULL;
        req->notice_due = false;
        head_put(stream, (struct gf_tcp_head){.kind = revoked ? TCP_FRAME_UNREADY : TCP_FRAME_READY,
                                              .tag = req->tag,
                                              .number = req->number});
        if (revoked) gf_tcp_req_end(req, req->later);
    }
}

static uint32_t credit_left(const struct gf_tcp_peer *peer)
{
    return peer->credit_blocks - (peer->taken - peer->returned);
}

/* How much of a message leaves before its receive is known to be posted: all or nothing of a small
 * one. Of a large one some first bytes, but never all of them, because its receive sends READY in
 * any case; half of the credit is left to small messages. 0 for a message that is not empty:
 * nothing leaves. */
static uint32_t first_bytes(const struct gf_tcp_peer *peer, uint32_t size)
{
    uint32_t left = credit_left(peer);
    uint32_t half = peer->credit_blocks / 2;
    uint32_t bytes;
    if (size <= gf_tcp_whole_bytes_out(peer)) return (gf_tcp_blocks(size) <= left) ? size : 0;
    if (left <= half) return 0;
    bytes = (left - half) * TCP_BLOCK_BYTES;
    if (bytes > TCP_FIRST_BYTES_MAX) bytes = TCP_FIRST_BYTES_MAX;
    return (bytes < size / 2) ? bytes : size / 2;
}

static void begins_put(struct gf_tcp_stream *stream)
{
    struct gf_tcp_peer *peer = stream->peer;
    while ((peer->queued.first != NULL) && batch_is_open(stream)) {
        struct gf_req *req = peer->queued.first;
        uint32_t bytes = first_bytes(peer, req->size);
        bool wants = (bytes == 0) && ((req->size > 0) || (credit_left(peer) == 0));
        gf_tcp_list_remove(&peer->queued, req);
        req->began = true;
        if (!wants) peer->taken += gf_tcp_blocks(bytes);
        if (wants || (bytes < req->size)) {
            stream->more_bytes += bytes; /* the others catch up */
            req->phase = TCP_SEND_WAITING;
            gf_tcp_list_add(&peer->waiting, req);
        } else {
            req->phase = TCP_SEND_LEAVING;
        }
        if (wants)
            head_put(stream, (struct gf_tcp_head){
                                 .kind = TCP_FRAME_WANT, .tag = req->tag, .size = req->size});
        else
            message_put(stream, req, TCP_FRAME_BEGIN, bytes);
    }
}

/* The first message that may leave on this stream. One that was announced by WANT begins on stream
 * 0, after the WANT: on another stream all of it could arrive before that. */
static struct gf_req *more_find(const struct gf_tcp_stream *stream)
{
    struct gf_req *req = stream->peer->sending.first;
    while ((req != NULL) && (stream->index != 0) && req->began && (req->given == 0))
        req = req->next;
    return req;
}

/* What a stream takes at a time, where a pair has several. The end of a message goes in smaller
 * shares, so that all streams finish it at about the same time. */
static uint32_t share_bytes(const struct gf_tcp_peer *peer, const struct gf_req *req)
{
    uint32_t bytes = (req->size - req->given) / (2 * peer->link->setup.streams);
    if ((bytes > TCP_SHARE_BYTES) || (req->next != NULL)) return TCP_SHARE_BYTES;
    return (bytes < TCP_SHARE_BYTES_MIN) ? TCP_SHARE_BYTES_MIN : bytes;
}

/* The streams of a pair share the bytes: a stream is at most a share ahead of any other that can
 * take bytes. A stream whose socket is full holds up no other. */
static bool is_ahead(const struct gf_tcp_stream *stream, const struct gf_req *req)
{
    const struct gf_tcp_peer *peer = stream->peer;
    const uint32_t share = share_bytes(peer, req);
    if (req->began && (req->given == 0)) return false; /* no other stream may begin it */
    for (uint32_t s = 0; s < peer->link->setup.streams; s++) {
        const struct gf_tcp_stream *other = &peer->streams[s];
        if ((other->fd >= 0) && other->writable &&
            (stream->more_bytes >= other->more_bytes + share))
            return true;
    }
    return false;
}

static void others_list(const struct gf_tcp_stream *stream)
{
    struct gf_tcp_peer *peer = stream->peer;
    for (uint32_t s = 0; (peer->sending.first != NULL) && (s < peer->link->setup.streams); s++)
        if (s != stream->index) gf_tcp_stream_list(&peer->streams[s]);
}

static void more_put(struct gf_tcp_stream *stream)
{
    struct gf_tcp_peer *peer = stream->peer;
    struct gf_req *req = more_find(stream);
    for (; (req != NULL) && batch_is_open(stream) && !is_ahead(stream, req);
         req = more_find(stream)) {
        uint32_t bytes = req->size - req->given;
        const uint32_t bytes_max =
            (peer->link->setup.streams > 1) ? share_bytes(peer, req) : TCP_FRAME_BYTES_MAX;
        if (bytes > bytes_max) bytes = bytes_max;
        stream->more_bytes += bytes;
        if (bytes == req->size - req->given) {
            gf_tcp_list_remove(&peer->sending, req);
            req->phase = TCP_SEND_LEAVING;
        }
        message_put(stream, req, TCP_FRAME_MORE, bytes);
    }
    others_list(stream); /* they may go on with what has begun here */
}

/* Half of the credit is back here, and the peer may wait for it. */
static bool note_is_due(const struct gf_tcp_peer *peer)
{
    uint32_t unanswered = peer->given - peer->given_sent;
    return (unanswered > 0) && (unanswered >= peer->link->block_count / 2);
}

/* HELLO says that all streams stand here. Before that one of them may have to be made again, which
 * a peer that was greeted takes for the end (is_forgotten()). */
static bool hello_is_due(const struct gf_tcp_peer *peer)
{
    return peer->greets && (peer->open_count == peer->link->setup.streams);
}

bool gf_tcp_stream_has_work(const struct gf_tcp_stream *stream)
{
    const struct gf_tcp_peer *peer = stream->peer;
    const struct gf_req *req = more_find(stream);
    if (peer->ended || (stream->fd < 0)) return false;
    if (stream->batch_done < stream->batch_bytes) return true;
    if ((req != NULL) && !is_ahead(stream, req)) return true;
    if (stream->index != 0) return false;
    return hello_is_due(peer) || (peer->notices != NULL) ||
           ((peer->queued.first != NULL) && peer->greeted) || note_is_due(peer);
}

/* Makes the next batch. False: nothing is due. */
static bool fill(struct gf_tcp_stream *stream)
{
    struct gf_tcp_peer *peer = stream->peer;
    const struct gf_link_setup *setup = &peer->link->setup;
    stream->part_at = 0;
    stream->part_count = 0;
    stream->sent_at = 0;
    stream->sent_count = 0;
    stream->out_end = 0;
    stream->batch_bytes = 0;
    stream->batch_done = 0;
    if (stream->index == 0) {
        if (hello_is_due(peer)) {
            peer->greets = false;
            head_put(stream, (struct gf_tcp_head){.kind = TCP_FRAME_HELLO,
                                                  .tag = TCP_LINK_VERSION,
                                                  .size = peer->link->block_count,
                                                  .offset = setup->requests_max,
                                                  .number = setup->rank,
                                                  .returned = setup->checksum ? 1 : 0});
        }
        notices_put(stream);
        if (peer->greeted) begins_put(stream);
    }
    more_put(stream);
    if ((stream->index == 0) && (stream->batch_bytes == 0) && note_is_due(peer))
        head_put(stream, (struct gf_tcp_head){.kind = TCP_FRAME_NOTE});
    return stream->batch_bytes > 0;
}

/* ---- writing ---- */

/* The kernel took `bytes` more of the batch. The sends whose last bytes these are end. */
static void batch_advance(struct gf_tcp_stream *stream, uint32_t bytes)
{
    uint32_t left = bytes;
    stream->batch_done += bytes;
    while (left > 0) {
        struct iovec *part = &stream->parts[stream->part_at];
        uint32_t some = (part->iov_len < left) ? (uint32_t)part->iov_len : left;
        part->iov_base = (unsigned char *)part->iov_base + some;
        part->iov_len -= some;
        left -= some;
        if (part->iov_len == 0) stream->part_at++;
    }
    while (stream->sent_at < stream->sent_count) {
        const struct gf_tcp_sent *sent = &stream->sent[stream->sent_at];
        if (sent->end > stream->batch_done) break;
        sent->req->done += sent->bytes;
        GF_ASSERT(sent->req->done <= sent->req->given);
        stream->sent_at++;
        if (sent->req->done == sent->req->size) gf_tcp_req_end(sent->req, GF_OK);
    }
}

static ssize_t call_send(const struct gf_tcp_stream *stream, int flags)
{
    const struct iovec *parts = &stream->parts[stream->part_at];
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts,
                             .msg_iovlen = stream->part_count - stream->part_at};
    /* sendmsg() takes a quarter of a microsecond longer. */
    if (message.msg_iovlen == 1) return send(stream->fd, parts->iov_base, parts->iov_len, flags);
    return sendmsg(stream->fd, &message, flags);
}

/* Does another batch follow at once? Then the kernel need not send the end of this one in a packet
 * of its own (MSG_MORE). Where none follows, such an end would wait for the peer's
 * acknowledgement. */
static bool more_follows(const struct gf_tcp_stream *stream)
{
    const struct gf_tcp_peer *peer = stream->peer;
    const struct gf_req *req = more_find(stream);
    if ((req != NULL) && !is_ahead(stream, req)) return true;
    return (stream->index == 0) && peer->greeted && (peer->queued.first != NULL);
}

/* How many bytes the kernel took. Where it took fewer than all it has no room, as with EAGAIN, and
 * epoll reports when it has some again (epoll(7), edge-triggered). */
static uint32_t write_some(struct gf_tcp_stream *stream, uint32_t budget)
{
    uint32_t due = stream->batch_bytes - stream->batch_done;
    bool more = (due < budget) && more_follows(stream);
    ssize_t sent = call_send(stream, MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0));
    if (sent < 0) {
        if (errno == EINTR) return 0;
        stream->writable = false;
        others_list(stream);
        if ((errno != EAGAIN) && (errno != EWOULDBLOCK)) gf_tcp_stream_ended(stream, errno);
        return 0;
    }
    if ((stream->largest < TCP_PACKET_BYTES_MAX) && (sent > (ssize_t)stream->largest)) {
        stream->largest = (uint32_t)sent;
        stream->large_at = stream->written;
    }
    stream->written += (uint64_t)sent;
    batch_advance(stream, (uint32_t)sent);
    if ((uint32_t)sent < due) {
        stream->writable = false;
        others_list(stream);
    }
    return (uint32_t)sent;
}

bool gf_tcp_stream_write(struct gf_tcp_stream *stream)
{
    uint32_t written = 0;
    while (!stream->peer->ended && (stream->fd >= 0) && stream->writable) {
        if (written >= TCP_PROGRESS_BYTES) {
            if (gf_tcp_stream_has_work(stream)) gf_tcp_stream_list(stream);
            break;
        }
        if ((stream->batch_done == stream->batch_bytes) && !fill(stream)) break;
        written += write_some(stream, TCP_PROGRESS_BYTES - written);
    }
    return written > 0;
}

/* The message of a post leaves at once. Messages that are posted after it and before the next
 * progress() leave together then, because each packet costs more than the call that makes it. */
static void post_write(struct gf_tcp_stream *stream)
{
    uint32_t call = stream->peer->link->calls;
    if (stream->posted_call == call) {
        gf_tcp_stream_list(stream);
    } else {
        stream->posted_call = call;
        (void)gf_tcp_stream_write(stream);
    }
}

/* ---- posts, and what the peer announces ---- */

static struct gf_req *list_find(const struct gf_tcp_list *list, uint64_t tag)
{
    struct gf_req *req = list->first;
    while ((req != NULL) && (req->tag != tag)) req = req->next;
    return req;
}

static void send_numbered(struct gf_tcp_peer *peer, struct gf_req *req, uint32_t number)
{
    req->number = number;
    req->phase = TCP_SEND_SENDING;
    gf_tcp_list_add(&peer->sending, req);
}

/* An early READY belongs to this send: had there been an earlier one with its tag, the READY would
 * have met that (gf_tcp_ready_heard()). */
void gf_tcp_send_begin(struct gf_tcp_peer *peer, struct gf_req *req)
{
    for (uint32_t i = 0; i < peer->early_count; i++) {
        if (peer->early[i].tag != req->tag) continue;
        send_numbered(peer, req, peer->early[i].number);
        peer->early_count--;
        memmove(&peer->early[i], &peer->early[i + 1],
                (peer->early_count - i) * sizeof peer->early[0]);
        for (uint32_t s = 0; (s < peer->link->setup.streams) && (peer->sending.first != NULL); s++)
            post_write(&peer->streams[s]);
        return;
    }
    req->phase = TCP_SEND_QUEUED;
    gf_tcp_list_add(&peer->queued, req);
    if (req->size <= gf_tcp_whole_bytes_out(peer))
        post_write(&peer->streams[0]);
    else
        gf_tcp_stream_list(&peer->streams[0]); /* READY may have arrived and not been read yet */
}

bool gf_tcp_ready_heard(struct gf_tcp_peer *peer, uint64_t tag, uint32_t number)
{
    struct gf_tcp_list *list = &peer->waiting;
    struct gf_req *req = list_find(list, tag);
    if (req == NULL) {
        list = &peer->queued;
        req = list_find(list, tag);
    }
    if (req != NULL) {
        gf_tcp_list_remove(list, req);
        send_numbered(peer, req, number);
        for (uint32_t s = 0; s < peer->link->setup.streams; s++)
            gf_tcp_stream_list(&peer->streams[s]);
        return true;
    }
    if (peer->early_count == peer->link->setup.requests_max) return false;
    peer->early[peer->early_count] = (struct gf_tcp_early){.tag = tag, .number = number};
    peer->early_count++;
    return true;
}

/* The bytes of a send that has met the number already are dropped at the receiver. */
void gf_tcp_unready_heard(struct gf_tcp_peer *peer, uint64_t tag, uint32_t number)
{
    for (uint32_t i = 0; i < peer->early_count; i++) {
        if ((peer->early[i].tag != tag) || (peer->early[i].number != number)) continue;
        peer->early_count--;
        memmove(&peer->early[i], &peer->early[i + 1],
                (peer->early_count - i) * sizeof peer->early[0]);
        return;
    }
}

bool gf_tcp_returned_heard(struct gf_tcp_peer *peer, uint32_t returned)
{
    uint32_t more = returned - peer->returned;
    if ((int32_t)more < 0) return true; /* another stream's frame was faster */
    if (more > peer->taken - peer->returned) return false;
    peer->returned = returned;
    return true;
}
