/* Who is no rank of the job, or does not behave like one, does the control channel no harm. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/tcp_keys.h"
#include "firmware-tests/support/tcp_middle.h"

#include <errno.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* Time alone ends no connection; others that need its slot do (test_rendezvous_auth). */
TEST(a_silent_stranger_keeps_its_slot)
{
    unsigned char nonce[NONCE_FRAME];
    char byte;
    end_join(0, 0, 2);
    int fd = stranger_at(star.address);
    struct pollfd wake = {.fd = gf_rendezvous_tcp.wake_fd(star.ends[0]), .events = POLLIN};
    assert_int_equal(poll(&wake, 1, 10000), 1);
    assert_int_equal(hear(fd, nonce, sizeof nonce), sizeof nonce);
    now_ns += 3600 * SECOND;
    for (int i = 0; i < 10; i++) turn();
    assert_true((recv(fd, &byte, 1, MSG_DONTWAIT) < 0) && (errno == EAGAIN));
    (void)close(fd);
}

/* Without a descriptor for whoever asks to be let in, a rank that sleeps is not woken by him over and
 * over; once there is one he is let in. */
TEST(a_stranger_without_a_descriptor_wakes_nobody)
{
    unsigned char nonce[NONCE_FRAME];
    struct rlimit had;
    end_join(0, 0, 2);
    struct pollfd wake = {.fd = gf_rendezvous_tcp.wake_fd(star.ends[0]), .events = POLLIN};
    int fd = stranger_at(star.address);
    int next = dup(fd);
    (void)close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &had), 0);
    struct rlimit none_left = {.rlim_cur = (rlim_t)next, .rlim_max = had.rlim_max};
    assert_int_equal(poll(&wake, 1, 10000), 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none_left), 0);
    turn();
    int woken = poll(&wake, 1, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &had), 0);
    assert_int_equal(woken, 0);
    now_ns += SECOND;
    turn();
    assert_int_equal(hear(fd, nonce, sizeof nonce), sizeof nonce);
    (void)close(fd);
}

/* What the coordinator there answers to a hello; "": it hangs up. */
static void answer_get(const char *address, const unsigned char *hello, char *text_out)
{
    int fd = stranger_at(address);
    say(fd, hello, HELLO_FRAME);
    hear_refusal(fd, true, text_out);
    (void)close(fd);
}

static const struct hello_case {
    const char *name;
    uint32_t at; /* byte of the hello that is replaced */
    unsigned char value;
    const char *text; /* of the refusal; NULL: hung up on */
} hellos[] = {
    {"magic", 0, 'X', NULL},
    {"protocol_version", 4, 9, "protocol version 3 at rank 0, 9 at rank 1"},
    {"header_size", 6, 48, NULL},
    {"kind", 8, 7, NULL},
    {"payload_size", 12, 15, NULL},
    {"library_version", 34, 1, "library version 0.10 at rank 0, 1.10 at rank 1"},
    {"rank_zero_is_the_coordinator", 36, 0, "rank 0: expected 1 to 2"},
    {"rank_is_the_world", 36, 3, "rank 3: expected 1 to 2"},
    {"rank_is_huge", 39, 0xff, "expected 1 to 2"},
    {"world", 40, 2, "world 3 at rank 0, 2 at rank 1"},
};

TEST(each_field_of_a_hello_is_checked)
{
    end_join(0, 0, 3);
    for (size_t i = 0; i < LENGTH(hellos); i++) {
        unsigned char hello[HELLO_FRAME];
        char text[GF_FRAME_REASON_BYTES];
        hello_make(hello, 1, 3, 0);
        hello[hellos[i].at] = hellos[i].value;
        answer_get(star.address, hello, text);
        const char *expect = (hellos[i].text != NULL) ? hellos[i].text : "";
        if (strstr(text, expect) == NULL) print_error("%s: '%s'\n", hellos[i].name, text);
        assert_non_null(strstr(text, expect));
        if (hellos[i].text == NULL) assert_string_equal(text, "");
    }
    assert_int_equal(seen[0].connected, 0);
    end_join(1, 1, 3);
    UNTIL(seen[0].connected == 2);
}

