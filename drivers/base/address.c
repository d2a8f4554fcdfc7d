/* See address.h. */
#include "drivers/base/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>

bool gf_addr_of(const void *address, struct gf_addr *addr_out)
{
    const struct sockaddr_in *in = address;
    const struct sockaddr_in6 *in6 = address;
    *addr_out = (struct gf_addr){0};
    if ((in->sin_family != AF_INET) && (in->sin_family != AF_INET6)) return false;
    addr_out->family = in->sin_family;
    addr_out->port = (in->sin_family == AF_INET) ? in->sin_port : in6->sin6_port;
    if (in->sin_family == AF_INET)
        memcpy(addr_out->ip, &in->sin_addr, sizeof in->sin_addr);
    else
        memcpy(addr_out->ip, &in6->sin6_addr, sizeof in6->sin6_addr);
    if (gf_addr_is_link_local(addr_out)) addr_out->scope = in6->sin6_scope_id;
    return true;
}

bool gf_addr_of_fd(int fd, bool of_peer, struct gf_addr *addr_out)
{
    struct sockaddr_storage at = {0};
    socklen_t bytes = sizeof at;
    int failed = (of_peer ? getpeername : getsockname)(fd, (struct sockaddr *)&at, &bytes);
    return (failed == 0) && gf_addr_of(&at, addr_out);
}

bool gf_fd_listens(int fd)
{
    int listens = 0;
    socklen_t bytes = sizeof listens;
    return (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0) && (listens != 0);
}

/* The digits that *text begins with, of which the first is not 0, up to 65535, and *text after
 * them; 0: no port. */
static unsigned port_read(const char **text)
{
    unsigned port = 0;
    if (**text == '0') return 0;
    for (; (**text >= '0') && (**text <= '9') && (port <= UINT16_MAX); (*text)++)
        port = port * 10 + (unsigned)(**text - '0');
    return (port <= UINT16_MAX) ? port : 0;
}

bool gf_ports_parse(const char *text, unsigned *first_out, unsigned *last_out)
{
    *first_out = *last_out = 0;
    if (text[0] == '\0') return true;
    *first_out = port_read(&text);
    if (*text++ != '-') return false;
    *last_out = port_read(&text);
    return (*text == '\0') && (*first_out != 0) && (*first_out <= *last_out);
}

/* By its name, else by its number; 0: this host has none such. */
static uint32_t scope_read(const char *text)
{
    uint32_t scope = if_nametoindex(text);
    unsigned number = port_read(&text);
    if ((scope == 0) && (*text == '\0')) scope = number;
    return scope;
}

/* Without a scope, which is what follows a %; that is a link-local address's alone. */
static bool addr_read(const char *text, bool with_port, struct gf_addr *addr_out,
                      char scope_out[IF_NAMESIZE], bool *has_scope_out)
{
    bool bracket = with_port && (text[0] == '[');
    const char *first = text + bracket;
    const char *end = !with_port ? text + strlen(text)
                      : bracket  ? strchr(text, ']')
                                 : strrchr(text, ':');
    struct gf_addr addr = {.family = AF_INET};
    size_t length = (end != NULL) ? (size_t)(end - first) : 0;
    char ip[INET6_ADDRSTRLEN + 1 + IF_NAMESIZE];
    if ((length == 0) || (length >= sizeof ip)) return false;
    memcpy(ip, first, length);
    ip[length] = '\0';
    char *scope = strchr(ip, '%');
    *has_scope_out = (scope != NULL);
    if (scope != NULL) {
        *scope++ = '\0';
        if ((scope[0] == '\0') || (strlen(scope) >= IF_NAMESIZE)) return false;
        memcpy(scope_out, scope, strlen(scope) + 1);
    }
    if (inet_pton(AF_INET, ip, addr.ip) != 1) addr.family = AF_INET6;
    if ((addr.family == AF_INET6) && (inet_pton(AF_INET6, ip, addr.ip) != 1)) return false;
    /* brackets are for IPv6 and for nothing else: 1::2:3 could be read in two ways */
    if (with_port) {
        end += bracket;
        if (((addr.family == AF_INET6) != bracket) || (*end++ != ':')) return false;
        addr.port = htons((uint16_t)port_read(&end));
        if ((addr.port == 0) || (*end != '\0')) return false;
    }
    if (*has_scope_out && !gf_addr_is_link_local(&addr)) return false;
    *addr_out = addr;
    return true;
}

bool gf_addr_parse(const char *text, bool with_port, struct gf_addr *addr_out)
{
    char scope[IF_NAMESIZE] = "";
    struct gf_addr addr;
    bool has_scope = false;
    if (!addr_read(text, with_port, &addr, scope, &has_scope)) return false;
    if (gf_addr_is_link_local(&addr) && !has_scope) return false;
    if (has_scope) addr.scope = scope_read(scope);
    *addr_out = addr;
    return true;
}

bool gf_addr_lacks_scope(const char *text, bool with_port)
{
    char scope[IF_NAMESIZE];
    struct gf_addr addr;
    bool has_scope = false;
    return addr_read(text, with_port, &addr, scope, &has_scope) && gf_addr_is_link_local(&addr) &&
           !has_scope;
}

bool gf_addr_is_link_local(const struct gf_addr *addr)
{
    return (addr->family == AF_INET6) && (addr->ip[0] == 0xfe) && ((addr->ip[1] & 0xc0) == 0x80);
}

bool gf_addr_is_loopback(const struct gf_addr *addr)
{
    struct in6_addr v6;
    if (addr->family == AF_INET) return addr->ip[0] == 127;
    memcpy(&v6, addr->ip, sizeof v6);
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && (v6.s6_addr[12] == 127));
}

void gf_addr_plain(struct gf_addr *addr)
{
    struct in6_addr v6;
    memcpy(&v6, addr->ip, sizeof v6);
    if ((addr->family != AF_INET6) || !IN6_IS_ADDR_V4MAPPED(&v6)) return;
    memset(addr->ip, 0, sizeof addr->ip);
    memcpy(addr->ip, v6.s6_addr + 12, 4);
    addr->family = AF_INET;
}
