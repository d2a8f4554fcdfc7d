/* Who is no rank of the job reaches nothing through the link: three processes, of which two have a
 * link over UCX's tcp and the third attacks it. It was forked from the same program, so it knows
 * every address of theirs. */
#include "firmware-tests/support/suite.h"
#include "drivers/ucx/connection_proof.h"
#include "firmware-tests/support/key_file.h"
#include "firmware-tests/support/stranger.h"
#include "firmware-tests/support/ucx_ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define STRANGER 2u
#define PORTS_MAX 64u

static unsigned char canary[4096], prize[64];

static void ms_sleep(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static void setup(struct ranks_one *one)
{
    memset(canary, 0x5a, sizeof canary);
    memset(prize, 0xee, sizeof prize);
    ranks_setup(one, one->arg);
    one->setup.world = 2;
    one->setup.key_file = key_path;
}

static void canary_check(struct ranks_one *one)
{
    for (size_t i = 0; i < sizeof canary; i++) RANK_CHECK(one, canary[i] == 0x5a);
}

/* A word between two processes, and the link progresses meanwhile. */
static void tell(struct ranks_one *one, uint32_t to, int word)
{
    RANK_CHECK(one, write(one->to[to], &word, sizeof word) == sizeof word);
}
static int hear(struct ranks_one *one, uint32_t from)
{
    int word = 0;
    while (recv(one->to[from], &word, sizeof word, MSG_DONTWAIT) != sizeof word) {
        if (one->link != NULL)
            ranks_progress(one);
        else
            ms_sleep(1);
    }
    return word;
}

/* Both ranks send each other a message of 100 KB, and have the right bytes. */
static void ranks_talk(struct ranks_one *one, uint32_t number)
{
    static unsigned char out[100000];
    static unsigned char in[100000];
    uint32_t peer = 1 - one->rank;
    ranks_fill(out, sizeof out, one->rank + 10 * number);
    ranks_recv(one, 0, peer, ranks_tag(number), in, sizeof in);
    ranks_send(one, 1, peer, ranks_tag(number), out, sizeof out);
    RANK_CHECK(one, (ranks_end(one, 0) == GF_OK) && (ranks_end(one, 1) == GF_OK));
    RANK_CHECK(one, ranks_filled(in, sizeof in, peer + 10 * number));
}

/* ---- the attacks ---- */

static void put_everywhere(int fd)
{
    stranger_greet(fd);
    for (size_t at = 0; at < sizeof canary; at += sizeof prize)
        stranger_put(fd, (uint64_t)(uintptr_t)(canary + at), prize, sizeof prize);
}

/* it closes without a word, as UCX does with one of two connections that cross */
static bool silent;

/* Each way to begin, at each port; returns how many connections stood. */
static uint32_t attack(const struct stranger_port *ports, uint32_t count, uint32_t rounds)
{
    static const char frame[] =
        "GFUCXv1\nthirty-two bytes that prove nothing at all, and more of it";
    uint32_t stood = 0;
    for (uint32_t i = 0; i < rounds * count; i++) {
        int fd = stranger_connect(ports[i % count].ip, ports[i % count].port);
        if (fd < 0) continue;
        stood++;
        if (silent) {
            (void)close(fd);
            continue;
        }
        switch (i / count % 4) {
        case 0: put_everywhere(fd); break;
        case 1: /* with a proof that is none before it */
            (void)send(fd, frame, 40, MSG_NOSIGNAL);
            put_everywhere(fd);
            break;
        case 2:
            stranger_greet(fd);
            for (uint64_t tag = 0; tag < 16; tag++)
                stranger_message(fd, (tag % 2 << GF_TAG_BITS) | ranks_tag((uint32_t)tag / 2), prize,
                                 sizeof prize);
            break;
        case 3: (void)send(fd, frame, 20, MSG_NOSIGNAL); break; /* half a proof */
        }
        if (i % 3 != 0) (void)close(fd); /* the others stay open for as long as this process */
        if ((i < 4 * count) && (stranger_hears(fd, 50) > 0)) return 0; /* something answered */
    }
    return stood;
}

static void attacked_body(struct ranks_one *one)
{
    setup(one);
    if (one->rank == STRANGER) {
        struct stranger_port ports[PORTS_MAX];
        uint32_t found = 0;
        int pids[2] = {hear(one, 0), hear(one, 1)};
        for (uint32_t r = 0; r < 2; r++)
            found += stranger_ports(pids[r], ports + found, PORTS_MAX - found);
        RANK_CHECK(one, (found >= 2) && (found <= PORTS_MAX));
        RANK_CHECK(one, attack(ports, found, 100) == 100 * found);
        for (uint32_t r = 0; r < 2; r++) tell(one, r, 1);
        for (uint32_t r = 0; r < 2; r++) (void)hear(one, r);
        return;
    }
    one->world = 2;
    RANK_CHECK(one, ranks_open_try(one, NULL) == GF_OK);
    tell(one, STRANGER, (int)getpid());
    (void)hear(one, STRANGER); /* attacked before it is connected .. */
    canary_check(one);
    ranks_connect(one);
    for (uint32_t i = 0; i < 20; i++) ranks_talk(one, i);
    canary_check(one);
    RANK_CHECK(one, (strstr(one->log, "did not prove") == NULL) == silent);
    tell(one, STRANGER, 1);
}

TEST(nobody_without_the_key_writes_into_a_rank)
{
    ranks_run(3, 0, attacked_body, "tcp");
    ranks_run(3, 0, attacked_body, "node,tcp");
    silent = true;
    ranks_run(3, 0, attacked_body, "tcp");
    silent = false;
}

/* ---- while ranks open ---- */

#define OPENS 15u

/* The stranger knows the range and tries all of it, over and over, while two ranks open and close
 * their links in it. */
RANKS_TEST_OVER(nor_while_ranks_open_their_links, 3, 0, "tcp")
{
    const uint16_t first = 24110;
    const uint16_t last = 24119;
    uint32_t stood = 0;
    setup(one);
    one->setup.ports = "24110-24119";
    if (one->rank == STRANGER) {
        int word;
        int ended = 0;
        while (ended < 2) {
            for (uint16_t port = first; port <= last; port++) {
                int fd = stranger_connect("127.0.0.1", port);
                if (fd < 0) continue;
                stood++;
                put_everywhere(fd);
                (void)close(fd);
            }
            for (uint32_t r = 0; r < 2; r++)
                ended += recv(one->to[r], &word, sizeof word, MSG_DONTWAIT) == sizeof word;
        }
        RANK_CHECK(one, stood > 100);
        return;
    }
    one->world = 2;
    for (uint32_t i = 0; i < OPENS; i++) {
        ranks_open(one);
        ranks_talk(one, i);
        ranks_meet(one);
        ranks_close(one);
        canary_check(one);
    }
    tell(one, STRANGER, 1);
}

/* ---- with what a former member knows ---- */

/* link_ucx_peers.c: where the head says how long the offer at the end is */
#define ENDPOINT_OFFER_BYTES_AT 24u

/* TCP connections of this process that stand. */
static uint32_t connections(void)
{
    uint32_t count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        struct tcp_info info = {0};
        socklen_t bytes = sizeof info;
        count += (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0) &&
                 (info.tcpi_state == TCP_ESTABLISHED);
    }
    return count;
}