/* Of another protocol too: who was of some job before harms none that begins. */
TEST(a_rank_of_another_protocol_that_comes_back_ends_no_join)
{
    for (uint32_t rejoins = 0; rejoins < 2; rejoins++) {
        unsigned char hello[HELLO_FRAME];
        char text[GF_FRAME_REASON_BYTES];
        end_join(0, 0, 3);
        hello_make(hello, 1, 3, 0);
        hello[4] = 9;
        if (rejoins) hello[44] |= GF_HELLO_REJOINS;
        answer_get(star.address, hello, text);
        assert_non_null(strstr(text, "protocol version"));
        assert_int_equal(seen[0].refused, 1 - rejoins);
        tcp_world_close(&star);
        world_clear_open();
    }
}

TEST(a_member_that_sends_garbage_is_cut_off)
{
    for (uint32_t at = 0; at < GF_FRAME_HEADER_BYTES - 4; at++) {
        if ((at >= 8) && (at < 14)) continue; /* kind, and sizes that are valid */
        unsigned char hello[HELLO_FRAME];
        unsigned char frame[GF_FRAME_HEADER_BYTES];
        struct gf_put put = {frame, sizeof frame};
        world_clear_open();
        end_join(0, 0, 2);
        hello_make(hello, 1, 2, 0);
        int fd = stranger_at(star.address);
        say(fd, hello, sizeof hello);
        UNTIL(seen[0].connected == 2);
        gf_frame_header_put(&put, 1, 0, 4711, 1);
        frame[at] ^= 0x80;
        say(fd, frame, sizeof frame);
        UNTIL(seen[0].ended == 2);
        assert_non_null(strstr(seen[0].text, "sent a malformed frame"));
        assert_int_equal(seen[0].frames, 0);
        (void)close(fd);
        tcp_world_close(&star);
    }
}

/* Something else listens at the address: it costs a try, and neither the rank nor the deadline. */
TEST(a_foreign_server_ends_a_try_alone)
{
    static const char greeting[] = "HTTP/1.1 400 Bad Request\r\nServer: something else\r\n\r\n";
    static struct middle server;
    middle_open(&server, star.address);
    (void)snprintf(star.address, sizeof star.address, "%s", server.address);
    end_join(1, 1, 2);
    for (int i = 0; i < 5; i++) {
        int fd = -1;
        UNTIL((fd = accept4(server.listen_fd, NULL, NULL, SOCK_NONBLOCK)) >= 0);
        if (i % 2 == 1) say(fd, greeting, sizeof greeting - 1); /* else hung up on at once */
        if (i % 2 == 1) assert_int_equal(hear(fd, (unsigned char[1]){0}, 1), 0);
        (void)close(fd);
        assert_int_equal(seen[1].status, GF_AGAIN);
    }
    middle_close(&server);
    end_join(0, 0, 2);
    uint64_t since_ns = now_ns;
    turns_connect(2);
    assert_true(now_ns - since_ns < SECOND / 2);
    assert_int_equal(seen[1].status, GF_AGAIN);
}

/* What took the connection and says nothing keeps it; the rank comes in beside it. */
TEST(a_silent_server_costs_no_deadline)
{
    static struct middle server;
    int taken = -1;
    middle_open(&server, star.address);
    (void)snprintf(star.address, sizeof star.address, "%s", server.address);
    end_join(1, 1, 2);
    UNTIL((taken = accept4(server.listen_fd, NULL, NULL, SOCK_NONBLOCK)) >= 0);
    middle_close(&server);
    for (int i = 0; i < 20; i++) turn();
    end_join(0, 0, 2);
    uint64_t since_ns = now_ns;
    turns_connect(2);
    assert_true(now_ns - since_ns < SECOND);
    (void)close(taken);
}

/* The same in a view change: the port of a coordinator that died. What it held open is no rank. It is
 * given up after a second without a word, and at once where it says something else; that it refuses
 * the next try is the proof that the process has ended. */
