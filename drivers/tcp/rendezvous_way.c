/* Who dials: a way and its tries (rendezvous_tcp_state.h has their states).
 *
 *     a try begins       at once; TCP_BOUND_.. after one that is still open; TCP_RETRY_.. after the
 *                        last open one has ended
 *     one gives way      to the next, where all are open: the youngest that has not said its hello,
 *                        for only a hello can have been taken. If all have, none begins: what
 *                        listens there talks
 *     all end            when one is answered, and with the way */
#include "drivers/tcp/rendezvous_tcp_state.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static uint32_t about_of(const struct tcp *tcp, const struct way *way, const struct try *one)
{
    uint32_t number = 0;
    if (way == &tcp->aside)
        number = TCP_WAY_ASIDE;
    else if (way != &tcp->way)
        number = 1 + (uint32_t)(way - tcp->data.dials);
    return TCP_ABOUT_TRY | (number * TCP_TRIES_MAX + (uint32_t)(one - way->tries));
}

static void try_close(struct try *one)
{
    if ((one->state != TCP_TRY_FREE) && (one->fd >= 0)) gf_socket_reset(&one->fd);
    one->state = TCP_TRY_FREE;
    one->fd = -1;
    one->in_bytes = 0;
}

static void tries_close(struct way *way)
{
    for (uint32_t i = 0; i < TCP_TRIES_MAX; i++) try_close(&way->tries[i]);
}

/* An acceptor that takes the hello of a connection which is closed without a word believes that its
 * process has ended. */
