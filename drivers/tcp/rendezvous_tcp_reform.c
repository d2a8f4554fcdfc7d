/* Another rank coordinates. Each rank listens at a port of its own from its first connection on, at
 * the address that this connection has. A member that comes there waits until this rank is the
 * coordinator; who rejoins is sent on to the coordinator as soon as this rank has met it.
 * That the port refuses is the proof that its process has ended, so it stays open until close();
 * listen_end() has the exception.
 *
 * One rank of each host also listens at the job's port there, once that is free: there a restarted
 * rank comes, whichever of the hosts it is told. */
#include "drivers/tcp/rendezvous_tcp_state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Each process begins at another place of the range: a port that a dead rank has left should refuse
 * for a while. */
static int listen_within(const struct tcp *tcp, struct gf_place *at, struct gf_fault *fault_out)
{
    uint32_t count = tcp->port_last - tcp->port_first + 1;
    /* in containers a process begun anew has the number of the old one */
    uint32_t place = (uint32_t)((uintptr_t)tcp >> 6);
    uint32_t begin =
        (((uint32_t)getpid() ^ place) * UINT32_C(2654435761) + tcp->setup.rank * UINT32_C(40503)) %
        count;
    int fd = -1;
    char text[40];
    (void)snprintf(text, sizeof text, "ports %u-%u (rendezvous.ports)", tcp->port_first,
                   tcp->port_last);
    for (uint32_t i = 0; (i < count) && (fd < 0); i++) {
        at->port = htons((uint16_t)(tcp->port_first + (begin + i) % count));
        fd = gf_socket_listen(at, text, fault_out);
        if ((fd < 0) && (fault_out->foreign_code != EADDRINUSE)) break;
    }
    if (fd >= 0) return fd;
    gf_log_line(&tcp->setup.log, GF_LOG_WARN,
                "rank %u: %s; it listens at a port of the system's choice", tcp->setup.rank,
                fault_out->text);
    at->port = 0;
    return gf_socket_listen(at, "a free port of this host", fault_out);
}

static gf_status listener_add(struct tcp *tcp, int fd)
{
    return gf_tcp_epoll_set(tcp, EPOLL_CTL_ADD, fd, TCP_ABOUT_LISTENER | (uint32_t)fd, EPOLLIN);
}

static void listen_set(struct tcp *tcp, bool listens)
{
    if (tcp->listens == listens) return;
    tcp->listens = listens;
    if (listens)
        (void)listener_add(tcp, tcp->listen_fd);
    else
        (void)epoll_ctl(tcp->strangers_fd, EPOLL_CTL_DEL, tcp->listen_fd, NULL);
}

/* What the names of all jobs at this address begin with. With the address: jobs that nothing else
 * tells apart, as bare starts, meet at different ones. */
static int name_begin(const struct tcp *tcp, char name_out[GF_SOCKET_NAME_BYTES])
{
    char address[32]; /* of loopback */
    struct gf_place at = tcp->job_address;
    gf_place_plain(&at);
    gf_socket_address_text(&at, address, sizeof address);
    return snprintf(name_out, GF_SOCKET_NAME_BYTES, "@gradientflow-%s-", address);
}

/* rank GF_RANK_NONE: of the job itself */
static void name_put(const struct tcp *tcp, uint32_t rank, char name_out[GF_SOCKET_NAME_BYTES])
{
    int bytes = name_begin(tcp, name_out);
    bytes += snprintf(name_out + bytes, GF_SOCKET_NAME_BYTES - (size_t)bytes, "%" PRIu64,
                      tcp->setup.job_id);
    if (rank != GF_RANK_NONE)
        (void)snprintf(name_out + bytes, GF_SOCKET_NAME_BYTES - (size_t)bytes, "-%u", rank);
}

