/* The socket link, without whoever dials: links of one process, joined by socket pairs or loopback
 * connections.
 * suite: slow */
#include "drivers/tcp/link_tcp_state.h"
#include "firmware-tests/support/suite.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef __SANITIZE_ADDRESS__ /* which brings its own */
#include "firmware-tests/support/counted_malloc.h"
#endif

#define ENDS_MAX 3
#define REQS_MAX 64
#define MESSAGE_MAX (3u << 20)
#define LARGE_BYTES (2 * TCP_FRAME_BYTES_MAX) /* with any credit */

static uint64_t allocations;
__attribute__((unused)) static void count(void *caller)
{
    (void)caller;
    allocations++;
}

/* Of the last call that wrote to each descriptor. */
#define FDS_MAX 256
static int sent_flags[FDS_MAX];
ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    if (fd < FDS_MAX) sent_flags[fd] = flags;
    return syscall(SYS_sendto, fd, data, bytes, flags, NULL, 0);
}
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    if (fd < FDS_MAX) sent_flags[fd] = flags;
    return syscall(SYS_sendmsg, fd, message, flags);
}

/* One rank: its link, and as many requests as it may have. */
static struct end {
    struct gf_link_setup setup;
    struct gf_link *link;
    void *state;
    struct gf_req *reqs; /* [REQS_MAX] */
    char log[2048];
} ends[ENDS_MAX];
static uint32_t world;
static struct gf_link_setup setup_all; /* what all have, but their rank */
static bool loopback;                  /* TCP, or else socket pairs */
static int buffer_bytes;               /* SO_SNDBUF and SO_RCVBUF; 0: the kernel's choice */

static void log_take(void *user, gf_log_level level, const char *line)
{
    struct end *end = user;
    size_t used = strlen(end->log);
    (void)level;
    (void)snprintf(end->log + used, sizeof end->log - used, "%s\n", line);
}

static void pair_open(int *fds)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    if (!loopback) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    } else {
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
        assert_int_equal(listen(listener, 1), 0);
        assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
        fds[0] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(fds[0], (struct sockaddr *)&at, sizeof at), 0);
        fds[1] = accept(listener, NULL, NULL);
        (void)close(listener);
    }
    assert_true((fds[0] >= 0) && (fds[1] >= 0));
    for (int i = 0; (i < 2) && (buffer_bytes > 0); i++) {
        (void)setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
        (void)setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
    }
}

static void connect_all(void)
{
    uint32_t streams = (setup_all.streams == 0) ? 1 : setup_all.streams;
    for (uint32_t a = 0; a < world; a++) {
        for (uint32_t b = a + 1; b < world; b++) {
            for (uint32_t s = 0; s < streams; s++) {
                int fds[2];
                pair_open(fds);
                assert_int_equal(gf_link_tcp_adopt(ends[a].link, b, s, fds[0]), GF_OK);
                assert_int_equal(gf_link_tcp_adopt(ends[b].link, a, s, fds[1]), GF_OK);
            }
        }
    }
}

static void open_one(uint32_t rank)
{
    struct end *end = &ends[rank];
    struct gf_fault fault = {.code = GF_OK};
    end->setup = setup_all;
    end->setup.rank = rank;
    end->setup.world = end->setup.ranks_max = world;
    end->setup.log = (struct gf_log){log_take, end};
    end->log[0] = 0;
    end->state = aligned_alloc(64, gf_link_tcp.state_bytes(&end->setup));
    end->reqs = aligned_alloc(64, REQS_MAX * sizeof *end->reqs);
    memset(end->state, 0xa5, gf_link_tcp.state_bytes(&end->setup));
    assert_int_equal(gf_link_tcp.open(&end->setup, end->state, &end->link, &fault), GF_OK);
    ((struct gf_tcp_link *)end->link)->gone_ns = 0;
}

static void open_all(uint32_t count)
{
    world = count;
    for (uint32_t rank = 0; rank < count; rank++) open_one(rank);
    connect_all();
}

static void close_all(void)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        if (ends[rank].link != NULL) gf_link_tcp.close(ends[rank].link);
        free(ends[rank].state);
        free(ends[rank].reqs);
        ends[rank] = (struct end){.link = NULL};
    }
}

static void begin(void)
{
    setup_all = (struct gf_link_setup){.generation = 1,
                                       .requests_max = REQS_MAX,
                                       .message_bytes_max = MESSAGE_MAX,
                                       .private_memory = true,
                                       .adopts = true};
    loopback = false;
    buffer_bytes = 0;
}

/* Each test over socket pairs and over TCP, of one stream and of two, without and with
 * checksums. */
static bool dial_take(int way)
{
    begin();
    loopback = (way & 1) != 0;
    setup_all.streams = ((way & 2) != 0) ? 2 : 1;
    setup_all.checksum = (way & 4) != 0;
    return way < 8;
}
#define EACH_WAY(way) for (int way = 0; dial_take(way); way++)

static gf_status send_to(uint32_t from, uint32_t to, uint32_t req, uint64_t tag, const void *data,
                         size_t bytes)
{
    return gf_link_tcp.send_post(ends[from].link, to, tag, (gf_mem)(uintptr_t)data, bytes,
                                 &ends[from].reqs[req]);
}
static gf_status recv_from(uint32_t at, uint32_t from, uint32_t req, uint64_t tag, void *data,
                           size_t bytes)
{
    return gf_link_tcp.recv_post(ends[at].link, from, tag, (gf_mem)(uintptr_t)data, bytes,
                                 &ends[at].reqs[req]);
}
static gf_status answer(uint32_t at, uint32_t req)
{
    return gf_link_tcp.test(ends[at].link, &ends[at].reqs[req]);
}

static void progress_all(void)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        if (ends[rank].link != NULL) (void)gf_link_tcp.progress(ends[rank].link);
    }
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Its answer, at the latest after a minute without. */
static gf_status ended(uint32_t at, uint32_t req)
{
    for (uint64_t since_ns = now_ns();
         (answer(at, req) == GF_AGAIN) && (now_ns() - since_ns < UINT64_C(60000000000));)
        progress_all();
    return answer(at, req);
}

static void turns(int turn_count)
{
    for (int i = 0; i < turn_count; i++) progress_all();
}

static void fill(unsigned char *data, size_t bytes, uint64_t seed)
{
    uint64_t word = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i < bytes; i++) {
        if ((i & 7) == 0)
            word = word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        data[i] = (unsigned char)(word >> (8 * (i & 7)));
    }
}
static bool filled(const unsigned char *data, size_t bytes, uint64_t seed)
{
    static unsigned char want[MESSAGE_MAX];
    fill(want, bytes, seed);
    return memcmp(data, want, bytes) == 0;
}

static unsigned char out[ENDS_MAX][8][MESSAGE_MAX], in[ENDS_MAX][8][MESSAGE_MAX];
static const size_t sizes[] = {0, 1, 8, 4096, 32768, 32769, 300000, MESSAGE_MAX};

/* ---- messages ---- */

