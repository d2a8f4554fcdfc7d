/* Who is no rank of the job, or does not behave like one, does the control channel no harm. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/tcp_keys.h"
#include "firmware-tests/support/tcp_middle.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(a_silent_stranger_is_hung_up_on_after_5_s)
{
    char byte;
    end_join(0, 0, 2);
    int fd = stranger_at(star.address);
    struct pollfd wake = {.fd = gf_rendezvous_tcp.wake_fd(star.ends[0]), .events = POLLIN};
    assert_int_equal(poll(&wake, 1, 10000), 1);
    turn();
    now_ns += 4 * SECOND;
    turn();
    assert_true((recv(fd, &byte, 1, MSG_DONTWAIT) < 0) && (errno == EAGAIN));
    now_ns += SECOND;
    turn();
    struct pollfd end = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&end, 1, 10000), 1);
    assert_true(recv(fd, &byte, 1, MSG_DONTWAIT) <= 0);
    (void)close(fd);
}

TEST(the_oldest_stranger_gives_way)
{
    unsigned char hello[HELLO_FRAME];
    int fds[17];
    char byte;
    end_join(0, 0, 2);
    struct pollfd wake = {.fd = gf_rendezvous_tcp.wake_fd(star.ends[0]), .events = POLLIN};
    for (int i = 0; i < 17; i++) { /* one more than there are slots, each a little later */
        fds[i] = stranger_at(star.address);
        assert_int_equal(poll(&wake, 1, 10000), 1);
        turn();
    }
    struct pollfd end = {.fd = fds[0], .events = POLLIN};
    assert_int_equal(poll(&end, 1, 10000), 1);
    assert_true(recv(fds[0], &byte, 1, MSG_DONTWAIT) <= 0);
    for (int i = 1; i < 17; i++)
        assert_true((recv(fds[i], &byte, 1, MSG_DONTWAIT) < 0) && (errno == EAGAIN));
    hello_make(hello, 1, 2, 0);
    say(fds[16], hello, sizeof hello); /* the youngest was a rank after all */
    UNTIL(seen[0].connected == 2);
    for (int i = 0; i < 17; i++) (void)close(fds[i]);
}

/* What the coordinator answers to a hello; "": it hangs up. */
static void answer_get(const unsigned char *hello, char *text_out)
{
    unsigned char answer[ANSWER_FRAME];
    struct gf_get get = {.at = answer + GF_FRAME_HEADER_BYTES + 4, .left = GF_FRAME_REASON_BYTES};
    int fd = stranger_at(star.address);
    text_out[0] = 0;
    say(fd, hello, HELLO_FRAME);
    if (hear(fd, answer, sizeof answer) == sizeof answer)
        gf_get_text(&get, text_out, GF_FRAME_REASON_BYTES);
    (void)close(fd);
}

static const struct hello_case {
    const char *name;
    uint32_t at; /* byte of the hello that is replaced */
    unsigned char value;
    const char *text; /* of the refusal; NULL: hung up on */
} hellos[] = {
    {"magic", 0, 'X', NULL},
    {"protocol_version", 4, 9, "protocol version 2 at rank 0, 9 at rank 1"},
    {"header_size", 6, 48, NULL},
    {"kind", 8, 7, NULL},
    {"payload_size", 12, 15, NULL},
    {"library_version", 34, 1, "library version 0.8 at rank 0, 1.8 at rank 1"},
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
        answer_get(hello, text);
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
        answer_get(hello, text);
        assert_non_null(strstr(text, "protocol version"));
        assert_int_equal(seen[0].refused, 1 - rejoins);
        tcp_world_close(&star);
        world_clear();
    }
}

