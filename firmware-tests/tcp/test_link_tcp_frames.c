/* Valid headers with values that no rank sends: each ends the connection.
 * suite: slow */
#include "drivers/tcp/link_tcp_state.h"
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/tcp_ranks.h"

#include <sys/socket.h>
#include <unistd.h>

#define LARGE_BYTES (2 * TCP_FRAME_BYTES_MAX) /* with any credit */

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
     {.kind = TCP_FRAME_HELLO, .tag = 1, .number = 2, .offset = TCP_REQS},
     true},
    {"hello_of_another_version",
     "version 9",
     {.kind = TCP_FRAME_HELLO, .tag = 9, .number = 1, .offset = TCP_REQS},
     true},
    {"hello_with_checksums",
     "checksum = true",
     {.kind = TCP_FRAME_HELLO, .tag = 1, .number = 1, .offset = TCP_REQS, .returned = 1},
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
            .kind = TCP_FRAME_HELLO, .tag = 1, .size = 8, .offset = TCP_REQS, .number = 1};
        unsigned char bytes[2 * TCP_HEAD_BYTES + 64] = {0};
        int fds[2];
        tcp_begin();
        tcp_setup.credit_bytes = 8192;
        tcp_world = 3;
        tcp_rank_open(0);
        tcp_pair(fds);
        assert_int_equal(gf_link_tcp_adopt(tcp_ranks[0].link, 1, 0, fds[0]), GF_OK);
        assert_int_equal(tcp_recv(0, 1, 0, 5, tcp_in[0][0], LARGE_BYTES), GF_OK);
        tcp_progress(2);
        gf_tcp_head_put(&hello, bytes);
        gf_tcp_head_put(&c->head, bytes + (c->before_hello ? 0 : TCP_HEAD_BYTES));
        assert_true(send(fds[1], bytes, sizeof bytes, MSG_NOSIGNAL) == (ssize_t)sizeof bytes);
        if (tcp_end(0, 0) != GF_ERR_LINK) fail_msg("%s was taken", c->name);
        if (strstr(tcp_ranks[0].link->fault.text, c->says) == NULL)
            fail_msg("%s: %s", c->name, tcp_ranks[0].link->fault.text);
        (void)close(fds[1]);
        tcp_ranks_close();
    }
}

/* A message that has begun on one stream does not end, for another size, on the other: its memory
 * is still written. */
TEST(a_message_that_has_begun_keeps_its_size)
{
    struct gf_tcp_head head = {
        .kind = TCP_FRAME_HELLO, .tag = 1, .size = 256, .offset = TCP_REQS, .number = 1};
    unsigned char bytes[TCP_HEAD_BYTES];
    int fds[2][2];
    tcp_begin();
    tcp_setup.streams = 2;
    tcp_world = 2;
    tcp_rank_open(0);
    for (uint32_t s = 0; s < 2; s++) {
        tcp_pair(fds[s]);
        assert_int_equal(gf_link_tcp_adopt(tcp_ranks[0].link, 1, s, fds[s][0]), GF_OK);
    }
    assert_int_equal(tcp_recv(0, 1, 0, 5, tcp_in[0][0], LARGE_BYTES), GF_OK);
    gf_tcp_head_put(&head, bytes);
    assert_true(send(fds[0][1], bytes, sizeof bytes, MSG_NOSIGNAL) == (ssize_t)sizeof bytes);
    tcp_progress(3);
    head = (struct gf_tcp_head){
        .kind = TCP_FRAME_MORE, .tag = 5, .size = LARGE_BYTES, .bytes = 1000, .number = 1};
    gf_tcp_head_put(&head, bytes);
    assert_true(send(fds[1][1], bytes, sizeof bytes, MSG_NOSIGNAL) == (ssize_t)sizeof bytes);
    tcp_progress(5);
    head.size = 5000;
    gf_tcp_head_put(&head, bytes);
    assert_true(send(fds[0][1], bytes, sizeof bytes, MSG_NOSIGNAL) == (ssize_t)sizeof bytes);
    assert_int_equal(tcp_end(0, 0), GF_ERR_LINK);
    for (uint32_t s = 0; s < 2; s++) (void)close(fds[s][1]);
    tcp_ranks_close();
}

