/* Who is no rank of the job, or does not behave like one, does the control channel no harm. */
#include "firmware-tests/support/suite.h"
#include "drivers/tcp/rendezvous_frame.h"
#include "firmware-tests/support/tcp_turns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int stranger_connect(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    at.sin_port = htons((uint16_t)strtoul(strchr(star.address, ':') + 1, NULL, 10));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static void stranger_say(int fd, const void *data, size_t bytes)
{
    (void)send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT); /* the other side may have hung up: valid */
}

/* A hello as it should be, for one field to be spoiled. */
static void hello_make(unsigned char *out, uint32_t rank, uint32_t size)
{
    struct gf_put put = {out, GF_FRAME_HEADER_BYTES + GF_FRAME_HELLO_BYTES};
    memset(out, 0, put.left);
    gf_frame_header_put(&put, GF_FRAME_HELLO, GF_FRAME_HELLO_BYTES, 4711, rank);
    gf_put_u32(&put, GF_VERSION);
    gf_put_u32(&put, rank);
    gf_put_u32(&put, size);
    gf_put_u32(&put, 0);
}

TEST(strangers_by_the_hundreds_do_not_stop_a_job)
{
    static unsigned char oversized[1 << 16], hello[GF_FRAME_HEADER_BYTES + GF_FRAME_HELLO_BYTES];
    int strangers[300];
    uint32_t opened = 0;
    world_clear();
    struct gf_rendezvous_setup setup = tcp_setup(&star, 0, 4);
    end_open(0, &setup);
    memset(oversized, 'A', sizeof oversized);
    for (uint32_t rank = 1; rank < 4; rank++) {
        for (uint32_t i = 0; i < 100; i++) {
            int fd = stranger_connect();
            strangers[opened++] = fd;
            switch (i % 6) {
            case 0: break;                                                /* half-open: says nothing */
            case 1: stranger_say(fd, "GET / HTTP/1.1\r\n\r\nHost: gradient\r\n\r\n", 36); break;
            case 2: stranger_say(fd, oversized, sizeof oversized); break;
            case 3:                                                       /* slow: a part of a hello */
                hello_make(hello, rank, 4);
                stranger_say(fd, hello, 20);
                break;
            case 4:                                                       /* a hello with a size beyond all bounds */
                hello_make(hello, rank, 4);
                memset(hello + 12, 0xff, 4);
                stranger_say(fd, hello, sizeof hello);
                break;
            case 5:                                                       /* of another job, which does not wait */
                hello_make(hello, rank, 4);
                hello[16] ^= 1;
                stranger_say(fd, hello, sizeof hello);
                (void)close(fd);
                opened--;
                break;
            }
            if (i % 10 == 0) turn();
        }
        setup = tcp_setup(&star, rank, 4);
        end_open(rank, &setup);
    }
    UNTIL((seen[0].connected == 0xe) && (seen[1].connected & seen[2].connected & seen[3].connected));
    for (uint32_t rank = 1; rank < 4; rank++) {
        assert_int_equal(gf_rendezvous_tcp.send(star.ends[rank], 0, 1, "x", 1), GF_OK);
    }
    UNTIL(seen[0].frames == 3);
    assert_int_equal(seen[0].refused, 0);
    assert_int_equal(seen[0].ended, 0);
    for (uint32_t i = 0; i < opened; i++) (void)close(strangers[i]);
    tcp_world_close(&star);
}

TEST(a_silent_stranger_is_hung_up_on_after_5_s)
{
    char byte;
    world_clear();
    struct gf_rendezvous_setup setup = tcp_setup(&star, 0, 2);
    end_open(0, &setup);
    int fd = stranger_connect();
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
    tcp_world_close(&star);
}

