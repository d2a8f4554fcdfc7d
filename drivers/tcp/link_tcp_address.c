/* Reaching peers: endpoint addresses, and which rank is dialled where.
 *
 * An endpoint address is the head below: the addresses at which this rank is dialled, and the
 * secret of its generation, which only members learn. What data.h hands over is a proven connection
 * of that peer.
 *
 * Of two ranks the one with the lower number dials; the other one does so, too, once a second has
 * passed, because some networks pass only one of the two directions. A peer counts as connected
 * when its HELLO has come on stream 0: so a message has gone each way before the first step. */
#include "drivers/tcp/link_tcp_state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "drivers/base/clock.h"
#include "drivers/devices.h"
#include "drivers/base/fnv.h"

#define ENDPOINT_MAGIC 0x54464701u
#define ENDPOINT_VERSION 1u
#define OTHER_DIALS_NS UINT64_C(1000000000)
#define DATA_POLL_NS UINT64_C(20000) /* all peers are asked for in turn, and one poll serves all */

struct endpoint_head {
    uint32_t magic; /* a host of the other byte order reads something else */
    uint32_t version;
    uint32_t rank;
    uint32_t generation;
    uint32_t streams;
    uint32_t addr_count;
    uint64_t check; /* of all before, then of what follows */
    unsigned char secret[GF_DATA_SECRET_BYTES];
    struct gf_addr addrs[TCP_ADDRS_MAX];
};
_Static_assert(sizeof(struct endpoint_head) ==
                   32 + GF_DATA_SECRET_BYTES + TCP_ADDRS_MAX * sizeof(struct gf_addr),
               "no padding");
_Static_assert(sizeof(struct endpoint_head) <= TCP_ENDPOINT_BYTES_MAX, "it fits");

static uint64_t endpoint_check(const struct endpoint_head *head)
{
    uint64_t check = gf_fnv_bytes(GF_FNV_START, head, offsetof(struct endpoint_head, check));
    return gf_fnv_bytes(check, head->secret, sizeof *head - offsetof(struct endpoint_head, secret));
}

/* ---- the network ---- */

static struct gf_tcp_link *tcp_of(void *user)
{
    return user;
}

/* Adopts a proven connection (data.h). */
static void connected(void *user, uint32_t peer, uint32_t stream, int fd)
{
    struct gf_tcp_link *tcp = tcp_of(user);
    if (tcp->peers[peer].ended) { /* the end of another stream was read since, and is reported */
        (void)close(fd);
        return;
    }
    if (gf_link_tcp_adopt(&tcp->link, peer, stream, fd) == GF_OK) return;
    gf_log_line(&tcp->setup.log, GF_LOG_WARN, "link: %s", tcp->link.fault.text);
    (void)close(fd);
}

static bool has(void *user, uint32_t peer, uint32_t stream)
{
    const struct gf_tcp_link *tcp = tcp_of(user);
    if ((stream >= tcp->setup.streams) || (peer == tcp->setup.rank)) return true;
    return tcp->peers[peer].ended || (tcp->peers[peer].streams[stream].fd >= 0);
}

static gf_status network_refuse(struct gf_tcp_link *tcp, gf_status code, const char *text)
{
    return gf_fault_set(&tcp->link.fault, code, GF_RANK_NONE, "", 0, "%s", text);
}

/* The addresses of the named devices, in their order; the port is everywhere the same. */
static gf_status addrs_take(struct gf_tcp_link *tcp, const struct gf_addr *listener)
{
    const char *list = tcp->devices;
    char name[GF_TEXT_MAX];
    char text[200];
    tcp->addrs[0] = *listener;
    tcp->addr_count = 1;
    if (list[0] == '\0') return GF_OK;
    tcp->addr_count = 0;
    while (gf_devices_next(&list, name, sizeof name)) {
        struct gf_addr *addr = &tcp->addrs[tcp->addr_count];
        if (tcp->addr_count == TCP_ADDRS_MAX) {
            (void)snprintf(text, sizeof text, "devices \"%s\": at most %u", tcp->devices,
                           TCP_ADDRS_MAX);
            return network_refuse(tcp, GF_ERR_CONFIG, text);
        }
        if (!gf_device_addr(name, listener->family, addr, text, sizeof text))
            return network_refuse(tcp, GF_ERR_CONFIG, text);
        addr->port = listener->port;
        tcp->addr_count++;
    }
    return GF_OK;
}

