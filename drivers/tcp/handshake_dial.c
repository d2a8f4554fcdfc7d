/* The dialling end: a dial and its connection attempts (handshake.h has their states).
 *
 *     an attempt begins    at once; HANDSHAKE_BOUND_.. after one that is still open;
 *                          HANDSHAKE_RETRY_.. after the last open one has ended
 *     one is replaced      by the next, where all are open: the oldest, unless its answer is here
 *     all end              when one is answered, and with the dial */
#include "drivers/tcp/handshake.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

void gf_dial_init(struct dial *dial, uint32_t number)
{
    *dial = (struct dial){.number = number, .fd = -1};
    for (uint32_t i = 0; i < HANDSHAKE_ATTEMPTS_MAX; i++) dial->attempts[i].fd = -1;
}

void gf_dial_forked(const struct dial *dial)
{
    for (uint32_t i = 0; i < HANDSHAKE_ATTEMPTS_MAX; i++) (void)close(dial->attempts[i].fd);
}

static uint32_t about_of(const struct dial *dial, const struct attempt *one)
{
    return HANDSHAKE_ABOUT_ATTEMPT |
           (dial->number * HANDSHAKE_ATTEMPTS_MAX + (uint32_t)(one - dial->attempts));
}

/* An acceptor that has accepted a hello takes the process for dead if the connection then closes
 * without LEFT or GIVEN_UP. */
