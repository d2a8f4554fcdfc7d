/* The link of a process: each network driver by its name, on one node and on two, in one
 * process.
 * suite: slow
 * link: wrap epoll_ctl */
#include "firmware-tests/support/suite.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <time.h>

#include "drivers/drivers.h"
#include "drivers/node.h"

#define RANKS 3u
#define REQS 8u
#define REGION 65536u
#define MESSAGE_MAX (1u << 20)

struct end {
    struct gf_link_setup setup;
    struct gf_link *link;
    void *state;
    struct gf_req *reqs[REQS];
    unsigned char endpoint[2048];
    size_t endpoint_bytes;
};
static struct end ends[RANKS];
static unsigned char out[RANKS][MESSAGE_MAX];
static unsigned char in[RANKS][MESSAGE_MAX];

static const struct network_row {
    const char *name;
    gf_network network;
    bool apart; /* its ranks share no memory, as on two nodes */
} rows[] = {
    {"memory alone", GF_NETWORK_NONE, false},    {"tcp, one node", GF_NETWORK_LINK, false},
    {"tcp, two nodes", GF_NETWORK_LINK, true},   {"ucx, one node", GF_NETWORK_FABRIC, false},
    {"ucx, two nodes", GF_NETWORK_FABRIC, true},
};

/* A build without UCX has the others. */
#define EACH_ROW(i)                           \
    for (size_t i = 0; i < LENGTH(rows); i++) \
        if ((rows[i].network != GF_NETWORK_FABRIC) || (gf_drivers_all.fabric != NULL))

static struct gf_link_setup setup_of(const struct network_row *row, uint32_t rank, uint32_t world)
{
    return (struct gf_link_setup){.rank = rank,
                                  .world = world,
                                  .ranks_max = RANKS,
                                  .generation = 1,
                                  .requests_max = REQS,
                                  .message_bytes_max = MESSAGE_MAX,
                                  .region_bytes = REGION,
                                  .transports = "tcp",
                                  .devices = "",
                                  .insecure = true,
                                  .address = "127.0.0.1:7117",
                                  .keepalive_ns = UINT64_C(5000000000),
                                  .private_memory = row->apart,
                                  .network = row->network,
                                  .networks = {NULL, gf_drivers_all.link, gf_drivers_all.fabric}};
}

static size_t req_bytes(void)
{
    size_t most = gf_link_front.req_size_bytes;
    const struct gf_link_driver *drivers[] = {gf_drivers_all.link, gf_drivers_all.fabric};
    for (size_t i = 0; i < LENGTH(drivers); i++)
        if ((drivers[i] != NULL) && (drivers[i]->req_size_bytes > most))
            most = drivers[i]->req_size_bytes;
    return most;
}

static void ends_open(const struct network_row *row, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        struct end *end = &ends[rank];
        struct gf_fault fault = {.code = GF_OK};
        end->setup = setup_of(row, rank, world);
        end->state = aligned_alloc(64, (gf_link_front.state_bytes(&end->setup) + 63) / 64 * 64);
        memset(end->state, 0xa5, gf_link_front.state_bytes(&end->setup));
        for (uint32_t i = 0; i < REQS; i++) {
            end->reqs[i] = aligned_alloc(64, req_bytes());
            memset((void *)end->reqs[i], 0xa5, req_bytes());
        }
        if (gf_link_front.open(&end->setup, end->state, &end->link, &fault) != GF_OK)
            fail_msg("%s: %s", row->name, fault.text);
    }
}

static void ends_close(uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        ends[rank].link->driver->close(ends[rank].link);
        free(ends[rank].state);
        for (uint32_t i = 0; i < REQS; i++) free(ends[rank].reqs[i]);
    }
}

static gf_status connect_to(uint32_t rank, uint32_t peer)
{
    return ends[rank].link->driver->connect(ends[rank].link, peer, ends[peer].endpoint,
                                            ends[peer].endpoint_bytes);
}

static void ends_progress(uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        (void)ends[rank].link->driver->progress(ends[rank].link);
        assert_int_equal(ends[rank].link->failed, GF_OK);
    }
}

