/* program_stamp SECONDS FILE PROGRAM [ARGUMENT ..]: runs PROGRAM and writes what it says to FILE,
 * each line behind the time at which it came in nanoseconds (of the clock of date +%s%N). The first
 * line is "pid N", the last one "exit CODE", 128 and the signal's number for who was killed, "exit
 * late" for who had not ended after SECONDS and was killed for it. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t time_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static pid_t start(char **arguments, int *from_out)
{
    int ends[2];
    if (pipe(ends) != 0) return -1;
    pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* nothing is left behind by a lab that is killed */
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)dup2(ends[1], STDERR_FILENO);
        (void)close(ends[0]);
        (void)close(ends[1]);
        (void)execvp(arguments[0], arguments);
        fprintf(stderr, "error: cannot start %s: %s\n", arguments[0], strerror(errno));
        _exit(127);
    }
    (void)close(ends[1]);
    *from_out = ends[0];
    return child;
}

/* Until the other end is closed or the time is over; false then. */
static int lines_take(int from, FILE *to, uint64_t until_ns)
{
    char text[8192];
    int begins = 1;
    for (;;) {
        struct pollfd ready = {.fd = from, .events = POLLIN};
        uint64_t now_ns = time_ns(CLOCK_MONOTONIC);
        if (now_ns >= until_ns) return 0;
        if (poll(&ready, 1, (int)((until_ns - now_ns) / 1000000u + 1u)) <= 0) continue;
        ssize_t got = read(from, text, sizeof text);
        if (got <= 0) return 1;
        for (ssize_t i = 0; i < got; i++) {
            if (begins) fprintf(to, "%" PRIu64 " ", time_ns(CLOCK_REALTIME));
            (void)fputc(text[i], to);
            begins = text[i] == '\n';
        }
        (void)fflush(to);
    }
}

int main(int argc, char **argv)
{
    int from = -1;
    int status = 0;
    FILE *to = (argc > 3) ? fopen(argv[2], "w") : NULL;
    if (to == NULL) {
        fprintf(stderr, "usage: program_stamp SECONDS FILE PROGRAM [ARGUMENT ..]\n");
        return 2;
    }
    uint64_t until_ns =
        time_ns(CLOCK_MONOTONIC) + strtoull(argv[1], NULL, 10) * UINT64_C(1000000000);
    pid_t child = start(argv + 3, &from);
    if (child < 0) return 2;
    fprintf(to, "%" PRIu64 " pid %d\n", time_ns(CLOCK_REALTIME), (int)child);
    (void)fflush(to);
    int ended = lines_take(from, to, until_ns);
    if (!ended) (void)kill(child, SIGKILL);
    while ((waitpid(child, &status, 0) < 0) && (errno == EINTR)) continue;
    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (ended)
        fprintf(to, "%" PRIu64 " exit %d\n", time_ns(CLOCK_REALTIME), code);
    else
        fprintf(to, "%" PRIu64 " exit late\n", time_ns(CLOCK_REALTIME));
    return (fclose(to) == 0) && ended ? code : 1;
}
