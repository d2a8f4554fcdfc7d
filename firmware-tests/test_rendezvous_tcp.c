/* The control channel over TCP: several ends in one thread on loopback, time made by the test. */
#include "rendezvous_frame.h"
#include "tcp_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)
#define TURNS_MAX 200000

static struct tcp_world world;
static uint64_t now_ns;

/* What an end has seen. */
static struct seen {
    uint32_t connected; /* bits */
    uint32_t ended;
    uint32_t refused;
    uint32_t frames;
    uint32_t last_kind, last_from, last_bytes;
    unsigned char last[GF_FRAME_PAYLOAD_MAX];
    char text[240];
    gf_status status;
} seen[TCP_WORLD_MAX];

static void setup_group(void)
{
    memset(&world, 0, sizeof world);
    memset(seen, 0, sizeof seen);
    now_ns = 7 * SECOND;
    tcp_address_free(world.address, false);
}

static void end_poll(uint32_t slot)
{
    struct seen *s = &seen[slot];
    for (int i = 0; i < 100; i++) {
        struct gf_rendezvous_event event = {0};
        s->status = world.ends[slot]->driver->poll(world.ends[slot], now_ns, &event);
        if (s->status != GF_OK) return;
        switch (event.kind) {
        case GF_RENDEZVOUS_CONNECTED: s->connected |= 1u << event.rank; break;
        case GF_RENDEZVOUS_ENDED: s->ended |= 1u << event.rank; break;
        case GF_RENDEZVOUS_REFUSED: s->refused++; break;
        case GF_RENDEZVOUS_FRAME:
            s->frames++;
            s->last_kind = event.frame_kind;
            s->last_from = event.rank;
            s->last_bytes = event.size_bytes;
            memcpy(s->last, event.payload, event.size_bytes);
            break;
        }
        if (event.text != NULL) (void)snprintf(s->text, sizeof s->text, "%s", event.text);
    }
}

static void turn(void)
{
    now_ns += MS / 10;
    for (uint32_t slot = 0; slot < TCP_WORLD_MAX; slot++) {
        if (world.ends[slot] != NULL) end_poll(slot);
    }
}

