/* program_strangers IP PORT COUNT OPEN: COUNT connections to IP:PORT by somebody who does not belong there, the last OPEN of
 * them kept open until the other side hangs up or standard input ends. What they say goes round: nothing, HTTP, 64 KiB of one
 * letter, part of a hello, a hello whose size is beyond all bounds, random bytes, a hello without a key. Prints how many
 * were taken and how many refused. */
#include "firmware-tests/support/stranger.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OPEN_MAX_COUNT 512u

static void hello_say(int fd, size_t bytes, bool oversized)
{
    unsigned char hello[STRANGER_HELLO_BYTES];
    stranger_hello(hello, 4711, 1, 4, 0);
    if (oversized) memset(hello + 12, 0xff, 4); /* of the payload's size */
    stranger_say(fd, hello, (bytes < sizeof hello) ? bytes : sizeof hello);
}

static void misbehave(int fd, unsigned kind)
{
    static unsigned char letters[1 << 16], noise[4096];
    switch (kind % 7u) {
    case 0: break;
    case 1: stranger_say(fd, "GET / HTTP/1.1\r\nHost: gradient\r\n\r\n", 34); break;
    case 2: memset(letters, 'A', sizeof letters); stranger_say(fd, letters, sizeof letters); break;
    case 3: hello_say(fd, 20, false); break;
    case 4: hello_say(fd, SIZE_MAX, true); break;
    case 5:
        for (size_t i = 0; i < sizeof noise; i++) noise[i] = (unsigned char)rand();
        stranger_say(fd, noise, sizeof noise);
        break;
    case 6: hello_say(fd, SIZE_MAX, false); break;
    }
}

int main(int argc, char **argv)
{
    static int open_fds[OPEN_MAX_COUNT];
    unsigned long count = (argc == 5) ? strtoul(argv[3], NULL, 10) : 0, open_count = (argc == 5) ? strtoul(argv[4], NULL, 10) : 0;
    unsigned long taken = 0, refused = 0;
    char byte;
    if ((argc != 5) || (open_count > OPEN_MAX_COUNT)) {
        fprintf(stderr, "usage: program_strangers IP PORT COUNT OPEN (at most %u)\n", OPEN_MAX_COUNT);
        return 2;
    }
    if (inet_pton(AF_INET, argv[1], &(struct in_addr){0}) != 1) {
        fprintf(stderr, "program_strangers: %s is no IPv4 address\n", argv[1]);
        return 2;
    }
    for (unsigned long i = 0; i < count; i++) {
        int *slot = (open_count > 0) ? &open_fds[i % open_count] : NULL;
        int fd = stranger_connect(argv[1], (uint16_t)strtoul(argv[2], NULL, 10));
        if (fd < 0) {
            refused++;
            continue;
        }
        taken++;
        misbehave(fd, (unsigned)i);
        if (slot == NULL) {
            (void)close(fd);
            continue;
        }
        if (*slot > 0) (void)close(*slot);
        *slot = fd;
    }
    printf("strangers: %lu taken, %lu refused\n", taken, refused);
    fflush(stdout);
    while ((open_count > 0) && (read(STDIN_FILENO, &byte, 1) > 0)) continue;
    return 0;
}
