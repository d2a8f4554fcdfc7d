/* Somebody who is no rank of the job. */
#include "firmware-tests/support/stranger.h"
#include "gradientflow.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- where a process listens ---- */

static bool inode_held(const unsigned long *inodes, uint32_t count, unsigned long inode)
{
    for (uint32_t i = 0; i < count; i++)
        if (inodes[i] == inode) return true;
    return false;
}

static uint32_t inodes_of(int pid, unsigned long *inodes_out, uint32_t inodes_max)
{
    char path[64];
    char link[64];
    char name[320];
    uint32_t count = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *folder = opendir(path);
    if (folder == NULL) return 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        unsigned long inode;
        (void)snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        ssize_t bytes = readlink(name, link, sizeof link - 1);
        if (bytes <= 0) continue;
        link[bytes] = '\0';
        if ((sscanf(link, "socket:[%lu]", &inode) == 1) && (count < inodes_max))
            inodes_out[count++] = inode;
    }
    (void)closedir(folder);
    return count;
}

uint32_t stranger_ports(int pid, struct stranger_port *ports_out, uint32_t ports_max)
{
    static unsigned long inodes[4096];
    uint32_t inode_count = inodes_of(pid, inodes, 4096);
    uint32_t found = 0;
    for (int v6 = 0; v6 < 2; v6++) {
        char path[64];
        char line[512];
        char local[64];
        unsigned port;
        unsigned state;
        unsigned long inode;
        (void)snprintf(path, sizeof path, "/proc/%d/net/tcp%s", pid, v6 ? "6" : "");
        FILE *file = fopen(path, "re");
        if (file == NULL) continue;
        while (fgets(line, sizeof line, file) != NULL) {
            if (sscanf(line, " %*u: %63[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s %*u %*u %lu",
                       local, &port, &state, &inode) != 4)
                continue;
            if ((state != 10) || !inode_held(inodes, inode_count, inode)) continue; /* 10: LISTEN */
            if (found < ports_max) {
                unsigned char binary[16];
                for (size_t word = 0; word < strlen(local) / 8; word++) {
                    char hex[9] = {0};
                    memcpy(hex, local + 8 * word, 8);
                    /* words of the host's byte order */
                    uint32_t value = (uint32_t)strtoul(hex, NULL, 16);
                    memcpy(binary + 4 * word, &value, 4);
                }
                (void)inet_ntop(v6 ? AF_INET6 : AF_INET, binary, ports_out[found].ip,
                                sizeof ports_out[found].ip);
                ports_out[found].port = (uint16_t)port;
            }
            found++;
        }
        (void)fclose(file);
    }
    return found;
}

uint32_t stranger_names(int pid, char (*names_out)[STRANGER_NAME_BYTES], uint32_t names_max)
{
    static unsigned long inodes[4096];
    uint32_t inode_count = inodes_of(pid, inodes, 4096);
    uint32_t found = 0;
    char path[64];
    char line[512];
    char name[STRANGER_NAME_BYTES];
    unsigned flags;
    unsigned long inode;
    (void)snprintf(path, sizeof path, "/proc/%d/net/unix", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return 0;
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%*s %*x %*x %x %*x %*x %lu @%62s", &flags, &inode, name + 1) != 3)
            continue;
        if ((flags != 0x10000) || !inode_held(inodes, inode_count, inode)) continue; /* listens */
        name[0] = '@';
        if (found < names_max) memcpy(names_out[found], name, sizeof name);
        found++;
    }
    (void)fclose(file);
    return found;
}

/* ---- what he says ---- */

int stranger_named(const char *name)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t bytes = strlen(name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if ((fd < 0) || (bytes > sizeof to.sun_path)) return -1;
    memcpy(to.sun_path + 1, name + 1, bytes - 1);
    if (connect(fd, (struct sockaddr *)&to,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes)) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

int stranger_connect(const char *ip, uint16_t port)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    bool is_v4 = inet_pton(AF_INET, ip, &v4.sin_addr) == 1;
    int error = 0;
    socklen_t bytes = sizeof error;
    if (!is_v4 && (inet_pton(AF_INET6, ip, &v6.sin6_addr) != 1)) return -1;
    int fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (connect(fd, is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6,
                is_v4 ? sizeof v4 : sizeof v6) == 0)
        return fd;
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    if ((errno == EINPROGRESS) && (poll(&ready, 1, 2000) == 1) &&
        (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0) && (error == 0))
        return fd;
    (void)close(fd);
    return -1;
}

