/* How connections of the socket link end: a reset, a close, a peer that ends after any byte or
 * sends damaged ones, and a forked child.
 * suite: slow */
#include "drivers/tcp/link_tcp_state.h"
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/tcp_ranks.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- generations ---- */

TEST(drop_and_reset_end_all_requests_and_a_new_generation_works)
{
    EACH_SETUP(setup_index)
    {
        tcp_ranks_open(2);
        for (uint32_t generation = 2; generation < 6; generation++) {
            for (uint32_t rank = 0; rank < 2; rank++) {
                for (uint32_t i = 0; i < 8; i++) {
                    assert_int_equal(
                        tcp_send(rank, 1 - rank, i, i, tcp_out[rank][i], TCP_MESSAGE_MAX), GF_OK);
                    assert_int_equal(
                        tcp_recv(rank, 1 - rank, 8 + i, i + 4, tcp_in[rank][i], TCP_MESSAGE_MAX),
                        GF_OK);
                    assert_int_equal(tcp_send(rank, 1 - rank, 16 + i, 20 + i, tcp_out[rank][i], 20),
                                     GF_OK);
                }
            }
            tcp_progress((generation % 2 == 0) ? 3 : 40);
            for (uint32_t rank = 0; rank < 2; rank++) {
                if (generation > 3) gf_link_tcp.drop(tcp_ranks[rank].link);
                if (generation > 3)
                    assert_int_equal(tcp_send(rank, 1 - rank, 60, 9, NULL, 0), GF_ERR_STATE);
                assert_int_equal(
                    gf_link_tcp.reset(tcp_ranks[rank].link, generation, rank, tcp_world), GF_OK);
                for (uint32_t i = 0; i < 24; i++)
                    assert_int_not_equal(tcp_answer(rank, i), GF_AGAIN);
                assert_int_equal(tcp_send(rank, 1 - rank, 0, 9, NULL, 0), GF_ERR_STATE);
                tcp_ranks[rank].link->fault.code = GF_OK;
            }
            tcp_ranks_connect();
            tcp_fill(tcp_out[0][0], TCP_MESSAGE_MAX, generation);
            assert_int_equal(tcp_send(0, 1, 0, 9, tcp_out[0][0], TCP_MESSAGE_MAX), GF_OK);
            assert_int_equal(tcp_recv(1, 0, 0, 9, tcp_in[1][0], TCP_MESSAGE_MAX), GF_OK);
            assert_int_equal(tcp_end(1, 0), GF_OK);
            assert_int_equal(tcp_end(0, 0), GF_OK);
            assert_true(tcp_filled(tcp_in[1][0], TCP_MESSAGE_MAX, generation));
        }
        tcp_ranks_close();
    }
}

/* What close() is given to do is still sent: the receiver asks only after the sender has closed. */
TEST(a_message_sent_before_close_arrives)
{
    EACH_SETUP(setup_index)
    {
        static const size_t some[] = {8, 5000, 30000};
        tcp_ranks_open(2);
        tcp_progress(10);
        for (uint32_t i = 0; i < LENGTH(some); i++) {
            tcp_fill(tcp_out[0][i], some[i], i);
            assert_int_equal(tcp_send(0, 1, i, i, tcp_out[0][i], some[i]), GF_OK);
            assert_int_equal(tcp_end(0, i), GF_OK);
        }
        gf_link_tcp.close(tcp_ranks[0].link);
        tcp_ranks[0].link = NULL;
        tcp_progress(10);
        for (uint32_t i = 0; i < LENGTH(some); i++) {
            assert_int_equal(tcp_recv(1, 0, i, i, tcp_in[1][i], some[i]), GF_OK);
            assert_int_equal(tcp_end(1, i), GF_OK);
            assert_true(tcp_filled(tcp_in[1][i], some[i], i));
        }
        assert_int_equal(tcp_recv(1, 0, 3, 3, tcp_in[1][3], 8), GF_ERR_LINK);
        tcp_ranks_close();
    }
}

/* ---- faults ---- */

/* What one rank's link writes for a script of posts: taken from the other end of its socket. */
static unsigned char script[1 << 20];
static size_t script_bytes;
static unsigned char first[100], second[3000];

static void script_posts(uint32_t at)
{
    assert_int_equal(tcp_recv(at, 1 - at, 4, 20, tcp_in[at][4], TCP_MESSAGE_MAX), GF_OK);
    assert_int_equal(tcp_send(at, 1 - at, 0, 10, first, sizeof first), GF_OK);
    assert_int_equal(tcp_send(at, 1 - at, 1, 11, second, sizeof second), GF_OK);
    assert_int_equal(tcp_send(at, 1 - at, 2, 12, NULL, 0), GF_OK);
}

