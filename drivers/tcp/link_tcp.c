/* The socket link: messages between ranks of different nodes, over connections that were proven
 * before they were adopted.
 *
 * A message goes straight from the sender's memory to the receiver's. Its bytes travel in frames of
 * at most 256 KiB; a pair of ranks has setup.streams connections. Stream 0 carries everything, the
 * others carry MORE alone.
 *
 *     frame    what it means                             what the other end does
 *     HELLO    my credit, how many requests I have       may begin messages from here on
 *     BEGIN    the first bytes of a message, by credit   writes them to its receive, or to a block
 *     WANT     there is a message; takes no credit       remembers it
 *     READY    this tag's receive is posted, number n    sends what is left of that message
 *     UNREADY  it is no more                             forgets it
 *     MORE     bytes of a message, for the receive n     writes them there; nobody's: drops them
 *     NOTE     nothing                                   reads what each header says: credit back
 *
 *     a send                                      a receive
 *     QUEUED --READY known---------> SENDING      POSTED --a large one: READY leaves at once
 *       | BEGIN with all of it: ends    |           | BEGIN, or MORE under its number
 *       | BEGIN with some, or WANT      | MORE ..   | an unexpected message has this tag: copied,
 *       v                               v           v   and READY leaves if that was not all
 *     WAITING ------READY----------> SENDING      BEGUN --all bytes are here: ends
 *                 all bytes are the kernel's: ends
 *
 * A message up to half of the credit, 256 KiB at most (128 KiB where a pair has several streams),
 * leaves whole where credit allows it. Of a larger one at most the first 64 KiB leave by credit, so
 * that they travel while READY does, and half of the credit stays with the others. Where a large
 * receive is posted before its message, READY has arrived when the send is posted: then there is no
 * round trip at all.
 *
 * Why it cannot deadlock. Whatever arrives is read at once, whether or not a receive is posted:
 * BEGIN has its room in the credit's blocks, MORE in a posted receive, and the other frames have no
 * payload. So the kernel's buffers empty as long as both ends poll, what is put into a stream
 * leaves, and no frame waits for a receive. A send that has no credit, or is too large for it, has
 * been announced (WANT, BEGIN) and waits for READY alone. READY leaves when that message's own
 * receive is posted, before everything else on stream 0, and takes no credit. So each message
 * depends on its own receive, whatever the other messages of either direction do, and whatever the
 * order of posts. What each end remembers of the other is bounded by the other's requests: early
 * READYs and WANTs are no more than requests_max each, which HELLO compares.
 *
 * Why each message meets its own receive. A BEGIN meets the oldest posted receive with its tag, a
 * receive the oldest unexpected message with its tag; READY names tag and number, and MORE repeats
 * both. Two messages under way between two ranks never share a tag (link.h). Messages with the same
 * tag one after the other begin on stream 0 in the order of their posts. MORE on another stream may
 * be faster than the BEGIN before it, whose bytes its message still lacks; after a WANT no bytes
 * are lacking, so what it announced begins on stream 0, after it. Where a receive ended otherwise
 * while the peer keeps its number, UNREADY takes the number back, on the same stream after its
 * READY; a message that had met the number by then finds no receive, and its bytes are dropped.
 *
 * progress() reads from the peer whose message is awaited longest without asking epoll first, and
 * otherwise asks it once which streams are ready (edge-triggered, so nothing is armed anew).
 * Streams that have more to do than one call allows stay in a list. Nothing is allocated after
 * open. */
#include "drivers/tcp/link_tcp_state.h"
#include "drivers/base/descriptors.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "drivers/base/clock.h"

_Static_assert(sizeof(struct gf_req) % 64 == 0, "requests lie in an array");

#define EVENTS_MAX 32
#define UNASKED_MAX 4      /* reads without epoll_wait() between two calls of it */
#define CALLS_UNASKED 256u /* one call of progress() in so many asks epoll even with one stream */
#define FLUSH_NS UINT64_C(200000000) /* close() waits so long until all is sent */

static struct gf_tcp_link *tcp_of(struct gf_link *link)
{
    return (struct gf_tcp_link *)link;
}

