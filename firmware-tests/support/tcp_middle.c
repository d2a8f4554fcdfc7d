/* A man in the middle of one rank and rank 0. */
#include "firmware-tests/support/tcp_middle.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void must(bool condition, const char *what)
{
    if (condition) return;
    perror(what);
    abort();
}

static struct sockaddr_in loopback(const char *address)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (address != NULL) at.sin_port = htons((uint16_t)strtoul(strchr(address, ':') + 1, NULL, 10));
    return at;
}

int stranger_at(const char *address)
{
    return stranger_from("127.0.0.1", address);
}

int stranger_from(const char *from, const char *address)
{
    struct sockaddr_in at = loopback(address);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(from)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(fd >= 0, "socket");
    must(bind(fd, (struct sockaddr *)&own, sizeof own) == 0, "bind");
    must(connect(fd, (struct sockaddr *)&at, sizeof at) == 0, "connect");
    return fd;
}

void middle_open(struct middle *middle, const char *to)
{
    struct sockaddr_in at = loopback(NULL);
    socklen_t bytes = sizeof at;
    memset(middle, 0, sizeof *middle);
    middle->fds[0] = -1;
    middle->fds[1] = -1;
    (void)snprintf(middle->to, sizeof middle->to, "%s", to);
    middle->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    must(middle->listen_fd >= 0, "socket");
    const int again = 1;
    (void)setsockopt(middle->listen_fd, SOL_SOCKET, SO_REUSEADDR, &again, sizeof again);
    must(bind(middle->listen_fd, (struct sockaddr *)&at, sizeof at) == 0, "bind");
    must(listen(middle->listen_fd, 4) == 0, "listen");
    must(getsockname(middle->listen_fd, (struct sockaddr *)&at, &bytes) == 0, "getsockname");
    (void)snprintf(middle->address, sizeof middle->address, "127.0.0.1:%u",
                   (unsigned)ntohs(at.sin_port));
}

static void connection_end(struct middle *middle)
{
    for (int i = 0; i < 2; i++) {
        if (middle->fds[i] >= 0) (void)close(middle->fds[i]);
        middle->fds[i] = -1;
    }
}

void middle_inject(struct middle *middle, int direction, const void *data, size_t bytes)
{
    (void)send(middle->fds[1 - direction], data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* False: this side has ended. */
static bool pass_on(struct middle *middle, int direction)
{
    unsigned char bytes[4096];
    uint32_t at = middle->recorded[direction];
    ssize_t got = recv(middle->fds[direction], bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0) return true;
    if (got == 0) return false;
    must(at + (size_t)got <= MIDDLE_RECORD_MAX, "record");
    memcpy(middle->record[direction] + at, bytes, (size_t)got);
    middle->recorded[direction] += (uint32_t)got;
    if ((direction == middle->flip_direction) && (middle->flip_at >= at) &&
        (middle->flip_at - at < (size_t)got)) {
        bytes[middle->flip_at - at] ^= middle->flip_mask;
    }
    if (!middle->hold[direction]) middle_inject(middle, direction, bytes, (size_t)got);
    return true;
}

void middle_progress(struct middle *middle)
{
    int fd = accept4(middle->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) {
        connection_end(middle);
        middle->connections++;
        middle->fds[MIDDLE_UP] = fd;
        middle->fds[MIDDLE_DOWN] = stranger_at(middle->to);
        memset(middle->recorded, 0, sizeof middle->recorded);
    }
    if (middle->fds[0] < 0) return;
    bool up = pass_on(middle, MIDDLE_UP), down = pass_on(middle, MIDDLE_DOWN);
    if (!up || !down) connection_end(middle);
}

void middle_close(struct middle *middle)
{
    connection_end(middle);
    (void)close(middle->listen_fd);
}
