/* A rank on its way to rank 0, or to whoever coordinates later: it connects until the deadline, and
 * reads the answer. */
#include "drivers/tcp/rendezvous_tcp_state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

void gf_tcp_connect_again(struct tcp *tcp, uint64_t now_ns, int error)
{
    struct conn *conn = gf_tcp_way(tcp);
    gf_tcp_conn_close(conn);
    conn->in_bytes = 0;
    conn->state = TCP_CONN_WAIT;
    tcp->tried_errno = error;
    if (tcp->reformed &&
        ((error == ECONNREFUSED) || (error == ETIMEDOUT) || (error == EHOSTUNREACH))) {
        /* another may coordinate: of a host that is gone no rank does */
        conn->state = TCP_CONN_DOWN;
        conn->lives = (error != ECONNREFUSED);
        tcp->refused = true;
    }
    tcp->retry_at_ns = now_ns + tcp->retry_ns;
    tcp->retry_ns = (2 * tcp->retry_ns < TCP_RETRY_MAX_NS) ? 2 * tcp->retry_ns : TCP_RETRY_MAX_NS;
}

void gf_tcp_connect_wait(struct tcp *tcp, uint64_t now_ns)
{
    gf_tcp_way(tcp)->state = TCP_CONN_WAIT;
    tcp->retry_at_ns = now_ns;
    tcp->retry_ns = TCP_RETRY_FIRST_NS;
}

void gf_tcp_connect_begin(struct tcp *tcp, uint64_t now_ns)
{
    struct conn *conn = gf_tcp_way(tcp);
    tcp->tries++;
    tcp->began_ns = now_ns;
    conn->fd = gf_socket_connect(&tcp->to, &tcp->bind_to, tcp->setup.keepalive_ns);
    if (conn->fd < 0) {
        gf_tcp_connect_again(tcp, now_ns, errno);
        return;
    }
    conn->state = TCP_CONN_CONNECTING;
    if (gf_tcp_epoll_set(tcp, EPOLL_CTL_ADD, conn->fd, tcp->coordinator, EPOLLOUT) != GF_OK)
        gf_tcp_conn_close(conn);
}

void gf_tcp_hello_put(struct tcp *tcp)
{
    struct gf_put put = {tcp->said + GF_FRAME_HEADER_BYTES, GF_FRAME_HELLO_BYTES};
    gf_put_u32(&put, GF_VERSION);
    gf_put_u32(&put, tcp->setup.rank);
    gf_put_u32(&put, tcp->setup.world);
    gf_put_u32(&put, (tcp->auth.on ? GF_HELLO_KEYED : 0) | (tcp->rejoins ? GF_HELLO_REJOINS : 0));
    memset(put.at, 0, put.left);
    if (tcp->auth.on) gf_tcp_hello_prove(tcp);
}

void gf_tcp_connect_end(struct tcp *tcp, uint64_t now_ns)
{
    struct conn *conn = gf_tcp_way(tcp);
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
    if ((error == 0) && gf_socket_met_itself(conn->fd)) error = ECONNREFUSED;
    if (error != 0) {
        gf_tcp_connect_again(tcp, now_ns, error);
        return;
    }
    gf_tcp_hello_put(tcp);
    conn->state = TCP_CONN_HELLO;
    conn->waits_to_send = true; /* as epoll has it, so that the flush puts it right */
    GF_ASSERT(gf_tcp_conn_frame_put(tcp, conn, GF_FRAME_HELLO, tcp->said + GF_FRAME_HEADER_BYTES,
                                    GF_FRAME_HELLO_BYTES));
}

/* How long the frame is that begins in conn->in; 0: nothing that rank 0 says at this point. */
static uint32_t answer_bytes(const struct tcp *tcp, const struct conn *conn)
{
    const struct gf_frame_header header = gf_frame_header_get(conn->in);
    uint32_t mac_bytes = conn->authenticated ? GF_AUTH_MAC_BYTES : 0;
    bool answer =
        (header.kind == GF_FRAME_ANSWER) && (header.payload_bytes == GF_FRAME_ANSWER_BYTES);
    bool challenge = tcp->auth.on && !conn->authenticated && (header.kind == GF_FRAME_CHALLENGE) &&
                     (header.payload_bytes == GF_FRAME_CHALLENGE_BYTES);
    if ((header.magic != GF_FRAME_MAGIC) || (!answer && !challenge)) return 0;
    return GF_FRAME_HEADER_BYTES + header.payload_bytes + mac_bytes;
}

/* GF_OK: come in. An answer that is not authenticated may come from anybody, which is no reason to
 * stay. */