/* All sizes, both ways between all, receives posted before or after, and last one first. */
TEST(messages_of_all_sizes_arrive)
{
    EACH_WAY(way)
    {
        open_all(2);
        for (int round = 0; round < 4; round++) {
            for (int half = 0; half < 2; half++) {
                bool receives = (half == 0) == ((round & 1) == 0);
                for (uint32_t rank = 0; rank < 2; rank++) {
                    for (uint32_t i = 0; i < LENGTH(sizes); i++) {
                        uint32_t last = (uint32_t)LENGTH(sizes) - 1 - i;
                        if (receives) {
                            memset(in[rank][last], 0xee, sizes[last]);
                            assert_int_equal(recv_from(rank, 1 - rank, last, 100 + last,
                                                       in[rank][last], sizes[last]),
                                             GF_OK);
                        } else {
                            fill(out[rank][i], sizes[i], (uint64_t)round * 100 + rank * 10 + i);
                            assert_int_equal(
                                send_to(rank, 1 - rank, 8 + i, 100 + i, out[rank][i], sizes[i]),
                                GF_OK);
                        }
                    }
                }
                turns(round < 2 ? 50 : 0);
            }
            for (uint32_t rank = 0; rank < 2; rank++) {
                for (uint32_t i = 0; i < LENGTH(sizes); i++) {
                    assert_int_equal(ended(rank, i), GF_OK);
                    assert_int_equal(ended(rank, 8 + i), GF_OK);
                    assert_true(
                        filled(in[rank][i], sizes[i], (uint64_t)round * 100 + (1 - rank) * 10 + i));
                }
            }
        }
        for (uint32_t rank = 0; rank < 2; rank++)
            assert_int_equal(ends[rank].link->sent_messages, 4 * LENGTH(sizes));
        close_all();
    }
}

/* A message of some size is read into the memory of the receive that was posted first, its header
 * apart: so is what comes before it. */
TEST(what_comes_before_the_expected_message_goes_where_it_belongs)
{
    static const size_t bytes[] = {20000, 8, 32768, 0, 16384, 4000, 17000, 70000};
    const uint32_t count = LENGTH(bytes);
    EACH_WAY(way)
    {
        open_all(2);
        turns(4);
        for (uint32_t first = 0; first < count; first++) {
            for (uint32_t i = 0; i < count; i++) {
                memset(in[1][i], 0xee, bytes[i] + 64);
                assert_int_equal(recv_from(1, 0, i, 100 + i, in[1][i], bytes[i]), GF_OK);
            }
            (void)gf_link_tcp.progress(ends[1].link); /* READY */
            for (uint32_t k = 0; k < count; k++) {
                uint32_t i = (first + k * 3) % count;
                fill(out[0][i], bytes[i], first * 10 + i);
                assert_int_equal(send_to(0, 1, i, 100 + i, out[0][i], bytes[i]), GF_OK);
                if ((first & 1) != 0) (void)gf_link_tcp.progress(ends[0].link);
            }
            for (uint32_t i = 0; i < count; i++) {
                assert_int_equal(ended(1, i), GF_OK);
                assert_int_equal(ended(0, i), GF_OK);
                assert_true(filled(in[1][i], bytes[i], first * 10 + i));
                assert_int_equal(in[1][i][bytes[i]], 0xee);
            }
        }
        close_all();
    }
}

/* One that polls nothing, and then receives in reverse order: the other, whose sends end as far as
 * credit and the kernel's buffers go, is not held up with its own receives. */
TEST(a_peer_that_polls_late_receives_in_reverse_order)
{
    EACH_WAY(way)
    {
        static unsigned char small[40][2000];
        static unsigned char got[40][2000];
        open_all(3);
        turns(10);
        for (uint32_t i = 0; i < 40; i++) {
            fill(small[i], sizeof small[i], i);
            assert_int_equal(send_to(0, 1, i, 1000 + i, small[i], sizeof small[i]), GF_OK);
        }
        fill(out[0][0], MESSAGE_MAX, 77);
        assert_int_equal(send_to(0, 1, 40, 2000, out[0][0], MESSAGE_MAX), GF_OK);
        for (int i = 0; i < 200; i++) { /* 0 and 2 go on, 1 stands still */
            uint32_t value = 0;
            assert_int_equal(recv_from(0, 2, 50, 5000 + (uint64_t)i, &value, 4), GF_OK);
            assert_int_equal(send_to(2, 0, 50, 5000 + (uint64_t)i, &i, 4), GF_OK);
            while (answer(0, 50) == GF_AGAIN) {
                (void)gf_link_tcp.progress(ends[0].link);
                (void)gf_link_tcp.progress(ends[2].link);
            }
            assert_int_equal(value, i);
            assert_int_equal(ended(2, 50), GF_OK);
            for (int t = 0; t < 10; t++) (void)gf_link_tcp.progress(ends[0].link);
        }
        for (uint32_t i = 40; i-- > 0;) {
            assert_int_equal(recv_from(1, 0, i, 1000 + i, got[i], sizeof got[i]), GF_OK);
            turns(3);
        }
        assert_int_equal(recv_from(1, 0, 40, 2000, in[1][0], MESSAGE_MAX), GF_OK);
        for (uint32_t i = 0; i <= 40; i++) {
            assert_int_equal(ended(1, i), GF_OK);
            assert_int_equal(ended(0, i), GF_OK);
            assert_true((i == 40) || filled(got[i], sizeof got[i], i));
        }
        assert_true(filled(in[1][0], MESSAGE_MAX, 77));
        close_all();
    }
}

/* As many large messages both ways at once as there are requests, none of them received before all
 * are posted. */
TEST(large_messages_that_spend_all_requests_on_both_sides_end)
{
    static unsigned char data[2][2][REQS_MAX / 2][200000];
    EACH_WAY(way)
    {
        buffer_bytes = loopback ? 65536 : 8192;
        setup_all.credit_bytes = 8192;
        open_all(2);
        for (uint32_t rank = 0; rank < 2; rank++) {
            for (uint32_t i = 0; i < REQS_MAX / 2; i++) {
                fill(data[rank][0][i], 200000, rank * 100 + i);
                assert_int_equal(send_to(rank, 1 - rank, i, i, data[rank][0][i], 200000), GF_OK);
            }
        }
        turns(100);
        for (uint32_t rank = 0; rank < 2; rank++) {
            for (uint32_t i = REQS_MAX / 2; i-- > 0;)
                assert_int_equal(
                    recv_from(rank, 1 - rank, REQS_MAX / 2 + i, i, data[rank][1][i], 200000),
                    GF_OK);
            assert_int_equal(recv_from(rank, 1 - rank, 0, 99, NULL, 0), GF_FULL); /* and no fault */
            assert_int_equal(ends[rank].link->fault.code, GF_OK);
        }
        for (uint32_t rank = 0; rank < 2; rank++) {
            for (uint32_t i = 0; i < REQS_MAX; i++) assert_int_equal(ended(rank, i), GF_OK);
            for (uint32_t i = 0; i < REQS_MAX / 2; i++)
                assert_true(filled(data[rank][1][i], 200000, (1 - rank) * 100 + i));
        }
        close_all();
    }
}

