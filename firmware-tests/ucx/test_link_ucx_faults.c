/* The UCX link when things go wrong: dead peers, bad settings, damaged endpoint addresses.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/key_file.h"
#include "firmware-tests/support/ucx_ranks.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

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
    RANK_CHECK(one, one->link->driver->reset(one->link, 2, one->rank, one->world) == GF_OK);
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
    RANK_CHECK(one, !one->link->driver->progress(one->link));
    RANK_CHECK(one, one->link->wake_fd < 0);
    RANK_CHECK(one, one->link->driver->send_post(one->link, 1, ranks_tag(0), 0, 0, one->reqs[0]) ==
                        GF_ERR_STATE);
    RANK_CHECK(one, one->link->driver->reset(one->link, 2, one->rank, one->world) == GF_OK);
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

/* ---- what open and connect refuse ---- */

/* A key, and what is said of strangers. */
enum { WITH_KEY = 1, TRUSTED = 2, INSECURE = 4 };

static const struct open_case {
    const char *name, *transports, *devices;
    size_t region_bytes;
    unsigned said;
    gf_status expect;
    const char *texts[2]; /* parts of the fault's */
} open_cases[] = {
    {"no_such_transport", "bogus", "lo", 0, INSECURE, GF_ERR_CONFIG, {"bogus"}},
    {"one_of_them_does_not_exist", "tcp,bogus", "lo", 0, INSECURE, GF_ERR_CONFIG, {"bogus"}},
    {"all_but_some_are_not_named", "^tcp", "lo", 0, INSECURE, GF_ERR_CONFIG, {"name each one"}},
    {"sysv_is_for_no_network",
     "sysv",
     "lo",
     0,
     INSECURE,
     GF_ERR_CONFIG,
     {"\"sysv\" is for no network", "link.private_memory"}},
    {"nor_is_cma", "tcp,cma", "lo", 0, INSECURE, GF_ERR_CONFIG, {"\"cma\" is for no network"}},
    {"nor_posix", "posix,tcp", "lo", 0, INSECURE, GF_ERR_CONFIG, {"\"posix\" is for no network"}},
    {"nor_self", "tcp,self", "lo", 0, INSECURE, GF_ERR_CONFIG, {"\"self\" is for no network"}},
    {"nor_all", "all", "lo", 0, INSECURE, GF_ERR_CONFIG, {"\"all\" is for no network"}},
    {"nor_a_device_alone",
     "cuda_copy",
     "lo",
     0,
     INSECURE,
     GF_ERR_CONFIG,
     {"none is for a network"}},
    {"no_such_device", "tcp", "nope0", 0, INSECURE, GF_ERR_CONFIG, {"nope0"}},
    {"region_beyond_the_host",
     "node,tcp",
     "lo",
     (size_t)1 << 50,
     INSECURE,
     GF_ERR_SYSTEM,
     {"1125899906842624"}},
    {"region_beyond_it_over_tcp",
     "tcp",
     "lo",
     (size_t)1 << 50,
     INSECURE,
     GF_ERR_SYSTEM,
     {"1125899906842624"}},
    {"region_of_all_addresses",
     "node,tcp",
     "lo",
     SIZE_MAX,
     INSECURE,
     GF_ERR_SYSTEM,
     {"18446744073709551615"}},
    {"with_a_key_a_fabric_must_be_trusted",
     "rc",
     "lo",
     0,
     WITH_KEY,
     GF_ERR_CONFIG,
     {"transports \"rc\"", "link.trusted_fabric = true"}},
    {"and_so_must_tcp",
     "tcp",
     "lo",
     0,
     WITH_KEY | INSECURE,
     GF_ERR_CONFIG,
     {"transports \"tcp\"", "link.driver = tcp"}},
    {"a_key_and_a_trusted_fabric", "tcp", "lo", 4096, WITH_KEY | TRUSTED, GF_OK, {""}},
    {"without_a_key_tcp_takes_raw_writes",
     "tcp",
     "lo",
     0,
     0,
     GF_ERR_CONFIG,
     {"raw writes into this process", "rendezvous.insecure = true; else link.driver = tcp"}},
    {"whatever_the_fabric_is",
     "rc,tcp",
     "lo",
     0,
     TRUSTED,
     GF_ERR_CONFIG,
     {"transports \"rc,tcp\"", "rendezvous.insecure = true"}},
    {"all_is_well", "node,tcp", "lo", 4096, INSECURE, GF_OK, {""}},
    {"between_nodes", "tcp", "lo", 4096, INSECURE, GF_OK, {""}},
    {"all_devices_to_ucx", "node,tcp", "", 4096, INSECURE, GF_OK, {""}},
};

