/* The control channel over sockets: the coordinator's end and members' in one thread, time made by
 * the test.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "drivers/base/address.h"
#include "firmware-tests/support/channel_hub.h"
#include "firmware-tests/support/tcp_keys.h"
#include "firmware-tests/support/tcp_middle.h"

#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- frames ---- */

TEST(frames_travel_both_ways)
{
    for (int way = 0; way < 4; way++) { /* IPv4, IPv6, with a key, by name */
        static unsigned char payload[GF_CHANNEL_PAYLOAD_MAX];
        hub_clear();
        hub.insecure = (way < 2);
        hub_address_free(hub.address, way == 1);
        if (hub.address[0] == 0) continue; /* no IPv6 on this machine */
        if (way == 2) hub.key_file = key_a;
        hub_join(4);
        for (uint32_t bytes = 0; bytes <= sizeof payload; bytes += 1024) {
            for (uint32_t slot = 1; slot < 5; slot++) {
                uint32_t before_0 = heard[0].frames;
                uint32_t before = heard[slot].frames;
                for (uint32_t i = 0; i < bytes; i++)
                    payload[i] = (unsigned char)(i + slot + bytes / 7);
                assert_int_equal(gf_channel_tcp.send(hub.ends[slot], 0, 40 + slot, payload, bytes),
                                 GF_OK);
                HUB_UNTIL(heard[0].frames == before_0 + 1);
                assert_int_equal(heard[0].last_kind, 40 + slot);
                assert_int_equal(heard[0].last_bytes, bytes);
                assert_memory_equal(heard[0].last, payload, bytes);
                /* the answer goes to who asked */
                assert_int_equal(gf_channel_tcp.send(hub.ends[0], heard[0].connection, 50 + slot,
                                                     payload, bytes),
                                 GF_OK);
                HUB_UNTIL(heard[slot].frames == before + 1);
                assert_int_equal(heard[slot].last_kind, 50 + slot);
                assert_memory_equal(heard[slot].last, payload, bytes);
                assert_true(gf_channel_tcp.flushed(hub.ends[slot]));
            }
        }
        assert_int_equal(heard[0].ended, 0);
        assert_int_equal(gf_channel_tcp.send(hub.ends[0], 20, 1, payload, 0), GF_ERR_PEER);
        assert_int_equal(gf_channel_tcp.send(hub.ends[0], 99, 1, payload, 0), GF_ERR_PEER);
        hub_end();
    }
}

TEST(a_full_channel_says_so_and_loses_nothing)
{
    for (uint32_t row = 0; row < 4; row++) { /* both ways, without a key and with one */
        const uint32_t from = row % 2;
        const uint32_t to = 1 - from;
        static unsigned char payload[GF_CHANNEL_PAYLOAD_MAX];
        uint32_t sent = 0;
        hub_clear();
        if (row >= 2) hub.key_file = key_a;
        hub_join(1);
        gf_status status = GF_OK;
        for (; sent < 100000; sent++) { /* nobody reads */
            memset(payload, (int)(sent & 0xff), sizeof payload);
            status = gf_channel_tcp.send(hub.ends[from], 0, sent + 1, payload,
                                         (uint32_t)sizeof payload - sent % 50);
            if (status != GF_OK) break;
        }
        assert_int_equal(status, GF_FULL);
        assert_true(sent > 4);
        assert_false(gf_channel_tcp.flushed(hub.ends[from]));
        for (uint32_t i = 0; i < sent; i++) HUB_UNTIL(heard[to].frames > i); /* in order, whole */
        assert_int_equal(heard[to].frames, sent);
        assert_int_equal(heard[to].last_kind, sent);
        memset(payload, (int)((sent - 1) & 0xff), sizeof payload);
        assert_int_equal(heard[to].last_bytes, sizeof payload - (sent - 1) % 50);
        assert_memory_equal(heard[to].last, payload, heard[to].last_bytes);
        assert_true(gf_channel_tcp.flushed(hub.ends[from]));
        assert_int_equal(gf_channel_tcp.send(hub.ends[from], 0, 1, payload, sizeof payload), GF_OK);
        HUB_UNTIL(heard[to].frames == sent + 1);
        hub_end();
    }
}