gf_status gf_tcp_network_take(struct gf_tcp_link *tcp)
{
    struct gf_addr listener;
    gf_status status;
    tcp->taker = (struct gf_data_taker){.user = tcp, .connected = connected, .has = has};
    status = gf_data_begin(tcp->data, tcp->setup.generation, tcp->setup.rank, tcp->setup.world,
                           &tcp->taker, tcp->secret, &listener);
    if (status < 0) {
        tcp->link.fault = *gf_data_fault(tcp->data);
        return status;
    }
    gf_devices_group(tcp->setup.devices, tcp->setup.local, tcp->devices);
    tcp->link.device = gf_fnv_bytes(GF_FNV_START, tcp->devices, strlen(tcp->devices));
    status = addrs_take(tcp, &listener);
    if (status < 0) {
        gf_data_end(tcp->data);
        return status;
    }
    for (uint32_t i = 0; i < tcp->addr_count; i++)
        gf_device_of(&tcp->addrs[i], &tcp->addr_devices[i]);
    return GF_OK;
}

void gf_tcp_network_give(struct gf_tcp_link *tcp)
{
    gf_data_end(tcp->data);
    tcp->addr_count = 0;
    tcp->data_due = false;
    memset(tcp->secret, 0, sizeof tcp->secret);
}

gf_status gf_tcp_data_poll(struct gf_tcp_link *tcp, uint64_t now_ns)
{
    tcp->data_due = false;
    tcp->data_ns = now_ns;
    gf_status status = gf_data_poll(tcp->data, now_ns);
    if (status < 0) tcp->link.fault = *gf_data_fault(tcp->data);
    return status;
}

/* ---- endpoint addresses ---- */

gf_status gf_tcp_endpoint(struct gf_link *link, void *endpoint_out, size_t *size_bytes_out)
{
    struct gf_tcp_link *tcp = tcp_of(link);
    struct endpoint_head head = {.magic = ENDPOINT_MAGIC,
                                 .version = ENDPOINT_VERSION,
                                 .rank = tcp->setup.rank,
                                 .generation = tcp->setup.generation,
                                 .streams = tcp->setup.streams,
                                 .addr_count = tcp->addr_count};
    if (!tcp->is_open) return GF_ERR_STATE;
    memcpy(head.secret, tcp->secret, sizeof head.secret);
    memcpy(head.addrs, tcp->addrs, tcp->addr_count * sizeof head.addrs[0]);
    for (uint32_t i = 0; i < tcp->addr_count; i++) head.addrs[i].scope = 0; /* of this host */
    head.check = endpoint_check(&head);
    memcpy(endpoint_out, &head, sizeof head);
    *size_bytes_out = sizeof head;
    return GF_OK;
}

static gf_status endpoint_read(struct gf_tcp_link *tcp, uint32_t peer, const void *endpoint,
                               size_t size_bytes, struct endpoint_head *head_out)
{
    const char *wrong = NULL;
    if (size_bytes == sizeof *head_out) memcpy(head_out, endpoint, sizeof *head_out);
    if ((size_bytes != sizeof *head_out) || (head_out->magic != ENDPOINT_MAGIC) ||
        (head_out->version != ENDPOINT_VERSION))
        wrong = "is none of this link, or of another byte order";
    else if ((head_out->check != endpoint_check(head_out)) ||
             (head_out->addr_count > TCP_ADDRS_MAX))
        wrong = "is damaged";
    if (wrong != NULL)
        return gf_fault_set(&tcp->link.fault, GF_ERR_DATA, peer, "connect", 0,
                            "the endpoint of rank %u %s", peer, wrong);
    if ((head_out->rank != peer) || (head_out->generation != tcp->setup.generation) ||
        (head_out->streams != tcp->setup.streams))
        return gf_fault_set(
            &tcp->link.fault, GF_ERR_MISMATCH, peer, "connect", 0,
            "the endpoint of rank %u, generation %u, %u streams was given as that of "
            "rank %u, generation %u, %u streams",
            head_out->rank, head_out->generation, head_out->streams, peer, tcp->setup.generation,
            tcp->setup.streams);
    return GF_OK;
}

/* ---- connecting ---- */

/* Once it is known which peers are to be reached by connections. A rank that has no descriptor left
 * would neither dial nor accept, and the others would wait for it. */