/* Small messages that credit does not suffice for, both ways; then others, in reverse. */
TEST(credit_spent_in_both_directions_holds_up_nothing)
{
    static unsigned char data[2][2][32][1500];
    EACH_WAY(way)
    {
        setup_all.credit_bytes = 4096;
        open_all(2);
        for (int round = 0; round < 3; round++) {
            for (uint32_t rank = 0; rank < 2; rank++) {
                for (uint32_t i = 0; i < 32; i++) {
                    size_t bytes = (i % 5 == 0) ? 0 : 1500;
                    fill(data[rank][0][i], bytes, rank * 100 + i);
                    assert_int_equal(send_to(rank, 1 - rank, i, i, data[rank][0][i], bytes), GF_OK);
                }
            }
            turns(100);
            for (uint32_t i = 32; i-- > 0;) {
                for (uint32_t rank = 0; rank < 2; rank++) {
                    size_t bytes = (i % 5 == 0) ? 0 : 1500;
                    assert_int_equal(recv_from(rank, 1 - rank, 32 + i, i, data[rank][1][i], bytes),
                                     GF_OK);
                    assert_int_equal(ended(rank, 32 + i), GF_OK);
                    assert_true(filled(data[rank][1][i], bytes, (1 - rank) * 100 + i));
                }
            }
            for (uint32_t i = 0; i < 32; i++) assert_int_equal(ended(0, i) | ended(1, i), GF_OK);
        }
        close_all();
    }
}

/* A vote behind a large message that the kernel takes slowly is there long before that has
 * ended. */
TEST(small_messages_go_between_the_frames_of_a_large_one)
{
    EACH_WAY(way)
    {
        uint64_t vote = 0;
        const uint64_t cast = 42;
        buffer_bytes = loopback ? 65536 : 4096;
        open_all(2);
        assert_int_equal(recv_from(1, 0, 0, 7, in[1][0], MESSAGE_MAX), GF_OK);
        assert_int_equal(recv_from(1, 0, 1, 8, &vote, sizeof vote), GF_OK);
        turns(4);
        assert_int_equal(send_to(0, 1, 0, 7, out[0][0], MESSAGE_MAX), GF_OK);
        turns(4);
        assert_int_equal(send_to(0, 1, 1, 8, &cast, sizeof cast), GF_OK);
        assert_int_equal(ended(1, 1), GF_OK);
        assert_int_equal(answer(0, 0), GF_AGAIN);
        assert_int_equal(vote, 42);
        assert_int_equal(ended(1, 0), GF_OK);
        close_all();
    }
}

/* The kernel would keep the end of a packet for a frame that does not follow. */
TEST(no_stream_announces_more_than_it_sends)
{
    EACH_WAY(way)
    {
        open_all(2);
        for (size_t bytes = 1000; bytes <= MESSAGE_MAX; bytes = 2 * bytes + 7) {
            assert_int_equal(recv_from(1, 0, 0, 7, in[1][0], bytes), GF_OK);
            turns(4);
            assert_int_equal(send_to(0, 1, 0, 7, out[0][0], bytes), GF_OK);
            assert_int_equal(ended(1, 0), GF_OK);
            assert_int_equal(ended(0, 0), GF_OK);
            for (uint32_t s = 0; s < setup_all.streams; s++) {
                int fd = ((struct gf_tcp_link *)ends[0].link)->peers[1].streams[s].fd;
                assert_int_equal(sent_flags[fd] & MSG_MORE, 0);
            }
        }
        close_all();
    }
}

/* ---- sizes that differ, cancelling, rules of posting ---- */

static const struct size_case {
    size_t sent_bytes, expected_bytes;
    bool receive_first;
} size_cases[] = {
    {16, 8, true},
    {8, 16, false},
    {0, 8, true},
    {0, 8, false},
    {8, 0, true},
    {65536, 70000, true},
    {70000, 65536, true},
    {70000, 65536, false},
    {65536, 70000, false},
    {1u << 20, 8, true},
    {8, 1u << 20, true},
    {1u << 20, 8, false},
    {8, 1u << 20, false},
    {1u << 20, 1u << 19, true},
    {1u << 19, 1u << 20, false},
};

TEST(another_size_is_named_with_both_sizes)
{
    EACH_WAY(way)
    {
        for (size_t i = 0; i < 2 * LENGTH(size_cases); i++) {
            const struct size_case *c = &size_cases[i / 2];
            char want[100];
            uint64_t value = 0;
            setup_all.credit_bytes = (i % 2 == 0) ? 0 : 1024; /* without credit likewise */
            open_all(2);
            if (i % 2 == 1)
                assert_int_equal(send_to(1, 0, 9, 90, &value, 8), GF_OK); /* it takes the credit */
            for (int half = 0; half < 2; half++) {
                if ((half == 0) == c->receive_first)
                    assert_int_equal(recv_from(0, 1, 0, 5, in[0][0], c->expected_bytes), GF_OK);
                else
                    assert_int_equal(send_to(1, 0, 0, 5, out[1][0], c->sent_bytes), GF_OK);
                turns(20);
            }
            assert_int_equal(ended(0, 0), GF_ERR_MISMATCH);
            (void)snprintf(want, sizeof want, "rank 1 sent %zu bytes where rank 0 expects %zu",
                           c->sent_bytes, c->expected_bytes);
            assert_true(strncmp(ends[0].link->fault.text, want, strlen(want)) == 0);
            assert_int_equal(ends[0].link->fault.peer, 1);
            /* Others are not held up. */
            assert_int_equal(recv_from(0, 1, 1, 6, &value, 8), GF_OK);
            assert_int_equal(send_to(1, 0, 1, 6, &(uint64_t){3}, 8), GF_OK);
            assert_int_equal(ended(0, 1), GF_OK);
            assert_int_equal(value, 3);
            close_all();
        }
    }
}

/* A receive of each kind at each moment, cancelled; once the peer has heard of that, its tag is as
 * good as another. */
TEST(a_cancelled_receive_ends_and_leaves_nothing_behind)
{
    static const size_t cancelled[] = {8, 70000, MESSAGE_MAX};
    EACH_WAY(way)
    {
        for (uint32_t i = 0; i < LENGTH(cancelled); i++) {
            for (int wait = 0; wait < 3; wait++) {
                open_all(2);
                if (wait > 0) turns(10);
                for (uint64_t round = 0; round < 200; round++) {
                    assert_int_equal(recv_from(0, 1, 0, 5, in[0][0], cancelled[i]), GF_OK);
                    if (wait > 1) turns(4);
                    gf_link_tcp.cancel(ends[0].link, &ends[0].reqs[0]);
                    gf_link_tcp.cancel(ends[0].link, &ends[0].reqs[0]);
                    assert_int_equal(ended(0, 0), GF_ERR_ABORTED);
                }
                assert_int_equal(ends[0].link->fault.code, GF_OK);
                turns(200);
                fill(out[1][0], cancelled[i], i);
                assert_int_equal(send_to(1, 0, 0, 5, out[1][0], cancelled[i]), GF_OK);
                assert_int_equal(recv_from(0, 1, 0, 5, in[0][0], cancelled[i]), GF_OK);
                assert_int_equal(ended(0, 0), GF_OK);
                assert_true(filled(in[0][0], cancelled[i], i));
                gf_link_tcp.cancel(ends[0].link, &ends[0].reqs[0]);
                assert_int_equal(ended(0, 0), GF_OK);
                assert_int_equal(ended(1, 0), GF_OK);
                close_all();
            }
        }
    }
}

