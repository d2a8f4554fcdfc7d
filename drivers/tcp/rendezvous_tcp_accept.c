/* Rank 0 and those who rejoin: anybody may connect, only a rank of this job gets past its hello.
 * Without a key, and beyond this host, anybody can say a hello that fits: such a process is
 * rejected when it proves not to fit, or when it says nothing and another claims the same rank. */
#include "drivers/tcp/rendezvous_tcp_state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static void stranger_log(struct tcp *tcp, gf_log_level level, const char *what)
{
    if (!gf_log_due(++tcp->strangers)) return;
    gf_log_line(&tcp->setup.log, level,
                "control channel at %s: %s (%u connections rejected so far)", tcp->address_text,
                what, tcp->strangers);
}

/* A reset: one packet, and nothing that the kernel keeps until the other end has answered. */
void gf_tcp_pending_drop(struct pending *pending)
{
    if (pending->fd >= 0) gf_socket_reset(&pending->fd);
}

void gf_tcp_stranger_drop(struct tcp *tcp, struct pending *pending, gf_log_level level,
                          const char *what)
{
    gf_tcp_pending_drop(pending);
    stranger_log(tcp, level, what);
}

void gf_tcp_pending_expire(struct tcp *tcp, uint64_t now_ns)
{
    for (uint32_t i = 0; i < TCP_PENDING_MAX; i++) {
        if ((tcp->pending[i].fd < 0) || (now_ns - tcp->pending[i].since_ns < TCP_PENDING_NS))
            continue;
        gf_tcp_stranger_drop(tcp, &tcp->pending[i], GF_LOG_WARN,
                             "a connection did not say or prove who it is within 5 s");
    }
}

static uint32_t slots_of(const struct tcp *tcp, const struct gf_place *from)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < TCP_PENDING_MAX; i++)
        count +=
            (tcp->pending[i].fd >= 0) && (memcmp(&tcp->pending[i].from, from, sizeof *from) == 0);
    return count;
}

/* A free slot, else, of the address that holds most of them, that of the connection that has said
 * nothing for longest. One whose hello was good needs the time of a round trip, so it gives way
 * only after a while: otherwise ranks that all come at once would push each other out for ever.
 * TCP_PENDING_MAX: none now, those who rejoin wait in the kernel. */
static uint32_t slot_find(const struct tcp *tcp, uint64_t now_ns)
{
    const struct pending *pending = tcp->pending;
    uint32_t found = TCP_PENDING_MAX;
    uint32_t found_holds = 0;
    for (uint32_t i = 0; i < TCP_PENDING_MAX; i++) {
        if (pending[i].fd < 0) return i;
        if (pending[i].challenged && (now_ns - pending[i].since_ns < TCP_CHALLENGED_NS)) continue;
        uint32_t holds = slots_of(tcp, &pending[i].from);
        bool older = (found == TCP_PENDING_MAX) || (pending[i].since_ns < pending[found].since_ns);
        if ((holds < found_holds) || ((holds == found_holds) && !older)) continue;
        found = i;
        found_holds = holds;
    }
    return found;
}

/* Reasons are for ranks that were started wrongly, and those are few: in a flood most hear none. */
static bool reason_is_due(struct tcp *tcp, const struct pending *pending)
{
    if (pending->challenged) return true;
    if (pending->since_ns >= tcp->reasons_since_ns + TCP_REASONS_NS) {
        tcp->reasons_since_ns = pending->since_ns;
        tcp->reasons = 0;
    }
    return ++tcp->reasons <= TCP_REASONS_MAX;
}

/* With neither a key nor the kernel's word that it is this user's own process. */
static bool said_by_anybody(const struct pending *pending)
{
    uint32_t user = 0;
    return !pending->challenged &&
           ((gf_socket_peer_user(pending->fd, &user) != GF_OK) || (user != geteuid()));
}

/* The other end hears code and tcp->text, if a reason is due; *event_out is what the caller may
 * tell of it. */
