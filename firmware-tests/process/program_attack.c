/* program_attack ROUNDS PID..: a stranger at every TCP port that these processes listen on, seen from the network
 * namespace that it runs in. Each round, at each port: PUT requests of UCX's into every writable mapping of the
 * process, active messages, a proof that is none, half a hello, nothing at all; every third connection stays open.
 * Prints the ports first ("PID IP:PORT"), then how many connections stood and at how many something was answered.
 * ROUNDS 0: the ports alone. ATTACK_USER: as that user, once it has read where the processes listen. */
#include "drivers/tcp/rendezvous_frame.h"
#include "firmware-tests/support/stranger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORTS_MAX 64u
#define RANGES_MAX 400u
#define OPEN_MAX 300u

struct target {
    struct stranger_port port;
    uint64_t ranges[RANGES_MAX];
    uint32_t range_count;
};

static const unsigned char prize[64] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

/* The middle of each writable mapping: what lies there is in use or spare, and no job has the bits it should have if a
 * gradient or a pointer was written over. */
static void ranges_read(const char *pid, struct target *target)
{
    char path[64], line[512], rights[8];
    unsigned long first, end;
    (void)snprintf(path, sizeof path, "/proc/%s/maps", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return;
    while ((fgets(line, sizeof line, file) != NULL) && (target->range_count + 1 < RANGES_MAX)) {
        if ((sscanf(line, "%lx-%lx %7s", &first, &end, rights) != 3) || (rights[1] != 'w')) continue;
        target->ranges[target->range_count++] = first;
        target->ranges[target->range_count++] = first + (end - first) / 2 / 64 * 64;
    }
    (void)fclose(file);
}

static void misbehave(int fd, const struct target *target, uint32_t way)
{
    unsigned char hello[GF_FRAME_HEADER_BYTES + GF_FRAME_HELLO_BYTES] = "GFUCXv1\nand nothing that would prove it";
    struct gf_put put = {hello, sizeof hello};
    switch (way % 5) {
    case 0:
    case 1:
        if (way % 5 == 1) (void)send(fd, hello, 40, MSG_NOSIGNAL | MSG_DONTWAIT);
        stranger_greet(fd);
        for (uint32_t i = 0; i < target->range_count; i++) stranger_put(fd, target->ranges[i], prize, sizeof prize);
        break;
    case 2:
        stranger_greet(fd);
        for (uint64_t tag = 0; tag < 64; tag++) stranger_message(fd, tag << 45, prize, sizeof prize);
        break;
    case 3:
        gf_frame_header_put(&put, GF_FRAME_HELLO, GF_FRAME_HELLO_BYTES, 4711, 1);
        (void)send(fd, hello, 50, MSG_NOSIGNAL | MSG_DONTWAIT);
        break;
    case 4: break;
    }
}

int main(int argc, char **argv)
{
    static struct target targets[PORTS_MAX];
    static int open_fds[OPEN_MAX];
    unsigned long rounds = (argc > 2) ? strtoul(argv[1], NULL, 10) : 0, stood = 0, answered = 0;
    uint32_t count = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: program_attack ROUNDS PID..\n");
        return 2;
    }
    for (int p = 2; p < argc; p++) {
        struct stranger_port ports[PORTS_MAX];
        uint32_t found = stranger_ports(atoi(argv[p]), ports, PORTS_MAX);
        for (uint32_t i = 0; (i < found) && (i < PORTS_MAX) && (count < PORTS_MAX); i++) {
            targets[count].port = ports[i];
            ranges_read(argv[p], &targets[count++]);
            printf("%s %s:%u\n", argv[p], ports[i].ip, ports[i].port);
        }
    }
    const char *user = getenv("ATTACK_USER");
    if ((user != NULL) && (setuid((uid_t)strtoul(user, NULL, 10)) != 0)) return 3;
    for (unsigned long i = 0; i < rounds * count; i++) {
        const struct target *target = &targets[i % count];
        int fd = stranger_connect(target->port.ip, target->port.port);
        if (fd < 0) continue;
        stood++;
        misbehave(fd, target, (uint32_t)(i / count));
        if (i < 5 * count) answered += stranger_hears(fd, 100) > 0;
        if (i % 3 == 0) {
            int *kept = &open_fds[i / 3 % OPEN_MAX];
            if (*kept > 0) (void)close(*kept);
            *kept = fd;
        } else {
            (void)close(fd);
        }
    }
    printf("stood %lu, answered %lu\n", stood, answered);
    return 0;
}