/* Told, cancelled, and the message had left: its bytes are dropped, and what follows arrives. */
TEST(a_message_that_met_no_receive_any_more_is_dropped)
{
    EACH_WAY(way)
    {
        uint64_t value = 0;
        open_all(2);
        turns(10);
        assert_int_equal(recv_from(0, 1, 0, 5, in[0][0], MESSAGE_MAX), GF_OK);
        (void)gf_link_tcp.progress(ends[0].link);
        (void)gf_link_tcp.progress(ends[1].link);
        gf_link_tcp.cancel(ends[0].link, &ends[0].reqs[0]);
        assert_int_equal(answer(0, 0), GF_ERR_ABORTED);
        assert_int_equal(send_to(1, 0, 0, 5, out[1][0], MESSAGE_MAX),
                         GF_OK); /* it knows of the receive alone */
        assert_int_equal(ended(1, 0), GF_OK);
        assert_int_equal(recv_from(0, 1, 1, 6, &value, 8), GF_OK);
        assert_int_equal(send_to(1, 0, 1, 6, &(uint64_t){3}, 8), GF_OK);
        assert_int_equal(ended(0, 1), GF_OK);
        assert_int_equal(value, 3);
        close_all();
    }
}

TEST(posting_keeps_its_rules)
{
    struct gf_fault *fault;
    int fds[2];
    begin();
    world = 3;
    for (uint32_t rank = 0; rank < 3; rank++) open_one(rank);
    fault = &ends[0].link->fault;
    assert_int_equal(send_to(0, 1, 0, 0, NULL, 0), GF_ERR_STATE);
    assert_non_null(strstr(fault->text, "not connected"));
    *fault = (struct gf_fault){.code = GF_OK};
    connect_all();
    pair_open(fds);
    assert_int_equal(gf_link_tcp_adopt(ends[0].link, 1, 0, fds[0]),
                     GF_ERR_PARAM); /* there already */
    *fault = (struct gf_fault){.code = GF_OK};
    assert_int_equal(gf_link_tcp_adopt(ends[0].link, 1, 1, fds[0]), GF_ERR_PARAM);
    *fault = (struct gf_fault){.code = GF_OK};
    assert_int_equal(gf_link_tcp_adopt(ends[0].link, 0, 0, fds[0]), GF_ERR_PARAM);
    *fault = (struct gf_fault){.code = GF_OK};
    (void)close(fds[0]);
    (void)close(fds[1]);
    assert_int_equal(gf_link_tcp_adopt(ends[0].link, 1, 0, fds[0]), GF_ERR_PARAM);
    assert_int_equal(gf_link_tcp.connect(ends[0].link, 0, NULL, 0), GF_OK);
    close_all();
}

/* ---- sleeping ---- */

TEST(a_message_wakes_a_sleeper_and_nothing_else_does)
{
    EACH_WAY(way)
    {
        open_all(2);
        turns(20);
        for (uint64_t i = 0; i < 20; i++) {
            struct pollfd ready = {.fd = ends[1].link->wake_fd, .events = POLLIN};
            uint64_t value = 0;
            assert_int_equal(recv_from(1, 0, 0, i, &value, 8), GF_OK);
            for (int t = 0; t < 10; t++) (void)gf_link_tcp.progress(ends[1].link);
            assert_true(gf_link_tcp.arm(ends[1].link));
            assert_int_equal(poll(&ready, 1, 0), 0);
            assert_int_equal(send_to(0, 1, 0, i, &i, 8), GF_OK);
            assert_int_equal(ended(0, 0), GF_OK);
            assert_int_equal(poll(&ready, 1, 20000), 1);
            while (answer(1, 0) == GF_AGAIN) assert_true(gf_link_tcp.progress(ends[1].link));
            assert_int_equal(value, i);
        }
        close_all();
    }
}

/* ---- generations ---- */

TEST(drop_and_reset_end_all_requests_and_a_new_generation_works)
{
    EACH_WAY(way)
    {
        open_all(2);
        for (uint32_t generation = 2; generation < 6; generation++) {
            for (uint32_t rank = 0; rank < 2; rank++) {
                for (uint32_t i = 0; i < 8; i++) {
                    assert_int_equal(send_to(rank, 1 - rank, i, i, out[rank][i], MESSAGE_MAX),
                                     GF_OK);
                    assert_int_equal(
                        recv_from(rank, 1 - rank, 8 + i, i + 4, in[rank][i], MESSAGE_MAX), GF_OK);
                    assert_int_equal(send_to(rank, 1 - rank, 16 + i, 20 + i, out[rank][i], 20),
                                     GF_OK);
                }
            }
            turns((generation % 2 == 0) ? 3 : 40);
            for (uint32_t rank = 0; rank < 2; rank++) {
                if (generation > 3) gf_link_tcp.drop(ends[rank].link);
                if (generation > 3)
                    assert_int_equal(send_to(rank, 1 - rank, 60, 9, NULL, 0), GF_ERR_STATE);
                assert_int_equal(gf_link_tcp.reset(ends[rank].link, generation, rank, world),
                                 GF_OK);
                for (uint32_t i = 0; i < 24; i++) assert_int_not_equal(answer(rank, i), GF_AGAIN);
                assert_int_equal(send_to(rank, 1 - rank, 0, 9, NULL, 0), GF_ERR_STATE);
                ends[rank].link->fault.code = GF_OK;
            }
            connect_all();
            fill(out[0][0], MESSAGE_MAX, generation);
            assert_int_equal(send_to(0, 1, 0, 9, out[0][0], MESSAGE_MAX), GF_OK);
            assert_int_equal(recv_from(1, 0, 0, 9, in[1][0], MESSAGE_MAX), GF_OK);
            assert_int_equal(ended(1, 0), GF_OK);
            assert_int_equal(ended(0, 0), GF_OK);
            assert_true(filled(in[1][0], MESSAGE_MAX, generation));
        }
        close_all();
    }
}

/* What close() is given to do is still sent: the receiver asks only after the sender has closed. */
TEST(a_message_sent_before_close_arrives)
{
    EACH_WAY(way)
    {
        static const size_t some[] = {8, 5000, 30000};
        open_all(2);
        turns(10);
        for (uint32_t i = 0; i < LENGTH(some); i++) {
            fill(out[0][i], some[i], i);
            assert_int_equal(send_to(0, 1, i, i, out[0][i], some[i]), GF_OK);
            assert_int_equal(ended(0, i), GF_OK);
        }
        gf_link_tcp.close(ends[0].link);
        ends[0].link = NULL;
        turns(10);
        for (uint32_t i = 0; i < LENGTH(some); i++) {
            assert_int_equal(recv_from(1, 0, i, i, in[1][i], some[i]), GF_OK);
            assert_int_equal(ended(1, i), GF_OK);
            assert_true(filled(in[1][i], some[i], i));
        }
        assert_int_equal(recv_from(1, 0, 3, 3, in[1][3], 8), GF_ERR_LINK);
        close_all();
    }
}

/* ---- faults ---- */

/* What one rank's link writes for a script of posts: taken from the other end of its socket. */
static unsigned char script[1 << 20];
static size_t script_bytes;
static unsigned char first[100], second[3000];

static void script_posts(uint32_t at)
{
    assert_int_equal(recv_from(at, 1 - at, 4, 20, in[at][4], MESSAGE_MAX), GF_OK);
    assert_int_equal(send_to(at, 1 - at, 0, 10, first, sizeof first), GF_OK);
    assert_int_equal(send_to(at, 1 - at, 1, 11, second, sizeof second), GF_OK);
    assert_int_equal(send_to(at, 1 - at, 2, 12, NULL, 0), GF_OK);
}

