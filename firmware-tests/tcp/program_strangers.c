/* Whoever does not belong to a job, at its ports:
 *     program_strangers visit IP PORT COUNT OPEN
 *         COUNT connections to IP:PORT, the last OPEN of them kept open until the other side hangs
 *             up or standard input
 *         ends. What they say goes round: nothing, HTTP, 64 KiB of one letter, part of a hello, a
 *             hello whose size is
 *         beyond all bounds, random bytes, a hello without a key. Prints how many were taken and
 *             how many refused.
 *     program_strangers attack ROUNDS PID..
 *         At every TCP port and abstract unix name that these processes listen on, seen from the
 *         network namespace that this runs in. Each round, at each port: PUT requests of UCX's into
 *         every writable mapping of the process, active messages, a proof that is none, half a
 *         hello, nothing at all; every third connection stays open. Prints the ports first
 *         ("PID IP:PORT" or "PID @NAME"), then how many connections stood and at how many something
 *         was answered. ROUNDS 0: the ports alone. ATTACK_USER: as that user, once it has read
 *         where the processes listen.
 *     program_strangers flood RATE SECONDS JOB WORLD [PID..]
 *         RATE connections a second, to the ports of these processes in turn, each with a hello
 *         that is right in all but the proof of the key, for so long or until SIGTERM. Prints
 *         "floods" once there are 256, and at its end how many it made. Without a PID
 *         the flood goes to a child of its own, which accepts, reads and closes: that shows what
 *         a flood beside the job costs.
 *     program_strangers hold PID
 *         Takes a copy of each socket that this process listens at, prints how many, and keeps them
 *         until the end of standard input: the kernel goes on to take connections there once the
 *         process is dead, and nobody says a word. */
#include "drivers/tcp/frame.h"
#include "firmware-tests/support/stranger.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PORTS_MAX 64u
#define RANGES_MAX 400u
#define OPEN_MAX 512u
#define FLOOD_OPEN 256u

struct target {
    const char *pid;
    struct stranger_port port;
    char name[STRANGER_NAME_BYTES]; /* in place of a port, or empty */
    uint64_t ranges[RANGES_MAX];
    uint32_t range_count;
};
static struct target targets[PORTS_MAX];
static uint32_t target_count;

static void targets_find(char **pids)
{
    for (; *pids != NULL; pids++) {
        struct stranger_port ports[PORTS_MAX];
        uint32_t found = stranger_ports(atoi(*pids), ports, PORTS_MAX);
        for (uint32_t i = 0; (i < found) && (i < PORTS_MAX) && (target_count < PORTS_MAX); i++)
            targets[target_count++] = (struct target){.pid = *pids, .port = ports[i]};
        char names[PORTS_MAX][STRANGER_NAME_BYTES];
        found = stranger_names(atoi(*pids), names, PORTS_MAX);
        for (uint32_t i = 0; (i < found) && (i < PORTS_MAX) && (target_count < PORTS_MAX); i++) {
            struct target *target = &targets[target_count++];
            *target = (struct target){.pid = *pids};
            memcpy(target->name, names[i], sizeof target->name);
        }
    }
}

/* The place of connection number i among those that stay open; what was there is closed. */
static int *kept_open(unsigned long i, unsigned long open_count)
{
    static int fds[OPEN_MAX];
    int *fd = &fds[i % open_count];
    if (*fd > 0) (void)close(*fd);
    return fd;
}

/* ---- visit ---- */

static void hello_say(int fd, size_t bytes, bool oversized)
{
    unsigned char hello[STRANGER_HELLO_BYTES];
    stranger_hello(hello, 4711, 1, 4, 0);
    if (oversized) memset(hello + 12, 0xff, 4); /* of the payload's size */
    stranger_say(fd, hello, (bytes < sizeof hello) ? bytes : sizeof hello);
}

static void visitor_says(int fd, unsigned long kind)
{
    static unsigned char letters[1 << 16];
    static unsigned char noise[4096];
    switch (kind % 7u) {
    case 0: break;
    case 1: stranger_say(fd, "GET / HTTP/1.1\r\nHost: gradient\r\n\r\n", 34); break;
    case 2:
        memset(letters, 'A', sizeof letters);
        stranger_say(fd, letters, sizeof letters);
        break;
    case 3: hello_say(fd, 20, false); break;
    case 4: hello_say(fd, SIZE_MAX, true); break;
    case 5:
        for (size_t i = 0; i < sizeof noise; i++) noise[i] = (unsigned char)rand();
        stranger_say(fd, noise, sizeof noise);
        break;
    case 6: hello_say(fd, SIZE_MAX, false); break;
    }
}