void gf_tcp_other_job(const struct tcp *tcp, char job_out[GF_SOCKET_NAME_BYTES])
{
    char prefix[GF_SOCKET_NAME_BYTES];
    char own[GF_SOCKET_NAME_BYTES];
    char other[GF_SOCKET_NAME_BYTES];
    int bytes = name_begin(tcp, prefix);
    name_put(tcp, GF_RANK_NONE, own);
    if (!gf_socket_name_other(prefix, own, other)) return;
    (void)snprintf(job_out, GF_SOCKET_NAME_BYTES, "%.*s", (int)strcspn(other + bytes, "-"),
                   other + bytes);
}

void gf_tcp_job_name(const struct tcp *tcp, char name_out[GF_SOCKET_NAME_BYTES])
{
    name_put(tcp, GF_RANK_NONE, name_out);
}

void gf_tcp_job_text(const struct tcp *tcp, char text_out[GF_TEXT_MAX])
{
    if (tcp->by_name)
        name_put(tcp, GF_RANK_NONE, text_out);
    else
        gf_socket_address_text(&tcp->job_address, text_out, GF_TEXT_MAX);
}

/* Of this host, for the job's address. */
static int job_address_listen(const struct tcp *tcp, struct gf_fault *fault_out)
{
    struct gf_place at = (tcp->bind_to.family != 0) ? tcp->bind_to : tcp->job_address;
    char text[GF_TEXT_MAX];
    char name[GF_SOCKET_NAME_BYTES];
    gf_socket_address_text(&tcp->job_address, text, sizeof text);
    at.port = tcp->job_address.port;
    if (!tcp->by_name) return gf_socket_listen(&at, text, fault_out);
    name_put(tcp, GF_RANK_NONE, name);
    return gf_socket_name_listen(name, fault_out);
}

/* Else another user's rank 0 could be met by the ranks of this job. */
static gf_status name_taken(const struct tcp *tcp, const char *name, struct gf_fault *fault_out)
{
    char why[100] = "what holds it does not listen";
    uint32_t user = 0;
    int fd = gf_socket_name_connect(name, &user);
    bool own = (fd >= 0) && gf_socket_is_own(fd);
    if (fd >= 0)
        (void)snprintf(why, sizeof why,
                       "another process of this user listens there: are there two ranks 0?");
    else if (errno == EPERM)
        (void)snprintf(why, sizeof why, "user %u listens there, this rank is of user %u", user,
                       (unsigned)geteuid());
    if (fd >= 0) gf_socket_close(&fd);
    *fault_out = (struct gf_fault){0};
    if (own)
        return gf_fault_set(fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, "bind", EADDRINUSE,
                            "cannot listen at %.60s: another context of this process does: each "
                            "wants a rendezvous.address (or job.id) of its own, the same on all "
                            "ranks",
                            tcp->address_text);
    return gf_fault_set(fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, "bind", EADDRINUSE,
                        "cannot listen at %.60s (%s): bind failed: %s (errno %d): %s",
                        tcp->address_text, name, strerror(EADDRINUSE), EADDRINUSE, why);
}

static gf_status port_taken(const struct tcp *tcp, struct gf_fault *fault_out)
{
    *fault_out = (struct gf_fault){0};
    return gf_fault_set(
        fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, "bind", EADDRINUSE,
        "cannot listen at %.60s: bind failed: %s (errno %d): another job or context "
        "has that port: set GF_ADDRESS, or there are two ranks 0",
        tcp->address_text, strerror(EADDRINUSE), EADDRINUSE);
}

/* Rank 0 was started on another host than the one that the address is of. */
static gf_status address_is_elsewhere(const struct tcp *tcp, struct gf_fault *fault_out)
{
    *fault_out = (struct gf_fault){0};
    return gf_fault_set(fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, "bind", EADDRNOTAVAIL,
                        "cannot listen at %.60s: rank 0 runs here, and this host does not have "
                        "that address (errno %d); torchrun says rank 0's where the file and "
                        "GF_ADDRESS say none",
                        tcp->address_text, EADDRNOTAVAIL);
}

