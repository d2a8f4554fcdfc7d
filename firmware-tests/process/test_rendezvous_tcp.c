/* The control channel over TCP: several ends in one thread on loopback, time made by the test. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/tcp_keys.h"
#include "firmware-tests/support/tcp_middle.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- joining and frames ---- */

TEST(frames_travel_both_ways)
{
    for (int way = 0; way < 4; way++) { /* IPv4, IPv6, with a key, by name */
        static unsigned char payload[GF_FRAME_PAYLOAD_MAX];
        world_clear();
        star.insecure = (way < 2);
        tcp_address_free(star.address, way == 1);
        if (star.address[0] == 0) continue; /* no IPv6 on this machine */
        if (way == 2)
            keyed_world(5);
        else
            turns_open(5);
        for (uint32_t bytes = 0; bytes <= sizeof payload; bytes += 1024) {
            for (uint32_t rank = 1; rank < 5; rank++) {
                uint32_t before_0 = seen[0].frames;
                uint32_t before = seen[rank].frames;
                for (uint32_t i = 0; i < bytes; i++)
                    payload[i] = (unsigned char)(i + rank + bytes / 7);
                assert_int_equal(
                    gf_rendezvous_tcp.send(star.ends[rank], 0, 40 + rank, payload, bytes), GF_OK);
                UNTIL(seen[0].frames == before_0 + 1);
                assert_int_equal(seen[0].last_kind, 40 + rank);
                assert_int_equal(seen[0].last_from, rank);
                assert_int_equal(seen[0].last_bytes, bytes);
                assert_memory_equal(seen[0].last, payload, bytes);
                assert_int_equal(
                    gf_rendezvous_tcp.send(star.ends[0], rank, 50 + rank, payload, bytes), GF_OK);
                UNTIL(seen[rank].frames == before + 1);
                assert_int_equal(seen[rank].last_kind, 50 + rank);
                assert_int_equal(seen[rank].last_from, 0);
                assert_memory_equal(seen[rank].last, payload, bytes);
                assert_true(gf_rendezvous_tcp.flushed(star.ends[rank]));
            }
        }
        assert_int_equal(seen[0].refused | seen[0].ended, 0);
        /* a star */
        assert_int_equal(gf_rendezvous_tcp.send(star.ends[1], 2, 1, payload, 0), GF_ERR_PEER);
        assert_int_equal(gf_rendezvous_tcp.send(star.ends[0], 99, 1, payload, 0), GF_ERR_PEER);
        tcp_world_close(&star);
    }
}

TEST(a_full_channel_says_again_and_loses_nothing)
{
    for (uint32_t row = 0; row < 4; row++) { /* both ways, without a key and with one */
        const uint32_t from = row % 2;
        const uint32_t to = 1 - from;
        static unsigned char payload[GF_FRAME_PAYLOAD_MAX];
        uint32_t sent = 0;
        world_clear();
        if (row >= 2)
            keyed_world(2);
        else
            turns_open(2);
        gf_status status = GF_OK;
        for (; sent < 100000; sent++) { /* nobody reads */
            memset(payload, (int)(sent & 0xff), sizeof payload);
            status = gf_rendezvous_tcp.send(star.ends[from], to, sent + 1, payload,
                                            (uint32_t)sizeof payload - sent % 50);
            if (status != GF_OK) break;
        }
        assert_int_equal(status, GF_AGAIN);
        assert_true(sent > 4);
        assert_false(gf_rendezvous_tcp.flushed(star.ends[from]));
        uint32_t last = sizeof payload; /* bytes: what fits into the channel to its last byte */
        while ((last > 0) &&
               (gf_rendezvous_tcp.send(star.ends[from], to, sent + 1, payload, last) != GF_OK))
            last--;
        sent += (last > 0);
        for (uint32_t i = 0; i < sent; i++) UNTIL(seen[to].frames > i); /* in order, whole */
        assert_int_equal(seen[to].frames, sent);
        assert_int_equal(seen[to].last_kind, sent);
        memset(payload, (int)((sent - 1) & 0xff), sizeof payload);
        assert_int_equal(seen[to].last_bytes, (last > 0) ? last : sizeof payload - (sent - 1) % 50);
        assert_memory_equal(seen[to].last, payload, seen[to].last_bytes);
        assert_true(gf_rendezvous_tcp.flushed(star.ends[from]));
        assert_int_equal(gf_rendezvous_tcp.send(star.ends[from], to, 1, payload, sizeof payload),
                         GF_OK);
        UNTIL(seen[to].frames == sent + 1);
        tcp_world_close(&star);
    }
}

