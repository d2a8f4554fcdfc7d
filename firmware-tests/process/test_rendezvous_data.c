/* Data connections over the control channel's port: members of an epoch get proven descriptors at
 * both ends, and nobody else gets one. Ends in one thread on loopback, time made by the test. */
#include "drivers/tcp/rendezvous_tcp_state.h"
#include "firmware-tests/support/suite.h"
#include "drivers/tcp/rendezvous_socket.h"
#include "firmware-tests/support/tcp_keys.h"

#include <errno.h>
#include <sys/socket.h>
#include <netinet/tcp.h>
#include <unistd.h>

#define ENDS 4u
#define STREAMS 2u

static const struct gf_place anywhere;

/* What one end has been given. */
static struct end {
    int fds[ENDS][STREAMS]; /* -1: none */
    uint32_t connected;
    unsigned char secret[GF_DATA_SECRET_BYTES];
    struct gf_place place;
} ends[ENDS];

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

static struct gf_data_taker takers[ENDS];

static void data_begin(uint32_t rank, uint32_t epoch)
{
    struct end *end = &ends[rank];
    for (uint32_t p = 0; p < ENDS; p++) {
        for (uint32_t s = 0; s < STREAMS; s++) end->fds[p][s] = -1;
    }
    end->connected = 0;
    takers[rank] = (struct gf_data_taker){end, end_connected, end_has};
    assert_int_equal(gf_rendezvous_tcp.data_begin(star.ends[rank], epoch, &takers[rank],
                                                  end->secret, &end->place),
                     GF_OK);
}

static gf_status data_dial(uint32_t from, uint32_t to, uint32_t stream)
{
    return gf_rendezvous_tcp.data_dial(star.ends[from], now_ns, to, stream, ends[to].secret,
                                       &ends[to].place, &anywhere);
}

static void data_world(uint32_t size, bool with_key)
{
    begin();
    if (with_key)
        keyed_world(size);
    else
        turns_open(size);
    for (uint32_t r = 0; r < size; r++) data_begin(r, 1);
}

static void data_close(void)
{
    for (uint32_t r = 0; r < ENDS; r++) {
        for (uint32_t p = 0; p < ENDS; p++) {
            for (uint32_t s = 0; s < STREAMS; s++) {
                if (ends[r].fds[p][s] >= 0) (void)close(ends[r].fds[p][s]);
                ends[r].fds[p][s] = -1;
            }
        }
    }
    tcp_world_close(&star);
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
        UNTIL((ends[0].connected == wanted) && (ends[1].connected == wanted) &&
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
    gf_tcp_lacks((struct tcp *)star.ends[1], EMFILE, now_ns);
    assert_int_equal(data_dial(0, 1, 0), GF_OK);
    UNTIL((ends[0].connected == 1) && (ends[1].connected == 1));
    assert_int_equal(star.ends[1]->lacks, EMFILE);
    now_ns += SECOND;
    assert_int_equal(data_dial(1, 0, 1), GF_OK);
    UNTIL((ends[0].connected == 2) && (ends[1].connected == 2));
    assert_int_equal(star.ends[1]->lacks, 0);
    data_close();
}

/* The coordinator that it came to first died before it was a member. */
TEST(a_rank_that_looked_for_the_coordinator_twice_takes_connections)
{
    begin_open();
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct gf_rendezvous_setup setup = keyed(rank, 2, "");
        setup.rejoin = (rank == 1);
        end_open(rank, &setup);
    }
    turns_connect(2);
    assert_int_equal(gf_rendezvous_tcp.reform(star.ends[1], now_ns, GF_RANK_NONE, ""), GF_AGAIN);
    UNTIL((seen[0].ended & 2) != 0);
    memset(seen, 0, sizeof seen);
    turns_connect(2);
    for (uint32_t rank = 0; rank < 2; rank++) data_begin(rank, 1);
    assert_int_equal(data_dial(0, 1, 0), GF_OK);
    UNTIL((ends[0].connected == 1) && (ends[1].connected == 1));
    data_close();
}

/* Its rank may compute for long, with the kernel's buffers full: no timeout of the kernel runs then.
 */
TEST(a_connection_whose_rank_does_not_read_stays)
{
    data_world(2, false);
    assert_int_equal(data_dial(0, 1, 0), GF_OK);
    UNTIL((ends[0].connected == 1) && (ends[1].connected == 1));
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
    for (int round = 0; round < 20; round++) {
        data_world(2, round % 2 == 1);
        assert_int_equal(data_dial(1, 0, 0), GF_OK);
        assert_int_equal(data_dial(0, 1, 0), GF_OK);
        UNTIL((ends[0].connected == 1) && (ends[1].connected == 1));
        for (int i = 0; i < 50; i++) turn();
        assert_pair(0, 1, 0);
        assert_pair(1, 0, 0);
        data_close();
    }
}

