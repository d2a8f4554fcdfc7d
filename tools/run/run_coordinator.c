/* A child, so that ranks and whoever reads their output, however slow, never hold it up; and a copy
 * of gf-run rather than another program, so that it is always there and of the same version. It
 * takes all its memory and listens before a rank starts. */
#include "tools/run/run_coordinator.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/run/run_lines.h"
#include "tools/common/tool_clock.h"

/* One that ends at once would be started without end. */
#define AGAIN_NS UINT64_C(200000000)
#define REPORT_FD 3
/* The job has ended well, and none of gf-run's ranks was in it by then: those that it has started
 * again are too late. */
#define EXIT_OTHERS_ALONE 3
#define MEMBERS_MS 1000
/* Of one that came too late, and does not take the last word. */
#define LAST_WORD_NS UINT64_C(2000000000)
/* To open it takes memory, reads a key and binds an address; a file system that hangs must not hold
 * up gf-run for ever. */
#define REPORT_NS UINT64_C(10000000000)

struct report {
    bool listens;
    char text[240];
};

static struct {
    const struct coordinator_job *job; /* NULL: there is none */
    pid_t pid;                         /* 0: it has to be started */
    int report_fd;                     /* of it */
    uint64_t started_ns;
    uint32_t first, rank_max; /* gf-run's ranks */
    uint32_t failures, crashes;
    bool finishes;
    bool is_again;      /* one was before this one */
    bool was_killed;    /* the last one that ended: it did not end with a job */
    bool has_ended_job; /* one has ended with a job that ended well .. */
    bool job_is_last;   /* .. after which none can begin */
} child;

static volatile sig_atomic_t finish_asked, members_asked, over_asked, is_asked; /* in the child */

static void ask(int number)
{
    if (number == SIGTERM) finish_asked = 1;
    if (number == SIGUSR1) members_asked = 1;
    if (number == SIGUSR2) over_asked = 1;
    is_asked = 1;
}

/* Its words go where gf-run's do, if they can be taken at once. */
static void log_take(void *user, gf_log_level level, const char *text)
{
    char line[512];
    struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
    (void)user;
    if ((level > GF_LOG_INFO) || (poll(&ready, 1, 0) != 1)) return;
    int bytes = snprintf(line, sizeof line, "gf-run: coordinator: %.400s\n", text);
    if (bytes > 0) (void)!write(STDERR_FILENO, line, (size_t)bytes);
}

/* A job has ended well, and none can begin after it. */
static bool child_is_over(void)
{
    return child.has_ended_job && child.job_is_last;
}

/* Nobody needs it any more: no job has begun, and whoever came after the last one was told so. A
 * join that has failed stays for the ranks of other nodes that come late. */
static bool child_is_done(struct coordinator_server *server)
{
    static uint64_t asked_ns;
    if (!finish_asked || coordinator_has_begun(server)) return false;
    if (coordinator_join_has_failed(server)) return false;
    if (asked_ns == 0) asked_ns = tool_clock_ns();
    return !over_asked || (coordinator_members(server) == 0) ||
           (tool_clock_ns() - asked_ns >= LAST_WORD_NS);
}

/* Until the job has ended. Asked to finish it ends at once where no job has begun, and no join has
 * failed. */
static int child_run(struct coordinator_server *server)
{
    char why[256];
    gf_status status = GF_AGAIN;
    while (status == GF_AGAIN) {
        is_asked = 0; /* before a look at what was: none is missed */
        if (over_asked) coordinator_job_has_ended(server);
        if (child_is_done(server)) return EXIT_SUCCESS;
        if (members_asked) {
            members_asked = 0;
            uint32_t members = coordinator_members(server);
            (void)!write(REPORT_FD, &members, sizeof members);
        }
        status = coordinator_run(server, &is_asked, why, sizeof why);
    }
    if (status < 0) return EXIT_FAILURE;
    return (coordinator_closed(server, child.first, child.rank_max) > 0) ? EXIT_SUCCESS
                                                                         : EXIT_OTHERS_ALONE;
}

/* In the child. It is asked to end by nobody but gf-run: a terminal's signals are for the ranks. */
static void child_be(pid_t parent, int report_fd)
{
    struct coordinator_job job = *child.job;
    if (child.is_again) job.is_first = false;
    struct report report = {0};
    struct gf_fault fault = {0};
    sigset_t none;
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(EXIT_FAILURE);
    (void)prctl(PR_SET_NAME, "gf-coordinator");
    for (int number = 1; number < NSIG; number++)
        if (number != SIGPIPE) (void)signal(number, SIG_DFL);
    (void)signal(SIGTERM, ask);
    (void)signal(SIGUSR1, ask);
    (void)signal(SIGUSR2, ask);
    over_asked = child_is_over() ? 1 : 0;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    (void)dup2(report_fd, REPORT_FD);
    (void)close_range(REPORT_FD + 1, ~0u, 0); /* nothing of the ranks' is held open here */
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; (null >= 0) && (i < 2); i++) (void)dup2(null, i);
    /* In place of one that was killed: ranks dial it already. */
    if (child.finishes) job.first_ns = job.config.rendezvous.join_timeout_ns;
    /* The ranks say what ends them; this is for whoever looks into it. */
    job.log.fn = (getenv("GF_DEBUG") != NULL) ? log_take : NULL;
    struct coordinator_server *server = coordinator_open(&job, &fault);
    report.listens = (server != NULL);
    (void)snprintf(report.text, sizeof report.text, "%s", fault.text);
    (void)!write(REPORT_FD, &report, sizeof report);
    if (server == NULL) _exit(EXIT_FAILURE);
    int code = child_run(server);
    coordinator_close(server); /* or its last words are lost to ranks of other nodes */
    _exit(code);
}