/* Of members that always have another frame under way, none keeps the others out. */
TEST(no_member_that_talks_keeps_another_from_being_heard)
{
    for (uint32_t members = 2; members <= 4; members += 2) {
        uint32_t of[HUB_CONNECTIONS_MAX] = {0};
        const uint32_t turns = 400 * members;
        hub_clear();
        hub_join(members);
        for (uint32_t turn = 0; turn < turns; turn++) {
            struct gf_channel_event event;
            for (uint32_t m = 1; m <= members; m++) {
                (void)gf_channel_tcp.poll(hub.ends[m], hub_now_ns, &event);
                for (int i = 0; i < 2; i++) (void)gf_channel_tcp.send(hub.ends[m], 0, m, "talk", 4);
            }
            hub_now_ns += HUB_MS;
            if (gf_channel_tcp.poll(hub.ends[0], hub_now_ns, &event) &&
                (event.kind == GF_CHANNEL_FRAME))
                of[event.frame_kind]++;
        }
        for (uint32_t m = 1; m <= members; m++) assert_true(of[m] > 300);
        hub_end();
    }
}

static int refuse_sends; /* so many send() find the host without memory for them .. */
static int refuse_error; /* .. and say this */

/* In place of libc's. */
ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    if (refuse_sends > 0) {
        refuse_sends--;
        errno = refuse_error;
        return -1;
    }
    return sendto(fd, data, bytes, flags, NULL, 0);
}

/* At a unix socket the host, or the control group, may lack memory for a moment: what was taken
 * arrives all the same, and nobody else's frame is needed for it. */
TEST(a_send_that_the_host_has_no_memory_for_is_repeated_or_told)
{
    static const int errors[] = {ENOBUFS, ENOMEM};
    for (uint32_t row = 0; row < 2 * LENGTH(errors); row++) {
        const uint32_t from = row % 2;
        const uint32_t to = 1 - from;
        hub_clear();
        hub_join(1);
        struct pollfd wake = {.fd = gf_channel_tcp.wake_fd(hub.ends[from]), .events = POLLIN};
        for (int i = 0; i < 100; i++) hub_turn();
        refuse_sends = 3;
        refuse_error = errors[row / 2];
        assert_int_equal(gf_channel_tcp.send(hub.ends[from], 0, 7, "word", 4), GF_OK);
        assert_false(gf_channel_tcp.flushed(hub.ends[from]));
        assert_int_equal(poll(&wake, 1, 1000), 1); /* a sleeper is woken for it */
        for (int i = 0; (i < 1000) && (heard[to].frames == 0); i++) hub_turn();
        refuse_sends = 0;
        assert_int_equal(heard[to].frames, 1);
        assert_int_equal(heard[to].last_kind, 7);
        assert_true(gf_channel_tcp.flushed(hub.ends[from]));
        assert_int_equal(heard[from].ended + heard[to].ended, 0);
        hub_end();
    }
}

