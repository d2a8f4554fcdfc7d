/* Host names to addresses: the library itself takes numeric ones only, so that joining never waits
 * for a name server. */
#include "config/config_keys.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>

/* The first address of the name; IPv4 first, so that "localhost" is 127.0.0.1 for every rank. */
static int host_resolve(const char *host, char *ip_out, socklen_t ip_bytes)
{
    static const int families[] = {AF_INET, AF_INET6};
    int error = 0;
    for (size_t i = 0; i < 2; i++) {
        struct addrinfo hints = {.ai_family = families[i], .ai_socktype = SOCK_STREAM};
        struct addrinfo *found = NULL;
        error = getaddrinfo(host, NULL, &hints, &found);
        if (error != 0) continue;
        error = getnameinfo(found->ai_addr, found->ai_addrlen, ip_out, ip_bytes, NULL, 0,
                            NI_NUMERICHOST);
        freeaddrinfo(found);
        return error;
    }
    return error;
}

static bool port_valid(const char *port)
{
    uint64_t number;
    return gf_number_read(port, &number) && (strspn(port, "0123456789") == strlen(port)) &&
           (number >= 1) && (number <= 65535);
}

bool gf_address_resolve(const char *address, char *numeric_out, char *why_out)
{
    char host[GF_TEXT_MAX];
    char ip[64];
    const char *colon = strrchr(address, ':');
    size_t length = (colon == NULL) ? 0 : (size_t)(colon - address);
    if (strlen(address) >= GF_TEXT_MAX) {
        (void)snprintf(why_out, GF_RESOLVE_WHY_BYTES, "longer than %d characters", GF_TEXT_MAX - 1);
        return false;
    }
    if (gf_address_numeric(address)) {
        memcpy(numeric_out, address, strlen(address) + 1);
        return true;
    }
    /* What looks like a broken number is one, and not a name to ask a name server for. */
    memcpy(host, address, length);
    host[length] = '\0';
    if ((length == 0) || !port_valid(colon + 1) || (strpbrk(host, " \t[]:/") != NULL) ||
        (strspn(host, "0123456789.") == length)) {
        (void)snprintf(why_out, GF_RESOLVE_WHY_BYTES,
                       "allowed is host:port or IP:port with a port from 1 to 65535");
        return false;
    }
    int error = host_resolve(host, ip, sizeof ip);
    if (error != 0) {
        (void)snprintf(why_out, GF_RESOLVE_WHY_BYTES, "the host is not known: %s",
                       gai_strerror(error));
        return false;
    }
    /* Debian gives a machine's own name the address 127.0.1.1: rank 0 would listen where nobody
     * else arrives. */
    if (gf_ip_loopback(ip) && (strcmp(host, "localhost") != 0)) {
        (void)snprintf(why_out, GF_RESOLVE_WHY_BYTES,
                       "here the name means %s, which other machines cannot reach; "
                       "write the address as a number",
                       ip);
        return false;
    }
    (void)snprintf(numeric_out, GF_TEXT_MAX, strchr(ip, ':') ? "[%s]:%s" : "%s:%s", ip, colon + 1);
    return true;
}
