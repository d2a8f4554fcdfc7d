/* The kernel knows the owner of each socket of this network namespace, and says so to whoever names both addresses. */
#include "drivers/tcp/rendezvous_socket.h"

#include "drivers/address.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool gf_socket_peer_user(int fd, uint32_t *user_out)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 request;
    } ask = {.head = {.nlmsg_len = sizeof ask, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
             .request = {.sdiag_protocol = IPPROTO_TCP, .idiag_states = ~0u,
                         .id.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}};
    struct {
        struct nlmsghdr head;
        struct inet_diag_msg message;
        char more[512];
    } answer;
    struct gf_place source, to;
    if (!gf_place_of_fd(fd, true, &source) || !gf_place_of_fd(fd, false, &to)) return false;
    memcpy(ask.request.id.idiag_src, source.ip, sizeof source.ip); /* the other end's socket: its source is our peer */
    memcpy(ask.request.id.idiag_dst, to.ip, sizeof to.ip);
    ask.request.id.idiag_sport = source.port;
    ask.request.id.idiag_dport = to.port;
    ask.request.sdiag_family = (unsigned char)source.family;
    int diag = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
    if (diag < 0) return false;
    ssize_t got = -1; /* the kernel answers before send() returns */
    if (send(diag, &ask, sizeof ask, 0) == (ssize_t)sizeof ask) got = recv(diag, &answer, sizeof answer, MSG_DONTWAIT);
    (void)close(diag);
    if ((got < (ssize_t)(sizeof answer.head + sizeof answer.message)) || (answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY))
        return false;
    *user_out = answer.message.idiag_uid;
    return true;
}
