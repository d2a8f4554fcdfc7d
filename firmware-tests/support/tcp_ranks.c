/* Ranks of one process, each with a socket link, joined by socket pairs or loopback connections. */
#include "firmware-tests/support/tcp_ranks.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "firmware-tests/support/suite.h"

struct tcp_rank tcp_ranks[TCP_RANKS];
uint32_t tcp_world;
struct gf_link_setup tcp_setup;
bool tcp_loopback;
int tcp_buffer_bytes;
unsigned char tcp_out[TCP_RANKS][8][TCP_MESSAGE_MAX], tcp_in[TCP_RANKS][8][TCP_MESSAGE_MAX];

/* ---- opening ---- */

static void log_take(void *user, gf_log_level level, const char *line)
{
    struct tcp_rank *end = user;
    size_t used = strlen(end->log);
    (void)level;
    (void)snprintf(end->log + used, sizeof end->log - used, "%s\n", line);
}

void tcp_pair(int fds_out[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    if (!tcp_loopback) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds_out), 0);
    } else {
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
        assert_int_equal(listen(listener, 1), 0);
        assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
        fds_out[0] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(fds_out[0], (struct sockaddr *)&at, sizeof at), 0);
        fds_out[1] = accept(listener, NULL, NULL);
        (void)close(listener);
    }
    assert_true((fds_out[0] >= 0) && (fds_out[1] >= 0));
    for (int i = 0; (i < 2) && (tcp_buffer_bytes > 0); i++) {
        (void)setsockopt(fds_out[i], SOL_SOCKET, SO_SNDBUF, &tcp_buffer_bytes,
                         sizeof tcp_buffer_bytes);
        (void)setsockopt(fds_out[i], SOL_SOCKET, SO_RCVBUF, &tcp_buffer_bytes,
                         sizeof tcp_buffer_bytes);
    }
}

void tcp_ranks_connect(void)
{
    uint32_t streams = (tcp_setup.streams == 0) ? 1 : tcp_setup.streams;
    for (uint32_t a = 0; a < tcp_world; a++) {
        for (uint32_t b = a + 1; b < tcp_world; b++) {
            for (uint32_t s = 0; s < streams; s++) {
                int fds[2];
                tcp_pair(fds);
                assert_int_equal(gf_link_tcp_adopt(tcp_ranks[a].link, b, s, fds[0]), GF_OK);
                assert_int_equal(gf_link_tcp_adopt(tcp_ranks[b].link, a, s, fds[1]), GF_OK);
            }
        }
    }
}

void tcp_rank_open(uint32_t rank)
{
    struct tcp_rank *end = &tcp_ranks[rank];
    struct gf_fault fault = {.code = GF_OK};
    end->setup = tcp_setup;
    end->setup.rank = rank;
    end->setup.world = end->setup.ranks_max = tcp_world;
    end->setup.log = (struct gf_log){log_take, end};
    end->log[0] = 0;
    end->state = aligned_alloc(64, gf_link_tcp.state_bytes(&end->setup));
    end->reqs = aligned_alloc(64, TCP_REQS * sizeof *end->reqs);
    memset(end->state, 0xa5, gf_link_tcp.state_bytes(&end->setup));
    assert_int_equal(gf_link_tcp.open(&end->setup, end->state, &end->link, &fault), GF_OK);
    ((struct gf_tcp_link *)end->link)->gone_ns = 0;
}

void tcp_ranks_open(uint32_t count)
{
    tcp_world = count;
    for (uint32_t rank = 0; rank < count; rank++) tcp_rank_open(rank);
    tcp_ranks_connect();
}

void tcp_ranks_close(void)
{
    for (uint32_t rank = 0; rank < tcp_world; rank++) {
        if (tcp_ranks[rank].link != NULL) gf_link_tcp.close(tcp_ranks[rank].link);
        free(tcp_ranks[rank].state);
        free(tcp_ranks[rank].reqs);
        tcp_ranks[rank] = (struct tcp_rank){.link = NULL};
    }
}

void tcp_begin(void)
{
    tcp_setup = (struct gf_link_setup){.generation = 1,
                                       .requests_max = TCP_REQS,
                                       .message_bytes_max = TCP_MESSAGE_MAX,
                                       .private_memory = true,
                                       .adopts = true};
    tcp_loopback = false;
    tcp_buffer_bytes = 0;
}

bool tcp_setup_take(int index)
{
    tcp_begin();
    tcp_loopback = (index & 1) != 0;
    tcp_setup.streams = ((index & 2) != 0) ? 2 : 1;
    tcp_setup.checksum = (index & 4) != 0;
    return index < 8;
}

/* ---- messages ---- */

gf_status tcp_send(uint32_t from, uint32_t to, uint32_t req, uint64_t tag, const void *data,
                   size_t bytes)
{
    return gf_link_tcp.send_post(tcp_ranks[from].link, to, tag, (gf_mem)(uintptr_t)data, bytes,
                                 &tcp_ranks[from].reqs[req]);
}
gf_status tcp_recv(uint32_t at, uint32_t from, uint32_t req, uint64_t tag, void *data, size_t bytes)
{
    return gf_link_tcp.recv_post(tcp_ranks[at].link, from, tag, (gf_mem)(uintptr_t)data, bytes,
                                 &tcp_ranks[at].reqs[req]);
}
gf_status tcp_answer(uint32_t at, uint32_t req)
{
    return gf_link_tcp.test(tcp_ranks[at].link, &tcp_ranks[at].reqs[req]);
}

static void progress_all(void)
{
    for (uint32_t rank = 0; rank < tcp_world; rank++) {
        if (tcp_ranks[rank].link != NULL) (void)gf_link_tcp.progress(tcp_ranks[rank].link);
    }
}

uint64_t tcp_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

gf_status tcp_end(uint32_t at, uint32_t req)
{
    for (uint64_t since_ns = tcp_now_ns();
         (tcp_answer(at, req) == GF_AGAIN) && (tcp_now_ns() - since_ns < UINT64_C(60000000000));)
        progress_all();
    return tcp_answer(at, req);
}

void tcp_progress(int turn_count)
{
    for (int i = 0; i < turn_count; i++) progress_all();
}

void tcp_fill(unsigned char *data, size_t bytes, uint64_t seed)
{
    uint64_t word = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i < bytes; i++) {
        if ((i & 7) == 0)
            word = word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        data[i] = (unsigned char)(word >> (8 * (i & 7)));
    }
}
bool tcp_filled(const unsigned char *data, size_t bytes, uint64_t seed)
{
    static unsigned char want[TCP_MESSAGE_MAX];
    tcp_fill(want, bytes, seed);
    return memcmp(data, want, bytes) == 0;
}
