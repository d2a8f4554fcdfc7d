/* libFuzzer over what a peer of the socket link may send: raw bytes, and frames whose checksums
 * fit, between posts, cancels and ends of connections on this side. `make fuzz T=link_tcp`.
 *
 * An input is a byte of settings and then pieces: a byte that says what, a byte of size or tag, and
 * bytes. Posted memory is of its own size each: the address sanitizer sees a byte beside it. */
#include "drivers/tcp/link_tcp_state.h"
#include "firmware-tests/fuzz/fuzz.h"

#include "drivers/checksum.h"

#include <sys/socket.h>
#include <unistd.h>

#define REQS_MAX 8u
#define STREAMS 2u
#define SIZE_MAX_BYTES (140u << 10)

static struct gf_link *opened;
static struct gf_req reqs[REQS_MAX];
static unsigned char *memory[REQS_MAX]; /* NULL: the request is free */

static void reqs_reap(bool all)
{
    for (uint32_t i = 0; i < REQS_MAX; i++) {
        gf_status answer;
        if (memory[i] == NULL) continue;
        answer = gf_link_tcp.test(opened, &reqs[i]);
        must((answer <= 0) || (answer == GF_AGAIN));
        must(!all || (answer != GF_AGAIN));
        if (answer == GF_AGAIN) continue;
        free(memory[i]);
        memory[i] = NULL;
    }
}

/* Sizes around those at which the protocol does something else. */
static uint32_t size_of(uint8_t byte)
{
    static const uint32_t sizes[] = {0,    1,     8,     100,    1024,          1025,
                                     4096, 20000, 65536, 131072, SIZE_MAX_BYTES};
    return sizes[byte % (sizeof sizes / sizeof sizes[0])];
}

static void post(bool sends, uint8_t what)
{
    uint32_t size = size_of(what), i = 0;
    gf_status status;
    while ((i < REQS_MAX) && (memory[i] != NULL)) i++;
    if (i == REQS_MAX) return;
    memory[i] = calloc(1, size + (size == 0));
    must(memory[i] != NULL);
    gf_mem data = (gf_mem)(uintptr_t)memory[i];
    if (sends)
        status = gf_link_tcp.send_post(opened, 1, what >> 5, data, size, &reqs[i]);
    else
        status = gf_link_tcp.recv_post(opened, 1, what >> 5, data, size, &reqs[i]);
    if (status == GF_OK) return;
    must((status == GF_ERR_LINK) && (opened->fault.text[0] != 0));
    free(memory[i]);
    memory[i] = NULL;
}

/* A header whose checksum fits, its values from the input, and as many bytes as it says, at most
 * 600. */
static void frame_send(int fd, const uint8_t *bytes, size_t size, bool checksum)
{
    unsigned char out[TCP_HEAD_BYTES + 600];
    struct gf_tcp_head head = {.kind = (gf_tcp_frame)(bytes[0] % 8),
                               .tag = bytes[1] >> 5,
                               .size = size_of(bytes[1]),
                               .bytes = bytes[2] * 4u,
                               .number = bytes[3] % 4,
                               .offset = size_of(bytes[4]),
                               .returned = bytes[5] % 64};
    if (head.bytes > 600) head.bytes = 600;
    if (bytes[5] >= 192) head.size = head.bytes;
    if (bytes[5] >= 224) head.offset = 0;
    if (head.kind == TCP_FRAME_HELLO) {
        head = (struct gf_tcp_head){.kind = TCP_FRAME_HELLO,
                                    .tag = TCP_LINK_VERSION,
                                    .number = 1,
                                    .size = bytes[2],
                                    .offset = REQS_MAX,
                                    .returned = checksum};
    }
    for (uint32_t i = 0; i < head.bytes; i++)
        out[TCP_HEAD_BYTES + i] = (size > 6) ? bytes[6 + i % (size - 6)] : 0;
    if (checksum) head.checksum = gf_crc32c(0, out + TCP_HEAD_BYTES, head.bytes);
    gf_tcp_head_put(&head, out);
    (void)send(fd, out, TCP_HEAD_BYTES + head.bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void drain(const int *fds)
{
    static unsigned char sink[1 << 16];
    for (uint32_t s = 0; s < STREAMS; s++) {
        while ((fds[s] >= 0) && (recv(fds[s], sink, sizeof sink, MSG_DONTWAIT) > 0)) continue;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char *state;
    struct gf_fault fault = {.code = GF_OK};
    int fds[STREAMS];
    bool checksum;
    if (size < 1) return 0;
    checksum = (data[0] & 1) != 0;
    struct gf_link_setup setup = {.rank = 0,
                                  .world = 2,
                                  .ranks_max = 2,
                                  .generation = 1,
                                  .requests_max = REQS_MAX,
                                  .streams = STREAMS,
                                  .private_memory = true,
                                  .adopts = true,
                                  .message_bytes_max = SIZE_MAX_BYTES,
                                  .checksum = checksum,
                                  .credit_bytes = (data[0] & 2) ? 2048 : 65536};
    state =
        aligned_alloc(64, gf_link_tcp.state_bytes(&setup)); /* anew: what lies beside it is seen */
    must((state != NULL) && (gf_link_tcp.open(&setup, state, &opened, &fault) == GF_OK));
    ((struct gf_tcp_link *)opened)->gone_ns = (data[0] & 4) ? 0 : UINT64_MAX;
    for (uint32_t s = 0; s < STREAMS; s++) {
        int pair[2];
        must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
        must(gf_link_tcp_adopt(opened, 1, s, pair[0]) == GF_OK);
        fds[s] = pair[1];
    }
    if (data[0] & 8) frame_send(fds[0], (const uint8_t[]){1, 0, 64, 0, 0, 0}, 6, checksum);
    for (size_t at = 1; at + 1 < size;) {
        uint8_t what = data[at], value = data[at + 1];
        int *fd = &fds[(what >> 4) % STREAMS];
        size_t left = size - at - 2, bytes = (value < left) ? value : left;
        at += 2;
        switch (what % 8) {
        case 0: post(true, value); break;
        case 1: post(false, value); break;
        case 2:
            if (memory[value % REQS_MAX] != NULL)
                gf_link_tcp.cancel(opened, &reqs[value % REQS_MAX]);
            break;
        case 3:
            if (*fd >= 0) (void)send(*fd, data + at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
            at += bytes;
            break;
        case 4:
            if (value < 8) {
                if (*fd >= 0) (void)close(*fd);
                *fd = -1;
            }
            break;
        default:
            if ((bytes >= 6) && (*fd >= 0)) frame_send(*fd, data + at, bytes, checksum);
            at += (bytes < 8) ? bytes : 8;
        }
        for (int turn = 0; turn < 2; turn++) {
            (void)gf_link_tcp.progress(opened);
            must((opened->failed == GF_OK) ||
                 ((opened->failed == GF_ERR_LINK) && (opened->fault.text[0] != 0)));
            drain(fds);
        }
        reqs_reap(false);
    }
    if (data[0] & 16) gf_link_tcp.drop(opened);
    gf_link_tcp.close(opened);
    reqs_reap(true);
    free(state);
    for (uint32_t s = 0; s < STREAMS; s++) {
        if (fds[s] >= 0) (void)close(fds[s]);
    }
    return 0;
}
