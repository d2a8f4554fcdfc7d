/* libFuzzer over what strangers, members, impostors and a coordinator send on the control channel:
 * the accept state machine, the handshake with and without a key, the frames of a connection that
 * is up, and a member's side of it; and what strangers send to a link's listener. `make fuzz`.
 *
 * An input is a role and then pieces: a byte that says which of two connections and how long (or
 * its end), and bytes. They arrive over socket pairs instead of TCP, so that no port is used up;
 * nonces are constant, so that an input means the same each time. With the role's highest bit set
 * and a key, whoever sends has the key: a hello gets the proof that fits, and an answer and the
 * frames after it their size and MAC, whatever else is in them. */
#include "drivers/tcp/channel_state.h"
#include "drivers/tcp/data_state.h"
#include "firmware-tests/support/channel_hub.h"
#include "firmware-tests/fuzz/fuzz.h"

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
    DATA_STRANGER,
    ROLE_COUNT
};

static char address[GF_TEXT_MAX];
static _Alignas(64) unsigned char state[384 << 10];

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    keys_begin();
    hub_address_free(address, false);
    must(address[0] != 0);
    return 0;
}

/* ---- a sender with the key ---- */

static struct sender {
    enum { NONCE, ANSWER, HELLO, FRAMES } next;
    const unsigned char *transcript; /* where the library keeps the words of this connection */
    struct gf_auth_mac mac, other;
} senders[2];
static bool signs;

