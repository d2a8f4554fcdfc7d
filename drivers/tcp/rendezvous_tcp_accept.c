/* Who accepts: anybody may connect, only a rank of this job gets past its hello. In an insecure job
 * anybody can say a hello that fits: such a process is rejected when it proves not to fit, or when
 * it says nothing and another claims the same rank. */
#include "drivers/tcp/rendezvous_tcp_state.h"
#include "drivers/descriptors.h"

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

/* ---- slots ---- */

int gf_tcp_pending_keep(struct tcp *tcp, struct pending *pending)
{
    int fd = pending->fd;
    pending->fd = -1;
    tcp->sources[pending->source].held--;
    (void)epoll_ctl(tcp->strangers_fd, EPOLL_CTL_DEL, fd, NULL); /* where it may be watched */
    return fd;
}

/* A reset: one packet, and nothing that the kernel keeps until the other end has answered. */
void gf_tcp_pending_drop(struct tcp *tcp, struct pending *pending)
{
    if (pending->fd < 0) return;
    int fd = gf_tcp_pending_keep(tcp, pending);
    gf_socket_reset(&fd);
}

void gf_tcp_stranger_drop(struct tcp *tcp, struct pending *pending, gf_log_level level,
                          const char *what)
{
    gf_tcp_pending_drop(tcp, pending);
    stranger_log(tcp, level, what);
}

/* The slot of that address; a free one where it has none. */
static uint32_t source_find(const struct tcp *tcp, const struct gf_place *place)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < tcp->pending_count; i++) {
        const struct source *source = &tcp->sources[i];
        if (source->held == 0)
            found = i;
        else if (memcmp(&source->place, place, sizeof *place) == 0)
            return i;
    }
    return found;
}

/* Does `a` give way before `b`? Who proved himself and waits (`held`) is the last to. */
static bool goes_before(const struct tcp *tcp, const struct pending *a, const struct pending *b)
{
    uint32_t a_holds = tcp->sources[a->source].held;
    uint32_t b_holds = tcp->sources[b->source].held;
    if (a->held != b->held) return b->held;
    if (a_holds != b_holds) return a_holds > b_holds;
    return a->number < b->number;
}

/* A free slot; full: the one whose connection gives way. */
static struct pending *slot_find(const struct tcp *tcp, bool full)
{
    struct pending *found = NULL;
    for (uint32_t i = 0; i < tcp->pending_count; i++) {
        struct pending *pending = &tcp->pending[i];
        if ((pending->fd < 0) && !full) return pending;
        if ((pending->fd >= 0) && ((found == NULL) || goes_before(tcp, pending, found)))
            found = pending;
    }
    return found;
}

static void slot_free(struct tcp *tcp, struct pending *pending)
{
    if (pending->fd >= 0)
        gf_tcp_stranger_drop(tcp, pending, GF_LOG_WARN,
                             "too many connections that do not say who they are, dropped the "
                             "oldest of the address that has most");
}

/* ---- refusals ---- */

/* Reasons are for ranks that were started wrongly, and those are few: in a flood most hear none. */
static bool reason_is_due(struct tcp *tcp, const struct pending *pending)
{
    if (pending->since_ns >= tcp->reasons_since_ns + TCP_REASONS_NS) {
        tcp->reasons_since_ns = pending->since_ns;
        tcp->reasons = 0;
    }
    return ++tcp->reasons <= TCP_REASONS_MAX;
}

