/* The receiving half of the socket link. One system call reads the payload under way to its
 * destination, and into in[] the header that follows it. Small payloads are read together with
 * their header, and copied from there. A payload that was sent whole and is too large for that is
 * read straight into the receive that is next. System calls cost more than copies: a call takes
 * as long as a copy of 20 KiB. */
#include "drivers/tcp/link_tcp_state.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "drivers/checksum.h"

#define LARGE_BYTES (16u << 10) /* behind so much payload a header alone is read ahead */
#define AHEAD_BYTES 64u
#define AWAITED_BYTES 256u

/* ---- receives ---- */

void gf_tcp_recv_tell(struct gf_tcp_peer *peer, struct gf_req *req)
{
    if (req->phase != TCP_RECV_REVOKED) {
        if (req->number != 0) return;
        if (++peer->number == 0) peer->number = 1;
        req->number = peer->number;
    }
    GF_ASSERT(!req->telling);
    req->telling = true;
    req->tell_next = NULL;
    if (peer->tells_last != NULL)
        peer->tells_last->tell_next = req;
    else
        peer->tells = req;
    peer->tells_last = req;
    gf_tcp_stream_list(&peer->streams[0]);
}

static void untell(struct gf_tcp_peer *peer, struct gf_req *req)
{
    struct gf_req **at = &peer->tells;
    struct gf_req *before = NULL;
    if (!req->telling) return;
    while (*at != req) {
        before = *at;
        at = &before->tell_next;
    }
    *at = req->tell_next;
    if (peer->tells_last == req) peer->tells_last = before;
    req->telling = false;
}

/* It ends without having met the message that it was told for: the peer must not keep its number,
 * which the next message with this tag would leave under. */
static void recv_revoke(struct gf_tcp_peer *peer, struct gf_req *req, gf_status answer)
{
    bool notified = (req->number != 0) && !req->telling;
    untell(peer, req);
    gf_tcp_list_remove(&peer->receives, req);
    if (!notified || peer->ended) {
        gf_tcp_req_end(req, answer);
        return;
    }
    req->phase = TCP_RECV_REVOKED;
    req->later = answer;
    gf_tcp_recv_tell(peer, req);
    (void)gf_tcp_stream_write(&peer->streams[0]); /* most often it ends here */
}

void gf_tcp_recv_begin(struct gf_tcp_peer *peer, struct gf_req *req)
{
    uint32_t late = gf_tcp_late_find(peer, req->tag);
    if (late == TCP_NONE) {
        req->phase = TCP_RECV_POSTED;
        gf_tcp_list_add(&peer->receives, req);
        if (req->size > gf_tcp_whole_bytes_in(peer)) gf_tcp_recv_tell(peer, req);
    } else if (peer->late[late].here) {
        gf_tcp_late_deliver(peer, late, req);
    } else {
        req->phase = TCP_RECV_BOUND;
        peer->late[late].req = req;
    }
}

void gf_tcp_recv_cancel(struct gf_tcp_peer *peer, struct gf_req *req)
{
    if (req->phase == TCP_RECV_POSTED) recv_revoke(peer, req, GF_ERR_ABORTED);
}

/* ---- a frame begins ---- */

/* The oldest whose message has not begun here; MORE on another stream may have been faster. */
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

/* Its payload goes to memory that is posted. */
static void payload_to(struct gf_tcp_stream *stream, struct gf_req *req)
{
    stream->target = TCP_TO_REQUEST;
    stream->receives = req;
    req->phase = TCP_RECV_BEGUN;
    req->given += stream->head.bytes;
}

/* A large message never comes whole: its receive may have told READY, which would be left over. */
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
        stream->late = gf_tcp_late_add(peer, head);
        if (stream->late == TCP_NONE) {
            gf_tcp_violated(stream, "more messages were announced than there are requests");
            return;
        }
        if (!wants) stream->target = TCP_TO_LATE;
        stream->block = peer->late[stream->late].block;
        stream->block_at = 0;
        return;
    }
    gf_tcp_credit_give(peer, blocks); /* its bytes need no room */
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
    if (wants || (head->bytes < head->size)) gf_tcp_recv_tell(peer, req);
}