static void script_record(void)
{
    int fds[2];
    ssize_t got;
    fill(first, sizeof first, 1);
    fill(second, sizeof second, 2);
    world = 2;
    open_one(0);
    open_one(1);
    pair_open(fds);
    assert_int_equal(gf_link_tcp_adopt(ends[1].link, 0, 0, fds[1]), GF_OK);
    assert_int_equal(gf_link_tcp_adopt(ends[0].link, 1, 0, dup(fds[0])), GF_OK);
    (void)gf_link_tcp.progress(ends[0].link); /* its HELLO */
    gf_link_tcp.close(ends[0].link);
    ends[0].link = NULL;
    turns(3);
    script_posts(1);
    turns(3);
    got = recv(fds[0], script, sizeof script, MSG_DONTWAIT);
    assert_true(got > 0);
    script_bytes = (size_t)got;
    (void)close(fds[0]);
    close_all();
}

/* Rank 0 reads the first `bytes` of it from one that calls itself rank 1, and sends what can be
 * sent. */
static int script_play(size_t bytes)
{
    int fds[2];
    world = 2;
    open_one(0);
    pair_open(fds);
    assert_int_equal(gf_link_tcp_adopt(ends[0].link, 1, 0, fds[0]), GF_OK);
    assert_int_equal(recv_from(0, 1, 0, 10, in[0][0], sizeof first), GF_OK);
    assert_int_equal(recv_from(0, 1, 1, 11, in[0][1], sizeof second), GF_OK);
    assert_int_equal(recv_from(0, 1, 2, 12, NULL, 0), GF_OK);
    assert_int_equal(send(fds[1], script, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
    return fds[1];
}

/* Closed behind each byte: what is whole has arrived, all else is GF_ERR_LINK, with both ends and
 * what the kernel saw. */
TEST(a_connection_that_ends_behind_any_byte_is_told)
{
    for (int way = 0; way < 2; way++) {
        begin();
        loopback = (way == 1);
        script_record();
        for (size_t bytes = 0; bytes <= script_bytes;
             bytes += (bytes < 300 || script_bytes - bytes < 200) ? 1 : 97) {
            bool all = (bytes == script_bytes);
            int other = script_play(bytes);
            (void)close(other);
            for (uint32_t i = 0; i < 3; i++) (void)ended(0, i);
            assert_int_equal(ended(0, 2), all ? GF_OK : GF_ERR_LINK);
            if (answer(0, 0) == GF_OK) assert_memory_equal(in[0][0], first, sizeof first);
            if (answer(0, 1) == GF_OK) assert_memory_equal(in[0][1], second, sizeof second);
            if (!all) {
                const struct gf_fault *fault = &ends[0].link->fault;
                assert_int_equal(fault->code, GF_ERR_LINK);
                assert_int_equal(fault->peer, 1);
                assert_non_null(strstr(fault->text, "rank 0"));
                assert_non_null(strstr(fault->text, "rank 1"));
                assert_non_null(strstr(fault->text, "ended: "));
                assert_int_equal(strstr(fault->text, "retransmits, rtt ") != NULL, loopback);
                assert_int_equal(strstr(fault->text, "127.0.0.1:") != NULL, loopback);
            }
            (void)gf_link_tcp.progress(ends[0].link);
            assert_int_equal(ends[0].link->failed, GF_OK); /* one peer less */
            assert_int_equal(recv_from(0, 1, 8, 99, NULL, 0), GF_ERR_LINK);
            assert_int_equal(send_to(0, 1, 8, 99, NULL, 0), GF_ERR_LINK);
            close_all();
        }
    }
}

/* A second is given to the control channel to say what happened. */
TEST(an_end_is_told_a_second_later)
{
    uint64_t since_ns;
    begin();
    script_record();
    int other = script_play(100);
    ((struct gf_tcp_link *)ends[0].link)->gone_ns = 300000000;
    since_ns = now_ns();
    (void)close(other);
    assert_int_equal(recv_from(0, 1, 3, 13, NULL, 0), GF_OK); /* posted to one that has ended */
    turns(10);
    assert_int_equal(recv_from(0, 1, 4, 14, NULL, 0), GF_OK);
    assert_int_equal(ended(0, 4), GF_ERR_LINK);
    assert_int_equal(answer(0, 3), GF_ERR_LINK);
    assert_true(now_ns() - since_ns >= 300000000);
    close_all();
}

/* A connection ends before the receives are posted: what had come whole is had, and what had not is
 * refused at once. */
TEST(of_messages_without_a_receive_only_whole_ones_outlive_their_connection)
{
    static unsigned char small[2000];
    static unsigned char got[2000];
    EACH_WAY(way)
    {
        open_all(2);
        turns(10);
        fill(small, sizeof small, 1);
        fill(out[1][0], MESSAGE_MAX, 2);
        assert_int_equal(send_to(1, 0, 0, 7, out[1][0], MESSAGE_MAX), GF_OK);
        assert_int_equal(send_to(1, 0, 1, 8, small, sizeof small), GF_OK);
        turns(50);
        gf_link_tcp.close(ends[1].link);
        ends[1].link = NULL;
        turns(50);
        assert_int_equal(recv_from(0, 1, 0, 7, in[0][0], MESSAGE_MAX), GF_ERR_LINK);
        assert_int_equal(recv_from(0, 1, 1, 8, got, sizeof got), GF_OK);
        assert_int_equal(ended(0, 1), GF_OK);
        assert_memory_equal(got, small, sizeof got);
        assert_int_equal(recv_from(0, 1, 2, 8, got, sizeof got), GF_ERR_LINK);
        close_all();
    }
}

/* Each bit that stands for anything, changed in the first headers and their payloads. */
TEST(a_damaged_header_ends_the_connection_and_names_both_ends)
{
    for (int way = 0; way < 2; way++) {
        size_t heads_bytes = TCP_HEAD_BYTES * 3; /* HELLO, READY, BEGIN */
        begin();
        setup_all.checksum = (way == 1);
        script_record();
        for (size_t at = 0; at < heads_bytes + sizeof first + TCP_HEAD_BYTES; at++) {
            bool payload = (at >= heads_bytes) && (at < heads_bytes + sizeof first);
            int other;
            script[at] ^= (unsigned char)(1u << (at % 8));
            other = script_play(script_bytes);
            (void)ended(0, 2);
            if (payload && (way == 0)) {
                assert_int_equal(answer(0, 0), GF_OK); /* link.checksum is for these */
            } else {
                assert_int_equal(answer(0, 2), GF_ERR_LINK);
                assert_false(gf_link_tcp.progress(ends[0].link));
                assert_int_equal(ends[0].link->failed, GF_ERR_LINK);
                assert_non_null(strstr(ends[0].link->fault.text, "damaged"));
                assert_non_null(strstr(ends[0].link->fault.text, "rank 0"));
                assert_non_null(strstr(ends[0].link->fault.text, "rank 1"));
                assert_null(strstr(ends[0].log, "damaged")); /* whose the link is says it */
            }
            (void)close(other);
            close_all();
            script[at] ^= (unsigned char)(1u << (at % 8));
        }
    }
}

/* Whole headers with values that no rank sends. */
static const struct bad_case {
    const char *name, *says;
    struct gf_tcp_head head;
    bool before_hello;
} bad_cases[] = {
    {"begin_before_hello",
     "none may have here",
     {.kind = TCP_FRAME_BEGIN, .size = 4, .bytes = 4},
     true},
    {"hello_twice", "second HELLO", {.kind = TCP_FRAME_HELLO, .tag = 1}, false},
    {"hello_of_another_rank",
     "rank 2",
     {.kind = TCP_FRAME_HELLO, .tag = 1, .number = 2, .offset = REQS_MAX},
     true},
    {"hello_of_another_version",
     "version 9",
     {.kind = TCP_FRAME_HELLO, .tag = 9, .number = 1, .offset = REQS_MAX},
     true},
    {"hello_with_checksums",
     "checksum = true",
     {.kind = TCP_FRAME_HELLO, .tag = 1, .number = 1, .offset = REQS_MAX, .returned = 1},
     true},
    {"hello_with_other_requests",
     "7 requests",
     {.kind = TCP_FRAME_HELLO, .tag = 1, .number = 1, .offset = 7},
     true},
    {"ready_with_a_payload",
     "none may have here",
     {.kind = TCP_FRAME_READY, .number = 1, .bytes = 1},
     false},
    {"ready_without_a_number", "more receives", {.kind = TCP_FRAME_READY}, false},
    {"a_tag_of_64_bits",
     "none may have here",
     {.kind = TCP_FRAME_READY, .number = 1, .tag = UINT64_MAX},
     false},
    {"more_bytes_than_the_message",
     "begins with",
     {.kind = TCP_FRAME_BEGIN, .size = 4, .bytes = 5},
     false},
    {"no_first_byte", "begins with", {.kind = TCP_FRAME_BEGIN, .size = 4}, false},
    {"a_want_with_bytes",
     "none may have here",
     {.kind = TCP_FRAME_WANT, .size = 4, .bytes = 4},
     false},
    {"a_first_byte_elsewhere",
     "begins with",
     {.kind = TCP_FRAME_BEGIN,
      .tag = 5,
      .size = LARGE_BYTES,
      .offset = LARGE_BYTES - 1,
      .bytes = 8},
     false},
    {"a_large_message_whole",
     "begins with",
     {.kind = TCP_FRAME_BEGIN, .size = TCP_WHOLE_BYTES_MIN + 1, .bytes = TCP_WHOLE_BYTES_MIN + 1},
     false},
    {"beyond_its_credit",
     "begins with",
     {.kind = TCP_FRAME_BEGIN, .size = 9000, .bytes = 9000},
     false},
    {"a_frame_too_large",
     "none may have here",
     {.kind = TCP_FRAME_BEGIN, .size = 1u << 30, .bytes = TCP_FRAME_BYTES_MAX + 1},
     false},
    {"credit_that_was_not_taken", "more credit", {.kind = TCP_FRAME_NOTE, .returned = 1}, false},
    {"behind_the_end_of_a_message",
     "have come already",
     {.kind = TCP_FRAME_MORE,
      .tag = 5,
      .size = LARGE_BYTES,
      .offset = LARGE_BYTES - 1,
      .bytes = 2,
      .number = 1},
     false},
    {"an_offset_that_wraps",
     "have come already",
     {.kind = TCP_FRAME_MORE,
      .tag = 5,
      .size = LARGE_BYTES,
      .offset = UINT32_MAX,
      .bytes = 2,
      .number = 1},
     false},
    {"nothing_of_a_message",
     "have come already",
     {.kind = TCP_FRAME_MORE, .tag = 5, .size = LARGE_BYTES, .offset = 0, .bytes = 0, .number = 1},
     false},
};

TEST(headers_that_no_rank_sends_end_the_connection)
{
    for (size_t i = 0; i < LENGTH(bad_cases); i++) {
        const struct bad_case *c = &bad_cases[i];
        struct gf_tcp_head hello = {
            .kind = TCP_FRAME_HELLO, .tag = 1, .size = 8, .offset = REQS_MAX, .number = 1};
        unsigned char bytes[2 * TCP_HEAD_BYTES + 64] = {0};
        int fds[2];
        begin();
        setup_all.credit_bytes = 8192;
        world = 3;
        open_one(0);
        pair_open(fds);
        assert_int_equal(gf_link_tcp_adopt(ends[0].link, 1, 0, fds[0]), GF_OK);
        assert_int_equal(recv_from(0, 1, 0, 5, in[0][0], LARGE_BYTES), GF_OK);
        turns(2);
        gf_tcp_head_put(&hello, bytes);
        gf_tcp_head_put(&c->head, bytes + (c->before_hello ? 0 : TCP_HEAD_BYTES));
        assert_true(send(fds[1], bytes, sizeof bytes, MSG_NOSIGNAL) == (ssize_t)sizeof bytes);
        if (ended(0, 0) != GF_ERR_LINK) fail_msg("%s was taken", c->name);
        if (strstr(ends[0].link->fault.text, c->says) == NULL)
            fail_msg("%s: %s", c->name, ends[0].link->fault.text);
        (void)close(fds[1]);
        close_all();
    }
}

static uint64_t bytes_sent(uint32_t stream)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    int fd = ((struct gf_tcp_link *)ends[0].link)->peers[1].streams[stream].fd;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes), 0);
    return info.tcpi_bytes_sent;
}