void stranger_say(int fd, const void *data, size_t bytes)
{
    /* the other side may have hung up: valid */
    (void)send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void stranger_hello(unsigned char *out, uint64_t job, uint32_t rank, uint32_t world,
                    uint32_t has_key)
{
    static uint32_t number;
    struct gf_put put = {out, STRANGER_HELLO_BYTES};
    memset(out, 0x5c, STRANGER_HELLO_BYTES);
    gf_frame_header_put(&put, GF_FRAME_HELLO, GF_FRAME_HELLO_BYTES, job, rank);
    gf_put_u32(&put, GF_VERSION);
    gf_put_u32(&put, rank);
    gf_put_u32(&put, world);
    gf_put_u32(&put, has_key);
    gf_put_u32(&put, number++); /* of its nonce: else it would be another try of one way */
}

#define UCX_GREETING UINT64_C(0xCAFEBABE12345678)
#define UCX_CONNECT_ID 32u /* of active messages of the transport itself */
#define UCX_PUT_ID 33u
#define UCX_EAGER_ID 2u   /* of UCP: a tagged message in one packet */
#define UCX_HEAD_BYTES 5u /* id, then the length of what follows */

static void head_put(unsigned char *out, uint8_t id, uint32_t bytes)
{
    out[0] = id;
    memcpy(out + 1, &bytes, sizeof bytes);
}

void stranger_greet(int fd)
{
    unsigned char words[8 + UCX_HEAD_BYTES + 4 + 1 + 8 + sizeof(struct sockaddr_in)] = {0};
    const uint64_t greeting = UCX_GREETING;
    const uint64_t number = 0;
    const uint32_t request = 1;
    const struct sockaddr_in from = {
        .sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(0x7f000063)};
    memcpy(words, &greeting, sizeof greeting);
    head_put(words + 8, UCX_CONNECT_ID, sizeof words - 8 - UCX_HEAD_BYTES);
    memcpy(words + 8 + UCX_HEAD_BYTES, &request, sizeof request);
    memcpy(words + 8 + UCX_HEAD_BYTES + 5, &number, sizeof number);
    memcpy(words + 8 + UCX_HEAD_BYTES + 13, &from, sizeof from);
    stranger_say(fd, words, sizeof words);
}

void stranger_put(int fd, uint64_t address, const void *data, uint32_t bytes)
{
    unsigned char words[UCX_HEAD_BYTES + 20 + 256];
    const uint64_t length = bytes;
    const uint32_t number = 1;
    if (bytes > 256) return;
    head_put(words, UCX_PUT_ID, 20);
    memcpy(words + UCX_HEAD_BYTES, &address, sizeof address);
    memcpy(words + UCX_HEAD_BYTES + 8, &length, sizeof length);
    memcpy(words + UCX_HEAD_BYTES + 16, &number, sizeof number);
    memcpy(words + UCX_HEAD_BYTES + 20, data, bytes);
    stranger_say(fd, words, UCX_HEAD_BYTES + 20 + bytes);
}

void stranger_message(int fd, uint64_t tag, const void *data, uint32_t bytes)
{
    unsigned char words[UCX_HEAD_BYTES + 8 + 256];
    if (bytes > 256) return;
    head_put(words, UCX_EAGER_ID, 8 + bytes);
    memcpy(words + UCX_HEAD_BYTES, &tag, sizeof tag);
    memcpy(words + UCX_HEAD_BYTES + 8, data, bytes);
    stranger_say(fd, words, UCX_HEAD_BYTES + 8 + bytes);
}

int stranger_hears(int fd, int ms)
{
    unsigned char bytes[512];
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    if (poll(&ready, 1, ms) != 1) return 0;
    ssize_t got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    return (got <= 0) ? -1 : (int)got;
}
