/* Messages of the socket link: all sizes, in any order, by credit and without, over one stream and
 * over several.
 * suite: slow */
#include "drivers/tcp/data_state.h"
#include "drivers/tcp/link_tcp_state.h"
#include "drivers/tcp/socket.h"
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/tcp_ranks.h"

#include <linux/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* All sizes, both ways between all, receives posted before or after, and last one first. */
TEST(messages_of_all_sizes_arrive)
{
    EACH_SETUP(setup_index)
    {
        tcp_ranks_open(2);
        for (int round = 0; round < 4; round++) {
            for (int half = 0; half < 2; half++) {
                bool receives = (half == 0) == ((round & 1) == 0);
                for (uint32_t rank = 0; rank < 2; rank++) {
                    for (uint32_t i = 0; i < LENGTH(tcp_sizes); i++) {
                        uint32_t last = (uint32_t)LENGTH(tcp_sizes) - 1 - i;
                        if (receives) {
                            memset(tcp_in[rank][last], 0xee, tcp_sizes[last]);
                            assert_int_equal(tcp_recv(rank, 1 - rank, last, 100 + last,
                                                      tcp_in[rank][last], tcp_sizes[last]),
                                             GF_OK);
                        } else {
                            tcp_fill(tcp_out[rank][i], tcp_sizes[i],
                                     (uint64_t)round * 100 + rank * 10 + i);
                            assert_int_equal(tcp_send(rank, 1 - rank, 8 + i, 100 + i,
                                                      tcp_out[rank][i], tcp_sizes[i]),
                                             GF_OK);
                        }
                    }
                }
                tcp_progress(round < 2 ? 50 : 0);
            }
            for (uint32_t rank = 0; rank < 2; rank++) {
                for (uint32_t i = 0; i < LENGTH(tcp_sizes); i++) {
                    assert_int_equal(tcp_end(rank, i), GF_OK);
                    assert_int_equal(tcp_end(rank, 8 + i), GF_OK);
                    assert_true(tcp_filled(tcp_in[rank][i], tcp_sizes[i],
                                           (uint64_t)round * 100 + (1 - rank) * 10 + i));
                }
            }
        }
        for (uint32_t rank = 0; rank < 2; rank++)
            assert_int_equal(tcp_ranks[rank].link->sent_messages, 4 * LENGTH(tcp_sizes));
        tcp_ranks_close();
    }
}

/* A message of some size is read into the memory of the receive that was posted first, its header
 * apart: so is what comes before it. */
TEST(what_comes_before_the_expected_message_goes_where_it_belongs)
{
    static const size_t bytes[] = {20000, 8, 32768, 0, 16384, 4000, 17000, 70000};
    const uint32_t count = LENGTH(bytes);
    EACH_SETUP(setup_index)
    {
        tcp_ranks_open(2);
        tcp_progress(4);
        for (uint32_t first = 0; first < count; first++) {
            for (uint32_t i = 0; i < count; i++) {
                memset(tcp_in[1][i], 0xee, bytes[i] + 64);
                assert_int_equal(tcp_recv(1, 0, i, 100 + i, tcp_in[1][i], bytes[i]), GF_OK);
            }
            (void)gf_link_tcp.progress(tcp_ranks[1].link); /* READY */
            for (uint32_t k = 0; k < count; k++) {
                uint32_t i = (first + k * 3) % count;
                tcp_fill(tcp_out[0][i], bytes[i], first * 10 + i);
                assert_int_equal(tcp_send(0, 1, i, 100 + i, tcp_out[0][i], bytes[i]), GF_OK);
                if ((first & 1) != 0) (void)gf_link_tcp.progress(tcp_ranks[0].link);
            }
            for (uint32_t i = 0; i < count; i++) {
                assert_int_equal(tcp_end(1, i), GF_OK);
                assert_int_equal(tcp_end(0, i), GF_OK);
                assert_true(tcp_filled(tcp_in[1][i], bytes[i], first * 10 + i));
                assert_int_equal(tcp_in[1][i][bytes[i]], 0xee);
            }
        }
        tcp_ranks_close();
    }
}