/* The frame is the last that it hears. */
static void pending_end(struct tcp *tcp, struct pending *pending, const unsigned char *frame,
                        size_t bytes)
{
    unsigned char sink[512];
    int fd = gf_tcp_pending_keep(tcp, pending);
    /* A new socket has room for it. */
    (void)send(fd, frame, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(fd, SHUT_WR);
    /* unread bytes would turn the frame into a reset */
    (void)recv(fd, sink, sizeof sink, MSG_DONTWAIT);
    gf_socket_close(&fd);
}

void gf_tcp_pending_refuse(struct tcp *tcp, struct pending *pending, gf_status code,
                           const char *reason)
{
    unsigned char refusal[TCP_REFUSAL_BYTES];
    gf_talk_refusal_put(tcp, code, reason, refusal);
    pending_end(tcp, pending, refusal, sizeof refusal);
}

/* For what tcp->text says. believed: it has the job's key, or there is none. */
static void hello_refuse(struct tcp *tcp, struct pending *pending, bool believed, gf_status code)
{
    char what[sizeof tcp->text + 32];
    (void)snprintf(what, sizeof what, "refused a rank: %s", tcp->text);
    stranger_log(tcp, GF_LOG_WARN, what);
    if ((believed && tcp->auth.on) || reason_is_due(tcp, pending))
        gf_tcp_pending_refuse(tcp, pending, code, tcp->text);
    else
        gf_tcp_pending_drop(tcp, pending);
}

static tcp_told refused_tell(const struct tcp *tcp, uint32_t rank, bool unproven,
                             struct gf_rendezvous_event *event_out)
{
    *event_out = (struct gf_rendezvous_event){
        .kind = GF_RENDEZVOUS_REFUSED, .rank = rank, .text = tcp->text, .unproven = unproven};
    return TCP_TOLD_EVENT;
}

/* ---- a new connection ---- */

/* At a unix socket: whose is it? */
static tcp_told user_check(struct tcp *tcp, struct pending *pending,
                           struct gf_rendezvous_event *event_out)
{
    uint32_t user = 0;
    if (!gf_socket_user(pending->fd, &user)) {
        gf_tcp_stranger_drop(tcp, pending, GF_LOG_ERROR, "the kernel does not say whose it is");
        return TCP_TOLD_NOTHING;
    }
    pending->by_name = (user == geteuid());
    if (pending->by_name) return TCP_TOLD_NOTHING;
    (void)gf_tcp_because(tcp, GF_ERR_MISMATCH,
                         "user %u at the other end, this job is of user %u: without a key_file "
                         "all ranks run as one user",
                         user, (unsigned)geteuid());
    hello_refuse(tcp, pending, false, GF_ERR_MISMATCH);
    return tcp_is_coordinator(tcp) ? refused_tell(tcp, GF_RANK_NONE, true, event_out)
                                   : TCP_TOLD_NOTHING;
}

tcp_told gf_tcp_accept(struct tcp *tcp, int listen_fd, uint64_t now_ns,
                       struct gf_rendezvous_event *event_out)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    struct gf_place from = {0};
    int fd = gf_descriptor_keep(
        accept4(listen_fd, (struct sockaddr *)&address, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
    /* from fd_most on a new connection costs an older one */
    if ((fd >= 0) && ((uint32_t)fd >= tcp->fd_most)) gf_tcp_lacks(tcp, EMFILE, now_ns);
    if (fd < 0) {
        if ((errno == ENOMEM) || (errno == ENOBUFS)) gf_tcp_lacks(tcp, errno, now_ns);
        if ((errno == EMFILE) || (errno == ENFILE)) {
            gf_tcp_lacks(tcp, errno, now_ns);
            stranger_log(tcp, GF_LOG_ERROR, "accept: no file descriptor left");
            gf_tcp_strangers_rest(tcp, now_ns);
        }
        return TCP_TOLD_NOTHING; /* anything else is a connection that has gone already */
    }
    struct pending *pending = slot_find(tcp, (uint32_t)fd >= tcp->fd_most);
    if (pending == NULL) pending = &tcp->pending[0]; /* none is open that could give way */
    slot_free(tcp, pending);
    (void)gf_place_of(&address, &from);
    from.port = 0;
    pending->in_bytes = 0;
    pending->source = source_find(tcp, &from);
    pending->number = tcp->accepted++;
    pending->since_ns = now_ns;
    pending->by_name = pending->held = false;
    memset(pending->said, 0, sizeof pending->said); /* a hello of another protocol may be shorter */
    pending->fd = fd; /* last, and at no time 0: another thread may fork */
    struct source *source = &tcp->sources[pending->source];
    source->place = from;
    source->held++;
    if (address.ss_family == AF_UNIX) {
        tcp_told told = user_check(tcp, pending, event_out);
        if (pending->fd < 0) return told;
    }
    uint32_t slot = (uint32_t)(pending - tcp->pending);
    gf_talk_nonce_put(tcp, pending->said);
    if ((send(fd, pending->said, TCP_NONCE_FRAME_BYTES, MSG_NOSIGNAL | MSG_DONTWAIT) !=
         (ssize_t)TCP_NONCE_FRAME_BYTES) ||
        (gf_tcp_epoll_set(tcp, EPOLL_CTL_ADD, fd, TCP_ABOUT_PENDING | slot, EPOLLIN) != GF_OK))
        gf_tcp_pending_drop(tcp, pending);
    return TCP_TOLD_NOTHING;
}

/* ---- who is taken for which rank ---- */

/* What the numbers of processes are: those of ranks, until a view change. */
static const char *kind_of(const struct tcp *tcp)
{
    return tcp->reformed ? "member" : "rank";
}

/* The other end hears why; gf_tcp_connect_taken_back(). */
static void claim_end(struct tcp *tcp, struct conn *conn, gf_status code, const char *reason)
{
    unsigned char refusal[TCP_REFUSAL_BYTES];
    if (conn->state == TCP_CONN_UP) {
        gf_talk_refusal_put(tcp, code, reason, refusal);
        (void)gf_tcp_conn_frame_put(tcp, conn, GF_FRAME_REFUSAL, refusal + GF_FRAME_HEADER_BYTES,
                                    GF_FRAME_REFUSAL_BYTES);
        gf_tcp_conn_close(conn);
    }
    gf_tcp_conn_init(conn, TCP_CONN_NONE);
}

/* GF_OK: who said `hello` may come in; who was taken for that rank and said nothing is gone. Else
 * the code that it hears, and tcp->text has why. */
static gf_status claim_take(struct tcp *tcp, const struct gf_frame_hello *hello, uint64_t since_ns)
{
    struct conn *conn = &tcp->conns[hello->rank];
    bool up = (conn->state == TCP_CONN_UP);
    bool anybody = up && conn->unproven;
    if (anybody && !conn->heard && (since_ns >= conn->since_ns + TCP_SILENT_NS))
        claim_end(tcp, conn, GF_ERR_STATE, "another process claims this rank");
    if (conn->state == TCP_CONN_NONE) return GF_OK;
    /* Who comes back takes the place of a connection that has ended, and so does a rank with
     * another coordinator. */
    bool rejoins = (hello->flags & GF_HELLO_REJOINS) != 0;
    bool member = (hello->flags & GF_HELLO_MEMBER) != 0;
    if (!up && (tcp->reformed || rejoins || member || conn->rejoins)) return GF_OK;
    /* It may try again: an end may not be seen yet. */
    return gf_tcp_because(tcp, (rejoins || member || anybody) ? GF_ERR_STATE : GF_ERR_MISMATCH,
                          "%s %u %s: was it started twice? (a second context wants an address or "
                          "job.id of its own)",
                          kind_of(tcp), hello->rank,
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

/* It may be anybody's that holds no place yet. */
static gf_status number_refuse(struct tcp *tcp, uint32_t rank)
{
    const char *kind = kind_of(tcp);
    uint32_t last = tcp->setup.world - 1;
    if (tcp->setup.rank == 0)
        return gf_tcp_because(tcp, GF_ERR_MISMATCH, "%s %u: expected 1 to %u", kind, rank, last);
    return gf_tcp_because(tcp, GF_ERR_MISMATCH,
                          "%s %u: expected 0 to %u, and not %u, which is here", kind, rank, last,
                          tcp->setup.rank);
}

/* Is it of this job? GF_OK, else the code that it hears from whoever listens, and tcp->text has why. */
static gf_status job_check(struct tcp *tcp, const struct gf_frame_header *header,
                           const struct gf_frame_hello *hello)
{
    const char *kind = kind_of(tcp);
    const uint32_t own = tcp->setup.rank;
    if (header->job_id != tcp->setup.job_id)
        return gf_tcp_because(tcp, GF_ERR_MISMATCH,
                              "job id %" PRIu64 " at %s %u, %" PRIu64
                              " at %s %u: another job's address, or GF_JOB or MASTER_ADDR differ",
                              tcp->setup.job_id, kind, own, header->job_id, kind, header->from);
    if (header->protocol != GF_FRAME_PROTOCOL)
        return gf_tcp_because(tcp, GF_ERR_MISMATCH, "protocol version %u at %s %u, %u at %s %u",
                              GF_FRAME_PROTOCOL, kind, own, header->protocol, kind, header->from);
    if (hello->version != GF_VERSION)
        return gf_tcp_because(tcp, GF_ERR_MISMATCH,
                              "library version %u.%u at %s %u, %u.%u at %s %u", GF_VERSION_MAJOR,
                              GF_VERSION_MINOR, kind, own, hello->version >> 16,
                              hello->version & 0xffffu, kind, hello->rank);
    if (hello->world != tcp->setup.world)
        return gf_tcp_because(tcp, GF_ERR_MISMATCH, "world %u at %s %u, %u at %s %u",
                              tcp->setup.world, kind, own, hello->world, kind, hello->rank);
    return GF_OK;
}

/* Why this hello cannot come in: GF_OK if it can, else the code that it hears. ours_out: it is of
 * this job, so that the job itself is ill. */
static gf_status hello_check(struct tcp *tcp, const struct gf_frame_header *header,
                             const struct gf_frame_hello *hello, uint64_t since_ns, bool *ours_out)
{
    gf_status code = job_check(tcp, header, hello);
    *ours_out = (header->job_id == tcp->setup.job_id);
    if (code != GF_OK) return code;
    if ((hello->rank == tcp->setup.rank) || (hello->rank >= tcp->setup.world))
        return number_refuse(tcp, hello->rank);
    *ours_out = false; /* the first one serves the job well */
    return claim_take(tcp, hello, since_ns);
}

/* Of a hello that may come in. */
static tcp_told promote(struct tcp *tcp, struct pending *pending,
                        const struct gf_frame_hello *hello, struct gf_rendezvous_event *event_out)
{
    struct conn *conn = &tcp->conns[hello->rank];
    struct gf_auth_mac to_rank = {0};
    struct gf_auth_mac to_coordinator = {0};
    gf_talk_macs(&tcp->auth, pending->said, &to_rank, &to_coordinator);
    bool up = gf_tcp_conn_up(tcp, hello->rank, gf_tcp_pending_keep(tcp, pending), &to_coordinator,
                             &to_rank);
    gf_auth_forget(&to_rank, sizeof to_rank);
    gf_auth_forget(&to_coordinator, sizeof to_coordinator);
    if (!up) return TCP_TOLD_NOTHING;
    conn->rejoins = (hello->flags & GF_HELLO_REJOINS) != 0;
    conn->unproven = tcp_is_open(tcp);
    conn->since_ns = pending->since_ns;
    memcpy(conn->nonce, gf_talk_nonce(pending->said), sizeof conn->nonce);
    GF_ASSERT(gf_tcp_conn_frame_put(tcp, conn, GF_FRAME_ANSWER, NULL, 0));
    *event_out = (struct gf_rendezvous_event){
        .kind = GF_RENDEZVOUS_CONNECTED, .rank = hello->rank, .rejoins = conn->rejoins};
    return TCP_TOLD_EVENT;
}

/* Of a process of no epoch, whoever it is: the coordinator says whether it may come in. */
static void send_on(struct tcp *tcp, struct pending *pending, const struct gf_frame_hello *hello)
{
    unsigned char elsewhere[TCP_ELSEWHERE_BYTES];
    if ((hello->flags & GF_HELLO_REJOINS) == 0) { /* it looks for rank 0, as if the job began */
        (void)gf_tcp_because(tcp, GF_ERR_MISMATCH,
                             "the job runs, and %s %u coordinates it: a rank that comes back wants "
                             "rendezvous.rejoin (GF_REJOIN=1)",
                             kind_of(tcp), tcp->coordinator);
        hello_refuse(tcp, pending, true, GF_ERR_MISMATCH);
        return;
    }
    gf_talk_elsewhere_put(tcp, tcp->coordinator_text, elsewhere);
    pending_end(tcp, pending, elsewhere, sizeof elsewhere);
}

/* Until this rank coordinates, or is connected to who does. One of each way is enough. */
void gf_tcp_hello_hold(struct tcp *tcp, struct pending *pending)
{
    const struct gf_frame_header header = gf_talk_header(pending->said);
    const struct gf_frame_hello hello = gf_talk_hello(pending->said);
    bool is_member = (hello.flags & GF_HELLO_MEMBER) != 0;
    gf_status code = job_check(tcp, &header, &hello);
    if (!is_member && (tcp->conns[tcp->coordinator].state == TCP_CONN_UP)) {
        if (code == GF_OK)
            send_on(tcp, pending, &hello);
        else /* another version may not know that word */
            hello_refuse(tcp, pending, true, code);
        return;
    }
    if ((code != GF_OK) || (hello.rank >= tcp->setup.world) || (hello.rank == tcp->setup.rank)) {
        gf_tcp_stranger_drop(tcp, pending, GF_LOG_INFO, "a hello that does not fit");
        return;
    }
    for (uint32_t i = 0; i < tcp->pending_count; i++) {
        struct pending *other = &tcp->pending[i];
        if ((other->fd < 0) || !other->held || (other == pending) ||
            (gf_talk_hello(other->said).rank != hello.rank))
            continue;
        bool again = memcmp(gf_talk_nonce(other->said), gf_talk_nonce(pending->said),
                            GF_AUTH_NONCE_BYTES) == 0;
        gf_tcp_pending_drop(tcp, again ? pending : other);
        if (again) return;
    }
    gf_socket_options_set(pending->fd, tcp->setup.keepalive_ns);
    pending->held = true;
}

/* Is it another try of the way by which that rank is here? */
static bool is_here_by(const struct tcp *tcp, const struct pending *pending,
                       const struct gf_frame_hello *hello)
{
    const struct conn *conn = (hello->rank < tcp->conn_count) ? &tcp->conns[hello->rank] : NULL;
    return (conn != NULL) && (conn->state == TCP_CONN_UP) &&
           (memcmp(conn->nonce, gf_talk_nonce(pending->said), sizeof conn->nonce) == 0);
}

/* A hello that is whole; or one of another job or protocol, of which less may be here. */
tcp_told gf_tcp_hello_take(struct tcp *tcp, struct pending *pending,
                           struct gf_rendezvous_event *event_out)
{
    const struct gf_frame_header header = gf_talk_header(pending->said);
    const struct gf_frame_hello hello = gf_talk_hello(pending->said);
    bool foreign = (header.protocol != GF_FRAME_PROTOCOL) || (header.job_id != tcp->setup.job_id);
    bool rejoins = (hello.flags & GF_HELLO_REJOINS) != 0;
    bool aside = (hello.flags & GF_HELLO_ASIDE) != 0;
    bool proven = !tcp->auth.on || gf_talk_proof_fits(&tcp->auth, pending->said);
    const char *kind = kind_of(tcp);
    bool ours = false;
    if (tcp->by_name && !pending->by_name) {
        gf_tcp_stranger_drop(tcp, pending, GF_LOG_WARN,
                             "a rank came to a port, and this job meets at unix sockets");
        return TCP_TOLD_NOTHING;
    }
    if (!foreign && (((hello.flags & GF_HELLO_KEYED) != 0) != tcp->auth.on)) {
        (void)gf_tcp_because(tcp, GF_ERR_MISMATCH,
                             tcp->auth.on ? "%s %u has no key_file, this job wants one"
                                          : "%s %u has a key_file, %s %u has none",
                             kind, hello.rank, kind, tcp->setup.rank);
        hello_refuse(tcp, pending, false, GF_ERR_MISMATCH);
        if ((tcp->auth.on && !aside) || rejoins || !tcp_is_coordinator(tcp))
            return TCP_TOLD_NOTHING;
        return refused_tell(tcp, hello.rank, aside || tcp_is_open(tcp), event_out);
    }
    if (!foreign && aside) {
        (void)gf_tcp_because(tcp, GF_ERR_MISMATCH, "%s %u has rendezvous.insecure, %s %u has not",
                             kind, tcp->by_name ? hello.rank : tcp->setup.rank, kind,
                             tcp->by_name ? tcp->setup.rank : hello.rank);
        hello_refuse(tcp, pending, false, GF_ERR_MISMATCH);
        return tcp_is_coordinator(tcp) ? refused_tell(tcp, hello.rank, true, event_out)
                                       : TCP_TOLD_NOTHING;
    }
    if (!foreign && !proven) {
        (void)gf_tcp_because(tcp, GF_ERR_MISMATCH,
                             "%s %u did not prove that it has this job's key: its key_file has "
                             "other bytes",
                             kind, hello.rank);
        hello_refuse(tcp, pending, false, GF_ERR_MISMATCH);
        return TCP_TOLD_NOTHING;
    }
    if (foreign && !proven) {
        gf_tcp_stranger_drop(tcp, pending, GF_LOG_INFO, "a hello of another job or version");
        return TCP_TOLD_NOTHING;
    }
    if (!foreign && !tcp_is_coordinator(tcp)) {
        gf_tcp_hello_hold(tcp, pending);
        return TCP_TOLD_NOTHING;
    }
    if (!foreign && is_here_by(tcp, pending, &hello)) {
        gf_tcp_pending_drop(tcp, pending);
        return TCP_TOLD_NOTHING;
    }
    gf_status code = hello_check(tcp, &header, &hello, pending->since_ns, &ours);
    if (code == GF_OK) return promote(tcp, pending, &hello, event_out);
    hello_refuse(tcp, pending, true, code);
    /* a joiner that does not fit harms no job */
    if (!ours || rejoins || !tcp_is_coordinator(tcp)) return TCP_TOLD_NOTHING;
    return refused_tell(tcp, (header.protocol == GF_FRAME_PROTOCOL) ? hello.rank : header.from,
                        tcp_is_open(tcp), event_out);
}

/* ---- what comes ---- */

/* False: they are not all here, or never will be. */
static bool pending_has(struct tcp *tcp, struct pending *pending, uint32_t want)
{
    gf_status status = gf_socket_read(pending->fd, pending->said + TCP_NONCE_FRAME_BYTES,
                                      &pending->in_bytes, want);
    if (status < 0)
        gf_tcp_stranger_drop(tcp, pending, GF_LOG_INFO,
                             "a connection ended before it said who it is");
    return status == GF_OK;
}

tcp_told gf_tcp_pending_read(struct tcp *tcp, uint32_t slot, struct gf_rendezvous_event *event_out)
{
    struct pending *pending = &tcp->pending[slot];
    if (pending->fd < 0) return TCP_TOLD_NOTHING;
    if (pending->held) { /* it has said all that it may: it has gone, or is nobody */
        unsigned char more;
        uint32_t have = 0;
        if (gf_socket_read(pending->fd, &more, &have, 1) != GF_AGAIN)
            gf_tcp_stranger_drop(tcp, pending, GF_LOG_INFO, "a rank has gone to another one");
        return TCP_TOLD_NOTHING;
    }
    if (!pending_has(tcp, pending, GF_FRAME_HEADER_BYTES)) return TCP_TOLD_NOTHING;
    const struct gf_frame_header header = gf_talk_header(pending->said);
    /* A hello of another protocol version may have any size; its header is enough to refuse it. */
    bool foreign = (header.protocol != GF_FRAME_PROTOCOL);
    bool data = (header.kind == GF_FRAME_DATA_HELLO);
    if ((header.magic != GF_FRAME_MAGIC) || (header.header_bytes < GF_FRAME_HEADER_BYTES) ||
        (!foreign && (((header.kind != GF_FRAME_HELLO) && !data) ||
                      (header.payload_bytes != GF_FRAME_HELLO_BYTES) ||
                      (header.header_bytes != GF_FRAME_HEADER_BYTES)))) {
        gf_tcp_stranger_drop(tcp, pending, GF_LOG_WARN, "a stranger's bytes are no hello");
        return TCP_TOLD_NOTHING;
    }
    if (!foreign && !pending_has(tcp, pending, TCP_HELLO_FRAME_BYTES)) return TCP_TOLD_NOTHING;
    if (foreign) /* what there is */
        (void)gf_socket_read(pending->fd, pending->said + TCP_NONCE_FRAME_BYTES, &pending->in_bytes,
                             TCP_HELLO_FRAME_BYTES);
    if (!foreign && data) {
        gf_tcp_data_meet(tcp, pending);
        return TCP_TOLD_NOTHING;
    }
    return gf_tcp_hello_take(tcp, pending, event_out);
}
