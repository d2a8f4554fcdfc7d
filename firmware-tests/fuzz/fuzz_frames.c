/* libFuzzer over what strangers, members and impostors send on the control channel: the accept
 * state machine, the handshake with and without a key, the frames of a connection that is up, and a
 * rank's side of it. `make fuzz`.
 *
 * An input is a role and then pieces: a byte that says which of two connections and how long (or
 * its end), and bytes. They arrive over socket pairs instead of TCP, so that no port is used up;
 * nonces are constant, so that an input means the same each time. With the role's highest bit set
 * and a key, whoever sends has the key: a hello gets the proof that fits, and an answer and the
 * frames after it their size and MAC, whatever else is in them. With the bit below it the job has
 * begun: a stranger comes to a rank that follows another one, to which its second connection is; and
 * who meets impostors is a rank that comes back. Both meet by name, so that no address of an input is
 * ever dialled. */
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
static _Alignas(64) unsigned char state[384 << 10];

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    keys_begin();
    tcp_address_free(address, false);
    must(address[0] != 0);
    return 0;
}

/* ---- a sender with the key ---- */

static struct sender {
    enum { NONCE, ANSWER, HELLO, FRAMES } next;
    const unsigned char *said; /* where the library keeps the words of this connection */
    struct gf_auth_mac mac, other;
} senders[2];
static bool signs;

/* The piece as who has the key would send it; its size. */
static size_t piece_sign(const struct tcp *tcp, struct sender *sender, unsigned char *piece,
                         size_t bytes)
{
    unsigned char said[TCP_TALK_BYTES];
    if (bytes < GF_FRAME_HEADER_BYTES) return bytes;
    switch (sender->next) {
    case NONCE:
        if (bytes < TCP_NONCE_FRAME_BYTES) return bytes;
        sender->next = ANSWER;
        return TCP_NONCE_FRAME_BYTES;
    case ANSWER: /* the hello is said by now */
        gf_talk_macs(&tcp->auth, sender->said, &sender->mac, &sender->other);
        bytes = GF_FRAME_HEADER_BYTES;
        sender->next = FRAMES;
        break;
    case HELLO:
        if (bytes < TCP_HELLO_FRAME_BYTES) return bytes;
        memcpy(said, sender->said, TCP_NONCE_FRAME_BYTES);
        memcpy(said + TCP_NONCE_FRAME_BYTES, piece, TCP_HELLO_FRAME_BYTES);
        gf_auth_prove(&tcp->auth, said, TCP_TALK_PROVEN_BYTES, said + TCP_TALK_PROVEN_BYTES);
        memcpy(piece, said + TCP_NONCE_FRAME_BYTES, TCP_HELLO_FRAME_BYTES);
        gf_talk_macs(&tcp->auth, said, &sender->other, &sender->mac);
        sender->next = FRAMES;
        return TCP_HELLO_FRAME_BYTES;
    case FRAMES: break;
    }
    size_t body_bytes = bytes - GF_FRAME_HEADER_BYTES;
    struct gf_frame_header header = gf_frame_header_get(piece);
    struct gf_put put = {piece, GF_FRAME_HEADER_BYTES};
    gf_frame_header_put(&put, header.kind, (uint32_t)body_bytes, header.job_id, header.from);
    gf_auth_mac_put(&sender->mac, piece, bytes, NULL, 0, piece + bytes);
    return bytes + GF_AUTH_MAC_BYTES;
}

static int pair_open(int *other_out)
{
    int fds[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    *other_out = fds[0];
    return fds[1];
}

static void watch(struct tcp *tcp, int fd, uint32_t about)
{
    must(gf_tcp_epoll_set(tcp, EPOLL_CTL_ADD, fd, about, EPOLLIN) == GF_OK);
}

static int stranger_open(struct tcp *tcp, uint32_t slot, uint64_t now_ns)
{
    int fd;
    struct pending *pending = &tcp->pending[slot];
    *pending = (struct pending){
        .fd = pair_open(&fd), .number = slot, .since_ns = now_ns, .by_name = tcp->by_name};
    tcp->sources[0].held++;
    gf_talk_nonce_put(tcp, pending->said);
    senders[slot].said = pending->said;
    watch(tcp, pending->fd, TCP_ABOUT_PENDING | slot);
    return fd;
}

static int impostor_open(struct tcp *tcp, uint32_t slot, uint64_t now_ns)
{
    int fd;
    struct try *one = &tcp->way.tries[slot];
    *one = (struct try){.state = TCP_TRY_NONCE, .began_ns = now_ns, .fd = pair_open(&fd)};
    senders[slot].said = one->said;
    watch(tcp, one->fd, TCP_ABOUT_TRY | slot);
    return fd;
}

static int member_open(struct tcp *tcp, uint32_t rank, bool authenticated)
{
    int fd;
    struct conn *conn = &tcp->conns[rank];
    conn->state = TCP_CONN_UP;
    conn->fd = pair_open(&fd);
    conn->authenticated = authenticated;
    watch(tcp, conn->fd, rank);
    return fd;
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
        while ((fds[i] >= 0) && (recv(fds[i], copy, sizeof copy, MSG_DONTWAIT) > 0)) continue;
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
    bool begun = ((data[0] & 0x40) != 0) && ((role == STRANGER) || (role == IMPOSTOR));
    bool follows = begun && !rank;
    struct gf_rendezvous_setup setup = {.rank = rank ? 1 : 0,
                                        .world = 3,
                                        .job_id = 4711,
                                        .address = address,
                                        .bind = "",
                                        .insecure = !begun,
                                        .rejoin = begun && rank,
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
                          : (role == IMPOSTOR_KEYED) ? NONCE
                                                     : FRAMES;
    memset(state, 0xa5, sizeof state);
    for (int i = 0; gf_rendezvous_tcp.open(&setup, state, now_ns, &rendezvous, &fault) != GF_OK;
         i++) {
        must(i < 10); /* the port was free a moment ago, but others run here too */
        tcp_address_free(address, false);
    }
    tcp->setup.log.fn = NULL;
    tcp->way.next_ns = UINT64_MAX; /* the tries are those below */
    if (follows) {
        tcp->reformed = true;
        tcp->coordinator = 1;
        (void)snprintf(tcp->coordinator_text, sizeof tcp->coordinator_text, "@gf-fuzz");
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (follows && (i == tcp->coordinator))
            fds[i] = member_open(tcp, i, false);
        else if ((role == STRANGER) || (role == STRANGER_KEYED))
            fds[i] = stranger_open(tcp, i, now_ns);
        else if ((role == IMPOSTOR) || (role == IMPOSTOR_KEYED))
            fds[i] = impostor_open(tcp, i, now_ns);
        else if ((role != COORDINATOR) || (i == 0))
            fds[i] = member_open(tcp, i, role == MEMBER_KEYED);
    }
    if (role == COORDINATOR) tcp->way.on = false;
    for (size_t at = 1; at < size;) {
        int *fd = &fds[data[at] >> 7];
        size_t bytes = data[at++] & 0x7f;
        if (bytes > size - at) bytes = size - at;
        if (*fd < 0) fd = &fds[0];
        if ((bytes == 0) && (*fd >= 0)) {
            (void)close(*fd);
            *fd = -1;
        } else if (*fd >= 0) {
            unsigned char piece[0x80 + GF_AUTH_MAC_BYTES];
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