TEST(a_silent_server_is_no_coordinator_of_a_view)
{
    static const struct {
        bool closes, talks;
        uint64_t least_ns, most_ns;
        const char *text;
    } rows[] = {
        {true, false, 0, 3 * SECOND / 10, "connection refused"},
        {false, true, 0, 3 * SECOND / 10, "is not a rank"},
        {false, false, 9 * SECOND / 10, 11 * SECOND / 10, "says nothing"},
    };
    static struct middle server;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        int taken = -1;
        world_clear_open();
        turns_open(3);
        tcp_world_end_close(&star, 0);
        UNTIL(seen[2].ended == 1);
        tcp_world_end_close(&star, 1);
        middle_open(&server, star.address);
        assert_int_equal(gf_rendezvous_tcp.reform(star.ends[2], now_ns, 1, server.address),
                         GF_AGAIN);
        UNTIL((taken = accept4(server.listen_fd, NULL, NULL, SOCK_NONBLOCK)) >= 0);
        uint64_t since_ns = now_ns;
        if (rows[i].talks)
            say(taken, "sixty-four bytes of something else, from a server that greets us ..", 64);
        if (rows[i].closes) middle_close(&server);
        UNTIL(seen[2].ended == 3);
        assert_true((now_ns - since_ns >= rows[i].least_ns) &&
                    (now_ns - since_ns < rows[i].most_ns));
        assert_non_null(strstr(seen[2].text, rows[i].text));
        if (!rows[i].closes) middle_close(&server);
        (void)close(taken);
        tcp_world_close(&star);
    }
}

/* Silence of a coordinator proves no death. One that does not poll is given up after a second, each
 * time; once it polls it is met, and what was tried before is no rank. */
TEST(a_coordinator_that_does_not_poll_is_met_when_it_does)
{
    char at[GF_CONTROL_ADDRESS_BYTES];
    turns_open(3);
    gf_rendezvous_tcp.address(star.ends[1], at);
    tcp_world_end_close(&star, 0);
    UNTIL((seen[1].ended == 1) && (seen[2].ended == 1));
    struct gf_rendezvous *sleeps = star.ends[1];
    star.ends[1] = NULL;
    for (int tries = 0; tries < 5; tries++) {
        seen[2].ended = 0;
        assert_int_equal(gf_rendezvous_tcp.reform(star.ends[2], now_ns, 1, at), GF_AGAIN);
        UNTIL(seen[2].ended == 2);
        assert_non_null(strstr(seen[2].text, "says nothing"));
    }
    star.ends[1] = sleeps;
    seen[2].connected = seen[2].ended = 0;
    seen[1].connected = seen[1].ended = 0;
    assert_int_equal(gf_rendezvous_tcp.reform(star.ends[2], now_ns, 1, at), GF_AGAIN);
    for (int i = 0; i < 20; i++) turn();
    now_ns += 20 * SECOND; /* it polls, so it is waited for until it coordinates */
    for (int i = 0; i < 20; i++) turn();
    assert_int_equal(seen[2].ended, 0);
    assert_int_equal(gf_rendezvous_tcp.reform(star.ends[1], now_ns, 1, at), GF_OK);
    UNTIL((seen[1].connected == 4) && (seen[2].connected == 2));
    for (int i = 0; i < 200; i++) turn();
    assert_int_equal(seen[1].ended, 0);
    assert_int_equal(seen[2].ended, 0);
}

/* It is not rank 0 any more, and the numbers are those of members. */
TEST(a_later_coordinator_refuses_in_its_own_name)
{
    static const struct {
        uint32_t id, world;
        const char *text;
    } rows[] = {
        {0, 4, "world 3 at member 1, 4 at member 0"},
        {1, 3, "member 1: expected 0 to 2, and not 1, which is here"},
        {2, 3, "member 2 is here already: was it started twice?"},
    };
    char at[GF_CONTROL_ADDRESS_BYTES];
    char text[GF_FRAME_REASON_BYTES];
    unsigned char hello[HELLO_FRAME];
    turns_open(3);
    gf_rendezvous_tcp.address(star.ends[1], at);
    tcp_world_end_close(&star, 0);
    UNTIL((seen[1].ended == 1) && (seen[2].ended == 1));
    seen[1].connected = 0;
    assert_int_equal(gf_rendezvous_tcp.reform(star.ends[1], now_ns, 1, at), GF_OK);
    assert_int_equal(gf_rendezvous_tcp.reform(star.ends[2], now_ns, 1, at), GF_AGAIN);
    UNTIL(seen[1].connected == 4);
    for (size_t i = 0; i < LENGTH(rows); i++) {
        hello_make(hello, rows[i].id, rows[i].world, 0);
        answer_get(at, hello, text);
        if (strstr(text, rows[i].text) == NULL) print_error("%s\n", text);
        assert_non_null(strstr(text, rows[i].text));
    }
}

TEST_EACH(world_clear_open, world_end)
