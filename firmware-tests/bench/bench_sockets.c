/* What the kernel's TCP allows small data: recursive doubling over one socket a pair, polled
 * without a library between, the core given away where nothing moved. Options in bench_peer.h, and
 * -w WORLD (a power of two), -r RANK, -a PREFIX: rank i has the address PREFIX(i + 1). */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>

#include "firmware-tests/bench/bench_peer.h"

#define ROUNDS_MAX 6
#define PORT 7119

static int rank, world, partners[ROUNDS_MAX]; /* sockets */
static const char *prefix = "127.0.0.";
static void *arrived;

static void own_option(int letter, const char *value)
{
    if (letter == 'w') world = atoi(value);
    if (letter == 'r') rank = atoi(value);
    if (letter == 'a') prefix = value;
}

static _Noreturn void die(const char *call)
{
    perror(call);
    exit(1);
}

/* Both ways at once, or two that send more than sockets hold would wait for each other. */
static void swap(int partner, const void *out, void *in, size_t bytes)
{
    size_t sent = 0;
    size_t came = 0;
    while ((sent < bytes) || (came < bytes)) {
        ssize_t some = (sent < bytes)
                           ? send(partner, (const char *)out + sent, bytes - sent, MSG_NOSIGNAL)
                           : 0;
        ssize_t more = (came < bytes) ? recv(partner, (char *)in + came, bytes - came, 0) : 1;
        if ((some < 0) && (errno != EAGAIN)) die("send");
        if ((more == 0) || ((more < 0) && (errno != EAGAIN))) die("recv");
        if (some > 0) sent += (size_t)some;
        if ((more > 0) && (came < bytes))
            came += (size_t)more;
        else if (some <= 0)
            (void)sched_yield();
    }
}

static void sockets_sum(struct bench_peer *peer, size_t first, size_t elem_count)
{
    float *own = peer->data + first;
    const float *theirs = arrived;
    for (int round = 0; 1 << round < world; round++) {
        swap(partners[round], own, arrived, elem_count * sizeof *own);
        for (size_t i = 0; i < elem_count; i++) own[i] += theirs[i];
    }
}

static double sockets_greatest(struct bench_peer *peer, double value)
{
    (void)peer;
    for (int round = 0; 1 << round < world; round++) {
        double theirs;
        swap(partners[round], &value, &theirs, sizeof value);
        if (theirs > value) value = theirs;
    }
    return value;
}

static void sockets_barrier(struct bench_peer *peer)
{
    (void)sockets_greatest(peer, 0);
}

static struct sockaddr_in address_of(int whose, int round)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)(PORT + round))};
    char text[64];
    snprintf(text, sizeof text, "%s%d", prefix, whose + 1);
    if (inet_pton(AF_INET, text, &address.sin_addr) != 1) die(text);
    return address;
}

/* The higher rank of a pair connects. */
static int partner_open(int round)
{
    int other = rank ^ (1 << round);
    int one = 1;
    int fd;
    int listener;
    struct sockaddr_in address = address_of((rank < other) ? rank : other, round);
    if (rank < other) {
        if ((listener = socket(AF_INET, SOCK_STREAM, 0)) < 0) die("socket");
        (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0) die("bind");
        if ((listen(listener, 1) != 0) || ((fd = accept(listener, NULL, NULL)) < 0)) die("accept");
        close(listener);
    } else {
        while (((fd = socket(AF_INET, SOCK_STREAM, 0)) >= 0) &&
               (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)) {
            close(fd);
            usleep(10000);
        }
        if (fd < 0) die("socket");
    }
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0) die("TCP_NODELAY");
    if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0) die("O_NONBLOCK");
    return fd;
}

int main(int argc, char **argv)
{
    static struct bench bench;
    struct bench_peer peer = {
        .sum = sockets_sum, .barrier = sockets_barrier, .greatest = sockets_greatest};
    if ((bench_options(&bench, argc, argv, "w:r:a:", own_option) != 0) || (world < 2) ||
        (world & (world - 1)) || (world > 1 << ROUNDS_MAX) || (rank < 0) || (rank >= world)) {
        fprintf(stderr, "usage: bench_sockets -w WORLD -r RANK -a PREFIX -s SIZES\n");
        return 2;
    }
    for (int round = 0; 1 << round < world; round++) partners[round] = partner_open(round);
    peer.rank = rank;
    peer.world = world;
    peer.data = calloc(bench.elems_max, sizeof *peer.data);
    arrived = calloc(bench.elems_max, sizeof *peer.data);
    return ((peer.data == NULL) || (arrived == NULL)) ? 1 : bench_run(&peer, &bench);
}
