/* The kernel knows the owner of each socket of this network namespace, and says so to whoever names
 * both addresses. */
#include "drivers/tcp/rendezvous_socket.h"

#include "drivers/address.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* 0: *user_out is whose the socket from `source` to `to` is. Else an errno; ENOENT: there is no
 * such socket, or the kernel has no such query. */
static int owner_get(const struct gf_place *source, const struct gf_place *to, uint32_t *user_out)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 request;
    } ask = {.head = {.nlmsg_len = sizeof ask,
                      .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                      .nlmsg_flags = NLM_F_REQUEST},
             .request = {.sdiag_family = (unsigned char)source->family,
                         .sdiag_protocol = IPPROTO_TCP,
                         .idiag_states = ~0u,
                         .id.idiag_sport = source->port,
                         .id.idiag_dport = to->port,
                         .id.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}};
    struct {
        struct nlmsghdr head;
        union {
            struct inet_diag_msg message;
            struct nlmsgerr refusal;
        };
        char more[512];
    } answer;
    memcpy(ask.request.id.idiag_src, source->ip, sizeof source->ip);
    memcpy(ask.request.id.idiag_dst, to->ip, sizeof to->ip);
    int diag = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
    if (diag < 0) return errno;
    ssize_t got = send(diag, &ask, sizeof ask, 0); /* the kernel answers before send() returns */
    if (got >= 0) got = recv(diag, &answer, sizeof answer, MSG_DONTWAIT);
    int error = (got < 0) ? errno : ENOMEM;
    (void)close(diag);
    if (got < (ssize_t)(sizeof answer.head + sizeof answer.refusal)) return error;
    if (answer.head.nlmsg_type == NLMSG_ERROR) return -answer.refusal.error;
    if (got < (ssize_t)(sizeof answer.head + sizeof answer.message)) return error;
    *user_out = answer.message.idiag_uid;
    return 0;
}

gf_status gf_socket_peer_user(int fd, uint32_t *user_out)
{
    struct gf_place own;
    struct gf_place peer;
    uint32_t own_user;
    /* reset already */
    if (!gf_place_of_fd(fd, true, &peer) || !gf_place_of_fd(fd, false, &own)) return GF_AGAIN;
    int error = owner_get(&peer, &own, user_out);
    if (error == 0) return GF_OK;
    /* only its end has gone */
    if ((error == ENOENT) && (owner_get(&own, &peer, &own_user) == 0)) return GF_AGAIN;
    bool short_of =
        (error == EMFILE) || (error == ENFILE) || (error == ENOMEM) || (error == ENOBUFS);
    return short_of ? GF_AGAIN : GF_ERR_SYSTEM;
}
