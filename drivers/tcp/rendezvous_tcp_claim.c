/* Who is taken for which rank. Without a key, and beyond this host, anybody can say a hello that fits: such a process
 * is rejected when it proves not to fit, or when it says nothing and another claims the same rank. */
#include "drivers/tcp/rendezvous_tcp_state.h"

#include "drivers/tcp/rendezvous_user.h"

#include <stdio.h>
#include <unistd.h>

/* With neither a key nor the kernel's word that it is this user's own process. */
bool gf_tcp_said_by_anybody(const struct pending *pending)
{
    uint32_t user = 0;
    if (pending->challenged) return false;
    return !gf_socket_peer_user(pending->fd, &user) || (user != geteuid());
}

/* The other end hears why; gf_tcp_answer_take_back(). */
static void claim_end(struct tcp *tcp, struct conn *conn, gf_status code, const char *reason)
{
    if (conn->state == TCP_CONN_UP) {
        (void)gf_tcp_conn_answer(tcp, conn, code, reason);
        gf_tcp_conn_close(conn);
    }
    gf_tcp_conn_init(conn, conn->peer, TCP_CONN_NONE);
}

gf_status gf_tcp_claim_take(struct tcp *tcp, const struct gf_frame_hello *hello, uint64_t since_ns)
{
    struct conn *conn = &tcp->conns[hello->rank];
    bool up = (conn->state == TCP_CONN_UP), anybody = up && conn->unproven;
    if (anybody && !conn->heard && (since_ns >= conn->since_ns + TCP_SILENT_NS))
        claim_end(tcp, conn, GF_ERR_STATE, "another process claims this rank");
    if (conn->state == TCP_CONN_NONE) return GF_OK;
    /* Who comes back takes the place of a connection that has ended, and so does a rank around another centre. */
    if (!up && (tcp->reformed || hello->rejoins || conn->rejoins)) return GF_OK;
    (void)snprintf(tcp->text, GF_FRAME_REASON_BYTES, "rank %u %s: was it started twice?", hello->rank,
                   up ? "is here already" : "was here and has gone");
    /* It may try again: an end may not be seen yet. */
    return (hello->rejoins || anybody) ? GF_ERR_STATE : GF_ERR_MISMATCH;
}

bool gf_tcp_reject(struct gf_rendezvous *rendezvous, uint32_t rank, const char *reason)
{
    struct tcp *tcp = (struct tcp *)rendezvous;
    if ((rank >= tcp->conn_count) || !tcp->conns[rank].unproven) return false;
    claim_end(tcp, &tcp->conns[rank], GF_ERR_MISMATCH, reason);
    return true;
}

void gf_tcp_joined(struct gf_rendezvous *rendezvous)
{
    struct tcp *tcp = (struct tcp *)rendezvous;
    for (uint32_t i = 0; i < tcp->conn_count; i++) tcp->conns[i].unproven = false;
}