gf_status gf_tcp_listen_job(struct tcp *tcp, struct gf_fault *fault_out)
{
    char text[GF_TEXT_MAX];
    gf_tcp_job_text(tcp, text);
    tcp->listen_fd = job_address_listen(tcp, fault_out);
    if ((tcp->listen_fd < 0) && (fault_out->foreign_code == EADDRINUSE))
        return tcp->by_name ? name_taken(tcp, text, fault_out) : port_taken(tcp, fault_out);
    if ((tcp->listen_fd < 0) && (fault_out->foreign_code == EADDRNOTAVAIL))
        return address_is_elsewhere(tcp, fault_out);
    if (tcp->listen_fd < 0) return GF_ERR_SYSTEM;
    (void)snprintf(tcp->own_text, sizeof tcp->own_text, "%.63s", text);
    tcp->listens = true;
    return listener_add(tcp, tcp->listen_fd);
}

/* Else it is the host that is short of something: no socket was to be had. */
static bool is_no_route(int error)
{
    return (error == ENETUNREACH) || (error == EHOSTUNREACH) || (error == ENETDOWN) ||
           (error == EADDRNOTAVAIL) || (error == ENODEV);
}

/* At this host's address on the way to the job's. A datagram socket that connects sends nothing; it
 * asks the routes. */
static int port_listen(const struct tcp *tcp, struct gf_fault *fault_out)
{
    struct gf_place own = {0};
    int fd = gf_socket_route(&tcp->job_address, &tcp->bind_to);
    bool found = (fd >= 0) && gf_place_of_fd(fd, false, &own);
    int error = errno;
    if (fd >= 0) gf_socket_close(&fd);
    if (!found) {
        (void)gf_fault_set(fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, "connect", error,
                           "this host %s rendezvous.address %.60s: %s (errno %d)",
                           is_no_route(error) ? "has no route to" : "cannot look for its way to",
                           tcp->address_text, strerror(error), error);
        return -1;
    }
    own.port = 0;
    return (tcp->port_first == 0) ? gf_socket_listen(&own, "a free port of this host", fault_out)
                                  : listen_within(tcp, &own, fault_out);
}

static gf_status rank_listen(struct tcp *tcp, struct gf_fault *fault_out)
{
    struct gf_place own;
    if (tcp->listen_fd >= 0) { /* also where it did not while this rank was of no epoch */
        listen_set(tcp, true);
        return GF_OK;
    }
    if (tcp->by_name) {
        name_put(tcp, tcp->setup.rank, tcp->own_text);
        tcp->listen_fd = gf_socket_name_listen(tcp->own_text, fault_out);
    } else {
        tcp->listen_fd = port_listen(tcp, fault_out);
    }
    if (tcp->listen_fd < 0) {
        tcp->own_text[0] = '\0';
        return GF_ERR_SYSTEM;
    }
    if (gf_place_of_fd(tcp->listen_fd, false, &own))
        gf_socket_address_text(&own, tcp->own_text, sizeof tcp->own_text);
    listen_set(tcp, true);
    return GF_OK;
}

void gf_tcp_listen(struct tcp *tcp)
{
    struct gf_fault fault = {0};
    if (rank_listen(tcp, &fault) == GF_OK) return;
    gf_log_line(&tcp->setup.log, GF_LOG_WARN, "rank %u could not coordinate if others died: %s",
                tcp->setup.rank, fault.text);
}

/* The same port at the addresses of the setup. */
static gf_status devices_listen(struct tcp *tcp, const struct gf_place *own,
                                struct gf_fault *fault_out)
{
    for (uint32_t i = 0; i < GF_DATA_PLACES_MAX; i++) {
        struct gf_place at = tcp->setup.data_places[i];
        char text[GF_CONTROL_ADDRESS_BYTES];
        if (at.family == 0) break;
        at.port = own->port;
        if ((tcp->device_fds[i] >= 0) || (memcmp(&at, own, sizeof at) == 0)) continue;
        gf_socket_address_text(&at, text, sizeof text);
        tcp->device_fds[i] = gf_socket_listen(&at, text, fault_out);
        if (tcp->device_fds[i] < 0) return GF_ERR_SYSTEM;
        gf_status status = listener_add(tcp, tcp->device_fds[i]);
        if (status != GF_OK) return status;
    }
    return GF_OK;
}

