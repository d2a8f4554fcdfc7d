/* Whose connection is broken, by what the kernel says (link_tcp_evidence.c): pairs of socket links
 * in two network namespaces, each pair with a wire of its own, so that all cases run at once. What
 * is sent is lost one way or both ways, while there is traffic and while there is none; beside that
 * what must not be taken for it: a peer that does not read, a lossy network, a slow card, silence.
 * RUNS makes so many.
 * suite: slow */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* unshare, setns */
#endif
#include "drivers/tcp/link_tcp_state.h"
#include "firmware-tests/support/suite.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
#define TIMEOUT_NS (4000 * MS)
#define RUN_NS (3300 * MS)
#define MOST_NS (8000 * MS)
#define FIRST_NS (200 * MS) /* of wires that are well */
#define REQS_MAX 16u
#define LARGE_BYTES (1u << 20)

/* What end `a` or `b` sends from the moment of the trouble on. */
typedef enum traffic {
    NOTHING,
    ONE_SMALL,
    ONE_LARGE, /* announced: the rest waits for READY */
    SMALL,     /* one after the other */
    LARGE
} traffic;

/* A lost direction is the one of what that end sends. */
#define A 1u
#define B 2u
#define BOTH (A | B)

/* A random word below the limit drops the packet. */
#define ONE_OF_TWENTY                                                                        \
    "tc qdisc add dev %s clsact && tc filter add dev %s ingress bpf direct-action bytecode " \
    "'4,32 0 0 4294963256,53 1 0 214748364,6 0 0 2,6 0 0 0'"

static const struct row {
    const char *name;
    unsigned lost;
    traffic sends[2];
    unsigned receives; /* these ends post their receives, */
    unsigned reads;    /* and call progress() */
    unsigned says;     /* one of these must say that it is broken; 0: nobody may, at any time */
    const char *wire;  /* what is done to it at both ends: "%s" is its name there */
    bool is_gone;      /* the wire goes with the trouble */
    int gives_up_ms;   /* the kernel ends the connection by then; 0: it does not */
} rows[] = {
#define ROW(row, direction, a, b, posts, polls, who, ...)                                   \
    {                                                                                       \
        .name = row, .lost = direction, .sends = {a, b}, .receives = posts, .reads = polls, \
        .says = who, __VA_ARGS__                                                            \
    }
    ROW("all is well", 0, SMALL, SMALL, BOTH, BOTH, 0, .is_gone = false),
    ROW("all is quiet", 0, NOTHING, NOTHING, BOTH, BOTH, 0, .is_gone = false),
    ROW("one way, both talk", A, SMALL, SMALL, BOTH, BOTH, A, .is_gone = false),
    ROW("one way, the other end talks too", A, ONE_SMALL, LARGE, BOTH, BOTH, A, .is_gone = false),
    ROW("one way, one message", A, ONE_SMALL, NOTHING, BOTH, BOTH, A, .is_gone = false),
    ROW("one way, large ones", A, LARGE, LARGE, BOTH, BOTH, BOTH, .is_gone = false),
    ROW("READY is lost", B, ONE_LARGE, NOTHING, BOTH, BOTH, B, .is_gone = false),
    ROW("READY is lost, and nothing is to be sent", A, NOTHING, ONE_LARGE, BOTH, BOTH, A,
        .is_gone = false),
    ROW("credit that comes back is lost", B, SMALL, NOTHING, BOTH, BOTH, BOTH, .is_gone = false),
    ROW("two ways, both talk", BOTH, SMALL, SMALL, BOTH, BOTH, BOTH, .is_gone = false),
    ROW("two ways, one message", BOTH, NOTHING, ONE_SMALL, BOTH, BOTH, B, .is_gone = false),
    ROW("a lost wire", 0, SMALL, SMALL, BOTH, BOTH, BOTH, .is_gone = true),
    ROW("the kernel gives it up", BOTH, SMALL, SMALL, BOTH, BOTH, BOTH, .gives_up_ms = 500),
    ROW("the peer posts no receive", 0, SMALL, NOTHING, A, BOTH, 0, .is_gone = false),
    ROW("the peer does not read small ones", 0, SMALL, NOTHING, A, A, 0, .is_gone = false),
    ROW("the peer does not read large ones", 0, LARGE, NOTHING, BOTH, A, 0, .is_gone = false),
    ROW("the peer does not read, and its messages are lost", B, SMALL, NOTHING, A, A, A,
        .is_gone = false),
    ROW("one packet of twenty is lost", 0, SMALL, SMALL, BOTH, BOTH, 0, .wire = ONE_OF_TWENTY),
    ROW("one of twenty, large ones", 0, LARGE, LARGE, BOTH, BOTH, 0, .wire = ONE_OF_TWENTY),
    ROW("a slow card", 0, LARGE, LARGE, BOTH, BOTH, 0,
        .wire = "tc qdisc add dev %s root tbf rate 2mbit burst 64k latency 50ms"),
    ROW("a slow card with a long queue", 0, LARGE, LARGE, BOTH, BOTH, 0,
        .wire = "tc qdisc add dev %s root tbf rate 2mbit burst 64k latency 400ms"),
};
#define ROWS LENGTH(rows)

