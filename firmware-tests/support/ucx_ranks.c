/* Ranks as processes, each with a link over UCX. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/ucx_ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANK_SECONDS_MAX 60u /* only a hang takes that long */

_Noreturn void ranks_fail(struct ranks_one *one, const char *file, int line, const char *what)
{
    fprintf(stderr, "rank %u: %s:%d: %s does not hold\n", one->rank, file, line, what);
    if ((one->link != NULL) && (one->link->fault.code != GF_OK))
        fprintf(stderr, "  %s\n", one->link->fault.text);
    fprintf(stderr, "%s", one->log);
    _exit(1);
}

static void log_keep(void *user, gf_log_level level, const char *text)
{
    struct ranks_one *one = user;
    size_t used = strlen(one->log);
    (void)snprintf(one->log + used, sizeof one->log - used, "  [%d] %s\n", (int)level, text);
}

/* ---- processes ---- */

void ranks_run_each(uint32_t world, uint32_t killed, void (*body)(struct ranks_one *one))
{
    static const char *const transports[] = {"tcp", "node,tcp"};
    for (size_t i = 0; i < LENGTH(transports); i++) ranks_run(world, killed, body, transports[i]);
}

void ranks_run(uint32_t world, uint32_t killed, void (*body)(struct ranks_one *one),
               const void *arg)
{
    int sockets[RANKS_MAX][RANKS_MAX];
    pid_t pids[RANKS_MAX];
    for (uint32_t a = 0; a < world; a++) {
        for (uint32_t b = 0; b < a; b++) {
            int pair[2];
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
            sockets[a][b] = pair[0];
            sockets[b][a] = pair[1];
        }
        sockets[a][a] = -1;
    }
    fflush(NULL);
    for (uint32_t rank = 0; rank < world; rank++) {
        pids[rank] = fork();
        assert_true(pids[rank] >= 0);
        if (pids[rank] == 0) {
            static struct ranks_one one;
            (void)alarm(RANK_SECONDS_MAX);
            one = (struct ranks_one){.rank = rank, .world = world, .killed = killed, .arg = arg};
            for (uint32_t a = 0; a < world; a++)
                for (uint32_t b = 0; b < world; b++) {
                    if (a == rank)
                        one.to[b] = sockets[a][b];
                    else if (sockets[a][b] >= 0)
                        (void)close(sockets[a][b]);
                }
            body(&one);
            if (one.link != NULL) ranks_close(&one);
            _exit(0); /* no leak check at exit: UCX keeps its globals */
        }
    }
    for (uint32_t a = 0; a < world; a++)
        for (uint32_t b = 0; b < world; b++)
            if (sockets[a][b] >= 0) (void)close(sockets[a][b]);
    for (uint32_t rank = 0; rank < world; rank++) {
        int status = 0;
        assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
        if (killed & (1u << rank))
            assert_true(WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL));
        else if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0))
            fail_msg("rank %u ended with wait status %#x", rank, (unsigned)status);
    }
}

/* ---- links ---- */

void ranks_setup(struct ranks_one *one, const char *transports)
{
    bool in_node = strncmp(transports, "node,", 5) == 0;
    one->setup = (struct gf_link_setup){.rank = one->rank,
                                        .world = one->world,
                                        .ranks_max = one->world,
                                        .generation = 1,
                                        .requests_max = RANKS_REQS,
                                        .message_bytes_max = RANKS_MESSAGE_MAX,
                                        .region_bytes = 65536,
                                        .transports = in_node ? transports + 5 : transports,
                                        .private_memory = !in_node,
                                        .devices = "lo",
                                        .insecure = true,
                                        .network = GF_NETWORK_FABRIC,
                                        .networks[GF_NETWORK_FABRIC] = &gf_link_ucx,
                                        .log = {.fn = log_keep, .user = one}};
}

gf_status ranks_open_try(struct ranks_one *one, struct gf_fault *fault_out)
{
    size_t state_bytes = (gf_link_front.state_bytes(&one->setup) + 63) / 64 * 64;
    one->state = aligned_alloc(64, state_bytes);
    memset(one->state, 0xa5, state_bytes);
    for (uint32_t i = 0; i < RANKS_REQS; i++) {
        one->reqs[i] = aligned_alloc(64, gf_link_ucx.req_size_bytes);
        memset((void *)one->reqs[i], 0xa5, gf_link_ucx.req_size_bytes);
    }
    return gf_link_front.open(&one->setup, one->state, &one->link, fault_out);
}

static void bytes_write(struct ranks_one *one, uint32_t peer, const void *data, size_t size_bytes)
{
    RANK_CHECK(one, write(one->to[peer], data, size_bytes) == (ssize_t)size_bytes);
}

/* Peers may need this rank's progress to get as far as writing. */
static void bytes_read(struct ranks_one *one, uint32_t peer, void *data_out, size_t size_bytes)
{
    struct pollfd ready = {.fd = one->to[peer], .events = POLLIN};
    while (poll(&ready, 1, 1) == 0)
        if (one->link != NULL) (void)one->link->driver->progress(one->link);
    RANK_CHECK(one, recv(one->to[peer], data_out, size_bytes, MSG_WAITALL) == (ssize_t)size_bytes);
}