TEST(a_stream_that_is_here_is_refused_a_second_time)
{
    data_world(2, false);
    assert_int_equal(data_dial(0, 1, 0), GF_OK);
    UNTIL((ends[0].connected == 1) && (ends[1].connected == 1));
    assert_int_equal(data_dial(1, 0, 0), GF_OK);
    UNTIL(strstr(gf_rendezvous_tcp.data_text(star.ends[1], 0), "here already") != NULL);
    assert_pair(0, 1, 0);
    data_close();
}

/* Whoever has another secret, epoch or number is not let in; whoever is right still is. */
static const struct refused_case {
    const char *name;
    bool secret;    /* another one, as of an earlier epoch */
    uint32_t epoch; /* that the dialling end is in */
    uint32_t to;    /* whom it means */
} refused[] = {
    {"another_secret", true, 1, 1},
    {"another_epoch", false, 2, 1},
    {"another_member", false, 1, 2},
};

TEST(who_does_not_belong_to_the_epoch_is_refused)
{
    for (size_t i = 0; i < LENGTH(refused); i++) {
        for (int key = 0; key < 2; key++) {
            unsigned char secret[GF_DATA_SECRET_BYTES];
            data_world(3, key == 1);
            if (refused[i].epoch != 1) data_begin(0, refused[i].epoch);
            memcpy(secret, ends[1].secret, sizeof secret);
            if (refused[i].secret) secret[5] ^= 1;
            assert_int_equal(gf_rendezvous_tcp.data_dial(star.ends[0], now_ns, refused[i].to, 0,
                                                         secret, &ends[1].place, &anywhere),
                             GF_OK);
            UNTIL(gf_rendezvous_tcp.data_text(star.ends[0], refused[i].to)[0] != 0);
            for (int t = 0; t < 200; t++) turn();
            assert_int_equal(ends[0].connected + ends[1].connected, 0);
            gf_rendezvous_tcp.data_end(star.ends[0]);
            data_begin(0, 1);
            assert_int_equal(data_dial(0, 1, 0), GF_OK);
            UNTIL((ends[0].connected == 1) && (ends[1].connected == 1));
            assert_pair(0, 1, 0);
            data_close();
        }
    }
}

TEST(a_later_epoch_refuses_the_former_member)
{
    unsigned char former[GF_DATA_SECRET_BYTES];
    data_world(2, true);
    memcpy(former, ends[1].secret, sizeof former);
    data_begin(1, 2);
    assert_memory_not_equal(former, ends[1].secret, sizeof former);
    data_begin(0, 2); /* it has learned the number, not the secret */
    assert_int_equal(
        gf_rendezvous_tcp.data_dial(star.ends[0], now_ns, 1, 0, former, &ends[1].place, &anywhere),
        GF_OK);
    UNTIL(strstr(logged, "did not prove that it is of this job") != NULL);
    assert_int_equal(ends[1].connected, 0);
    data_close();
}

