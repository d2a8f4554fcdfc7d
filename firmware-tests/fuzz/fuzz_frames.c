/* libFuzzer over what strangers, members and impostors send on the control channel: the accept
 * state machine, the handshake with and without a key, the frames of a connection that is up, and a
 * rank's side of it. `make fuzz`.
 *
 * An input is a role and then pieces: a byte that says which of two connections and how long (or
 * its end), and bytes. They arrive over socket pairs instead of TCP, so that no port is used up;
 * nonces are constant, so that an input means the same each time. With the role's highest bit set
 * and a key, whoever sends has the key: hello, challenge and proof get the proof that fits, and
 * frames after them their size and MAC, whatever else is in them. */
#include "drivers/tcp/rendezvous_tcp_state.h"
#include "firmware-tests/fuzz/fuzz.h"
#include "firmware-tests/support/tcp_world.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum role {
    STRANGER,
    STRANGER_KEYED,
    MEMBER,
    MEMBER_KEYED,
    IMPOSTOR,
    IMPOSTOR_KEYED,
    COORDINATOR,
    ROLE_COUNT
};

static char address[GF_TEXT_MAX];
static _Alignas(64) unsigned char state[256 << 10];

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    keys_begin();
    tcp_address_free(address, false);
    must(address[0] != 0);
    return 0;
}

/* ---- a sender with the key ---- */

#define TALK_HEAD_BYTES (GF_FRAME_HEADER_BYTES + GF_AUTH_NONCE_BYTES)

static struct sender {
    enum { HELLO, PROOF, CHALLENGE, FRAMES } next;
    unsigned char said[TCP_TALK_BYTES];
    struct gf_auth_mac mac, other;
} senders[2];
static bool signs;

/* The piece as who has the key would send it; its size. */
static size_t piece_sign(const struct tcp *tcp, struct sender *sender, unsigned char *piece,
                         size_t bytes)
{
    unsigned char *said = sender->said;
    if (bytes < GF_FRAME_HEADER_BYTES) return bytes;
    switch (sender->next) {
    case HELLO:
        if (bytes < TCP_HELLO_FRAME_BYTES) return bytes;
        gf_auth_prove(&tcp->auth, GF_AUTH_HELLO, piece, TCP_HELLO_PROVEN_BYTES,
                      piece + TCP_HELLO_PROVEN_BYTES);
        memcpy(said, piece, TCP_HELLO_FRAME_BYTES);
        sender->next = PROOF;
        return TCP_HELLO_FRAME_BYTES;
    case PROOF: /* the challenge came to drain() */
        memcpy(said + TCP_TALK_CHALLENGE_BYTES, piece, GF_FRAME_HEADER_BYTES);
        gf_auth_prove(&tcp->auth, GF_AUTH_RANK, said, TCP_TALK_PROVEN_BYTES,
                      piece + GF_FRAME_HEADER_BYTES);
        gf_auth_macs(&tcp->auth, said, TCP_TALK_CHALLENGE_BYTES, &sender->other, &sender->mac);
        sender->next = FRAMES;
        return GF_FRAME_HEADER_BYTES + GF_FRAME_PROOF_BYTES;
    case CHALLENGE:
        if (bytes < TALK_HEAD_BYTES) return bytes;
        memcpy(said, tcp->said, TCP_HELLO_FRAME_BYTES);
        memcpy(said + TCP_HELLO_FRAME_BYTES, piece, TALK_HEAD_BYTES);
        gf_auth_prove(&tcp->auth, GF_AUTH_COORDINATOR, said, TCP_TALK_CHALLENGE_BYTES,
                      piece + TALK_HEAD_BYTES);
        gf_auth_macs(&tcp->auth, said, TCP_TALK_CHALLENGE_BYTES, &sender->mac, &sender->other);
        sender->next = FRAMES;
        return GF_FRAME_HEADER_BYTES + GF_FRAME_CHALLENGE_BYTES;
    case FRAMES: break;
    }
    size_t body_bytes = bytes - GF_FRAME_HEADER_BYTES;
    struct gf_frame_header header = gf_frame_header_get(piece);
    struct gf_put put = {piece, GF_FRAME_HEADER_BYTES};
    gf_frame_header_put(&put, header.kind, (uint32_t)body_bytes, header.job_id, header.from);
    gf_auth_mac_put(&sender->mac, piece, bytes, NULL, 0, piece + bytes);
    return bytes + GF_AUTH_MAC_BYTES;
}

