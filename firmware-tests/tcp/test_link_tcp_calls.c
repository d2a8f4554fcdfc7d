/* What the socket link asks of libc and the kernel: no memory after open, and how it sends.
 * suite: slow
 * link: wrap send sendmsg */
#include "drivers/tcp/link_tcp_state.h"
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/tcp_ranks.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef __SANITIZE_ADDRESS__ /* which brings its own */
#include "firmware-tests/support/counted_malloc.h"
#endif

static uint64_t allocations;
__attribute__((unused)) static void count(void *caller)
{
    (void)caller;
    allocations++;
}

/* ---- sending ---- */

/* The flags of the last call that wrote to each descriptor. */
#define FDS_MAX 256
static int sent_flags[FDS_MAX]; /* -1: none yet */
ssize_t __real_send(int fd, const void *data, size_t bytes, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t bytes, int flags)
{
    if (fd < FDS_MAX) sent_flags[fd] = flags;
    return __real_send(fd, data, bytes, flags);
}
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
    if (fd < FDS_MAX) sent_flags[fd] = flags;
    return __real_sendmsg(fd, message, flags);
}

/* The kernel would keep the end of a packet for a frame that does not follow. */
TEST(no_stream_announces_more_than_it_sends)
{
    EACH_SETUP(setup_index)
    {
        memset(sent_flags, 0xff, sizeof sent_flags);
        tcp_ranks_open(2);
        for (size_t bytes = 1000; bytes <= TCP_MESSAGE_MAX; bytes = 2 * bytes + 7) {
            assert_int_equal(tcp_recv(1, 0, 0, 7, tcp_in[1][0], bytes), GF_OK);
            tcp_progress(4);
            assert_int_equal(tcp_send(0, 1, 0, 7, tcp_out[0][0], bytes), GF_OK);
            assert_int_equal(tcp_end(1, 0), GF_OK);
            assert_int_equal(tcp_end(0, 0), GF_OK);
            for (uint32_t s = 0; s < tcp_setup.streams; s++) {
                int fd = ((struct gf_tcp_link *)tcp_ranks[0].link)->peers[1].streams[s].fd;
                if (s == 0) assert_int_not_equal(sent_flags[fd], -1);
                if (sent_flags[fd] != -1) assert_int_equal(sent_flags[fd] & MSG_MORE, 0);
            }
        }
        tcp_ranks_close();
    }
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
    EACH_SETUP(setup_index)
    {
        uint64_t before;
        long pages;
        tcp_ranks_open(3);
        before = allocations;
        pages = mapped_pages();
        for (uint32_t round = 0; round < 12; round++) {
            size_t bytes = tcp_sizes[2 + round % 6];
            for (int half = 0; half < 2; half++) {
                for (uint32_t rank = 0; rank < 3; rank++) {
                    uint32_t right = (rank + 1) % 3;
                    uint32_t left = (rank + 2) % 3;
                    gf_status status;
                    if ((half == 0) == (round < 6))
                        status = tcp_recv(rank, left, 0, round, tcp_in[rank][0], bytes);
                    else
                        status = tcp_send(rank, right, 1, round, tcp_out[rank][0], bytes);
                    if (status != GF_OK) fail();
                }
                tcp_progress(10);
            }
            for (uint32_t rank = 0; rank < 3; rank++) {
                if ((tcp_end(rank, 0) != GF_OK) || (tcp_end(rank, 1) != GF_OK)) fail();
            }
        }
        assert_int_equal(allocations, before);
#ifdef __SANITIZE_ADDRESS__ /* which maps shadows */
        (void)pages;
#else
        assert_int_equal(mapped_pages(), pages);
#endif
        tcp_ranks_close();
    }
}

TEST(a_connected_peer_takes_at_most_300_kib_and_few_5_mib_together)
{
    struct gf_link_setup setup = {.requests_max = 256, .message_bytes_max = 1u << 20};
    tcp_begin();
    for (setup.ranks_max = 2; setup.ranks_max <= 513; setup.ranks_max++) {
        size_t most = (setup.world - 1) * (size_t)(300u << 10);
        if (most < 5u << 20) most = 5u << 20;
        assert_true(gf_link_tcp.state_bytes(&setup) - TCP_SCRATCH_BYTES <= most);
    }
}