#define UNTIL(condition)                                                         \
    do {                                                                         \
        bool came = (condition);                                                 \
        for (int turns = 0; !came && (turns < TURNS_MAX); turns++) {             \
            turn();                                                              \
            came = (condition);                                                  \
        }                                                                        \
        if (!came) fail_msg("line %d: never came: %s", __LINE__, #condition);    \
    } while (0)

static void end_open(uint32_t slot, const struct gf_rendezvous_setup *setup)
{
    struct gf_fault fault = {0};
    gf_status status = tcp_world_end_open(&world, slot, setup, now_ns, &fault);
    if (status != GF_OK) print_error("slot %u: %s\n", slot, fault.text);
    assert_int_equal(status, GF_OK);
}

static void ranks_open(uint32_t size)
{
    for (uint32_t rank = 0; rank < size; rank++) {
        struct gf_rendezvous_setup setup = tcp_setup(&world, rank, size);
        end_open(rank, &setup);
    }
}

static void assert_refused(uint32_t slot, const char *text)
{
    UNTIL(seen[slot].status < 0);
    if (strstr(world.ends[slot]->fault.text, text) == NULL) print_error("'%s'\n", world.ends[slot]->fault.text);
    assert_int_equal(seen[slot].status, GF_ERR_MISMATCH);
    assert_int_equal(world.ends[slot]->fault.peer, 0);
    assert_non_null(strstr(world.ends[slot]->fault.text, text));
}

/* ---- joining and frames ---- */

static void frames_travel_both_ways(void **state)
{
    (void)state;
    for (int v6 = 0; v6 < 2; v6++) {
        static unsigned char payload[GF_FRAME_PAYLOAD_MAX];
        setup_group();
        tcp_address_free(world.address, v6 != 0);
        if (world.address[0] == 0) continue; /* no IPv6 on this machine */
        ranks_open(5);
        UNTIL((seen[0].connected == 0x1e) && (seen[1].connected & seen[2].connected & seen[3].connected &
                                              seen[4].connected));
        for (uint32_t bytes = 0; bytes <= sizeof payload; bytes += 1024) {
            for (uint32_t rank = 1; rank < 5; rank++) {
                uint32_t before_0 = seen[0].frames, before = seen[rank].frames;
                for (uint32_t i = 0; i < bytes; i++) payload[i] = (unsigned char)(i + rank + bytes / 7);
                assert_int_equal(gf_rendezvous_tcp.send(world.ends[rank], 0, 40 + rank, payload, bytes), GF_OK);
                UNTIL(seen[0].frames == before_0 + 1);
                assert_int_equal(seen[0].last_kind, 40 + rank);
                assert_int_equal(seen[0].last_from, rank);
                assert_int_equal(seen[0].last_bytes, bytes);
                assert_memory_equal(seen[0].last, payload, bytes);
                assert_int_equal(gf_rendezvous_tcp.send(world.ends[0], rank, 50 + rank, payload, bytes), GF_OK);
                UNTIL(seen[rank].frames == before + 1);
                assert_int_equal(seen[rank].last_kind, 50 + rank);
                assert_int_equal(seen[rank].last_from, 0);
                assert_memory_equal(seen[rank].last, payload, bytes);
                assert_true(gf_rendezvous_tcp.flushed(world.ends[rank]));
            }
        }
        assert_int_equal(gf_rendezvous_tcp.send(world.ends[1], 2, 1, payload, 0), GF_ERR_PEER); /* a star */
        assert_int_equal(gf_rendezvous_tcp.send(world.ends[0], 99, 1, payload, 0), GF_ERR_PEER);
        tcp_world_close(&world);
    }
}

static void a_full_channel_says_again_and_loses_nothing(void **state)
{
    (void)state;
    static unsigned char payload[GF_FRAME_PAYLOAD_MAX];
    uint32_t sent = 0;
    setup_group();
    ranks_open(2);
    UNTIL(seen[0].connected && seen[1].connected);
    gf_status status = GF_OK;
    for (; sent < 100000; sent++) { /* nobody reads */
        memset(payload, (int)(sent & 0xff), sizeof payload);
        status = gf_rendezvous_tcp.send(world.ends[1], 0, sent + 1, payload, sizeof payload);
        if (status != GF_OK) break;
    }
    assert_int_equal(status, GF_AGAIN);
    assert_true(sent > 4);
    assert_false(gf_rendezvous_tcp.flushed(world.ends[1]));
    for (uint32_t i = 0; i < sent; i++) { /* in order, whole */
        UNTIL(seen[0].frames > i);
    }
    assert_int_equal(seen[0].frames, sent);
    assert_int_equal(seen[0].last_kind, sent);
    memset(payload, (int)((sent - 1) & 0xff), sizeof payload);
    assert_memory_equal(seen[0].last, payload, sizeof payload);
    assert_true(gf_rendezvous_tcp.flushed(world.ends[1]));
    assert_int_equal(gf_rendezvous_tcp.send(world.ends[1], 0, 1, payload, sizeof payload), GF_OK);
    tcp_world_close(&world);
}

static void the_wake_descriptor_is_readable_when_there_is_something(void **state)
{
    (void)state;
    setup_group();
    ranks_open(2);
    UNTIL(seen[0].connected && seen[1].connected);
    struct pollfd wake = {.fd = gf_rendezvous_tcp.wake_fd(world.ends[0]), .events = POLLIN};
    turn();
    assert_int_equal(poll(&wake, 1, 0), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(gf_rendezvous_tcp.send(world.ends[1], 0, 1, NULL, 0), GF_OK);
    for (int i = 0; i < 3; i++) { /* one event a poll; it stays readable until the last is taken */
        struct gf_rendezvous_event event;
        assert_int_equal(poll(&wake, 1, 10000), 1);
        assert_int_equal(gf_rendezvous_tcp.poll(world.ends[0], now_ns, &event), GF_OK);
    }
    assert_int_equal(poll(&wake, 1, 0), 0);
    tcp_world_close(&world);
}

static void a_coordinator_that_comes_late_is_found(void **state)
{
    (void)state;
    setup_group();
    for (uint32_t rank = 3; rank > 0; rank--) {
        struct gf_rendezvous_setup setup = tcp_setup(&world, rank, 4);
        end_open(rank, &setup);
    }
    for (int i = 0; i < 5000; i++) turn(); /* half a second of being refused */
    assert_int_equal(seen[1].connected | seen[2].connected | seen[3].connected, 0);
    assert_int_equal(seen[1].status, GF_AGAIN);
    struct gf_rendezvous_setup setup = tcp_setup(&world, 0, 4);
    end_open(0, &setup);
    UNTIL((seen[0].connected == 0xe) && (seen[1].connected & seen[2].connected & seen[3].connected));
    tcp_world_close(&world);
}

static void an_unreachable_coordinator_is_named_at_the_deadline(void **state)
{
    (void)state;
    setup_group();
    struct gf_rendezvous_setup setup = tcp_setup(&world, 1, 2);
    end_open(1, &setup);
    for (int i = 0; i < 100; i++) turn();
    assert_int_equal(seen[1].status, GF_AGAIN);
    now_ns += 60 * SECOND;
    turn();
    assert_int_equal(seen[1].status, GF_ERR_TIMEOUT);
    assert_non_null(strstr(world.ends[1]->fault.text, world.address));
    assert_non_null(strstr(world.ends[1]->fault.text, "Connection refused"));
    assert_int_equal(world.ends[1]->fault.foreign_code, ECONNREFUSED);
    turn();
    assert_int_equal(seen[1].status, GF_ERR_TIMEOUT); /* it sticks */
    tcp_world_close(&world);
}

static void the_end_of_a_connection_is_told(void **state)
{
    (void)state;
    setup_group();
    ranks_open(3);
    UNTIL((seen[0].connected == 6) && seen[1].connected && seen[2].connected);
    assert_int_equal(gf_rendezvous_tcp.send(world.ends[2], 0, 9, "bye", 3), GF_OK);
    tcp_world_end_close(&world, 2);
    UNTIL(seen[0].ended != 0);
    assert_int_equal(seen[0].frames, 1); /* what it said last comes first */
    assert_int_equal(seen[0].ended, 4);
    assert_string_equal(seen[0].text, "connection closed by peer");
    assert_int_equal(gf_rendezvous_tcp.send(world.ends[0], 2, 1, NULL, 0), GF_ERR_PEER);
    assert_int_equal(gf_rendezvous_tcp.send(world.ends[0], 1, 1, NULL, 0), GF_OK);
    tcp_world_end_close(&world, 0);
    UNTIL(seen[1].ended != 0);
    assert_int_equal(seen[1].frames, 1);
    tcp_world_close(&world);
}

static void a_world_of_one_opens_nothing(void **state)
{
    (void)state;
    setup_group();
    struct gf_rendezvous_setup setup = tcp_setup(&world, 0, 1);
    setup.address = "no address at all";
    end_open(0, &setup);
    turn();
    assert_int_equal(seen[0].status, GF_AGAIN);
    assert_int_equal(gf_rendezvous_tcp.wake_fd(world.ends[0]), -1);
    assert_true(gf_rendezvous_tcp.flushed(world.ends[0]));
    tcp_world_close(&world);
}

/* ---- what is refused ---- */

static const struct refusal_case {
    const char *name;
    uint32_t rank, size;
    uint64_t job_id;
    const char *text;
    uint32_t told; /* the coordinator hears of it: its own job is ill */
} refusals[] = {
    {"another_job", 1, 2, 99, "job id 4711 at rank 0, 99 at rank 1", 0},
    {"another_world", 1, 5, 4711, "world 2 at rank 0, 5 at rank 1", 1},
    {"a_rank_beyond_the_world", 3, 5, 4711, "world 2 at rank 0, 5 at rank 3", 1},
};

static void a_rank_that_differs_is_refused_with_both_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const struct refusal_case *c = &refusals[i];
        setup_group();
        struct gf_rendezvous_setup setup = tcp_setup(&world, 0, 2);
        end_open(0, &setup);
        setup = tcp_setup(&world, c->rank, c->size);
        setup.job_id = c->job_id;
        end_open(5, &setup);
        assert_refused(5, c->text);
        assert_int_equal(seen[0].refused, c->told);
        assert_int_equal(seen[0].connected, 0);
        setup = tcp_setup(&world, 1, 2); /* the right one still gets in */
        end_open(1, &setup);
        UNTIL(seen[0].connected && seen[1].connected);
        tcp_world_close(&world);
    }
}

