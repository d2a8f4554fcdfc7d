/* Who is no rank of the job, or does not behave like one, does the control channel no harm.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "drivers/tcp/socket.h"
#include "firmware-tests/support/channel_hub.h"
#include "firmware-tests/support/tcp_keys.h"
#include "firmware-tests/support/tcp_middle.h"

#include <errno.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static void coordinate(void)
{
    struct gf_channel_setup setup = hub_setup(true);
    hub_open(0, &setup);
}

/* Time alone ends no connection; others that need its slot do (test_channel_auth). */
TEST(a_silent_stranger_keeps_its_slot)
{
    unsigned char nonce[NONCE_FRAME];
    char byte;
    coordinate();
    int fd = stranger_at(hub.address);
    struct pollfd wake = {.fd = gf_channel_tcp.wake_fd(hub.ends[0]), .events = POLLIN};
    assert_int_equal(poll(&wake, 1, 10000), 1);
    assert_int_equal(hear(fd, nonce, sizeof nonce), sizeof nonce);
    hub_now_ns += 3600 * HUB_SECOND;
    for (int i = 0; i < 10; i++) hub_turn();
    assert_true((recv(fd, &byte, 1, MSG_DONTWAIT) < 0) && (errno == EAGAIN));
    (void)close(fd);
}

/* Without a descriptor for whoever asks to be let in, a rank that sleeps is not woken by him over
 * and over; once there is one he is let in. */
TEST(a_stranger_without_a_descriptor_wakes_nobody)
{
    unsigned char nonce[NONCE_FRAME];
    struct rlimit had;
    coordinate();
    struct pollfd wake = {.fd = gf_channel_tcp.wake_fd(hub.ends[0]), .events = POLLIN};
    int fd = stranger_at(hub.address);
    int next = dup(fd);
    (void)close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &had), 0);
    struct rlimit none_left = {.rlim_cur = (rlim_t)next, .rlim_max = had.rlim_max};
    assert_int_equal(poll(&wake, 1, 10000), 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none_left), 0);
    hub_turn();
    int woken = poll(&wake, 1, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &had), 0);
    assert_int_equal(woken, 0);
    hub_now_ns += HUB_SECOND;
    hub_turn();
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
    {"protocol_version", 4, 9, "protocol version 5 at the coordinator, 9 at this process"},
    {"header_size", 6, 48, NULL},
    {"kind", 8, 7, NULL},
    {"payload_size", 12, 15, NULL},
    {"library_version", 34, 1, "library version 0.10 at the coordinator, 1.10 at this process"},
    {"job", 16, 1, "job id 4711 at the coordinator, 4609 at this process: another job's address"},
};

TEST(each_field_of_a_hello_is_checked)
{
    coordinate();
    for (size_t i = 0; i < LENGTH(hellos); i++) {
        unsigned char hello[HELLO_FRAME];
        char text[GF_FRAME_REASON_BYTES];
        hello_make(hello, 0);
        hello[hellos[i].at] = hellos[i].value;
        answer_get(hub.address, hello, text);
        const char *expect = (hellos[i].text != NULL) ? hellos[i].text : "";
        if (strstr(text, expect) == NULL) print_error("%s: '%s'\n", hellos[i].name, text);
        assert_non_null(strstr(text, expect));
        if (hellos[i].text == NULL) assert_string_equal(text, "");
    }
    assert_int_equal(heard[0].connected, 0);
    hub_member(1);
    HUB_UNTIL(heard[0].connected == 1);
}

TEST(a_member_that_sends_garbage_is_cut_off)
{
    for (uint32_t at = 0; at < GF_FRAME_HEADER_BYTES - 8; at++) {
        if ((at >= 8) && (at < 14)) continue; /* kind, and sizes that are valid */
        unsigned char hello[HELLO_FRAME];
        unsigned char frame[GF_FRAME_HEADER_BYTES];
        struct gf_put put = {frame, sizeof frame};
        hub_clear_open();
        coordinate();
        hello_make(hello, 0);
        int fd = stranger_at(hub.address);
        say(fd, hello, sizeof hello);
        HUB_UNTIL(heard[0].connected == 1);
        gf_frame_header_put(&put, 1, 0, 4711, GF_RANK_NONE);
        frame[at] ^= 0x80;
        say(fd, frame, sizeof frame);
        HUB_UNTIL(heard[0].ended == 1);
        assert_int_equal(heard[0].end, GF_CHANNEL_BROKE); /* not its process */
        assert_non_null(strstr(heard[0].text, "sent a malformed frame"));
        assert_int_equal(heard[0].frames, 0);
        (void)close(fd);
        hub_end();
    }
}

