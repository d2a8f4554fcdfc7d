/* The kernel knows the owner of each socket of this network namespace, and says so to whoever names both addresses. */
#include "drivers/tcp/rendezvous_user.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Address and port as sock_diag wants them; false: neither IPv4 nor IPv6. */
static bool end_put(const struct sockaddr_storage *address, __be32 *ip_out, __be16 *port_out)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
    if (address->ss_family == AF_INET) memcpy(ip_out, &v4->sin_addr, sizeof v4->sin_addr);
    else if (address->ss_family == AF_INET6) memcpy(ip_out, &v6->sin6_addr, sizeof v6->sin6_addr);
    else return false;
    *port_out = (address->ss_family == AF_INET) ? v4->sin_port : v6->sin6_port;
    return true;
}

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
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_bytes = sizeof own, peer_bytes = sizeof peer;
    if ((getsockname(fd, (struct sockaddr *)&own, &own_bytes) != 0) ||
        (getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) != 0)) return false;
    /* The other end's socket: its source is our peer. */
    if (!end_put(&peer, ask.request.id.idiag_src, &ask.request.id.idiag_sport) ||
        !end_put(&own, ask.request.id.idiag_dst, &ask.request.id.idiag_dport)) return false;
    ask.request.sdiag_family = (unsigned char)peer.ss_family;
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