TEST(the_wake_descriptor_is_readable_when_there_is_something)
{
    hub_join(1);
    struct pollfd wake = {.fd = gf_channel_tcp.wake_fd(hub.ends[0]), .events = POLLIN};
    hub_turn();
    assert_int_equal(poll(&wake, 1, 0), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(gf_channel_tcp.send(hub.ends[1], 0, 1, NULL, 0), GF_OK);
    for (int i = 0; i < 3; i++) { /* one event a poll; it stays readable until the last is taken */
        struct gf_channel_event event;
        assert_int_equal(poll(&wake, 1, 10000), 1);
        assert_true(gf_channel_tcp.poll(hub.ends[0], hub_now_ns, &event));
    }
    assert_int_equal(poll(&wake, 1, 0), 0);
}

/* ---- coming and going ---- */

/* "Refused" before anybody was met is no death: the launcher has not begun it yet. */
TEST(a_coordinator_that_comes_late_is_found)
{
    struct gf_channel_setup setup = hub_setup(true);
    for (uint32_t slot = 1; slot < 4; slot++) hub_member(slot);
    for (int i = 0; i < 5000; i++) hub_turn(); /* half a second of being refused */
    for (uint32_t slot = 1; slot < 4; slot++) {
        assert_int_equal(heard[slot].connected, 0);
        assert_true(heard[slot].ended > 3);
        assert_int_equal(heard[slot].end, GF_CHANNEL_BROKE);
        assert_non_null(strstr(heard[slot].text, hub.address));
        assert_non_null(strstr(heard[slot].text, "Connection refused (errno 111)"));
        assert_non_null(strstr(heard[slot].text, "does the coordinator run here?"));
    }
    hub_open(0, &setup);
    for (uint32_t slot = 1; slot < 4; slot++) HUB_UNTIL(heard[slot].up == 1);
}

TEST(a_process_that_closes_its_end_has_not_died)
{
    for (int way = 0; way < 2; way++) {
        hub_clear();
        hub.insecure = (way == 0);
        hub_join(2);
        assert_int_equal(gf_channel_tcp.send(hub.ends[2], 0, 9, "bye", 3), GF_OK);
        hub_close(2);
        HUB_UNTIL(heard[0].ended == 1);
        assert_int_equal(heard[0].frames, 1); /* what it said last comes first */
        assert_int_equal(heard[0].end, GF_CHANNEL_CLOSED);
        uint32_t gone = heard[0].connection;
        assert_int_equal(gf_channel_tcp.send(hub.ends[0], gone, 1, NULL, 0), GF_ERR_PEER);
        hub_close(0);
        HUB_UNTIL(heard[1].ended == 1);
        assert_int_equal(heard[1].end, GF_CHANNEL_CLOSED);
        hub_end();
    }
}

/* The last words leave before the connection does, also where the kernel has no room for them at
 * once, and its number is free again. */
TEST(a_connection_that_is_dropped_says_all_that_was_sent)
{
    static unsigned char payload[GF_CHANNEL_PAYLOAD_MAX];
    hub.connections_max = 2;
    hub_join(2);
    uint32_t sent = 0;
    while (gf_channel_tcp.send(hub.ends[0], 1, 3, payload, sizeof payload) == GF_OK) sent++;
    gf_channel_tcp.drop(hub.ends[0], 1);
    assert_int_equal(gf_channel_tcp.send(hub.ends[0], 1, 3, payload, 1), GF_ERR_PEER);
    uint32_t slot = 0;
    for (uint32_t i = 0; i < 30000; i++) hub_turn();
    for (uint32_t i = 1; i < 3; i++)
        if (heard[i].frames > 0) slot = i;
    assert_int_equal(heard[slot].frames, sent);
    assert_int_equal(heard[slot].end, GF_CHANNEL_CLOSED);
    assert_int_equal(heard[0].ended, 0);        /* this end has done it */
    assert_int_equal(heard[slot].connected, 2); /* it dialled again, and there was room */
    assert_int_equal(heard[0].up, 3);
}

/* Else one whose reply waits for a process that has stopped would keep others out. */
TEST(a_connection_that_leaves_gives_way_where_all_numbers_are_taken)
{
    static unsigned char payload[GF_CHANNEL_PAYLOAD_MAX];
    hub.connections_max = 1;
    hub_join(1);
    while (gf_channel_tcp.send(hub.ends[0], 0, 3, payload, sizeof payload) == GF_OK) {
    }
    struct gf_channel *stopped = hub.ends[1];
    hub.ends[1] = NULL;
    gf_channel_tcp.drop(hub.ends[0], 0);
    hub_member(2);
    HUB_UNTIL(heard[2].up == 1);
    hub.ends[1] = stopped;
}

TEST(no_more_come_in_than_there_are_numbers)
{
    hub.connections_max = 2;
    hub_join(2);
    for (uint32_t i = 1; i < 3; i++)
        assert_int_equal(gf_channel_tcp.send(hub.ends[i], 0, 1, "", 0), GF_OK);
    HUB_UNTIL(heard[0].frames == 2);
    hub_member(3);
    for (int i = 0; i < 3000; i++) hub_turn();
    assert_int_equal(heard[0].connected, 2);
    assert_non_null(strstr(hub_logged, "2 connections are open, and no more are taken"));
    hub_close(1);
    HUB_UNTIL(heard[3].up == 1);
}

/* Who comes in and then says nothing can keep nobody out. */
TEST(whoever_says_nothing_gives_way_where_all_numbers_are_taken)
{
    hub.connections_max = 3;
    hub_join(3);
    assert_int_equal(gf_channel_tcp.send(hub.ends[1], 0, 1, "", 0), GF_OK);
    HUB_UNTIL(heard[0].frames == 1);
    hub_member(4);
    HUB_UNTIL(heard[4].up == 1);
    assert_int_equal(gf_channel_tcp.send(hub.ends[4], 0, 1, "", 0), GF_OK);
    HUB_UNTIL(heard[0].frames == 2);
    for (int i = 0; i < 1000; i++) hub_turn(); /* the silent ones come again and again */
    assert_int_equal(heard[1].ended + heard[4].ended, 0);
    assert_true(heard[2].ended + heard[3].ended > 0);
    assert_int_equal(heard[2].end, GF_CHANNEL_BROKE);
}

/* ---- what ends of connections say ---- */

/* Its host or its process may only be stopped; the kernel says once that it has given up, perhaps
 * to a send. */
TEST(an_end_that_takes_nothing_any_more_is_no_proof_of_a_death)
{
    static unsigned char payload[GF_CHANNEL_PAYLOAD_MAX];
    const struct timespec pause = {.tv_nsec = 10000000};
    const int given_up_ms = 20;
    struct gf_channel_event event = {0};
    hub.insecure = true;
    hub_join(1);
    for (int fd = 3; fd < 64; fd++)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &given_up_ms, sizeof given_up_ms);
    while (gf_channel_tcp.send(hub.ends[0], 0, 1, payload, sizeof payload) == GF_OK) {
    }
    for (int i = 0; (i < 1000) && !gf_channel_tcp.poll(hub.ends[0], hub_now_ns, &event); i++)
        (void)nanosleep(&pause, NULL);
    assert_int_equal(event.kind, GF_CHANNEL_ENDED);
    assert_string_equal(event.text, "connection lost: Connection timed out (errno 110)");
    assert_int_equal(event.end, GF_CHANNEL_BROKE);
}

