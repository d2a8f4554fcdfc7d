/* What ways and doors share, and the words of the handshake (meet.h has the order). */
#include "drivers/tcp/meet.h"
#include "drivers/descriptors.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>

gf_status gf_meet_because(struct meet *meet, gf_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(meet->text, sizeof meet->text, format, arguments);
    va_end(arguments);
    return status;
}

gf_status gf_meet_epoll_set(struct meet *meet, int operation, int fd, uint32_t about,
                            uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u32 = about};
    int epoll_fd = ((about & MEET_ABOUT_PENDING) != 0) ? meet->strangers_fd : meet->epoll_fd;
    if (epoll_ctl(epoll_fd, operation, fd, &event) == 0) return GF_OK;
    return gf_fault_set(&meet->fault, GF_ERR_SYSTEM, GF_RANK_NONE, "epoll_ctl", errno,
                        "%s: epoll_ctl failed: %s (errno %d)", meet->what, strerror(errno), errno);
}

static bool stranger_next(const struct meet *meet, struct meet_turn *turn, uint32_t *about_out)
{
    struct epoll_event event;
    turn->at_strangers = (turn->strangers++ < MEET_STRANGERS_A_POLL) &&
                         (meet->rest_until_ns == 0) &&
                         (epoll_wait(meet->strangers_fd, &event, 1, 0) > 0);
    if (turn->at_strangers) *about_out = event.data.u32;
    return turn->at_strangers;
}

bool gf_meet_next(const struct meet *meet, struct meet_turn *turn, uint32_t *about_out)
{
    struct epoll_event events[2];
    if (turn->at_strangers && stranger_next(meet, turn, about_out)) return true;
    while (turn->rounds++ < MEET_ROUNDS_A_POLL) {
        int count = epoll_wait(meet->epoll_fd, events, 2, 0);
        if (count <= 0) return false;
        *about_out = events[(count == 2) && (events[0].data.u32 == MEET_ABOUT_STRANGERS)].data.u32;
        if (*about_out != MEET_ABOUT_STRANGERS) return true;
        if (turn->strangers > 0) return false;
        if (stranger_next(meet, turn, about_out)) return true;
    }
    return false;
}

gf_status gf_meet_open(struct meet *meet)
{
    meet->epoll_fd = gf_descriptor_keep(epoll_create1(EPOLL_CLOEXEC));
    if (meet->epoll_fd >= 0) meet->strangers_fd = gf_descriptor_keep(epoll_create1(EPOLL_CLOEXEC));
    if (meet->strangers_fd < 0)
        return gf_fault_set(&meet->fault, GF_ERR_SYSTEM, GF_RANK_NONE, "epoll_create1", errno,
                            "%s: epoll_create1 failed: %s (errno %d)", meet->what, strerror(errno),
                            errno);
    return gf_meet_epoll_set(meet, EPOLL_CTL_ADD, meet->strangers_fd, MEET_ABOUT_STRANGERS,
                             EPOLLIN);
}

void gf_meet_close(struct meet *meet)
{
    if (meet->strangers_fd >= 0) gf_socket_close(&meet->strangers_fd);
    if (meet->epoll_fd >= 0) gf_socket_close(&meet->epoll_fd);
    gf_auth_forget(&meet->source, sizeof meet->source);
}

/* Where few are left, strangers get none of them: the rest of the process needs some. */
void gf_meet_descriptors_look(struct meet *meet)
{
    struct rlimit files;
    meet->fd_most = UINT32_MAX;
    if ((getrlimit(RLIMIT_NOFILE, &files) != 0) || (files.rlim_cur >= UINT32_MAX)) return;
    rlim_t spare = (files.rlim_cur / 4 < MEET_FILES_SPARE) ? files.rlim_cur / 4 : MEET_FILES_SPARE;
    meet->fd_most = (uint32_t)(files.rlim_cur - spare);
}

/* ---- words ---- */

static struct gf_put header_put(const struct meet *meet, unsigned char *out, uint32_t kind,
                                uint32_t payload_bytes)
{
    struct gf_put put = {out, GF_FRAME_HEADER_BYTES + payload_bytes};
    gf_frame_header_put(&put, kind, payload_bytes, meet->job_id, meet->from);
    return put;
}

void gf_talk_put_nonce(struct meet *meet, unsigned char *said)
{
    struct gf_put put = header_put(meet, said, GF_FRAME_NONCE, GF_FRAME_NONCE_BYTES);
    gf_auth_nonce(&meet->source, put.at);
}

struct gf_frame_header gf_talk_header_of(const unsigned char *said)
{
    return gf_frame_header_get(said + MEET_NONCE_BYTES);
}

struct gf_frame_hello gf_talk_hello_of(const unsigned char *said)
{
    struct gf_get get = {.at = said + MEET_NONCE_BYTES + GF_FRAME_HEADER_BYTES,
                         .left = GF_FRAME_HELLO_BYTES};
    struct gf_frame_hello hello = {.version = gf_get_u32(&get)};
    hello.rank = gf_get_u32(&get);
    hello.world = gf_get_u32(&get);
    hello.flags = gf_get_u32(&get);
    return hello;
}

const unsigned char *gf_talk_nonce_of(const unsigned char *said)
{
    return said + MEET_TALK_PROVEN_BYTES - GF_AUTH_NONCE_BYTES;
}

bool gf_talk_is_proven(const struct gf_auth *auth, const unsigned char *said)
{
    return gf_auth_proof_fits(auth, said, MEET_TALK_PROVEN_BYTES, said + MEET_TALK_PROVEN_BYTES);
}

void gf_talk_macs_of(const struct gf_auth *auth, const unsigned char *said,
                     struct gf_auth_mac *to_dialler_out, struct gf_auth_mac *to_acceptor_out)
{
    if (auth->on) gf_auth_macs(auth, said, MEET_TALK_BYTES, to_dialler_out, to_acceptor_out);
}

size_t gf_talk_put_frame(const struct meet *meet, uint32_t kind, bool authenticated,
                         struct gf_auth_mac *MAC, unsigned char *out)
{
    (void)header_put(meet, out, kind, 0);
    if (!authenticated) return GF_FRAME_HEADER_BYTES;
    gf_auth_mac_put(MAC, out, GF_FRAME_HEADER_BYTES, NULL, 0, out + GF_FRAME_HEADER_BYTES);
    return MEET_ANSWER_BYTES_MAX;
}

void gf_talk_put_refusal(const struct meet *meet, gf_status code, const char *reason,
                         unsigned char *out)
{
    struct gf_put put = header_put(meet, out, GF_FRAME_REFUSAL, GF_FRAME_REFUSAL_BYTES);
    gf_put_u32(&put, (uint32_t)code);
    gf_put_text(&put, reason, GF_FRAME_REASON_BYTES);
}

gf_status gf_talk_get_refusal(const unsigned char *payload, char reason_out[GF_FRAME_REASON_BYTES])
{
    struct gf_get get = {.at = payload, .left = GF_FRAME_REFUSAL_BYTES};
    gf_status code = (gf_status)(int32_t)gf_get_u32(&get);
    gf_get_text(&get, reason_out, GF_FRAME_REASON_BYTES);
    return code;
}