static void report_close(void)
{
    if (child.report_fd > 0) (void)close(child.report_fd);
    child.report_fd = 0;
}

/* NULL: it is whole; else why there is none. */
static const char *report_take(int fd, struct report *report_out)
{
    struct pollfd answer = {.fd = fd, .events = POLLIN};
    const uint64_t end_ns = tool_clock_ns() + REPORT_NS;
    for (uint64_t now_ns = tool_clock_ns(); now_ns < end_ns; now_ns = tool_clock_ns()) {
        int ready = poll(&answer, 1, (int)((end_ns - now_ns) / 1000000u) + 1);
        if ((ready == 0) || ((ready < 0) && (errno == EINTR))) continue;
        if (ready < 0) return strerror(errno);
        ssize_t got = read(fd, report_out, sizeof *report_out);
        if ((got < 0) && (errno == EINTR)) continue;
        return (got == (ssize_t)sizeof *report_out) ? NULL : "it ended as it began";
    }
    if (child.pid > 0) (void)kill(child.pid, SIGKILL); /* another one is started in its place */
    return "it did not say within 10 s whether it listens";
}

/* Starts it, and hears whether it listens. */
static bool child_start(struct report *report_out)
{
    const char *why = NULL;
    int pair[2];
    pid_t parent = getpid();
    *report_out = (struct report){0};
    child.is_again = (child.started_ns != 0);
    child.started_ns = tool_clock_ns();
    child.pid = 0;
    report_close();
    if (pipe2(pair, O_CLOEXEC) == 0) {
        pid_t pid = fork();
        if (pid == 0) child_be(parent, pair[1]);
        const int code = errno;
        (void)close(pair[1]);
        child.report_fd = pair[0];
        child.pid = (pid > 0) ? pid : 0;
        why = (pid > 0) ? report_take(pair[0], report_out) : strerror(code);
    } else {
        why = strerror(errno);
    }
    if (why == NULL) return report_out->listens;
    (void)snprintf(report_out->text, sizeof report_out->text, "%s", why);
    return false;
}

static void failure_tell(const struct report *report)
{
    if (gf_log_due(++child.failures))
        lines_tell("gf-run: the coordinator cannot start: %s\n", report->text);
}

bool run_coordinator_begin(const struct coordinator_job *job, uint32_t first, uint32_t rank_max)
{
    struct report report;
    child.job = job;
    child.first = first;
    child.rank_max = rank_max;
    if (child_start(&report)) return true;
    failure_tell(&report);
    run_coordinator_end();
    return false;
}

/* It has ended. With the job, well or not, that is no news: ranks may begin another one. */
static void end_take(int status)
{
    child.pid = 0;
    child.was_killed = WIFSIGNALED(status);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
    if (code == EXIT_OTHERS_ALONE) child.job_is_last = true;
    if (code != EXIT_FAILURE) child.has_ended_job = true;
    if (child.finishes && !WIFSIGNALED(status)) child.job = NULL;
    if (!WIFSIGNALED(status) || !gf_log_due(++child.crashes)) return;
    const char *name = sigabbrev_np(WTERMSIG(status));
    lines_tell("gf-run: the coordinator was ended by SIG%s, and is started again\n",
               (name != NULL) ? name : "?");
}

void run_coordinator_look(void)
{
    struct report report;
    int status = 0;
    if (child.job == NULL) return;
    if ((child.pid > 0) && (waitpid(child.pid, &status, WNOHANG) == child.pid)) end_take(status);
    if ((child.job == NULL) || (child.pid > 0) || (run_coordinator_wait(1) > 0)) return;
    if (!child_start(&report)) failure_tell(&report);
}

void run_coordinator_job_is_last(void)
{
    child.job_is_last = true;
    /* one that was begun since the job ended */
    if (child_is_over() && (child.pid > 0)) (void)kill(child.pid, SIGUSR2);
}

bool run_coordinator_job_has_ended(void)
{
    return child_is_over();
}

int run_coordinator_wait(int most)
{
    uint64_t age_ns = tool_clock_ns() - child.started_ns;
    if ((child.job == NULL) || (child.pid > 0)) return most;
    if (age_ns >= AGAIN_NS) return 0;
    int wait_ms = (int)((AGAIN_NS - age_ns) / 1000000u) + 1;
    return (wait_ms < most) ? wait_ms : most;
}

/* What was asked before may be answered late: the last word counts. */
uint32_t run_coordinator_members(void)
{
    uint32_t members = 0;
    run_coordinator_look();
    struct pollfd answer = {.fd = child.report_fd, .events = POLLIN};
    if ((child.job == NULL) || (child.pid <= 0) || (kill(child.pid, SIGUSR1) != 0)) return 0;
    for (int ready = poll(&answer, 1, MEMBERS_MS); ready != 0; ready = poll(&answer, 1, 0)) {
        if ((ready < 0) && (errno == EINTR)) continue;
        if ((ready < 0) ||
            (read(child.report_fd, &members, sizeof members) != (ssize_t)sizeof members))
            return 0;
    }
    return members;
}

void run_coordinator_finish(void)
{
    child.finishes = true;
    if (child.pid > 0)
        (void)kill(child.pid, SIGTERM);
    else if (!child.was_killed)
        child.job = NULL; /* it has ended with the job, and no other one was begun yet */
}

bool run_coordinator_is_needed(void)
{
    run_coordinator_look();
    return child.job != NULL;
}

void run_coordinator_end(void)
{
    if ((child.job != NULL) && (child.pid > 0)) {
        (void)kill(child.pid, SIGKILL);
        (void)waitpid(child.pid, NULL, 0);
    }
    child.job = NULL;
    child.pid = 0;
    report_close();
}