/* Each message, not all of them together: whoever awaits it waits for the slower stream. */
TEST(streams_carry_as_much_of_each_message)
{
    begin();
    setup_all.streams = 2;
    loopback = true;
    open_all(2);
    turns(20);
    for (uint32_t i = 0; i < 8; i++) {
        size_t bytes = 200000 + 40000 * i;
        bool early = (i & 1) != 0; /* its receive is posted first */
        uint64_t before[2] = {bytes_sent(0), bytes_sent(1)};
        if (early) assert_int_equal(recv_from(1, 0, 0, i, in[1][0], bytes), GF_OK);
        turns(5);
        assert_int_equal(send_to(0, 1, 0, i, out[0][0], bytes), GF_OK);
        turns(5);
        if (!early) assert_int_equal(recv_from(1, 0, 0, i, in[1][0], bytes), GF_OK);
        assert_int_equal(ended(1, 0), GF_OK);
        assert_int_equal(ended(0, 0), GF_OK);
        turns(5);
        int64_t more = (int64_t)(bytes_sent(0) - before[0]) - (int64_t)(bytes_sent(1) - before[1]);
        assert_in_range(more + 40000, 0, 80000);
    }
    close_all();
}

/* A message that has begun on one stream does not end, for another size, on the other: its memory
 * is still written. */
