/* Host names to addresses. The library itself has no resolver, which would allocate: it calls this
 * one by gf_config.resolve, before it takes anything. */
#include "config/config_keys.h"
#include "drivers/base/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "drivers/base/descriptors.h"

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

/* One try. */
static gf_status name_resolve(const char *address, char *numeric_out, char *why_out)
{
    char host[GF_TEXT_MAX];
    char ip[64];
    const char *colon = strrchr(address, ':');
    const size_t length = (size_t)(colon - address);
    memcpy(host, address, length);
    host[length] = '\0';
    gf_descriptors_hold(); /* libc asks a name server through a socket */
    int error = host_resolve(host, ip, sizeof ip);
    if (error != 0) {
        (void)snprintf(why_out, GF_RESOLVE_WHY_BYTES, "the host is not known: %s",
                       gai_strerror(error));
        return GF_AGAIN;
    }
    /* Debian gives a machine's own name the address 127.0.1.1: rank 0 would listen where nobody
     * else arrives. */
    if (gf_ip_loopback(ip) && (strcmp(host, "localhost") != 0)) {
        (void)snprintf(why_out, GF_RESOLVE_WHY_BYTES,
                       "here the name means %s, which other machines cannot reach; "
                       "write the address as a number",
                       ip);
        return GF_ERR_CONFIG;
    }
    (void)snprintf(numeric_out, GF_TEXT_MAX, strchr(ip, ':') ? "[%s]:%s" : "%s:%s", ip, colon + 1);
    return GF_OK;
}

static uint64_t now(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

/* A pod may run before its record is in the name server, which says then that there is no such
 * name; and a resolver that is not up yet says nothing at all. So no error ends it but time. */
#define PAUSE_FIRST_NS UINT64_C(250000000)
#define PAUSE_MAX_NS UINT64_C(2000000000)

gf_status gf_address_resolve(const char *address, uint64_t patience_ns, char *numeric_out,
                             char *why_out)
{
    const uint64_t begin_ns = now();
    uint64_t pause_ns = PAUSE_FIRST_NS;
    if (strlen(address) >= GF_TEXT_MAX) {
        (void)snprintf(why_out, GF_RESOLVE_WHY_BYTES, "longer than %d characters", GF_TEXT_MAX - 1);
        return GF_ERR_CONFIG;
    }
    if (gf_address_numeric(address)) {
        memset(numeric_out, 0, GF_TEXT_MAX);
        memcpy(numeric_out, address, strlen(address));
        return GF_OK;
    }
    if (!gf_address_named(address)) {
        (void)snprintf(why_out, GF_RESOLVE_WHY_BYTES,
                       gf_addr_lacks_scope(address, true)
                           ? "a link-local address wants its interface behind it, as "
                             "[fe80::a%%eth0]:7117"
                           : "allowed is host:port or IP:port with a port from 1 to 65535");
        return GF_ERR_CONFIG;
    }
    for (;;) {
        gf_status status = name_resolve(address, numeric_out, why_out);
        uint64_t passed_ns = now() - begin_ns;
        if ((status != GF_AGAIN) || (passed_ns >= patience_ns)) return status;
        if (pause_ns > patience_ns - passed_ns) pause_ns = patience_ns - passed_ns;
        struct timespec pause = {(time_t)(pause_ns / UINT64_C(1000000000)),
                                 (long)(pause_ns % UINT64_C(1000000000))};
        (void)nanosleep(&pause, NULL); /* a signal may end it early: then it is asked early */
        pause_ns = (2 * pause_ns < PAUSE_MAX_NS) ? 2 * pause_ns : PAUSE_MAX_NS;
    }
}