/* Rank 1 is a member of epoch 1, knows the key and the secret of rank 0's listener, and is left out
 * of epoch 2. */
RANKS_TEST_OVER(nor_does_a_former_member, 2, 0, "tcp")
{
    static unsigned char endpoint[2048];
    static unsigned char in[64];
    struct stranger_port ports[PORTS_MAX];
    size_t endpoint_bytes = 0;
    uint32_t offer_bytes = 0;
    setup(one);
    RANK_CHECK(one, ranks_open_try(one, NULL) == GF_OK);
    ranks_endpoint_swap(one, 1 - one->rank, endpoint, &endpoint_bytes);
    RANK_CHECK(one, one->link->driver->connect(one->link, 1 - one->rank, endpoint,
                                               endpoint_bytes) == GF_OK);
    ranks_meet(one);
    ranks_talk(one, 1);
    ranks_meet(one);
    if (one->rank == 0) {
        RANK_CHECK(one, connections() > 0);
        RANK_CHECK(one, one->link->driver->reset(one->link, 2) == GF_OK);
        RANK_CHECK(one, connections() == 0);
        tell(one, 1, (int)getpid());
        (void)hear(one, 1);
        canary_check(one);
        RANK_CHECK(one, strstr(one->log, "did not prove") != NULL);
        ranks_close(one);
        return;
    }
    struct gf_proofs proofs;
    static unsigned char memory[64 * 1024] __attribute__((aligned(64)));
    struct gf_proof_offer peer = {.listener_count = 0};
    struct gf_fault fault = {.code = GF_OK};
    uint32_t found = stranger_ports(hear(one, 0), ports, PORTS_MAX);
    /* By its old connection: it is gone, whatever UCX says of that. */
    (void)one->link->driver->send_post(one->link, 0, ranks_tag(9), (gf_mem)(uintptr_t)in, sizeof in,
                                       one->reqs[0]);
    for (int i = 0; i < 1000; i++) (void)one->link->driver->progress(one->link);
    /* By new ones, with the key and the old secret. */
    memcpy(&offer_bytes, endpoint + ENDPOINT_OFFER_BYTES_AT, sizeof offer_bytes);
    RANK_CHECK(one,
               (offer_bytes > GF_AUTH_NONCE_BYTES) && (offer_bytes <= sizeof peer) && (found >= 1));
    memcpy(&peer, endpoint + endpoint_bytes - offer_bytes, offer_bytes);
    RANK_CHECK(one, gf_proofs_bytes(&one->setup) <= sizeof memory);
    RANK_CHECK(one, gf_proofs_open(&proofs, &one->setup, memory, &fault) == GF_OK);
    gf_proofs_begin(&proofs);
    gf_proofs_begun(&proofs);
    for (uint32_t i = 0; i < found; i++) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(ports[i].port)};
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        RANK_CHECK(one, inet_pton(AF_INET, ports[i].ip, &at.sin_addr) == 1);
        peer.listener_count = 1;
        peer.listeners[0] = (struct gf_place){.family = AF_INET, .port = at.sin_port};
        memcpy(peer.listeners[0].ip, &at.sin_addr, sizeof at.sin_addr);
        gf_proofs_peer(&proofs, 0, &peer);
        /* and so says its hello */
        RANK_CHECK(one, connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
        const struct gf_conn *conn = gf_conn_find(&proofs, fd);
        for (int ms = 0; (conn->state != GF_CONN_ENDED) && (ms < 3000); ms++) {
            (void)gf_proofs_progress(&proofs, 0, &fault);
            ms_sleep(1);
        }
        /* nobody answered */
        RANK_CHECK(one, gf_proofs_busy(&proofs) && (conn->state == GF_CONN_ENDED));
        RANK_CHECK(one, close(fd) == 0);
    }
    gf_proofs_end(&proofs);
    gf_proofs_ended(&proofs);
    tell(one, 0, 1);
}