static void open_case_body(struct ranks_one *one)
{
    const struct open_case *c = one->arg;
    struct gf_fault fault = {.code = GF_OK};
    FILE *spoken = tmpfile();
    RANK_CHECK(one, (spoken != NULL) && (dup2(fileno(spoken), STDOUT_FILENO) == STDOUT_FILENO));
    ranks_setup(one, c->transports);
    one->setup.devices = c->devices;
    one->setup.region_bytes = c->region_bytes;
    one->setup.key_file = ((c->said & WITH_KEY) != 0) ? key_path : "";
    one->setup.trusted_fabric = (c->said & TRUSTED) != 0;
    one->setup.insecure = (c->said & INSECURE) != 0;
    if (ranks_open_try(one, &fault) != c->expect)
        ranks_fail(one, c->name, (int)fault.code, fault.text);
    if (c->expect == GF_OK) {
        /* UCX took each key. */
        RANK_CHECK(one, (strstr(one->log, "[0]") == NULL) && (strstr(one->log, "[1]") == NULL));
        ranks_close(one);
    }
    if (fault.code != c->expect) ranks_fail(one, c->name, (int)fault.code, fault.text);
    for (size_t i = 0; (i < LENGTH(c->texts)) && (c->texts[i] != NULL); i++)
        if (strstr(fault.text, c->texts[i]) == NULL)
            ranks_fail(one, c->name, (int)fault.code, fault.text);
    (void)fflush(NULL);
    RANK_CHECK(one, lseek(STDOUT_FILENO, 0, SEEK_END) == 0); /* UCX has printed nothing */
}

TEST(bad_settings_are_refused_with_their_names)
{
    for (size_t i = 0; i < LENGTH(open_cases); i++) ranks_run(1, 0, open_case_body, &open_cases[i]);
}

/* UCX's thread, which takes connections, is not in the child. The parent goes on. */
RANKS_TEST(a_forked_child_opens_none_while_its_parent_has_one, 1, 0)
{
    int status = 0;
    pid_t child;
    ranks_begin(one);
    child = fork();
    RANK_CHECK(one, child >= 0);
    if (child == 0) {
        struct ranks_one *mine = calloc(1, sizeof *mine);
        struct gf_fault fault = {.code = GF_OK};
        mine->world = 1;
        ranks_setup(mine, one->arg);
        if (ranks_open_try(mine, &fault) != GF_ERR_SYSTEM) _exit(2);
        _exit((strstr(fault.text, "fork before, or exec()") == NULL) ? 3 : 0);
    }
    RANK_CHECK(one, waitpid(child, &status, 0) == child);
    RANK_CHECK(one, WIFEXITED(status) && (WEXITSTATUS(status) == 0));
    RANK_CHECK(one, one->link->driver->reset(one->link, 2, one->rank, one->world) == GF_OK);
    ranks_close(one);
    child = fork(); /* nothing is open now */
    RANK_CHECK(one, child >= 0);
    ranks_begin(one);
    if (child == 0) {
        ranks_close(one);
        _exit(0);
    }
    RANK_CHECK(one, waitpid(child, &status, 0) == child);
    RANK_CHECK(one, WIFEXITED(status) && (WEXITSTATUS(status) == 0));
}

/* By the network: whoever shares memory reads no more than the front's part. */
static void wrong_endpoint_body(struct ranks_one *one)
{
    static unsigned char bad[2049];
    uint32_t no_network = 0;
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
    /* cut short; once it is that of a rank with no network */
    for (size_t i = 0; i < size_bytes; i++) {
        gf_status status = one->link->driver->connect(one->link, 1 - one->rank, endpoint, i);
        no_network += (status == GF_ERR_LINK) ? 1u : 0u;
        RANK_CHECK(one, (status == GF_ERR_DATA) || (status == GF_ERR_LINK));
    }
    RANK_CHECK(one, no_network <= 1);
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

TEST(a_wrong_endpoint_is_refused)
{
    ranks_run(2, 0, wrong_endpoint_body, "tcp");
}

TEST_AROUND(key_file_make, key_file_remove)