/* The piece as who has the key would send it; its size. */
static size_t piece_sign(const struct gf_auth *auth, struct sender *sender, unsigned char *piece,
                         size_t bytes)
{
    unsigned char transcript[HANDSHAKE_TRANSCRIPT_BYTES];
    if (bytes < GF_FRAME_HEADER_BYTES) return bytes;
    switch (sender->next) {
    case NONCE:
        if (bytes < HANDSHAKE_NONCE_BYTES) return bytes;
        sender->next = ANSWER;
        return HANDSHAKE_NONCE_BYTES;
    case ANSWER: /* the hello is said by now */
        gf_transcript_macs_of(auth, sender->transcript, &sender->mac, &sender->other);
        bytes = GF_FRAME_HEADER_BYTES;
        sender->next = FRAMES;
        break;
    case HELLO:
        if (bytes < HANDSHAKE_HELLO_BYTES) return bytes;
        memcpy(transcript, sender->transcript, HANDSHAKE_NONCE_BYTES);
        memcpy(transcript + HANDSHAKE_NONCE_BYTES, piece, HANDSHAKE_HELLO_BYTES);
        gf_auth_prove(auth, transcript, HANDSHAKE_PROVEN_BYTES,
                      transcript + HANDSHAKE_PROVEN_BYTES);
        memcpy(piece, transcript + HANDSHAKE_NONCE_BYTES, HANDSHAKE_HELLO_BYTES);
        gf_transcript_macs_of(auth, transcript, &sender->other, &sender->mac);
        sender->next = FRAMES;
        return HANDSHAKE_HELLO_BYTES;
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

static void watch(struct handshake *handshake, int fd, uint32_t about)
{
    must(gf_handshake_epoll_set(handshake, EPOLL_CTL_ADD, fd, about, EPOLLIN) == GF_OK);
}

static int stranger_open(struct handshake *handshake, uint32_t slot, bool by_name, uint64_t now_ns)
{
    int fd;
    struct pending *pending = &handshake->pending[slot];
    *pending = (struct pending){
        .fd = pair_open(&fd), .number = slot, .since_ns = now_ns, .by_name = by_name};
    handshake->sources[0].held++;
    gf_transcript_put_nonce(handshake, pending->transcript);
    senders[slot].transcript = pending->transcript;
    watch(handshake, pending->fd, HANDSHAKE_ABOUT_PENDING | slot);
    return fd;
}

static int impostor_open(struct channel *channel, uint32_t slot, uint64_t now_ns)
{
    int fd;
    struct attempt *one = &channel->dial.attempts[slot];
    *one = (struct attempt){
        .state = HANDSHAKE_ATTEMPT_NONCE, .began_ns = now_ns, .fd = pair_open(&fd)};
    senders[slot].transcript = one->transcript;
    watch(&channel->handshake, one->fd, HANDSHAKE_ABOUT_ATTEMPT | slot);
    return fd;
}

static int member_open(struct channel *channel, bool authenticated)
{
    static const struct gf_auth_mac none;
    int fd;
    struct conn *conn = gf_conn_up(channel, pair_open(&fd), &none, &none);
    must(conn != NULL);
    conn->authenticated = authenticated;
    return fd;
}

static void sent_drop(const int *fds)
{
    static unsigned char copy[1 << 16];
    for (int i = 0; i < 2; i++) {
        while ((fds[i] >= 0) && (recv(fds[i], copy, sizeof copy, MSG_DONTWAIT) > 0)) continue;
    }
}

/* Everything that can be had now; the events must keep their promises. */
static void drain(struct gf_channel *channel, uint64_t now_ns, const int *fds)
{
    static unsigned char copy[1 << 16];
    struct gf_channel_event event = {0};
    for (int i = 0; gf_channel_tcp.poll(channel, now_ns, &event); i++) {
        must((i < 1000) && (event.connection < channel->connections_max));
        if (event.kind == GF_CHANNEL_FRAME) {
            must((event.size_bytes <= GF_CHANNEL_PAYLOAD_MAX) &&
                 (event.frame_kind < GF_FRAME_DRIVER));
            memcpy(copy, event.payload, event.size_bytes);
        } else if (event.kind == GF_CHANNEL_ENDED) {
            must((strlen(event.text) > 0) && (strlen(event.text) < 320));
            must(gf_channel_tcp.send(channel, event.connection, 1, NULL, 0) == GF_ERR_PEER);
        } else {
            must((event.kind == GF_CHANNEL_CONNECTED) &&
                 (gf_channel_tcp.send(channel, event.connection, 1, "hello", 5) == GF_OK));
        }
    }
    must(channel->fault.code <= GF_OK);
    must((channel->fault.code == GF_OK) || (channel->fault.text[0] != 0));
    sent_drop(fds);
}

/* The pieces of an input, each followed by a turn. */
static void pieces_send(const uint8_t *data, size_t size, const struct gf_auth *auth, int *fds,
                        void (*turn)(uint64_t now_ns, const int *fds))
{
    uint64_t now_ns = 1000;
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
            size_t size_bytes = signs ? piece_sign(auth, &senders[fd - fds], piece, bytes) : bytes;
            (void)send(*fd, piece, size_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        at += bytes;
        now_ns += 10;
        turn(now_ns, fds);
    }
    turn(now_ns + UINT64_C(6000000000), fds);
}

static struct gf_channel *opened;

static void channel_turn(uint64_t now_ns, const int *fds)
{
    drain(opened, now_ns, fds);
}

static void channel_run(const uint8_t *data, size_t size, enum role role)
{
    struct gf_fault fault = {0};
    struct channel *channel = (struct channel *)(void *)state;
    int fds[2] = {-1, -1};
    bool member = (role >= IMPOSTOR);
    bool keyed = (role == STRANGER_KEYED) || (role == MEMBER_KEYED) || (role == IMPOSTOR_KEYED);
    struct gf_channel_setup setup = {.listens = !member,
                                     .connections_max = member ? 1 : 3,
                                     .job_id = 4711,
                                     .address = address,
                                     .bind = "",
                                     .key_file = keyed ? key_path : "",
                                     .insecure = true,
                                     .keepalive_ns = 1000};
    must(gf_channel_tcp.state_bytes(&setup) <= sizeof state);
    signs = (data[0] > 0x7f) && keyed;
    memset(state, 0xa5, sizeof state);
    for (int i = 0; gf_channel_tcp.open(&setup, state, 1000, &opened, &fault) != GF_OK; i++) {
        must(i < 10); /* the port was free a moment ago, but others run here too */
        hub_address_free(address, false);
    }
    if (member && (role != COORDINATOR)) gf_channel_tcp.dial(opened, 1000);
    channel->dial.next_ns = channel->probe.next_ns = UINT64_MAX; /* the tries are those below */
    for (uint32_t i = 0; i < 2; i++) {
        if ((role == STRANGER) || (role == STRANGER_KEYED))
            fds[i] = stranger_open(&channel->handshake, i, false, 1000);
        else if ((role == IMPOSTOR) || (role == IMPOSTOR_KEYED))
            fds[i] = impostor_open(channel, i, 1000);
        else if ((role != COORDINATOR) || (i == 0))
            fds[i] = member_open(channel, role == MEMBER_KEYED);
    }
    pieces_send(data, size, &channel->auth, fds, channel_turn);
    gf_channel_tcp.close(opened);
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0) (void)close(fds[i]);
}

/* ---- a link's listener ---- */

static struct gf_data *listens;

static void data_turn(uint64_t now_ns, const int *fds)
{
    must(gf_data_poll(listens, now_ns) == GF_OK);
    sent_drop(fds);
}

static void data_connected(void *user, uint32_t peer, uint32_t stream, int fd)
{
    (void)user;
    must((peer == 0) || (peer == 2));
    must(stream < GF_DATA_STREAMS_MAX);
    (void)close(fd);
}

static bool data_has(void *user, uint32_t peer, uint32_t stream)
{
    (void)user;
    return (peer == 2) && (stream == 1);
}

static void data_run(const uint8_t *data, size_t size)
{
    static const struct gf_data_taker taker = {.connected = data_connected, .has = data_has};
    struct gf_link_setup setup = {
        .ranks_max = 3, .job_id = 4711, .address = address, .keepalive_ns = 1000};
    unsigned char secret[GF_DATA_SECRET_BYTES];
    struct gf_addr addr;
    int fds[2];
    must(gf_data_state_bytes(&setup) <= sizeof state);
    signs = data[0] > 0x7f;
    memset(state, 0xa5, sizeof state);
    listens = (struct gf_data *)(void *)state;
    gf_data_init(listens, &setup);
    must(gf_data_begin(listens, 7, 1, 3, &taker, secret, &addr) == GF_OK);
    for (uint32_t i = 0; i < 2; i++) fds[i] = stranger_open(&listens->handshake, i, false, 1000);
    pieces_send(data, size, &listens->auth, fds, data_turn);
    gf_data_close(listens);
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0) (void)close(fds[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    enum role role = (enum role)((data[0] & 0x7f) % ROLE_COUNT);
    memset(senders, 0, sizeof senders);
    for (int i = 0; i < 2; i++)
        senders[i].next = ((role == STRANGER_KEYED) || (role == DATA_STRANGER)) ? HELLO
                          : (role == IMPOSTOR_KEYED)                            ? NONCE
                                                                                : FRAMES;
    if (role == DATA_STRANGER)
        data_run(data, size);
    else
        channel_run(data, size, role);
    return 0;
}