static int visit(char **arguments)
{
    unsigned long count = strtoul(arguments[2], NULL, 10);
    unsigned long open_count = strtoul(arguments[3], NULL, 10);
    unsigned long taken = 0;
    char byte;
    if ((open_count > OPEN_MAX) || (inet_pton(AF_INET, arguments[0], &(struct in_addr){0}) != 1))
        return 2;
    for (unsigned long i = 0; i < count; i++) {
        int fd = stranger_connect(arguments[0], (uint16_t)strtoul(arguments[1], NULL, 10));
        if (fd < 0) continue;
        taken++;
        visitor_says(fd, i);
        if (open_count == 0)
            (void)close(fd);
        else
            *kept_open(i, open_count) = fd;
    }
    printf("strangers: %lu taken, %lu refused\n", taken, count - taken);
    fflush(stdout);
    while ((open_count > 0) && (read(STDIN_FILENO, &byte, 1) > 0)) continue;
    return 0;
}

/* ---- attack ---- */

static const unsigned char prize[64] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

/* The middle of each writable mapping: what lies there is in use or spare, and no job has the bits
 * it should have if a gradient or a pointer was written over. */
static void ranges_read(struct target *target)
{
    char path[64];
    char line[512];
    char rights[8];
    unsigned long first;
    unsigned long end;
    (void)snprintf(path, sizeof path, "/proc/%s/maps", target->pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return;
    while ((fgets(line, sizeof line, file) != NULL) && (target->range_count + 1 < RANGES_MAX)) {
        if ((sscanf(line, "%lx-%lx %7s", &first, &end, rights) != 3) || (rights[1] != 'w'))
            continue;
        target->ranges[target->range_count++] = first;
        target->ranges[target->range_count++] = first + (end - first) / 2 / 64 * 64;
    }
    (void)fclose(file);
}

static void attacker_says(int fd, const struct target *target, unsigned long way)
{
    unsigned char hello[STRANGER_HELLO_BYTES] = "GFUCXv1\nand nothing that would prove it";
    struct gf_put put = {hello, sizeof hello};
    switch (way % 5) {
    case 0:
    case 1:
        if (way % 5 == 1) (void)send(fd, hello, 40, MSG_NOSIGNAL | MSG_DONTWAIT);
        stranger_greet(fd);
        for (uint32_t i = 0; i < target->range_count; i++)
            stranger_put(fd, target->ranges[i], prize, sizeof prize);
        break;
    case 2:
        stranger_greet(fd);
        for (uint64_t tag = 0; tag < 64; tag++)
            stranger_message(fd, tag << 45, prize, sizeof prize);
        break;
    case 3:
        gf_frame_header_put(&put, GF_FRAME_HELLO, GF_FRAME_HELLO_BYTES, 4711, 1);
        (void)send(fd, hello, 50, MSG_NOSIGNAL | MSG_DONTWAIT);
        break;
    case 4: break;
    }
}

/* Anything but the nonce that whoever accepts says first. */
static bool is_answered(int fd)
{
    const int nonce = (int)(GF_FRAME_HEADER_BYTES + GF_FRAME_NONCE_BYTES);
    int bytes = stranger_hears(fd, 100);
    if (bytes == nonce) bytes = stranger_hears(fd, 100);
    return bytes > 0;
}

static int attack(char **arguments)
{
    unsigned long rounds = strtoul(arguments[0], NULL, 10);
    unsigned long stood = 0;
    unsigned long answered = 0;
    const char *user = getenv("ATTACK_USER");
    targets_find(arguments + 1);
    for (uint32_t i = 0; i < target_count; i++) {
        ranges_read(&targets[i]);
        if (targets[i].name[0] != '\0')
            printf("%s %s\n", targets[i].pid, targets[i].name);
        else
            printf("%s %s:%u\n", targets[i].pid, targets[i].port.ip, targets[i].port.port);
    }
    if ((user != NULL) && (setuid((uid_t)strtoul(user, NULL, 10)) != 0)) return 3;
    for (unsigned long i = 0; i < rounds * target_count; i++) {
        const struct target *target = &targets[i % target_count];
        int fd = (target->name[0] != '\0') ? stranger_named(target->name)
                                           : stranger_connect(target->port.ip, target->port.port);
        if (fd < 0) continue;
        stood++;
        attacker_says(fd, target, i / target_count);
        if (i < 5 * target_count) answered += is_answered(fd);
        if (i % 3 == 0)
            *kept_open(i / 3, 300) = fd;
        else
            (void)close(fd);
    }
    printf("stood %lu, answered %lu\n", stood, answered);
    return 0;
}

/* ---- flood ---- */

static double seconds_now(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* At 127.0.0.1, until this process ends. */
static uint16_t sink_begin(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char said[512];
    if ((bind(fd, (struct sockaddr *)&at, bytes) != 0) || (listen(fd, 1024) != 0) ||
        (getsockname(fd, (struct sockaddr *)&at, &bytes) != 0))
        exit(4);
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

static volatile sig_atomic_t flood_ends;

static void flood_end(int number)
{
    (void)number;
    flood_ends = 1;
}

static int flood(char **arguments)
{
    const struct sigaction end = {.sa_handler = flood_end};
    unsigned char hello[STRANGER_HELLO_BYTES];
    double rate = strtod(arguments[0], NULL);
    double seconds = strtod(arguments[1], NULL);
    double began = seconds_now(CLOCK_MONOTONIC);
    uint64_t job = strtoull(arguments[2], NULL, 10);
    uint64_t made = 0;
    uint32_t world = (uint32_t)strtoul(arguments[3], NULL, 10);
    targets_find(arguments + 4);
    if (arguments[4] == NULL) {
        targets[target_count++].port =
            (struct stranger_port){.ip = "127.0.0.1", .port = sink_begin()};
    }
    if ((target_count == 0) || (world < 2)) return 3;
    (void)sigaction(SIGTERM, &end, NULL);
    for (double passed;
         !flood_ends && ((passed = seconds_now(CLOCK_MONOTONIC) - began) < seconds);) {
        if ((double)made >= passed * rate) {
            (void)nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
            continue;
        }
        const struct stranger_port *port = &targets[made % target_count].port;
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port->port)};
        int fd = *kept_open(made, FLOOD_OPEN) =
            socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        stranger_hello(hello, job, 1 + (uint32_t)(made / target_count) % (world - 1), world, 1);
        (void)inet_pton(AF_INET, port->ip, &at.sin_addr);
        /* here it stands at once, or waits for the other side */
        (void)connect(fd, (struct sockaddr *)&at, sizeof at);
        (void)send(fd, hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT);
        made++;
        if (made == FLOOD_OPEN) {
            printf("floods\n");
            (void)fflush(stdout);
        }
    }
    printf("made %llu in %.1f s of a core\n", (unsigned long long)made,
           seconds_now(CLOCK_PROCESS_CPUTIME_ID));
    return 0;
}

/* of a process, whatever it opened */
#define FILES_MAX 256

static int hold(char **arguments)
{
    int process = (int)syscall(SYS_pidfd_open, atoi(arguments[0]), 0);
    int held = 0;
    char word;
    for (int fd = 0; (process >= 0) && (fd < FILES_MAX); fd++) {
        int copy = (int)syscall(SYS_pidfd_getfd, process, fd, 0);
        int listens = 0;
        socklen_t bytes = sizeof listens;
        if (copy < 0) continue;
        if (getsockopt(copy, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0) listens = 0;
        if (listens)
            held++;
        else
            (void)close(copy);
    }
    printf("%d\n", held);
    (void)fflush(stdout);
    while (read(STDIN_FILENO, &word, 1) > 0) {
    }
    return (held > 0) ? 0 : 1;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(char **arguments);
        int least, most;
    } modes[] = {{"visit", visit, 4, 4},
                 {"attack", attack, 2, 1000},
                 {"flood", flood, 4, 1000},
                 {"hold", hold, 1, 1}};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if ((argc > 1) && (strcmp(argv[1], modes[i].name) == 0) && (argc - 2 >= modes[i].least) &&
            (argc - 2 <= modes[i].most))
            return modes[i].run(argv + 2);
    fprintf(stderr, "usage: program_strangers visit|attack|flood|hold ..: see its source\n");
    return 2;
}
