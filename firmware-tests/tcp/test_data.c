/* The socket link's connections as they are made: ranks of a generation get proven descriptors at
 * both ends, and nobody else gets one. Ends in one thread on loopback, time made by the test.
 * suite: slow */
#include "drivers/tcp/data_state.h"
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/tcp_keys.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENDS 4u
#define STREAMS 2u

static const struct gf_addr anywhere;

/* What one end has been given. */
static struct end {
    struct gf_data *data; /* NULL: not open */
    struct gf_link_setup setup;
    int fds[ENDS][STREAMS]; /* -1: none */
    uint32_t connected;
    unsigned char secret[GF_DATA_SECRET_BYTES];
    struct gf_addr addr;
} ends[ENDS];
static uint32_t world;

static void end_connected(void *user, uint32_t peer, uint32_t stream, int fd)
{
    struct end *end = user;
    assert_true((peer < ENDS) && (stream < STREAMS) && (fd >= 0));
    assert_int_equal(end->fds[peer][stream], -1);
    end->fds[peer][stream] = fd;
    end->connected++;
}

static bool end_has(void *user, uint32_t peer, uint32_t stream)
{
    return ((const struct end *)user)->fds[peer][stream] >= 0;
}

static void log_keep(void *user, gf_log_level level, const char *line)
{
    size_t used = strlen(hub_logged);
    (void)snprintf(hub_logged + used, sizeof hub_logged - used, "%s\n", line);
}

static struct gf_data_taker takers[ENDS];

static gf_status begin_try(uint32_t rank, uint32_t generation)
{
    struct end *end = &ends[rank];
    for (uint32_t p = 0; p < ENDS; p++) {
        for (uint32_t s = 0; s < STREAMS; s++) end->fds[p][s] = -1;
    }
    end->connected = 0;
    takers[rank] = (struct gf_data_taker){end, end_connected, end_has};
    return gf_data_begin(end->data, generation, rank, world, &takers[rank], end->secret,
                         &end->addr);
}

static void data_begin(uint32_t rank, uint32_t generation)
{
    assert_int_equal(begin_try(rank, generation), GF_OK);
}

static void end_open(uint32_t rank)
{
    struct end *end = &ends[rank];
    end->setup = (struct gf_link_setup){.rank = rank,
                                        .world = world,
                                        .ranks_max = ENDS,
                                        .key_file = hub.key_file,
                                        .job_id = 4711,
                                        .address = hub.address,
                                        .keepalive_ns = UINT64_C(5000000000),
                                        .log = {.fn = log_keep},
                                        .streams = STREAMS};
    size_t bytes = gf_data_state_bytes(&end->setup);
    end->data = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    assert_non_null(end->data);
    memset(end->data, 0xa5, bytes);
    gf_data_init(end->data, &end->setup);
}

static void ends_turn(void)
{
    for (uint32_t r = 0; r < ENDS; r++)
        if (ends[r].data != NULL) assert_int_equal(gf_data_poll(ends[r].data, hub_now_ns), GF_OK);
}

static gf_status data_dial(uint32_t from, uint32_t to, uint32_t stream)
{
    return gf_data_dial(ends[from].data, hub_now_ns, to, stream, ends[to].secret, &ends[to].addr,
                        &anywhere);
}

static void data_world(uint32_t size, bool with_key)
{
    hub_clear();
    hub_turn_too = ends_turn;
    hub.key_file = with_key ? key_a : "";
    world = size;
    for (uint32_t r = 0; r < size; r++) {
        end_open(r);
        data_begin(r, 1);
    }
}

static void data_close(void)
{
    for (uint32_t r = 0; r < ENDS; r++) {
        if (ends[r].data == NULL) continue;
        for (uint32_t p = 0; p < ENDS; p++) {
            for (uint32_t s = 0; s < STREAMS; s++) {
                if (ends[r].fds[p][s] >= 0) (void)close(ends[r].fds[p][s]);
                ends[r].fds[p][s] = -1;
            }
        }
        gf_data_close(ends[r].data);
        free(ends[r].data);
        ends[r].data = NULL;
    }
    hub_turn_too = NULL;
}

