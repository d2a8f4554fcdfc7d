/* The UCX link when things go wrong: dead peers, bad settings, damaged endpoint addresses. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/process/ucx_faults.h"
#include "firmware-tests/support/key_file.h"
#include "firmware-tests/support/ucx_ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

static unsigned char out[RANKS_MAX][RANKS_MESSAGE_MAX], in[RANKS_MAX][RANKS_MESSAGE_MAX];

/* ---- a dead peer ---- */

/* Rank 1 dies in the middle of large messages both ways. Rank 0 hears of it by the socket, as by a
 * control channel. */
RANKS_TEST(a_killed_peer_hangs_nobody, 2, 1u << 1)
{
    char byte;
    uint32_t peer = 1 - one->rank;
    gf_status status;
    ranks_begin(one);
    ranks_warm(one);
    for (uint32_t i = 0; i < 32; i++) ranks_recv(one, i, peer, ranks_tag(i), in[i % 3], 1u << 20);
    for (uint32_t i = 0; i < 32; i++) {
        status = one->link->driver->send_post(one->link, peer, ranks_tag(i),
                                              (gf_mem)(uintptr_t)out[i % 3], 1u << 20,
                                              one->reqs[32 + i]);
        /* it may be dead already */
        RANK_CHECK(one, (status == GF_OK) || (one->link->fault.peer == peer));
    }
    if (one->rank == 1) {
        ranks_progress(one);
        (void)kill(getpid(), SIGKILL);
    }
    while (recv(one->to[peer], &byte, 1, MSG_DONTWAIT) != 0) ranks_progress(one);
    for (int i = 0; i < 2000; i++) ranks_progress(one);
    for (uint32_t i = 0; i < 64; i++) one->link->driver->cancel(one->link, one->reqs[i]);
    for (int i = 0; i < 2000; i++) ranks_progress(one);
    one->link->driver->close(one->link);
    for (uint32_t i = 0; i < 64; i++)
        RANK_CHECK(one, one->link->driver->test(one->link, one->reqs[i]) != GF_AGAIN);
    one->link = NULL;
}

/* The mapping of a dead rank's region stays good until reset. */
RANKS_TEST(survivors_of_a_kill_keep_working, 3, 1u << 2)
{
    ranks_begin(one);
    ranks_warm(one);
    if (one->rank == 2) (void)kill(getpid(), SIGKILL);
    for (char byte; recv(one->to[2], &byte, 1, MSG_DONTWAIT) != 0;) ranks_progress(one);
    if (strstr(one->arg, "node") != NULL)
        RANK_CHECK(one, *(uint64_t *)one->link->driver->map(one->link, 2) == 0);
    ranks_recv(one, 0, 2, ranks_tag(0), in[0], 8);
    ranks_recv(one, 1, 1 - one->rank, ranks_tag(1), in[1], 8);
    ranks_send(one, 2, 1 - one->rank, ranks_tag(1), out[0], 8);
    RANK_CHECK(one, (ranks_end(one, 1) == GF_OK) && (ranks_end(one, 2) == GF_OK));
    RANK_CHECK(one, one->link->driver->reset(one->link, 2) == GF_OK);
    RANK_CHECK(one, one->link->driver->test(one->link, one->reqs[0]) == GF_ERR_ABORTED);
}

/* A drop ends what only the dead could have ended, and neither flushes nor makes anything: the
 * region and what lies in it stay. A reset behind it makes the link anew. */
RANKS_TEST(a_drop_ends_all_and_keeps_the_region, 2, 1u << 1)
{
    uint64_t *own;
    ranks_begin(one);
    ranks_warm(one);
    own = (void *)one->link->region;
    *own = 4711;
    if (one->rank == 1) (void)kill(getpid(), SIGKILL);
    for (char byte; recv(one->to[1], &byte, 1, MSG_DONTWAIT) != 0;) ranks_progress(one);
    ranks_recv(one, 0, 1, ranks_tag(0), in[0], 8);
    one->link->driver->drop(one->link);
    RANK_CHECK(one, one->link->driver->test(one->link, one->reqs[0]) == GF_ERR_ABORTED);
    RANK_CHECK(one, ((void *)one->link->region == own) && (*own == 4711));
    RANK_CHECK(one, one->link->driver->progress(one->link) == GF_ERR_STATE);
    RANK_CHECK(one, one->link->wake_fd < 0);
    RANK_CHECK(one, one->link->driver->send_post(one->link, 1, ranks_tag(0), 0, 0, one->reqs[0]) ==
                        GF_ERR_STATE);
    RANK_CHECK(one, one->link->driver->reset(one->link, 2) == GF_OK);
    RANK_CHECK(one, one->link->wake_fd >= 0);
}