static int pair_open(int *fd_out)
{
    int fds[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    *fd_out = fds[0];
    return fds[1];
}

static void conn_up(struct tcp *tcp, uint32_t index, conn_state to, bool authenticated)
{
    struct conn *conn = &tcp->conns[index];
    conn->state = to;
    conn->authenticated = authenticated;
    must(gf_tcp_epoll_set(tcp, EPOLL_CTL_ADD, conn->fd, index, EPOLLIN) == GF_OK);
}

/* Everything that can be had now; the events must keep their promises. */
static void drain(struct gf_rendezvous *rendezvous, uint64_t now_ns, int *fds)
{
    static unsigned char copy[1 << 16];
    struct gf_rendezvous_event event = {0};
    gf_status status;
    for (int i = 0; (status = gf_rendezvous_tcp.poll(rendezvous, now_ns, &event)) == GF_OK; i++) {
        must((i < 1000) && ((event.kind == GF_RENDEZVOUS_REFUSED) || (event.rank < 3)));
        if (event.kind == GF_RENDEZVOUS_FRAME) {
            must((event.size_bytes <= GF_FRAME_PAYLOAD_MAX) &&
                 (event.frame_kind < GF_FRAME_DRIVER));
            memcpy(copy, event.payload, event.size_bytes);
        } else if (event.kind != GF_RENDEZVOUS_CONNECTED) {
            must((strlen(event.text) > 0) && (strlen(event.text) < 240));
        }
    }
    must((status == GF_AGAIN) || ((status < 0) && (rendezvous->fault.code == status)));
    must((status == GF_AGAIN) || (rendezvous->fault.text[0] != 0));
    for (int i = 0; i < 2; i++) {
        ssize_t got;
        while ((fds[i] >= 0) && ((got = recv(fds[i], copy, sizeof copy, MSG_DONTWAIT)) > 0)) {
            if ((senders[i].next == PROOF) && (got >= (ssize_t)TALK_HEAD_BYTES))
                memcpy(senders[i].said + TCP_HELLO_FRAME_BYTES, copy, TALK_HEAD_BYTES);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gf_rendezvous *rendezvous;
    struct gf_fault fault = {0};
    struct tcp *tcp = (struct tcp *)(void *)state;
    uint64_t now_ns = 1000;
    int fds[2] = {-1, -1};
    if (size < 1) return 0;
    enum role role = (enum role)((data[0] & 0x7f) % ROLE_COUNT);
    bool rank = (role >= IMPOSTOR);
    struct gf_rendezvous_setup setup = {.rank = rank ? 1 : 0,
                                        .world = 3,
                                        .job_id = 4711,
                                        .address = address,
                                        .bind = "",
                                        .keepalive_ns = 1000,
                                        .join_timeout_ns = 1000000};
    setup.key_file =
        ((role == STRANGER_KEYED) || (role == MEMBER_KEYED) || (role == IMPOSTOR_KEYED)) ? key_path
                                                                                         : "";
    must(gf_rendezvous_tcp.state_bytes(&setup) <= sizeof state);
    signs = (data[0] > 0x7f) && (setup.key_file[0] != '\0');
    memset(senders, 0, sizeof senders);
    for (int i = 0; i < 2; i++)
        senders[i].next = (role == STRANGER_KEYED)   ? HELLO
                          : (role == IMPOSTOR_KEYED) ? CHALLENGE
                                                     : FRAMES;
    memset(state, 0xa5, sizeof state);
    for (int i = 0; gf_rendezvous_tcp.open(&setup, state, now_ns, &rendezvous, &fault) != GF_OK;
         i++) {
        must(i < 10); /* the port was free a moment ago, but others run here too */
        tcp_address_free(address, false);
    }
    tcp->setup.log.fn = NULL;
    for (uint32_t i = 0; i < (rank ? 1u : 2u); i++) {
        if ((role == STRANGER) || (role == STRANGER_KEYED)) {
            fds[i] = pair_open(&tcp->pending[i].fd);
            tcp->pending[i].in_bytes = 0;
            tcp->pending[i].challenged = tcp->pending[i].held = false;
            tcp->pending[i].since_ns = now_ns;
            must(gf_tcp_epoll_set(tcp, EPOLL_CTL_ADD, tcp->pending[i].fd, TCP_ABOUT_PENDING | i,
                                  EPOLLIN) == GF_OK);
        } else {
            fds[i] = pair_open(&tcp->conns[i].fd);
            if (rank) gf_tcp_hello_put(tcp);
            conn_up(tcp, i,
                    ((role == IMPOSTOR) || (role == IMPOSTOR_KEYED)) ? TCP_CONN_HELLO : TCP_CONN_UP,
                    role == MEMBER_KEYED);
        }
    }
    for (size_t at = 1; at < size;) {
        int *fd = &fds[data[at] >> 7];
        size_t bytes = data[at++] & 0x7f;
        if (bytes > size - at) bytes = size - at;
        if (*fd < 0) fd = &fds[0];
        if ((bytes == 0) && (*fd >= 0)) {
            (void)close(*fd);
            *fd = -1;
        } else if (*fd >= 0) {
            unsigned char piece[0x80 + GF_FRAME_CHALLENGE_BYTES];
            memcpy(piece, data + at, bytes);
            size_t size_bytes = signs ? piece_sign(tcp, &senders[fd - fds], piece, bytes) : bytes;
            (void)send(*fd, piece, size_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        at += bytes;
        now_ns += 10;
        drain(rendezvous, now_ns, fds);
    }
    drain(rendezvous, now_ns + UINT64_C(6000000000), fds);
    gf_rendezvous_tcp.close(rendezvous);
    for (int i = 0; i < 2; i++) {
        if (fds[i] >= 0) (void)close(fds[i]);
    }
    return 0;
}