TEST(a_member_that_sends_garbage_is_cut_off)
{
    for (uint32_t at = 0; at < GF_FRAME_HEADER_BYTES - 4; at++) {
        if ((at >= 8) && (at < 14)) continue; /* kind, and sizes that are valid */
        unsigned char hello[HELLO_FRAME];
        unsigned char frame[GF_FRAME_HEADER_BYTES];
        struct gf_put put = {frame, sizeof frame};
        world_clear();
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

/* As user 12345: its status is 0 if it said the hello of rank 1 and was told that it is of another
 * user, 1 if it was hung up on. */
static pid_t other_user(void)
{
    unsigned char hello[HELLO_FRAME];
    char text[ANSWER_FRAME];
    pid_t other = fork();
    assert_true(other >= 0);
    if (other != 0) return other;
    hello_make(hello, 1, 2, 0);
    if (setuid(12345) != 0) _exit(9);
    int fd = stranger_at(star.address);
    if (send(fd, hello, sizeof hello, MSG_NOSIGNAL) < 0) _exit(8);
    if (recv(fd, text, sizeof text, MSG_WAITALL) != (ssize_t)sizeof text) _exit(1);
    _exit((strstr(text + GF_FRAME_HEADER_BYTES + 4, "user 12345 at the other end") != NULL) ? 0
                                                                                            : 7);
}

static int status_of(pid_t other)
{
    int status = 0;
    UNTIL((waitpid(other, &status, WNOHANG) == other) || (usleep(1000) != 0));
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Without a key the kernel says whose process it is, on this host. */
TEST(a_process_of_another_user_does_not_come_in)
{
    if (geteuid() != 0) skip(); /* no right to be somebody else */
    end_join(0, 0, 2);
    assert_int_equal(status_of(other_user()), 0);
    assert_int_equal(seen[0].connected, 0);
    assert_true(seen[0].refused != 0); /* told, should nobody better come */
    end_join(1, 1, 2);
    UNTIL(seen[0].connected == 2);
}

/* Strangers can take the descriptors that the question needs. */
TEST(nobody_comes_in_while_no_descriptor_is_left_to_ask_with)
{
    struct rlimit had;
    struct rlimit one_left;
    if (geteuid() != 0) skip();
    end_join(0, 0, 2);
    pid_t other = other_user();
    int next = dup(0);
    assert_true(next >= 0);
    (void)close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &had), 0);
    one_left = (struct rlimit){.rlim_cur = (rlim_t)next + 1, .rlim_max = had.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &one_left), 0); /* what accept() takes */
    int status = status_of(other);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &had), 0);
    assert_int_equal(status, 1);
    assert_int_equal(seen[0].connected, 0);
    end_join(1, 1, 2);
    UNTIL(seen[0].connected == 2);
}

/* Nor is a hello believed whose sender has gone before the kernel could be asked for it. */
TEST(a_connection_that_was_reset_takes_no_rank)
{
    const struct linger at_once = {.l_onoff = 1};
    unsigned char hello[HELLO_FRAME];
    end_join(0, 0, 2);
    hello_make(hello, 1, 2, 0);
    int fd = stranger_at(star.address);
    say(fd, hello, sizeof hello);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    (void)close(fd);
    for (int i = 0; i < 20; i++) turn();
    assert_int_equal(seen[0].connected, 0);
    end_join(1, 1, 2);
    UNTIL(seen[0].connected == 2);
    assert_int_equal(seen[0].ended, 0);
}

/* Something else listens at the address. */
TEST(a_foreign_server_is_no_coordinator)
{
    static const char greeting[] = "HTTP/1.1 400 Bad Request\r\nServer: something else\r\n\r\n";
    static struct middle server;
    middle_open(&server, star.address);
    (void)snprintf(star.address, sizeof star.address, "%s", server.address);
    end_join(1, 1, 2);
    int fd = -1;
    UNTIL((fd = accept(server.listen_fd, NULL, NULL)) >= 0);
    (void)close(fd); /* hung up on: tried again */
    UNTIL((fd = accept(server.listen_fd, NULL, NULL)) >= 0);
    say(fd, greeting, sizeof greeting - 1);
    assert_refused(1, "is not rank 0 of a GradientFlow job");
    (void)close(fd);
    middle_close(&server);
}

TEST_EACH(world_clear, world_end)
