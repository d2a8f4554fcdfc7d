/* The socket link beside one plain socket, two ranks, in one run and taking turns:
 *
 *     bench_link [-a ADDRESS -r RANK] [-n ROUNDS] [-s SIZES] [-k STREAMS] [-c] [-w WINDOW]
 *                [-b SLICE_BYTES] [-y]
 *     bench_link -i PEERS
 *
 * Without -r it forks, and both ranks are here (ADDRESS 127.0.0.1). Small sizes are swapped; from
 * 64 KiB on half of the data is swapped, added as it arrives, and swapped back, as an allreduce of
 * two does. -c: with checksums; -y: no sleep, the core is given away where nothing moved. Columns:
 * bytes, microseconds of the socket and of the link (medians), and the socket's time over the
 * link's, of each round's pair, median and quartiles.
 *
 * -i: what a progress() takes that finds nothing, with so many connected peers (loopback, of
 * another process) and with one of them awaited, and what memory a connected peer takes. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "drivers/tcp/link_tcp.h"

#define PORT 7121
#define ROUNDS_MAX 1000
#define WINDOW_MAX 64
#define ADD_BYTES_MIN 65536u /* of half the data, from which on it is added */

static struct gf_link *link_open;
static uint32_t rank, streams = 1;
static uint32_t window = 8, slice_bytes = 256u << 10;
static int plain_fd;
static bool yields, checksum;
static unsigned char *data, *arrived;
static unsigned char *reqs;
static uint64_t tag_next;

static _Noreturn void die(const char *what)
{
    perror(what);
    exit(1);
}

static double now(void)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e6 + (double)at.tv_nsec * 1e-3;
}

static void add(unsigned char *to, const unsigned char *from, size_t bytes)
{
    float *into = (float *)(void *)to;
    const float *what = (const float *)(const void *)from;
    for (size_t i = 0; i < bytes / sizeof *into; i++) into[i] += what[i];
}

/* ---- one plain socket: firmware-tests' own yardstick ---- */

static void plain_swap(const unsigned char *out, unsigned char *in, size_t bytes,
                       unsigned char *sum)
{
    size_t sent = 0, came = 0, added = 0;
    while ((sent < bytes) || (came < bytes)) {
        bool moved = false;
        if (sent < bytes) {
            size_t some = (bytes - sent > 1u << 20) ? 1u << 20 : bytes - sent;
            ssize_t put = send(plain_fd, out + sent, some, MSG_NOSIGNAL | MSG_DONTWAIT);
            if ((put < 0) && (errno != EAGAIN)) die("send");
            if (put > 0) sent += (size_t)put;
            moved = moved || (put > 0);
        }
        if (came < bytes) {
            size_t some = (bytes - came > 1u << 20) ? 1u << 20 : bytes - came;
            ssize_t got = recv(plain_fd, in + came, some, MSG_DONTWAIT);
            if ((got == 0) || ((got < 0) && (errno != EAGAIN))) die("recv");
            if (got > 0) came += (size_t)got;
            moved = moved || (got > 0);
        }
        if (sum != NULL) {
            size_t whole = came & ~(size_t)3;
            add(sum + added, in + added, whole - added);
            added = whole;
        }
        if (moved) continue;
        struct pollfd ready = {
            .fd = plain_fd,
            .events = (short)(((came < bytes) ? POLLIN : 0) | ((sent < bytes) ? POLLOUT : 0))};
        if (yields || (bytes < ADD_BYTES_MIN))
            (void)sched_yield();
        else
            (void)poll(&ready, 1, 1);
    }
}

/* ---- the link ---- */

static struct gf_req *req_at(uint32_t i)
{
    return (struct gf_req *)(void *)(reqs + i * gf_link_tcp.req_size_bytes);
}

static void must(gf_status status, const char *what)
{
    if (status == GF_OK) return;
    (void)fprintf(stderr, "bench_link: rank %u: %s: %s\n", rank, what, link_open->fault.text);
    exit(1);
}