/* Rank 1 is gone before rank 0 connects to it: an error or not, but neither a hang nor an abort. */
RANKS_TEST(a_peer_that_died_before_connect_hangs_nobody, 2, 1u << 1)
{
    size_t size_bytes = 0;
    char byte;
    gf_status status;
    const void *endpoint = ranks_begin_apart(one, &size_bytes);
    if (one->rank == 1) (void)kill(getpid(), SIGKILL);
    while (recv(one->to[1], &byte, 1, MSG_DONTWAIT) != 0) ranks_progress(one);
    status = ranks_connect_one(one, 1, endpoint, size_bytes);
    RANK_CHECK(one, (status == GF_OK) || ((status < 0) && (one->link->fault.peer == 1)));
    if (status == GF_OK) {
        for (uint32_t i = 0; i < 8; i++) ranks_recv(one, i, 1, ranks_tag(i), in[i % 3], 1u << 20);
        for (uint32_t i = 8; i < 16; i++)
            if (one->link->driver->send_post(one->link, 1, ranks_tag(i), (gf_mem)(uintptr_t)out,
                                             1u << (i + 4), one->reqs[i]) != GF_OK)
                RANK_CHECK(one, one->link->fault.peer == 1);
        for (int i = 0; i < 2000; i++) ranks_progress(one);
    }
}

/* The way over tcp is not there yet when a large message asks UCX to finish its setting up, and the
 * worker ends. */
RANKS_TEST(a_worker_may_end_while_ucx_sets_up_its_connections, 2, 0)
{
    size_t size_bytes = 0;
    uint32_t peer = 1 - one->rank;
    char byte = 0;
    const void *endpoint = ranks_begin_apart(one, &size_bytes);
    RANK_CHECK(one, ranks_connect_one(one, peer, endpoint, size_bytes) == GF_OK);
    RANK_CHECK(one, write(one->to[peer], &byte, 1) == 1);
    RANK_CHECK(one, recv(one->to[peer], &byte, 1, 0) == 1);
    if (one->rank == 1) RANK_CHECK(one, recv(one->to[0], &byte, 1, 0) == 1);
    if (one->rank == 0) {
        ranks_send(one, 0, peer, ranks_tag(0), out[0], 1u << 20);
        one->link->driver->drop(one->link);
        RANK_CHECK(one, one->link->driver->test(one->link, one->reqs[0]) != GF_AGAIN);
        RANK_CHECK(one, write(one->to[1], &byte, 1) == 1);
    }
}

/* ---- what open and connect refuse ---- */