/* What is written at one end is read at the other, and nothing came before it. */
static void assert_pair(uint32_t a, uint32_t b, uint32_t stream)
{
    unsigned char word[8];
    uint64_t told = (uint64_t)a * 1000 + b * 10 + stream;
    int from = ends[a].fds[b][stream];
    int to = ends[b].fds[a][stream];
    assert_true((from >= 0) && (to >= 0));
    assert_int_equal(send(from, &told, sizeof told, MSG_NOSIGNAL), sizeof told);
    assert_int_equal(recv(to, word, sizeof word, MSG_WAITALL), sizeof word);
    assert_memory_equal(word, &told, sizeof told);
    assert_int_equal(recv(to, word, sizeof word, MSG_DONTWAIT), -1);
}

/* A try of rank 0 that failed spoils no later one: the next to rank 1 connects. Ends a row. */
static void next_try_connects(void)
{
    gf_data_end(ends[0].data);
    data_begin(0, 1);
    assert_int_equal(data_dial(0, 1, 0), GF_OK);
    HUB_UNTIL((ends[0].connected == 1) && (ends[1].connected == 1));
    assert_pair(0, 1, 0);
    data_close();
}

TEST(both_ends_get_a_proven_connection)
{
    for (int key = 0; key < 2; key++) {
        data_world(ENDS, key == 1);
        for (uint32_t a = 0; a < ENDS; a++) {
            for (uint32_t b = a + 1; b < ENDS; b++) {
                for (uint32_t s = 0; s < STREAMS; s++) assert_int_equal(data_dial(a, b, s), GF_OK);
            }
        }
        const uint32_t wanted = (ENDS - 1) * STREAMS;
        HUB_UNTIL((ends[0].connected == wanted) && (ends[1].connected == wanted) &&
                  (ends[2].connected == wanted) && (ends[3].connected == wanted));
        for (uint32_t a = 0; a < ENDS; a++) {
            for (uint32_t b = 0; b < ENDS; b++) {
                for (uint32_t s = 0; (a != b) && (s < STREAMS); s++) assert_pair(a, b, s);
            }
        }
        data_close();
    }
}

/* A connection that comes beside those for which no descriptor is left shows no recovery. */
TEST(what_a_rank_lacks_is_forgotten_once_connections_come_for_a_second)
{
    data_world(2, false);
    ends[1].data->handshake.lacks = EMFILE;
    ends[1].data->handshake.lacked_ns = hub_now_ns;
    assert_int_equal(data_dial(0, 1, 0), GF_OK);
    HUB_UNTIL((ends[0].connected == 1) && (ends[1].connected == 1));
    assert_int_equal(gf_data_lacks(ends[1].data), EMFILE);
    hub_now_ns += HUB_SECOND;
    assert_int_equal(data_dial(1, 0, 1), GF_OK);
    HUB_UNTIL((ends[0].connected == 2) && (ends[1].connected == 2));
    assert_int_equal(gf_data_lacks(ends[1].data), 0);
    data_close();
}

/* Its rank may compute for long, with the kernel's buffers full: no timeout of the
 * kernel runs then. */
TEST(a_connection_whose_rank_does_not_read_stays)
{
    data_world(2, false);
    assert_int_equal(data_dial(0, 1, 0), GF_OK);
    HUB_UNTIL((ends[0].connected == 1) && (ends[1].connected == 1));
    for (uint32_t r = 0; r < 2; r++) {
        int timeout_ms = -1;
        socklen_t bytes = sizeof timeout_ms;
        assert_int_equal(
            getsockopt(ends[r].fds[1 - r][0], IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, &bytes),
            0);
        assert_int_equal(timeout_ms, 0);
        int keepalive =
            0; /* nor is a host that is silent while nothing is under way kept for ever */
        bytes = sizeof keepalive;
        assert_int_equal(
            getsockopt(ends[r].fds[1 - r][0], SOL_SOCKET, SO_KEEPALIVE, &keepalive, &bytes), 0);
        assert_int_equal(keepalive, 1);
    }
    data_close();
}

