/* Data connections that use one of several devices of this host on the same network (networks.h).
 * The end that dials binds its socket to the device; the end that accepts does so where the
 * packets arrive by it. A bound socket takes no packet that arrives by another device. So a
 * connection that cannot be made is tried again without the device. Where packets may take
 * another device later, or where all of them take one, it warns, once a generation. */
#include "drivers/tcp/data_state.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "drivers/networks.h"

/* The worse warning is still given after the other one. */
enum { WARNED_MAY_END = 1, WARNED_ONE_DEVICE };

uint32_t gf_data_device_dials(const struct dial *dial)
{
    struct gf_network_pair pair;
    if ((dial->kind != GF_FRAME_DATA_HELLO) || (dial->from.family == 0)) return 0;
    return gf_network_pair(&dial->from, &dial->to, &pair) ? pair.index : 0;
}

static uint32_t bound_to(int fd)
{
    int index = 0;
    socklen_t bytes = sizeof index;
    if (getsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &index, &bytes) != 0) return 0;
    return (uint32_t)index;
}

static void warn(struct gf_data *data, uint32_t peer, const struct gf_network_pair *pair,
                 uint32_t warned, const char *what)
{
    if (data->device_warned >= warned) return;
    data->device_warned = warned;
    gf_log_line(&data->handshake.log, GF_LOG_WARN,
                "rank %u: devices %s and %s are on one network, and with rank %u %s: set "
                "net.ipv4.conf.all.arp_ignore=1, .arp_announce=2 and .rp_filter=2 on all hosts, or "
                "give each device a network of its own",
                data->rank, pair->name, pair->other, peer, what);
}

/* Where ARP is not strict the peer may learn, after a link was down, the other device for this
 * address.
 */
static void bound_device_check(struct gf_data *data, uint32_t peer,
                               const struct gf_network_pair *pair, uint16_t family)
{
    if ((family == AF_INET) && !gf_network_answers_alone(pair->name))
        warn(data, peer, pair, WARNED_MAY_END,
             "a connection may end when a link was down, as both answer for both addresses");
}

void gf_data_device_dialled(struct gf_data *data, const struct dial *dial)
{
    struct gf_network_pair pair;
    if ((dial->device == 0) || !gf_network_pair(&dial->from, &dial->to, &pair)) return;
    if (bound_to(dial->fd) == pair.index)
        bound_device_check(data, dial->to_rank, &pair, dial->from.family);
    else if (dial->tried > HANDSHAKE_ATTEMPTS_BOUND)
        warn(data, dial->to_rank, &pair, WARNED_ONE_DEVICE,
             "no connection stands that is bound to the first");
    else
        warn(data, dial->to_rank, &pair, WARNED_ONE_DEVICE,
             "the kernel binds no connection to the first");
}

/* The device by which the peer's packets arrive; 0: not known. */
static uint32_t comes_by(int fd)
{
    union {
        struct cmsghdr head;
        unsigned char bytes[256];
    } control = {.bytes = {0}};
    struct msghdr message = {.msg_control = &control, .msg_controllen = sizeof control};
    socklen_t bytes = sizeof control;
    int on = 1;
    int off = 0;
    uint32_t index = 0;
    (void)setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
    if (getsockopt(fd, IPPROTO_IP, IP_PKTOPTIONS, &control, &bytes) != 0) bytes = 0;
    (void)setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &off, sizeof off);
    message.msg_controllen = bytes;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at != NULL; at = CMSG_NXTHDR(&message, at)) {
        struct in_pktinfo info;
        if ((at->cmsg_level != IPPROTO_IP) || (at->cmsg_type != IP_PKTINFO)) continue;
        memcpy(&info, CMSG_DATA(at), sizeof info);
        index = (uint32_t)info.ipi_ifindex;
    }
    return index;
}

static bool is_a_devices(const struct gf_data *data, const struct gf_addr *own)
{
    for (uint32_t i = 0; i < GF_DATA_ADDRS_MAX; i++) {
        const struct gf_addr *addr = &data->setup->data_addrs[i];
        if ((addr->family == own->family) && (own->family != 0) &&
            (memcmp(addr->ip, own->ip, sizeof own->ip) == 0))
            return true;
    }
    return false;
}

void gf_data_device_accepted(struct gf_data *data, int fd, uint32_t from)
{
    struct gf_network_pair pair;
    struct gf_addr own;
    struct gf_addr other;
    if (!gf_addr_of_fd(fd, false, &own) || !gf_addr_of_fd(fd, true, &other)) return;
    if (!is_a_devices(data, &own) || !gf_network_pair(&own, &other, &pair)) return;
    /* a neighbour's address of IPv6 is answered for by its own device alone */
    if ((own.family == AF_INET) && (comes_by(fd) != pair.index))
        warn(data, from, &pair, WARNED_ONE_DEVICE, "what is for the first comes in by another");
    else if (!gf_socket_bind_device(fd, pair.index))
        warn(data, from, &pair, WARNED_ONE_DEVICE, "the kernel binds no connection to the first");
    else
        bound_device_check(data, from, &pair, own.family);
}