static void a_rank_that_is_there_already_is_refused(void **state)
{
    (void)state;
    setup_group();
    ranks_open(3);
    UNTIL(seen[0].connected == 6);
    struct gf_rendezvous_setup setup = tcp_setup(&world, 1, 3);
    end_open(7, &setup);
    assert_refused(7, "rank 1 is here already: was it started twice?");
    assert_int_equal(seen[0].refused, 0);
    assert_int_equal(seen[0].ended, 0);
    tcp_world_end_close(&world, 1);
    UNTIL(seen[0].ended == 2);
    end_open(8, &setup);
    assert_refused(8, "rank 1 was here and has gone");
    tcp_world_close(&world);
}

static const struct setup_case {
    const char *name;
    const char *address, *bind, *key_file;
    uint32_t rank;
    bool insecure;
    gf_status expect;
    const char *text;
} setups[] = {
    {"no_port", "127.0.0.1", "", "", 0, false, GF_ERR_CONFIG, "rendezvous.address '127.0.0.1': expected"},
    {"port_zero", "127.0.0.1:0", "", "", 1, false, GF_ERR_CONFIG, "port from 1 to 65535"},
    {"port_too_large", "127.0.0.1:65536", "", "", 0, false, GF_ERR_CONFIG, "port from 1 to 65535"},
    {"port_has_a_tail", "127.0.0.1:80x", "", "", 0, false, GF_ERR_CONFIG, "port from 1 to 65535"},
    {"a_name_is_not_numeric", "localhost:7117", "", "", 0, false, GF_ERR_CONFIG, "expected a numeric address"},
    {"ipv6_without_brackets", "::1:7117", "", "", 0, false, GF_ERR_CONFIG, "[fd00::1]:7117"},
    {"ipv4_in_brackets", "[127.0.0.1]:7117", "", "", 0, false, GF_ERR_CONFIG, "expected a numeric address"},
    {"empty", "", "", "", 0, false, GF_ERR_CONFIG, "rendezvous.address ''"},
    {"a_very_long_one", "1111111111111111111111111111111111111111111111111111111111111111111:1", "", "", 0, false,
     GF_ERR_CONFIG, "rendezvous.address"},
    {"beyond_loopback", "0.0.0.0:7117", "", "", 0, false, GF_ERR_CONFIG, "rendezvous.insecure"},
    {"beyond_loopback_ipv6", "[::]:7117", "", "", 0, false, GF_ERR_CONFIG, "rendezvous.insecure"},
    {"bound_beyond_loopback", "127.0.0.1:7117", "0.0.0.0", "", 0, false, GF_ERR_CONFIG, "rendezvous.insecure"},
    {"bind_is_no_address", "127.0.0.1:7117", "eth0", "", 1, false, GF_ERR_CONFIG, "rendezvous.bind 'eth0'"},
    {"bind_of_another_family", "127.0.0.1:7117", "::1", "", 1, false, GF_ERR_CONFIG, "both to be IPv4"},
    {"key_file_missing", "127.0.0.1:7117", "", "/nonexistent/key", 0, false, GF_ERR_CONFIG, "No such file"},
    {"key_file_is_a_folder", "127.0.0.1:7117", "", "/", 0, false, GF_ERR_CONFIG, "expected a file of this user"},
};