/* One that polls nothing, and then receives in reverse order: the other, whose sends end as far as
 * credit and the kernel's buffers go, is not held up with its own receives. */
TEST(a_peer_that_polls_late_receives_in_reverse_order)
{
    EACH_SETUP(setup_index)
    {
        static unsigned char small[40][2000];
        static unsigned char got[40][2000];
        tcp_ranks_open(3);
        tcp_progress(10);
        for (uint32_t i = 0; i < 40; i++) {
            tcp_fill(small[i], sizeof small[i], i);
            assert_int_equal(tcp_send(0, 1, i, 1000 + i, small[i], sizeof small[i]), GF_OK);
        }
        tcp_fill(tcp_out[0][0], TCP_MESSAGE_MAX, 77);
        assert_int_equal(tcp_send(0, 1, 40, 2000, tcp_out[0][0], TCP_MESSAGE_MAX), GF_OK);
        for (int i = 0; i < 200; i++) { /* 0 and 2 go on, 1 stands still */
            uint32_t value = 0;
            assert_int_equal(tcp_recv(0, 2, 50, 5000 + (uint64_t)i, &value, 4), GF_OK);
            assert_int_equal(tcp_send(2, 0, 50, 5000 + (uint64_t)i, &i, 4), GF_OK);
            while (tcp_answer(0, 50) == GF_AGAIN) {
                (void)gf_link_tcp.progress(tcp_ranks[0].link);
                (void)gf_link_tcp.progress(tcp_ranks[2].link);
            }
            assert_int_equal(value, i);
            assert_int_equal(tcp_end(2, 50), GF_OK);
            for (int t = 0; t < 10; t++) (void)gf_link_tcp.progress(tcp_ranks[0].link);
        }
        for (uint32_t i = 40; i-- > 0;) {
            assert_int_equal(tcp_recv(1, 0, i, 1000 + i, got[i], sizeof got[i]), GF_OK);
            tcp_progress(3);
        }
        assert_int_equal(tcp_recv(1, 0, 40, 2000, tcp_in[1][0], TCP_MESSAGE_MAX), GF_OK);
        for (uint32_t i = 0; i <= 40; i++) {
            assert_int_equal(tcp_end(1, i), GF_OK);
            assert_int_equal(tcp_end(0, i), GF_OK);
            assert_true((i == 40) || tcp_filled(got[i], sizeof got[i], i));
        }
        assert_true(tcp_filled(tcp_in[1][0], TCP_MESSAGE_MAX, 77));
        tcp_ranks_close();
    }
}

/* As many large messages both ways at once as there are requests, none of them received before all
 * are posted. */
TEST(large_messages_that_spend_all_requests_on_both_sides_end)
{
    static unsigned char data[2][2][TCP_REQS / 2][200000];
    EACH_SETUP(setup_index)
    {
        tcp_buffer_bytes = tcp_loopback ? 65536 : 8192;
        tcp_setup.credit_bytes = 8192;
        tcp_ranks_open(2);
        for (uint32_t rank = 0; rank < 2; rank++) {
            for (uint32_t i = 0; i < TCP_REQS / 2; i++) {
                tcp_fill(data[rank][0][i], 200000, rank * 100 + i);
                assert_int_equal(tcp_send(rank, 1 - rank, i, i, data[rank][0][i], 200000), GF_OK);
            }
        }
        tcp_progress(100);
        for (uint32_t rank = 0; rank < 2; rank++) {
            for (uint32_t i = TCP_REQS / 2; i-- > 0;)
                assert_int_equal(
                    tcp_recv(rank, 1 - rank, TCP_REQS / 2 + i, i, data[rank][1][i], 200000), GF_OK);
            assert_int_equal(tcp_recv(rank, 1 - rank, 0, 99, NULL, 0), GF_FULL); /* and no fault */
            assert_int_equal(tcp_ranks[rank].link->fault.code, GF_OK);
        }
        for (uint32_t rank = 0; rank < 2; rank++) {
            for (uint32_t i = 0; i < TCP_REQS; i++) assert_int_equal(tcp_end(rank, i), GF_OK);
            for (uint32_t i = 0; i < TCP_REQS / 2; i++)
                assert_true(tcp_filled(data[rank][1][i], 200000, (1 - rank) * 100 + i));
        }
        tcp_ranks_close();
    }
}