static void ends_connect(uint32_t world)
{
    uint32_t up = 0;
    for (uint32_t rank = 0; rank < world; rank++)
        assert_int_equal(ends[rank].link->driver->endpoint(ends[rank].link, ends[rank].endpoint,
                                                           &ends[rank].endpoint_bytes),
                         GF_OK);
    for (uint32_t tries = 0; (tries < 200000) && (up < world * world); tries++) {
        up = 0;
        for (uint32_t rank = 0; rank < world; rank++) {
            for (uint32_t peer = 0; peer < world; peer++) {
                gf_status status = connect_to(rank, peer);
                if (status < 0) fail_msg("%s", ends[rank].link->fault.text);
                up += status == GF_OK;
            }
        }
        ends_progress(world);
    }
    assert_int_equal(up, world * world);
}

static gf_status send_to(uint32_t rank, uint32_t to, uint32_t req, size_t bytes)
{
    return ends[rank].link->driver->send_post(ends[rank].link, to, 5, (gf_mem)(uintptr_t)out[rank],
                                              bytes, ends[rank].reqs[req]);
}

static gf_status recv_from(uint32_t rank, uint32_t from, uint32_t req, size_t bytes)
{
    return ends[rank].link->driver->recv_post(ends[rank].link, from, 5, (gf_mem)(uintptr_t)in[rank],
                                              bytes, ends[rank].reqs[req]);
}

static gf_status ended(uint32_t rank, uint32_t req, uint32_t world)
{
    gf_status status = GF_AGAIN;
    for (uint32_t turns = 0; (turns < 2000000) && (status == GF_AGAIN); turns++) {
        ends_progress(world);
        status = ends[rank].link->driver->test(ends[rank].link, ends[rank].reqs[req]);
    }
    return status;
}

/* Around the ring, in one generation. */
static void ring_pass(uint32_t world, size_t bytes)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        memset(out[rank], (int)(17 * rank + bytes % 251 + 1), bytes);
        memset(in[rank], 0, bytes);
        assert_int_equal(recv_from(rank, (rank + world - 1) % world, 0, bytes), GF_OK);
    }
    for (uint32_t rank = 0; rank < world; rank++)
        assert_int_equal(send_to(rank, (rank + 1) % world, 1, bytes), GF_OK);
    for (uint32_t rank = 0; rank < world; rank++) {
        assert_int_equal(ended(rank, 0, world), GF_OK);
        assert_int_equal(ended(rank, 1, world), GF_OK);
        assert_memory_equal(in[rank], out[(rank + world - 1) % world], bytes);
    }
}

TEST(each_network_carries_what_the_node_does_not)
{
    EACH_ROW(i)
    {
        const bool shared = !rows[i].apart;
        ends_open(&rows[i], RANKS);
        ends_connect(RANKS);
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            for (uint32_t peer = 0; peer < RANKS; peer++)
                assert_int_equal(ends[rank].link->driver->map(ends[rank].link, peer) != NULL,
                                 shared || (peer == rank));
            assert_int_equal(ends[rank].link->network, rows[i].network);
        }
        ring_pass(RANKS, 0);
        ring_pass(RANKS, 64);
        ring_pass(RANKS, MESSAGE_MAX);
        assert_true(ends[0].link->sent_messages >= 3);
        ends_close(RANKS);
    }
}