TEST(the_wake_descriptor_is_readable_when_there_is_something)
{
    turns_open(2);
    struct pollfd wake = {.fd = gf_rendezvous_tcp.wake_fd(star.ends[0]), .events = POLLIN};
    turn();
    assert_int_equal(poll(&wake, 1, 0), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(gf_rendezvous_tcp.send(star.ends[1], 0, 1, NULL, 0), GF_OK);
    for (int i = 0; i < 3; i++) { /* one event a poll; it stays readable until the last is taken */
        struct gf_rendezvous_event event;
        assert_int_equal(poll(&wake, 1, 10000), 1);
        assert_int_equal(gf_rendezvous_tcp.poll(star.ends[0], now_ns, &event), GF_OK);
    }
    assert_int_equal(poll(&wake, 1, 0), 0);
}

TEST(a_coordinator_that_comes_late_is_found)
{
    for (uint32_t rank = 3; rank > 0; rank--) {
        end_join(rank, rank, 4);
    }
    for (int i = 0; i < 5000; i++) turn(); /* half a second of being refused */
    assert_int_equal(seen[1].connected | seen[2].connected | seen[3].connected, 0);
    assert_int_equal(seen[1].status, GF_AGAIN);
    end_join(0, 0, 4);
    turns_connect(4);
}

TEST(an_unreachable_coordinator_is_named_at_the_deadline)
{
    end_join(1, 1, 2);
    for (int i = 0; i < 100; i++) turn();
    assert_int_equal(seen[1].status, GF_AGAIN);
    now_ns += 60 * SECOND;
    turn();
    assert_int_equal(seen[1].status, GF_ERR_TIMEOUT);
    assert_non_null(strstr(star.ends[1]->fault.text, star.address));
    assert_non_null(strstr(star.ends[1]->fault.text, "Connection refused"));
    assert_non_null(strstr(star.ends[1]->fault.text, "that address is this host itself"));
    assert_int_equal(star.ends[1]->fault.foreign_code, ECONNREFUSED);
    turn();
    assert_int_equal(seen[1].status, GF_ERR_TIMEOUT); /* it sticks */
}

TEST(who_rejoins_once_more_after_the_deadline_has_as_long_again)
{
    struct gf_rendezvous_setup setup = tcp_setup(&star, 1, 2);
    setup.rejoin = true;
    end_open(1, &setup);
    now_ns += 60 * SECOND;
    turn();
    assert_int_equal(seen[1].status, GF_ERR_TIMEOUT);
    assert_int_equal(gf_rendezvous_tcp.reform(star.ends[1], now_ns, GF_RANK_NONE, ""), GF_AGAIN);
    turn();
    assert_int_equal(seen[1].status, GF_AGAIN);
    now_ns += 59 * SECOND;
    turn();
    assert_int_equal(seen[1].status, GF_AGAIN);
    now_ns += SECOND;
    for (int i = 0; (i < 100) && (seen[1].status == GF_AGAIN); i++) turn();
    const char *tried = strstr(star.ends[1]->fault.text, ": tried ");
    assert_non_null(tried);
    assert_true(atoi(tried + sizeof ": tried") <= 3); /* one a turn, of this time alone */
}

/* A listener whose queue is full answers no more than a host without power. */
TEST(a_coordinator_whose_host_is_gone_is_given_up_after_2_s)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    char address[GF_CONTROL_ADDRESS_BYTES];
    int deaf = socket(AF_INET, SOCK_STREAM, 0);
    int fill[3];
    star.insecure = true;
    assert_true((bind(deaf, (struct sockaddr *)&at, bytes) == 0) && (listen(deaf, 0) == 0));
    assert_int_equal(getsockname(deaf, (struct sockaddr *)&at, &bytes), 0);
    for (size_t i = 0; i < LENGTH(fill); i++) {
        fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(fill[i], (struct sockaddr *)&at, bytes);
    }
    turns_open(3);
    tcp_world_end_close(&star, 0);
    UNTIL(seen[1].ended == 1);
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(at.sin_port));
    assert_int_equal(gf_rendezvous_tcp.reform(star.ends[1], now_ns, 2, address), GF_AGAIN);
    turn();
    now_ns += 19 * SECOND / 10;
    turn();
    assert_int_equal(seen[1].ended, 1);
    now_ns += SECOND / 5;
    turn();
    assert_int_equal(seen[1].ended, 1 | 4);
    assert_string_equal(seen[1].text, "its host does not answer");
    for (size_t i = 0; i < LENGTH(fill); i++) (void)close(fill[i]);
    (void)close(deaf);
}