/* ---- how a request begins and ends ---- */

static void req_begin(struct gf_tcp_link *tcp, struct gf_req *req, bool is_send, uint32_t peer,
                      uint64_t tag, gf_mem data, uint32_t size)
{
    *req = (struct gf_req){.link = tcp,
                           .older = tcp->newest,
                           .data = (unsigned char *)(uintptr_t)data,
                           .tag = tag,
                           .peer = peer,
                           .size = size,
                           .is_send = is_send,
                           .head.answer = GF_AGAIN};
    if (tcp->newest != NULL)
        tcp->newest->newer = req;
    else
        tcp->oldest = req;
    tcp->newest = req;
    tcp->requests_under_way++;
}

void gf_tcp_req_end(struct gf_req *req, gf_status answer)
{
    struct gf_tcp_link *tcp = req->link;
    GF_ASSERT((req->head.answer == GF_AGAIN) && (answer != GF_AGAIN) &&
              (tcp->requests_under_way > 0));
    if (req->older != NULL)
        req->older->newer = req->newer;
    else
        tcp->oldest = req->newer;
    if (req->newer != NULL)
        req->newer->older = req->older;
    else
        tcp->newest = req->older;
    tcp->requests_under_way--;
    req->head.answer = answer;
}

void gf_tcp_mismatch(struct gf_req *req, uint32_t got_bytes)
{
    struct gf_tcp_link *tcp = req->link;
    (void)gf_fault_set(&tcp->link.fault, GF_ERR_MISMATCH, req->peer, "", 0,
                       "rank %u sent %u bytes where rank %u expects %u (tag %#llx)", req->peer,
                       got_bytes, tcp->setup.rank, req->size, (unsigned long long)req->tag);
}

/* ---- posting ---- */

/* drivers/link.c has checked the arguments. */
static gf_status post_check(struct gf_tcp_link *tcp, uint32_t peer, size_t size_bytes)
{
    GF_ASSERT((peer < tcp->setup.world) && (peer != tcp->setup.rank) &&
              (size_bytes <= tcp->setup.message_bytes_max));
    if (tcp->link.failed != GF_OK) return tcp->link.failed;
    if (tcp->peers[peer].open_count < tcp->setup.streams)
        return gf_fault_set(&tcp->link.fault, GF_ERR_STATE, peer, "post", 0,
                            "rank %u and rank %u are not connected in this generation",
                            tcp->setup.rank, peer);
    return (tcp->requests_under_way < tcp->setup.requests_max) ? GF_OK : GF_FULL;
}

static gf_status send_post(struct gf_link *link, uint32_t to, uint64_t tag, gf_mem data,
                           size_t size_bytes, struct gf_req *req)
{
    struct gf_tcp_link *tcp = tcp_of(link);
    gf_status status = post_check(tcp, to, size_bytes);
    if (status != GF_OK) return status;
    if (tcp->peers[to].notified) return gf_tcp_peer_refuse(&tcp->peers[to]);
    req_begin(tcp, req, true, to, tag, data, (uint32_t)size_bytes);
    gf_tcp_send_begin(&tcp->peers[to], req);
    link->sent_bytes += size_bytes;
    link->sent_messages++;
    return GF_OK;
}

static gf_status recv_post(struct gf_link *link, uint32_t from, uint64_t tag, gf_mem data,
                           size_t size_bytes, struct gf_req *req)
{
    struct gf_tcp_link *tcp = tcp_of(link);
    gf_status status = post_check(tcp, from, size_bytes);
    if (status != GF_OK) return status;
    /* A message that arrived before its connection ended can still be received. */
    if (tcp->peers[from].notified && (gf_tcp_unexpected_find(&tcp->peers[from], tag) == TCP_NONE))
        return gf_tcp_peer_refuse(&tcp->peers[from]);
    req_begin(tcp, req, false, from, tag, data, (uint32_t)size_bytes);
    gf_tcp_recv_begin(&tcp->peers[from], req);
    return GF_OK;
}