/* Rank 0 stays away, and comes back as the last; what was under way ends. */
TEST(a_reset_gives_each_its_rank_of_the_next_generation)
{
    EACH_ROW(i)
    {
        ends_open(&rows[i], RANKS);
        ends_connect(RANKS);
        for (uint32_t generation = 2; generation < 6; generation++) {
            const uint32_t world = (generation % 2 == 0) ? RANKS - 1 : RANKS;
            const struct end first = ends[0];
            unsigned char old[sizeof ends[0].endpoint];
            assert_int_equal(recv_from(1, 0, 2, 64), GF_OK);
            memcpy(old, ends[1].endpoint, sizeof old);
            ends[0].link->driver->drop(ends[0].link);
            assert_int_equal(
                ends[0].link->driver->endpoint(ends[0].link, old, &ends[0].endpoint_bytes),
                GF_ERR_STATE);
            memmove(&ends[0], &ends[1], (RANKS - 1) * sizeof ends[0]);
            ends[RANKS - 1] = first;
            for (uint32_t rank = 0; rank < world; rank++) {
                unsigned char *region = ends[rank].link->region;
                memset(region, 0xff, REGION);
                assert_int_equal(
                    ends[rank].link->driver->reset(ends[rank].link, generation, rank, world),
                    GF_OK);
                for (uint32_t byte = 0; byte < REGION; byte += 512)
                    assert_int_equal(ends[rank].link->region[byte], 0);
            }
            assert_int_equal(ends[0].link->driver->test(ends[0].link, ends[0].reqs[2]),
                             GF_ERR_ABORTED);
            assert_int_equal(send_to(0, 1, 0, 8), GF_ERR_STATE);
            ends_connect(world);
            ring_pass(world, 4096);
            if (world < RANKS)
                assert_int_equal(ends[RANKS - 1].link->driver->reset(ends[RANKS - 1].link,
                                                                     generation, RANKS - 1, RANKS),
                                 GF_OK);
        }
        ends_close(RANKS);
    }
}

/* As where the join shows several nodes; there and back. */
TEST(a_network_is_opened_and_closed_later)
{
    ends_open(&rows[0], 2);
    EACH_ROW(i)
    {
        const gf_network which = rows[i].network;
        for (uint32_t rank = 0; rank < 2; rank++) {
            assert_int_equal(ends[rank].link->driver->network(ends[rank].link, which), GF_OK);
            assert_int_equal(ends[rank].link->network, which);
            assert_true(ends[rank].link->wake_fd >= 0);
        }
        ends_connect(2);
        ring_pass(2, 4096);
    }
    ends_close(2);
}

/* A network that does not open leaves the node as it is. */
TEST(a_network_that_is_not_there_is_an_error_and_the_link_stays)
{
    ends_open(&rows[0], 2);
    ends[0].link->driver->close(ends[0].link);
    ends[0].setup.networks[GF_NETWORK_FABRIC] = NULL;
    struct gf_fault fault = {.code = GF_OK};
    assert_int_equal(gf_link_front.open(&ends[0].setup, ends[0].state, &ends[0].link, &fault),
                     GF_OK);
    assert_int_equal(ends[0].link->driver->network(ends[0].link, GF_NETWORK_FABRIC), GF_ERR_CONFIG);
    assert_non_null(strstr(ends[0].link->fault.text, "links no driver"));
    assert_int_equal(ends[0].link->network, GF_NETWORK_NONE);
    ends_connect(2);
    ring_pass(2, 4096);
    ends_close(2);
}

int __real_epoll_ctl(int epoll_fd, int what, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll_fd, int what, int fd, struct epoll_event *event);
static uint32_t epoll_fails; /* the call that does, counted from here on; 0: none */

int __wrap_epoll_ctl(int epoll_fd, int what, int fd, struct epoll_event *event)
{
    if ((epoll_fails == 0) || (--epoll_fails > 0))
        return __real_epoll_ctl(epoll_fd, what, fd, event);
    errno = ENOSPC; /* fs.epoll.max_user_watches */
    return -1;
}

/* Each call of an open in turn: what is said has the call that failed, or both. */
TEST(what_epoll_does_not_take_is_not_said_as_its_begin)
{
    struct gf_fault fault = {.code = GF_OK};
    uint32_t failed = 0;
    ends_open(&rows[1], 1);
    for (;; failed++) {
        ends[0].link->driver->close(ends[0].link);
        epoll_fails = failed + 1;
        if (gf_link_front.open(&ends[0].setup, ends[0].state, &ends[0].link, &fault) == GF_OK)
            break;
        assert_int_equal(fault.code, GF_ERR_SYSTEM);
        assert_int_equal(fault.foreign_code, ENOSPC);
        if ((strcmp(fault.foreign_call, "epoll_create1") == 0) ||
            (strstr(fault.text, "No space left") == NULL))
            fail_msg("call %u: %s: %s", failed, fault.foreign_call, fault.text);
        epoll_fails = 0;
        assert_int_equal(gf_link_front.open(&ends[0].setup, ends[0].state, &ends[0].link, &fault),
                         GF_OK);
    }
    epoll_fails = 0;
    assert_true(failed >= 3);
    ends_close(1);
}