/* Small messages that credit does not suffice for, both ways; then others, in reverse. */
TEST(credit_spent_in_both_directions_holds_up_nothing)
{
    static unsigned char data[2][2][32][1500];
    EACH_SETUP(setup_index)
    {
        tcp_setup.credit_bytes = 4096;
        tcp_ranks_open(2);
        for (int round = 0; round < 3; round++) {
            for (uint32_t rank = 0; rank < 2; rank++) {
                for (uint32_t i = 0; i < 32; i++) {
                    size_t bytes = (i % 5 == 0) ? 0 : 1500;
                    tcp_fill(data[rank][0][i], bytes, rank * 100 + i);
                    assert_int_equal(tcp_send(rank, 1 - rank, i, i, data[rank][0][i], bytes),
                                     GF_OK);
                }
            }
            tcp_progress(100);
            for (uint32_t i = 32; i-- > 0;) {
                for (uint32_t rank = 0; rank < 2; rank++) {
                    size_t bytes = (i % 5 == 0) ? 0 : 1500;
                    assert_int_equal(tcp_recv(rank, 1 - rank, 32 + i, i, data[rank][1][i], bytes),
                                     GF_OK);
                    assert_int_equal(tcp_end(rank, 32 + i), GF_OK);
                    assert_true(tcp_filled(data[rank][1][i], bytes, (1 - rank) * 100 + i));
                }
            }
            for (uint32_t i = 0; i < 32; i++)
                assert_int_equal(tcp_end(0, i) | tcp_end(1, i), GF_OK);
        }
        tcp_ranks_close();
    }
}

/* A vote behind a large message that the kernel takes slowly is there long before that has
 * ended. */
TEST(small_messages_go_between_the_frames_of_a_large_one)
{
    EACH_SETUP(setup_index)
    {
        uint64_t vote = 0;
        const uint64_t cast = 42;
        tcp_buffer_bytes = tcp_loopback ? 65536 : 4096;
        tcp_ranks_open(2);
        assert_int_equal(tcp_recv(1, 0, 0, 7, tcp_in[1][0], TCP_MESSAGE_MAX), GF_OK);
        assert_int_equal(tcp_recv(1, 0, 1, 8, &vote, sizeof vote), GF_OK);
        tcp_progress(4);
        assert_int_equal(tcp_send(0, 1, 0, 7, tcp_out[0][0], TCP_MESSAGE_MAX), GF_OK);
        tcp_progress(4);
        assert_int_equal(tcp_send(0, 1, 1, 8, &cast, sizeof cast), GF_OK);
        assert_int_equal(tcp_end(1, 1), GF_OK);
        assert_int_equal(tcp_answer(0, 0), GF_AGAIN);
        assert_int_equal(vote, 42);
        assert_int_equal(tcp_end(1, 0), GF_OK);
        tcp_ranks_close();
    }
}

/* What an exchange between two sends at once, 512 KiB in slices of 256 KiB; where a pair has
 * several streams they share such slices. */
