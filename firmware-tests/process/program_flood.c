/* program_flood RATE SECONDS JOB WORLD PID..: RATE connections a second, to the ports of these processes in turn,
 * each with a hello that is right in all but the proof of the key. Prints how many it made. */
#include "drivers/tcp/rendezvous_frame.h"
#include "firmware-tests/support/stranger.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PORTS_MAX 64u
#define OPEN_MAX 256u

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void hello_make(unsigned char *out, uint64_t job, uint32_t rank, uint32_t world)
{
    struct gf_put put = {out, GF_FRAME_HEADER_BYTES + GF_FRAME_HELLO_BYTES};
    memset(out, 0x5c, put.left);
    gf_frame_header_put(&put, GF_FRAME_HELLO, GF_FRAME_HELLO_BYTES, job, rank);
    gf_put_u32(&put, GF_VERSION);
    gf_put_u32(&put, rank);
    gf_put_u32(&put, world);
    gf_put_u32(&put, 1);
}

int main(int argc, char **argv)
{
    static struct stranger_port ports[PORTS_MAX];
    static int fds[OPEN_MAX];
    unsigned char hello[GF_FRAME_HEADER_BYTES + GF_FRAME_HELLO_BYTES];
    uint32_t count = 0;
    if (argc < 6) {
        fprintf(stderr, "usage: program_flood RATE SECONDS JOB WORLD PID..\n");
        return 2;
    }
    double rate = strtod(argv[1], NULL), seconds = strtod(argv[2], NULL);
    uint64_t job = strtoull(argv[3], NULL, 10), made = 0, began = now_ns();
    uint32_t world = (uint32_t)strtoul(argv[4], NULL, 10);
    for (int p = 5; p < argc; p++) {
        uint32_t found = stranger_ports(atoi(argv[p]), ports + count, PORTS_MAX - count);
        count += (found < PORTS_MAX - count) ? found : PORTS_MAX - count;
    }
    if ((count == 0) || (world < 2)) return 3;
    for (double passed; (passed = (double)(now_ns() - began) * 1e-9) < seconds;) {
        if ((double)made >= passed * rate) {
            (void)nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
            continue;
        }
        int *fd = &fds[made % OPEN_MAX];
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(ports[made % count].port)};
        if (*fd > 0) (void)close(*fd);
        *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        hello_make(hello, job, 1 + (uint32_t)(made / count) % (world - 1), world);
        (void)inet_pton(AF_INET, ports[made % count].ip, &at.sin_addr);
        (void)connect(*fd, (struct sockaddr *)&at, sizeof at); /* on this host it stands at once, or waits for the other side */
        (void)send(*fd, hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT);
        made++;
    }
    printf("made %llu\n", (unsigned long long)made);
    return 0;
}