static void attempt_leave(const struct handshake *handshake, const struct dial *dial,
                          struct attempt *one)
{
    unsigned char left[HANDSHAKE_ANSWER_BYTES_MAX];
    struct gf_auth_mac in;
    struct gf_auth_mac out;
    gf_transcript_macs_of(&dial->auth, one->transcript, &in, &out);
    size_t bytes = gf_handshake_put_frame(handshake, GF_FRAME_GIVEN_UP, dial->auth.on, &out, left);
    (void)send(one->fd, left, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(one->fd, SHUT_WR);
    gf_socket_close(&one->fd);
}

static void attempt_close(const struct handshake *handshake, const struct dial *dial,
                          struct attempt *one)
{
    if ((one->state == HANDSHAKE_ATTEMPT_ANSWER) && (dial->kind == GF_FRAME_HELLO) &&
        (one->fd >= 0))
        attempt_leave(handshake, dial, one);
    if ((one->state != HANDSHAKE_ATTEMPT_FREE) && (one->fd >= 0)) gf_socket_reset(&one->fd);
    one->state = HANDSHAKE_ATTEMPT_FREE;
    one->fd = -1;
    one->in_bytes = 0;
}

static void attempts_close(const struct handshake *handshake, struct dial *dial)
{
    for (uint32_t i = 0; i < HANDSHAKE_ATTEMPTS_MAX; i++)
        attempt_close(handshake, dial, &dial->attempts[i]);
}

void gf_dial_end(const struct handshake *handshake, struct dial *dial)
{
    attempts_close(handshake, dial);
    dial->on = false;
    gf_auth_forget(&dial->auth, sizeof dial->auth);
    gf_auth_forget(&dial->mac_in, sizeof dial->mac_in);
    gf_auth_forget(&dial->mac_out, sizeof dial->mac_out);
}

void gf_dial_start(struct handshake *handshake, struct dial *dial, uint64_t now_ns)
{
    attempts_close(handshake, dial);
    gf_auth_nonce(&handshake->source, dial->nonce);
    dial->on = true;
    dial->began_ns = dial->next_ns = now_ns;
    dial->retry_ns = HANDSHAKE_RETRY_FIRST_NS;
    dial->bound_ns = HANDSHAKE_BOUND_FIRST_NS;
    dial->tried = 0;
    dial->error = dial->kernel_error = 0;
    dial->text[0] = '\0';
}

bool gf_dial_has_attempts(const struct dial *dial)
{
    for (uint32_t i = 0; i < HANDSHAKE_ATTEMPTS_MAX; i++)
        if (dial->attempts[i].state != HANDSHAKE_ATTEMPT_FREE) return true;
    return false;
}

bool gf_dial_has_said_hello(const struct dial *dial)
{
    for (uint32_t i = 0; i < HANDSHAKE_ATTEMPTS_MAX; i++)
        if (dial->attempts[i].state == HANDSHAKE_ATTEMPT_ANSWER) return true;
    return false;
}

/* The attempt has failed. */
__attribute__((format(printf, 7, 8))) static dial_event attempt_end(
    const struct handshake *handshake, struct dial *dial, struct attempt *one, uint64_t now_ns,
    dial_event news, int error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(dial->text, sizeof dial->text, format, arguments);
    va_end(arguments);
    dial->error = error;
    one->state = (one->state == HANDSHAKE_ATTEMPT_FREE)
                     ? HANDSHAKE_ATTEMPT_FREE
                     : HANDSHAKE_ATTEMPT_CONNECTING; /* no frame */
    attempt_close(handshake, dial, one);
    if (gf_dial_has_attempts(dial)) return news;
    dial->next_ns = now_ns + dial->retry_ns;
    dial->retry_ns =
        (2 * dial->retry_ns < HANDSHAKE_RETRY_MAX_NS) ? 2 * dial->retry_ns : HANDSHAKE_RETRY_MAX_NS;
    return news;
}

static dial_event attempt_failed(const struct handshake *handshake, struct dial *dial,
                                 struct attempt *one, uint64_t now_ns, int error)
{
    dial->kernel_error = error;
    return attempt_end(handshake, dial, one, now_ns, DIAL_ENDED, error, "%s%s%s (errno %d)",
                       dial->name, (dial->name[0] != '\0') ? ": " : "", strerror(error), error);
}

/* Another user's process listens at the name, so the coordinator of this job is not there. */
static dial_event name_is_anothers(const struct handshake *handshake, struct dial *dial,
                                   struct attempt *one, uint64_t now_ns, uint32_t user)
{
    return attempt_end(
        handshake, dial, one, now_ns, DIAL_ENDED, ECONNREFUSED,
        "user %u listens at %s, this rank is of user %u: without a key_file all ranks "
        "run as one user",
        user, dial->name, (unsigned)geteuid());
}

/* A free one, else the oldest. */
static struct attempt *attempt_find(struct dial *dial)
{
    struct attempt *found = &dial->attempts[0];
    for (uint32_t i = 0; i < HANDSHAKE_ATTEMPTS_MAX; i++) {
        struct attempt *one = &dial->attempts[i];
        if (one->state == HANDSHAKE_ATTEMPT_FREE) return one;
        if (one->began_ns < found->began_ns) found = one;
    }
    return found;
}

static void silence_note(struct dial *dial, uint64_t now_ns)
{
    (void)snprintf(dial->text, sizeof dial->text, "no answer for %u ms",
                   (unsigned)((now_ns - dial->began_ns) / 1000000u));
    dial->error = 0;
    dial->bound_ns =
        (2 * dial->bound_ns < HANDSHAKE_BOUND_MAX_NS) ? 2 * dial->bound_ns : HANDSHAKE_BOUND_MAX_NS;
}

dial_event gf_dial_poll(struct handshake *handshake, struct dial *dial, uint64_t now_ns)
{
    uint32_t user = 0;
    if (!dial->on || (now_ns < dial->next_ns)) return DIAL_NOTHING;
    struct attempt *one = attempt_find(dial);
    /* A process that was stopped has not read it yet, and the acceptor counts on the connection. */
    if (one->state == HANDSHAKE_ATTEMPT_ANSWER) {
        dial_event news = gf_dial_take(handshake, dial, (uint32_t)(one - dial->attempts), now_ns);
        if (news != DIAL_NOTHING) return news;
    }
    bool silent = gf_dial_has_attempts(dial);
    dial->next_ns = now_ns + dial->bound_ns;
    if (silent) silence_note(dial, now_ns);
    attempt_close(handshake, dial, one);
    dial->tried++;
    one->began_ns = now_ns;
    bool named = (dial->name[0] != '\0');
    one->fd =
        named ? gf_socket_name_connect(dial->name, &user)
              : gf_socket_connect_by(&dial->to, &dial->from,
                                     (dial->tried <= HANDSHAKE_ATTEMPTS_BOUND) ? dial->device : 0,
                                     handshake->keepalive_ns);
    if ((one->fd < 0) && named && (errno == EPERM))
        return name_is_anothers(handshake, dial, one, now_ns, user);
    if (one->fd < 0) return attempt_failed(handshake, dial, one, now_ns, errno);
    one->state = named ? HANDSHAKE_ATTEMPT_NONCE : HANDSHAKE_ATTEMPT_CONNECTING;
    if (gf_handshake_epoll_set(handshake, EPOLL_CTL_ADD, one->fd, about_of(dial, one),
                               named ? EPOLLIN : EPOLLOUT) != GF_OK)
        return attempt_failed(handshake, dial, one, now_ns, errno);
    return DIAL_NOTHING;
}

static dial_event connected(struct handshake *handshake, struct dial *dial, struct attempt *one,
                            uint64_t now_ns)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(one->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
    if ((error == 0) && gf_socket_met_itself(one->fd)) error = ECONNREFUSED;
    if (error != 0) return attempt_failed(handshake, dial, one, now_ns, error);
    one->state = HANDSHAKE_ATTEMPT_NONCE;
    (void)gf_handshake_epoll_set(handshake, EPOLL_CTL_MOD, one->fd, about_of(dial, one), EPOLLIN);
    return DIAL_NOTHING;
}

/* The size of the frame that begins with this header; 0: no frame that may come at this point. */
static uint32_t frame_bytes(const struct dial *dial, const struct attempt *one,
                            const struct gf_frame_header *header)
{
    uint32_t payload = header->payload_bytes;
    if ((header->magic != GF_FRAME_MAGIC) || (header->header_bytes != GF_FRAME_HEADER_BYTES))
        return 0;
    if (one->state == HANDSHAKE_ATTEMPT_NONCE) {
        bool nonce = (header->kind == GF_FRAME_NONCE) && (payload == GF_FRAME_NONCE_BYTES);
        return nonce ? HANDSHAKE_NONCE_BYTES : 0;
    }
    if ((header->kind == GF_FRAME_REFUSAL) && (payload == GF_FRAME_REFUSAL_BYTES))
        return HANDSHAKE_REFUSAL_BYTES;
    if ((header->kind != GF_FRAME_ANSWER) || (payload != 0)) return 0;
    return dial->auth.on ? HANDSHAKE_ANSWER_BYTES_MAX : GF_FRAME_HEADER_BYTES;
}

static dial_event stranger(const struct handshake *handshake, struct dial *dial,
                           struct attempt *one, uint64_t now_ns, const char *what)
{
    return attempt_end(handshake, dial, one, now_ns, DIAL_STRANGER, 0, "what listens there %s",
                       what);
}

static void hello_put(const struct handshake *handshake, const struct dial *dial,
                      unsigned char *transcript)
{
    struct gf_put put = {transcript + HANDSHAKE_NONCE_BYTES, HANDSHAKE_HELLO_BYTES};
    gf_frame_header_put(&put, dial->kind, GF_FRAME_HELLO_BYTES, handshake->job_id, handshake->from);
    for (uint32_t i = 0; i < 4; i++) gf_put_u32(&put, dial->words[i]);
    memcpy(put.at, dial->nonce, GF_AUTH_NONCE_BYTES);
    memset(put.at + GF_AUTH_NONCE_BYTES, 0, GF_AUTH_PROOF_BYTES);
    if (dial->auth.on)
        gf_auth_prove(&dial->auth, transcript, HANDSHAKE_PROVEN_BYTES,
                      transcript + HANDSHAKE_PROVEN_BYTES);
}

/* Another rank of this job may have the port by now; an acceptor of another job names its job. */
static dial_event hello_send(struct handshake *handshake, struct dial *dial, struct attempt *one,
                             uint64_t now_ns)
{
    const struct gf_frame_header header = gf_frame_header_get(one->in);
    if ((dial->to_rank != GF_RANK_NONE) && (header.from != dial->to_rank) &&
        (header.job_id == handshake->job_id))
        return attempt_end(handshake, dial, one, now_ns, DIAL_STRANGER, 0,
                           "what listens there is rank %u, not rank %u", header.from,
                           dial->to_rank);
    memcpy(one->transcript, one->in, HANDSHAKE_NONCE_BYTES);
    hello_put(handshake, dial, one->transcript);
    if (send(one->fd, one->transcript + HANDSHAKE_NONCE_BYTES, HANDSHAKE_HELLO_BYTES,
             MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)HANDSHAKE_HELLO_BYTES)
        return attempt_failed(handshake, dial, one, now_ns, errno);
    one->state = HANDSHAKE_ATTEMPT_ANSWER;
    one->in_bytes = 0;
    return DIAL_NOTHING;
}

static dial_event answer_take(struct handshake *handshake, struct dial *dial, struct attempt *one,
                              uint64_t now_ns)
{
    const struct gf_frame_header header = gf_frame_header_get(one->in);
    if (header.kind == GF_FRAME_REFUSAL) {
        char reason[GF_FRAME_REASON_BYTES];
        dial->code = gf_handshake_get_refusal(one->in + GF_FRAME_HEADER_BYTES, reason);
        dial->refused_by_own = (header.job_id == handshake->job_id);
        return attempt_end(handshake, dial, one, now_ns, DIAL_REFUSED, 0, "%s", reason);
    }
    gf_transcript_macs_of(&dial->auth, one->transcript, &dial->mac_in, &dial->mac_out);
    if (dial->auth.on && !gf_auth_mac_fits(&dial->mac_in, one->in, GF_FRAME_HEADER_BYTES,
                                           one->in + GF_FRAME_HEADER_BYTES))
        return stranger(handshake, dial, one, now_ns, "did not prove that it has the same key");
    if ((dial->to_rank != GF_RANK_NONE) && (header.from != dial->to_rank))
        return attempt_end(handshake, dial, one, now_ns, DIAL_STRANGER, 0,
                           "what listens there calls itself rank %u", header.from);
    (void)epoll_ctl(handshake->epoll_fd, EPOLL_CTL_DEL, one->fd, NULL);
    dial->fd = one->fd;
    one->fd = -1;
    one->state = HANDSHAKE_ATTEMPT_FREE;
    attempts_close(handshake, dial);
    dial->on = false;
    return DIAL_CONNECTED;
}

dial_event gf_dial_take(struct handshake *handshake, struct dial *dial, uint32_t slot,
                        uint64_t now_ns)
{
    struct attempt *one = &dial->attempts[slot];
    if (one->state == HANDSHAKE_ATTEMPT_FREE) return DIAL_NOTHING;
    if (one->state == HANDSHAKE_ATTEMPT_CONNECTING) return connected(handshake, dial, one, now_ns);
    gf_status status = gf_socket_read(one->fd, one->in, &one->in_bytes, GF_FRAME_HEADER_BYTES);
    if (status == GF_OK) {
        const struct gf_frame_header header = gf_frame_header_get(one->in);
        uint32_t bytes = frame_bytes(dial, one, &header);
        if ((header.magic == GF_FRAME_MAGIC) && (header.protocol != GF_FRAME_PROTOCOL)) {
            dial->code = GF_ERR_MISMATCH;
            dial->refused_by_own = (header.job_id == handshake->job_id);
            return attempt_end(handshake, dial, one, now_ns, DIAL_REFUSED, 0,
                               "protocol version %u there, %u at this rank", header.protocol,
                               GF_FRAME_PROTOCOL);
        }
        if (bytes == 0)
            return stranger(handshake, dial, one, now_ns, "is not a rank of a GradientFlow job");
        status = gf_socket_read(one->fd, one->in, &one->in_bytes, bytes);
    }
    if (status == GF_AGAIN) return DIAL_NOTHING;
    if (status < 0)
        return attempt_failed(handshake, dial, one, now_ns, (errno != 0) ? errno : ECONNRESET);
    return (one->state == HANDSHAKE_ATTEMPT_NONCE) ? hello_send(handshake, dial, one, now_ns)
                                                   : answer_take(handshake, dial, one, now_ns);
}