TEST(two_slices_leave_before_their_receives_are_posted)
{
    static unsigned char slices[2][256u << 10];
    EACH_SETUP(setup_index)
    {
        tcp_setup.streams = 1;
        tcp_ranks_open(2);
        for (uint32_t i = 0; i < 2; i++) {
            tcp_fill(slices[i], sizeof slices[i], i);
            assert_int_equal(tcp_send(0, 1, i, i, slices[i], sizeof slices[i]), GF_OK);
        }
        for (uint32_t i = 0; i < 2; i++) assert_int_equal(tcp_end(0, i), GF_OK);
        for (uint32_t i = 2; i-- > 0;) {
            assert_int_equal(tcp_recv(1, 0, i, i, tcp_in[1][0], sizeof slices[i]), GF_OK);
            assert_int_equal(tcp_end(1, i), GF_OK);
            assert_true(tcp_filled(tcp_in[1][0], sizeof slices[i], i));
        }
        tcp_ranks_close();
    }
}

static uint64_t bytes_sent(uint32_t stream)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    int fd = ((struct gf_tcp_link *)tcp_ranks[0].link)->peers[1].streams[stream].fd;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes), 0);
    return info.tcpi_bytes_sent;
}

/* Each message, not all of them together: whoever awaits it waits for the slower stream. */
TEST(streams_carry_as_much_of_each_message)
{
    tcp_begin();
    tcp_setup.streams = 2;
    tcp_loopback = true;
    tcp_ranks_open(2);
    tcp_progress(20);
    for (uint32_t i = 0; i < 8; i++) {
        size_t bytes = 200000 + 40000 * i;
        bool early = (i & 1) != 0; /* its receive is posted first */
        uint64_t before[2] = {bytes_sent(0), bytes_sent(1)};
        if (early) assert_int_equal(tcp_recv(1, 0, 0, i, tcp_in[1][0], bytes), GF_OK);
        tcp_progress(5);
        assert_int_equal(tcp_send(0, 1, 0, i, tcp_out[0][0], bytes), GF_OK);
        tcp_progress(5);
        if (!early) assert_int_equal(tcp_recv(1, 0, 0, i, tcp_in[1][0], bytes), GF_OK);
        assert_int_equal(tcp_end(1, 0), GF_OK);
        assert_int_equal(tcp_end(0, 0), GF_OK);
        tcp_progress(5);
        int64_t more = (int64_t)(bytes_sent(0) - before[0]) - (int64_t)(bytes_sent(1) - before[1]);
        assert_in_range(more + 40000, 0, 80000);
    }
    tcp_ranks_close();
}

TEST(a_message_wakes_a_sleeper_and_nothing_else_does)
{
    EACH_SETUP(setup_index)
    {
        tcp_ranks_open(2);
        tcp_progress(20);
        for (uint64_t i = 0; i < 20; i++) {
            struct pollfd ready = {.fd = tcp_ranks[1].link->wake_fd, .events = POLLIN};
            uint64_t value = 0;
            assert_int_equal(tcp_recv(1, 0, 0, i, &value, 8), GF_OK);
            for (int t = 0; t < 10; t++) (void)gf_link_tcp.progress(tcp_ranks[1].link);
            assert_true(gf_link_tcp.arm(tcp_ranks[1].link));
            assert_int_equal(poll(&ready, 1, 0), 0);
            assert_int_equal(tcp_send(0, 1, 0, i, &i, 8), GF_OK);
            assert_int_equal(tcp_end(0, 0), GF_OK);
            assert_int_equal(poll(&ready, 1, 20000), 1);
            while (tcp_answer(1, 0) == GF_AGAIN)
                assert_true(gf_link_tcp.progress(tcp_ranks[1].link));
            assert_int_equal(value, i);
        }
        tcp_ranks_close();
    }
}

/* ---- ranks that dial each other ---- */

static unsigned char endpoints[2][TCP_ENDPOINT_BYTES_MAX];
static size_t endpoint_bytes[2];

static struct gf_tcp_link *dialling(uint32_t rank)
{
    return (struct gf_tcp_link *)tcp_ranks[rank].link;
}