TEST(who_shares_no_memory_and_has_no_network_is_told)
{
    const struct network_row apart = {"", GF_NETWORK_NONE, true};
    ends_open(&apart, 2);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(ends[rank].link->driver->endpoint(ends[rank].link, ends[rank].endpoint,
                                                           &ends[rank].endpoint_bytes),
                         GF_OK);
    assert_int_equal(connect_to(0, 1), GF_ERR_LINK);
    assert_non_null(strstr(ends[0].link->fault.text,
                           "rank 0 and rank 1 share no memory, and rank 0 has no network open"));
    ends[0].link->fault = (struct gf_fault){.code = GF_OK};
    ends[1].endpoint[20] ^= 1;
    assert_int_equal(connect_to(0, 1), GF_ERR_DATA);
    assert_int_equal(ends[0].link->driver->connect(ends[0].link, 2, ends[1].endpoint, 4),
                     GF_ERR_PARAM);
    ends_close(2);
}

TEST(what_no_caller_may_post_is_refused_before_any_driver)
{
    EACH_ROW(i)
    {
        struct gf_fault *fault;
        ends_open(&rows[i], RANKS);
        fault = &ends[0].link->fault;
        assert_int_equal(send_to(0, 1, 0, 8), GF_ERR_STATE);
        assert_non_null(strstr(fault->text, "not connected"));
        ends_connect(RANKS);
        *fault = (struct gf_fault){.code = GF_OK};
        assert_int_equal(send_to(0, RANKS, 0, 8), GF_ERR_PARAM);
        assert_int_equal(recv_from(0, 0, 0, 8), GF_ERR_PARAM);
        *fault = (struct gf_fault){.code = GF_OK};
        assert_int_equal(send_to(0, 1, 0, MESSAGE_MAX + 1), GF_ERR_PARAM);
        assert_non_null(strstr(fault->text, "1048577 bytes"));
        assert_int_equal(ends[0].link->driver->recv_post(
                             ends[0].link, 1, UINT64_C(1) << GF_TAG_BITS, 0, 0, ends[0].reqs[0]),
                         GF_ERR_PARAM);
        ends_close(RANKS);
    }
}

/* A sleeper is woken by messages of its node and of its network. */
TEST(what_comes_wakes_a_sleeper)
{
    EACH_ROW(i)
    {
        struct pollfd ready = {.events = POLLIN};
        uint32_t quiet = 0;
        ends_open(&rows[i], 2);
        ends_connect(2);
        ring_pass(2, 64);
        ready.fd = ends[0].link->wake_fd;
        assert_true(ready.fd >= 0);
        while (quiet < 100) {
            (void)ends[1].link->driver->progress(ends[1].link);
            quiet = ends[0].link->driver->progress(ends[0].link) ? 0 : quiet + 1;
        }
        while (!ends[0].link->driver->arm(ends[0].link))
            (void)ends[0].link->driver->progress(ends[0].link);
        assert_int_equal(poll(&ready, 1, 0), 0);
        assert_int_equal(send_to(1, 0, 0, 64), GF_OK);
        for (uint32_t turns = 0; (turns < 1000) && (poll(&ready, 1, 1) == 0); turns++)
            (void)ends[1].link->driver->progress(ends[1].link);
        assert_int_equal(poll(&ready, 1, 0), 1);
        assert_int_equal(recv_from(0, 1, 1, 64), GF_OK);
        assert_int_equal(ended(0, 1, 2), GF_OK);
        ends_close(2);
    }
}