static void pending_refuse(struct tcp *tcp, struct pending *pending, uint32_t rank,
                           struct gf_rendezvous_event *event_out, gf_status code)
{
    const size_t bytes = GF_FRAME_HEADER_BYTES + GF_FRAME_ANSWER_BYTES;
    unsigned char answer[GF_FRAME_HEADER_BYTES + GF_FRAME_ANSWER_BYTES + GF_AUTH_MAC_BYTES];
    unsigned char sink[512];
    struct gf_put put = {answer, bytes};
    char what[sizeof tcp->text + 32];
    (void)snprintf(what, sizeof what, "refused a rank: %s", tcp->text);
    stranger_log(tcp, GF_LOG_WARN, what);
    *event_out = (struct gf_rendezvous_event){.kind = GF_RENDEZVOUS_REFUSED,
                                              .rank = rank,
                                              .text = tcp->text,
                                              .unproven = said_by_anybody(pending)};
    if (!reason_is_due(tcp, pending)) {
        gf_tcp_pending_drop(pending);
        return;
    }
    gf_frame_header_put(&put, GF_FRAME_ANSWER, GF_FRAME_ANSWER_BYTES, tcp->setup.job_id,
                        tcp->setup.rank);
    gf_tcp_answer_put(put.at, code, tcp->text);
    if (pending->challenged) {
        struct gf_auth_mac to_rank;
        struct gf_auth_mac to_coordinator;
        gf_tcp_pending_macs(tcp, pending, &to_rank, &to_coordinator);
        gf_auth_mac_put(&to_rank, answer, bytes, NULL, 0, answer + bytes);
    }
    /* A new socket has room for it. */
    (void)send(pending->fd, answer, pending->challenged ? sizeof answer : bytes,
               MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(pending->fd, SHUT_WR);
    /* unread bytes would turn the answer into a reset */
    (void)recv(pending->fd, sink, sizeof sink, MSG_DONTWAIT);
    gf_socket_close(&pending->fd);
}

/* Without a key all ranks are on this host, and of one user. Where the kernel has no query for the
 * user, anybody of this host may come in; where it cannot answer now, nobody: a rank tries again,
 * and a stranger may have caused it. */
static gf_status user_check(struct tcp *tcp, struct pending *pending,
                            struct gf_rendezvous_event *refused_out)
{
    uint32_t user = geteuid();
    if (!tcp->same_user) return GF_AGAIN;
    if (gf_socket_peer_user(pending->fd, &user) == GF_AGAIN)
        gf_tcp_stranger_drop(tcp, pending, GF_LOG_ERROR,
                             "whose a connection is cannot be asked: it has ended, or no "
                             "descriptor or memory is left");
    else if (user != geteuid()) {
        pending_refuse(tcp, pending, GF_RANK_NONE, refused_out,
                       gf_tcp_because(tcp, GF_ERR_MISMATCH,
                                      "user %u at the other end, this job is of user %u: without "
                                      "a key_file all ranks run as one user",
                                      user, (unsigned)geteuid()));
        if (tcp_is_coordinator(tcp)) return GF_OK;
    }
    return GF_AGAIN;
}

gf_status gf_tcp_accept(struct tcp *tcp, int listen_fd, uint64_t now_ns,
                        struct gf_rendezvous_event *event_out)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    uint32_t slot = slot_find(tcp, now_ns);
    if (slot == TCP_PENDING_MAX) return GF_AGAIN;
    int fd = accept4(listen_fd, (struct sockaddr *)&address, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if ((errno == EMFILE) || (errno == ENFILE))
            stranger_log(tcp, GF_LOG_ERROR, "accept: no file descriptor left");
        return GF_AGAIN; /* anything else is a connection that has gone already */
    }
    struct pending *pending = &tcp->pending[slot];
    if (pending->fd >= 0)
        gf_tcp_stranger_drop(
            tcp, pending, GF_LOG_WARN,
            "too many connections that do not say who they are, dropped the oldest");
    pending->fd = fd;
    pending->in_bytes = 0;
    memset(pending->said, 0, sizeof pending->said); /* a hello of another protocol may be shorter */
    pending->challenged = false;
    pending->held = false;
    pending->data = false;
    pending->since_ns = now_ns;
    (void)gf_place_of(&address, &pending->from);
    pending->from.port = 0;
    gf_status status = user_check(tcp, pending, event_out);
    if (pending->fd < 0) return status;
    status = gf_tcp_pending_read(tcp, slot, event_out); /* its hello is mostly here already */
    if ((status != GF_AGAIN) || (pending->fd < 0)) return status;
    if (gf_tcp_epoll_set(tcp, EPOLL_CTL_ADD, fd, TCP_ABOUT_PENDING | slot, EPOLLIN) != GF_OK)
        gf_tcp_pending_drop(pending);
    return GF_AGAIN;
}

