/* Who dials: a way and its tries (meet.h has their states).
 *
 *     a try begins       at once; MEET_BOUND_.. after one that is still open; MEET_RETRY_.. after
 *                        the last open one has ended
 *     one gives way      to the next, where all are open: the oldest
 *     all end            when one is answered, and with the way */
#include "drivers/tcp/meet.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

void gf_way_init(struct way *way, uint32_t number)
{
    *way = (struct way){.number = number, .fd = -1};
    for (uint32_t i = 0; i < MEET_TRIES_MAX; i++) way->tries[i].fd = -1;
}

void gf_way_forked(const struct way *way)
{
    for (uint32_t i = 0; i < MEET_TRIES_MAX; i++) (void)close(way->tries[i].fd);
}

static uint32_t about_of(const struct way *way, const struct try *one)
{
    return MEET_ABOUT_TRY | (way->number * MEET_TRIES_MAX + (uint32_t)(one - way->tries));
}

/* An acceptor that takes the hello of a connection which is closed without a word believes that its
 * process has ended. */
static void try_leave(const struct meet *meet, const struct way *way, struct try *one)
{
    unsigned char left[MEET_ANSWER_BYTES_MAX];
    struct gf_auth_mac in;
    struct gf_auth_mac out;
    gf_talk_macs_of(&way->auth, one->said, &in, &out);
    size_t bytes = gf_talk_put_frame(meet, GF_FRAME_GIVEN_UP, way->auth.on, &out, left);
    (void)send(one->fd, left, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(one->fd, SHUT_WR);
    gf_socket_close(&one->fd);
}

static void try_close(const struct meet *meet, const struct way *way, struct try *one)
{
    if ((one->state == MEET_TRY_ANSWER) && (way->kind == GF_FRAME_HELLO) && (one->fd >= 0))
        try_leave(meet, way, one);
    if ((one->state != MEET_TRY_FREE) && (one->fd >= 0)) gf_socket_reset(&one->fd);
    one->state = MEET_TRY_FREE;
    one->fd = -1;
    one->in_bytes = 0;
}

static void tries_close(const struct meet *meet, struct way *way)
{
    for (uint32_t i = 0; i < MEET_TRIES_MAX; i++) try_close(meet, way, &way->tries[i]);
}

void gf_way_end(const struct meet *meet, struct way *way)
{
    tries_close(meet, way);
    way->on = false;
    gf_auth_forget(&way->auth, sizeof way->auth);
    gf_auth_forget(&way->mac_in, sizeof way->mac_in);
    gf_auth_forget(&way->mac_out, sizeof way->mac_out);
}

void gf_way_start(struct meet *meet, struct way *way, uint64_t now_ns)
{
    tries_close(meet, way);
    gf_auth_nonce(&meet->source, way->nonce);
    way->on = true;
    way->began_ns = way->next_ns = now_ns;
    way->retry_ns = MEET_RETRY_FIRST_NS;
    way->bound_ns = MEET_BOUND_FIRST_NS;
    way->tried = 0;
    way->error = way->kernel_error = 0;
    way->text[0] = '\0';
}

bool gf_way_has_tries(const struct way *way)
{
    for (uint32_t i = 0; i < MEET_TRIES_MAX; i++)
        if (way->tries[i].state != MEET_TRY_FREE) return true;
    return false;
}

/* The try has come to nothing. */
__attribute__((format(printf, 7, 8))) static way_news try_end(const struct meet *meet,
                                                              struct way *way, struct try *one,
                                                              uint64_t now_ns, way_news news,
                                                              int error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(way->text, sizeof way->text, format, arguments);
    va_end(arguments);
    way->error = error;
    one->state = (one->state == MEET_TRY_FREE) ? MEET_TRY_FREE : MEET_TRY_CONNECTING; /* no word */
    try_close(meet, way, one);
    if (gf_way_has_tries(way)) return news;
    way->next_ns = now_ns + way->retry_ns;
    way->retry_ns = (2 * way->retry_ns < MEET_RETRY_MAX_NS) ? 2 * way->retry_ns : MEET_RETRY_MAX_NS;
    return news;
}

static way_news try_failed(const struct meet *meet, struct way *way, struct try *one,
                           uint64_t now_ns, int error)
{
    way->kernel_error = error;
    return try_end(meet, way, one, now_ns, MEET_WAY_ENDED, error, "%s%s%s (errno %d)", way->name,
                   (way->name[0] != '\0') ? ": " : "", strerror(error), error);
}

/* Who listens at the name is another user's process, so the one that should is not there. */
static way_news name_is_anothers(const struct meet *meet, struct way *way, struct try *one,
                                 uint64_t now_ns, uint32_t user)
{
    return try_end(meet, way, one, now_ns, MEET_WAY_ENDED, ECONNREFUSED,
                   "user %u listens at %s, this rank is of user %u: without a key_file all ranks "
                   "run as one user",
                   user, way->name, (unsigned)geteuid());
}

/* A free one, else the oldest. */
static struct try *try_find(struct way *way)
{
    struct try *found = &way->tries[0];
    for (uint32_t i = 0; i < MEET_TRIES_MAX; i++) {
        struct try *one = &way->tries[i];
        if (one->state == MEET_TRY_FREE) return one;
        if (one->began_ns < found->began_ns) found = one;
    }
    return found;
}

static void silence_note(struct way *way, uint64_t now_ns)
{
    (void)snprintf(way->text, sizeof way->text, "no answer for %u ms",
                   (unsigned)((now_ns - way->began_ns) / 1000000u));
    way->error = 0;
    way->bound_ns = (2 * way->bound_ns < MEET_BOUND_MAX_NS) ? 2 * way->bound_ns : MEET_BOUND_MAX_NS;
}

way_news gf_way_turn(struct meet *meet, struct way *way, uint64_t now_ns)
{
    uint32_t user = 0;
    if (!way->on || (now_ns < way->next_ns)) return MEET_WAY_NOTHING;
    bool silent = gf_way_has_tries(way);
    way->next_ns = now_ns + way->bound_ns;
    if (silent) silence_note(way, now_ns);
    struct try *one = try_find(way);
    try_close(meet, way, one);
    way->tried++;
    one->began_ns = now_ns;
    bool named = (way->name[0] != '\0');
    one->fd = named ? gf_socket_name_connect(way->name, &user)
                    : gf_socket_connect_by(&way->to, &way->from,
                                           (way->tried <= MEET_TRIES_BOUND) ? way->device : 0,
                                           meet->keepalive_ns);
    if ((one->fd < 0) && named && (errno == EPERM))
        return name_is_anothers(meet, way, one, now_ns, user);
    if (one->fd < 0) return try_failed(meet, way, one, now_ns, errno);
    one->state = named ? MEET_TRY_NONCE : MEET_TRY_CONNECTING;
    if (gf_meet_epoll_set(meet, EPOLL_CTL_ADD, one->fd, about_of(way, one),
                          named ? EPOLLIN : EPOLLOUT) != GF_OK)
        return try_failed(meet, way, one, now_ns, errno);
    return MEET_WAY_NOTHING;
}

static way_news connected(struct meet *meet, struct way *way, struct try *one, uint64_t now_ns)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(one->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
    if ((error == 0) && gf_socket_met_itself(one->fd)) error = ECONNREFUSED;
    if (error != 0) return try_failed(meet, way, one, now_ns, error);
    one->state = MEET_TRY_NONCE;
    (void)gf_meet_epoll_set(meet, EPOLL_CTL_MOD, one->fd, about_of(way, one), EPOLLIN);
    return MEET_WAY_NOTHING;
}

/* How long the frame is that begins with this header; 0: nothing that is said at this point. */
static uint32_t frame_bytes(const struct way *way, const struct try *one,
                            const struct gf_frame_header *header)
{
    uint32_t payload = header->payload_bytes;
    if ((header->magic != GF_FRAME_MAGIC) || (header->header_bytes != GF_FRAME_HEADER_BYTES))
        return 0;
    if (one->state == MEET_TRY_NONCE) {
        bool nonce = (header->kind == GF_FRAME_NONCE) && (payload == GF_FRAME_NONCE_BYTES);
        return nonce ? MEET_NONCE_BYTES : 0;
    }
    if ((header->kind == GF_FRAME_REFUSAL) && (payload == GF_FRAME_REFUSAL_BYTES))
        return MEET_REFUSAL_BYTES;
    if ((header->kind != GF_FRAME_ANSWER) || (payload != 0)) return 0;
    return way->auth.on ? MEET_ANSWER_BYTES_MAX : GF_FRAME_HEADER_BYTES;
}

static way_news stranger(const struct meet *meet, struct way *way, struct try *one, uint64_t now_ns,
                         const char *what)
{
    return try_end(meet, way, one, now_ns, MEET_WAY_STRANGER, 0, "what listens there %s", what);
}

static void hello_put(const struct meet *meet, const struct way *way, unsigned char *said)
{
    struct gf_put put = {said + MEET_NONCE_BYTES, MEET_HELLO_BYTES};
    gf_frame_header_put(&put, way->kind, GF_FRAME_HELLO_BYTES, meet->job_id, meet->from);
    for (uint32_t i = 0; i < 4; i++) gf_put_u32(&put, way->words[i]);
    memcpy(put.at, way->nonce, GF_AUTH_NONCE_BYTES);
    memset(put.at + GF_AUTH_NONCE_BYTES, 0, GF_AUTH_PROOF_BYTES);
    if (way->auth.on)
        gf_auth_prove(&way->auth, said, MEET_TALK_PROVEN_BYTES, said + MEET_TALK_PROVEN_BYTES);
}

/* Another rank of this job may have the port by now; what is of another job says so itself. */
static way_news hello_say(struct meet *meet, struct way *way, struct try *one, uint64_t now_ns)
{
    const struct gf_frame_header header = gf_frame_header_get(one->in);
    if ((way->to_rank != GF_RANK_NONE) && (header.from != way->to_rank) &&
        (header.job_id == meet->job_id))
        return try_end(meet, way, one, now_ns, MEET_WAY_STRANGER, 0,
                       "what listens there is rank %u, not rank %u", header.from, way->to_rank);
    memcpy(one->said, one->in, MEET_NONCE_BYTES);
    hello_put(meet, way, one->said);
    if (send(one->fd, one->said + MEET_NONCE_BYTES, MEET_HELLO_BYTES,
             MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)MEET_HELLO_BYTES)
        return try_failed(meet, way, one, now_ns, errno);
    one->state = MEET_TRY_ANSWER;
    one->in_bytes = 0;
    return MEET_WAY_NOTHING;
}

static way_news answer_take(struct meet *meet, struct way *way, struct try *one, uint64_t now_ns)
{
    const struct gf_frame_header header = gf_frame_header_get(one->in);
    if (header.kind == GF_FRAME_REFUSAL) {
        char reason[GF_FRAME_REASON_BYTES];
        way->code = gf_talk_get_refusal(one->in + GF_FRAME_HEADER_BYTES, reason);
        return try_end(meet, way, one, now_ns, MEET_WAY_REFUSED, 0, "%s", reason);
    }
    gf_talk_macs_of(&way->auth, one->said, &way->mac_in, &way->mac_out);
    if (way->auth.on && !gf_auth_mac_fits(&way->mac_in, one->in, GF_FRAME_HEADER_BYTES,
                                          one->in + GF_FRAME_HEADER_BYTES))
        return stranger(meet, way, one, now_ns, "did not prove that it has the same key");
    if ((way->to_rank != GF_RANK_NONE) && (header.from != way->to_rank))
        return try_end(meet, way, one, now_ns, MEET_WAY_STRANGER, 0,
                       "what listens there calls itself rank %u", header.from);
    (void)epoll_ctl(meet->epoll_fd, EPOLL_CTL_DEL, one->fd, NULL);
    way->fd = one->fd;
    one->fd = -1;
    one->state = MEET_TRY_FREE;
    tries_close(meet, way);
    way->on = false;
    return MEET_WAY_IN;
}

way_news gf_way_take(struct meet *meet, struct way *way, uint32_t slot, uint64_t now_ns)
{
    struct try *one = &way->tries[slot];
    if (one->state == MEET_TRY_FREE) return MEET_WAY_NOTHING;
    if (one->state == MEET_TRY_CONNECTING) return connected(meet, way, one, now_ns);
    gf_status status = gf_socket_read(one->fd, one->in, &one->in_bytes, GF_FRAME_HEADER_BYTES);
    if (status == GF_OK) {
        const struct gf_frame_header header = gf_frame_header_get(one->in);
        uint32_t bytes = frame_bytes(way, one, &header);
        if ((header.magic == GF_FRAME_MAGIC) && (header.protocol != GF_FRAME_PROTOCOL)) {
            way->code = GF_ERR_MISMATCH;
            return try_end(meet, way, one, now_ns, MEET_WAY_REFUSED, 0,
                           "protocol version %u there, %u at this rank", header.protocol,
                           GF_FRAME_PROTOCOL);
        }
        if (bytes == 0)
            return stranger(meet, way, one, now_ns, "is not a rank of a GradientFlow job");
        status = gf_socket_read(one->fd, one->in, &one->in_bytes, bytes);
    }
    if (status == GF_AGAIN) return MEET_WAY_NOTHING;
    if (status < 0) return try_failed(meet, way, one, now_ns, (errno != 0) ? errno : ECONNRESET);
    return (one->state == MEET_TRY_NONCE) ? hello_say(meet, way, one, now_ns)
                                          : answer_take(meet, way, one, now_ns);
}