static void dialling_open(uint32_t streams)
{
    tcp_begin();
    tcp_setup.streams = streams;
    tcp_setup.adopts = false;
    tcp_setup.transports = tcp_setup.devices = "";
    tcp_setup.address = "127.0.0.1:7117";
    tcp_setup.keepalive_ns = UINT64_C(5000000000);
    tcp_world = 2;
    for (uint32_t r = 0; r < 2; r++) {
        tcp_rank_open(r);
        dialling(r)->gone_ns = TCP_GONE_NS;
        assert_int_equal(gf_link_tcp.endpoint(tcp_ranks[r].link, endpoints[r], &endpoint_bytes[r]),
                         GF_OK);
    }
}

/* A poll of its connections after a while in which it did nothing else. */
static gf_status rank_connects(uint32_t rank)
{
    usleep(1000);
    return gf_link_tcp.connect(tcp_ranks[rank].link, 1 - rank, endpoints[1 - rank],
                               endpoint_bytes[1 - rank]);
}

static void dialling_meet(void)
{
    gf_status met[2] = {GF_AGAIN, GF_AGAIN};
    for (int i = 0; (i < 5000) && ((met[0] == GF_AGAIN) || (met[1] == GF_AGAIN)); i++)
        for (uint32_t r = 0; r < 2; r++) {
            met[r] = rank_connects(r);
            if (met[r] < 0) fail_msg("rank %u: %s", r, tcp_ranks[r].link->fault.text);
        }
    assert_int_equal(met[0], GF_OK);
    assert_int_equal(met[1], GF_OK);
}

/* What they have made carries a message, and the ranks end. */
static void dialling_exchange(void)
{
    assert_int_equal(tcp_send(0, 1, 0, 7, tcp_out[0][0], 100000), GF_OK);
    assert_int_equal(tcp_recv(1, 0, 0, 7, tcp_in[1][0], 100000), GF_OK);
    assert_int_equal(tcp_end(1, 0), GF_OK);
    assert_int_equal(tcp_end(0, 0), GF_OK);
    tcp_ranks_close();
}

/* Rank 1 does not poll until rank 0 has four attempts open. Then it answers the oldest, and it is
 * rank 0 that does not poll (it was stopped, or has no core) until the next attempt is due, which
 * takes the place of the oldest. */
TEST(ranks_that_are_late_one_after_the_other_meet)
{
    dialling_open(1);
    struct dial *dial = &dialling(0)->data->dials[0];
    for (int i = 0; i < 4; i++) {
        dial->next_ns = 0;
        assert_int_equal(rank_connects(0), GF_AGAIN);
    }
    assert_int_equal(dial->tried, 4);
    for (int i = 0; (i < 10) && (dialling(1)->peers[0].open_count == 0); i++) {
        assert_int_equal(rank_connects(1), GF_AGAIN); /* NONCE, then ANSWER */
        if (dialling(1)->peers[0].open_count == 0)
            assert_int_equal(rank_connects(0), GF_AGAIN); /* HELLO */
    }
    assert_int_equal(dialling(1)->peers[0].open_count, 1);
    dial->next_ns = 0;
    dialling_meet();
    assert_int_equal(dial->tried, 4); /* it was that connection */
    tcp_ranks_close();
}

/* Rank 0 replaces what it was answered, which it has not heard. */
static void answered_resets(void)
{
    struct dial *dial = &dialling(0)->data->dials[0];
    for (uint32_t i = 0; i < HANDSHAKE_ATTEMPTS_MAX; i++) {
        if (dial->attempts[i].state != HANDSHAKE_ATTEMPT_ANSWER) continue;
        gf_socket_reset(&dial->attempts[i].fd);
        dial->attempts[i].state = HANDSHAKE_ATTEMPT_FREE;
    }
    dial->next_ns = 0;
}