/* ---- processes that end ---- */

static int real_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int)(now.tv_sec * 1000 + now.tv_nsec / 1000000);
}

/* What a process of its own does with an end of the channel, of that kind, until it is killed. */
enum habit {
    TALKS,   /* it polls, and says a word each 20 ms */
    DEAF,    /* it says a word each 20 ms, and reads nothing */
    PAUSES,  /* likewise, but the third word comes after 1.2 s */
    COMPUTES /* it does neither, after it has connected */
};
#define PAUSE_MS 1200
#define SAYS_MS 20

static void live(bool listens, enum habit habit)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    uint32_t connection = UINT32_MAX;
    int said_ms = 0;
    uint32_t words = 0;
    for (uint32_t slot = 0; slot < HUB_ENDS_MAX; slot++) hub.ends[slot] = NULL; /* the parent's */
    struct gf_channel_setup setup = hub_setup(listens);
    hub_open(1, &setup);
    if (!listens) gf_channel_tcp.dial(hub.ends[1], hub_now_ns);
    for (;;) {
        struct gf_channel_event event = {0};
        hub_now_ns += 2 * HUB_MS;
        while (((connection == UINT32_MAX) || (habit == TALKS)) &&
               gf_channel_tcp.poll(hub.ends[1], hub_now_ns, &event)) {
            if (event.kind == GF_CHANNEL_CONNECTED) connection = event.connection;
            if ((event.kind == GF_CHANNEL_ENDED) && !listens)
                gf_channel_tcp.dial(hub.ends[1], hub_now_ns);
        }
        int rest_ms = ((habit == PAUSES) && (words == 2)) ? PAUSE_MS : SAYS_MS;
        if ((connection != UINT32_MAX) && (habit != COMPUTES) && (real_ms() - said_ms >= rest_ms)) {
            (void)gf_channel_tcp.send(hub.ends[1], connection, 7, "x", 1);
            words++;
            said_ms = real_ms();
        }
        (void)nanosleep(&pause, NULL);
    }
}