static void script_record(void)
{
    int fds[2];
    ssize_t got;
    tcp_fill(first, sizeof first, 1);
    tcp_fill(second, sizeof second, 2);
    tcp_world = 2;
    tcp_rank_open(0);
    tcp_rank_open(1);
    tcp_pair(fds);
    assert_int_equal(gf_link_tcp_adopt(tcp_ranks[1].link, 0, 0, fds[1]), GF_OK);
    assert_int_equal(gf_link_tcp_adopt(tcp_ranks[0].link, 1, 0, dup(fds[0])), GF_OK);
    (void)gf_link_tcp.progress(tcp_ranks[0].link); /* its HELLO */
    gf_link_tcp.close(tcp_ranks[0].link);
    tcp_ranks[0].link = NULL;
    tcp_progress(3);
    script_posts(1);
    tcp_progress(3);
    got = recv(fds[0], script, sizeof script, MSG_DONTWAIT);
    assert_true(got > 0);
    script_bytes = (size_t)got;
    (void)close(fds[0]);
    tcp_ranks_close();
}

/* Rank 0 reads the first `bytes` of it from one that calls itself rank 1, and sends what can be
 * sent. */
static int script_play(size_t bytes)
{
    int fds[2];
    tcp_world = 2;
    tcp_rank_open(0);
    tcp_pair(fds);
    assert_int_equal(gf_link_tcp_adopt(tcp_ranks[0].link, 1, 0, fds[0]), GF_OK);
    assert_int_equal(tcp_recv(0, 1, 0, 10, tcp_in[0][0], sizeof first), GF_OK);
    assert_int_equal(tcp_recv(0, 1, 1, 11, tcp_in[0][1], sizeof second), GF_OK);
    assert_int_equal(tcp_recv(0, 1, 2, 12, NULL, 0), GF_OK);
    assert_int_equal(send(fds[1], script, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
    return fds[1];
}

/* Closed behind each byte: what is whole has arrived, all else is GF_ERR_LINK, with both ends and
 * what the kernel saw. */
TEST(a_connection_that_ends_behind_any_byte_is_told)
{
    for (int kind = 0; kind < 2; kind++) {
        tcp_begin();
        tcp_loopback = (kind == 1);
        script_record();
        for (size_t bytes = 0; bytes <= script_bytes;
             bytes += (bytes < 300 || script_bytes - bytes < 200) ? 1 : 97) {
            bool all = (bytes == script_bytes);
            int other = script_play(bytes);
            (void)close(other);
            for (uint32_t i = 0; i < 3; i++) (void)tcp_end(0, i);
            assert_int_equal(tcp_end(0, 2), all ? GF_OK : GF_ERR_LINK);
            if (tcp_answer(0, 0) == GF_OK) assert_memory_equal(tcp_in[0][0], first, sizeof first);
            if (tcp_answer(0, 1) == GF_OK) assert_memory_equal(tcp_in[0][1], second, sizeof second);
            if (!all) {
                const struct gf_fault *fault = &tcp_ranks[0].link->fault;
                assert_int_equal(fault->code, GF_ERR_LINK);
                assert_int_equal(fault->peer, 1);
                assert_non_null(strstr(fault->text, "rank 0"));
                assert_non_null(strstr(fault->text, "rank 1"));
                assert_non_null(strstr(fault->text, "ended: "));
                assert_int_equal(strstr(fault->text, "retransmits, rtt ") != NULL, tcp_loopback);
                assert_int_equal(strstr(fault->text, "127.0.0.1:") != NULL, tcp_loopback);
            }
            (void)gf_link_tcp.progress(tcp_ranks[0].link);
            assert_int_equal(tcp_ranks[0].link->failed, GF_OK); /* one peer less */
            assert_int_equal(tcp_recv(0, 1, 8, 99, NULL, 0), GF_ERR_LINK);
            assert_int_equal(tcp_send(0, 1, 8, 99, NULL, 0), GF_ERR_LINK);
            tcp_ranks_close();
        }
    }
}

/* A second is given to the control channel to say what happened. */
TEST(an_end_is_told_a_second_later)
{
    uint64_t since_ns;
    tcp_begin();
    script_record();
    int other = script_play(100);
    ((struct gf_tcp_link *)tcp_ranks[0].link)->gone_ns = 300000000;
    since_ns = tcp_now_ns();
    (void)close(other);
    assert_int_equal(tcp_recv(0, 1, 3, 13, NULL, 0), GF_OK); /* posted to one that has ended */
    tcp_progress(10);
    assert_int_equal(tcp_recv(0, 1, 4, 14, NULL, 0), GF_OK);
    assert_int_equal(tcp_end(0, 4), GF_ERR_LINK);
    assert_int_equal(tcp_answer(0, 3), GF_ERR_LINK);
    assert_true(tcp_now_ns() - since_ns >= 300000000);
    tcp_ranks_close();
}

/* A connection ends before the receives are posted: what had come whole is had, and what had not is
 * refused at once. */
TEST(of_messages_without_a_receive_only_whole_ones_outlive_their_connection)
{
    static unsigned char small[2000];
    static unsigned char got[2000];
    EACH_SETUP(setup_index)
    {
        tcp_ranks_open(2);
        tcp_progress(10);
        tcp_fill(small, sizeof small, 1);
        tcp_fill(tcp_out[1][0], TCP_MESSAGE_MAX, 2);
        assert_int_equal(tcp_send(1, 0, 0, 7, tcp_out[1][0], TCP_MESSAGE_MAX), GF_OK);
        assert_int_equal(tcp_send(1, 0, 1, 8, small, sizeof small), GF_OK);
        tcp_progress(50);
        gf_link_tcp.close(tcp_ranks[1].link);
        tcp_ranks[1].link = NULL;
        tcp_progress(50);
        assert_int_equal(tcp_recv(0, 1, 0, 7, tcp_in[0][0], TCP_MESSAGE_MAX), GF_ERR_LINK);
        assert_int_equal(tcp_recv(0, 1, 1, 8, got, sizeof got), GF_OK);
        assert_int_equal(tcp_end(0, 1), GF_OK);
        assert_memory_equal(got, small, sizeof got);
        assert_int_equal(tcp_recv(0, 1, 2, 8, got, sizeof got), GF_ERR_LINK);
        tcp_ranks_close();
    }
}

/* Each bit that stands for anything, changed in the first headers and their payloads. */
TEST(a_damaged_header_ends_the_connection_and_names_both_ends)
{
    for (int kind = 0; kind < 2; kind++) {
        size_t heads_bytes = TCP_HEAD_BYTES * 3; /* HELLO, READY, BEGIN */
        tcp_begin();
        tcp_setup.checksum = (kind == 1);
        script_record();
        for (size_t at = 0; at < heads_bytes + sizeof first + TCP_HEAD_BYTES; at++) {
            bool payload = (at >= heads_bytes) && (at < heads_bytes + sizeof first);
            int other;
            script[at] ^= (unsigned char)(1u << (at % 8));
            other = script_play(script_bytes);
            (void)tcp_end(0, 2);
            if (payload && (kind == 0)) {
                assert_int_equal(tcp_answer(0, 0), GF_OK); /* link.checksum is for these */
            } else {
                assert_int_equal(tcp_answer(0, 2), GF_ERR_LINK);
                assert_false(gf_link_tcp.progress(tcp_ranks[0].link));
                assert_int_equal(tcp_ranks[0].link->failed, GF_ERR_LINK);
                assert_non_null(strstr(tcp_ranks[0].link->fault.text, "damaged"));
                assert_non_null(strstr(tcp_ranks[0].link->fault.text, "rank 0"));
                assert_non_null(strstr(tcp_ranks[0].link->fault.text, "rank 1"));
                assert_null(strstr(tcp_ranks[0].log, "damaged")); /* whose the link is says it */
            }
            (void)close(other);
            tcp_ranks_close();
            script[at] ^= (unsigned char)(1u << (at % 8));
        }
    }
}

/* ---- a forked child ---- */

TEST(a_forked_child_keeps_no_connection)
{
    int status = 0;
    pid_t child;
    uint64_t value = 0;
    tcp_begin();
    tcp_loopback = true;
    tcp_setup.streams = 2;
    tcp_ranks_open(2);
    child = fork();
    if (child == 0) {
        const struct gf_tcp_link *tcp = (const struct gf_tcp_link *)tcp_ranks[0].link;
        bool closed = (fcntl(tcp->epoll_fd, F_GETFD) < 0) &&
                      (fcntl(tcp->peers[1].streams[0].fd, F_GETFD) < 0) &&
                      (fcntl(tcp->peers[1].streams[1].fd, F_GETFD) < 0);
        _exit(closed ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(tcp_recv(0, 1, 1, 6, &value, 8), GF_OK);
    assert_int_equal(tcp_send(1, 0, 1, 6, &(uint64_t){3}, 8), GF_OK);
    assert_int_equal(tcp_end(0, 1), GF_OK);
    tcp_ranks_close();
}
