/* Another rank coordinates. Each rank listens at a port of its own from its first connection on, at
 * the address that this connection has; who rejoins there waits until this rank is the coordinator.
 * That the port refuses is the proof that its process has ended, so it stays open until close().
 *
 * The coordinator also listens at the address of the job, once that is free: there a restarted rank
 * finds it. */
#include "drivers/tcp/rendezvous_tcp_state.h"

#include <errno.h>
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

static void listen_set(struct tcp *tcp, bool listens)
{
    if (tcp->listens == listens) return;
    tcp->listens = listens;
    (void)gf_tcp_epoll_set(tcp, listens ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, tcp->listen_fd,
                           TCP_ABOUT_LISTEN, EPOLLIN);
}

gf_status gf_tcp_listen_at(struct tcp *tcp, const struct gf_place *own, struct gf_fault *fault_out)
{
    struct gf_place at = *own;
    if (tcp->listen_fd >= 0) return GF_OK;
    at.port = 0;
    tcp->listen_fd = (tcp->port_first == 0)
                         ? gf_socket_listen(&at, "a free port of this host", fault_out)
                         : listen_within(tcp, &at, fault_out);
    if (tcp->listen_fd < 0) return GF_ERR_SYSTEM;
    if (!gf_place_of_fd(tcp->listen_fd, false, &at)) return GF_ERR_SYSTEM;
    gf_socket_address_text(&at, tcp->own_text, sizeof tcp->own_text);
    listen_set(tcp, true);
    return GF_OK;
}

void gf_tcp_listen(struct tcp *tcp, int fd)
{
    struct gf_place at;
    struct gf_fault fault = {0};
    if ((tcp->listen_fd >= 0) || !gf_place_of_fd(fd, false, &at)) return;
    if (gf_tcp_listen_at(tcp, &at, &fault) == GF_OK) return;
    gf_log_line(&tcp->setup.log, GF_LOG_WARN, "rank %u could not coordinate if others died: %s",
                tcp->setup.rank, fault.text);
}

/* Closed on purpose, and said so where it can be: an end without that word counts as a death. */
static void conn_leave(struct tcp *tcp, struct conn *conn)
{
    bool talks = (conn->state == TCP_CONN_UP) ||
                 ((conn->state == TCP_CONN_HELLO) &&
                  (!tcp->auth.on || conn->authenticated)); /* else nobody believes us yet */
    if (conn->fd < 0) return;
    if (talks && !conn->broken) (void)gf_tcp_conn_frame_put(tcp, conn, GF_FRAME_LEFT, NULL, 0);
    gf_tcp_conn_close(conn);
}

/* ---- the job's address ---- */

static void job_close(struct tcp *tcp)
{
    if (tcp->job_fd >= 0) gf_socket_close(&tcp->job_fd);
    tcp->job_retry_ns = 0;
}

/* Where a new coordinator's host does not have the job's address, it listens at that port of its
 * own: who is to come back is told the host. Where rank 0 lives on without the others, stopped
 * perhaps, the address is still its own. */
static void job_listen(struct tcp *tcp, uint64_t now_ns)
{
    struct gf_place at = gf_tcp_job_address(tcp);
    struct gf_place own;
    struct gf_fault fault = {0};
    if ((tcp->job_fd >= 0) || !tcp->reformed || (now_ns < tcp->job_retry_ns)) return;
    tcp->job_retry_ns = now_ns + TCP_JOB_RETRY_NS;
    tcp->job_fd = gf_socket_listen(&at, "the job's address", &fault);
    if ((tcp->job_fd < 0) && (fault.foreign_code == EADDRNOTAVAIL) &&
        gf_place_of_fd(tcp->listen_fd, false, &own)) {
        at = own;
        at.port = tcp->job_address.port;
        tcp->job_fd = gf_socket_listen(&at, "the job's port", &fault);
    }
    if (tcp->job_fd < 0) return;
    if (gf_tcp_epoll_set(tcp, EPOLL_CTL_ADD, tcp->job_fd, TCP_ABOUT_JOB, EPOLLIN) != GF_OK) {
        job_close(tcp);
        return;
    }
    gf_socket_address_text(&at, tcp->address_text, sizeof tcp->address_text);
    gf_log_line(&tcp->setup.log, GF_LOG_INFO, "restarted ranks find this job at %s now",
                tcp->address_text);
}

/* ---- hellos that came before this rank was the coordinator ---- */

bool gf_tcp_hold(const struct tcp *tcp, const struct pending *pending)
{
    const struct gf_frame_hello hello = gf_tcp_hello_get(pending->said);
    return (hello.version == GF_VERSION) && (hello.world == tcp->setup.world) &&
           (hello.rank < tcp->setup.world) && (hello.rank != tcp->setup.rank);
}