TEST(of_two_that_dial_each_other_one_connection_stays)
{
    for (int round = 0; round < 40; round++) {
        data_world(2, round % 2 == 1);
        const uint32_t first = (uint32_t)round / 2 % 2;
        assert_int_equal(data_dial(first, 1 - first, 0), GF_OK);
        assert_int_equal(data_dial(1 - first, first, 0), GF_OK);
        for (int i = 0; i < round / 4 % 5; i++) /* one of them is ahead, and then the other */
            assert_int_equal(gf_data_poll(ends[round / 20].data, hub_now_ns), GF_OK);
        HUB_UNTIL((ends[0].connected == 1) && (ends[1].connected == 1));
        for (int i = 0; i < 50; i++) hub_turn();
        assert_pair(0, 1, 0);
        assert_pair(1, 0, 0);
        data_close();
    }
}

/* Where a network passes one direction only, the higher rank's dial is the one that comes through:
 * the lower rank's own, which is refused or not answered, keeps it out for no moment. */
TEST(a_rank_whose_own_dial_fails_takes_the_others)
{
    for (int silent = 0; silent < 2; silent++) {
        struct gf_addr nobody;
        struct gf_fault fault = {0};
        int listener = -1;
        data_world(2, false);
        assert_true(gf_addr_parse("127.0.0.1:1", true, &nobody));
        if (silent) {
            nobody.port = 0;
            listener = gf_socket_listen(&nobody, "a trap", &fault);
            assert_true((listener >= 0) && gf_addr_of_fd(listener, false, &nobody));
        }
        assert_int_equal(
            gf_data_dial(ends[0].data, hub_now_ns, 1, 0, ends[1].secret, &nobody, &anywhere),
            GF_OK);
        assert_int_equal(data_dial(1, 0, 0), GF_OK);
        for (int i = 0; (i < 20000) && (ends[1].connected == 0); i++) hub_turn();
        assert_int_equal(ends[0].connected, 1);
        assert_int_equal(ends[1].connected, 1);
        assert_pair(0, 1, 0);
        if (silent) (void)close(listener);
        data_close();
    }
}

TEST(a_stream_that_is_here_is_refused_a_second_time)
{
    data_world(2, false);
    assert_int_equal(data_dial(0, 1, 0), GF_OK);
    HUB_UNTIL((ends[0].connected == 1) && (ends[1].connected == 1));
    assert_int_equal(data_dial(1, 0, 0), GF_OK);
    HUB_UNTIL(strstr(gf_data_text(ends[1].data, 0), "here already") != NULL);
    assert_pair(0, 1, 0);
    data_close();
}

/* Whoever has another secret, generation or number is not let in; whoever is right still is. */
static const struct refused_case {
    const char *name;
    bool secret;         /* another one, as of an earlier generation */
    uint32_t generation; /* that the dialling end is in */
    uint32_t to;         /* whom it means */
} refused[] = {
    {"another_secret", true, 1, 1},
    {"another_generation", false, 2, 1},
    {"another_rank", false, 1, 2},
};

TEST(who_does_not_belong_to_the_generation_is_refused)
{
    for (size_t i = 0; i < LENGTH(refused); i++) {
        for (int key = 0; key < 2; key++) {
            unsigned char secret[GF_DATA_SECRET_BYTES];
            data_world(3, key == 1);
            if (refused[i].generation != 1) data_begin(0, refused[i].generation);
            memcpy(secret, ends[1].secret, sizeof secret);
            if (refused[i].secret) secret[5] ^= 1;
            assert_int_equal(gf_data_dial(ends[0].data, hub_now_ns, refused[i].to, 0, secret,
                                          &ends[1].addr, &anywhere),
                             GF_OK);
            HUB_UNTIL(gf_data_text(ends[0].data, refused[i].to)[0] != 0);
            for (int t = 0; t < 200; t++) hub_turn();
            assert_int_equal(ends[0].connected + ends[1].connected, 0);
            next_try_connects();
        }
    }
}