static gf_status data_limit_check(struct gf_tcp_link *tcp)
{
    uint32_t files_max = gf_data_files_max();
    uint32_t peer_count = 0;
    for (uint32_t id = 0; id < tcp->setup.world; id++)
        if ((tcp->peers[id].met_ns != 0) || (tcp->peers[id].open_count > 0)) peer_count++;
    uint32_t others = GF_DATA_FILES_LEAST + tcp->setup.control_files;
    uint32_t needed = peer_count * tcp->setup.streams + others;
    tcp->descriptors_fit = (files_max == 0) || (files_max >= needed);
    if (tcp->descriptors_fit) return GF_OK;
    return gf_fault_set(&tcp->link.fault, GF_ERR_SYSTEM, tcp->setup.rank, "getrlimit", EMFILE,
                        "rank %u needs %u file descriptors, %u to each of %u ranks and %u more, "
                        "the limit is %u: raise it (ulimit -n)",
                        tcp->setup.rank, needed, tcp->setup.streams, peer_count, others, files_max);
}

/* Streams are spread over the devices of both ends. */
static gf_status streams_dial(struct gf_tcp_link *tcp, struct gf_tcp_peer *peer,
                              const struct endpoint_head *head, uint64_t now_ns)
{
    static const struct gf_addr anywhere = {.family = 0};
    for (uint32_t s = 0; s < tcp->setup.streams; s++) {
        const struct gf_addr *from = &tcp->addrs[s % tcp->addr_count];
        struct gf_addr to = head->addrs[s % head->addr_count];
        gf_status status;
        if (peer->streams[s].fd >= 0) continue;
        if (gf_addr_is_link_local(&to)) to.scope = from->scope;
        status = gf_data_dial(tcp->data, now_ns, peer->id, s, head->secret, &to,
                              (tcp->devices[0] != '\0') ? from : &anywhere);
        if (status < 0) {
            tcp->link.fault = *gf_data_fault(tcp->data);
            return status;
        }
    }
    return GF_AGAIN;
}

static gf_status network_connect(struct gf_tcp_link *tcp, struct gf_tcp_peer *peer,
                                 const struct endpoint_head *head, uint64_t now_ns)
{
    gf_status status;
    if (head->addr_count == 0)
        return gf_fault_set(&tcp->link.fault, GF_ERR_DATA, peer->id, "connect", 0,
                            "the endpoint of rank %u has no address", peer->id);
    if ((now_ns - tcp->data_ns >= DATA_POLL_NS) && ((status = gf_tcp_data_poll(tcp, now_ns)) < 0))
        return status;
    if (peer->met_ns == 0) {
        peer->met_ns = now_ns;
        peer->addr_count = head->addr_count;
        memcpy(peer->addrs, head->addrs, head->addr_count * sizeof peer->addrs[0]);
        tcp->descriptors_fit = false; /* checked when all peers have been met */
    } else if (!tcp->descriptors_fit && ((status = data_limit_check(tcp)) < 0)) {
        return status;
    }
    if (peer->open_count < tcp->setup.streams) {
        if ((tcp->setup.rank < peer->id) || (now_ns - peer->met_ns >= OTHER_DIALS_NS))
            return streams_dial(tcp, peer, head, now_ns);
        return GF_AGAIN;
    }
    (void)gf_link_tcp.progress(&tcp->link);
    return (tcp->link.failed != GF_OK) ? tcp->link.failed : GF_AGAIN;
}

gf_status gf_tcp_connect(struct gf_link *link, uint32_t id, const void *endpoint, size_t size_bytes)
{
    struct gf_tcp_link *tcp = tcp_of(link);
    uint64_t now_ns = gf_clock_monotonic.now_ns(&gf_clock_monotonic);
    struct endpoint_head head;
    struct gf_tcp_peer *peer;
    gf_status status;
    if (id >= tcp->setup.world)
        return gf_fault_set(&link->fault, GF_ERR_PARAM, GF_RANK_NONE, "connect", 0,
                            "rank %u in a world of %u", id, tcp->setup.world);
    if (id == tcp->setup.rank) return GF_OK;
    if (!tcp->is_open)
        return gf_fault_set(&link->fault, GF_ERR_STATE, id, "connect", 0, "rank %u: a reset failed",
                            id);
    peer = &tcp->peers[id];
    if (peer->greeted && (peer->open_count == tcp->setup.streams)) return GF_OK;
    if (peer->ended) return gf_tcp_peer_refuse(peer);
    status = endpoint_read(tcp, id, endpoint, size_bytes, &head);
    if (status != GF_OK) return status;
    return network_connect(tcp, peer, &head, now_ns);
}