/* Slices, a window of them under way; their receives are posted as early as the window allows. */
static void link_swap(const unsigned char *out, unsigned char *in, size_t bytes, unsigned char *sum)
{
    uint32_t count = (uint32_t)((bytes + slice_bytes - 1) / slice_bytes);
    uint32_t recvs = 0, came = 0, sends = 0, sent = 0;
    while ((came < count) || (sent < count)) {
        bool moved;
        while ((recvs < count) && (recvs - came < window)) {
            size_t at = (size_t)recvs * slice_bytes;
            size_t some = (bytes - at < slice_bytes) ? bytes - at : slice_bytes;
            must(gf_link_tcp.recv_post(link_open, 1 - rank, tag_next + recvs,
                                       (gf_mem)(uintptr_t)(in + at), some, req_at(recvs % window)),
                 "recv_post");
            recvs++;
        }
        while ((sends < count) && (sends - sent < window)) {
            size_t at = (size_t)sends * slice_bytes;
            size_t some = (bytes - at < slice_bytes) ? bytes - at : slice_bytes;
            must(gf_link_tcp.send_post(link_open, 1 - rank, tag_next + sends,
                                       (gf_mem)(uintptr_t)(out + at), some,
                                       req_at(WINDOW_MAX + sends % window)),
                 "send_post");
            sends++;
        }
        moved = gf_link_tcp.progress(link_open);
        must(link_open->failed, "progress");
        while ((came < recvs) && (gf_link_tcp.test(link_open, req_at(came % window)) != GF_AGAIN)) {
            size_t at = (size_t)came * slice_bytes;
            size_t some = (bytes - at < slice_bytes) ? bytes - at : slice_bytes;
            must(gf_link_tcp.test(link_open, req_at(came % window)), "receive");
            if (sum != NULL) add(sum + at, in + at, some);
            came++;
        }
        while ((sent < sends) &&
               (gf_link_tcp.test(link_open, req_at(WINDOW_MAX + sent % window)) != GF_AGAIN)) {
            must(gf_link_tcp.test(link_open, req_at(WINDOW_MAX + sent % window)), "send");
            sent++;
        }
        if (moved || ((came == count) && (sent == count))) continue;
        struct pollfd ready = {.fd = link_open->wake_fd, .events = POLLIN};
        if (yields || (bytes < ADD_BYTES_MIN))
            (void)sched_yield();
        else if (gf_link_tcp.arm(link_open))
            (void)poll(&ready, 1, 1);
    }
    tag_next += count;
}

/* ---- both in turn ---- */

static void once(size_t bytes,
                 void (*swap)(const unsigned char *, unsigned char *, size_t, unsigned char *))
{
    size_t half = bytes / 2;
    if (bytes < 65536) {
        swap(data, arrived, bytes, NULL);
        return;
    }
    swap(data + (rank ? 0 : half), arrived, half, data + (rank ? half : 0));
    swap(data + (rank ? half : 0), data + (rank ? 0 : half), half, NULL);
}

static double timed(size_t bytes, int times, bool plain)
{
    unsigned char word = 0;
    double since;
    plain_swap(&word, &word, 1, NULL); /* both begin together */
    since = now();
    for (int i = 0; i < times; i++) once(bytes, plain ? plain_swap : link_swap);
    return (now() - since) / times;
}

static int double_order(const void *a, const void *b)
{
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

static void bench(size_t bytes, int rounds)
{
    static double plain[ROUNDS_MAX], linked[ROUNDS_MAX], ratio[ROUNDS_MAX];
    int times = (bytes >= 16u << 20) ? 1 : (bytes >= 1u << 20) ? 8 : (bytes >= 65536) ? 50 : 1000;
    (void)timed(bytes, times, true);
    (void)timed(bytes, times, false);
    for (int i = 0; i < rounds; i++) {
        bool plain_first = (i % 2 == 0);
        double one = timed(bytes, times, plain_first), other = timed(bytes, times, !plain_first);
        plain[i] = plain_first ? one : other;
        linked[i] = plain_first ? other : one;
        ratio[i] = plain[i] / linked[i];
    }
    qsort(plain, (size_t)rounds, sizeof plain[0], double_order);
    qsort(linked, (size_t)rounds, sizeof linked[0], double_order);
    qsort(ratio, (size_t)rounds, sizeof ratio[0], double_order);
    if (rank == 0)
        printf("%10zu %12.2f %12.2f %8.3f  [%.3f, %.3f]\n", bytes, plain[rounds / 2],
               linked[rounds / 2], ratio[rounds / 2], ratio[rounds / 4],
               ratio[rounds - 1 - rounds / 4]);
    (void)fflush(stdout);
}

/* ---- connections ---- */

static int connection(const char *address, int index)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(PORT + index))};
    int one = 1, fd;
    if (inet_pton(AF_INET, address, &at.sin_addr) != 1) die(address);
    if (rank == 0) {
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(listener, (struct sockaddr *)&at, sizeof at) != 0) die("bind");
        if ((listen(listener, 1) != 0) || ((fd = accept(listener, NULL, NULL)) < 0)) die("accept");
        (void)close(listener);
    } else {
        while (((fd = socket(AF_INET, SOCK_STREAM, 0)) >= 0) &&
               (connect(fd, (struct sockaddr *)&at, sizeof at) != 0)) {
            (void)close(fd);
            (void)usleep(10000);
        }
    }
    if ((fd < 0) || (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0))
        die("socket");
    return fd;
}

static void log_line(void *user, gf_log_level level, const char *line)
{
    (void)user;
    (void)level;
    (void)fprintf(stderr, "rank %u: %s\n", rank, line);
}