static const struct open_case {
    const char *name, *transports, *devices, *ports;
    size_t region_bytes;
    gf_status expect;
    /* part of the fault's, which names the transports too where there is a key or encryption */
    const char *text;
    bool key, one_node, encrypts;
} open_cases[] = {
    {"no_such_transport", "bogus", "lo", "", 0, GF_ERR_CONFIG, .text = "bogus"},
    {"one_of_them_does_not_exist", "tcp,bogus", "lo", "", 0, GF_ERR_CONFIG, .text = "bogus"},
    {"no_transport", "", "lo", "", 0, GF_ERR_CONFIG, .text = "name each one"},
    {"cma_is_for_no_network", "tcp,cma", "lo", "", 0, GF_ERR_CONFIG,
     .text = "\"cma\" is for no network"},
    {"nor_is_posix", "posix,tcp", "lo", "", 0, GF_ERR_CONFIG, .text = "link.private_memory"},
    {"nor_sysv", "sysv", "lo", "", 0, GF_ERR_CONFIG, .text = "\"sysv\" is for no network"},
    {"nor_self", "tcp,self", "lo", "", 0, GF_ERR_CONFIG, .text = "\"self\" is for no network"},
    {"nor_a_device_alone", "cuda_copy", "lo", "", 0, GF_ERR_CONFIG,
     .text = "none is for a network"},
    {"that_on_one_node_too", "posix", "lo", "", 0, GF_ERR_CONFIG, .text = "posix",
     .one_node = true},
    {"nor_all", "all", "lo", "", 0, GF_ERR_CONFIG, .text = "\"all\" is for no network"},
    {"no_such_device", "tcp", "nope0", "", 0, GF_ERR_CONFIG, .text = "nope0"},
    {"ports_backwards", "tcp", "lo", "25-20", 0, GF_ERR_CONFIG, .text = "25-20"},
    {"ports_are_no_range", "tcp", "lo", "many", 0, GF_ERR_CONFIG, .text = "many"},
    {"ports_too_high", "tcp", "lo", "1-65536", 0, GF_ERR_CONFIG, .text = "1-65536"},
    {"region_beyond_the_host", "node", "lo", "", (size_t)1 << 50, GF_ERR_SYSTEM,
     .text = "1125899906842624"},
    {"region_beyond_it_over_tcp", "tcp", "lo", "", (size_t)1 << 50, GF_ERR_SYSTEM,
     .text = "1125899906842624"},
    {"region_of_all_addresses", "node", "lo", "", SIZE_MAX, GF_ERR_SYSTEM,
     .text = "18446744073709551615"},
    {"a_fabric_without_proofs_is_trusted", "rc", "lo", "", 0, GF_ERR_CONFIG, "trusted_fabric",
     .key = true},
    {"the_same_beside_tcp", "rc,tcp", "lo", "", 0, GF_ERR_CONFIG, "trusted_fabric", .key = true},
    {"on_one_node_there_is_none", "rc", "lo", "", 0, GF_OK, "", .key = true, .one_node = true},
    {"tcp_has_proofs", "node,tcp", "lo", "", 0, GF_OK, "", .key = true},
    {"encryption_without_a_key", "tcp", "lo", "", 0, GF_ERR_CONFIG, "link.encryption",
     .encrypts = true},
    {"encryption_over_rc", "tcp,rc", "lo", "", 0, GF_ERR_CONFIG, "link.encryption", .key = true,
     .encrypts = true},
    {"and_over_ud", "ud", "lo", "", 0, GF_ERR_CONFIG, "link.encryption", .key = true,
     .encrypts = true},
    {"all_is_well", "node,tcp", "lo", "21000-25999", 4096, GF_OK, .text = ""},
    {"on_one_node", "node", "lo", "21000-25999", 4096, GF_OK, .text = ""},
    {"between_nodes", "tcp", "lo", "21000-25999", 4096, GF_OK, .text = ""},
    {"a_narrow_range", "tcp", "lo", "24110-24119", 4096, GF_OK, .text = ""},
    {"all_to_ucx", "node,tcp", "", "", 4096, GF_OK, .text = ""},
};

/* What of this process listens: on the device's address (lo), in the range that is allowed to
 * it. */
static void listens_check(struct ranks_one *one, const char *ports)
{
    unsigned first = 0;
    unsigned last = 0;
    unsigned count = 0;
    RANK_CHECK(one, sscanf(ports, "%u-%u", &first, &last) == 2);
    for (int fd = 0; fd < 1024; fd++) {
        struct sockaddr_in at = {0};
        socklen_t bytes = sizeof at;
        int listens = 0;
        socklen_t size = sizeof listens;
        if ((getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0) || (listens == 0))
            continue;
        if ((getsockname(fd, (struct sockaddr *)&at, &bytes) != 0) || (at.sin_family != AF_INET))
            continue;
        count++;
        RANK_CHECK(one, (ntohs(at.sin_port) >= first) && (ntohs(at.sin_port) <= last));
        RANK_CHECK(one, ntohl(at.sin_addr.s_addr) == INADDR_LOOPBACK);
    }
    RANK_CHECK(one, count > 0);
}

