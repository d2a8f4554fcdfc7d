/* Who accepts (meet.h): anybody may connect, and has a slot until a whole hello is here. */
#include "drivers/tcp/meet.h"
#include "drivers/descriptors.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define REST_NS UINT64_C(100000000)
/* A process that lacks what connections take has room for some of them: one that comes soon
 * afterwards does not show that the others will. Who dials tries again each 0.2 s. */
#define LACK_NS UINT64_C(1000000000)

static void stranger_log(struct meet *meet, gf_log_level level, const char *what)
{
    if (!gf_log_due(++meet->strangers)) return;
    gf_log_line(&meet->log, level, "%s at %s: %s (%u connections rejected so far)", meet->what,
                meet->address_text, what, meet->strangers);
}

/* ---- slots ---- */

void gf_door_init(struct meet *meet, struct pending *pending, struct source *sources,
                  uint32_t count)
{
    meet->pending = pending;
    meet->sources = sources;
    meet->pending_count = count;
    for (uint32_t i = 0; i < count; i++) {
        pending[i].fd = -1;
        sources[i] = (struct source){.held = 0};
    }
}

void gf_door_forked(const struct meet *meet)
{
    for (uint32_t i = 0; i < meet->pending_count; i++) (void)close(meet->pending[i].fd);
}

int gf_door_keep(struct meet *meet, struct pending *pending)
{
    int fd = pending->fd;
    pending->fd = -1;
    meet->sources[pending->source].held--;
    (void)epoll_ctl(meet->strangers_fd, EPOLL_CTL_DEL, fd, NULL); /* where it may be watched */
    return fd;
}

/* A reset: one packet, and nothing that the kernel keeps until the other end has answered. */
void gf_door_discard(struct meet *meet, struct pending *pending)
{
    if (pending->fd < 0) return;
    int fd = gf_door_keep(meet, pending);
    gf_socket_reset(&fd);
}

void gf_door_drop(struct meet *meet, struct pending *pending, gf_log_level level, const char *what)
{
    gf_door_discard(meet, pending);
    stranger_log(meet, level, what);
}

void gf_door_close(struct meet *meet)
{
    for (uint32_t i = 0; i < meet->pending_count; i++) gf_door_discard(meet, &meet->pending[i]);
}

/* The slot of that address; a free one where it has none. */
static uint32_t source_find(const struct meet *meet, const struct gf_place *place)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < meet->pending_count; i++) {
        const struct source *source = &meet->sources[i];
        if (source->held == 0)
            found = i;
        else if (memcmp(&source->place, place, sizeof *place) == 0)
            return i;
    }
    return found;
}

/* Does `a` give way before `b`? */
static bool goes_before(const struct meet *meet, const struct pending *a, const struct pending *b)
{
    uint32_t a_holds = meet->sources[a->source].held;
    uint32_t b_holds = meet->sources[b->source].held;
    return (a_holds != b_holds) ? (a_holds > b_holds) : (a->number < b->number);
}

/* A free slot; full: the one whose connection gives way. */
static struct pending *slot_find(const struct meet *meet, bool full)
{
    struct pending *found = NULL;
    for (uint32_t i = 0; i < meet->pending_count; i++) {
        struct pending *pending = &meet->pending[i];
        if ((pending->fd < 0) && !full) return pending;
        if ((pending->fd >= 0) && ((found == NULL) || goes_before(meet, pending, found)))
            found = pending;
    }
    return (found != NULL) ? found : &meet->pending[0];
}

/* ---- refusals ---- */

/* Reasons are for ranks that were started wrongly, and those are few: in a flood most hear none. */
static bool reason_is_due(struct meet *meet, const struct pending *pending)
{
    if (pending->since_ns >= meet->reasons_since_ns + MEET_REASONS_NS) {
        meet->reasons_since_ns = pending->since_ns;
        meet->reasons = 0;
    }
    return ++meet->reasons <= MEET_REASONS_MAX;
}

