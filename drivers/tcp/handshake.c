/* What dials and the accepting end share, and the messages of the handshake (handshake.h has
 * their order). */
#include "drivers/tcp/handshake.h"
#include "drivers/base/descriptors.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>

gf_status gf_handshake_because(struct handshake *handshake, gf_status status, const char *format,
                               ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(handshake->text, sizeof handshake->text, format, arguments);
    va_end(arguments);
    return status;
}

gf_status gf_handshake_epoll_set(struct handshake *handshake, int operation, int fd, uint32_t about,
                                 uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u32 = about};
    int epoll_fd =
        ((about & HANDSHAKE_ABOUT_PENDING) != 0) ? handshake->strangers_fd : handshake->epoll_fd;
    if (epoll_ctl(epoll_fd, operation, fd, &event) == 0) return GF_OK;
    return gf_fault_set(&handshake->fault, GF_ERR_SYSTEM, GF_RANK_NONE, "epoll_ctl", errno,
                        "%s: epoll_ctl failed: %s (errno %d)", handshake->what, strerror(errno),
                        errno);
}

static bool stranger_next(const struct handshake *handshake, struct handshake_poll *spent,
                          uint32_t *about_out)
{
    struct epoll_event event;
    spent->at_strangers = (spent->strangers++ < HANDSHAKE_STRANGERS_A_POLL) &&
                          (handshake->rest_until_ns == 0) &&
                          (epoll_wait(handshake->strangers_fd, &event, 1, 0) > 0);
    if (spent->at_strangers) *about_out = event.data.u32;
    return spent->at_strangers;
}

bool gf_handshake_next(const struct handshake *handshake, struct handshake_poll *spent,
                       uint32_t *about_out)
{
    struct epoll_event event;
    if (spent->at_strangers && stranger_next(handshake, spent, about_out)) return true;
    while (spent->events++ < HANDSHAKE_EVENTS_A_POLL) {
        /* The kernel moves all that one call reports behind the others: what was reported and not
         * served would never be first. */
        int count = epoll_wait(handshake->epoll_fd, &event, 1, 0);
        if ((count > 0) && (event.data.u32 == HANDSHAKE_ABOUT_STRANGERS))
            count = epoll_wait(handshake->epoll_fd, &event, 1, 0);
        if (count <= 0) return false;
        *about_out = event.data.u32;
        if (*about_out != HANDSHAKE_ABOUT_STRANGERS) return true;
        if (spent->strangers > 0) return false;
        if (stranger_next(handshake, spent, about_out)) return true;
    }
    return false;
}

gf_status gf_handshake_open(struct handshake *handshake)
{
    handshake->epoll_fd = gf_descriptor_keep(epoll_create1(EPOLL_CLOEXEC));
    if (handshake->epoll_fd >= 0)
        handshake->strangers_fd = gf_descriptor_keep(epoll_create1(EPOLL_CLOEXEC));
    if (handshake->strangers_fd < 0)
        return gf_fault_set(&handshake->fault, GF_ERR_SYSTEM, GF_RANK_NONE, "epoll_create1", errno,
                            "%s: epoll_create1 failed: %s (errno %d)", handshake->what,
                            strerror(errno), errno);
    return gf_handshake_epoll_set(handshake, EPOLL_CTL_ADD, handshake->strangers_fd,
                                  HANDSHAKE_ABOUT_STRANGERS, EPOLLIN);
}

void gf_handshake_close(struct handshake *handshake)
{
    if (handshake->strangers_fd >= 0) gf_socket_close(&handshake->strangers_fd);
    if (handshake->epoll_fd >= 0) gf_socket_close(&handshake->epoll_fd);
    gf_auth_forget(&handshake->source, sizeof handshake->source);
}

/* If few descriptors are left, unproven connections get none of them: the rest of the process needs
 * some. */