TEST(the_end_of_a_connection_is_told)
{
    turns_open(3);
    assert_int_equal(gf_rendezvous_tcp.send(star.ends[2], 0, 9, "bye", 3), GF_OK);
    tcp_world_end_close(&star, 2);
    UNTIL(seen[0].ended != 0);
    assert_int_equal(seen[0].frames, 1); /* what it said last comes first */
    assert_int_equal(seen[0].ended, 4);
    assert_string_equal(seen[0].text, "connection closed by peer");
    assert_int_equal(gf_rendezvous_tcp.send(star.ends[0], 2, 1, NULL, 0), GF_ERR_PEER);
    assert_int_equal(gf_rendezvous_tcp.send(star.ends[0], 1, 1, NULL, 0), GF_OK);
    tcp_world_end_close(&star, 0);
    UNTIL(seen[1].ended != 0);
    assert_int_equal(seen[1].frames, 1);
}

/* Its host or its process may only be stopped; the kernel says once that it has given up, perhaps
 * to a send. */
TEST(an_end_that_takes_nothing_any_more_is_no_proof_of_a_death)
{
    static unsigned char payload[GF_FRAME_PAYLOAD_MAX];
    const struct timespec pause = {.tv_nsec = 10000000};
    const int given_up_ms = 20;
    struct gf_rendezvous_event event = {0};
    star.insecure = true;
    turns_open(2);
    for (int fd = 3; fd < 64; fd++)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &given_up_ms, sizeof given_up_ms);
    while (gf_rendezvous_tcp.send(star.ends[0], 1, 1, payload, sizeof payload) == GF_OK) {
    }
    for (int i = 0;
         (i < 1000) && (gf_rendezvous_tcp.poll(star.ends[0], now_ns, &event) == GF_AGAIN); i++)
        (void)nanosleep(&pause, NULL);
    assert_int_equal(event.kind, GF_RENDEZVOUS_ENDED);
    assert_string_equal(event.text, "connection lost: Connection timed out (errno 110)");
    assert_int_equal(event.end, GF_END_CUT);
}

static int sockets(void)
{
    int count = 0;
    int type;
    socklen_t bytes = sizeof type;
    for (int fd = 3; fd < 256; fd++)
        count += getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0;
    return count;
}

/* 1: another thread forks in the next shutdown(), this one in the place of libc's */
static int left;
int shutdown(int fd, int how)
{
    pid_t child = (left == 1) ? fork() : -1;
    if (child == 0) _exit(sockets());
    if (child > 0) (void)waitpid(child, &left, 0);
    return (int)syscall(SYS_shutdown, fd, how);
}

/* Else nobody would hear of this process's death, and its port would be taken, for as long as the
 * child lives. */