gf_status gf_tcp_listen_data(struct tcp *tcp, struct gf_place *place_out,
                             struct gf_fault *fault_out)
{
    gf_status status = GF_OK;
    if (!tcp->by_name) {
        status = rank_listen(tcp, fault_out);
        if (status == GF_OK) (void)gf_place_of_fd(tcp->listen_fd, false, place_out);
    } else {
        if (tcp->data_fd < 0) {
            tcp->data_fd = port_listen(tcp, fault_out);
            status = (tcp->data_fd < 0) ? GF_ERR_SYSTEM : listener_add(tcp, tcp->data_fd);
        }
        if (status == GF_OK) (void)gf_place_of_fd(tcp->data_fd, false, place_out);
    }
    return (status == GF_OK) ? devices_listen(tcp, place_out, fault_out) : status;
}

/* Closed on purpose, and said so: an end without that word counts as a death. */
static void conn_leave(struct tcp *tcp, struct conn *conn)
{
    if ((conn->state == TCP_CONN_UP) && !conn->broken)
        (void)gf_tcp_conn_frame_put(tcp, conn, GF_FRAME_LEFT, NULL, 0);
    gf_tcp_conn_close(conn);
    gf_tcp_conn_init(conn, TCP_CONN_NONE);
}

/* ---- the job's address ---- */

static void job_close(struct tcp *tcp)
{
    if (tcp->job_fd >= 0) gf_socket_close(&tcp->job_fd);
    tcp->job_retry_ns = 0;
}

/* Of each host one rank: whoever is the first to find it free. On a host that does not have the
 * job's address, it listens at that port of its own. Where rank 0 lives on without the others,
 * stopped perhaps, the address is still its own. */
static void job_listen(struct tcp *tcp, uint64_t now_ns)
{
    char text[GF_TEXT_MAX];
    struct gf_place own;
    struct gf_fault fault = {0};
    gf_log_level level = GF_LOG_INFO;
    if ((tcp->job_fd >= 0) || !tcp->reformed || (now_ns < tcp->job_retry_ns)) return;
    if (!tcp_is_coordinator(tcp) && (tcp->conns[tcp->coordinator].state != TCP_CONN_UP)) return;
    tcp->job_retry_ns = now_ns + TCP_JOB_RETRY_NS;
    gf_tcp_job_text(tcp, text);
    if (strcmp(text, tcp->own_text) == 0) return; /* this rank's since the job began */
    tcp->job_fd = job_address_listen(tcp, &fault);
    if ((tcp->job_fd < 0) && (fault.foreign_code == EADDRNOTAVAIL) &&
        gf_place_of_fd(tcp->listen_fd, false, &own)) {
        own.port = tcp->job_address.port;
        tcp->job_fd = gf_socket_listen(&own, "the job's port", &fault);
        gf_socket_address_text(&own, text, sizeof text);
        level = GF_LOG_WARN;
    }
    if (tcp->job_fd < 0) return;
    if (listener_add(tcp, tcp->job_fd) != GF_OK) {
        job_close(tcp);
        return;
    }
    if (!tcp_is_coordinator(tcp)) return;
    memcpy(tcp->address_text, text, sizeof tcp->address_text);
    gf_log_line(&tcp->setup.log, level, "restarted ranks find this job at %s now",
                tcp->address_text);
}

/* ---- hellos that came before this rank was the coordinator ---- */

void gf_tcp_held_send_on(struct tcp *tcp)
{
    for (uint32_t i = 0; i < tcp->pending_count; i++) {
        struct pending *pending = &tcp->pending[i];
        if ((pending->fd >= 0) && pending->held) gf_tcp_hello_hold(tcp, pending);
    }
}

tcp_told gf_tcp_held_poll(struct tcp *tcp, uint64_t now_ns, struct gf_rendezvous_event *event_out)
{
    job_listen(tcp, now_ns);
    if (!tcp_is_coordinator(tcp)) return TCP_TOLD_NOTHING;
    for (uint32_t i = 0; i < tcp->pending_count; i++) {
        struct pending *pending = &tcp->pending[i];
        if ((pending->fd < 0) || !pending->held) continue;
        pending->held = false;
        tcp_told told = gf_tcp_hello_take(tcp, pending, event_out);
        if (told != TCP_TOLD_NOTHING) return told;
    }
    return TCP_TOLD_NOTHING;
}