static gf_status answer_take(struct tcp *tcp, struct conn *conn)
{
    struct gf_get get = {.at = conn->in + GF_FRAME_HEADER_BYTES, .left = GF_FRAME_ANSWER_BYTES};
    char reason[GF_FRAME_REASON_BYTES];
    const uint32_t bytes = GF_FRAME_HEADER_BYTES + GF_FRAME_ANSWER_BYTES;
    gf_status code = (gf_status)(int32_t)gf_get_u32(&get);
    gf_get_text(&get, reason, sizeof reason);
    conn->in_bytes = 0;
    if (conn->authenticated && !gf_auth_mac_fits(&conn->mac_in, conn->in, bytes, conn->in + bytes))
        return gf_tcp_because(tcp, GF_ERR_MISMATCH,
                              "the answer of rank 0 at %.50s has a MAC that does not fit: it was "
                              "changed on the way",
                              tcp->address_text);
    if ((code == GF_OK) && tcp->auth.on && !conn->authenticated)
        return gf_tcp_because(tcp, GF_ERR_MISMATCH,
                              "what listens at %.50s asked rank %u for no proof, and this rank "
                              "has a key_file",
                              tcp->address_text, tcp->setup.rank);
    if (code == GF_OK) return GF_OK;
    if (code == GF_ERR_STATE) { /* not now */
        memcpy(tcp->not_now, reason, sizeof reason);
        return GF_ERR_STATE;
    }
    return gf_tcp_because(tcp, GF_ERR_MISMATCH, "rank 0 at %.40s refused rank %u: %s",
                          tcp->address_text, tcp->setup.rank, reason);
}

/* The coordinator of another job answers with its own job id, another version with its own
 * protocol. */
gf_status gf_tcp_answer_read(struct tcp *tcp, uint64_t now_ns)
{
    struct conn *conn = gf_tcp_way(tcp);
    struct gf_frame_header header;
    gf_status status = gf_socket_read(conn->fd, conn->in, &conn->in_bytes, GF_FRAME_HEADER_BYTES);
    if (status == GF_OK) {
        header = gf_frame_header_get(conn->in);
        if (answer_bytes(tcp, conn) == 0)
            return gf_tcp_because(tcp, GF_ERR_MISMATCH,
                                  "what listens at %s is not rank 0 of a GradientFlow job (first "
                                  "bytes %08x, expected %08x)",
                                  tcp->address_text, header.magic, GF_FRAME_MAGIC);
        status = gf_socket_read(conn->fd, conn->in, &conn->in_bytes, answer_bytes(tcp, conn));
    }
    if (status < 0) /* it had no time for us, or it has just died: another may come */
        gf_tcp_connect_again(tcp, now_ns, (errno != 0) ? errno : ECONNRESET);
    if (status != GF_OK) return GF_AGAIN;
    status = (header.kind == GF_FRAME_CHALLENGE) ? gf_tcp_challenge_take(tcp, conn)
                                                 : answer_take(tcp, conn);
    if (status == GF_ERR_STATE) {
        gf_tcp_connect_again(tcp, now_ns, EBUSY);
        return GF_AGAIN;
    }
    if ((status == GF_OK) && tcp->rejoins && !gf_tcp_rejoin_end(tcp, header.from))
        return gf_tcp_because(tcp, GF_ERR_MISMATCH,
                              "what listens at %.50s calls itself rank %u of %u", tcp->address_text,
                              header.from, tcp->setup.world);
    return status;
}

/* What was said when this rank came in holds no longer: it was slow to speak, and another process
 * claimed its rank, or what it offered does not fit. Only rank 0 of a job without a key says so, in
 * the first join. */
void gf_tcp_answer_take_back(struct tcp *tcp, uint64_t now_ns)
{
    if (tcp->reformed || gf_tcp_way(tcp)->authenticated) return;
    gf_status status = answer_take(tcp, gf_tcp_way(tcp));
    if (status == GF_ERR_STATE)
        gf_tcp_connect_again(tcp, now_ns, EBUSY);
    else if (status < 0)
        (void)gf_tcp_failed(tcp, status);
}

gf_status gf_tcp_connect_deadline(struct tcp *tcp, uint64_t now_ns)
{
    double seconds = (double)(now_ns - tcp->opened_ns) / 1e9;
    if (now_ns - tcp->opened_ns < tcp->setup.join_timeout_ns) return GF_AGAIN;
    if (tcp->tried_errno == EBUSY)
        return gf_tcp_failed(tcp, gf_tcp_because(tcp, GF_ERR_MISMATCH,
                                                 "rank 0 at %.40s refused rank %u for %.1f s: %s",
                                                 tcp->address_text, tcp->setup.rank, seconds,
                                                 tcp->not_now));
    if (gf_tcp_way(tcp)->state == TCP_CONN_HELLO)
        return gf_tcp_failed(tcp, gf_tcp_because(tcp, GF_ERR_TIMEOUT,
                                                 "rank 0 at %s took the connection and then said "
                                                 "nothing for %.1f s",
                                                 tcp->address_text, seconds));
    return gf_fault_set(&tcp->base.fault, GF_ERR_TIMEOUT, 0, "connect", tcp->tried_errno,
                        "rank %u cannot reach rank 0 at %s: tried %u times in %.1f s, last: %s",
                        tcp->setup.rank, tcp->address_text, tcp->tries, seconds,
                        (tcp->tried_errno != 0) ? strerror(tcp->tried_errno) : "no answer");
}