TEST(a_forked_child_has_no_socket_of_its_parents)
{
    star.insecure = true;
    turns_open(3);
    int stranger = stranger_at(star.address);
    turn();
    int before = sockets();
    pid_t child = fork();
    if (child == 0) _exit(close(stranger) + sockets());
    assert_int_equal(waitpid(child, &left, 0), child);
    /* the stranger and its other end, listeners, both ends of two connections */
    assert_true(before > 1 + 3 + 4);
    assert_int_equal(left, 0);
    assert_int_equal(sockets(), before);
    (void)close(stranger);
    assert_int_equal(gf_rendezvous_tcp.send(star.ends[2], 0, 9, "go on", 5), GF_OK);
    UNTIL(seen[0].frames == 1);
    left = 1;
    tcp_world_end_close(&star, 0);
    assert_int_equal(left, 0);
}

TEST(a_world_of_one_opens_nothing)
{
    struct gf_rendezvous_setup setup = tcp_setup(&star, 0, 1);
    setup.address = "no address at all";
    end_open(0, &setup);
    turn();
    assert_int_equal(seen[0].status, GF_AGAIN);
    assert_int_equal(gf_rendezvous_tcp.wake_fd(star.ends[0]), -1);
    assert_true(gf_rendezvous_tcp.flushed(star.ends[0]));
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

TEST(a_rank_that_differs_is_refused_with_both_values)
{
    for (size_t i = 0; i < LENGTH(refusals); i++) {
        const struct refusal_case *c = &refusals[i];
        world_clear_open();
        end_join(0, 0, 2);
        struct gf_rendezvous_setup setup = tcp_setup(&star, c->rank, c->size);
        setup.job_id = c->job_id;
        end_open(5, &setup);
        assert_refused(5, c->text);
        assert_int_equal(seen[0].refused, c->told);
        assert_int_equal(seen[0].connected, 0);
        end_join(1, 1, 2); /* the right one still gets in */
        UNTIL(seen[0].connected && seen[1].connected);
        tcp_world_close(&star);
    }
}

TEST(a_rank_that_is_there_already_is_refused)
{
    turns_open(3);
    struct gf_rendezvous_setup setup = tcp_setup(&star, 1, 3);
    end_open(7, &setup);
    assert_refused(7, "rank 1 is here already: was it started twice?");
    assert_int_equal(seen[0].refused, 0);
    assert_int_equal(seen[0].ended, 0);
    tcp_world_end_close(&star, 1);
    UNTIL(seen[0].ended == 2);
    end_open(8, &setup);
    assert_refused(8, "rank 1 was here and has gone");
}

static const struct setup_case {
    const char *name;
    const char *address, *bind;
    uint32_t rank;
    bool insecure;
    gf_status expect;
    const char *text;
} setups[] = {
    {"no_port", "127.0.0.1", "", 0, false, GF_ERR_CONFIG,
     "rendezvous.address '127.0.0.1': expected"},
    {"port_zero", "127.0.0.1:0", "", 1, false, GF_ERR_CONFIG, "port from 1 to 65535"},
    {"port_too_large", "127.0.0.1:65536", "", 0, false, GF_ERR_CONFIG, "port from 1 to 65535"},
    {"port_has_a_tail", "127.0.0.1:80x", "", 0, false, GF_ERR_CONFIG, "port from 1 to 65535"},
    {"a_name_is_not_numeric", "localhost:7117", "", 0, false, GF_ERR_CONFIG,
     "expected a numeric address"},
    {"ipv6_without_brackets", "::1:7117", "", 0, false, GF_ERR_CONFIG, "[fd00::1]:7117"},
    {"ipv4_in_brackets", "[127.0.0.1]:7117", "", 0, false, GF_ERR_CONFIG,
     "expected a numeric address"},
    {"empty", "", "", 0, false, GF_ERR_CONFIG, "rendezvous.address ''"},
    {"a_very_long_one", "1111111111111111111111111111111111111111111111111111111111111111111:1", "",
     0, false, GF_ERR_CONFIG, "rendezvous.address"},
    {"beyond_loopback", "0.0.0.0:7117", "", 0, false, GF_ERR_CONFIG, "rendezvous.insecure"},
    {"beyond_loopback_ipv6", "[::]:7117", "", 0, false, GF_ERR_CONFIG, "rendezvous.insecure"},
    {"bound_beyond_loopback", "127.0.0.1:7117", "0.0.0.0", 0, false, GF_ERR_CONFIG,
     "rendezvous.insecure"},
    {"bind_is_no_address", "127.0.0.1:7117", "eth0", 1, false, GF_ERR_CONFIG,
     "rendezvous.bind 'eth0'"},
    {"bind_of_another_family", "127.0.0.1:7117", "::1", 1, false, GF_ERR_CONFIG, "both to be IPv4"},
};

TEST(bad_setups_are_refused_by_name)
{
    for (size_t i = 0; i < LENGTH(setups); i++) {
        const struct setup_case *c = &setups[i];
        struct gf_fault fault = {0};
        world_clear();
        struct gf_rendezvous_setup setup = tcp_setup(&star, c->rank, 2);
        setup.address = c->address;
        setup.bind = c->bind;
        setup.insecure = c->insecure;
        gf_status status = tcp_world_end_open(&star, 0, &setup, now_ns, &fault);
        if ((status != c->expect) || (strstr(fault.text, c->text) == NULL)) {
            print_error("%s: %s\n", c->name, fault.text);
        }
        assert_int_equal(status, c->expect);
        assert_int_equal(fault.code, c->expect);
        assert_non_null(strstr(fault.text, c->text));
        tcp_world_close(&star);
    }
}

TEST(a_port_in_use_is_named)
{
    for (int insecure = 0; insecure < 2; insecure++) {
        struct gf_fault fault = {0};
        world_clear();
        star.insecure = (insecure == 1);
        struct gf_rendezvous_setup setup = tcp_setup(&star, 0, 2);
        end_open(0, &setup);
        assert_int_equal(tcp_world_end_open(&star, 1, &setup, now_ns, &fault), GF_ERR_SYSTEM);
        assert_int_equal(fault.foreign_code, EADDRINUSE);
        assert_string_equal(fault.foreign_call, "bind");
        assert_non_null(strstr(fault.text, star.address));
        tcp_world_close(&star);
    }
}

/* Ranks that may have to coordinate listen where they were told to, while there is room. */
TEST(ports_of_the_others_are_those_of_the_setup)
{
    static const char *const wrong[] = {"5000", "5000-",      "-5000",     "5001-5000",
                                        "0-10", "5000-65536", "5000-6000x"};
    char free_address[GF_TEXT_MAX];
    char ports[32];
    char address[GF_CONTROL_ADDRESS_BYTES];
    char taken[GF_CONTROL_ADDRESS_BYTES];
    const char *port;
    star.insecure = true;
    tcp_address_free(free_address, false);
    port = strrchr(free_address, ':') + 1;
    (void)snprintf(ports, sizeof ports, "%s-%s", port, port);
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct gf_rendezvous_setup setup = tcp_setup(&star, rank, 3);
        setup.ports = ports;
        if (rank == 2) UNTIL(seen[0].connected == 0x2); /* 1 has the port */
        end_open(rank, &setup);
    }
    turns_connect(3);
    gf_rendezvous_tcp.address(star.ends[1], address);
    gf_rendezvous_tcp.address(star.ends[2], taken);
    assert_string_equal(address, free_address);
    /* one port, and 1 has it: any other, and it says so */
    assert_true((taken[0] != 0) && (strcmp(taken, address) != 0));
    tcp_world_close(&star);
    for (size_t i = 0; i < LENGTH(wrong); i++) {
        struct gf_fault fault = {0};
        world_clear();
        struct gf_rendezvous_setup setup = tcp_setup(&star, 1, 2);
        setup.ports = wrong[i];
        assert_int_equal(tcp_world_end_open(&star, 0, &setup, now_ns, &fault), GF_ERR_CONFIG);
        assert_non_null(strstr(fault.text, "rendezvous.ports"));
        tcp_world_close(&star);
    }
}

TEST_EACH(world_clear, world_end)
TEST_AROUND(keys_setup, keys_teardown)