/* ---- another coordinator ---- */

/* This rank is of no epoch any more. Rank 0 gives the job's address up: whoever coordinates takes it
 * over, and this rank finds that one there instead of itself. A member of an older epoch that asks
 * it there takes it for dead: it could not coordinate that one's next epoch either. */
static void listen_end(struct tcp *tcp)
{
    char text[GF_TEXT_MAX];
    listen_set(tcp, false);
    job_close(tcp);
    gf_tcp_job_text(tcp, text);
    if ((tcp->listen_fd < 0) || (strcmp(text, tcp->own_text) != 0)) return;
    gf_socket_close(&tcp->listen_fd);
    tcp->own_text[0] = '\0';
    for (uint32_t i = 0; !tcp->by_name && (i < GF_DATA_PLACES_MAX); i++) /* of the same port */
        if (tcp->device_fds[i] >= 0) gf_socket_close(&tcp->device_fds[i]);
}

/* Any rank but this one counts as the coordinator until it is known who that is. */
void gf_tcp_rejoin_begin(struct tcp *tcp, uint64_t now_ns)
{
    char text[GF_TEXT_MAX];
    tcp->rejoins = true;
    tcp->reformed = false;
    tcp->coordinator = (tcp->setup.rank == 0) ? 1 : 0;
    gf_socket_address_text(&tcp->job_address, tcp->address_text, sizeof tcp->address_text);
    gf_tcp_job_text(tcp, text);
    gf_tcp_connect_to(tcp, GF_RANK_NONE, text, now_ns);
}

gf_status gf_tcp_reform(struct tcp *tcp, uint64_t now_ns, uint32_t coordinator, const char *address)
{
    bool own = (coordinator == tcp->setup.rank);
    GF_ASSERT((coordinator < tcp->setup.world) || (coordinator == GF_RANK_NONE));
    if (tcp->rejoins && (coordinator == GF_RANK_NONE) && tcp->way.on &&
        (tcp->base.fault.code == GF_OK))
        return GF_AGAIN;
    if ((coordinator == tcp->coordinator) &&
        (own || (tcp->conns[coordinator].state == TCP_CONN_UP)))
        return GF_OK;
    if (own && (tcp->listen_fd < 0)) return GF_ERR_STATE;
    if (!own && (coordinator != GF_RANK_NONE) && !gf_tcp_address_fits(tcp, address))
        return GF_ERR_CONFIG;
    for (uint32_t i = 0; i < tcp->conn_count; i++) conn_leave(tcp, &tcp->conns[i]);
    gf_way_close(tcp, &tcp->way);
    gf_way_close(tcp, &tcp->aside);
    memset(&tcp->base.fault, 0, sizeof tcp->base.fault);
    if (coordinator == GF_RANK_NONE) {
        for (uint32_t i = 0; i < tcp->pending_count; i++)
            gf_tcp_pending_drop(tcp, &tcp->pending[i]);
        /* who was of the job begins to look; who came back and is not in yet may ask again */
        if (!tcp->setup.rejoin || (now_ns - tcp->opened_ns >= tcp->setup.join_timeout_ns))
            tcp->opened_ns = now_ns;
        listen_end(tcp);
        gf_tcp_rejoin_begin(tcp, now_ns);
        return GF_AGAIN;
    }
    tcp->coordinator = coordinator;
    tcp->rejoins = false;
    tcp->reformed = true;
    listen_set(tcp, tcp->listen_fd >= 0);
    (void)snprintf(tcp->address_text, sizeof tcp->address_text, "%s",
                   own ? tcp->own_text : address);
    if (own) return tcp->base.fault.code;
    tcp->opened_ns = now_ns;
    gf_tcp_connect_to(tcp, coordinator, address, now_ns);
    return GF_AGAIN;
}