void gf_handshake_fd_limit_set(struct handshake *handshake)
{
    struct rlimit files;
    handshake->fd_most = UINT32_MAX;
    if ((getrlimit(RLIMIT_NOFILE, &files) != 0) || (files.rlim_cur >= UINT32_MAX)) return;
    rlim_t spare =
        (files.rlim_cur / 4 < HANDSHAKE_FILES_SPARE) ? files.rlim_cur / 4 : HANDSHAKE_FILES_SPARE;
    handshake->fd_most = (uint32_t)(files.rlim_cur - spare);
}

/* ---- messages ---- */

static struct gf_put header_put(const struct handshake *handshake, unsigned char *out,
                                uint32_t kind, uint32_t payload_bytes)
{
    struct gf_put put = {out, GF_FRAME_HEADER_BYTES + payload_bytes};
    gf_frame_header_put(&put, kind, payload_bytes, handshake->job_id, handshake->from);
    return put;
}

void gf_transcript_put_nonce(struct handshake *handshake, unsigned char *transcript)
{
    struct gf_put put = header_put(handshake, transcript, GF_FRAME_NONCE, GF_FRAME_NONCE_BYTES);
    gf_auth_nonce(&handshake->source, put.at);
}

struct gf_frame_header gf_transcript_header_of(const unsigned char *transcript)
{
    return gf_frame_header_get(transcript + HANDSHAKE_NONCE_BYTES);
}

struct gf_frame_hello gf_transcript_hello_of(const unsigned char *transcript)
{
    struct gf_get get = {.at = transcript + HANDSHAKE_NONCE_BYTES + GF_FRAME_HEADER_BYTES,
                         .left = GF_FRAME_HELLO_BYTES};
    struct gf_frame_hello hello = {.version = gf_get_u32(&get)};
    hello.rank = gf_get_u32(&get);
    hello.world = gf_get_u32(&get);
    hello.flags = gf_get_u32(&get);
    return hello;
}

const unsigned char *gf_transcript_nonce_of(const unsigned char *transcript)
{
    return transcript + HANDSHAKE_PROVEN_BYTES - GF_AUTH_NONCE_BYTES;
}

bool gf_transcript_is_proven(const struct gf_auth *auth, const unsigned char *transcript)
{
    return gf_auth_proof_fits(auth, transcript, HANDSHAKE_PROVEN_BYTES,
                              transcript + HANDSHAKE_PROVEN_BYTES);
}

void gf_transcript_macs_of(const struct gf_auth *auth, const unsigned char *transcript,
                           struct gf_auth_mac *to_dialler_out, struct gf_auth_mac *to_acceptor_out)
{
    if (auth->on)
        gf_auth_macs(auth, transcript, HANDSHAKE_TRANSCRIPT_BYTES, to_dialler_out, to_acceptor_out);
}

size_t gf_handshake_put_frame(const struct handshake *handshake, uint32_t kind, bool authenticated,
                              struct gf_auth_mac *mac, unsigned char *out)
{
    (void)header_put(handshake, out, kind, 0);
    if (!authenticated) return GF_FRAME_HEADER_BYTES;
    gf_auth_mac_put(mac, out, GF_FRAME_HEADER_BYTES, NULL, 0, out + GF_FRAME_HEADER_BYTES);
    return HANDSHAKE_ANSWER_BYTES_MAX;
}

void gf_handshake_put_refusal(const struct handshake *handshake, gf_status code, const char *reason,
                              unsigned char *out)
{
    struct gf_put put = header_put(handshake, out, GF_FRAME_REFUSAL, GF_FRAME_REFUSAL_BYTES);
    gf_put_u32(&put, (uint32_t)code);
    gf_put_text(&put, reason, GF_FRAME_REASON_BYTES);
}

gf_status gf_handshake_get_refusal(const unsigned char *payload,
                                   char reason_out[GF_FRAME_REASON_BYTES])
{
    struct gf_get get = {.at = payload, .left = GF_FRAME_REFUSAL_BYTES};
    gf_status code = (gf_status)(int32_t)gf_get_u32(&get);
    gf_get_text(&get, reason_out, GF_FRAME_REASON_BYTES);
    return code;
}