/* Something else listens at the address: it costs a try, and neither the rank nor the deadline. */
TEST(a_foreign_server_ends_a_try_alone)
{
    static const char greeting[] = "HTTP/1.1 400 Bad Request\r\nServer: something else\r\n\r\n";
    static struct middle server;
    middle_open(&server, hub.address);
    (void)snprintf(hub.address, sizeof hub.address, "%s", server.address);
    hub_member(1);
    for (int i = 0; i < 5; i++) {
        int fd = -1;
        HUB_UNTIL((fd = accept4(server.listen_fd, NULL, NULL, SOCK_NONBLOCK)) >= 0);
        if (i % 2 == 1) say(fd, greeting, sizeof greeting - 1); /* else hung up on at once */
        if (i % 2 == 1) assert_int_equal(hear(fd, (unsigned char[1]){0}, 1), 0);
        (void)close(fd);
        assert_int_equal(heard[1].status, GF_OK);
    }
    middle_close(&server);
    coordinate();
    uint64_t since_ns = hub_now_ns;
    HUB_UNTIL(heard[1].up == 1);
    assert_true(hub_now_ns - since_ns < HUB_SECOND / 2);
    assert_int_equal(heard[1].status, GF_OK);
}

/* What took the connection and says nothing keeps it; the rank comes in beside it. */
TEST(a_silent_server_costs_no_deadline)
{
    static struct middle server;
    int taken = -1;
    middle_open(&server, hub.address);
    (void)snprintf(hub.address, sizeof hub.address, "%s", server.address);
    hub_member(1);
    HUB_UNTIL((taken = accept4(server.listen_fd, NULL, NULL, SOCK_NONBLOCK)) >= 0);
    middle_close(&server);
    for (int i = 0; i < 20; i++) hub_turn();
    coordinate();
    uint64_t since_ns = hub_now_ns;
    HUB_UNTIL(heard[1].up == 1);
    assert_true(hub_now_ns - since_ns < HUB_SECOND);
    (void)close(taken);
}

/* The same once the coordinator was in, and with a nonce: it was killed, and whoever has its port
 * says the first word of the handshake and then nothing. He costs no more than one who is
 * silent. */
TEST(a_stranger_who_says_a_nonce_and_nothing_more_delays_nobody)
{
    for (int nonce = 0; nonce < 2; nonce++) {
        static struct middle server;
        unsigned char word[NONCE_FRAME] = {0};
        int taken[64];
        uint32_t count = 0;
        hub_clear_open();
        middle_open(&server, "127.0.0.1:1");
        (void)snprintf(hub.address, sizeof hub.address, "%s", server.address);
        middle_close(&server);
        hub_join(2);
        hub_close(0);
        HUB_UNTIL((heard[1].ended == 1) && (heard[2].ended == 1));
        struct gf_addr at;
        struct gf_fault fault = {0};
        assert_true(gf_addr_parse(hub.address, true, &at));
        int listener = gf_socket_listen(&at, hub.address, &fault);
        assert_true(listener >= 0);
        gf_frame_header_put(&(struct gf_put){word, sizeof word}, GF_FRAME_NONCE,
                            GF_FRAME_NONCE_BYTES, 4711, GF_RANK_NONE);
        uint64_t since_ns = hub_now_ns;
        while (hub_now_ns - since_ns < 8 * HUB_SECOND) {
            hub_turn();
            int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
            if (fd < 0) continue;
            assert_true(count < LENGTH(taken)); /* nor is he asked over and over */
            taken[count++] = fd;
            if (nonce) say(fd, word, sizeof word);
        }
        assert_int_equal(heard[1].connected, 1);
        assert_int_equal(heard[1].end, GF_CHANNEL_BROKE); /* nothing was proven */
        (void)close(listener);                            /* he keeps what he has */
        coordinate();
        since_ns = hub_now_ns;
        HUB_UNTIL((heard[1].up == 1) && (heard[2].up == 1));
        assert_true(hub_now_ns - since_ns < 2 * HUB_SECOND);
        while (count > 0) (void)close(taken[--count]);
        hub_end();
    }
}

/* A coordinator that was stopped: the connections that its members made meanwhile do them no
 * harm. */
