/* Data connections: the link's, through the control channel's port, accept path and handshake
 * (rendezvous_tcp_state.h).
 *
 * The key of their proofs and MACs is a hash of the job's key, where there is one, and the acceptor's
 * secret, which is new in each epoch and is told to members of that epoch alone. So whoever has only
 * the key, or was a member of an earlier epoch, proves nothing; and each proof covers kind, job,
 * member ids, epoch and stream. Nothing of the control channel is said after the ANSWER: from there
 * on the descriptor is the link's.
 *
 * Either end may dial. While a rank dials a peer it refuses that peer's own dial if the rank has
 * the lower member id, and gives its own up if it has the higher one: one connection stays. */
#include "drivers/tcp/rendezvous_tcp_state.h"

#include <errno.h>
#include <string.h>

#define ABOUT(epoch, stream) (((epoch) << 8) | (stream))

static uint32_t stream_of(const struct way *way)
{
    return way->words[3] & 0xffu;
}

/* ---- the end that dials ---- */

/* A rank that lacks what connections take has room for some of them: one that comes soon afterwards
 * does not show that the others will. Who dials tries again each 0.2 s. */
#define LACK_NS UINT64_C(1000000000)

void gf_tcp_lacks(struct tcp *tcp, int error, uint64_t now_ns)
{
    tcp->base.lacks = error;
    tcp->data.lacked_ns = now_ns;
}

static void connection_came(struct tcp *tcp, uint64_t at_ns)
{
    if (at_ns >= tcp->data.lacked_ns + LACK_NS) tcp->base.lacks = 0;
}

static struct way *dial_of(struct tcp *tcp, uint32_t peer, uint32_t stream)
{
    for (uint32_t i = 0; i < TCP_DIALS_MAX; i++) {
        struct way *way = &tcp->data.dials[i];
        if (way->on && (way->to_rank == peer) && (stream_of(way) == stream)) return way;
    }
    return NULL;
}

void gf_tcp_data_event(struct tcp *tcp, uint32_t dial, uint32_t slot, uint64_t now_ns)
{
    const struct gf_data_taker *taker = tcp->data.taker;
    struct way *way = &tcp->data.dials[dial];
    if (gf_way_event(tcp, way, slot, now_ns) != TCP_WAY_IN) return;
    gf_way_close(tcp, way);
    connection_came(tcp, now_ns);
    gf_socket_carries_messages(way->fd, tcp->setup.keepalive_ns);
    gf_tcp_device_dialled(tcp, way);
    taker->connected(taker->user, way->to_rank, stream_of(way), way->fd);
}

void gf_tcp_data_poll(struct tcp *tcp, uint64_t now_ns)
{
    for (uint32_t i = 0; tcp->data.on && (i < TCP_DIALS_MAX); i++)
        (void)gf_way_poll(tcp, &tcp->data.dials[i], now_ns);
}

gf_status gf_tcp_data_dial(struct gf_rendezvous *rendezvous, uint64_t now_ns, uint32_t peer,
                           uint32_t stream, const unsigned char *secret, const struct gf_place *to,
                           const struct gf_place *from)
{
    struct tcp *tcp = (struct tcp *)rendezvous;
    struct gf_fault fault = {0};
    GF_ASSERT(tcp->data.on && (peer < tcp->setup.world) && (peer != tcp->setup.rank));
    GF_ASSERT(stream < GF_DATA_STREAMS_MAX);
    if (dial_of(tcp, peer, stream) != NULL) return GF_OK;
    for (uint32_t i = 0; i < TCP_DIALS_MAX; i++) {
        struct way *way = &tcp->data.dials[i];
        if (way->on) continue;
        gf_status status = gf_auth_derive(&tcp->auth, secret, &way->auth, &fault);
        if (status != GF_OK) {
            tcp->base.fault = fault;
            return status;
        }
        way->kind = GF_FRAME_DATA_HELLO;
        way->to_rank = peer;
        way->to = *to;
        way->from = *from;
        way->from.port = 0;
        way->device = gf_tcp_device_dials(way);
        way->words[0] = GF_VERSION;
        way->words[1] = tcp->setup.rank;
        way->words[2] = peer;
        way->words[3] = ABOUT(tcp->data.epoch, stream);
        gf_way_begin(tcp, way, now_ns);
        (void)gf_way_poll(tcp, way, now_ns);
        return GF_OK;
    }
    return GF_AGAIN;
}

const char *gf_tcp_data_text(struct gf_rendezvous *rendezvous, uint32_t peer)
{
    struct tcp *tcp = (struct tcp *)rendezvous;
    for (uint32_t i = 0; i < TCP_DIALS_MAX; i++) {
        const struct way *way = &tcp->data.dials[i];
        if (way->on && (way->to_rank == peer)) return way->text;
    }
    return "";
}