static void bad_setups_are_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) {
        const struct setup_case *c = &setups[i];
        struct gf_fault fault = {0};
        setup_group();
        struct gf_rendezvous_setup setup = tcp_setup(&world, c->rank, 2);
        setup.address = c->address;
        setup.bind = c->bind;
        setup.key_file = c->key_file;
        setup.insecure = c->insecure;
        gf_status status = tcp_world_end_open(&world, 0, &setup, now_ns, &fault);
        if ((status != c->expect) || (strstr(fault.text, c->text) == NULL)) {
            print_error("%s: %s\n", c->name, fault.text);
        }
        assert_int_equal(status, c->expect);
        assert_int_equal(fault.code, c->expect);
        assert_non_null(strstr(fault.text, c->text));
        tcp_world_close(&world);
    }
}

static void a_key_that_others_may_read_is_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/gf-test-key-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    const mode_t modes[] = {0600, 0640, 0604};
    const char *texts[] = {"this build cannot authenticate", "found mode 0640", "found mode 0604"};
    for (int i = 0; i < 3; i++) {
        struct gf_fault fault = {0};
        setup_group();
        assert_int_equal(fchmod(fd, modes[i]), 0);
        struct gf_rendezvous_setup setup = tcp_setup(&world, 0, 2);
        setup.key_file = path;
        assert_int_equal(tcp_world_end_open(&world, 0, &setup, now_ns, &fault), GF_ERR_CONFIG);
        assert_non_null(strstr(fault.text, texts[i]));
    }
    (void)close(fd);
    (void)unlink(path);
}