/* A receive that was cancelled, or was of another size, leaves a message that nobody wants. */
static void more_take(struct gf_tcp_stream *stream)
{
    struct gf_tcp_peer *peer = stream->peer;
    const struct gf_tcp_head *head = &stream->head;
    struct gf_req *req = (head->number != 0) ? recv_numbered(peer, head->tag, head->number) : NULL;
    if (req == NULL) {
        uint32_t late = gf_tcp_late_find(peer, head->tag);
        if ((late != TCP_NONE) && (peer->late[late].bytes < peer->late[late].size))
            gf_tcp_late_drop(peer, late);
        return;
    }
    if ((head->size != req->size) && (req->phase == TCP_RECV_POSTED)) {
        gf_tcp_mismatch(req, head->size);
        untell(peer, req);
        gf_tcp_list_remove(&peer->receives, req);
        gf_tcp_req_end(req, GF_ERR_MISMATCH);
        return;
    }
    if ((head->size != req->size) || (head->offset > req->size) ||
        (head->bytes > req->size - head->offset) || (head->bytes > req->size - req->given) ||
        ((head->bytes == 0) && (req->size > 0)) || req->telling) {
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
        untell(peer, req);
        gf_tcp_list_remove(&peer->receives, req);
        gf_tcp_req_end(req, GF_OK);
    } else if (target == TCP_TO_LATE) {
        peer->late[stream->late].here = true;
        req = peer->late[stream->late].req;
        if (req != NULL) gf_tcp_late_deliver(peer, stream->late, req);
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

/* Where the next bytes of the payload go, at most parts_max pieces of memory; *bytes_out: how many
 * all take. */
static int target_parts(const struct gf_tcp_stream *stream, struct iovec *parts, int parts_max,
                        uint32_t *bytes_out)
{
    const struct gf_tcp_peer *peer = stream->peer;
    uint32_t block = stream->block;
    uint32_t at = stream->block_at;
    uint32_t left = stream->left;
    int count = 0;
    *bytes_out = 0;
    if (left == 0) return 0;
    if (stream->target != TCP_TO_LATE) {
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
        while ((bytes < left) && (peer->chain[run] == run + 1)) { /* neighbours are one piece */
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

/* `bytes` have come to where target_parts() said. */
static void target_advance(struct gf_tcp_stream *stream, const struct iovec *parts, uint32_t bytes)
{
    const struct gf_tcp_peer *peer = stream->peer;
    uint32_t left = bytes;
    if (peer->link->setup.checksum) {
        for (int i = 0; left > 0; i++) {
            uint32_t some = (parts[i].iov_len < left) ? (uint32_t)parts[i].iov_len : left;
            stream->checksum = gf_crc32c(stream->checksum, parts[i].iov_base, some);
            left -= some;
        }
    }
    stream->left -= bytes;
    if (stream->target != TCP_TO_LATE) return;
    stream->block_at += bytes;
    while ((stream->block_at >= TCP_BLOCK_BYTES) && (stream->left > 0)) {
        stream->block_at -= TCP_BLOCK_BYTES;
        stream->block = peer->chain[stream->block];
    }
}

/* What lies at `from` goes where it belongs; how much of it, less than a header, is left: nothing
 * where the stream has ended. It may lie in the memory of a receive that it goes to, then never
 * before where it goes. */
static uint32_t take(struct gf_tcp_stream *stream, const unsigned char *from, uint32_t have)
{
    while (stream->fd >= 0) {
        if (!stream->in_payload) {
            if (have < TCP_HEAD_BYTES) break;
            if (!gf_tcp_head_get(from, &stream->head)) {
                gf_tcp_violated(stream,
                                "a header was damaged on its way, or something else writes there");
                break;
            }
            from += TCP_HEAD_BYTES;
            have -= TCP_HEAD_BYTES;
            frame_begin(stream);
            if (stream->fd < 0) break;
        }
        while ((have > 0) && (stream->left > 0)) {
            struct iovec part;
            uint32_t bytes;
            (void)target_parts(stream, &part, 1, &bytes);
            if (bytes > have) bytes = have;
            if (part.iov_base != from) memmove(part.iov_base, from, bytes);
            target_advance(stream, &part, bytes);
            from += bytes;
            have -= bytes;
        }
        if (stream->left > 0) break;
        frame_end(stream);
    }
    return (stream->fd >= 0) ? have : 0;
}

/* What lies in in[]; less than a header stays. */
static void take_buffered(struct gf_tcp_stream *stream)
{
    uint32_t left = take(stream, stream->in + stream->in_at, stream->in_end - stream->in_at);
    memmove(stream->in, stream->in + stream->in_end - left, left);
    stream->in_end = left;
    stream->in_at = 0;
}

/* How much is read into in[] behind `direct` bytes of the payload under way: small messages whole;
 * of a large one that is awaited little more than its header, for what comes here is copied. */
static uint32_t ahead_bytes(const struct gf_tcp_stream *stream, uint32_t direct)
{
    const struct gf_req *awaited = stream->peer->receives.first;
    uint32_t room = TCP_IN_BYTES - stream->in_end;
    if (direct < stream->left) return 0;
    if (direct >= LARGE_BYTES) return AHEAD_BYTES;
    if ((awaited != NULL) && (awaited->size >= LARGE_BYTES) && (room > AWAITED_BYTES))
        return AWAITED_BYTES;
    return room;
}

/* The receive whose message comes next, whole behind one header, unless another frame does. */
static const struct gf_req *whole_expected(const struct gf_tcp_stream *stream)
{
    const struct gf_req *req = stream->peer->receives.first;
    if (stream->in_payload || (stream->in_end > 0) || (stream->index != 0) || (req == NULL))
        return NULL;
    bool whole = (req->size >= LARGE_BYTES) && (req->size <= gf_tcp_whole_bytes_in(stream->peer));
    return (whole && (req->phase == TCP_RECV_POSTED) && !req->began) ? req : NULL;
}

/* Header and payload of that message by one call. What else came instead is taken from where it
 * came to. */
static void whole_take(struct gf_tcp_stream *stream, const struct iovec *parts, uint32_t got)
{
    uint32_t head = (got < TCP_HEAD_BYTES) ? got : TCP_HEAD_BYTES;
    uint32_t size = (uint32_t)parts[1].iov_len;
    uint32_t received = (got - head < size) ? got - head : size;
    const unsigned char *end = (const unsigned char *)parts[1].iov_base + received;
    stream->in_end = head;
    if (head < TCP_HEAD_BYTES) return;
    (void)take(stream, stream->in, head);
    uint32_t left = take(stream, parts[1].iov_base, received);
    stream->in_at = TCP_HEAD_BYTES - left;
    stream->in_end = got - received;
    memcpy(stream->in + stream->in_at, end - left, left);
    take_buffered(stream);
}

/* Behind in[in_end], the payload under way and what follows it. */
static void direct_take(struct gf_tcp_stream *stream, const struct iovec *parts, uint32_t direct,
                        uint32_t got)
{
    uint32_t to_target = (got < direct) ? got : direct;
    target_advance(stream, parts, to_target);
    stream->in_end += got - to_target;
    if (stream->in_payload && (stream->left == 0)) frame_end(stream);
    if (stream->fd >= 0) take_buffered(stream);
}

/* One call of the kernel: how many bytes came. */
static uint32_t read_some(struct gf_tcp_stream *stream)
{
    struct iovec parts[TCP_PARTS_MAX + 1];
    const struct gf_req *whole = whole_expected(stream);
    uint32_t direct = 0;
    uint32_t ahead;
    int count;
    struct msghdr message = {.msg_iov = parts};
    ssize_t got;
    if (whole != NULL) {
        parts[0] = (struct iovec){.iov_base = stream->in, .iov_len = TCP_HEAD_BYTES};
        parts[1] = (struct iovec){.iov_base = whole->data, .iov_len = whole->size};
        direct = TCP_HEAD_BYTES + whole->size;
        ahead = AHEAD_BYTES;
        parts[2] = (struct iovec){.iov_base = stream->in + TCP_HEAD_BYTES, .iov_len = ahead};
        count = 3;
    } else {
        count = target_parts(stream, parts, TCP_PARTS_MAX, &direct);
        ahead = ahead_bytes(stream, direct);
        parts[count] = (struct iovec){.iov_base = stream->in + stream->in_end, .iov_len = ahead};
        if (ahead > 0) count++;
    }
    message.msg_iovlen = (size_t)count;
    if (count == 1)
        got = recv(stream->fd, parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT);
    else
        got = recvmsg(stream->fd, &message, MSG_DONTWAIT);
    if (got < 0) {
        if (errno == EINTR) return 0;
        stream->readable = false;
        if ((errno != EAGAIN) && (errno != EWOULDBLOCK)) gf_tcp_stream_ended(stream, errno);
        return 0;
    }
    if (got == 0) {
        stream->readable = false;
        gf_tcp_stream_ended(stream, 0);
        return 0;
    }
    /* The kernel had no more, and tells of what comes; of an end that it has told of it says
     * nothing more. */
    if ((uint32_t)got < direct + ahead) stream->readable = stream->hung_up;
    if (whole != NULL)
        whole_take(stream, parts, (uint32_t)got);
    else
        direct_take(stream, parts, direct, (uint32_t)got);
    return (uint32_t)got;
}

bool gf_tcp_stream_read(struct gf_tcp_stream *stream)
{
    uint32_t bytes = 0;
    while ((stream->fd >= 0) && (bytes < TCP_TURN_BYTES)) {
        uint32_t some = read_some(stream);
        bytes += some;
        if ((some == 0) || !stream->readable) break;
    }
    if ((stream->fd >= 0) && stream->readable) gf_tcp_stream_list(stream);
    return bytes > 0;
}