TEST(the_oldest_stranger_gives_way)
{
    unsigned char hello[GF_FRAME_HEADER_BYTES + GF_FRAME_HELLO_BYTES];
    int fds[17];
    char byte;
    world_clear();
    struct gf_rendezvous_setup setup = tcp_setup(&star, 0, 2);
    end_open(0, &setup);
    struct pollfd wake = {.fd = gf_rendezvous_tcp.wake_fd(star.ends[0]), .events = POLLIN};
    for (int i = 0; i < 17; i++) { /* one more than there are slots, each a little later */
        fds[i] = stranger_connect();
        assert_int_equal(poll(&wake, 1, 10000), 1);
        turn();
    }
    struct pollfd end = {.fd = fds[0], .events = POLLIN};
    assert_int_equal(poll(&end, 1, 10000), 1);
    assert_true(recv(fds[0], &byte, 1, MSG_DONTWAIT) <= 0);
    for (int i = 1; i < 17; i++) assert_true((recv(fds[i], &byte, 1, MSG_DONTWAIT) < 0) && (errno == EAGAIN));
    hello_make(hello, 1, 2);
    stranger_say(fds[16], hello, sizeof hello); /* the youngest was a rank after all */
    UNTIL(seen[0].connected == 2);
    for (int i = 0; i < 17; i++) (void)close(fds[i]);
    tcp_world_close(&star);
}

/* What the coordinator answers to the bytes of a hello. */
static void answer_get(const unsigned char *hello, size_t bytes, char *text_out)
{
    unsigned char answer[GF_FRAME_HEADER_BYTES + GF_FRAME_ANSWER_BYTES];
    size_t got = 0;
    int fd = stranger_connect();
    text_out[0] = 0;
    stranger_say(fd, hello, bytes);
    for (int i = 0; (i < TURNS_MAX) && (got < sizeof answer); i++) {
        turn();
        ssize_t more = recv(fd, answer + got, sizeof answer - got, MSG_DONTWAIT);
        if ((more == 0) || ((more < 0) && (errno != EAGAIN))) break;
        if (more > 0) got += (size_t)more;
    }
    (void)close(fd);
    if (got < sizeof answer) return;
    struct gf_get get = {.at = answer + GF_FRAME_HEADER_BYTES + 4, .left = GF_FRAME_REASON_BYTES};
    gf_get_text(&get, text_out, GF_FRAME_REASON_BYTES);
}

static const struct hello_case {
    const char *name;
    uint32_t at;           /* byte of the hello that is replaced */
    unsigned char value;
    const char *text;      /* of the refusal; NULL: hung up on */
} hellos[] = {
    {"magic", 0, 'X', NULL},
    {"protocol_version", 4, 9, "protocol version 2 at rank 0, 9 at rank 1"},
    {"header_size", 6, 48, NULL},
    {"kind", 8, 7, NULL},
    {"payload_size", 12, 15, NULL},
    {"library_version", 34, 1, "library version 0.2 at rank 0, 1.2 at rank 1"},
    {"rank_zero_is_the_coordinator", 36, 0, "rank 0: expected 1 to 2"},
    {"rank_is_the_world", 36, 3, "rank 3: expected 1 to 2"},
    {"rank_is_huge", 39, 0xff, "expected 1 to 2"},
    {"world", 40, 2, "world 3 at rank 0, 2 at rank 1"},
};

TEST(each_field_of_a_hello_is_checked)
{
    world_clear();
    struct gf_rendezvous_setup setup = tcp_setup(&star, 0, 3);
    end_open(0, &setup);
    for (size_t i = 0; i < LENGTH(hellos); i++) {
        unsigned char hello[GF_FRAME_HEADER_BYTES + GF_FRAME_HELLO_BYTES];
        char text[GF_FRAME_REASON_BYTES];
        hello_make(hello, 1, 3);
        hello[hellos[i].at] = hellos[i].value;
        answer_get(hello, sizeof hello, text);
        const char *expect = (hellos[i].text != NULL) ? hellos[i].text : "";
        if (strstr(text, expect) == NULL) print_error("%s: '%s'\n", hellos[i].name, text);
        assert_non_null(strstr(text, expect));
        if (hellos[i].text == NULL) assert_string_equal(text, "");
    }
    assert_int_equal(seen[0].connected, 0);
    setup = tcp_setup(&star, 1, 3);
    end_open(1, &setup);
    UNTIL(seen[0].connected == 2);
    tcp_world_close(&star);
}