static void a_port_in_use_is_named(void **state)
{
    (void)state;
    struct gf_fault fault = {0};
    setup_group();
    struct gf_rendezvous_setup setup = tcp_setup(&world, 0, 2);
    end_open(0, &setup);
    assert_int_equal(tcp_world_end_open(&world, 1, &setup, now_ns, &fault), GF_ERR_SYSTEM);
    assert_int_equal(fault.foreign_code, EADDRINUSE);
    assert_string_equal(fault.foreign_call, "bind");
    assert_non_null(strstr(fault.text, world.address));
    tcp_world_close(&world);
}

/* ---- strangers ---- */

static int stranger_connect(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    at.sin_port = htons((uint16_t)strtoul(strchr(world.address, ':') + 1, NULL, 10));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static void stranger_say(int fd, const void *data, size_t bytes)
{
    (void)send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT); /* the other side may have hung up: lawful */
}

/* A hello as it should be, for one field to be spoiled. */
static void hello_make(unsigned char *out, uint32_t rank, uint32_t size)
{
    struct gf_put put = {out, GF_FRAME_HEADER_BYTES + GF_FRAME_HELLO_BYTES};
    gf_frame_header_put(&put, GF_FRAME_HELLO, GF_FRAME_HELLO_BYTES, 4711, rank);
    gf_put_u32(&put, GF_VERSION);
    gf_put_u32(&put, rank);
    gf_put_u32(&put, size);
    gf_put_u32(&put, 0);
}

static void strangers_by_the_hundreds_do_not_stop_a_job(void **state)
{
    (void)state;
    static unsigned char oversized[1 << 16], hello[GF_FRAME_HEADER_BYTES + GF_FRAME_HELLO_BYTES];
    int strangers[300];
    uint32_t opened = 0;
    setup_group();
    struct gf_rendezvous_setup setup = tcp_setup(&world, 0, 4);
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
        setup = tcp_setup(&world, rank, 4);
        end_open(rank, &setup);
    }
    UNTIL((seen[0].connected == 0xe) && (seen[1].connected & seen[2].connected & seen[3].connected));
    for (uint32_t rank = 1; rank < 4; rank++) {
        assert_int_equal(gf_rendezvous_tcp.send(world.ends[rank], 0, 1, "x", 1), GF_OK);
    }
    UNTIL(seen[0].frames == 3);
    assert_int_equal(seen[0].refused, 0);
    assert_int_equal(seen[0].ended, 0);
    for (uint32_t i = 0; i < opened; i++) (void)close(strangers[i]);
    tcp_world_close(&world);
}