static void cancel(struct gf_link *link, struct gf_req *req)
{
    struct gf_tcp_link *tcp = tcp_of(link);
    GF_ASSERT(req->link == tcp);
    if ((req->head.answer == GF_AGAIN) && !req->is_send)
        gf_tcp_recv_cancel(&tcp->peers[req->peer], req);
}

/* ---- moving and sleeping ---- */

void gf_tcp_stream_list(struct gf_tcp_stream *stream)
{
    struct gf_tcp_link *tcp = stream->peer->link;
    if (stream->listed || (stream->fd < 0)) return;
    stream->listed = true;
    stream->next_ready = NULL;
    if (tcp->ready_last != NULL)
        tcp->ready_last->next_ready = stream;
    else
        tcp->ready = stream;
    tcp->ready_last = stream;
}

/* Asks epoll once for whatever became ready since the last call. */
static void events_take(struct gf_tcp_link *tcp)
{
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(tcp->epoll_fd, events, EVENTS_MAX, 0);
    tcp->unasked = 0;
    for (int i = 0; i < count; i++) {
        struct gf_tcp_stream *stream = events[i].data.ptr;
        if (events[i].data.ptr == tcp->data) {
            tcp->data_due = true;
            continue;
        }
        if ((events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0)
            stream->readable = true;
        if ((events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) stream->hung_up = true;
        if ((events[i].events & EPOLLOUT) != 0) stream->writable = true;
        if (stream->readable || (stream->writable && gf_tcp_stream_has_work(stream)))
            gf_tcp_stream_list(stream);
    }
}

/* Serves each stream of the list once. A stream that has more to do adds itself again. */
static bool ready_serve(struct gf_tcp_link *tcp)
{
    struct gf_tcp_stream *stream = tcp->ready;
    bool moved = false;
    tcp->ready = NULL;
    tcp->ready_last = NULL;
    while (stream != NULL) {
        struct gf_tcp_stream *next = stream->next_ready;
        stream->listed = false;
        if (stream->readable) moved = gf_tcp_stream_read(stream) || moved;
        moved = gf_tcp_stream_write(stream) || moved;
        stream = next;
    }
    return moved;
}

/* The message that is awaited longest has most often arrived, so its socket is read without asking
 * epoll. False: no such read is of use, or epoll is due. Where this is the only stream, and the
 * kernel has room for what it sends, epoll is due once in CALLS_UNASKED calls, because connections
 * of strangers are reported there too. */
static bool awaited_read(struct gf_tcp_link *tcp, bool *moved_out)
{
    struct gf_req *req = tcp->oldest;
    struct gf_tcp_stream *stream;
    while ((req != NULL) && req->is_send) req = req->newer;
    if (req == NULL) return false;
    stream = &tcp->peers[req->peer].streams[0];
    bool alone = (tcp->streams_open == 1) && stream->writable && (tcp->calls % CALLS_UNASKED != 0);
    if (stream->fd < 0) return false;
    if (!alone && (stream->listed || (tcp->unasked == UNASKED_MAX))) return false;
    if (tcp->unasked < UNASKED_MAX) tcp->unasked++;
    if (stream->listed)
        stream->readable = true; /* ready_serve() reads */
    else
        *moved_out = gf_tcp_stream_read(stream);
    return true;
}

static bool streams_progress(struct gf_tcp_link *tcp)
{
    bool moved = false;
    tcp->calls++;
    if (!awaited_read(tcp, &moved)) events_take(tcp);
    if (tcp->data_due) (void)gf_tcp_data_poll(tcp, gf_clock_monotonic.now_ns(&gf_clock_monotonic));
    moved = ready_serve(tcp) || moved;
    if (tcp->gone_count > 0)
        moved = gf_tcp_gone_report(tcp, gf_clock_monotonic.now_ns(&gf_clock_monotonic)) || moved;
    return moved;
}

static bool progress(struct gf_link *link)
{
    struct gf_tcp_link *tcp = tcp_of(link);
    if (!tcp->is_open || (link->failed != GF_OK)) return false;
    return ((tcp->streams_open > 0) || tcp->data_due) && streams_progress(tcp);
}

static bool arm(struct gf_link *link)
{
    struct gf_tcp_link *tcp = tcp_of(link);
    if (!tcp->is_open || (link->failed != GF_OK)) return false;
    /* epoll still reports streams that were read; and while there are none progress() does not ask,
     * but a stranger at the listener would wake the sleeper again and again */
    if ((tcp->unasked > 0) || (tcp->streams_open == 0)) events_take(tcp);
    return (tcp->ready == NULL) && !tcp->data_due;
}

/* ---- memory ---- */

struct parts {
    unsigned char *at; /* NULL: only counted */
    size_t bytes;
};

static void *part_take(struct parts *parts, size_t bytes)
{
    void *part = (parts->at == NULL) ? NULL : parts->at + parts->bytes;
    parts->bytes += (bytes + 63) & ~(size_t)63;
    return part;
}

/* With few peers each has more credit, so that two or more slices of an exchange leave before their
 * receives are announced. */
static uint32_t credit_share(uint32_t ranks_max)
{
    uint32_t bytes = TCP_CREDIT_BYTES_ALL / ((ranks_max > 1) ? ranks_max - 1 : 1);
    if (bytes > TCP_CREDIT_BYTES_MAX) return TCP_CREDIT_BYTES_MAX;
    return (bytes < TCP_CREDIT_BYTES_MIN) ? TCP_CREDIT_BYTES_MIN : bytes;
}

static struct gf_link_setup setup_filled(const struct gf_link_setup *setup)
{
    struct gf_link_setup filled = *setup;
    if (filled.streams == 0) filled.streams = 1;
    if (filled.credit_bytes == 0) filled.credit_bytes = credit_share(filled.ranks_max);
    if (filled.credit_bytes < TCP_BLOCK_BYTES) filled.credit_bytes = TCP_BLOCK_BYTES;
    return filled;
}

/* Both measures and hands out, again at each reset: the peer with this rank's own number has no
 * memory, and that number changes with the generation. What is written at open comes first; the
 * blocks of peers that never connect are not touched. */
static void lay(const struct gf_link_setup *setup, struct parts *parts)
{
    uint32_t ranks_max = setup->ranks_max;
    uint32_t block_count = setup->credit_bytes / TCP_BLOCK_BYTES;
    struct gf_tcp_link *tcp = part_take(parts, sizeof *tcp);
    struct gf_tcp_peer *peers = part_take(parts, ranks_max * sizeof *peers);
    unsigned char *scratch = part_take(parts, TCP_SCRATCH_BYTES);
    struct gf_data *data = part_take(parts, gf_data_state_bytes(setup));
    if (tcp != NULL) {
        tcp->data = data;
        tcp->peers = peers;
        tcp->scratch = scratch;
        tcp->block_count = block_count;
    }
    for (uint32_t id = 0; id < ranks_max; id++) {
        struct gf_tcp_peer at = {.link = tcp, .id = id};
        if (id != setup->rank) {
            at.streams = part_take(parts, setup->streams * sizeof *at.streams);
            at.early = part_take(parts, setup->requests_max * sizeof *at.early);
            at.unexpected = part_take(parts, ((size_t)block_count + setup->requests_max) *
                                                 sizeof *at.unexpected);
            at.chain = part_take(parts, block_count * sizeof *at.chain);
            at.blocks = part_take(parts, (size_t)block_count * TCP_BLOCK_BYTES);
        }
        if (tcp != NULL) peers[id] = at;
    }
}

static size_t state_bytes(const struct gf_link_setup *setup)
{
    const struct gf_link_setup filled = setup_filled(setup);
    struct parts parts = {NULL, 0};
    lay(&filled, &parts);
    return parts.bytes;
}

/* ---- opening and closing ---- */

static struct gf_tcp_link *tcp_of_forked(struct gf_forked *forked)
{
    return (struct gf_tcp_link *)(void *)((char *)forked - offsetof(struct gf_tcp_link, forked));
}

static void forked_close(struct gf_forked *forked)
{
    const struct gf_tcp_link *tcp = tcp_of_forked(forked);
    for (uint32_t id = 0; id < tcp->setup.ranks_max; id++) {
        const struct gf_tcp_peer *peer = &tcp->peers[id];
        for (uint32_t s = 0; (s < tcp->setup.streams) && (peer->streams != NULL); s++)
            (void)close(peer->streams[s].fd);
    }
    gf_data_forked(tcp->data);
    (void)close(tcp->epoll_fd);
}

static void close_link(struct gf_link *link);

static void peers_init(struct gf_tcp_link *tcp)
{
    for (uint32_t id = 0; id < tcp->setup.ranks_max; id++) {
        if (id != tcp->setup.rank) gf_tcp_peer_init(&tcp->peers[id]);
    }
}

/* The epoll descriptor wakes a sleeper. Streams are added to it as they are adopted. */
static gf_status wakes_take(struct gf_tcp_link *tcp)
{
    struct epoll_event data = {.events = EPOLLIN, .data.ptr = tcp->data};
    int data_fd = tcp->setup.adopts ? -1 : gf_data_wake_fd(tcp->data);
    tcp->epoll_fd = gf_descriptor_keep(epoll_create1(EPOLL_CLOEXEC));
    tcp->link.wake_fd = tcp->epoll_fd;
    if ((tcp->epoll_fd >= 0) &&
        ((data_fd < 0) || (epoll_ctl(tcp->epoll_fd, EPOLL_CTL_ADD, data_fd, &data) == 0)))
        return GF_OK;
    return gf_fault_set(&tcp->link.fault, GF_ERR_SYSTEM, GF_RANK_NONE, "epoll", errno,
                        "link: no epoll descriptor, or it takes no other: %s", strerror(errno));
}

static void wakes_give(struct gf_tcp_link *tcp)
{
    int fd = tcp->epoll_fd;
    tcp->epoll_fd = tcp->link.wake_fd = -1; /* first: for a child that is forked meanwhile */
    if (fd >= 0) (void)close(fd);
}

static void network_log(const struct gf_tcp_link *tcp)
{
    if (tcp->setup.adopts) return;
    gf_log_line(&tcp->setup.log, GF_LOG_INFO, "link: sockets, %u a pair, devices %s",
                tcp->setup.streams, (tcp->devices[0] != '\0') ? tcp->devices : "any");
}

static gf_status setup_check(const struct gf_link_setup *filled, struct gf_fault *fault_out)
{
    if ((filled->streams <= TCP_STREAMS_MAX) && (filled->message_bytes_max <= UINT32_MAX / 2) &&
        (filled->credit_bytes <= UINT32_MAX / 2))
        return GF_OK;
    return gf_fault_set(
        fault_out, GF_ERR_CONFIG, GF_RANK_NONE, "", 0,
        "link: %u streams, messages of %zu bytes, credit of %u: at most %u, and 2 GiB each",
        filled->streams, filled->message_bytes_max, filled->credit_bytes, TCP_STREAMS_MAX);
}

static gf_status open_link(const struct gf_link_setup *setup, void *state,
                           struct gf_link **link_out, struct gf_fault *fault_out)
{
    struct gf_tcp_link *tcp = state;
    const struct gf_link_setup filled = setup_filled(setup);
    struct parts parts = {state, 0};
    gf_status status;
    GF_ASSERT((((uintptr_t)state & 63) == 0) && (setup->world <= setup->ranks_max) &&
              (setup->rank < setup->world) && (setup->requests_max > 0));
    if ((status = setup_check(&filled, fault_out)) != GF_OK) return status;
    gf_link_begin(&tcp->link, setup, &gf_link_tcp);
    memset((char *)tcp + sizeof tcp->link, 0, sizeof *tcp - sizeof tcp->link);
    tcp->setup = filled;
    tcp->epoll_fd = -1;
    tcp->gone_ns = TCP_GONE_NS;
    tcp->calls = 1;
    lay(&filled, &parts);
    peers_init(tcp);
    gf_data_init(tcp->data, &tcp->setup);
    tcp->forked.close = forked_close;
    gf_forked_add(&tcp->forked);
    status = setup->adopts ? GF_OK : gf_tcp_network_take(tcp);
    if (status == GF_OK) status = wakes_take(tcp);
    if (status != GF_OK) {
        *fault_out = tcp->link.fault;
        close_link(&tcp->link);
        return status;
    }
    tcp->is_open = true;
    network_log(tcp);
    *link_out = &tcp->link;
    return GF_OK;
}

/* Has the kernel of some peer not acknowledged all that was sent? */
static bool leaves(struct gf_tcp_link *tcp)
{
    for (uint32_t id = 0; id < tcp->setup.world; id++) {
        for (uint32_t s = 0; (id != tcp->setup.rank) && (s < tcp->setup.streams); s++) {
            const struct gf_tcp_stream *stream = &tcp->peers[id].streams[s];
            int unsent = 0;
            if ((stream->fd < 0) || tcp->peers[id].ended) continue;
            if (stream->batch_done < stream->batch_bytes) return true;
            if ((ioctl(stream->fd, SIOCOUTQ, &unsent) == 0) && (unsent > 0)) return true;
        }
    }
    return false;
}

/* The kernel resets a connection that is closed while it holds unread bytes, and drops what was
 * sent and has not arrived, which some peer may still need. */
static void flush(struct gf_tcp_link *tcp)
{
    uint64_t until_ns = gf_clock_monotonic.now_ns(&gf_clock_monotonic) + FLUSH_NS;
    while (leaves(tcp) && (gf_clock_monotonic.now_ns(&gf_clock_monotonic) < until_ns)) {
        (void)poll(NULL, 0, 1);
        events_take(tcp);
        (void)ready_serve(tcp);
    }
}

/* All connections of the generation, and what was under way on them. */
static void network_drop(struct gf_tcp_link *tcp)
{
    gf_tcp_network_give(tcp);
    for (uint32_t id = 0; id < tcp->setup.world; id++) {
        if (id != tcp->setup.rank) gf_tcp_peer_close(&tcp->peers[id]);
    }
    while (tcp->oldest != NULL) gf_tcp_req_end(tcp->oldest, GF_ERR_ABORTED);
    tcp->ready = NULL;
    tcp->ready_last = NULL;
    tcp->gone_count = 0;
    tcp->streams_open = 0;
    peers_init(tcp);
}

static void drop(struct gf_link *link)
{
    struct gf_tcp_link *tcp = tcp_of(link);
    tcp->is_open = false;
    network_drop(tcp);
}

static gf_status reset(struct gf_link *link, uint32_t generation, uint32_t rank, uint32_t world)
{
    struct gf_tcp_link *tcp = tcp_of(link);
    struct parts parts = {(unsigned char *)tcp, 0};
    gf_status status;
    GF_ASSERT((world <= tcp->setup.ranks_max) && (rank < world));
    tcp->is_open = false;
    network_drop(tcp);
    wakes_give(tcp);
    tcp->setup.generation = generation;
    tcp->setup.rank = rank;
    tcp->setup.world = world;
    lay(&tcp->setup, &parts);
    peers_init(tcp);
    tcp->link.failed = GF_OK;
    tcp->link.fault = (struct gf_fault){.code = GF_OK};
    status = tcp->setup.adopts ? GF_OK : gf_tcp_network_take(tcp);
    if (status == GF_OK) status = wakes_take(tcp);
    tcp->is_open = status == GF_OK;
    return status;
}

static void close_link(struct gf_link *link)
{
    struct gf_tcp_link *tcp = tcp_of(link);
    flush(tcp);
    network_drop(tcp);
    gf_data_close(tcp->data);
    wakes_give(tcp);
    gf_forked_remove(&tcp->forked);
}

const struct gf_link_driver gf_link_tcp = {
    .name = "tcp",
    .req_size_bytes = sizeof(struct gf_req),
    .endpoint_bytes_max = TCP_ENDPOINT_BYTES_MAX,
    .state_bytes = state_bytes,
    .open = open_link,
    .close = close_link,
    .endpoint = gf_tcp_endpoint,
    .connect = gf_tcp_connect,
    .send_post = send_post,
    .recv_post = recv_post,
    .test = gf_req_answer,
    .cancel = cancel,
    .progress = progress,
    .edge_is_broken = gf_tcp_edge_is_broken,
    .arm = arm,
    .reset = reset,
    .drop = drop,
};