int gf_tcp_data_error(struct gf_rendezvous *rendezvous, uint32_t peer)
{
    struct tcp *tcp = (struct tcp *)rendezvous;
    for (uint32_t i = 0; i < TCP_DIALS_MAX; i++) {
        const struct way *way = &tcp->data.dials[i];
        if (way->on && (way->to_rank == peer) && (way->kernel_error != 0)) return way->kernel_error;
    }
    return 0;
}

/* ---- the end that accepts ---- */

/* NULL: the connection is wanted. */
static const char *refusal(struct tcp *tcp, const struct gf_frame_data_hello *hello)
{
    uint32_t stream = hello->about & 0xffu;
    const struct gf_data_taker *taker = tcp->data.taker;
    if (hello->version != GF_VERSION) return "another version of the library";
    if ((hello->to != tcp->setup.rank) || (hello->from == hello->to))
        return "another rank was dialled";
    if ((hello->from >= tcp->setup.world) || (stream >= GF_DATA_STREAMS_MAX))
        return "no such rank or stream";
    if (taker->has(taker->user, hello->from, stream)) return "this stream is here already";
    if ((dial_of(tcp, hello->from, stream) != NULL) && (tcp->setup.rank < hello->from))
        return "this rank dials that one itself";
    return NULL;
}

void gf_tcp_data_meet(struct tcp *tcp, struct pending *pending)
{
    const struct gf_frame_hello words = gf_talk_hello(pending->said);
    const struct gf_frame_data_hello hello = {words.version, words.rank, words.world, words.flags};
    const struct gf_data_taker *taker = tcp->data.taker;
    unsigned char answer[TCP_ANSWER_BYTES_MAX];
    struct gf_auth_mac in;
    struct gf_auth_mac out;
    /* A member that is further on dials before this rank is there: it tries again. */
    if (!tcp->data.on || ((hello.about >> 8) != (tcp->data.epoch & 0xffffffu))) {
        gf_tcp_stranger_drop(tcp, pending, GF_LOG_INFO, "a data connection of another epoch");
        return;
    }
    if (!gf_talk_proof_fits(&tcp->data.auth, pending->said)) {
        gf_tcp_stranger_drop(tcp, pending, GF_LOG_WARN,
                             "a data connection did not prove that it is of this job");
        return;
    }
    const char *why = refusal(tcp, &hello);
    if (why != NULL) {
        gf_tcp_pending_refuse(tcp, pending, GF_ERR_STATE, why);
        return;
    }
    gf_talk_macs(&tcp->data.auth, pending->said, &out, &in);
    size_t bytes = gf_talk_frame_put(tcp, GF_FRAME_ANSWER, true, &out, answer);
    gf_auth_forget(&in, sizeof in);
    gf_auth_forget(&out, sizeof out);
    if (send(pending->fd, answer, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)bytes) {
        gf_tcp_pending_drop(tcp, pending);
        return;
    }
    struct way *own = dial_of(tcp, hello.from, hello.about & 0xffu);
    if (own != NULL) gf_way_close(tcp, own);
    gf_socket_options_set(pending->fd, tcp->setup.keepalive_ns);
    gf_socket_carries_messages(pending->fd, tcp->setup.keepalive_ns);
    gf_tcp_device_accepted(tcp, pending->fd, hello.from);
    connection_came(tcp, pending->since_ns);
    taker->connected(taker->user, hello.from, hello.about & 0xffu,
                     gf_tcp_pending_keep(tcp, pending));
}

/* ---- an epoch's ---- */

gf_status gf_tcp_data_begin(struct gf_rendezvous *rendezvous, uint32_t epoch,
                            const struct gf_data_taker *taker, unsigned char *secret_out,
                            struct gf_place *place_out)
{
    struct tcp *tcp = (struct tcp *)rendezvous;
    struct gf_fault fault = {0};
    gf_tcp_data_end(rendezvous);
    memset(place_out, 0, sizeof *place_out);
    memset(secret_out, 0, GF_DATA_SECRET_BYTES);
    if (tcp->conn_count == 0) return GF_OK; /* a world of one */
    gf_status status = gf_tcp_listen_data(tcp, place_out, &fault);
    if (status == GF_OK) {
        gf_auth_nonce(&tcp->source, secret_out);
        status = gf_auth_derive(&tcp->auth, secret_out, &tcp->data.auth, &fault);
    }
    if (status != GF_OK) {
        tcp->base.fault = fault;
        return status;
    }
    tcp->data.on = true;
    tcp->base.lacks =
        0; /* what was lacking before says nothing of the connections that begin now */
    tcp->data.device_told = 0;
    tcp->data.epoch = epoch;
    tcp->data.taker = taker;
    return GF_OK;
}

void gf_tcp_data_end(struct gf_rendezvous *rendezvous)
{
    struct tcp *tcp = (struct tcp *)rendezvous;
    for (uint32_t i = 0; i < TCP_DIALS_MAX; i++) {
        if (tcp->data.dials[i].on) gf_way_close(tcp, &tcp->data.dials[i]);
    }
    tcp->data.on = false;
    gf_auth_forget(&tcp->data.auth, sizeof tcp->data.auth);
}