static void a_silent_stranger_is_hung_up_on_after_5_s(void **state)
{
    (void)state;
    char byte;
    setup_group();
    struct gf_rendezvous_setup setup = tcp_setup(&world, 0, 2);
    end_open(0, &setup);
    int fd = stranger_connect();
    struct pollfd wake = {.fd = gf_rendezvous_tcp.wake_fd(world.ends[0]), .events = POLLIN};
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
    tcp_world_close(&world);
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
    {"protocol_version", 4, 9, "protocol version 1 at rank 0, 9 at rank 1"},
    {"header_size", 6, 48, NULL},
    {"kind", 8, 7, NULL},
    {"payload_size", 12, 15, NULL},
    {"library_version", 34, 1, "library version 0.1 at rank 0, 1.1 at rank 1"},
    {"rank_zero_is_the_coordinator", 36, 0, "rank 0: expected 1 to 2"},
    {"rank_is_the_world", 36, 3, "rank 3: expected 1 to 2"},
    {"rank_is_huge", 39, 0xff, "expected 1 to 2"},
    {"world", 40, 2, "world 3 at rank 0, 2 at rank 1"},
};

static void each_field_of_a_hello_is_checked(void **state)
{
    (void)state;
    setup_group();
    struct gf_rendezvous_setup setup = tcp_setup(&world, 0, 3);
    end_open(0, &setup);
    for (size_t i = 0; i < sizeof hellos / sizeof hellos[0]; i++) {
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
    setup = tcp_setup(&world, 1, 3);
    end_open(1, &setup);
    UNTIL(seen[0].connected == 2);
    tcp_world_close(&world);
}

static void a_member_that_sends_garbage_is_cut_off(void **state)
{
    (void)state;
    for (uint32_t at = 0; at < GF_FRAME_HEADER_BYTES - 4; at++) {
        if ((at >= 8) && (at < 14)) continue; /* kind, and sizes that are lawful */
        unsigned char hello[GF_FRAME_HEADER_BYTES + GF_FRAME_HELLO_BYTES], frame[GF_FRAME_HEADER_BYTES];
        struct gf_put put = {frame, sizeof frame};
        setup_group();
        struct gf_rendezvous_setup setup = tcp_setup(&world, 0, 2);
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
        tcp_world_close(&world);
    }
}

/* Something else listens at the address. */
static void a_foreign_server_is_no_coordinator(void **state)
{
    (void)state;
    static const char greeting[] = "HTTP/1.1 400 Bad Request\r\nServer: something else\r\n\r\n";
    setup_group();
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
    (void)snprintf(world.address, sizeof world.address, "127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
    struct gf_rendezvous_setup setup = tcp_setup(&world, 1, 2);
    end_open(1, &setup);
    int fd = -1;
    UNTIL((fd = accept(listener, NULL, NULL)) >= 0);
    (void)close(fd); /* hung up on: tried again */
    UNTIL((fd = accept(listener, NULL, NULL)) >= 0);
    stranger_say(fd, greeting, sizeof greeting - 1);
    assert_refused(1, "is not rank 0 of a GradientFlow job");
    (void)close(fd);
    (void)close(listener);
    tcp_world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_travel_both_ways),
        cmocka_unit_test(a_full_channel_says_again_and_loses_nothing),
        cmocka_unit_test(the_wake_descriptor_is_readable_when_there_is_something),
        cmocka_unit_test(a_coordinator_that_comes_late_is_found),
        cmocka_unit_test(an_unreachable_coordinator_is_named_at_the_deadline),
        cmocka_unit_test(the_end_of_a_connection_is_told),
        cmocka_unit_test(a_world_of_one_opens_nothing),
        cmocka_unit_test(a_rank_that_differs_is_refused_with_both_values),
        cmocka_unit_test(a_rank_that_is_there_already_is_refused),
        cmocka_unit_test(bad_setups_are_refused_by_name),
        cmocka_unit_test(a_key_that_others_may_read_is_refused),
        cmocka_unit_test(a_port_in_use_is_named),
        cmocka_unit_test(strangers_by_the_hundreds_do_not_stop_a_job),
        cmocka_unit_test(a_silent_stranger_is_hung_up_on_after_5_s),
        cmocka_unit_test(each_field_of_a_hello_is_checked),
        cmocka_unit_test(a_member_that_sends_garbage_is_cut_off),
        cmocka_unit_test(a_foreign_server_is_no_coordinator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