TEST(a_message_that_has_begun_keeps_its_size)
{
    struct gf_tcp_head head = {
        .kind = TCP_FRAME_HELLO, .tag = 1, .size = 256, .offset = REQS_MAX, .number = 1};
    unsigned char bytes[TCP_HEAD_BYTES];
    int fds[2][2];
    begin();
    setup_all.streams = 2;
    world = 2;
    open_one(0);
    for (uint32_t s = 0; s < 2; s++) {
        pair_open(fds[s]);
        assert_int_equal(gf_link_tcp_adopt(ends[0].link, 1, s, fds[s][0]), GF_OK);
    }
    assert_int_equal(recv_from(0, 1, 0, 5, in[0][0], LARGE_BYTES), GF_OK);
    gf_tcp_head_put(&head, bytes);
    assert_true(send(fds[0][1], bytes, sizeof bytes, MSG_NOSIGNAL) == (ssize_t)sizeof bytes);
    turns(3);
    head = (struct gf_tcp_head){
        .kind = TCP_FRAME_MORE, .tag = 5, .size = LARGE_BYTES, .bytes = 1000, .number = 1};
    gf_tcp_head_put(&head, bytes);
    assert_true(send(fds[1][1], bytes, sizeof bytes, MSG_NOSIGNAL) == (ssize_t)sizeof bytes);
    turns(5);
    head.size = 5000;
    gf_tcp_head_put(&head, bytes);
    assert_true(send(fds[0][1], bytes, sizeof bytes, MSG_NOSIGNAL) == (ssize_t)sizeof bytes);
    assert_int_equal(ended(0, 0), GF_ERR_LINK);
    for (uint32_t s = 0; s < 2; s++) (void)close(fds[s][1]);
    close_all();
}

/* Header and payload of a message of this size are read by one call. Where another frame comes in
 * its place, and is a bad one, nothing of what came behind it is taken. */
TEST(a_bad_header_in_place_of_a_whole_message_ends_the_connection)
{
    for (uint32_t ahead = 0; ahead < 2; ahead++) { /* hello apart, and by the same call */
        struct gf_tcp_head hello = {
            .kind = TCP_FRAME_HELLO, .tag = 1, .size = 256, .offset = REQS_MAX, .number = 1};
        struct gf_tcp_head bad = {.kind = TCP_FRAME_READY, .number = 1, .bytes = 1};
        unsigned char bytes[2 * TCP_HEAD_BYTES + 10000] = {0};
        int fds[2];
        begin();
        world = 3;
        open_one(0);
        pair_open(fds);
        assert_int_equal(gf_link_tcp_adopt(ends[0].link, 1, 0, fds[0]), GF_OK);
        assert_int_equal(recv_from(0, 1, 0, 5, in[0][0], 20000), GF_OK);
        gf_tcp_head_put(&hello, bytes);
        gf_tcp_head_put(&bad, bytes + TCP_HEAD_BYTES);
        size_t first = (ahead == 0) ? TCP_HEAD_BYTES : sizeof bytes;
        assert_true(send(fds[1], bytes, first, MSG_NOSIGNAL) == (ssize_t)first);
        turns(2);
        size_t rest = sizeof bytes - first;
        if (rest > 0) assert_true(send(fds[1], bytes + first, rest, MSG_NOSIGNAL) == (ssize_t)rest);
        assert_int_equal(ended(0, 0), GF_ERR_LINK);
        assert_non_null(strstr(ends[0].link->fault.text, "none may have here"));
        (void)close(fds[1]);
        close_all();
    }
}

/* More WANTs, and more READYs, than the peer has requests; each ends the connection. */
TEST(a_peer_cannot_announce_more_than_its_requests)
{
    for (int way = 0; way < 2; way++) {
        struct gf_tcp_head head = {
            .kind = TCP_FRAME_HELLO, .tag = 1, .size = 8, .offset = REQS_MAX, .number = 1};
        unsigned char bytes[TCP_HEAD_BYTES];
        int fds[2];
        gf_status status = GF_OK;
        uint32_t sent = 0;
        begin();
        setup_all.credit_bytes = 8192;
        world = 2;
        open_one(0);
        pair_open(fds);
        assert_int_equal(gf_link_tcp_adopt(ends[0].link, 1, 0, fds[0]), GF_OK);
        for (; (status >= 0) && (sent < 1000); sent++) {
            gf_tcp_head_put(&head, bytes);
            assert_true(send(fds[1], bytes, sizeof bytes, MSG_NOSIGNAL) == (ssize_t)sizeof bytes);
            for (int t = 0; (t < 3) && (status >= 0); t++) {
                (void)gf_link_tcp.progress(ends[0].link);
                status = ends[0].link->failed;
            }
            head = (struct gf_tcp_head){.kind = (way == 0) ? TCP_FRAME_WANT : TCP_FRAME_READY,
                                        .tag = sent,
                                        .size = 9,
                                        .number = sent + 1};
        }
        assert_int_equal(status, GF_ERR_LINK);
        /* HELLO, those that fit, and one more; blocks bring entries of their own, which a WANT
         * takes as well. */
        assert_int_equal(sent, 1 + REQS_MAX + ((way == 0) ? 8 : 0) + 1);
        (void)close(fds[1]);
        close_all();
    }
}

/* ---- a forked child ---- */