/* .. and where the ANSWER was still on its way when the attempt was replaced. */
TEST(a_connection_that_ends_before_its_first_word_is_made_again)
{
    dialling_open(1);
    while (dialling(1)->peers[0].open_count == 0) {
        assert_int_equal(rank_connects(0), GF_AGAIN);
        assert_int_equal(rank_connects(1), GF_AGAIN);
    }
    answered_resets();
    dialling_meet();
    dialling_exchange();
}

/* What ends again and again is no accident: it is told. */
TEST(a_connection_that_never_stands_is_told)
{
    gf_status status = GF_AGAIN;
    dialling_open(1);
    for (int i = 0; (i < 1000) && (status == GF_AGAIN); i++) {
        (void)rank_connects(0);
        status = rank_connects(1);
        if (dialling(1)->peers[0].open_count > 0) answered_resets();
    }
    assert_int_equal(status, GF_ERR_LINK);
    assert_non_null(strstr(tcp_ranks[1].link->fault.text, "Connection reset by peer"));
    tcp_ranks_close();
}

/* A rank that has met nobody yet sleeps on its link, beside a stranger at its port. */
TEST(a_stranger_at_the_port_keeps_no_rank_awake)
{
    static const struct gf_addr anywhere;
    uint32_t awake = 0;
    dialling_open(1);
    struct gf_link *link = tcp_ranks[0].link;
    int stranger = gf_socket_connect(&dialling(0)->addrs[0], &anywhere, UINT64_C(1000000000));
    assert_true(stranger >= 0);
    for (int i = 0; i < 50; i++) {
        struct pollfd wake = {.fd = link->wake_fd, .events = POLLIN};
        (void)gf_link_tcp.progress(link);
        if (!gf_link_tcp.arm(link) || (poll(&wake, 1, 1) != 0)) awake++;
    }
    (void)close(stranger);
    tcp_ranks_close();
    assert_in_range(awake, 0, 5);
}

/* Rank 0's attempt at stream 1 that was answered; rank 0 does not see that. Returns its dial. */
static struct dial *answer_hide(int *fd_out)
{
    struct gf_data *data = dialling(0)->data;
    for (uint32_t d = 0; d < 2; d++)
        for (uint32_t i = 0; i < HANDSHAKE_ATTEMPTS_MAX; i++) {
            struct dial *dial = &data->dials[d];
            if (!dial->on || ((dial->words[3] & 0xff) != 1)) continue;
            if (dial->attempts[i].state != HANDSHAKE_ATTEMPT_ANSWER) continue;
            *fd_out = dial->attempts[i].fd;
            dial->attempts[i].fd = -1;
            dial->attempts[i].state = HANDSHAKE_ATTEMPT_FREE;
            dial->next_ns = UINT64_MAX;
            (void)epoll_ctl(data->handshake.epoll_fd, EPOLL_CTL_DEL, *fd_out, NULL);
            return dial;
        }
    return NULL;
}

/* As a_connection_that_ends_before_its_first_word_is_made_again(), of one of two streams: the other
 * one stands at both ends, and is polled meanwhile, as the connect() of a third rank does. */
TEST(one_of_two_streams_that_ends_before_the_first_word_is_made_again)
{
    int fd = -1;
    dialling_open(2);
    for (int i = 0; (i < 500) && (dialling(1)->peers[0].open_count < 2); i++) {
        (void)rank_connects(0);
        (void)rank_connects(1);
    }
    struct dial *dial = answer_hide(&fd);
    assert_non_null(dial);
    assert_int_equal(rank_connects(0), GF_AGAIN);
    assert_int_equal(dialling(0)->peers[1].open_count, 1);
    (void)gf_link_tcp.progress(tcp_ranks[0].link);
    assert_int_equal(rank_connects(1), GF_AGAIN);
    gf_socket_reset(&fd); /* the next attempt takes its place */
    dial->next_ns = 0;
    dialling_meet();
    dialling_exchange();
}
