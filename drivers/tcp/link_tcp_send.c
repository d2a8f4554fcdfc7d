/* What leaves. Stream 0 carries, in this order: words to the peer, beginnings of messages, the rest
 * of messages that it is ready for; the other streams carry such rests alone. So a vote waits for
 * no more than the frame under way. One call of the kernel takes all headers that are due, the
 * payloads that were copied behind theirs, and one payload from where it lies. */
#include "drivers/tcp/link_tcp_state.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "drivers/checksum.h"

/* ---- frames ---- */

static uint32_t room(const struct gf_tcp_stream *stream)
{
    return TCP_OUT_BYTES - stream->out_end;
}

/* Every header says how much credit was given back. */
static void head_put(struct gf_tcp_stream *stream, struct gf_tcp_head head)
{
    struct gf_tcp_peer *peer = stream->peer;
    if (head.kind != TCP_FRAME_HELLO) {
        head.returned = peer->given;
        peer->given_told = peer->given;
    }
    gf_tcp_head_put(&head, stream->out + stream->out_end);
    stream->out_end += TCP_HEAD_BYTES;
}

/* A header and the `bytes` of the message that follow: copied where the request ends with them and
 * they are few. */
static void message_put(struct gf_tcp_stream *stream, struct gf_req *req, gf_tcp_frame kind,
                        uint32_t bytes)
{
    const unsigned char *payload = (bytes > 0) ? req->data + req->given : NULL;
    struct gf_tcp_head head = {.kind = kind, .tag = req->tag, .size = req->size, .bytes = bytes};
    bool copies = (bytes == req->size) && (bytes <= TCP_COPY_BYTES_MAX) &&
                  (bytes + TCP_HEAD_BYTES <= room(stream));
    if (kind == TCP_FRAME_MORE) {
        head.offset = req->given;
        head.number = req->number;
    }
    if (stream->peer->link->setup.checksum) head.checksum = gf_crc32c(0, payload, bytes);
    head_put(stream, head);
    req->given += bytes;
    if (copies) {
        if (bytes > 0) memcpy(stream->out + stream->out_end, payload, bytes);
        stream->out_end += bytes;
        req->next = stream->copied;
        stream->copied = req;
    } else if (bytes > 0) {
        stream->payload = payload;
        stream->payload_left = bytes;
        stream->sends = req;
        stream->sends_bytes = bytes;
    }
}