static void open_all(const char *address)
{
    struct gf_link_setup setup = {.rank = rank,
                                  .ranks_max = 2,
                                  .world = 2,
                                  .generation = 1,
                                  .requests_max = 2 * WINDOW_MAX,
                                  .message_bytes_max = 64u << 20,
                                  .streams = streams,
                                  .checksum = checksum,
                                  .private_memory = true,
                                  .adopts = true,
                                  .log = {log_line, NULL}};
    struct gf_fault fault = {.code = GF_OK};
    void *state = aligned_alloc(64, gf_link_tcp.state_bytes(&setup));
    reqs = aligned_alloc(64, 2 * WINDOW_MAX * gf_link_tcp.req_size_bytes);
    if (gf_link_tcp.open(&setup, state, &link_open, &fault) != GF_OK) die(fault.text);
    plain_fd = connection(address, 0);
    for (uint32_t s = 0; s < streams; s++)
        must(gf_link_tcp_adopt(link_open, 1 - rank, s, connection(address, 1 + (int)s)), "adopt");
}

/* ---- idle peers ---- */

static long resident_kib(void)
{
    char line[128];
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if ((file == NULL) || (fgets(line, sizeof line, file) == NULL) ||
        (sscanf(line, "%*d %ld", &pages) != 1))
        die("statm");
    (void)fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static double progress_ns(void)
{
    double best = 1e9;
    for (int round = 0; round < 50; round++) {
        double since = now();
        for (int i = 0; i < 2000; i++) (void)gf_link_tcp.progress(link_open);
        double each = (now() - since) / 2000 * 1e3;
        if (each < best) best = each;
    }
    return best;
}

static int idle(uint32_t peers)
{
    struct gf_link_setup setup = {.world = peers + 1,
                                  .ranks_max = peers + 1,
                                  .generation = 1,
                                  .requests_max = 128,
                                  .message_bytes_max = 16u << 20,
                                  .private_memory = true,
                                  .adopts = true,
                                  .log = {log_line, NULL}};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    struct gf_fault fault = {.code = GF_OK};
    size_t state_bytes = gf_link_tcp.state_bytes(&setup);
    void *state = aligned_alloc(64, state_bytes);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    long before_kib = resident_kib();
    if ((bind(listener, (struct sockaddr *)&at, sizeof at) != 0) || (listen(listener, 4096) != 0) ||
        (getsockname(listener, (struct sockaddr *)&at, &bytes) != 0))
        die("listen");
    pid_t child = fork();
    if (child == 0) {
        for (uint32_t i = 0; i < peers; i++) {
            int fd = socket(AF_INET, SOCK_STREAM, 0);
            if ((fd < 0) || (connect(fd, (struct sockaddr *)&at, sizeof at) != 0)) die("connect");
        }
        (void)pause();
        _exit(0);
    }
    reqs = aligned_alloc(64, gf_link_tcp.req_size_bytes);
    if (gf_link_tcp.open(&setup, state, &link_open, &fault) != GF_OK) die(fault.text);
    for (uint32_t id = 1; id <= peers; id++) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) die("accept");
        must(gf_link_tcp_adopt(link_open, id, 0, fd), "adopt");
        (void)gf_link_tcp.progress(link_open);
    }
    printf("peers %u: progress %.0f ns", peers, progress_ns());
    must(gf_link_tcp.recv_post(link_open, 1, 1, 0, 0, req_at(0)), "recv_post");
    printf(", with one awaited %.0f ns; a peer: %zu bytes of state, %ld KiB of them touched\n",
           progress_ns(), (state_bytes - sizeof setup) / peers,
           (resident_kib() - before_kib) / (long)peers);
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    gf_link_tcp.close(link_open);
    return 0;
}

int main(int argc, char **argv)
{
    const char *address = "127.0.0.1", *sizes = "8,4096,65536,1048576,16777216,67108864";
    int rounds = 15, letter;
    bool forks = true;
    while ((letter = getopt(argc, argv, "a:r:n:s:k:cw:b:yi:")) != -1) {
        switch (letter) {
        case 'a': address = optarg; break;
        case 'r':
            rank = (uint32_t)atoi(optarg);
            forks = false;
            break;
        case 'n': rounds = atoi(optarg); break;
        case 's': sizes = optarg; break;
        case 'k': streams = (uint32_t)atoi(optarg); break;
        case 'c': checksum = true; break;
        case 'w': window = (uint32_t)atoi(optarg); break;
        case 'b': slice_bytes = (uint32_t)atoi(optarg); break;
        case 'y': yields = true; break;
        case 'i': return idle((uint32_t)atoi(optarg));
        default: return 2;
        }
    }
    if ((rounds < 1) || (rounds > ROUNDS_MAX) || (window < 1) || (window > WINDOW_MAX)) return 2;
    pid_t child = forks ? fork() : 0;
    if (forks && (child == 0)) rank = 1;
    open_all(address);
    data = aligned_alloc(4096, 64u << 20);
    arrived = aligned_alloc(4096, 64u << 20);
    memset(data, 0, 64u << 20);
    memset(arrived, 0, 64u << 20);
    if (rank == 0) printf("%10s %12s %12s %8s\n", "bytes", "socket us", "link us", "ratio");
    for (const char *at = sizes; at != NULL; at = strchr(at, ',')) {
        if (*at == ',') at++;
        bench(strtoull(at, NULL, 10), rounds);
    }
    gf_link_tcp.close(link_open);
    if (child > 0) (void)waitpid(child, NULL, 0);
    return 0;
}