static int spaces[2]; /* the namespaces */
static char device[ROWS][8];

static struct end {
    struct gf_link *link;
    void *state;
    struct gf_req *sends, *receives;
    uint64_t sent, received; /* begun */
    bool sending, receiving;
    unsigned char *out, *in;
    bool said; /* that the edge is broken */
    struct gf_fault fault;
} ends[ROWS][2];

/* ---- wires ---- */

static void enter(int end)
{
    assert_int_equal(setns(spaces[end], CLONE_NEWNET), 0);
}

__attribute__((format(printf, 1, 2))) static bool shell(const char *format, ...)
{
    char command[600];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(command, sizeof command, format, args);
    va_end(args);
    return system(command) == 0;
}

/* False: this is not allowed here. */
static bool spaces_make(void)
{
    for (int end = 0; end < 2; end++) {
        if (unshare(CLONE_NEWNET) != 0) return false;
        spaces[end] = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        if (spaces[end] < 0) return false;
    }
    return true;
}

static bool wire_make(size_t n)
{
    (void)snprintf(device[n], sizeof device[n], "w%zu", n);
    enter(0);
    if (!shell("ip link add %s type veth peer name %s netns /proc/%d/fd/%d 2>/dev/null && "
               "ip addr add 10.9.%zu.1/24 dev %s && ip link set %s up",
               device[n], device[n], (int)getpid(), spaces[1], n, device[n], device[n]))
        return false;
    enter(1);
    return shell("ip addr add 10.9.%zu.2/24 dev %s && ip link set %s up", n, device[n], device[n]);
}

/* What this end sends goes to a card that nobody has. */
static void lose(size_t n, int end)
{
    enter(end);
    assert_true(shell("ip neigh replace 10.9.%zu.%d lladdr 02:00:00:00:00:99 dev %s nud permanent",
                      n, 2 - end, device[n]));
}

static bool wire_set(size_t n)
{
    for (int end = 0; end < 2; end++) {
        char command[400];
        enter(end);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        (void)snprintf(command, sizeof command, rows[n].wire, device[n], device[n]);
#pragma GCC diagnostic pop
        if (!shell("%s", command)) return false;
    }
    return true;
}

static void fds_make(size_t n, int fds[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t bytes = sizeof at;
    char ip[32];
    (void)snprintf(ip, sizeof ip, "10.9.%zu.2", n);
    assert_int_equal(inet_pton(AF_INET, ip, &at.sin_addr), 1);
    enter(1);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
    enter(0);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fds[0], (struct sockaddr *)&at, sizeof at), 0);
    fds[1] = accept(listener, NULL, NULL);
    assert_true(fds[1] >= 0);
    (void)close(listener);
}

/* ---- ends ---- */

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void end_open(size_t n, uint32_t rank, int fd)
{
    struct end *end = &ends[n][rank];
    struct gf_fault fault = {.code = GF_OK};
    const struct gf_link_setup setup = {.rank = rank,
                                        .world = 2,
                                        .ranks_max = 2,
                                        .timeout_ns = TIMEOUT_NS,
                                        .requests_max = REQS_MAX,
                                        .message_bytes_max = LARGE_BYTES,
                                        .private_memory = true,
                                        .adopts = true};
    *end = (struct end){.link = NULL};
    end->state = aligned_alloc(64, gf_link_tcp.state_bytes(&setup));
    end->sends = aligned_alloc(64, sizeof(struct gf_req));
    end->receives = aligned_alloc(64, sizeof(struct gf_req));
    end->out = calloc(1, LARGE_BYTES);
    end->in = calloc(1, LARGE_BYTES);
    assert_int_equal(gf_link_tcp.open(&setup, end->state, &end->link, &fault), GF_OK);
    if (rows[n].gives_up_ms > 0)
        assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &rows[n].gives_up_ms,
                                    sizeof rows[n].gives_up_ms),
                         0);
    assert_int_equal(gf_link_tcp_adopt(end->link, 1 - rank, 0, fd), GF_OK);
}

