/* program_flood RATE SECONDS JOB WORLD PID..: RATE connections a second, to the ports of these processes in turn,
 * each with a hello that is right in all but the proof of the key. Prints how many it made. Without a PID the flood
 * goes to a child of its own, which accepts, reads and closes: what a flood beside the job costs. */
#include "drivers/tcp/rendezvous_frame.h"
#include "firmware-tests/support/stranger.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
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

/* At 127.0.0.1, until this process ends. */
static uint16_t sink_begin(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char said[512];
    if ((bind(fd, (struct sockaddr *)&at, bytes) != 0) || (listen(fd, 1024) != 0) ||
        (getsockname(fd, (struct sockaddr *)&at, &bytes) != 0)) exit(4);
    pid_t above = getpid();
    if (fork() != 0) return ntohs(at.sin_port);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == above) {
        int one = accept(fd, NULL, NULL);
        (void)recv(one, said, sizeof said, MSG_DONTWAIT);
        (void)close(one);
    }
    exit(0);
}

int main(int argc, char **argv)
{
    static struct stranger_port ports[PORTS_MAX];
    static int fds[OPEN_MAX];
    unsigned char hello[GF_FRAME_HEADER_BYTES + GF_FRAME_HELLO_BYTES];
    uint32_t count = 0;
    if (argc < 5) {
        fprintf(stderr, "usage: program_flood RATE SECONDS JOB WORLD [PID..]\n");
        return 2;
    }
    double rate = strtod(argv[1], NULL), seconds = strtod(argv[2], NULL);
    uint64_t job = strtoull(argv[3], NULL, 10), made = 0, began = now_ns();
    uint32_t world = (uint32_t)strtoul(argv[4], NULL, 10);
    for (int p = 5; p < argc; p++) {
        uint32_t found = stranger_ports(atoi(argv[p]), ports + count, PORTS_MAX - count);
        count += (found < PORTS_MAX - count) ? found : PORTS_MAX - count;
    }
    if (argc == 5) {
        (void)snprintf(ports[0].ip, sizeof ports[0].ip, "127.0.0.1");
        ports[count++].port = sink_begin();
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
        stranger_hello(hello, job, 1 + (uint32_t)(made / count) % (world - 1), world, 1);
        (void)inet_pton(AF_INET, ports[made % count].ip, &at.sin_addr);
        (void)connect(*fd, (struct sockaddr *)&at, sizeof at); /* on this host it stands at once, or waits for the other side */
        (void)send(*fd, hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT);
        made++;
    }
    struct timespec used;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    printf("made %llu in %.1f s of a core\n", (unsigned long long)made,
           (double)used.tv_sec + (double)used.tv_nsec * 1e-9);
    return 0;
}