TEST(a_coordinator_that_does_not_poll_is_met_when_it_does)
{
    coordinate();
    struct gf_channel *sleeps = hub.ends[0];
    hub.ends[0] = NULL;
    for (uint32_t slot = 1; slot < 4; slot++) hub_member(slot);
    for (int i = 0; i < 20; i++) {
        hub_now_ns += HUB_SECOND;
        hub_turn();
    }
    for (uint32_t slot = 1; slot < 4; slot++) assert_int_equal(heard[slot].connected, 0);
    hub.ends[0] = sleeps;
    uint64_t since_ns = hub_now_ns;
    HUB_UNTIL((heard[1].up == 1) && (heard[2].up == 1) && (heard[3].up == 1));
    assert_true(hub_now_ns - since_ns < 2 * HUB_SECOND);
    for (int i = 0; i < 20000; i++) hub_turn();
    for (uint32_t slot = 1; slot < 4; slot++) {
        assert_int_equal(heard[slot].up, 1);
        assert_int_equal(gf_channel_tcp.send(hub.ends[slot], 0, 1, "x", 1), GF_OK);
    }
    HUB_UNTIL(heard[0].frames == 3);
}

/* ---- floods of first frames ---- */

/* Who has no key gets one refusal, and no place among those who are waited for. */
TEST(a_hello_without_its_proof_is_rejected_at_once)
{
    unsigned char said[SAID];
    unsigned char reply[REFUSAL_FRAME];
    unsigned char more;
    hub.key_file = key_a;
    coordinate();
    for (uint32_t i = 0; i <= HELLO_FRAME; i++) { /* one bit of each byte, at last none */
        int fd = stranger_meets(hub.address, key_a, said);
        if (i < HELLO_FRAME) said[NONCE_FRAME + i] ^= 0x10;
        say(fd, said + NONCE_FRAME, HELLO_FRAME);
        size_t bytes = hear(fd, reply, (i < HELLO_FRAME) ? sizeof reply : ANSWER_FRAME);
        if (i == HELLO_FRAME) {
            assert_int_equal(bytes, ANSWER_FRAME);
            assert_int_equal(gf_frame_header_get(reply).kind, GF_FRAME_ANSWER);
        } else {
            assert_true((bytes == 0) || ((bytes == sizeof reply) &&
                                         (gf_frame_header_get(reply).kind == GF_FRAME_REFUSAL)));
            assert_int_equal(hear(fd, &more, 1), 0);
            assert_int_equal(heard[0].connected, 0);
        }
        (void)close(fd);
    }
}

/* One hello that was heard on the wire, said again on 2,500 connections. */
TEST(a_replayed_hello_is_noise)
{
    static int fds[250];
    unsigned char said[SAID];
    hub.key_file = key_a;
    coordinate();
    (void)close(stranger_meets(hub.address, key_a, said));
    memset(fds, -1, sizeof fds);
    for (uint32_t i = 0; i < 2500; i++) {
        int *fd = &fds[i % LENGTH(fds)];
        if (*fd >= 0) (void)close(*fd);
        *fd = stranger_at(hub.address);
        say(*fd, said + NONCE_FRAME, HELLO_FRAME);
        if (i % 4 == 0) hub_turn();
        if (i == 1000) hub_member(1);
        if (i == 2000) hub_member(2);
    }
    uint64_t since_ns = hub_now_ns;
    HUB_UNTIL((heard[0].connected == 2) && (heard[1].connected == 1) && (heard[2].connected == 1));
    assert_true(hub_now_ns - since_ns < HUB_SECOND);
    assert_int_equal(heard[0].ended, 0);
    for (size_t i = 0; i < LENGTH(fds); i++) (void)close(fds[i]);
}

/* 500 of them lie in front of two ranks. */
TEST(a_flood_of_hellos_costs_a_bounded_share_of_each_poll)
{
    static int fds[500];
    hub.key_file = key_a;
    coordinate();
    for (int i = 0; i < 500; i++) fds[i] = stranger_greets(hub.address);
    for (uint32_t slot = 1; slot < 3; slot++) hub_member(slot);
    uint32_t turns = 0;
    while (heard[0].connected != 2) {
        hub_turn();
        assert_true(++turns < 200);
    }
    assert_true(turns > 500 / 16); /* 16 a poll, no more */
    for (int i = 0; i < 500; i++) (void)close(fds[i]);
}

/* Reasons are for ranks that were started wrongly: 16 in 100 ms. The others hear the connection's
 * end. */
TEST(in_a_flood_most_hear_no_reason)
{
    char text[GF_FRAME_REASON_BYTES];
    hub.key_file = key_a;
    coordinate();
    for (uint32_t round = 0; round < 2; round++) {
        uint32_t told = 0;
        for (uint32_t i = 0; i < 40; i++) {
            int fd = stranger_greets(hub.address);
            hear_refusal(fd, true, text);
            told += (text[0] != 0);
            (void)close(fd);
        }
        assert_int_equal(told, 16);
        hub_now_ns += 100 * HUB_MS;
    }
}

TEST_AROUND(keys_setup, keys_teardown)
TEST_EACH(hub_clear_open, hub_end)
