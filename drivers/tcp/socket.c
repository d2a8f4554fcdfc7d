/* Sockets: addresses as text, options, listening and connecting. */
#include "drivers/tcp/socket.h"
#include "drivers/base/descriptors.h"
#include "drivers/base/lines.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 1024

static socklen_t sockaddr_of(const struct gf_addr *address, struct sockaddr_storage *storage_out)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)storage_out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)storage_out;
    *storage_out = (struct sockaddr_storage){.ss_family = address->family};
    if (address->family == AF_INET) {
        v4->sin_port = address->port;
        memcpy(&v4->sin_addr, address->ip, sizeof v4->sin_addr);
        return sizeof *v4;
    }
    v6->sin6_port = address->port;
    memcpy(&v6->sin6_addr, address->ip, sizeof v6->sin6_addr);
    v6->sin6_scope_id = address->scope;
    return sizeof *v6;
}

/* Of a link-local address: the interface that leads there. */
static bool scope_check(const char *key, const char *text, bool with_port,
                        const struct gf_addr *address, struct gf_fault *fault_out)
{
    bool lacks = gf_addr_lacks_scope(text, with_port);
    if (!lacks && (!gf_addr_is_link_local(address) || (address->scope != 0))) return true;
    (void)gf_fault_set(fault_out, GF_ERR_CONFIG, GF_RANK_NONE, "", 0,
                       "%s '%.60s' is link-local: expected %s, as fe80::a%%eth0", key, text,
                       lacks ? "the interface behind the address"
                             : "an interface that this host has");
    return false;
}

bool gf_socket_address_parse(const char *text, struct gf_addr *address_out,
                             struct gf_fault *fault_out)
{
    static const char key[] = "rendezvous.address";
    if (gf_addr_parse(text, true, address_out) || gf_addr_lacks_scope(text, true))
        return scope_check(key, text, true, address_out, fault_out);
    (void)gf_fault_set(fault_out, GF_ERR_CONFIG, GF_RANK_NONE, "", 0,
                       "rendezvous.address '%.60s': expected a numeric "
                       "address with a port from 1 to 65535, as 10.0.0.1:7117 or [fd00::1]:7117",
                       text);
    return false;
}

bool gf_socket_bind_parse(const char *text, struct gf_addr *address_out, struct gf_fault *fault_out)
{
    static const char key[] = "rendezvous.bind";
    if (gf_addr_parse(text, false, address_out) || gf_addr_lacks_scope(text, false))
        return scope_check(key, text, false, address_out, fault_out);
    (void)gf_fault_set(fault_out, GF_ERR_CONFIG, GF_RANK_NONE, "", 0,
                       "rendezvous.bind '%.60s': expected a numeric IP "
                       "address without a port",
                       text);
    return false;
}

void gf_socket_address_text(const struct gf_addr *address, char *text_out, size_t bytes)
{
    char ip[INET6_ADDRSTRLEN] = "";
    char scope[1 + IF_NAMESIZE] = "%";
    (void)inet_ntop(address->family, address->ip, ip, sizeof ip);
    if ((address->scope == 0) || (if_indextoname(address->scope, scope + 1) == NULL))
        scope[0] = '\0';
    (void)snprintf(text_out, bytes, (address->family == AF_INET) ? "%s%s:%u" : "[%s%s]:%u", ip,
                   scope, ntohs(address->port));
}

static void option_set(int fd, int level, int name, uint64_t value)
{
    int option = (value > INT32_MAX) ? INT32_MAX : (int)value;
    /* a kernel without one of them is no failure */
    (void)setsockopt(fd, level, name, &option, sizeof option);
}

/* Rounds to whole seconds, the unit of the kernel. */
static uint64_t period_of(uint64_t keepalive_ns)
{
    uint64_t period_s = (keepalive_ns + 999999999u) / 1000000000u;
    return (period_s == 0) ? 1 : period_s;
}

void gf_socket_options_set(int fd, uint64_t keepalive_ns)
{
    uint64_t period_s = period_of(keepalive_ns);
    option_set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    option_set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    /* One period of silence, then three probes half a period apart: the end is seen within 2.5
     * periods. One second cannot be halved and gets one probe. */
    option_set(fd, IPPROTO_TCP, TCP_KEEPIDLE, period_s);
    option_set(fd, IPPROTO_TCP, TCP_KEEPINTVL, (period_s > 1) ? period_s / 2 : 1);
    option_set(fd, IPPROTO_TCP, TCP_KEEPCNT, (period_s > 1) ? 3 : 1);
    /* Keepalive does not run while sent bytes wait for their acknowledgement; this does. It begins
     * with the first of them, which may be a sign of life a good second after the last one that
     * arrived: with the shortest period there is less time for it, or three periods would not be
     * enough. */
    option_set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (period_s > 1) ? 2000 * period_s : 1500);
    /* Few small frames: each is sent again every 200 ms, not after 200, 600 and 1,400. Else a
     * network that loses one packet of ten ends a connection within minutes. */
    option_set(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
}

