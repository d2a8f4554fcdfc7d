/* The accepting end (handshake.h): anybody may connect, and a connection has a slot until its
 * whole hello has arrived. */
#include "drivers/tcp/handshake.h"
#include "drivers/base/descriptors.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define REST_NS UINT64_C(100000000)
/* A process that lacks descriptors or memory has them for some connections: one that is accepted
 * soon afterwards does not show that the others will be. A dialler tries again each 0.2 s. */
#define LACK_NS UINT64_C(1000000000)

static void stranger_log(struct handshake *handshake, gf_log_level level, const char *what)
{
    if (!gf_log_due(++handshake->strangers)) return;
    gf_log_line(&handshake->log, level, "%s at %s: %s (%u connections rejected so far)",
                handshake->what, handshake->address_text, what, handshake->strangers);
}

/* ---- slots ---- */

void gf_accept_init(struct handshake *handshake, struct pending *pending, struct source *sources,
                    uint32_t count)
{
    handshake->pending = pending;
    handshake->sources = sources;
    handshake->pending_count = count;
    for (uint32_t i = 0; i < count; i++) {
        pending[i].fd = -1;
        sources[i] = (struct source){.held = 0};
    }
}

void gf_accept_forked(const struct handshake *handshake)
{
    for (uint32_t i = 0; i < handshake->pending_count; i++) (void)close(handshake->pending[i].fd);
}

int gf_accept_keep(struct handshake *handshake, struct pending *pending)
{
    int fd = pending->fd;
    pending->fd = -1;
    handshake->sources[pending->source].held--;
    (void)epoll_ctl(handshake->strangers_fd, EPOLL_CTL_DEL, fd, NULL); /* where it may be watched */
    return fd;
}

/* A reset: one packet, and nothing that the kernel keeps until the other end has answered. */
void gf_accept_discard(struct handshake *handshake, struct pending *pending)
{
    if (pending->fd < 0) return;
    int fd = gf_accept_keep(handshake, pending);
    gf_socket_reset(&fd);
}

void gf_accept_drop(struct handshake *handshake, struct pending *pending, gf_log_level level,
                    const char *what)
{
    gf_accept_discard(handshake, pending);
    stranger_log(handshake, level, what);
}

void gf_accept_close(struct handshake *handshake)
{
    for (uint32_t i = 0; i < handshake->pending_count; i++)
        gf_accept_discard(handshake, &handshake->pending[i]);
}

/* The slot of that address; a free one where it has none. */
static uint32_t source_find(const struct handshake *handshake, const struct gf_addr *addr)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < handshake->pending_count; i++) {
        const struct source *source = &handshake->sources[i];
        if (source->held == 0)
            found = i;
        else if (memcmp(&source->addr, addr, sizeof *addr) == 0)
            return i;
    }
    return found;
}

/* Is `a` dropped before `b`? */
static bool goes_before(const struct handshake *handshake, const struct pending *a,
                        const struct pending *b)
{
    uint32_t a_holds = handshake->sources[a->source].held;
    uint32_t b_holds = handshake->sources[b->source].held;
    return (a_holds != b_holds) ? (a_holds > b_holds) : (a->number < b->number);
}

/* A free slot; where all are taken, the one whose connection is dropped. */
static struct pending *slot_find(const struct handshake *handshake, bool full)
{
    struct pending *found = NULL;
    for (uint32_t i = 0; i < handshake->pending_count; i++) {
        struct pending *pending = &handshake->pending[i];
        if ((pending->fd < 0) && !full) return pending;
        if ((pending->fd >= 0) && ((found == NULL) || goes_before(handshake, pending, found)))
            found = pending;
    }
    return (found != NULL) ? found : &handshake->pending[0];
}

/* ---- refusals ---- */

/* Reasons are for ranks that were started wrongly, which are few: in a flood most get none. */
static bool reason_is_due(struct handshake *handshake, const struct pending *pending)
{
    if (pending->since_ns >= handshake->reasons_since_ns + HANDSHAKE_REASONS_NS) {
        handshake->reasons_since_ns = pending->since_ns;
        handshake->reasons = 0;
    }
    return ++handshake->reasons <= HANDSHAKE_REASONS_MAX;
}

