/* What the socket link answers where sizes differ, where a receive is cancelled, and where a post
 * or a connection is refused.
 * suite: slow */
#include "drivers/tcp/link_tcp_state.h"
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/tcp_ranks.h"

#include <unistd.h>

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
    EACH_SETUP(setup_index)
    {
        for (size_t i = 0; i < 2 * LENGTH(size_cases); i++) {
            const struct size_case *c = &size_cases[i / 2];
            char want[100];
            uint64_t value = 0;
            tcp_setup.credit_bytes = (i % 2 == 0) ? 0 : 1024; /* without credit likewise */
            tcp_ranks_open(2);
            if (i % 2 == 1)
                assert_int_equal(tcp_send(1, 0, 9, 90, &value, 8), GF_OK); /* it takes the credit */
            for (int half = 0; half < 2; half++) {
                if ((half == 0) == c->receive_first)
                    assert_int_equal(tcp_recv(0, 1, 0, 5, tcp_in[0][0], c->expected_bytes), GF_OK);
                else
                    assert_int_equal(tcp_send(1, 0, 0, 5, tcp_out[1][0], c->sent_bytes), GF_OK);
                tcp_progress(20);
            }
            assert_int_equal(tcp_end(0, 0), GF_ERR_MISMATCH);
            (void)snprintf(want, sizeof want, "rank 1 sent %zu bytes where rank 0 expects %zu",
                           c->sent_bytes, c->expected_bytes);
            assert_true(strncmp(tcp_ranks[0].link->fault.text, want, strlen(want)) == 0);
            assert_int_equal(tcp_ranks[0].link->fault.peer, 1);
            /* Others are not held up. */
            assert_int_equal(tcp_recv(0, 1, 1, 6, &value, 8), GF_OK);
            assert_int_equal(tcp_send(1, 0, 1, 6, &(uint64_t){3}, 8), GF_OK);
            assert_int_equal(tcp_end(0, 1), GF_OK);
            assert_int_equal(value, 3);
            tcp_ranks_close();
        }
    }
}

/* A receive of each kind at each moment, cancelled; once the peer has heard of that, its tag is as
 * good as another. */
TEST(a_cancelled_receive_ends_and_leaves_nothing_behind)
{
    static const size_t cancelled[] = {8, 70000, TCP_MESSAGE_MAX};
    EACH_SETUP(setup_index)
    {
        for (uint32_t i = 0; i < LENGTH(cancelled); i++) {
            for (int wait = 0; wait < 3; wait++) {
                tcp_ranks_open(2);
                if (wait > 0) tcp_progress(10);
                for (uint64_t round = 0; round < 200; round++) {
                    assert_int_equal(tcp_recv(0, 1, 0, 5, tcp_in[0][0], cancelled[i]), GF_OK);
                    if (wait > 1) tcp_progress(4);
                    gf_link_tcp.cancel(tcp_ranks[0].link, &tcp_ranks[0].reqs[0]);
                    gf_link_tcp.cancel(tcp_ranks[0].link, &tcp_ranks[0].reqs[0]);
                    assert_int_equal(tcp_end(0, 0), GF_ERR_ABORTED);
                }
                assert_int_equal(tcp_ranks[0].link->fault.code, GF_OK);
                tcp_progress(200);
                tcp_fill(tcp_out[1][0], cancelled[i], i);
                assert_int_equal(tcp_send(1, 0, 0, 5, tcp_out[1][0], cancelled[i]), GF_OK);
                assert_int_equal(tcp_recv(0, 1, 0, 5, tcp_in[0][0], cancelled[i]), GF_OK);
                assert_int_equal(tcp_end(0, 0), GF_OK);
                assert_true(tcp_filled(tcp_in[0][0], cancelled[i], i));
                gf_link_tcp.cancel(tcp_ranks[0].link, &tcp_ranks[0].reqs[0]);
                assert_int_equal(tcp_end(0, 0), GF_OK);
                assert_int_equal(tcp_end(1, 0), GF_OK);
                tcp_ranks_close();
            }
        }
    }
}

/* Told, cancelled, and the message had left: its bytes are dropped, and what follows arrives. */
TEST(a_message_that_met_no_receive_any_more_is_dropped)
{
    EACH_SETUP(setup_index)
    {
        uint64_t value = 0;
        tcp_ranks_open(2);
        tcp_progress(10);
        assert_int_equal(tcp_recv(0, 1, 0, 5, tcp_in[0][0], TCP_MESSAGE_MAX), GF_OK);
        (void)gf_link_tcp.progress(tcp_ranks[0].link);
        (void)gf_link_tcp.progress(tcp_ranks[1].link);
        gf_link_tcp.cancel(tcp_ranks[0].link, &tcp_ranks[0].reqs[0]);
        assert_int_equal(tcp_answer(0, 0), GF_ERR_ABORTED);
        assert_int_equal(tcp_send(1, 0, 0, 5, tcp_out[1][0], TCP_MESSAGE_MAX),
                         GF_OK); /* it knows of the receive alone */
        assert_int_equal(tcp_end(1, 0), GF_OK);
        assert_int_equal(tcp_recv(0, 1, 1, 6, &value, 8), GF_OK);
        assert_int_equal(tcp_send(1, 0, 1, 6, &(uint64_t){3}, 8), GF_OK);
        assert_int_equal(tcp_end(0, 1), GF_OK);
        assert_int_equal(value, 3);
        tcp_ranks_close();
    }
}

TEST(posting_keeps_its_rules)
{
    struct gf_fault *fault;
    int fds[2];
    tcp_begin();
    tcp_world = 3;
    for (uint32_t rank = 0; rank < 3; rank++) tcp_rank_open(rank);
    fault = &tcp_ranks[0].link->fault;
    assert_int_equal(tcp_send(0, 1, 0, 0, NULL, 0), GF_ERR_STATE);
    assert_non_null(strstr(fault->text, "not connected"));
    *fault = (struct gf_fault){.code = GF_OK};
    tcp_ranks_connect();
    tcp_pair(fds);
    assert_int_equal(gf_link_tcp_adopt(tcp_ranks[0].link, 1, 0, fds[0]),
                     GF_ERR_PARAM); /* there already */
    *fault = (struct gf_fault){.code = GF_OK};
    assert_int_equal(gf_link_tcp_adopt(tcp_ranks[0].link, 1, 1, fds[0]), GF_ERR_PARAM);
    *fault = (struct gf_fault){.code = GF_OK};
    assert_int_equal(gf_link_tcp_adopt(tcp_ranks[0].link, 0, 0, fds[0]), GF_ERR_PARAM);
    *fault = (struct gf_fault){.code = GF_OK};
    (void)close(fds[0]);
    (void)close(fds[1]);
    assert_int_equal(gf_link_tcp_adopt(tcp_ranks[0].link, 1, 0, fds[0]), GF_ERR_PARAM);
    assert_int_equal(gf_link_tcp.connect(tcp_ranks[0].link, 0, NULL, 0), GF_OK);
    tcp_ranks_close();
}