static void try_leave(const struct tcp *tcp, const struct way *way, struct try *one)
{
    unsigned char left[TCP_ANSWER_BYTES_MAX];
    struct gf_auth_mac in;
    struct gf_auth_mac out;
    if (one->state != TCP_TRY_ANSWER) return;
    gf_talk_macs(&way->auth, one->said, &in, &out);
    size_t bytes = gf_talk_frame_put(tcp, GF_FRAME_LEFT, way->auth.on, &out, left);
    (void)send(one->fd, left, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(one->fd, SHUT_WR);
    gf_socket_close(&one->fd);
}

void gf_way_close(const struct tcp *tcp, struct way *way)
{
    for (uint32_t i = 0; (way->kind == GF_FRAME_HELLO) && (i < TCP_TRIES_MAX); i++)
        try_leave(tcp, way, &way->tries[i]);
    tries_close(way);
    way->on = false;
    gf_auth_forget(&way->auth, sizeof way->auth);
    gf_auth_forget(&way->mac_in, sizeof way->mac_in);
    gf_auth_forget(&way->mac_out, sizeof way->mac_out);
}

void gf_way_begin(struct tcp *tcp, struct way *way, uint64_t now_ns)
{
    tries_close(way);
    gf_auth_nonce(&tcp->source, way->nonce);
    way->on = true;
    way->reached = way->heard = false;
    way->began_ns = way->next_ns = now_ns;
    way->retry_ns = TCP_RETRY_FIRST_NS;
    way->bound_ns = TCP_BOUND_FIRST_NS;
    way->tried = 0;
    way->error = way->kernel_error = 0;
    way->text[0] = '\0';
}

static bool tries_are_open(const struct way *way)
{
    for (uint32_t i = 0; i < TCP_TRIES_MAX; i++)
        if (way->tries[i].state != TCP_TRY_FREE) return true;
    return false;
}

/* The try has come to nothing. */
__attribute__((format(printf, 6, 7))) static way_news try_end(struct way *way, struct try *one,
                                                              uint64_t now_ns, way_news news,
                                                              int error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(way->text, sizeof way->text, format, arguments);
    va_end(arguments);
    way->error = error;
    try_close(one);
    if (tries_are_open(way)) return news;
    way->next_ns = now_ns + way->retry_ns;
    way->retry_ns = (2 * way->retry_ns < TCP_RETRY_MAX_NS) ? 2 * way->retry_ns : TCP_RETRY_MAX_NS;
    return news;
}

static way_news try_failed(struct way *way, struct try *one, uint64_t now_ns, int error)
{
    way->kernel_error = error;
    return try_end(way, one, now_ns, TCP_WAY_ENDED, error, "%s%s%s (errno %d)", way->name,
                   (way->name[0] != '\0') ? ": " : "", strerror(error), error);
}

/* Who listens at the name is another user's process, so the rank that should is not there. */
static way_news name_is_anothers(struct way *way, struct try *one, uint64_t now_ns, uint32_t user)
{
    return try_end(way, one, now_ns, TCP_WAY_ENDED, ECONNREFUSED,
                   "user %u listens at %s, this rank is of user %u: without a key_file all ranks "
                   "run as one user",
                   user, way->name, (unsigned)geteuid());
}

static struct try *try_find(struct way *way)
{
    struct try *found = NULL;
    for (uint32_t i = 0; i < TCP_TRIES_MAX; i++) {
        struct try *one = &way->tries[i];
        if (one->state == TCP_TRY_FREE) return one;
        if (one->state == TCP_TRY_ANSWER) continue;
        if ((found == NULL) || (one->began_ns > found->began_ns)) found = one;
    }
    return found;
}

static void reached(struct way *way, uint64_t now_ns)
{
    if (!way->reached) way->reached_ns = now_ns;
    way->reached = true;
}

way_news gf_way_poll(struct tcp *tcp, struct way *way, uint64_t now_ns)
{
    uint32_t user = 0;
    if (!way->on || (now_ns < way->next_ns)) return TCP_WAY_NOTHING;
    bool silent = tries_are_open(way);
    way->next_ns = now_ns + way->bound_ns;
    if (silent) {
        (void)snprintf(way->text, sizeof way->text, "no answer for %u ms",
                       (unsigned)((now_ns - way->began_ns) / 1000000u));
        way->error = 0;
        way->bound_ns =
            (2 * way->bound_ns < TCP_BOUND_MAX_NS) ? 2 * way->bound_ns : TCP_BOUND_MAX_NS;
    }
    struct try *one = try_find(way);
    if (one == NULL) return TCP_WAY_NOTHING;
    try_close(one);
    way->tried++;
    one->began_ns = now_ns;
    bool named = (way->name[0] != '\0');
    one->fd = named ? gf_socket_name_connect(way->name, &user)
                    : gf_socket_connect_by(&way->to, &way->from, gf_tcp_device_of_try(way),
                                           tcp->setup.keepalive_ns);
    if ((one->fd < 0) && named && (errno == EPERM)) return name_is_anothers(way, one, now_ns, user);
    if (one->fd < 0) return try_failed(way, one, now_ns, errno);
    one->state = named ? TCP_TRY_NONCE : TCP_TRY_CONNECTING;
    if (named) reached(way, now_ns);
    if (gf_tcp_epoll_set(tcp, EPOLL_CTL_ADD, one->fd, about_of(tcp, way, one),
                         named ? EPOLLIN : EPOLLOUT) != GF_OK)
        return try_failed(way, one, now_ns, errno);
    return TCP_WAY_NOTHING;
}

static way_news connected(struct tcp *tcp, struct way *way, struct try *one, uint64_t now_ns)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(one->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
    if ((error == 0) && gf_socket_met_itself(one->fd)) error = ECONNREFUSED;
    if (error != 0) return try_failed(way, one, now_ns, error);
    reached(way, now_ns);
    one->state = TCP_TRY_NONCE;
    (void)gf_tcp_epoll_set(tcp, EPOLL_CTL_MOD, one->fd, about_of(tcp, way, one), EPOLLIN);
    return TCP_WAY_NOTHING;
}

/* How long the frame is that begins with this header; 0: nothing that is said at this point. */
static uint32_t frame_bytes(const struct way *way, const struct try *one,
                            const struct gf_frame_header *header)
{
    uint32_t payload = header->payload_bytes;
    if ((header->magic != GF_FRAME_MAGIC) || (header->header_bytes != GF_FRAME_HEADER_BYTES))
        return 0;
    if (one->state == TCP_TRY_NONCE) {
        bool nonce = (header->kind == GF_FRAME_NONCE) && (payload == GF_FRAME_NONCE_BYTES);
        return nonce ? TCP_NONCE_FRAME_BYTES : 0;
    }
    if ((header->kind == GF_FRAME_REFUSAL) && (payload == GF_FRAME_REFUSAL_BYTES))
        return TCP_REFUSAL_BYTES;
    if ((header->kind == GF_FRAME_ELSEWHERE) && (payload == GF_FRAME_ELSEWHERE_BYTES))
        return TCP_ELSEWHERE_BYTES;
    if ((header->kind != GF_FRAME_ANSWER) || (payload != 0)) return 0;
    return way->auth.on ? TCP_ANSWER_BYTES_MAX : GF_FRAME_HEADER_BYTES;
}

static way_news stranger(struct way *way, struct try *one, uint64_t now_ns, const char *what)
{
    return try_end(way, one, now_ns, TCP_WAY_STRANGER, 0, "what listens there %s", what);
}

/* Another rank of this job may have the port by now; what is of another job says so itself. */
static way_news hello_say(struct tcp *tcp, struct way *way, struct try *one, uint64_t now_ns)
{
    const struct gf_frame_header header = gf_frame_header_get(one->in);
    bool is_first = (way == &tcp->way) && !tcp->reformed; /* it has the job's address from rank 0 */
    way->heard = true;
    if ((way->to_rank != GF_RANK_NONE) && (header.from != way->to_rank) &&
        (header.job_id == tcp->setup.job_id))
        return try_end(way, one, now_ns, TCP_WAY_STRANGER, 0,
                       "what listens there is rank %u, not rank %u%s", header.from, way->to_rank,
                       is_first ? ": a rank that comes back wants GF_REJOIN=1" : "");
    memcpy(one->said, one->in, TCP_NONCE_FRAME_BYTES);
    gf_talk_hello_put(tcp, way, one->said);
    if (send(one->fd, one->said + TCP_NONCE_FRAME_BYTES, TCP_HELLO_FRAME_BYTES,
             MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)TCP_HELLO_FRAME_BYTES)
        return try_failed(way, one, now_ns, errno);
    tcp->base.sent_bytes += TCP_HELLO_FRAME_BYTES;
    one->state = TCP_TRY_ANSWER;
    one->in_bytes = 0;
    return TCP_WAY_NOTHING;
}

/* Where a member said that the coordinator is, another job may be by now. */
static way_news refusal_news(const struct tcp *tcp, const struct way *way,
                             const struct gf_frame_header *header)
{
    bool told = (way == &tcp->aside) && tcp->rejoins;
    return (told && (header->job_id != tcp->setup.job_id)) ? TCP_WAY_STRANGER : TCP_WAY_REFUSED;
}

static way_news answer_take(struct tcp *tcp, struct way *way, struct try *one, uint64_t now_ns)
{
    const struct gf_frame_header header = gf_frame_header_get(one->in);
    if (header.kind == GF_FRAME_REFUSAL) {
        char reason[GF_FRAME_REASON_BYTES];
        way->code = gf_talk_refusal_get(one->in + GF_FRAME_HEADER_BYTES, reason);
        return try_end(way, one, now_ns, refusal_news(tcp, way, &header), 0, "%s", reason);
    }
    if (header.kind == GF_FRAME_ELSEWHERE) {
        char address[GF_CONTROL_ADDRESS_BYTES];
        gf_talk_elsewhere_get(one->in + GF_FRAME_HEADER_BYTES, address);
        return try_end(way, one, now_ns, TCP_WAY_ELSEWHERE, 0, "%s", address);
    }
    gf_talk_macs(&way->auth, one->said, &way->mac_in, &way->mac_out);
    if (way->auth.on && !gf_auth_mac_fits(&way->mac_in, one->in, GF_FRAME_HEADER_BYTES,
                                          one->in + GF_FRAME_HEADER_BYTES))
        return stranger(way, one, now_ns, "did not prove that it has the same key");
    if ((header.from == tcp->setup.rank) || (header.from >= tcp->setup.world) ||
        ((way->to_rank != GF_RANK_NONE) && (header.from != way->to_rank)))
        return try_end(way, one, now_ns, TCP_WAY_STRANGER, 0,
                       "what listens there calls itself rank %u of %u", header.from,
                       tcp->setup.world);
    (void)epoll_ctl(tcp->epoll_fd, EPOLL_CTL_DEL, one->fd, NULL);
    way->fd = one->fd;
    way->from_rank = header.from;
    one->fd = -1;
    tries_close(way);
    way->on = false;
    return TCP_WAY_IN;
}

way_news gf_way_event(struct tcp *tcp, struct way *way, uint32_t slot, uint64_t now_ns)
{
    struct try *one = &way->tries[slot];
    if (one->state == TCP_TRY_FREE) return TCP_WAY_NOTHING;
    if (one->state == TCP_TRY_CONNECTING) return connected(tcp, way, one, now_ns);
    gf_status status = gf_socket_read(one->fd, one->in, &one->in_bytes, GF_FRAME_HEADER_BYTES);
    if (status == GF_OK) {
        const struct gf_frame_header header = gf_frame_header_get(one->in);
        uint32_t bytes = frame_bytes(way, one, &header);
        if ((header.magic == GF_FRAME_MAGIC) && (header.protocol != GF_FRAME_PROTOCOL)) {
            way->code = GF_ERR_MISMATCH;
            return try_end(way, one, now_ns, refusal_news(tcp, way, &header), 0,
                           "protocol version %u there, %u at rank %u", header.protocol,
                           GF_FRAME_PROTOCOL, tcp->setup.rank);
        }
        if (bytes == 0) return stranger(way, one, now_ns, "is not a rank of a GradientFlow job");
        status = gf_socket_read(one->fd, one->in, &one->in_bytes, bytes);
    }
    if (status == GF_AGAIN) return TCP_WAY_NOTHING;
    if (status < 0) return try_failed(way, one, now_ns, (errno != 0) ? errno : ECONNRESET);
    return (one->state == TCP_TRY_NONCE) ? hello_say(tcp, way, one, now_ns)
                                         : answer_take(tcp, way, one, now_ns);
}