void gf_door_turn_away(struct meet *meet, struct pending *pending, gf_status code,
                       const char *reason)
{
    unsigned char refusal[MEET_REFUSAL_BYTES];
    unsigned char sink[512];
    gf_talk_put_refusal(meet, code, reason, refusal);
    int fd = gf_door_keep(meet, pending);
    /* A new socket has room for it. */
    (void)send(fd, refusal, sizeof refusal, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(fd, SHUT_WR);
    /* unread bytes would turn the frame into a reset */
    (void)recv(fd, sink, sizeof sink, MSG_DONTWAIT);
    gf_socket_close(&fd);
}

void gf_door_refuse(struct meet *meet, struct pending *pending, bool believed, gf_status code)
{
    char what[sizeof meet->text + 32];
    (void)snprintf(what, sizeof what, "refused a rank: %s", meet->text);
    stranger_log(meet, GF_LOG_WARN, what);
    if (believed || reason_is_due(meet, pending))
        gf_door_turn_away(meet, pending, code, meet->text);
    else
        gf_door_discard(meet, pending);
}

/* ---- a new connection ---- */

gf_status gf_door_listen(struct meet *meet, int fd)
{
    return gf_meet_epoll_set(meet, EPOLL_CTL_ADD, fd, MEET_ABOUT_LISTENER | (uint32_t)fd, EPOLLIN);
}

/* At a unix socket: whose is it? */
static void user_check(struct meet *meet, struct pending *pending)
{
    uint32_t user = 0;
    if (!gf_socket_user(pending->fd, &user)) {
        gf_door_drop(meet, pending, GF_LOG_ERROR, "the kernel does not say whose it is");
        return;
    }
    pending->by_name = (user == geteuid());
    if (pending->by_name) return;
    (void)gf_meet_because(meet, GF_ERR_MISMATCH,
                          "user %u at the other end, this job is of user %u: without a key_file "
                          "all ranks run as one user",
                          user, (unsigned)geteuid());
    gf_door_refuse(meet, pending, false, GF_ERR_MISMATCH);
}

void gf_door_served(struct meet *meet, uint64_t at_ns)
{
    if (at_ns >= meet->lacked_ns + LACK_NS) meet->lacks = 0;
}

static void lack(struct meet *meet, int error, uint64_t now_ns)
{
    meet->lacks = error;
    meet->lacked_ns = now_ns;
}

/* Who asks to be let in stays in the listener, which would wake a sleeper at once, again and again. */
static void rest(struct meet *meet, uint64_t now_ns)
{
    meet->rest_until_ns = now_ns + REST_NS;
    (void)epoll_ctl(meet->epoll_fd, EPOLL_CTL_DEL, meet->strangers_fd, NULL);
}

void gf_door_turn(struct meet *meet, uint64_t now_ns)
{
    if ((meet->rest_until_ns == 0) || (now_ns < meet->rest_until_ns)) return;
    meet->rest_until_ns = 0;
    (void)gf_meet_epoll_set(meet, EPOLL_CTL_ADD, meet->strangers_fd, MEET_ABOUT_STRANGERS, EPOLLIN);
}

static void accept_failed(struct meet *meet, uint64_t now_ns)
{
    if ((errno == ENOMEM) || (errno == ENOBUFS)) lack(meet, errno, now_ns);
    if ((errno != EMFILE) && (errno != ENFILE)) return; /* a connection that has gone already */
    lack(meet, errno, now_ns);
    stranger_log(meet, GF_LOG_ERROR, "accept: no file descriptor left");
    rest(meet, now_ns);
}

static void door_accept(struct meet *meet, int listen_fd, uint64_t now_ns)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    struct gf_place from = {0};
    int fd = gf_descriptor_keep(
        accept4(listen_fd, (struct sockaddr *)&address, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd < 0) {
        accept_failed(meet, now_ns);
        return;
    }
    /* from fd_most on a new connection costs an older one */
    if ((uint32_t)fd >= meet->fd_most) lack(meet, EMFILE, now_ns);
    struct pending *pending = slot_find(meet, (uint32_t)fd >= meet->fd_most);
    if (pending->fd >= 0)
        gf_door_drop(meet, pending, GF_LOG_WARN,
                     "too many connections that do not say who they are, dropped the "
                     "oldest of the address that has most");
    (void)gf_place_of(&address, &from);
    from.port = 0;
    pending->in_bytes = 0;
    pending->source = source_find(meet, &from);
    pending->number = meet->accepted++;
    pending->since_ns = now_ns;
    pending->by_name = false;
    memset(pending->said, 0, sizeof pending->said); /* a hello of another protocol may be shorter */
    pending->fd = fd; /* last, and at no time 0: another thread may fork */
    struct source *source = &meet->sources[pending->source];
    source->place = from;
    source->held++;
    if (address.ss_family == AF_UNIX) user_check(meet, pending);
    if (pending->fd < 0) return;
    uint32_t slot = (uint32_t)(pending - meet->pending);
    gf_talk_put_nonce(meet, pending->said);
    if ((send(fd, pending->said, MEET_NONCE_BYTES, MSG_NOSIGNAL | MSG_DONTWAIT) !=
         (ssize_t)MEET_NONCE_BYTES) ||
        (gf_meet_epoll_set(meet, EPOLL_CTL_ADD, fd, MEET_ABOUT_PENDING | slot, EPOLLIN) != GF_OK))
        gf_door_discard(meet, pending);
}

/* ---- what comes ---- */

/* False: they are not all here, or never will be. */
static bool pending_has(struct meet *meet, struct pending *pending, uint32_t want)
{
    gf_status status =
        gf_socket_read(pending->fd, pending->said + MEET_NONCE_BYTES, &pending->in_bytes, want);
    if (status < 0)
        gf_door_drop(meet, pending, GF_LOG_INFO, "a connection ended before it said who it is");
    return status == GF_OK;
}

static struct pending *hello_read(struct meet *meet, struct pending *pending)
{
    if ((pending->fd < 0) || !pending_has(meet, pending, GF_FRAME_HEADER_BYTES)) return NULL;
    const struct gf_frame_header header = gf_talk_header_of(pending->said);
    /* A hello of another protocol version may have any size; its header is enough to refuse it. */
    bool foreign = (header.protocol != GF_FRAME_PROTOCOL);
    if ((header.magic != GF_FRAME_MAGIC) || (header.header_bytes < GF_FRAME_HEADER_BYTES) ||
        (!foreign &&
         ((header.kind != meet->hello_kind) || (header.payload_bytes != GF_FRAME_HELLO_BYTES) ||
          (header.header_bytes != GF_FRAME_HEADER_BYTES)))) {
        gf_door_drop(meet, pending, GF_LOG_WARN, "a stranger's bytes are no hello");
        return NULL;
    }
    if (!foreign && !pending_has(meet, pending, MEET_HELLO_BYTES)) return NULL;
    if (foreign) /* what there is */
        (void)gf_socket_read(pending->fd, pending->said + MEET_NONCE_BYTES, &pending->in_bytes,
                             MEET_HELLO_BYTES);
    return pending;
}

struct pending *gf_door_take(struct meet *meet, uint32_t about, uint64_t now_ns)
{
    if ((about & MEET_ABOUT_LISTENER) != MEET_ABOUT_LISTENER)
        return hello_read(meet, &meet->pending[about & ~MEET_ABOUT_PENDING]);
    door_accept(meet, (int)(about & ~MEET_ABOUT_LISTENER), now_ns);
    return NULL;
}