static void end_close(struct end *end)
{
    gf_link_tcp.drop(end->link);
    gf_link_tcp.close(end->link);
    free(end->state);
    free(end->sends);
    free(end->receives);
    free(end->out);
    free(end->in);
}

static size_t bytes_of(traffic sends)
{
    return ((sends == LARGE) || (sends == ONE_LARGE)) ? LARGE_BYTES : 1000;
}

/* Before the trouble each end sends so many small ones, and all arrive. */
#define FIRST 20u

static bool may_begin(traffic what, uint64_t begun, bool first)
{
    if (first) return begun < FIRST;
    return (what == SMALL) || (what == LARGE) || ((what != NOTHING) && (begun == FIRST));
}

/* Each end has at most one send and one receive under way. */
static void end_turn(size_t n, uint32_t rank, bool first)
{
    const struct row *row = &rows[n];
    struct end *end = &ends[n][rank];
    size_t out_bytes = bytes_of(first ? SMALL : row->sends[rank]);
    size_t in_bytes = bytes_of(first ? SMALL : row->sends[1 - rank]);
    bool receives = first || ((row->receives >> rank & 1u) != 0);
    if (first || ((row->reads >> rank & 1u) != 0)) (void)gf_link_tcp.progress(end->link);
    if (end->sending) end->sending = gf_link_tcp.test(end->link, end->sends) == GF_AGAIN;
    if (end->receiving) end->receiving = gf_link_tcp.test(end->link, end->receives) == GF_AGAIN;
    if (!end->sending && may_begin(row->sends[rank], end->sent, first))
        end->sending =
            gf_link_tcp.send_post(end->link, 1 - rank, end->sent++, (gf_mem)(uintptr_t)end->out,
                                  out_bytes, end->sends) == GF_OK;
    if (!end->receiving && receives && may_begin(row->sends[1 - rank], end->received, first))
        end->receiving =
            gf_link_tcp.recv_post(end->link, 1 - rank, end->received++, (gf_mem)(uintptr_t)end->in,
                                  in_bytes, end->receives) == GF_OK;
}

static void end_ask(size_t n, uint32_t rank)
{
    struct end *end = &ends[n][rank];
    struct gf_fault fault = {.code = GF_OK};
    bool broken = gf_link_tcp.edge_is_broken(end->link, 1 - rank, &fault);
    assert_int_equal(fault.code, broken ? GF_ERR_LINK : GF_OK);
    /* who may not say it is asked all the time, the others at the end */
    end->said = broken || (end->said && (rows[n].says == 0));
    if (broken) end->fault = fault;
}

static void rows_turn(bool first)
{
    for (size_t n = 0; n < ROWS; n++)
        for (uint32_t rank = 0; rank < 2; rank++) end_turn(n, rank, first);
}

static unsigned said_by(size_t n)
{
    return (ends[n][0].said ? A : 0u) | (ends[n][1].said ? B : 0u);
}

static bool all_have_said(void)
{
    for (size_t n = 0; n < ROWS; n++)
        if ((rows[n].says != 0) && ((said_by(n) & rows[n].says) == 0)) return false;
    return true;
}

/* An estimate of the round trip that a busy machine has spoiled makes the first timeout a second.
 */
static void rows_run(void)
{
    uint64_t since_ns = now_ns();
    for (uint64_t turn = 0;
         (now_ns() - since_ns < RUN_NS) || (!all_have_said() && (now_ns() - since_ns < MOST_NS));
         turn++) {
        const struct timespec pause = {.tv_nsec = 200000};
        rows_turn(false);
        for (size_t n = 0; (turn % 32 == 0) && (n < ROWS); n++)
            for (uint32_t rank = 0; rank < 2; rank++) end_ask(n, rank);
        (void)nanosleep(&pause, NULL);
    }
}

static void trouble_begin(size_t n)
{
    for (int end = 0; end < 2; end++)
        if ((rows[n].lost >> end & 1u) != 0) lose(n, end);
    if (rows[n].is_gone) {
        enter(0);
        assert_true(shell("ip link set %s down", device[n]));
    }
}

/* What the kernel has given up says so at once, and why. */
static bool is_told_right(size_t n, const struct end *end)
{
    return !end->said || (rows[n].gives_up_ms == 0) || (end->fault.foreign_code == ETIMEDOUT);
}