static pid_t process_begin(bool listens, enum habit habit)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) live(listens, habit);
    return child;
}

static void process_kill(pid_t child)
{
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* In real time, as another process polls too. */
static void pass(int ms)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int begin_ms = real_ms(); real_ms() - begin_ms < ms;) {
        hub_now_ns += HUB_MS;
        hub_turn();
        (void)nanosleep(&pause, NULL);
    }
}

static void until_real(const uint32_t *counter, uint32_t value)
{
    for (int begin_ms = real_ms(); *counter < value;) {
        if (real_ms() - begin_ms > 20000) fail_msg("%u never became %u", *counter, value);
        pass(2);
    }
}

static const struct death_case {
    const char *name;
    bool insecure, coordinator_dies;
    enum habit habit;
    bool unread;  /* words to it lie in its kernel, unread, which then resets the connection */
    int quiet_ms; /* so long nothing came from it */
    gf_channel_end end;
} deaths[] = {
    {"a_member_by_name", false, false, TALKS, false, 0, GF_CHANNEL_DIED},
    {"a_member_at_a_port", true, false, TALKS, false, 0, GF_CHANNEL_DIED},
    {"with_unread_words_by_name", false, false, COMPUTES, true, 0, GF_CHANNEL_DIED},
    /* a kernel that has given the connection up would say the same */
    {"with_unread_words_a_moment_ago", true, false, DEAF, true, 0, GF_CHANNEL_RESET},
    {"with_unread_words_after_silence", true, false, COMPUTES, true, 700, GF_CHANNEL_RESET},
    {"with_unread_words_and_a_word_after_silence", true, false, PAUSES, true, 0, GF_CHANNEL_RESET},
    {"the_coordinator_by_name", false, true, TALKS, false, 0, GF_CHANNEL_DIED},
    {"the_coordinator_at_a_port", true, true, TALKS, false, 0, GF_CHANNEL_DIED},
};

TEST(a_process_that_is_killed_has_died)
{
    for (size_t i = 0; i < LENGTH(deaths); i++) {
        const struct death_case *c = &deaths[i];
        uint32_t own = c->coordinator_dies ? 1 : 0;
        hub_clear();
        hub.insecure = c->insecure;
        pid_t child = process_begin(c->coordinator_dies, c->habit);
        struct gf_channel_setup setup = hub_setup(!c->coordinator_dies);
        if (c->habit == PAUSES) setup.keepalive_ns = HUB_SECOND;
        hub_open(own, &setup);
        until_real(&heard[own].connected, 1);
        if (c->habit != COMPUTES) until_real(&heard[own].frames, 2);
        uint32_t ended = heard[own].ended; /* a member may have been refused before */
        for (int k = 0; c->unread && (k < 3); k++)
            assert_int_equal(gf_channel_tcp.send(hub.ends[own], 0, 1, "unread", 6), GF_OK);
        if (c->habit == PAUSES) until_real(&heard[own].frames, 3);
        pass(10 + c->quiet_ms);
        process_kill(child);
        until_real(&heard[own].ended, ended + 1);
        if (heard[own].end != c->end) print_error("%s: %s\n", c->name, heard[own].text);
        assert_int_equal(heard[own].end, c->end);
        if (c->coordinator_dies) { /* nor is it there when it is dialled again */
            until_real(&heard[own].ended, ended + 2);
            assert_int_equal(heard[own].end, GF_CHANNEL_DIED);
            assert_non_null(strstr(heard[own].text, "Connection refused (errno 111)"));
        }
        hub_end();
    }
}