TEST(a_member_that_sends_garbage_is_cut_off)
{
    for (uint32_t at = 0; at < GF_FRAME_HEADER_BYTES - 4; at++) {
        if ((at >= 8) && (at < 14)) continue; /* kind, and sizes that are valid */
        unsigned char hello[GF_FRAME_HEADER_BYTES + GF_FRAME_HELLO_BYTES], frame[GF_FRAME_HEADER_BYTES];
        struct gf_put put = {frame, sizeof frame};
        world_clear();
        struct gf_rendezvous_setup setup = tcp_setup(&star, 0, 2);
        end_open(0, &setup);
        hello_make(hello, 1, 2);
        int fd = stranger_connect();
        stranger_say(fd, hello, sizeof hello);
        UNTIL(seen[0].connected == 2);
        gf_frame_header_put(&put, 1, 0, 4711, 1);
        frame[at] ^= 0x80;
        stranger_say(fd, frame, sizeof frame);
        UNTIL(seen[0].ended == 2);
        assert_non_null(strstr(seen[0].text, "sent a malformed frame"));
        assert_int_equal(seen[0].frames, 0);
        (void)close(fd);
        tcp_world_close(&star);
    }
}

/* Without a key the kernel says whose process it is, on this host. */
TEST(a_process_of_another_user_does_not_come_in)
{
    unsigned char hello[GF_FRAME_HEADER_BYTES + GF_FRAME_HELLO_BYTES];
    int status = 0;
    if (geteuid() != 0) skip(); /* no right to be somebody else */
    world_clear();
    struct gf_rendezvous_setup setup = tcp_setup(&star, 0, 2);
    end_open(0, &setup);
    hello_make(hello, 1, 2);
    pid_t other = fork();
    assert_true(other >= 0);
    if (other == 0) {
        char text[GF_FRAME_HEADER_BYTES + GF_FRAME_ANSWER_BYTES];
        if (setuid(12345) != 0) _exit(9);
        int fd = stranger_connect();
        if (send(fd, hello, sizeof hello, MSG_NOSIGNAL) < 0) _exit(8);
        ssize_t bytes = recv(fd, text, sizeof text, MSG_WAITALL);
        _exit((bytes == (ssize_t)sizeof text) && (strstr(text + GF_FRAME_HEADER_BYTES + 4, "user 12345 at the other end") != NULL)
                  ? 0 : 7);
    }
    UNTIL((waitpid(other, &status, WNOHANG) == other) || (usleep(1000) != 0));
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(seen[0].connected, 0);
    assert_true(seen[0].refused != 0); /* told, should nobody better come */
    setup = tcp_setup(&star, 1, 2);
    end_open(1, &setup);
    UNTIL(seen[0].connected == 2);
    tcp_world_close(&star);
}

/* Something else listens at the address. */
TEST(a_foreign_server_is_no_coordinator)
{
    static const char greeting[] = "HTTP/1.1 400 Bad Request\r\nServer: something else\r\n\r\n";
    world_clear();
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
    (void)snprintf(star.address, sizeof star.address, "127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
    struct gf_rendezvous_setup setup = tcp_setup(&star, 1, 2);
    end_open(1, &setup);
    int fd = -1;
    UNTIL((fd = accept(listener, NULL, NULL)) >= 0);
    (void)close(fd); /* hung up on: tried again */
    UNTIL((fd = accept(listener, NULL, NULL)) >= 0);
    stranger_say(fd, greeting, sizeof greeting - 1);
    assert_refused(1, "is not rank 0 of a GradientFlow job");
    (void)close(fd);
    (void)close(listener);
    tcp_world_close(&star);
}