TEST(a_later_generation_refuses_the_former_member)
{
    unsigned char former[GF_DATA_SECRET_BYTES];
    data_world(2, true);
    memcpy(former, ends[1].secret, sizeof former);
    data_begin(1, 2);
    assert_memory_not_equal(former, ends[1].secret, sizeof former);
    data_begin(0, 2); /* it has learned the number, not the secret */
    assert_int_equal(gf_data_dial(ends[0].data, hub_now_ns, 1, 0, former, &ends[1].addr, &anywhere),
                     GF_OK);
    HUB_UNTIL(strstr(hub_logged, "did not prove that it is of this job") != NULL);
    assert_int_equal(ends[1].connected, 0);
    data_close();
}

/* A link that has several devices: each address has the one port. */
TEST(each_named_address_takes_connections)
{
    static const char *const named[STREAMS] = {"127.0.0.2", "127.0.0.3"};
    hub.key_file = key_a;
    hub_turn_too = ends_turn;
    world = 2;
    for (uint32_t r = 0; r < 2; r++) {
        end_open(r);
        for (uint32_t s = 0; s < STREAMS; s++)
            assert_true(gf_addr_parse(named[s], false, &ends[r].setup.data_addrs[s]));
        data_begin(r, 1);
    }
    for (uint32_t s = 0; s < STREAMS; s++) {
        struct gf_addr to;
        struct gf_addr from;
        assert_true(gf_addr_parse(named[s], false, &to) && gf_addr_parse(named[s], false, &from));
        to.port = ends[1].addr.port;
        assert_int_equal(gf_data_dial(ends[0].data, hub_now_ns, 1, s, ends[1].secret, &to, &from),
                         GF_OK);
    }
    HUB_UNTIL((ends[0].connected == STREAMS) && (ends[1].connected == STREAMS));
    for (uint32_t s = 0; s < STREAMS; s++) {
        struct gf_addr to;
        struct gf_addr at[2];
        assert_true(gf_addr_parse(named[s], false, &to));
        for (int peer = 0; peer < 2; peer++) {
            assert_true(gf_addr_of_fd(ends[1].fds[0][s], peer == 1, &at[peer]));
            assert_memory_equal(at[peer].ip, to.ip, sizeof to.ip);
        }
        assert_pair(0, 1, s);
    }
    data_close();
}

/* What a member said on one connection, said again on another: the nonce there is a new one. */
TEST(a_recording_opens_nothing)
{
    unsigned char nonce[NONCE_FRAME];
    unsigned char hello[HELLO_FRAME];
    int listener = -1;
    int recorder = -1;
    struct gf_addr trap;
    struct gf_fault fault = {0};
    data_world(2, true);
    assert_true(gf_addr_parse("127.0.0.1", false, &trap));
    listener = gf_socket_listen(&trap, "a trap", &fault);
    assert_true(listener >= 0);
    assert_true(gf_addr_of_fd(listener, false, &trap));
    assert_int_equal(gf_data_dial(ends[0].data, hub_now_ns, 1, 0, ends[1].secret, &trap, &anywhere),
                     GF_OK);
    HUB_UNTIL((recorder >= 0) || ((recorder = accept(listener, NULL, NULL)) >= 0));
    for (int i = 0; i < 50; i++) hub_turn();
    /* the trap has a nonce of the real listener, so the hello is right for one connection */
    int real = gf_socket_connect(&ends[1].addr, &anywhere, UINT64_C(1000000000));
    assert_int_equal(hear(real, nonce, sizeof nonce), sizeof nonce);
    say(recorder, nonce, sizeof nonce);
    assert_int_equal(hear(recorder, hello, sizeof hello), sizeof hello);
    for (int i = 0; i < 200; i++) { /* 200 copies of it, each on a connection of its own */
        int copy = gf_socket_connect(&ends[1].addr, &anywhere, UINT64_C(1000000000));
        assert_true(copy >= 0);
        assert_int_equal(hear(copy, nonce, sizeof nonce), sizeof nonce);
        say(copy, hello, sizeof hello);
        assert_int_equal(hear(copy, nonce, 1), 0);
        (void)close(copy);
    }
    assert_int_equal(ends[1].connected, 0);
    (void)close(real);
    (void)close(recorder);
    (void)close(listener);
    next_try_connects();
}