/* ---- who is taken for which rank ---- */

/* The other end hears why; gf_tcp_answer_take_back(). */
static void claim_end(struct tcp *tcp, struct conn *conn, gf_status code, const char *reason)
{
    if (conn->state == TCP_CONN_UP) {
        (void)gf_tcp_conn_answer(tcp, conn, code, reason);
        gf_tcp_conn_close(conn);
    }
    gf_tcp_conn_init(conn, TCP_CONN_NONE);
}

/* GF_OK: who said `hello` may come in; who was taken for that rank and said nothing is gone. Else
 * tcp->text has why. */
static gf_status claim_take(struct tcp *tcp, const struct gf_frame_hello *hello, uint64_t since_ns)
{
    struct conn *conn = &tcp->conns[hello->rank];
    bool up = (conn->state == TCP_CONN_UP), anybody = up && conn->unproven;
    if (anybody && !conn->heard && (since_ns >= conn->since_ns + TCP_SILENT_NS))
        claim_end(tcp, conn, GF_ERR_STATE, "another process claims this rank");
    if (conn->state == TCP_CONN_NONE) return GF_OK;
    /* Who comes back takes the place of a connection that has ended, and so does a rank with
     * another coordinator. */
    bool rejoins = (hello->flags & GF_HELLO_REJOINS) != 0;
    if (!up && (tcp->reformed || rejoins || conn->rejoins)) return GF_OK;
    /* It may try again: an end may not be seen yet. */
    return gf_tcp_because(tcp, (rejoins || anybody) ? GF_ERR_STATE : GF_ERR_MISMATCH,
                          "rank %u %s: was it started twice?", hello->rank,
                          up ? "is here already" : "was here and has gone");
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

/* Why this hello cannot come in: GF_OK if it can. ours_out: it is of this job, so that the job
 * itself is ill. */
static gf_status hello_check(struct tcp *tcp, const struct gf_frame_header *header,
                             const struct gf_frame_hello *hello, uint64_t since_ns, bool *ours_out)
{
    *ours_out = (header->job_id == tcp->setup.job_id);
    if (!*ours_out)
        return gf_tcp_because(tcp, GF_ERR_MISMATCH,
                              "job id %" PRIu64 " at rank 0, %" PRIu64 " at rank %u",
                              tcp->setup.job_id, header->job_id, header->from);
    if (header->protocol != GF_FRAME_PROTOCOL)
        return gf_tcp_because(tcp, GF_ERR_MISMATCH, "protocol version %u at rank 0, %u at rank %u",
                              GF_FRAME_PROTOCOL, header->protocol, header->from);
    if (hello->version != GF_VERSION)
        return gf_tcp_because(tcp, GF_ERR_MISMATCH,
                              "library version %u.%u at rank 0, %u.%u at rank %u", GF_VERSION_MAJOR,
                              GF_VERSION_MINOR, hello->version >> 16, hello->version & 0xffffu,
                              hello->rank);
    if (hello->world != tcp->setup.world)
        return gf_tcp_because(tcp, GF_ERR_MISMATCH, "world %u at rank 0, %u at rank %u",
                              tcp->setup.world, hello->world, hello->rank);
    if ((hello->rank == tcp->setup.rank) || (hello->rank >= tcp->setup.world))
        return gf_tcp_because(tcp, GF_ERR_MISMATCH, "rank %u: expected 1 to %u", hello->rank,
                              tcp->setup.world - 1);
    *ours_out = false; /* the first one serves the job well */
    return claim_take(tcp, hello, since_ns);
}

static gf_status pending_promote(struct tcp *tcp, struct pending *pending, uint32_t rank,
                                 bool rejoins)
{
    struct conn *conn = &tcp->conns[rank];
    (void)epoll_ctl(tcp->strangers_fd, EPOLL_CTL_DEL, pending->fd, NULL); /* where it was watched */
    gf_socket_options_set(pending->fd, tcp->setup.keepalive_ns);
    if (gf_tcp_epoll_set(tcp, EPOLL_CTL_ADD, pending->fd, rank, EPOLLIN) != GF_OK) {
        gf_tcp_pending_drop(pending);
        return GF_AGAIN;
    }
    gf_tcp_conn_init(conn, TCP_CONN_UP);
    conn->rejoins = rejoins;
    conn->unproven = said_by_anybody(pending);
    conn->since_ns = pending->since_ns;
    conn->fd = pending->fd;
    conn->authenticated = pending->challenged;
    if (conn->authenticated) gf_tcp_pending_macs(tcp, pending, &conn->mac_out, &conn->mac_in);
    pending->fd = -1;
    GF_ASSERT(gf_tcp_conn_answer(tcp, conn, GF_OK, ""));
    return GF_OK;
}

struct gf_frame_hello gf_tcp_hello_get(const unsigned char *frame)
{
    struct gf_get get = {.at = frame + GF_FRAME_HEADER_BYTES, .left = GF_FRAME_HELLO_BYTES};
    struct gf_frame_hello hello = {.version = gf_get_u32(&get)};
    hello.rank = gf_get_u32(&get);
    hello.world = gf_get_u32(&get);
    hello.flags = gf_get_u32(&get);
    return hello;
}

/* Of a hello that is whole and, where the job has a key, proven; or one of another job or
 * protocol. */
static gf_status hello_take(struct tcp *tcp, struct pending *pending,
                            struct gf_rendezvous_event *event_out)
{
    const struct gf_frame_header header = gf_frame_header_get(pending->said);
    const struct gf_frame_hello hello = gf_tcp_hello_get(pending->said);
    bool ours = false, believed = (tcp->auth.on == pending->challenged);
    bool rejoins = (hello.flags & GF_HELLO_REJOINS) != 0;
    gf_status status = hello_check(tcp, &header, &hello, pending->since_ns, &ours);
    if (status == GF_OK) {
        *event_out = (struct gf_rendezvous_event){
            .kind = GF_RENDEZVOUS_CONNECTED, .rank = hello.rank, .rejoins = rejoins};
        return pending_promote(tcp, pending, hello.rank, rejoins);
    }
    pending_refuse(tcp, pending, (header.protocol == GF_FRAME_PROTOCOL) ? hello.rank : header.from,
                   event_out, status);
    /* a joiner that does not fit harms no job */
    return (ours && believed && !rejoins) ? GF_OK : GF_AGAIN;
}

/* A hello of this job and protocol, before its sender is believed. */
gf_status gf_tcp_hello_meet(struct tcp *tcp, struct pending *pending,
                            struct gf_rendezvous_event *event_out)
{
    const struct gf_frame_hello hello = gf_tcp_hello_get(pending->said);
    if (((hello.flags & GF_HELLO_KEYED) != 0) != tcp->auth.on) {
        pending_refuse(tcp, pending, hello.rank, event_out,
                       gf_tcp_because(tcp, GF_ERR_MISMATCH,
                                      tcp->auth.on ? "rank %u has no key_file, this job wants one"
                                                   : "rank %u has a key_file, rank 0 has none",
                                      hello.rank));
        /* anybody can say it */
        bool said_by_many = tcp->auth.on || ((hello.flags & GF_HELLO_REJOINS) != 0);
        return (said_by_many || !tcp_is_coordinator(tcp)) ? GF_AGAIN : GF_OK;
    }
    if (tcp->auth.on && !gf_tcp_hello_fits(tcp, pending)) {
        pending_refuse(tcp, pending, hello.rank, event_out,
                       gf_tcp_because(tcp, GF_ERR_MISMATCH,
                                      "rank %u did not prove that it has this job's key: its "
                                      "key_file has other bytes",
                                      hello.rank));
        return GF_AGAIN;
    }
    if (!tcp_is_coordinator(tcp)) {
        pending->held = gf_tcp_hold(tcp, pending);
        if (pending->held) return GF_AGAIN;
        gf_tcp_stranger_drop(tcp, pending, GF_LOG_INFO, "a hello that does not fit");
        return GF_AGAIN;
    }
    if (!tcp->auth.on) return hello_take(tcp, pending, event_out);
    if (!gf_tcp_challenge_send(tcp, pending)) gf_tcp_pending_drop(pending);
    return GF_AGAIN;
}

static gf_status proof_take(struct tcp *tcp, struct pending *pending,
                            struct gf_rendezvous_event *event_out)
{
    const struct gf_frame_hello hello = gf_tcp_hello_get(pending->said);
    if (pending->data) {
        gf_tcp_data_proven(tcp, pending);
        return GF_AGAIN;
    }
    if (gf_tcp_proof_fits(tcp, pending)) return hello_take(tcp, pending, event_out);
    pending_refuse(tcp, pending, hello.rank, event_out,
                   gf_tcp_because(tcp, GF_ERR_MISMATCH,
                                  "rank %u did not prove that it has this job's key", hello.rank));
    return GF_AGAIN;
}

static void pending_gone(struct tcp *tcp, struct pending *pending)
{
    char what[120] = "a connection ended before it said who it is";
    if (pending->challenged && !pending->data)
        (void)snprintf(what, sizeof what,
                       "rank %u went away when it was challenged: it may have another key_file",
                       gf_tcp_hello_get(pending->said).rank);
    gf_tcp_stranger_drop(tcp, pending, pending->challenged ? GF_LOG_WARN : GF_LOG_INFO, what);
}

/* False: they are not all here, or never will be. */
static bool pending_has(struct tcp *tcp, struct pending *pending, unsigned char *in, uint32_t want)
{
    gf_status status = gf_socket_read(pending->fd, in, &pending->in_bytes, want);
    if (status < 0) pending_gone(tcp, pending);
    return status == GF_OK;
}

gf_status gf_tcp_pending_read(struct tcp *tcp, uint32_t slot, struct gf_rendezvous_event *event_out)
{
    struct pending *pending = &tcp->pending[slot];
    const uint32_t proof_bytes = GF_FRAME_HEADER_BYTES + GF_FRAME_PROOF_BYTES;
    if (pending->fd < 0) return GF_AGAIN;
    if (pending->held) { /* it has said all that it may: it has gone, or is nobody */
        unsigned char more;
        uint32_t have = 0;
        if (gf_socket_read(pending->fd, &more, &have, 1) != GF_AGAIN) pending_gone(tcp, pending);
        return GF_AGAIN;
    }
    if (pending->challenged)
        return pending_has(tcp, pending, pending->said + TCP_TALK_CHALLENGE_BYTES, proof_bytes)
                   ? proof_take(tcp, pending, event_out)
                   : GF_AGAIN;
    if (!pending_has(tcp, pending, pending->said, GF_FRAME_HEADER_BYTES)) return GF_AGAIN;
    struct gf_frame_header header = gf_frame_header_get(pending->said);
    /* A hello of another protocol version may have any size; its header is enough to refuse it. */
    bool data = (header.kind == GF_FRAME_DATA_HELLO);
    bool foreign = (header.protocol != GF_FRAME_PROTOCOL) || (header.job_id != tcp->setup.job_id);
    if ((header.magic != GF_FRAME_MAGIC) || (header.header_bytes < GF_FRAME_HEADER_BYTES) ||
        (!foreign && (((header.kind != GF_FRAME_HELLO) && !data) ||
                      (header.payload_bytes != GF_FRAME_HELLO_BYTES) ||
                      (header.header_bytes != GF_FRAME_HEADER_BYTES)))) {
        gf_tcp_stranger_drop(tcp, pending, GF_LOG_WARN, "a stranger's bytes are no hello");
        return GF_AGAIN;
    }
    if ((!foreign || tcp->auth.on) &&
        !pending_has(tcp, pending, pending->said, TCP_HELLO_FRAME_BYTES))
        return GF_AGAIN;
    if (!foreign && data) {
        gf_tcp_data_meet(tcp, pending);
        return GF_AGAIN;
    }
    if (!foreign) return gf_tcp_hello_meet(tcp, pending, event_out);
    /* what there is */
    (void)gf_socket_read(pending->fd, pending->said, &pending->in_bytes, TCP_HELLO_FRAME_BYTES);
    if (tcp_is_coordinator(tcp) && (!tcp->auth.on || gf_tcp_hello_fits(tcp, pending)))
        return hello_take(tcp, pending, event_out);
    gf_tcp_stranger_drop(tcp, pending, GF_LOG_INFO, "a hello of another job or version");
    return GF_AGAIN;
}