TEST(a_forked_child_keeps_no_connection)
{
    int status = 0;
    pid_t child;
    uint64_t value = 0;
    begin();
    loopback = true;
    setup_all.streams = 2;
    open_all(2);
    child = fork();
    if (child == 0) {
        const struct gf_tcp_link *tcp = (const struct gf_tcp_link *)ends[0].link;
        bool closed = (fcntl(tcp->epoll_fd, F_GETFD) < 0) &&
                      (fcntl(tcp->peers[1].streams[0].fd, F_GETFD) < 0) &&
                      (fcntl(tcp->peers[1].streams[1].fd, F_GETFD) < 0);
        _exit(closed ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(recv_from(0, 1, 1, 6, &value, 8), GF_OK);
    assert_int_equal(send_to(1, 0, 1, 6, &(uint64_t){3}, 8), GF_OK);
    assert_int_equal(ended(0, 1), GF_OK);
    close_all();
}

/* ---- memory ---- */

static long mapped_pages(void)
{
    char text[64] = "";
    int fd = open("/proc/self/statm", O_RDONLY);
    assert_true((fd >= 0) && (read(fd, text, sizeof text - 1) > 0));
    (void)close(fd);
    return strtol(text, NULL, 10);
}

/* Late receives, three ranks, 8 bytes to the largest: neither malloc's family nor mmap. */
TEST(nothing_is_allocated_after_open)
{
    EACH_WAY(way)
    {
        uint64_t before;
        long pages;
        open_all(3);
        before = allocations;
        pages = mapped_pages();
        for (uint32_t round = 0; round < 12; round++) {
            size_t bytes = sizes[2 + round % 6];
            for (int half = 0; half < 2; half++) {
                for (uint32_t rank = 0; rank < 3; rank++) {
                    uint32_t right = (rank + 1) % 3;
                    uint32_t left = (rank + 2) % 3;
                    gf_status status;
                    if ((half == 0) == (round < 6))
                        status = recv_from(rank, left, 0, round, in[rank][0], bytes);
                    else
                        status = send_to(rank, right, 1, round, out[rank][0], bytes);
                    if (status != GF_OK) fail();
                }
                turns(10);
            }
            for (uint32_t rank = 0; rank < 3; rank++) {
                if ((ended(rank, 0) != GF_OK) || (ended(rank, 1) != GF_OK)) fail();
            }
        }
        assert_int_equal(allocations, before);
#ifdef __SANITIZE_ADDRESS__ /* which maps shadows */
        (void)pages;
#else
        assert_int_equal(mapped_pages(), pages);
#endif
        close_all();
    }
}

TEST(a_connected_peer_takes_at_most_300_kib_and_few_5_mib_together)
{
    struct gf_link_setup setup = {.requests_max = 256, .message_bytes_max = 1u << 20};
    begin();
    for (setup.ranks_max = 2; setup.ranks_max <= 513; setup.ranks_max++) {
        size_t most = (setup.world - 1) * (size_t)(300u << 10);
        if (most < 5u << 20) most = 5u << 20;
        assert_true(gf_link_tcp.state_bytes(&setup) - TCP_SCRATCH_BYTES <= most);
    }
}

/* What an exchange between two sends at once, 512 KiB in slices of 256 KiB; where a pair has
 * several streams they share such slices. */
TEST(two_slices_leave_before_their_receives_are_posted)
{
    static unsigned char slices[2][256u << 10];
    EACH_WAY(way)
    {
        setup_all.streams = 1;
        open_all(2);
        for (uint32_t i = 0; i < 2; i++) {
            fill(slices[i], sizeof slices[i], i);
            assert_int_equal(send_to(0, 1, i, i, slices[i], sizeof slices[i]), GF_OK);
        }
        for (uint32_t i = 0; i < 2; i++) assert_int_equal(ended(0, i), GF_OK);
        for (uint32_t i = 2; i-- > 0;) {
            assert_int_equal(recv_from(1, 0, i, i, in[1][0], sizeof slices[i]), GF_OK);
            assert_int_equal(ended(1, i), GF_OK);
            assert_true(filled(in[1][0], sizeof slices[i], i));
        }
        close_all();
    }
}

/* ---- at random ---- */

#define PLAN_MAX 400

struct planned {
    uint32_t from, to;
    uint64_t tag;
    uint32_t bytes;
    uint32_t send_req, recv_req; /* TCP_NONE: not posted yet; ENDED */
    unsigned char *sent, *got;
};
#define ENDED (TCP_NONE - 1)

static uint64_t dice;
static uint32_t roll(uint32_t below)
{
    dice = dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(dice >> 33) % below;
}

static uint32_t size_rolled(void)
{
    switch (roll(8)) {
    case 0: return 0;
    case 1: return roll(16);
    case 2: return 900 + roll(300);
    case 3: return 60000 + roll(10000);
    case 4: return roll(400000);
    default: return roll(5000);
    }
}

static uint32_t req_free(const bool *taken)
{
    for (uint32_t i = 0; i < REQS_MAX; i++) {
        if (!taken[i]) return i;
    }
    return TCP_NONE;
}

/* All messages of a plan, posted at random and in any order on both sides. Tags are those of the
 * plan's rows: none twice under way. Some receives are cancelled whose message never comes. */
static void plan_run(uint64_t seed)
{
    static struct planned plan[PLAN_MAX];
    static bool taken[ENDS_MAX][REQS_MAX];
    static const uint32_t credits[] = {1024, 4096, 20000, 0};
    uint32_t left;
    uint32_t count;
    uint64_t since_ns = now_ns();
    memset(taken, 0, sizeof taken);
    begin();
    dice = seed;
    loopback = roll(2) == 0;
    buffer_bytes = (roll(2) == 0) ? 0 : (loopback ? 65536 : 4096 << roll(4));
    setup_all.streams = 1 + roll(3);
    setup_all.checksum = roll(2) == 0;
    setup_all.credit_bytes = credits[roll(LENGTH(credits))];
    count = 50 + roll(PLAN_MAX - 50);
    open_all(2 + roll(2));
    for (uint32_t i = 0; i < count; i++) {
        struct planned *row = &plan[i];
        *row = (struct planned){.from = roll(world),
                                .tag = i,
                                .bytes = size_rolled(),
                                .send_req = TCP_NONE,
                                .recv_req = TCP_NONE};
        row->to = (row->from + 1 + roll(world - 1)) % world;
        row->sent = malloc(row->bytes + 1);
        row->got = malloc(row->bytes + 1);
        fill(row->sent, row->bytes, seed + i);
        memset(row->got, 0, row->bytes + 1);
    }
    /* What may be posted is a window of the plan; a window that moves on by its oldest row cannot
     * lock up. */
    for (left = 2 * count; left > 0;) {
        uint32_t oldest = 0;
        while ((plan[oldest].send_req == ENDED) && (plan[oldest].recv_req == ENDED)) oldest++;
        for (int tries = 0; tries < 6; tries++) {
            uint32_t i = oldest + roll(20);
            struct planned *row = &plan[(i < count) ? i : oldest];
            bool sends = roll(2) == 0;
            uint32_t rank = sends ? row->from : row->to;
            uint32_t *mine = sends ? &row->send_req : &row->recv_req;
            uint32_t req = req_free(taken[rank]);
            if ((*mine != TCP_NONE) || (req == TCP_NONE)) continue;
            if (sends)
                assert_int_equal(send_to(rank, row->to, req, row->tag, row->sent, row->bytes),
                                 GF_OK);
            else
                assert_int_equal(recv_from(rank, row->from, req, row->tag, row->got, row->bytes),
                                 GF_OK);
            *mine = req;
            taken[rank][req] = true;
        }
        if (roll(4) == 0) { /* the message of this one never comes */
            uint32_t rank = roll(world);
            uint32_t req = req_free(taken[rank]);
            if (req != TCP_NONE) {
                assert_int_equal(recv_from(rank, (rank + 1) % world, req, 100000 + roll(50),
                                           in[rank][7], size_rolled()),
                                 GF_OK);
                for (uint32_t t = roll(3); t > 0; t--) (void)gf_link_tcp.progress(ends[rank].link);
                gf_link_tcp.cancel(ends[rank].link, &ends[rank].reqs[req]);
                assert_int_equal(ended(rank, req), GF_ERR_ABORTED);
            }
        }
        for (uint32_t t = roll(5); t > 0; t--) (void)gf_link_tcp.progress(ends[roll(world)].link);
        for (uint32_t i = 0; i < count; i++) {
            struct planned *row = &plan[i];
            for (int side = 0; side < 2; side++) {
                uint32_t *mine = (side == 0) ? &row->send_req : &row->recv_req;
                uint32_t rank = (side == 0) ? row->from : row->to;
                if ((*mine >= ENDED) || (answer(rank, *mine) == GF_AGAIN)) continue;
                assert_int_equal(answer(rank, *mine), GF_OK);
                taken[rank][*mine] = false;
                *mine = ENDED;
                left--;
            }
        }
        if (now_ns() - since_ns > UINT64_C(60000000000))
            fail_msg("seed %llu stands still", (unsigned long long)seed);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (memcmp(plan[i].sent, plan[i].got, plan[i].bytes) != 0)
            fail_msg("seed %llu: other bytes in message %u", (unsigned long long)seed, i);
        free(plan[i].sent);
        free(plan[i].got);
    }
    turns(200);
    for (uint32_t rank = 0; rank < world;
         rank++) { /* nothing is left of it in what each remembers of the other */
        const struct gf_tcp_link *tcp = (const struct gf_tcp_link *)ends[rank].link;
        assert_int_equal(tcp->requests_under_way, 0);
        for (uint32_t id = 0; id < world; id++) {
            const struct gf_tcp_peer *peer = &tcp->peers[id];
            if (id == rank) continue;
            assert_int_equal(peer->used, peer->given);
            assert_int_equal(peer->early_count, 0);
            assert_int_equal(peer->late_first, TCP_NONE);
            assert_null(peer->receives.first);
        }
    }
    close_all();
}

TEST(messages_at_random_are_those_of_the_plan)
{
    for (uint64_t seed = 1; seed <= 60; seed++) plan_run(seed);
}