/* READY and UNREADY. A cancelled receive ends when its word is written. */
static void words_put(struct gf_tcp_stream *stream)
{
    struct gf_tcp_peer *peer = stream->peer;
    while ((peer->tells != NULL) && (room(stream) >= TCP_HEAD_BYTES)) {
        struct gf_req *req = peer->tells;
        bool revoked = (req->phase == TCP_RECV_REVOKED);
        peer->tells = req->tell_next;
        if (peer->tells == NULL) peer->tells_last = NULL;
        req->telling = false;
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

/* How much of a message leaves before its receive is known to be posted: all of a small one, or
 * nothing; of a large one its first bytes, never all: its receive tells READY in any case. Half of
 * the credit is left to small ones. 0 of more than 0: nothing. */
static uint32_t first_bytes(const struct gf_tcp_peer *peer, uint32_t size)
{
    uint32_t left = credit_left(peer);
    uint32_t half = peer->credit_blocks / 2;
    uint32_t bytes;
    if (size <= TCP_WHOLE_BYTES_MAX) return (gf_tcp_blocks(size) <= left) ? size : 0;
    if (left <= half) return 0;
    bytes = (left - half) * TCP_BLOCK_BYTES;
    if (bytes > TCP_FIRST_BYTES_MAX) bytes = TCP_FIRST_BYTES_MAX;
    return (bytes < size / 2) ? bytes : size / 2;
}

static void begins_put(struct gf_tcp_stream *stream)
{
    struct gf_tcp_peer *peer = stream->peer;
    while ((peer->queued.first != NULL) && (stream->payload_left == 0) &&
           (room(stream) >= TCP_HEAD_BYTES)) {
        struct gf_req *req = peer->queued.first;
        uint32_t bytes = first_bytes(peer, req->size);
        bool wants = (bytes == 0) && ((req->size > 0) || (credit_left(peer) == 0));
        gf_tcp_list_remove(&peer->queued, req);
        if (!wants) peer->taken += gf_tcp_blocks(bytes);
        if (wants || (bytes < req->size)) {
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

static void more_put(struct gf_tcp_stream *stream)
{
    struct gf_tcp_peer *peer = stream->peer;
    while ((peer->sending.first != NULL) && (stream->payload_left == 0) &&
           (room(stream) >= TCP_HEAD_BYTES)) {
        struct gf_req *req = peer->sending.first;
        uint32_t bytes = req->size - req->given;
        if (bytes > TCP_FRAME_BYTES_MAX) bytes = TCP_FRAME_BYTES_MAX;
        if (bytes == req->size - req->given) {
            gf_tcp_list_remove(&peer->sending, req);
            req->phase = TCP_SEND_LEAVING;
        }
        message_put(stream, req, TCP_FRAME_MORE, bytes);
    }
}

/* Half of the credit is back here, and the peer may wait for it. */
static bool note_is_due(const struct gf_tcp_peer *peer)
{
    uint32_t untold = peer->given - peer->given_told;
    return (untold > 0) && (untold >= peer->link->block_count / 2);
}

bool gf_tcp_stream_has_work(const struct gf_tcp_stream *stream)
{
    const struct gf_tcp_peer *peer = stream->peer;
    if (peer->ended || (stream->fd < 0)) return false;
    if ((stream->out_at < stream->out_end) || (stream->payload_left > 0) ||
        (peer->sending.first != NULL))
        return true;
    if (stream->index != 0) return false;
    return peer->greets || (peer->tells != NULL) ||
           ((peer->queued.first != NULL) && peer->greeted) || note_is_due(peer);
}

/* The next to leave; false: nothing is due. */
static bool fill(struct gf_tcp_stream *stream)
{
    struct gf_tcp_peer *peer = stream->peer;
    const struct gf_link_setup *setup = &peer->link->setup;
    stream->out_at = 0;
    stream->out_end = 0;
    if (stream->index == 0) {
        if (peer->greets)
            head_put(stream, (struct gf_tcp_head){.kind = TCP_FRAME_HELLO,
                                                  .tag = TCP_LINK_VERSION,
                                                  .size = peer->link->block_count,
                                                  .offset = setup->requests_max,
                                                  .number = setup->rank,
                                                  .returned = setup->checksum ? 1 : 0});
        peer->greets = false;
        words_put(stream);
        if (peer->greeted) begins_put(stream);
    }
    more_put(stream);
    if ((stream->index == 0) && (stream->out_end == 0) && note_is_due(peer))
        head_put(stream, (struct gf_tcp_head){.kind = TCP_FRAME_NOTE});
    return stream->out_end > 0;
}

/* ---- writing ---- */

static void written(struct gf_req *req, uint32_t bytes)
{
    req->done += bytes;
    GF_ASSERT(req->done <= req->given);
    if (req->done == req->size) gf_tcp_req_end(req, GF_OK);
}

/* All that was filled in has left. */
static void all_written(struct gf_tcp_stream *stream)
{
    struct gf_req *copied = stream->copied;
    struct gf_req *sends = stream->sends;
    stream->copied = NULL;
    stream->sends = NULL;
    while (copied != NULL) {
        struct gf_req *next = copied->next;
        written(copied, copied->size);
        copied = next;
    }
    if (sends != NULL) written(sends, stream->sends_bytes);
}

static ssize_t call_send(const struct gf_tcp_stream *stream, int flags)
{
    struct iovec parts[2] = {
        {.iov_base = (void *)(uintptr_t)(stream->out + stream->out_at),
         .iov_len = stream->out_end - stream->out_at},
        {.iov_base = (void *)(uintptr_t)stream->payload, .iov_len = stream->payload_left}};
    bool one = (parts[0].iov_len == 0);
    struct msghdr message = {.msg_iov = parts + (one ? 1 : 0), .msg_iovlen = one ? 1 : 2};
    /* sendmsg() takes a quarter of a microsecond longer. */
    if (parts[1].iov_len == 0) return send(stream->fd, parts[0].iov_base, parts[0].iov_len, flags);
    if (one) return send(stream->fd, parts[1].iov_base, parts[1].iov_len, flags);
    return sendmsg(stream->fd, &message, flags);
}

/* False: nothing was taken. A call that took less than all says, as EAGAIN does, that the kernel
 * has no room, and tells when there is some again (epoll(7), edge-triggered). */
static bool write_some(struct gf_tcp_stream *stream, bool last)
{
    uint32_t head_left = stream->out_end - stream->out_at;
    uint32_t due = head_left + stream->payload_left;
    bool more = !last && (stream->peer->sending.first != NULL);
    ssize_t sent = call_send(stream, MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0));
    if (sent < 0) {
        if (errno == EINTR) return false;
        stream->writable = false;
        if ((errno != EAGAIN) && (errno != EWOULDBLOCK)) gf_tcp_stream_ended(stream, errno);
        return false;
    }
    uint32_t of_head = ((uint32_t)sent < head_left) ? (uint32_t)sent : head_left;
    stream->out_at += of_head;
    stream->payload += (uint32_t)sent - of_head;
    stream->payload_left -= (uint32_t)sent - of_head;
    if ((uint32_t)sent < due) stream->writable = false;
    return true;
}

bool gf_tcp_stream_write(struct gf_tcp_stream *stream)
{
    bool moved = false;
    for (int turn = 0; turn < TCP_FRAMES_A_TURN;) {
        if (stream->peer->ended || (stream->fd < 0) || !stream->writable) return moved;
        if ((stream->out_at == stream->out_end) && (stream->payload_left == 0)) {
            if (!fill(stream)) return moved;
        }
        moved = write_some(stream, turn + 1 == TCP_FRAMES_A_TURN) || moved;
        if ((stream->out_at == stream->out_end) && (stream->payload_left == 0)) {
            all_written(stream);
            turn++;
        }
    }
    if (gf_tcp_stream_has_work(stream)) gf_tcp_stream_list(stream);
    return moved;
}

/* The rest of messages is any stream's. */
static void streams_write(struct gf_tcp_peer *peer)
{
    for (uint32_t s = 0; s < peer->link->setup.streams; s++) {
        if (s > 0 && peer->sending.first == NULL) return;
        (void)gf_tcp_stream_write(&peer->streams[s]);
    }
}

/* ---- posts, and the peer's words ---- */

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

/* An early READY has no send of its tag before it: it would have met that (gf_tcp_ready_heard()).
 */
void gf_tcp_send_begin(struct gf_tcp_peer *peer, struct gf_req *req)
{
    for (uint32_t i = 0; i < peer->early_count; i++) {
        if (peer->early[i].tag != req->tag) continue;
        send_numbered(peer, req, peer->early[i].number);
        peer->early_count--;
        memmove(&peer->early[i], &peer->early[i + 1],
                (peer->early_count - i) * sizeof peer->early[0]);
        streams_write(peer);
        return;
    }
    req->phase = TCP_SEND_QUEUED;
    gf_tcp_list_add(&peer->queued, req);
    if (req->size <= TCP_WHOLE_BYTES_MAX)
        (void)gf_tcp_stream_write(&peer->streams[0]);
    else
        gf_tcp_stream_list(&peer->streams[0]); /* READY may be here, and not read yet */
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

/* A send that has met the number already finds nobody. */
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