/* Half of the time is idle, and probes fill the rest. What was sent and is not acknowledged ends
 * the connection as early; so does a probe, as the kernel counts it by TCP_USER_TIMEOUT, too. */
void gf_socket_watch(int fd, uint64_t keepalive_ns)
{
    uint64_t period_s = period_of(keepalive_ns);
    uint64_t idle_s = (period_s > 1) ? period_s / 2 : 1;
    uint64_t rest_s = (period_s > idle_s) ? period_s - idle_s : 1;
    gf_socket_options_set(fd, keepalive_ns);
    option_set(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle_s);
    option_set(fd, IPPROTO_TCP, TCP_KEEPINTVL, (rest_s > 3) ? rest_s / 3 : 1);
    option_set(fd, IPPROTO_TCP, TCP_KEEPCNT, (rest_s > 3) ? 3 : rest_s);
    option_set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * period_s);
}

/* Two probes more than the control channel has. So where a network is down the control channel ends
 * first, and it is not taken for a broken connection between two ranks, one of which would have to
 * leave. */
void gf_socket_carries_messages(int fd, uint64_t keepalive_ns)
{
    option_set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
    option_set(fd, IPPROTO_TCP, TCP_KEEPCNT, (period_of(keepalive_ns) > 1) ? 5 : 3);
}

static int listen_failed(int fd, const char *call, const char *text, struct gf_fault *fault_out)
{
    int error = errno;
    if (fd >= 0) (void)close(fd);
    (void)gf_fault_set(fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, call, error,
                       "cannot listen at %s: %s failed: %s (errno %d)", text, call, strerror(error),
                       error);
    return -1;
}

static int socket_open(int family, int type)
{
    return gf_descriptor_keep(socket(family, type | SOCK_CLOEXEC, 0));
}

int gf_socket_listen(const struct gf_addr *address, const char *text, struct gf_fault *fault_out)
{
    const char *call = "socket";
    struct sockaddr_storage at;
    socklen_t bytes = sockaddr_of(address, &at);
    int fd = socket_open(address->family, SOCK_STREAM | SOCK_NONBLOCK);
    if (fd >= 0) {
        option_set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
        call = "bind";
        if (bind(fd, (const struct sockaddr *)&at, bytes) == 0) {
            call = "listen";
            if (listen(fd, BACKLOG) == 0) return fd;
        }
    }
    return listen_failed(fd, call, text, fault_out);
}

static int connect_begin(int fd, const struct gf_addr *to, const struct gf_addr *bind_to)
{
    struct sockaddr_storage own;
    struct sockaddr_storage other;
    socklen_t own_bytes = sockaddr_of(bind_to, &own);
    socklen_t other_bytes = sockaddr_of(to, &other);
    if (fd < 0) return -1;
    /* connect() chooses the port then, and may choose one that leads elsewhere already (Linux 4.2;
     * of IPv6 sockets, too). bind() would take one for this socket alone. */
    if (bind_to->family != 0) option_set(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if ((bind_to->family == 0) || (bind(fd, (const struct sockaddr *)&own, own_bytes) == 0)) {
        if ((connect(fd, (const struct sockaddr *)&other, other_bytes) == 0) ||
            (errno == EINPROGRESS))
            return fd;
    }
    int error = errno;
    (void)close(fd);
    errno = error;
    return -1;
}

int gf_socket_connect_by(const struct gf_addr *to, const struct gf_addr *bind_to, uint32_t device,
                         uint64_t keepalive_ns)
{
    int fd = socket_open(to->family, SOCK_STREAM | SOCK_NONBLOCK);
    if (fd >= 0) gf_socket_options_set(fd, keepalive_ns);
    if ((fd >= 0) && (device != 0)) (void)gf_socket_bind_device(fd, device);
    return connect_begin(fd, to, bind_to);
}

int gf_socket_connect(const struct gf_addr *to, const struct gf_addr *bind_to,
                      uint64_t keepalive_ns)
{
    return gf_socket_connect_by(to, bind_to, 0, keepalive_ns);
}

/* Since Linux 5.7 any process may, once a socket. */
bool gf_socket_bind_device(int fd, uint32_t device)
{
    int index = (int)device;
    return setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &index, sizeof index) == 0;
}

int gf_socket_route(const struct gf_addr *to, const struct gf_addr *bind_to)
{
    return connect_begin(socket_open(to->family, SOCK_DGRAM), to, bind_to);
}

void gf_socket_close(int *fd)
{
    int ends = *fd;
    *fd = -1; /* first: a child that is forked meanwhile closes what is here */
    (void)close(ends);
}