/* Header and payload of a message of this size are read by one call. Where another frame comes in
 * its place, and is a bad one, nothing of what came behind it is taken. */
TEST(a_bad_header_in_place_of_a_whole_message_ends_the_connection)
{
    for (uint32_t ahead = 0; ahead < 2; ahead++) { /* hello apart, and by the same call */
        struct gf_tcp_head hello = {
            .kind = TCP_FRAME_HELLO, .tag = 1, .size = 256, .offset = TCP_REQS, .number = 1};
        struct gf_tcp_head bad = {.kind = TCP_FRAME_READY, .number = 1, .bytes = 1};
        unsigned char bytes[2 * TCP_HEAD_BYTES + 10000] = {0};
        int fds[2];
        tcp_begin();
        tcp_world = 3;
        tcp_rank_open(0);
        tcp_pair(fds);
        assert_int_equal(gf_link_tcp_adopt(tcp_ranks[0].link, 1, 0, fds[0]), GF_OK);
        assert_int_equal(tcp_recv(0, 1, 0, 5, tcp_in[0][0], 20000), GF_OK);
        gf_tcp_head_put(&hello, bytes);
        gf_tcp_head_put(&bad, bytes + TCP_HEAD_BYTES);
        size_t first = (ahead == 0) ? TCP_HEAD_BYTES : sizeof bytes;
        assert_true(send(fds[1], bytes, first, MSG_NOSIGNAL) == (ssize_t)first);
        tcp_progress(2);
        size_t rest = sizeof bytes - first;
        if (rest > 0) assert_true(send(fds[1], bytes + first, rest, MSG_NOSIGNAL) == (ssize_t)rest);
        assert_int_equal(tcp_end(0, 0), GF_ERR_LINK);
        assert_non_null(strstr(tcp_ranks[0].link->fault.text, "none may have here"));
        (void)close(fds[1]);
        tcp_ranks_close();
    }
}

/* More WANTs, and more READYs, than the peer has requests; each ends the connection. */
TEST(a_peer_cannot_announce_more_than_its_requests)
{
    for (int kind = 0; kind < 2; kind++) {
        struct gf_tcp_head head = {
            .kind = TCP_FRAME_HELLO, .tag = 1, .size = 8, .offset = TCP_REQS, .number = 1};
        unsigned char bytes[TCP_HEAD_BYTES];
        int fds[2];
        gf_status status = GF_OK;
        uint32_t sent = 0;
        tcp_begin();
        tcp_setup.credit_bytes = 8192;
        tcp_world = 2;
        tcp_rank_open(0);
        tcp_pair(fds);
        assert_int_equal(gf_link_tcp_adopt(tcp_ranks[0].link, 1, 0, fds[0]), GF_OK);
        for (; (status >= 0) && (sent < 1000); sent++) {
            gf_tcp_head_put(&head, bytes);
            assert_true(send(fds[1], bytes, sizeof bytes, MSG_NOSIGNAL) == (ssize_t)sizeof bytes);
            for (int t = 0; (t < 3) && (status >= 0); t++) {
                (void)gf_link_tcp.progress(tcp_ranks[0].link);
                status = tcp_ranks[0].link->failed;
            }
            head = (struct gf_tcp_head){.kind = (kind == 0) ? TCP_FRAME_WANT : TCP_FRAME_READY,
                                        .tag = sent,
                                        .size = 9,
                                        .number = sent + 1};
        }
        assert_int_equal(status, GF_ERR_LINK);
        /* HELLO, those that fit, and one more; blocks bring entries of their own, which a WANT
         * takes as well. */
        assert_int_equal(sent, 1 + TCP_REQS + ((kind == 0) ? 8 : 0) + 1);
        (void)close(fds[1]);
        tcp_ranks_close();
    }
}
