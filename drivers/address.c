/* See address.h. */
#include "drivers/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>

bool gf_place_of(const void *address, struct gf_place *place_out)
{
    const struct sockaddr_in *in = address;
    const struct sockaddr_in6 *in6 = address;
    *place_out = (struct gf_place){0};
    if ((in->sin_family != AF_INET) && (in->sin_family != AF_INET6)) return false;
    place_out->family = in->sin_family;
    place_out->port = (in->sin_family == AF_INET) ? in->sin_port : in6->sin6_port;
    if (in->sin_family == AF_INET)
        memcpy(place_out->ip, &in->sin_addr, sizeof in->sin_addr);
    else
        memcpy(place_out->ip, &in6->sin6_addr, sizeof in6->sin6_addr);
    if (gf_place_is_link_local(place_out)) place_out->scope = in6->sin6_scope_id;
    return true;
}

bool gf_place_of_fd(int fd, bool of_peer, struct gf_place *place_out)
{
    struct sockaddr_storage at = {0};
    socklen_t bytes = sizeof at;
    int failed = (of_peer ? getpeername : getsockname)(fd, (struct sockaddr *)&at, &bytes);
    return (failed == 0) && gf_place_of(&at, place_out);
}

bool gf_fd_listens(int fd)
{
    int listens = 0;
    socklen_t bytes = sizeof listens;
    return (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0) && (listens != 0);
}

/* The digits that *text begins with, of which the first is not 0, up to 65535, and *text behind
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

/* Without a scope, which is what stands behind a %; that is a link-local address's alone. */
static bool place_read(const char *text, bool with_port, struct gf_place *place_out,
                       char scope_out[IF_NAMESIZE], bool *has_scope_out)
{
    bool bracket = with_port && (text[0] == '[');
    const char *first = text + bracket;
    const char *end = !with_port ? text + strlen(text)
                      : bracket  ? strchr(text, ']')
                                 : strrchr(text, ':');
    struct gf_place place = {.family = AF_INET};
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
    if (inet_pton(AF_INET, ip, place.ip) != 1) place.family = AF_INET6;
    if ((place.family == AF_INET6) && (inet_pton(AF_INET6, ip, place.ip) != 1)) return false;
    /* brackets are for IPv6 and for nothing else: 1::2:3 could be read in two ways */
    if (with_port) {
        end += bracket;
        if (((place.family == AF_INET6) != bracket) || (*end++ != ':')) return false;
        place.port = htons((uint16_t)port_read(&end));
        if ((place.port == 0) || (*end != '\0')) return false;
    }
    if (*has_scope_out && !gf_place_is_link_local(&place)) return false;
    *place_out = place;
    return true;
}

bool gf_place_parse(const char *text, bool with_port, struct gf_place *place_out)
{
    char scope[IF_NAMESIZE] = "";
    struct gf_place place;
    bool has_scope = false;
    if (!place_read(text, with_port, &place, scope, &has_scope)) return false;
    if (gf_place_is_link_local(&place) && !has_scope) return false;
    if (has_scope) place.scope = scope_read(scope);
    *place_out = place;
    return true;
}

bool gf_place_parse_told(const char *text, uint32_t scope, struct gf_place *place_out)
{
    char theirs[IF_NAMESIZE];
    bool has_scope = false;
    if (!place_read(text, true, place_out, theirs, &has_scope)) return false;
    if (gf_place_is_link_local(place_out)) place_out->scope = scope;
    return true;
}

bool gf_place_lacks_scope(const char *text, bool with_port)
{
    char scope[IF_NAMESIZE];
    struct gf_place place;
    bool has_scope = false;
    return place_read(text, with_port, &place, scope, &has_scope) &&
           gf_place_is_link_local(&place) && !has_scope;
}

bool gf_place_is_link_local(const struct gf_place *place)
{
    return (place->family == AF_INET6) && (place->ip[0] == 0xfe) && ((place->ip[1] & 0xc0) == 0x80);
}

bool gf_place_is_loopback(const struct gf_place *place)
{
    struct in6_addr v6;
    if (place->family == AF_INET) return place->ip[0] == 127;
    memcpy(&v6, place->ip, sizeof v6);
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && (v6.s6_addr[12] == 127));
}

void gf_place_plain(struct gf_place *place)
{
    struct in6_addr v6;
    memcpy(&v6, place->ip, sizeof v6);
    if ((place->family != AF_INET6) || !IN6_IS_ADDR_V4MAPPED(&v6)) return;
    memset(place->ip, 0, sizeof place->ip);
    memcpy(place->ip, v6.s6_addr + 12, 4);
    place->family = AF_INET;
}