static void kernel_print(size_t n, uint32_t rank)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    int fd = ((struct gf_tcp_link *)ends[n][rank].link)->peers[1 - rank].streams[0].fd;
    (void)getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes);
    print_message(
        "      %c: state %u, %u retransmits, %u probes, backoff %u, rto %u us, %u packets "
        "unacknowledged, %" PRIu64 " messages begun\n",
        (int)('a' + rank), info.tcpi_state, info.tcpi_retransmits, info.tcpi_probes,
        info.tcpi_backoff, info.tcpi_rto, info.tcpi_unacked, ends[n][rank].sent);
}

static int wrong;

static void row_judge(size_t n)
{
    const struct row *row = &rows[n];
    unsigned said = said_by(n);
    bool right = (row->says == 0) ? said == 0 : (said & row->says) != 0;
    right = right && is_told_right(n, &ends[n][0]) && is_told_right(n, &ends[n][1]);
    wrong += right ? 0 : 1;
    print_message("%-5s %s: said by %s%s%s\n", right ? "ok" : "WRONG", row->name,
                  (said & A) ? "a" : "", (said & B) ? "b" : "", (said == 0) ? "nobody" : "");
    for (uint32_t rank = 0; rank < 2; rank++) {
        if (ends[n][rank].said) print_message("      %s\n", ends[n][rank].fault.text);
        if (!right) kernel_print(n, rank);
    }
}

static void run(void)
{
    for (size_t n = 0; n < ROWS; n++) {
        int fds[2];
        if (!wire_make(n)) skip();
        fds_make(n, fds);
        for (uint32_t rank = 0; rank < 2; rank++) end_open(n, rank, fds[rank]);
    }
    for (uint64_t since_ns = now_ns(); now_ns() - since_ns < FIRST_NS;) rows_turn(true);
    for (size_t n = 0; n < ROWS; n++) {
        for (uint32_t rank = 0; rank < 2; rank++)
            assert_true((ends[n][rank].received == FIRST) && !ends[n][rank].receiving);
        if ((rows[n].wire != NULL) && !wire_set(n)) print_message("no %s here\n", rows[n].name);
        trouble_begin(n);
    }
    rows_run();
    for (size_t n = 0; n < ROWS; n++) row_judge(n);
    for (size_t n = 0; n < ROWS; n++) {
        for (uint32_t rank = 0; rank < 2; rank++) end_close(&ends[n][rank]);
        enter(0);
        assert_true(shell("ip link del %s", device[n]));
    }
}

TEST(what_is_not_acknowledged_is_broken_and_who_does_not_read_is_not)
{
    const char *count = getenv("RUNS");
    if ((geteuid() != 0) || !shell("command -v ip >/dev/null && command -v tc >/dev/null") ||
        !spaces_make())
        skip(); /* no rights to make network namespaces, or no iproute2 */
    for (int runs = (count != NULL) ? atoi(count) : 1; runs > 0; runs--) run();
    assert_int_equal(wrong, 0);
}

/* Who closes on purpose has said so elsewhere by then. */
TEST(an_end_that_the_other_one_made_is_broken_a_second_later)
{
    static const struct gf_link_setup setup = {.world = 2,
                                               .ranks_max = 2,
                                               .requests_max = REQS_MAX,
                                               .message_bytes_max = LARGE_BYTES,
                                               .private_memory = true,
                                               .adopts = true};
    struct gf_fault fault = {.code = GF_OK};
    struct gf_link *link;
    int fds[2];
    void *memory = aligned_alloc(64, gf_link_tcp.state_bytes(&setup));
    assert_int_equal(gf_link_tcp.open(&setup, memory, &link, &fault), GF_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(gf_link_tcp_adopt(link, 1, 0, fds[0]), GF_OK);
    assert_false(gf_link_tcp.edge_is_broken(link, 1, &fault));
    (void)close(fds[1]);
    uint64_t since_ns = now_ns();
    bool broken;
    do { /* the second begins no earlier than that, and may end while this process does not run */
        (void)gf_link_tcp.progress(link);
        broken = gf_link_tcp.edge_is_broken(link, 1, &fault);
        assert_true(!broken || (now_ns() - since_ns >= 1000 * MS));
    } while (!broken && (now_ns() - since_ns < 60000 * MS));
    assert_true(broken);
    assert_int_equal(fault.code, GF_ERR_LINK);
    assert_int_equal(fault.peer, 1);
    assert_non_null(strstr(fault.text, "the connection of rank 0 and rank 1 ended: closed there"));
    gf_link_tcp.close(link);
    free(memory);
}