void gf_socket_reset(int *fd)
{
    struct linger none = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(*fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    gf_socket_close(fd);
}

bool gf_socket_met_itself(int fd)
{
    struct gf_addr own;
    struct gf_addr other;
    if (!gf_addr_of_fd(fd, false, &own) || !gf_addr_of_fd(fd, true, &other)) return false;
    return memcmp(&own, &other, sizeof own) == 0;
}

gf_status gf_socket_read(int fd, unsigned char *in, uint32_t *have, uint32_t want)
{
    while (*have < want) {
        ssize_t got = recv(fd, in + *have, want - *have, MSG_DONTWAIT);
        if (got > 0)
            *have += (uint32_t)got;
        else if (got == 0)
            errno = 0;
        else if ((errno == EAGAIN) || (errno == EWOULDBLOCK))
            return GF_AGAIN;
        if ((got == 0) || ((got < 0) && (errno != EINTR))) return GF_ERR_PEER;
    }
    return GF_OK;
}

/* ---- abstract unix sockets ---- */

static socklen_t named(const char *name, struct sockaddr_un *address_out)
{
    size_t bytes = strlen(name);
    *address_out = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address_out->sun_path + 1, name + 1, bytes - 1);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes);
}

bool gf_socket_user(int fd, uint32_t *user_out)
{
    struct ucred peer = {.uid = 0};
    socklen_t bytes = sizeof peer;
    if ((getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) || (bytes != sizeof peer))
        return false;
    *user_out = peer.uid;
    return true;
}

bool gf_socket_is_own(int fd)
{
    struct ucred peer = {.pid = 0};
    socklen_t bytes = sizeof peer;
    return (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0) && (peer.pid == getpid());
}

int gf_socket_name_connect(const char *name, uint32_t *user_out)
{
    struct sockaddr_un to;
    socklen_t bytes = named(name, &to);
    int fd = socket_open(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK);
    if (fd < 0) return -1;
    int error = (connect(fd, (const struct sockaddr *)&to, bytes) == 0) ? 0 : errno;
    if ((error == 0) && (!gf_socket_user(fd, user_out) || (*user_out != geteuid()))) error = EPERM;
    if (error == 0) return fd;
    (void)close(fd);
    errno = error;
    return -1;
}

struct other {
    const char *prefix;
    const char *own;
    char *name_out;
    bool found;
};

/* The name ends its line. */
static bool other_line_read(void *arg, char *line)
{
    struct other *other = arg;
    const size_t own_bytes = strlen(other->own);
    const char *name = strrchr(line, ' ');
    if ((name == NULL) || (strncmp(name + 1, other->prefix, strlen(other->prefix)) != 0) ||
        ((strncmp(name + 1, other->own, own_bytes) == 0) &&
         ((name[1 + own_bytes] == '\0') || (name[1 + own_bytes] == '-'))))
        return true;
    (void)snprintf(other->name_out, GF_SOCKET_NAME_BYTES, "%s", name + 1);
    other->found = true;
    return false;
}

bool gf_socket_name_other(const char *prefix, const char *own, char name_out[GF_SOCKET_NAME_BYTES])
{
    struct other other = {.prefix = prefix, .own = own, .name_out = name_out};
    (void)gf_lines_visit("/proc/net/unix", other_line_read, &other);
    return other.found;
}

struct port_users {
    unsigned port;
    uint32_t own, others;
};

/* " 0: 0100007F:1BCD 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 ..": the port
 * here in hexadecimal, the state (0A listens), and the user. */
static bool port_line_read(void *arg, char *line)
{
    struct port_users *users = arg;
    unsigned port = 0, state = 0, user = 0;
    if (sscanf(line, " %*[0-9]: %*[0-9A-F]:%x %*s %x %*s %*s %*s %u", &port, &state, &user) != 3)
        return true;
    if ((port != users->port) || (state != 0x0A)) return true;
    if (user == geteuid())
        users->own++;
    else
        users->others++;
    return true;
}

bool gf_socket_port_is_own(uint16_t port)
{
    struct port_users users = {.port = port};
    (void)gf_lines_visit("/proc/net/tcp", port_line_read, &users);
    (void)gf_lines_visit("/proc/net/tcp6", port_line_read, &users);
    return (users.own > 0) && (users.others == 0);
}

int gf_socket_name_listen(const char *name, struct gf_fault *fault_out)
{
    const char *call = "socket";
    struct sockaddr_un at;
    socklen_t bytes = named(name, &at);
    int fd = socket_open(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK);
    if (fd >= 0) {
        call = "bind";
        if (bind(fd, (const struct sockaddr *)&at, bytes) == 0) {
            call = "listen";
            if (listen(fd, BACKLOG) == 0) return fd;
        }
    }
    return listen_failed(fd, call, name, fault_out);
}