/* ---- hosts that fall silent ---- */

/* All that comes to these sockets from here on is lost: a filter in the kernel takes it. */
static int cut_off(int from_fd, int to_fd)
{
    struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
    const struct sock_fprog filter = {.len = 1, .filter = &nothing};
    int count = 0;
    for (int fd = from_fd; fd < to_fd; fd++) {
        if (gf_fd_listens(fd)) continue;
        count += setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0;
    }
    return count;
}

/* Nothing comes to the coordinator's end, of a member that says nothing either: each end finds it
 * out by itself. keepalive is 2 s, the shortest that the kernel counts by probes. */
TEST(both_ends_of_a_half_open_connection_end_within_keepalive)
{
    hub.insecure = true;
    struct gf_channel_setup setup = hub_setup(true);
    setup.keepalive_ns = 2 * HUB_SECOND;
    hub_open(0, &setup);
    setup.listens = false;
    setup.connections_max = 1;
    hub_open(1, &setup);
    HUB_UNTIL((heard[0].up == 1) && (heard[1].up == 1));
    assert_true(cut_off(3, 64) == 2);
    int begin_ms = real_ms();
    until_real(&heard[0].ended, 1);
    assert_int_equal(heard[0].end, GF_CHANNEL_BROKE);
    uint32_t before = heard[1].ended;
    until_real(&heard[1].ended, (before > 1) ? before : 1);
    assert_int_equal(heard[1].end, GF_CHANNEL_BROKE);
    int took_ms = real_ms() - begin_ms;
    if (took_ms > 2600) print_error("%d ms\n", took_ms);
    assert_true(took_ms <= 2600);
    /* and the member comes in again */
    until_real(&heard[1].connected, 2);
}

/* ---- forks ---- */

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
    hub.insecure = true;
    hub_join(2);
    int stranger = stranger_at(hub.address);
    hub_turn();
    int before = sockets();
    pid_t child = fork();
    if (child == 0) _exit(close(stranger) + sockets());
    assert_int_equal(waitpid(child, &left, 0), child);
    /* the stranger and its other end, the listener, both ends of two connections */
    assert_true(before >= 2 + 1 + 4);
    assert_int_equal(left, 0);
    assert_int_equal(sockets(), before);
    (void)close(stranger);
    assert_int_equal(gf_channel_tcp.send(hub.ends[2], 0, 9, "go on", 5), GF_OK);
    HUB_UNTIL(heard[0].frames == 1);
    left = 1;
    hub_close(0);
    assert_int_equal(left, 0);
}

/* ---- setups ---- */

static const struct setup_case {
    const char *name;
    const char *address, *bind;
    uint32_t rank; /* 0: the coordinator's end */
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
        hub_clear();
        struct gf_channel_setup setup = hub_setup(c->rank == 0);
        setup.address = c->address;
        setup.bind = c->bind;
        setup.insecure = c->insecure;
        gf_status status = hub_open_try(0, &setup, &fault);
        if ((status != c->expect) || (strstr(fault.text, c->text) == NULL)) {
            print_error("%s: %s\n", c->name, fault.text);
        }
        assert_int_equal(status, c->expect);
        assert_int_equal(fault.code, c->expect);
        assert_non_null(strstr(fault.text, c->text));
        hub_end();
    }
}

TEST_AROUND(keys_setup, keys_teardown)
TEST_EACH(hub_clear, hub_end)