void gf_accept_reject(struct handshake *handshake, struct pending *pending, gf_status code,
                      const char *reason)
{
    unsigned char refusal[HANDSHAKE_REFUSAL_BYTES];
    unsigned char sink[512];
    gf_handshake_put_refusal(handshake, code, reason, refusal);
    int fd = gf_accept_keep(handshake, pending);
    /* A new socket has room for it. */
    (void)send(fd, refusal, sizeof refusal, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(fd, SHUT_WR);
    /* unread bytes would turn the frame into a reset */
    (void)recv(fd, sink, sizeof sink, MSG_DONTWAIT);
    gf_socket_close(&fd);
}

void gf_accept_refuse(struct handshake *handshake, struct pending *pending, bool believed,
                      gf_status code)
{
    char what[sizeof handshake->text + 32];
    (void)snprintf(what, sizeof what, "refused a rank: %s", handshake->text);
    stranger_log(handshake, GF_LOG_WARN, what);
    handshake->refused++;
    if (believed || reason_is_due(handshake, pending))
        gf_accept_reject(handshake, pending, code, handshake->text);
    else
        gf_accept_discard(handshake, pending);
}

/* ---- a new connection ---- */

gf_status gf_accept_listen(struct handshake *handshake, int fd)
{
    return gf_handshake_epoll_set(handshake, EPOLL_CTL_ADD, fd,
                                  HANDSHAKE_ABOUT_LISTENER | (uint32_t)fd, EPOLLIN);
}

/* At a unix socket: is it of this user? */
static void user_check(struct handshake *handshake, struct pending *pending)
{
    uint32_t user = 0;
    if (!gf_socket_user(pending->fd, &user)) {
        gf_accept_drop(handshake, pending, GF_LOG_ERROR, "the kernel does not say whose it is");
        return;
    }
    pending->by_name = (user == geteuid());
    if (pending->by_name) return;
    (void)gf_handshake_because(
        handshake, GF_ERR_MISMATCH,
        "user %u at the other end, this job is of user %u: without a key_file "
        "all ranks run as one user",
        user, (unsigned)geteuid());
    gf_accept_refuse(handshake, pending, false, GF_ERR_MISMATCH);
}

void gf_accept_served(struct handshake *handshake, uint64_t at_ns)
{
    if (at_ns >= handshake->lacked_ns + LACK_NS) handshake->lacks = 0;
}

static void lack(struct handshake *handshake, int error, uint64_t now_ns)
{
    handshake->lacks = error;
    handshake->lacked_ns = now_ns;
}

/* A connection that is not accepted stays in the listener's queue, which would wake a sleeper at
 * once, again and again. */
static void rest(struct handshake *handshake, uint64_t now_ns)
{
    handshake->rest_until_ns = now_ns + REST_NS;
    (void)epoll_ctl(handshake->epoll_fd, EPOLL_CTL_DEL, handshake->strangers_fd, NULL);
}

void gf_accept_poll(struct handshake *handshake, uint64_t now_ns)
{
    if ((handshake->rest_until_ns == 0) || (now_ns < handshake->rest_until_ns)) return;
    handshake->rest_until_ns = 0;
    (void)gf_handshake_epoll_set(handshake, EPOLL_CTL_ADD, handshake->strangers_fd,
                                 HANDSHAKE_ABOUT_STRANGERS, EPOLLIN);
}

static void accept_failed(struct handshake *handshake, uint64_t now_ns)
{
    if ((errno == ENOMEM) || (errno == ENOBUFS)) lack(handshake, errno, now_ns);
    if ((errno != EMFILE) && (errno != ENFILE)) return; /* a connection that has gone already */
    lack(handshake, errno, now_ns);
    stranger_log(handshake, GF_LOG_ERROR, "accept: no file descriptor left");
    rest(handshake, now_ns);
}

static void pending_accept(struct handshake *handshake, int listen_fd, uint64_t now_ns)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    struct gf_addr from = {0};
    int fd = gf_descriptor_keep(
        accept4(listen_fd, (struct sockaddr *)&address, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd < 0) {
        accept_failed(handshake, now_ns);
        return;
    }
    /* from fd_most on a new connection costs an older one */
    if ((uint32_t)fd >= handshake->fd_most) lack(handshake, EMFILE, now_ns);
    struct pending *pending = slot_find(handshake, (uint32_t)fd >= handshake->fd_most);
    if (pending->fd >= 0)
        gf_accept_drop(handshake, pending, GF_LOG_WARN,
                       "too many connections that do not say who they are, dropped the "
                       "oldest of the address that has most");
    (void)gf_addr_of(&address, &from);
    from.port = 0;
    pending->in_bytes = 0;
    pending->source = source_find(handshake, &from);
    pending->number = handshake->accepted++;
    pending->since_ns = now_ns;
    pending->by_name = false;
    memset(pending->transcript, 0,
           sizeof pending->transcript); /* a hello of another protocol may be shorter */
    pending->fd = fd;                   /* last, and at no time 0: another thread may fork */
    struct source *source = &handshake->sources[pending->source];
    source->addr = from;
    source->held++;
    if (address.ss_family == AF_UNIX) user_check(handshake, pending);
    if (pending->fd < 0) return;
    uint32_t slot = (uint32_t)(pending - handshake->pending);
    gf_transcript_put_nonce(handshake, pending->transcript);
    if ((send(fd, pending->transcript, HANDSHAKE_NONCE_BYTES, MSG_NOSIGNAL | MSG_DONTWAIT) !=
         (ssize_t)HANDSHAKE_NONCE_BYTES) ||
        (gf_handshake_epoll_set(handshake, EPOLL_CTL_ADD, fd, HANDSHAKE_ABOUT_PENDING | slot,
                                EPOLLIN) != GF_OK))
        gf_accept_discard(handshake, pending);
}

/* ---- accepting ---- */

/* False: not all bytes are here, or they never will be. */
static bool pending_has(struct handshake *handshake, struct pending *pending, uint32_t want)
{
    gf_status status = gf_socket_read(pending->fd, pending->transcript + HANDSHAKE_NONCE_BYTES,
                                      &pending->in_bytes, want);
    if (status < 0)
        gf_accept_drop(handshake, pending, GF_LOG_INFO,
                       "a connection ended before it said who it is");
    return status == GF_OK;
}

static struct pending *hello_read(struct handshake *handshake, struct pending *pending)
{
    if ((pending->fd < 0) || !pending_has(handshake, pending, GF_FRAME_HEADER_BYTES)) return NULL;
    const struct gf_frame_header header = gf_transcript_header_of(pending->transcript);
    /* A hello of another protocol version may have any size; its header is enough to refuse it. */
    bool foreign = (header.protocol != GF_FRAME_PROTOCOL);
    if ((header.magic != GF_FRAME_MAGIC) || (header.header_bytes < GF_FRAME_HEADER_BYTES) ||
        (!foreign && ((header.kind != handshake->hello_kind) ||
                      (header.payload_bytes != GF_FRAME_HELLO_BYTES) ||
                      (header.header_bytes != GF_FRAME_HEADER_BYTES)))) {
        gf_accept_drop(handshake, pending, GF_LOG_WARN, "a stranger's bytes are no hello");
        return NULL;
    }
    if (!foreign && !pending_has(handshake, pending, HANDSHAKE_HELLO_BYTES)) return NULL;
    if (foreign) /* what there is */
        (void)gf_socket_read(pending->fd, pending->transcript + HANDSHAKE_NONCE_BYTES,
                             &pending->in_bytes, HANDSHAKE_HELLO_BYTES);
    return pending;
}

struct pending *gf_accept_take(struct handshake *handshake, uint32_t about, uint64_t now_ns)
{
    if ((about & HANDSHAKE_ABOUT_LISTENER) != HANDSHAKE_ABOUT_LISTENER)
        return hello_read(handshake, &handshake->pending[about & ~HANDSHAKE_ABOUT_PENDING]);
    pending_accept(handshake, (int)(about & ~HANDSHAKE_ABOUT_LISTENER), now_ns);
    return NULL;
}