/* A link that has several devices: each address has the one port. */
TEST(each_named_address_takes_connections)
{
    static const char *const named[STREAMS] = {"127.0.0.2", "127.0.0.3"};
    begin();
    for (uint32_t r = 0; r < 2; r++) {
        struct gf_rendezvous_setup setup = keyed(r, 2, key_a);
        for (uint32_t s = 0; s < STREAMS; s++)
            assert_true(gf_place_parse(named[s], false, &setup.data_places[s]));
        end_open(r, &setup);
    }
    turns_connect(2);
    for (uint32_t r = 0; r < 2; r++) data_begin(r, 1);
    for (uint32_t s = 0; s < STREAMS; s++) {
        struct gf_place to;
        struct gf_place from;
        assert_true(gf_place_parse(named[s], false, &to) && gf_place_parse(named[s], false, &from));
        to.port = ends[1].place.port;
        assert_int_equal(
            gf_rendezvous_tcp.data_dial(star.ends[0], now_ns, 1, s, ends[1].secret, &to, &from),
            GF_OK);
    }
    UNTIL((ends[0].connected == STREAMS) && (ends[1].connected == STREAMS));
    for (uint32_t s = 0; s < STREAMS; s++) {
        struct gf_place to;
        struct gf_place at[2];
        assert_true(gf_place_parse(named[s], false, &to));
        for (int peer = 0; peer < 2; peer++) {
            assert_true(gf_place_of_fd(ends[1].fds[0][s], peer == 1, &at[peer]));
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
    struct gf_place trap;
    struct gf_fault fault = {0};
    data_world(2, true);
    assert_true(gf_place_parse("127.0.0.1", false, &trap));
    listener = gf_socket_listen(&trap, "a trap", &fault);
    assert_true(listener >= 0);
    assert_true(gf_place_of_fd(listener, false, &trap));
    assert_int_equal(
        gf_rendezvous_tcp.data_dial(star.ends[0], now_ns, 1, 0, ends[1].secret, &trap, &anywhere),
        GF_OK);
    UNTIL((recorder >= 0) || ((recorder = accept(listener, NULL, NULL)) >= 0));
    for (int i = 0; i < 50; i++) turn();
    /* the trap has a nonce of the real listener, so the hello is right for one connection */
    int real = gf_socket_connect(&ends[1].place, &anywhere, UINT64_C(1000000000));
    assert_int_equal(hear(real, nonce, sizeof nonce), sizeof nonce);
    say(recorder, nonce, sizeof nonce);
    assert_int_equal(hear(recorder, hello, sizeof hello), sizeof hello);
    for (int i = 0; i < 200; i++) { /* 200 copies of it, each on a connection of its own */
        int copy = gf_socket_connect(&ends[1].place, &anywhere, UINT64_C(1000000000));
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
    gf_rendezvous_tcp.data_end(star.ends[0]);
    data_begin(0, 1);
    assert_int_equal(data_dial(0, 1, 0), GF_OK);
    UNTIL((ends[0].connected == 1) && (ends[1].connected == 1));
    assert_pair(0, 1, 0);
    data_close();
}

/* Bytes that are no handshake end a try and no rank; a listener that says nothing likewise. */
TEST(what_listens_in_its_place_ends_a_try_alone)
{
    for (int silent = 0; silent < 2; silent++) {
        struct gf_place trap;
        struct gf_fault fault = {0};
        int listener;
        int taken = -1;
        data_world(2, false);
        assert_true(gf_place_parse("127.0.0.1", false, &trap));
        listener = gf_socket_listen(&trap, "a trap", &fault);
        assert_true((listener >= 0) && gf_place_of_fd(listener, false, &trap));
        assert_int_equal(gf_rendezvous_tcp.data_dial(star.ends[0], now_ns, 1, 0, ends[1].secret,
                                                     &trap, &anywhere),
                         GF_OK);
        UNTIL((taken >= 0) || ((taken = accept(listener, NULL, NULL)) >= 0));
        if (!silent)
            say(taken, "sixty-four bytes of something else, from a server that greets us ..", 64);
        UNTIL(gf_rendezvous_tcp.data_text(star.ends[0], 1)[0] != 0);
        if (silent)
            assert_non_null(strstr(gf_rendezvous_tcp.data_text(star.ends[0], 1), "no answer"));
        (void)close(taken);
        (void)close(listener);
        gf_rendezvous_tcp.data_end(star.ends[0]);
        data_begin(0, 1);
        assert_int_equal(data_dial(0, 1, 0), GF_OK);
        UNTIL((ends[0].connected == 1) && (ends[1].connected == 1));
        data_close();
    }
}

TEST(strangers_beside_it_stop_nobody)
{
    int strangers[200];
    data_world(2, true);
    for (size_t i = 0; i < LENGTH(strangers); i++) {
        strangers[i] = gf_socket_connect(&ends[1].place, &anywhere, UINT64_C(1000000000));
        if (i % 2 == 1)
            (void)send(strangers[i], "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (i == 100) assert_int_equal(data_dial(0, 1, 0), GF_OK);
        turn();
    }
    UNTIL((ends[0].connected == 1) && (ends[1].connected == 1));
    assert_pair(0, 1, 0);
    for (size_t i = 0; i < LENGTH(strangers); i++) (void)close(strangers[i]);
    data_close();
}

TEST(as_many_dials_as_there_are_slots)
{
    uint32_t begun = 0;
    struct gf_place nobody;
    data_world(2, false);
    assert_true(gf_place_parse("127.0.0.1:1", true, &nobody));
    for (uint32_t s = 0; s < GF_DATA_STREAMS_MAX; s++)
        begun += gf_rendezvous_tcp.data_dial(star.ends[0], now_ns, 1, s, ends[1].secret, &nobody,
                                             &anywhere) == GF_OK;
    assert_int_equal(begun, GF_DATA_STREAMS_MAX);
    UNTIL(strstr(gf_rendezvous_tcp.data_text(star.ends[0], 1), "refused") != NULL);
    gf_rendezvous_tcp.data_end(star.ends[0]);
    assert_string_equal(gf_rendezvous_tcp.data_text(star.ends[0], 1), "");
    data_close();
}

TEST_EACH(begin, world_end)
TEST_AROUND(keys_setup, keys_teardown)