static void open_case_body(struct ranks_one *one)
{
    const struct open_case *c = one->arg;
    struct gf_fault fault = {.code = GF_OK};
    FILE *spoken = tmpfile();
    RANK_CHECK(one, (spoken != NULL) && (dup2(fileno(spoken), STDOUT_FILENO) == STDOUT_FILENO));
    ranks_setup(one, c->transports);
    one->setup.devices = c->devices;
    one->setup.ports = c->ports;
    one->setup.region_bytes = c->region_bytes;
    one->setup.key_file = c->key ? key_path : "";
    one->setup.encryption = one->setup.trusted_fabric = c->encrypts;
    one->setup.one_node = c->one_node || c->encrypts || (strcmp(c->transports, "node") == 0);
    if (c->one_node) one->setup.private_memory = false;
    if (ranks_open_try(one, &fault) != c->expect)
        ranks_fail(one, c->name, (int)fault.code, fault.text);
    if (c->expect == GF_OK) {
        /* UCX took each key. */
        RANK_CHECK(one, (strstr(one->log, "[0]") == NULL) && (strstr(one->log, "[1]") == NULL));
        if ((strcmp(c->transports, "tcp") == 0) && (c->ports[0] != 0)) listens_check(one, c->ports);
        ranks_close(one);
    }
    if ((fault.code != c->expect) || (strstr(fault.text, c->text) == NULL) ||
        ((fault.code != GF_OK) && (c->key || c->encrypts) &&
         (strstr(fault.text, c->encrypts ? c->transports : "rc") == NULL)))
        ranks_fail(one, c->name, (int)fault.code, fault.text);
    (void)fflush(NULL);
    RANK_CHECK(one, lseek(STDOUT_FILENO, 0, SEEK_END) == 0); /* UCX has printed nothing */
}

TEST(bad_settings_are_refused_with_their_names)
{
    for (size_t i = 0; i < LENGTH(open_cases); i++) ranks_run(1, 0, open_case_body, &open_cases[i]);
}

RANKS_TEST(a_wrong_endpoint_is_refused, 2, 0)
{
    static unsigned char bad[2049];
    size_t size_bytes = 0;
    const void *endpoint = ranks_begin_apart(one, &size_bytes);
    struct gf_fault *fault = &one->link->fault;
    RANK_CHECK(one, one->link->driver->connect(one->link, 7, endpoint, size_bytes) == GF_ERR_PARAM);
    for (size_t i = 0; i < size_bytes; i++) { /* one bit of each byte, one after the other */
        fault->code = GF_OK;
        memcpy(bad, endpoint, size_bytes);
        bad[i] ^= (unsigned char)(1u << (i % 8));
        RANK_CHECK(one, one->link->driver->connect(one->link, 1 - one->rank, bad, size_bytes) < 0);
        RANK_CHECK(one, (fault->code != GF_OK) && (fault->peer == 1 - one->rank) &&
                            (fault->text[0] != '\0'));
    }
    for (size_t i = 0; i < size_bytes; i++) /* cut short */
        RANK_CHECK(one, one->link->driver->connect(one->link, 1 - one->rank, endpoint, i) ==
                            GF_ERR_DATA);
    memset(bad, 0, sizeof bad);
    memcpy(bad, endpoint, size_bytes);
    RANK_CHECK(one, one->link->driver->connect(one->link, 1 - one->rank, bad, size_bytes + 1) ==
                        GF_ERR_DATA);
    RANK_CHECK(one, one->link->driver->connect(one->link, 1 - one->rank, bad, sizeof bad) ==
                        GF_ERR_DATA);
    /* our own is not the peer's */
    RANK_CHECK(one, one->link->driver->endpoint(one->link, bad, &size_bytes) == GF_OK);
    RANK_CHECK(one, one->link->driver->connect(one->link, 1 - one->rank, bad, size_bytes) ==
                        GF_ERR_MISMATCH);
    ranks_connect(one); /* and after all that the right one still works */
    RANK_CHECK(one, one->link->driver->connect(one->link, 1 - one->rank, endpoint, size_bytes) ==
                        GF_OK); /* it is */
    ranks_meet(one);
}

TEST_AROUND(key_file_make, key_file_remove)