gf_status gf_tcp_held_poll(struct tcp *tcp, uint64_t now_ns, struct gf_rendezvous_event *event_out)
{
    for (uint32_t i = 0; tcp_is_coordinator(tcp) && (i < TCP_PENDING_MAX); i++) {
        struct pending *pending = &tcp->pending[i];
        if ((pending->fd < 0) || !pending->held) continue;
        pending->held = false;
        gf_status status = gf_tcp_hello_meet(tcp, pending, event_out);
        if (status != GF_AGAIN) return status;
    }
    conn_state state = gf_tcp_way(tcp)->state;
    bool reaches = (state == TCP_CONN_CONNECTING) && (tcp->rejoins || tcp->reformed);
    if (tcp_is_coordinator(tcp))
        job_listen(tcp, now_ns);
    else if ((reaches || (tcp->rejoins && (state == TCP_CONN_HELLO))) &&
             (now_ns - tcp->began_ns >= TCP_REJOIN_NS))
        gf_tcp_connect_again(tcp, now_ns, ETIMEDOUT); /* another may listen there, or coordinate */
    return GF_AGAIN;
}

/* The connection lies in any place but this rank's own until it is known whose it is. */
void gf_tcp_rejoin_begin(struct tcp *tcp, uint64_t now_ns)
{
    tcp->rejoins = true;
    tcp->reformed = false;
    tcp->coordinator = (tcp->setup.rank == 0) ? 1 : 0;
    tcp->to = tcp->job_address;
    gf_socket_address_text(&tcp->job_address, tcp->address_text, sizeof tcp->address_text);
    gf_tcp_connect_wait(tcp, now_ns);
}

bool gf_tcp_rejoin_end(struct tcp *tcp, uint32_t coordinator)
{
    struct conn *from = &tcp->conns[tcp->coordinator];
    struct conn *to = &tcp->conns[coordinator];
    if ((coordinator >= tcp->setup.world) || (coordinator == tcp->setup.rank)) return false;
    tcp->rejoins = false;
    tcp->reformed = true;
    if (to == from) return true;
    memcpy(to, from, sizeof *to);
    gf_tcp_conn_init(from, TCP_CONN_NONE);
    gf_auth_forget(&from->mac_in, sizeof from->mac_in);
    gf_auth_forget(&from->mac_out, sizeof from->mac_out);
    tcp->coordinator = coordinator;
    uint32_t events = EPOLLIN | (to->waits_to_send ? (uint32_t)EPOLLOUT : 0u);
    return gf_tcp_epoll_set(tcp, EPOLL_CTL_MOD, to->fd, coordinator, events) == GF_OK;
}

gf_status gf_tcp_reform(struct tcp *tcp, uint64_t now_ns, uint32_t coordinator, const char *address)
{
    struct gf_place to = tcp->to;
    GF_ASSERT((coordinator < tcp->setup.world) || (coordinator == GF_RANK_NONE));
    if (tcp->rejoins && (coordinator == GF_RANK_NONE) &&
        (tcp->conns[tcp->coordinator].state == TCP_CONN_WAIT) && (tcp->base.fault.code == GF_OK))
        return GF_AGAIN;
    if ((coordinator == tcp->coordinator) &&
        (tcp_is_coordinator(tcp) || (tcp->conns[coordinator].state == TCP_CONN_UP)))
        return GF_OK;
    if ((coordinator == tcp->setup.rank) && (tcp->listen_fd < 0)) return GF_ERR_STATE;
    if ((coordinator != tcp->setup.rank) && (coordinator != GF_RANK_NONE) &&
        !gf_place_parse(address, true, &to))
        return GF_ERR_CONFIG;
    for (uint32_t i = 0; i < tcp->conn_count; i++) {
        conn_leave(tcp, &tcp->conns[i]);
        gf_tcp_conn_init(&tcp->conns[i], TCP_CONN_NONE);
    }
    /* who was promised an answer; others may mean the new coordinator */
    for (uint32_t i = 0; i < TCP_PENDING_MAX; i++)
        if (tcp->pending[i].challenged || (coordinator == GF_RANK_NONE))
            gf_tcp_pending_drop(&tcp->pending[i]);
    tcp->refused = false;
    memset(&tcp->base.fault, 0, sizeof tcp->base.fault);
    job_close(tcp);
    if (coordinator == GF_RANK_NONE) {
        if (now_ns - tcp->opened_ns >= tcp->setup.join_timeout_ns) { /* it is asked for again */
            tcp->opened_ns = now_ns;
            tcp->tries = 0;
        }
        listen_set(tcp, false);
        gf_tcp_rejoin_begin(tcp, now_ns);
        return GF_AGAIN;
    }
    tcp->coordinator = coordinator;
    tcp->rejoins = false;
    tcp->reformed = true;
    if (tcp_is_coordinator(tcp)) address = tcp->own_text;
    (void)snprintf(tcp->address_text, sizeof tcp->address_text, "%s", address);
    listen_set(tcp, tcp->listen_fd >= 0);
    if (tcp_is_coordinator(tcp)) return tcp->base.fault.code;
    tcp->to = to;
    tcp->opened_ns = now_ns;
    tcp->tries = 0;
    gf_tcp_connect_wait(tcp, now_ns);
    return GF_AGAIN;
}