void ranks_endpoint_swap(struct ranks_one *one, uint32_t peer, void *endpoint_out,
                         size_t *size_bytes_out)
{
    static unsigned char endpoint[2048];
    size_t size_bytes = 0;
    RANK_CHECK(one, gf_link_ucx.endpoint_bytes_max + gf_link_front.endpoint_bytes_max <=
                        sizeof endpoint);
    RANK_CHECK(one, one->link->driver->endpoint(one->link, endpoint, &size_bytes) == GF_OK);
    bytes_write(one, peer, &size_bytes, sizeof size_bytes);
    bytes_write(one, peer, endpoint, size_bytes);
    bytes_read(one, peer, size_bytes_out, sizeof *size_bytes_out);
    bytes_read(one, peer, endpoint_out, *size_bytes_out);
}

const void *ranks_begin_apart(struct ranks_one *one, size_t *size_bytes_out)
{
    static unsigned char endpoint[2048];
    ranks_setup(one, one->arg);
    RANK_CHECK(one, ranks_open_try(one, NULL) == GF_OK);
    ranks_endpoint_swap(one, 1 - one->rank, endpoint, size_bytes_out);
    return endpoint;
}

void ranks_connect(struct ranks_one *one)
{
    static unsigned char endpoints[RANKS_MAX][2048];
    size_t sizes[RANKS_MAX] = {0};
    uint32_t up = 0;
    for (uint32_t peer = 0; peer < one->world; peer++)
        if (peer != one->rank) ranks_endpoint_swap(one, peer, endpoints[peer], &sizes[peer]);
    while (up < one->world) {
        up = 0;
        for (uint32_t peer = 0; peer < one->world; peer++) {
            gf_status status =
                one->link->driver->connect(one->link, peer, endpoints[peer], sizes[peer]);
            RANK_CHECK(one, status >= 0);
            up += status == GF_OK;
        }
    }
    ranks_meet(one);
}

gf_status ranks_connect_one(struct ranks_one *one, uint32_t peer, const void *endpoint,
                            size_t size_bytes)
{
    gf_status status;
    do status = one->link->driver->connect(one->link, peer, endpoint, size_bytes);
    while (status == GF_AGAIN);
    return status;
}

void ranks_open(struct ranks_one *one)
{
    struct gf_fault fault = {.code = GF_OK};
    if (ranks_open_try(one, &fault) != GF_OK) ranks_fail(one, __FILE__, __LINE__, fault.text);
    ranks_connect(one);
}

void ranks_begin(struct ranks_one *one)
{
    ranks_setup(one, one->arg);
    ranks_open(one);
}

void ranks_close(struct ranks_one *one)
{
    one->link->driver->close(one->link);
    one->link = NULL;
    for (uint32_t i = 0; i < RANKS_REQS; i++) free(one->reqs[i]);
    free(one->state);
}

void ranks_meet(struct ranks_one *one)
{
    char turn = 'x';
    for (uint32_t peer = 0; peer < one->world; peer++)
        if (peer != one->rank) bytes_write(one, peer, &turn, 1);
    for (uint32_t peer = 0; peer < one->world; peer++)
        if (peer != one->rank) bytes_read(one, peer, &turn, 1);
}

/* ---- messages ---- */

/* A link that is polled for a second after a peer's death says itself that the connection ended. */
static bool dead(const struct ranks_one *one, uint32_t peer)
{
    return (peer < one->world) && (one->killed >> peer & 1);
}

void ranks_progress(struct ranks_one *one)
{
    bool moved = one->link->driver->progress(one->link);
    RANK_CHECK(one, (one->link->failed == GF_OK) || dead(one, one->link->fault.peer));
    if (!moved) (void)sched_yield(); /* there may be fewer cores than ranks */
}

gf_status ranks_end(struct ranks_one *one, uint32_t req)
{
    gf_status answer;
    while ((answer = one->link->driver->test(one->link, one->reqs[req])) == GF_AGAIN)
        ranks_progress(one);
    RANK_CHECK(one, one->link->driver->test(one->link, one->reqs[req]) == answer);
    return answer;
}

void ranks_send(struct ranks_one *one, uint32_t req, uint32_t to, uint64_t tag, const void *data,
                size_t size_bytes)
{
    RANK_CHECK(one, one->link->driver->send_post(one->link, to, tag, (gf_mem)(uintptr_t)data,
                                                 size_bytes, one->reqs[req]) == GF_OK);
}

void ranks_recv(struct ranks_one *one, uint32_t req, uint32_t from, uint64_t tag, void *data,
                size_t size_bytes)
{
    RANK_CHECK(one, one->link->driver->recv_post(one->link, from, tag, (gf_mem)(uintptr_t)data,
                                                 size_bytes, one->reqs[req]) == GF_OK);
}

void ranks_warm(struct ranks_one *one)
{
    static unsigned char out[RANKS_MESSAGE_MAX];
    static unsigned char in[RANKS_MESSAGE_MAX];
    for (uint32_t peer = 0; peer < one->world; peer++) {
        if (peer == one->rank) continue;
        ranks_recv(one, 0, peer, 0, in, sizeof in);
        ranks_send(one, 1, peer, 0, out, sizeof out);
        RANK_CHECK(one, (ranks_end(one, 0) == GF_OK) && (ranks_end(one, 1) == GF_OK));
    }
    ranks_meet(one);
}

static unsigned char byte_at(uint64_t seed, size_t i)
{
    return (unsigned char)(((seed * 0x9e3779b97f4a7c15u) >> 56) + i * 31 + (i >> 8));
}

void ranks_fill(void *data, size_t size_bytes, uint64_t seed)
{
    for (size_t i = 0; i < size_bytes; i++) ((unsigned char *)data)[i] = byte_at(seed, i);
}

bool ranks_filled(const void *data, size_t size_bytes, uint64_t seed)
{
    for (size_t i = 0; i < size_bytes; i++)
        if (((const unsigned char *)data)[i] != byte_at(seed, i)) return false;
    return true;
}