/* Bytes that are no handshake end a try and no rank; a listener that says nothing likewise. */
TEST(what_listens_in_its_place_ends_a_try_alone)
{
    for (int silent = 0; silent < 2; silent++) {
        struct gf_addr trap;
        struct gf_fault fault = {0};
        int listener;
        int taken = -1;
        data_world(2, false);
        assert_true(gf_addr_parse("127.0.0.1", false, &trap));
        listener = gf_socket_listen(&trap, "a trap", &fault);
        assert_true((listener >= 0) && gf_addr_of_fd(listener, false, &trap));
        assert_int_equal(
            gf_data_dial(ends[0].data, hub_now_ns, 1, 0, ends[1].secret, &trap, &anywhere), GF_OK);
        HUB_UNTIL((taken >= 0) || ((taken = accept(listener, NULL, NULL)) >= 0));
        if (!silent)
            say(taken, "sixty-four bytes of something else, from a server that greets us ..", 64);
        HUB_UNTIL(gf_data_text(ends[0].data, 1)[0] != 0);
        if (silent) assert_non_null(strstr(gf_data_text(ends[0].data, 1), "no answer"));
        (void)close(taken);
        (void)close(listener);
        next_try_connects();
    }
}

TEST(strangers_beside_it_stop_nobody)
{
    int strangers[200];
    data_world(2, true);
    for (size_t i = 0; i < LENGTH(strangers); i++) {
        strangers[i] = gf_socket_connect(&ends[1].addr, &anywhere, UINT64_C(1000000000));
        if (i % 2 == 1)
            (void)send(strangers[i], "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (i == 100) assert_int_equal(data_dial(0, 1, 0), GF_OK);
        hub_turn();
    }
    HUB_UNTIL((ends[0].connected == 1) && (ends[1].connected == 1));
    assert_pair(0, 1, 0);
    for (size_t i = 0; i < LENGTH(strangers); i++) (void)close(strangers[i]);
    data_close();
}

TEST(as_many_dials_as_there_are_slots)
{
    struct gf_addr nobody;
    data_world(4, false);
    assert_true(gf_addr_parse("127.0.0.1:1", true, &nobody));
    for (uint32_t peer = 1; peer <= 3; peer++) /* there are slots for the streams of two peers */
        for (uint32_t s = 0; s < GF_DATA_STREAMS_MAX; s++)
            assert_int_equal(gf_data_dial(ends[0].data, hub_now_ns, peer, s, ends[peer].secret,
                                          &nobody, &anywhere),
                             (peer < 3) ? GF_OK : GF_FULL);
    HUB_UNTIL(strstr(gf_data_text(ends[0].data, 1), "refused") != NULL);
    gf_data_end(ends[0].data);
    assert_string_equal(gf_data_text(ends[0].data, 1), "");
    data_close();
}

/* Where the setup says, while there is room; and one port for as long as the link is open. */
TEST(its_port_is_one_of_the_setup)
{
    static const char *const wrong[] = {"5000", "5000-",      "-5000",     "5001-5000",
                                        "0-10", "5000-65536", "5000-6000x"};
    char free_address[GF_TEXT_MAX];
    char ports[32];
    hub_address_free(free_address, false);
    const char *port = strrchr(free_address, ':') + 1;
    (void)snprintf(ports, sizeof ports, "%s-%s", port, port);
    world = 2;
    for (uint32_t r = 0; r < 2; r++) {
        end_open(r);
        ends[r].setup.ports = ports;
        data_begin(r, 1);
    }
    assert_int_equal(ntohs(ends[0].addr.port), atoi(port));
    assert_true((ends[1].addr.port != 0) && (ends[1].addr.port != ends[0].addr.port));
    assert_non_null(strstr(hub_logged, "it listens at a port of the system's choice"));
    unsigned char secret[GF_DATA_SECRET_BYTES];
    uint16_t own = ends[1].addr.port;
    memcpy(secret, ends[1].secret, sizeof secret);
    data_begin(1, 2);
    assert_int_equal(ends[1].addr.port, own);
    assert_memory_not_equal(secret, ends[1].secret, sizeof secret);
    data_close();
    for (size_t i = 0; i < LENGTH(wrong); i++) {
        end_open(0);
        ends[0].setup.ports = wrong[i];
        assert_int_equal(begin_try(0, 1), GF_ERR_CONFIG);
        assert_non_null(strstr(gf_data_fault(ends[0].data)->text, "rendezvous.ports"));
        data_close();
    }
}

/* Either is the first that it tries. */
TEST(a_port_of_the_setup_that_another_has_is_no_failure)
{
    for (int taken = 0; taken < 2; taken++) {
        struct gf_addr at;
        char ports[32];
        hub_clear();
        hub_address_free(hub.address, false);
        assert_true(gf_socket_address_parse(hub.address, &at, &(struct gf_fault){0}));
        int first = ntohs(at.port);
        at.port = htons((uint16_t)(first + taken));
        int fd = gf_socket_listen(&at, hub.address, &(struct gf_fault){0});
        (void)snprintf(ports, sizeof ports, "%d-%d", first, first + 1);
        world = 1;
        end_open(0);
        ends[0].setup.ports = ports;
        data_begin(0, 1);
        assert_int_not_equal(ends[0].addr.port, (fd >= 0) ? at.port : 0);
        assert_int_equal(gf_data_poll(ends[0].data, hub_now_ns), GF_OK);
        if (fd >= 0) (void)close(fd);
        data_close();
    }
}

/* Another process has every second port at the second address only. False: the end does not open,
 * or not at a port that is free at both. */
static bool opens_beside(const char *ports, uint16_t first, uint16_t count)
{
    struct gf_addr at;
    int fds[16];
    bool opened = false;
    assert_true(gf_addr_parse("127.0.0.2", false, &at) && (count <= LENGTH(fds)));
    for (uint16_t i = 0; i < count; i++) {
        at.port = htons((uint16_t)(first + i));
        fds[i] = (i % 2 == 0) ? gf_socket_listen(&at, "another's", &(struct gf_fault){0}) : -1;
    }
    at.port = 0;
    world = 2;
    end_open(1);
    ends[1].setup.ports = ports;
    ends[1].setup.data_addrs[0] = at;
    if (begin_try(1, 1) == GF_OK) {
        struct gf_addr own = {.family = 0};
        opened = (ends[1].data->device_fds[0] >= 0) &&
                 gf_addr_of_fd(ends[1].data->device_fds[0], false, &own) &&
                 (own.port == ends[1].addr.port) &&
                 (gf_data_poll(ends[1].data, hub_now_ns) == GF_OK);
    }
    data_close();
    for (uint16_t i = 0; i < count; i++)
        if (fds[i] >= 0) (void)close(fds[i]);
    return opened;
}

/* Of ten ports half are taken at one address: one of the others is free at both. */
TEST(a_port_that_another_has_at_one_address_is_passed_over)
{
    for (uint16_t round = 0; round < 8; round++) {
        struct gf_addr at;
        char ports[32];
        hub_clear();
        assert_true(gf_socket_address_parse(hub.address, &at, &(struct gf_fault){0}));
        uint16_t first = ntohs(at.port);
        if (first > 65000) first = 65000;
        (void)snprintf(ports, sizeof ports, "%u-%u", first, first + 9u);
        assert_true(opens_beside(ports, (uint16_t)(first + round % 2), 9));
    }
}

#define PORTS_FIRST 40000u
#define PORTS_COUNT 16u

/* In a child, in a network of its own whose system chooses among PORTS_COUNT ports. False: this is
 * not allowed here. */
static bool holds_in_a_network_of_few_ports(bool (*what)(void), bool *holds_out)
{
    int ended = 0;
    pid_t child = fork();
    if (child == 0) {
        struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
        char range[32];
        int bytes =
            snprintf(range, sizeof range, "%u %u", PORTS_FIRST, PORTS_FIRST + PORTS_COUNT - 1);
        if (unshare(CLONE_NEWNET) != 0) _exit(2);
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        int set = open("/proc/sys/net/ipv4/ip_local_port_range", O_WRONLY | O_CLOEXEC);
        if ((ioctl(fd, SIOCSIFFLAGS, &lo) != 0) || (write(set, range, (size_t)bytes) != bytes))
            _exit(2);
        _exit(what() ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFEXITED(ended));
    *holds_out = (WEXITSTATUS(ended) == 0);
    return WEXITSTATUS(ended) != 2;
}

static bool opens_at_a_port_of_the_systems(void)
{
    for (uint16_t round = 0; round < 8; round++)
        if (!opens_beside(NULL, (uint16_t)(PORTS_FIRST + round % 2), PORTS_COUNT - 1)) return false;
    return true;
}

TEST(so_is_one_of_the_systems_choice)
{
    bool holds = false;
    if (!holds_in_a_network_of_few_ports(opens_at_a_port_of_the_systems, &holds)) skip();
    assert_true(holds);
}

/* The way to the others is asked of the kernel with a socket: that there is none to be had says
 * nothing of routes. */
TEST(a_host_without_descriptors_is_no_host_without_a_route)
{
    struct rlimit had;
    world = 2;
    end_open(1);
    int next = dup(0);
    (void)close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &had), 0);
    struct rlimit few_left = {.rlim_cur = (rlim_t)next + 2, .rlim_max = had.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few_left), 0);
    gf_status status = begin_try(1, 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &had), 0);
    assert_int_equal(status, GF_ERR_SYSTEM);
    assert_int_equal(gf_data_fault(ends[1].data)->foreign_code, EMFILE);
    assert_non_null(
        strstr(gf_data_fault(ends[1].data)->text, "cannot look for its way to rendezvous."));
    data_begin(1, 1); /* once there are some */
}