/* ---- one node, and other networks ---- */

static void one_node_body(struct ranks_one *one)
{
    struct stranger_port ports[PORTS_MAX];
    ranks_setup(one, one->arg);
    one->setup.one_node = true;
    ranks_open(one);
    RANK_CHECK(one, stranger_ports((int)getpid(), ports, PORTS_MAX) == 0);
    ranks_talk(one, 1);
    RANK_CHECK(one, one->link->driver->map(one->link, 1 - one->rank) != NULL);
    RANK_CHECK(one, one->link->driver->reset(one->link, 2) == GF_OK);
    ranks_connect(one);
    RANK_CHECK(one, stranger_ports((int)getpid(), ports, PORTS_MAX) == 0);
    ranks_talk(one, 2);
    /* The join has shown another node; then a view change leaves this one alone. */
    for (uint32_t network = 1; network < 2; network--) {
        ranks_meet(one);
        RANK_CHECK(one, one->link->driver->network(one->link, network != 0) == GF_OK);
        RANK_CHECK(one, (stranger_ports((int)getpid(), ports, PORTS_MAX) > 0) == (network != 0));
        ranks_connect(one);
        ranks_talk(one, 3 + network);
    }
}

TEST(a_job_of_one_node_listens_nowhere)
{
    ranks_run(2, 0, one_node_body, "node,tcp");
}

TEST_AROUND(key_file_make, key_file_remove)