/* A member that is ahead dials before this rank has begun its generation: it waits in the
 * kernel. */
TEST(who_dials_early_is_let_in_when_the_generation_begins)
{
    data_world(2, true);
    data_begin(0, 2);
    assert_int_equal(data_dial(0, 1, 0), GF_OK);
    for (int i = 0; i < 100; i++) hub_turn(); /* as one of another generation */
    gf_data_end(ends[0].data);
    data_begin(1, 2);
    data_begin(0, 2);
    assert_int_equal(data_dial(0, 1, 0), GF_OK);
    HUB_UNTIL((ends[0].connected == 1) && (ends[1].connected == 1));
    assert_pair(0, 1, 0);
}

/* Three listeners, and to each nearly as many connections as there are ports. */
static bool connections_share_ports(const char *ip)
{
    struct gf_addr from;
    assert_true(gf_addr_parse(ip, false, &from));
    for (uint16_t p = 0; p < 3; p++) {
        struct gf_addr to = from;
        to.port = htons((uint16_t)(26000 + p));
        int listener = gf_socket_listen(&to, ip, &(struct gf_fault){0});
        if (listener < 0) return from.family == AF_INET6; /* no IPv6 on this machine */
        for (uint32_t i = 0; i < PORTS_COUNT - 4; i++)
            if (gf_socket_connect_by(&to, &from, 0, UINT64_C(5000000000)) < 0) return false;
    }
    return true;
}

static bool connections_of_both_families_share_ports(void)
{
    return connections_share_ports("127.0.0.1") && connections_share_ports("::1");
}

/* A rank that dials from the address of its device takes no more local ports than one that does
 * not: connections are told apart by where they lead to. */
TEST(connections_from_a_device_share_its_ports)
{
    bool holds = false;
    if (!holds_in_a_network_of_few_ports(connections_of_both_families_share_ports, &holds)) skip();
    assert_true(holds);
}

TEST_EACH(hub_clear, data_close)
TEST_AROUND(keys_setup, keys_teardown)
