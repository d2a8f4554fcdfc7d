/* Each rank leads a process group of its own, so that what it starts ends with it, and is ended by
 * the kernel should gf-run be killed. What leaves that group says that it is to outlive the rank,
 * as a daemon does that other jobs use, too. gf-run cannot tell it from one that hangs and holds a
 * GPU: that is for who owns the node, with a cgroup. Ended ranks stay zombies until the job is
 * over: until then their process ids name nobody else. */
#include "tools/run/run_ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/run/run_coordinator.h"
#include "tools/run/run_lines.h"
#include "tools/common/tool_args.h"
#include "tools/common/tool_clock.h"

/* After a failure the others have a second to say what they saw of it; then they are asked to end,
 * then made to. */
#define LAST_WORDS_NS 1000000000u
#define TERM_NS 3000000000u
/* Of one try of a rank at the least: N tries outlast what passes within N seconds. */
#define TRY_NS 1000000000u
#define IDLE_MS 1000
#define SOON_MS 50
#define OTHERS_MS 100
#define SIGNALS_MAX 4

struct rank {
    pid_t pid;
    bool ended, left;
    bool refused; /* its command line: it would be again */
    uint32_t starts;
    uint64_t started_ns; /* the last one */
};

struct masks {
    sigset_t waiting; /* of gf-run itself inside ppoll() */
    sigset_t ranks;
};

static struct rank ranks[RUN_RANKS_MAX];
static struct lines_source sources[2u * RUN_RANKS_MAX];
static struct pollfd polled[2u * RUN_RANKS_MAX + 2u];
static const int signals[SIGNALS_MAX] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP};
static int signal_count = SIGNALS_MAX; /* under nohup all but the last */
static volatile sig_atomic_t signal_number, grow_wanted;
static bool was_ended; /* a signal said so */

static uint32_t rank_first(const struct run_job *job)
{
    return job->node * job->rank_count;
}

/* A rank may be a child of what was started: with it all of its group ends. */
static void group_end(const struct rank *rank)
{
    if (rank->pid > 0) (void)kill(-rank->pid, SIGKILL);
}

static void signal_handle(int number)
{
    if (number == SIGUSR1)
        grow_wanted = 1;
    else if (number != SIGCHLD)
        signal_number = number;
}

/* Asked before all constructors: a dynamic UCX's takes the signal. */
static void hangup_look(void)
{
    struct sigaction before;
    if ((sigaction(SIGHUP, NULL, &before) == 0) && (before.sa_handler == SIG_IGN)) signal_count--;
}
__attribute__((section(".preinit_array"),
               used)) static void (*const before_all)(void) = hangup_look;

/* Signals come only inside ppoll() and signals_take(), so none is missed between a look and a wait.
 * What gf-run was started with says nothing of what it takes itself: a parent that blocks SIGTERM,
 * as a program with a thread for its signals does, would have a job that nobody can end. The ranks
 * get the parent's mask, less those: what gf-run passes on to them has to arrive. */
static void signals_hold(struct masks *masks_out)
{
    struct sigaction action = {.sa_handler = signal_handle};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGCHLD);
    sigaddset(&held, SIGUSR1);
    sigaction(SIGCHLD, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < signal_count; i++) {
        sigaddset(&held, signals[i]);
        sigaction(signals[i], &action, NULL);
    }
    if (signal_count < SIGNALS_MAX) sigaction(SIGHUP, &ignore, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    sigprocmask(SIG_SETMASK, &held, &masks_out->ranks);
    for (int number = 1; number <= SIGRTMAX; number++)
        if (sigismember(&held, number) == 1) sigdelset(&masks_out->ranks, number);
    sigemptyset(&masks_out->waiting);
}

/* ppoll() delivers none where it has not to wait, as where a rank prints without end. */
static void signals_take(const struct masks *masks)
{
    sigset_t held;
    sigprocmask(SIG_SETMASK, &masks->waiting, &held);
    sigprocmask(SIG_SETMASK, &held, NULL);
}

/* ---- starting ---- */

static void number_export(const char *name, unsigned long long number)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%llu", number);
    (void)setenv(name, text, 1);
}

/* In the new process; only returns by exec or _exit. */
static void rank_become(const struct run_job *job, uint32_t rank, const int out[2], int report,
                        pid_t parent, const struct masks *masks)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(RUN_EXIT_NOT_RUN); /* it died before it could be asked for */
    for (int i = 0; i < signal_count; i++) sigaction(signals[i], &usual, NULL);
    sigaction(SIGCHLD, &usual, NULL);
    sigaction(SIGUSR1, &usual, NULL);
    sigaction(SIGPIPE, &usual, NULL);
    sigaction(SIGXFSZ, &usual, NULL);
    sigprocmask(SIG_SETMASK, &masks->ranks, NULL);
    /* a group in the background may not read the terminal */
    if ((rank != 0) || (isatty(STDIN_FILENO) == 1)) {
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (null >= 0) (void)dup2(null, STDIN_FILENO);
    }
    for (int i = 0; i < 2; i++) {
        if (out[i] >= 0) (void)dup2(out[i], STDOUT_FILENO + i);
    }
    number_export("GF_RANK", rank_first(job) + rank);
    number_export("GF_LOCAL_RANK", rank);
    number_export("GF_WORLD", job->nodes * job->rank_count);
    if (job->nodes == 1) { /* a job of its own, also inside another one's rank */
        (void)unsetenv("GF_WORLD_MAX");
        (void)unsetenv("GF_REJOIN");
    }
    if (job->rank_max > job->rank_count) number_export("GF_WORLD_MAX", job->rank_max);
    (void)setenv("GF_JOB", job->id, 1);
    (void)setenv("GF_COORDINATOR", "separate", 1);
    if (job->address != NULL) (void)setenv("GF_ADDRESS", job->address, 1);
    if (ranks[rank].starts > 0) number_export("GF_REJOIN", 1);
    if (job->elastic)
        number_export("GF_ELASTIC", 1);
    else
        (void)unsetenv("GF_ELASTIC");
    (void)execvp(job->arguments[0], job->arguments);
    int code = errno;
    ssize_t wrote = write(report, &code, sizeof code);
    _exit((wrote == (ssize_t)sizeof code) ? RUN_EXIT_NOT_FOUND : RUN_EXIT_NOT_RUN);
}

/* A pipe from the rank to us; its writing end, or -1 with errno. */
static int source_open(struct lines_source *source, struct lines_sink *sink, const char *prefix)
{
    int pair[2];
    if (source->data == NULL) source->data = malloc(LINES_BYTES);
    if ((source->data == NULL) || (pipe2(pair, O_CLOEXEC) != 0)) return -1;
    (void)fcntl(pair[0], F_SETFL, O_NONBLOCK);
    source->number = pair[0];
    source->is_last = false;
    source->sink = sink;
    (void)snprintf(source->prefix, sizeof source->prefix, "%s", prefix);
    return pair[1];
}

/* 0, or what gf-run exits with. */
static int rank_start(const struct run_job *job, uint32_t rank, const struct masks *masks)
{
    int out[2] = {-1, -1};
    int report[2] = {-1, -1};
    int code = 0;
    char prefix[16];
    pid_t parent = getpid();
    (void)snprintf(prefix, sizeof prefix, "[%u] ", rank_first(job) + rank);
    bool ready = pipe2(report, O_CLOEXEC) == 0, is_first = rank_first(job) + rank == 0;
    for (uint32_t i = 0; ready && (i < 2); i++) {
        /* rank 0 has the terminal itself */
        if (is_first && (isatty(STDOUT_FILENO + (int)i) == 1)) continue;
        bool plain = !job->prefix || (is_first && (i == 0));
        out[i] = source_open(&sources[2u * rank + i], lines_sink_of(i), plain ? "" : prefix);
        ready = out[i] >= 0;
    }
    pid_t pid = ready ? fork() : -1;
    if (pid == 0) rank_become(job, rank, out, report[1], parent, masks);
    code = (pid < 0) ? errno : 0;
    for (int i = 0; i < 2; i++) {
        if (out[i] >= 0) (void)close(out[i]);
    }
    if (report[1] >= 0) (void)close(report[1]);
    if (pid > 0) {
        (void)setpgid(pid, pid); /* both sides: whoever comes first */
        ranks[rank].pid = pid;
        ranks[rank].ended = false;
        ranks[rank].starts++;
        ranks[rank].started_ns = tool_clock_ns();
        /* its end is a successful exec */
        while ((read(report[0], &code, sizeof code) < 0) && (errno == EINTR)) {
        }
    }
    if (report[0] >= 0) (void)close(report[0]);
    if (code == 0) return 0;
    lines_tell("gf-run: cannot start %s as rank %u: %s\n", job->arguments[0],
               rank_first(job) + rank, strerror(code));
    if (pid < 0) return EXIT_FAILURE;
    return (code == ENOENT) ? RUN_EXIT_NOT_FOUND : RUN_EXIT_NOT_RUN;
}

/* ---- watching ---- */

/* A rank that a signal ended says nothing itself, and one that failed may not. */
static void failure_tell(uint32_t rank, const siginfo_t *info)
{
    if (info->si_code == CLD_EXITED) {
        if (info->si_status != 0)
            lines_tell("gf-run: rank %u ended with %d\n", rank, info->si_status);
        return;
    }
    const char *name = sigabbrev_np(info->si_status);
    lines_tell("gf-run: rank %u was ended by SIG%s (signal %d)%s\n", rank,
               (name != NULL) ? name : "?", info->si_status,
               (info->si_code == CLD_DUMPED) ? ", core dumped" : "");
}

/* The job goes on without it, and nobody would know. */
static void last_try_tell(const struct run_job *job, uint32_t rank, const siginfo_t *info)
{
    const bool succeeded = (info->si_code == CLD_EXITED) && (info->si_status == 0);
    if ((job->restarts == 0) || succeeded) return;
    if (ranks[rank].refused)
        lines_tell("gf-run: rank %u is not started again: it ended with 2, as for a wrong "
                   "command line\n",
                   rank_first(job) + rank);
    if (ranks[rank].refused || (ranks[rank].starts <= job->restarts)) return;
    lines_tell("gf-run: rank %u is not started again: it failed %u times\n", rank_first(job) + rank,
               ranks[rank].starts);
}

/* It has failed, and may be started again. */
static bool restarts(const struct run_job *job, const struct rank *rank)
{
    return rank->ended && !rank->left && !rank->refused && (rank->pid != 0) &&
           (rank->starts <= job->restarts);
}

/* Marks ranks that have ended; the exit code of the first that failed, 0 if none did. Of several
 * that failed between two looks one that a signal ended goes first: the others' failures are mostly
 * its consequence. */
static int ranks_look(const struct run_job *job, bool tells, uint32_t *live_out, bool *succeeded)
{
    int failure = 0;
    int crash = 0;
    uint32_t live = 0;
    for (uint32_t i = 0; i < job->rank_max; i++) {
        siginfo_t info = {0};
        if (ranks[i].ended || (ranks[i].pid == 0)) continue;
        if ((waitid(P_PID, (id_t)ranks[i].pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0) ||
            (info.si_pid == 0)) {
            live++;
            continue;
        }
        ranks[i].ended = true;
        ranks[i].left =
            job->elastic && (info.si_code == CLD_EXITED) && (info.si_status == TOOL_EXIT_LEFT);
        if (ranks[i].left) group_end(&ranks[i]);
        if (ranks[i].left) continue;
        if ((info.si_code == CLD_EXITED) && (info.si_status == 0))
            *succeeded = true;
        else
            group_end(&ranks[i]);
        ranks[i].refused = (info.si_code == CLD_EXITED) && (info.si_status == TOOL_EXIT_USAGE);
        for (uint32_t of = 2u * i; restarts(job, &ranks[i]) && (of < 2u * i + 2u); of++)
            lines_last(&sources[of]);
        /* not those that gf-run has ended itself */
        if (tells) failure_tell(rank_first(job) + i, &info);
        if (tells) last_try_tell(job, i, &info);
        if ((info.si_code == CLD_EXITED) && (failure == 0)) failure = info.si_status;
        if ((info.si_code != CLD_EXITED) && (crash == 0)) crash = 128 + info.si_status;
    }
    *live_out = live;
    return (crash != 0) ? crash : failure;
}

/* No other job of so many ranks can begin here, once this one has ended well: one of them has
 * ended, and is not started again. */
static bool job_is_last(const struct run_job *job, bool succeeded)
{
    bool is_last = succeeded;
    for (uint32_t i = 0; i < job->rank_count; i++) is_last = is_last || ranks[i].left;
    return job->elastic && is_last;
}

/* In how many ms the first of those may be: once its try has lasted long enough, and its last words
 * are taken, as its successor needs its pipes. Below 0: there is none. */
static int restart_wait(const struct run_job *job)
{
    const uint64_t now_ns = tool_clock_ns();
    int first_ms = -1;
    for (uint32_t i = 0; i < job->rank_max; i++) {
        const uint64_t due_ns = ranks[i].started_ns + TRY_NS;
        int wait_ms = (now_ns < due_ns) ? (int)((due_ns - now_ns) / 1000000u) + 1 : 0;
        if (!restarts(job, &ranks[i])) continue;
        if ((sources[2u * i].number >= 0) || (sources[2u * i + 1u].number >= 0)) wait_ms = IDLE_MS;
        if ((first_ms < 0) || (wait_ms < first_ms)) first_ms = wait_ms;
    }
    return first_ms;
}

/* Ranks that have failed are started again, while nobody has ended well and nobody wants us to end.
 * How many were. */
static uint32_t ranks_restart(const struct run_job *job, const struct masks *masks)
{
    uint32_t count = 0;
    const uint64_t now_ns = tool_clock_ns();
    for (uint32_t i = 0; i < job->rank_max; i++) {
        struct rank *rank = &ranks[i];
        if (!restarts(job, rank) || (now_ns < rank->started_ns + TRY_NS)) continue;
        if ((sources[2u * i].number >= 0) || (sources[2u * i + 1u].number >= 0)) continue;
        (void)waitpid(rank->pid, NULL, 0);
        rank->pid = 0;
        lines_tell("gf-run: rank %u is started again: try %u of %u\n", rank_first(job) + i,
                   rank->starts + 1u, job->restarts + 1u);
        if (rank_start(job, i, masks) == 0)
            count++;
        else
            rank->starts = job->restarts + 1u;
    }
    return count;
}

/* Another look, a moment later: where several end at once none of them is there to be joined. A job
 * that begins anew needs all its ranks: where one of them is not started again, those that are
 * would wait for it. */
#define AT_ONCE_NS 50000000l

static bool failed_for_good(const struct run_job *job, bool *succeeded)
{
    const struct timespec nap = {.tv_nsec = AT_ONCE_NS};
    uint32_t live;
    uint32_t lacking = 0;
    (void)nanosleep(&nap, NULL);
    (void)ranks_look(job, true, &live, succeeded);
    if ((live > 0) || *succeeded) return false;
    if (job->nodes > 1) return false;                /* others may run there */
    if (run_coordinator_members() > 0) return false; /* .. or something else has started some */
    while ((lacking < job->rank_count) && restarts(job, &ranks[lacking])) lacking++;
    if (lacking == job->rank_count) {
        lines_tell("gf-run: no rank runs any more: the job begins anew\n");
        return false;
    }
    lines_tell("gf-run: no rank runs any more that one started again could join, and rank %u is "
               "not started again: the job has ended; start it anew\n",
               rank_first(job) + lacking);
    return true;
}

static void ranks_signal(uint32_t rank_count, int number)
{
    for (uint32_t i = 0; i < rank_count; i++) {
        if (ranks[i].pid > 0) (void)kill(-ranks[i].pid, number);
    }
}

/* Shows what there is; waits for more, for a slow reader, for a signal or until timeout_ms has
 * passed. What a reader has not taken yet is no reason to wait longer: meanwhile ranks die, and
 * somebody wants the job to end. */
static void output_move(uint32_t rank_count, int timeout_ms, const struct masks *masks)
{
    static struct lines_source *of[2u * RUN_RANKS_MAX];
    nfds_t count = 0;
    /* of more than there may be descriptors ppoll() looks at none */
    for (uint32_t i = 0; i < 2u * rank_count; i++) {
        if ((sources[i].number < 0) || lines_wait(sources[i].sink)) continue;
        if (sources[i].is_last) timeout_ms = 0; /* all of it is there */
        of[count] = &sources[i];
        polled[count++] = (struct pollfd){.fd = sources[i].number, .events = POLLIN};
    }
    const nfds_t source_count = count;
    for (int i = 0; i < 2; i++) {
        const struct lines_sink *sink = &lines_sinks[i];
        if (!lines_wait(sink)) continue;
        if (!sink->refused)
            polled[count++] = (struct pollfd){.fd = sink->number, .events = POLLOUT};
        else if (timeout_ms > SOON_MS)
            timeout_ms = SOON_MS;
    }
    const struct timespec timeout = {.tv_sec = timeout_ms / 1000,
                                     .tv_nsec = (timeout_ms % 1000) * 1000000l};
    (void)ppoll(polled, count, &timeout, &masks->waiting);
    signals_take(masks);
    for (int i = 0; i < 2; i++) lines_flush(&lines_sinks[i]);
    for (nfds_t i = 0; i < source_count; i++)
        if ((polled[i].revents != 0) || of[i]->is_last) lines_move(of[i]);
}

static bool output_is_left(const struct run_job *job)
{
    bool is_left = lines_wait(&lines_sinks[0]) || lines_wait(&lines_sinks[1]);
    for (uint32_t i = 0; i < 2u * job->rank_max; i++) is_left = is_left || (sources[i].number >= 0);
    return is_left;
}

/* Shows what was written before the ranks ended. A slow reader is waited for; where a signal ends
 * the job, for a moment, and until the next signal. */
static void output_finish(const struct run_job *job, int *result, const struct masks *masks)
{
    uint64_t end_ns = was_ended ? tool_clock_ns() + LAST_WORDS_NS : UINT64_MAX;
    for (uint32_t i = 0; i < 2u * job->rank_max; i++) lines_last(&sources[i]);
    while (output_is_left(job)) {
        const uint64_t now_ns = tool_clock_ns();
        if (signal_number != 0) {
            if (was_ended) return;
            was_ended = true;
            end_ns = now_ns + LAST_WORDS_NS;
            if (*result == 0) *result = 128 + signal_number;
            signal_number = 0;
        }
        if (now_ns >= end_ns) return;
        const uint64_t left_ms = (end_ns - now_ns) / 1000000u + 1;
        const int wait_ms = (left_ms < IDLE_MS) ? (int)left_ms : IDLE_MS;
        output_move(job->rank_max, run_coordinator_wait(wait_ms), masks);
        run_coordinator_look();
    }
}

/* How many were started: 1, or 0. */
static uint32_t rank_add(const struct run_job *job, const struct masks *masks)
{
    static uint32_t added;
    uint32_t rank = job->rank_count + added;
    grow_wanted = 0;
    if (rank >= job->rank_max) {
        lines_tell("gf-run: no more ranks than %u (--max)\n", job->rank_max);
        return 0;
    }
    added++;
    return (rank_start(job, rank, masks) == 0) ? 1 : 0;
}

static void job_watch(const struct run_job *job, int *result, const struct masks *masks)
{
    uint32_t rank_count = job->rank_max;
    int first_failure = 0;
    bool succeeded = false;
    uint64_t term_ns = 0;
    uint64_t kill_ns = 0; /* when to; 0: not planned */
    uint32_t live = job->rank_count;
    int again_ms = -1; /* until a rank is started again; below 0: none is */
    if (*result != 0) term_ns = tool_clock_ns();
    while ((live > 0) || (again_ms >= 0)) {
        uint64_t now_ns = tool_clock_ns();
        uint64_t next_ns = (term_ns != 0) ? term_ns : kill_ns;
        if ((next_ns != 0) && (now_ns >= next_ns)) {
            ranks_signal(rank_count, (term_ns != 0) ? SIGTERM : SIGKILL);
            kill_ns = now_ns + TERM_NS;
            term_ns = 0;
            continue;
        }
        int wait_ms = (next_ns != 0) ? (int)((next_ns - now_ns) / 1000000u) + 1 : IDLE_MS;
        if ((again_ms >= 0) && (again_ms < wait_ms)) wait_ms = again_ms;
        output_move(rank_count, run_coordinator_wait(wait_ms), masks);
        bool ends = (*result != 0) || (signal_number != 0);
        int failure = ranks_look(job, !ends, &live, &succeeded);
        if ((live > 0) || (again_ms >= 0)) run_coordinator_look();
        if (job_is_last(job, succeeded)) run_coordinator_job_is_last();
        if (first_failure == 0) first_failure = failure;
        bool is_over = succeeded || run_coordinator_job_has_ended();
        bool again = (*result == 0) && !is_over && (signal_number == 0);
        if (again && (restart_wait(job) == 0)) {
            if (failed_for_good(job, &succeeded)) break;
            if (!succeeded) live += ranks_restart(job, masks);
        }
        again_ms = (again && !succeeded) ? restart_wait(job) : -1;
        if ((*result == 0) && (live > 0) && (grow_wanted != 0)) live += rank_add(job, masks);
        if (job->elastic) failure = 0;
        if ((failure != 0) && (*result == 0)) {
            *result = failure;
            term_ns = tool_clock_ns() + LAST_WORDS_NS;
        }
        if (signal_number != 0) { /* passed on at once; whoever does not end by it is ended */
            was_ended = true;
            ranks_signal(rank_count, signal_number);
            if (*result == 0) *result = 128 + signal_number;
            term_ns = 0;
            if (kill_ns == 0) kill_ns = tool_clock_ns() + TERM_NS;
            signal_number = 0;
        }
    }
    if (job->elastic && (*result == 0) && !succeeded)
        *result = (first_failure != 0) ? first_failure : TOOL_EXIT_LEFT;
}

/* Ranks of other nodes, or that something else has started, may go on, or hear of it that the job
 * has failed here. */
static void others_await(const struct run_job *job, const struct masks *masks)
{
    uint32_t others = 0;
    if (was_ended) return;
    if ((job->nodes == 1) && ((others = run_coordinator_members()) == 0)) return;
    if (others > 0)
        lines_tell("gf-run: its own ranks have ended, and %u that it has not started %s "
                   "in the job: it stays until they have left, as their coordinator is "
                   "here\n",
                   others, (others == 1) ? "is" : "are");
    run_coordinator_finish();
    while ((signal_number == 0) && run_coordinator_is_needed()) output_move(0, OTHERS_MS, masks);
}

int run_job(const struct run_job *job)
{
    struct masks masks;
    int result = 0;
    for (uint32_t i = 0; i < 2u * RUN_RANKS_MAX; i++) sources[i].number = -1;
    signals_hold(&masks);
    lines_begin();
    if ((job->coordinator != NULL) &&
        !run_coordinator_begin(job->coordinator, rank_first(job), job->rank_max)) {
        output_finish(job, &result, &masks);
        return EXIT_FAILURE;
    }
    for (uint32_t rank = 0; (rank < job->rank_count) && (result == 0); rank++)
        result = rank_start(job, rank, &masks);
    job_watch(job, &result, &masks);
    ranks_signal(job->rank_max, SIGKILL); /* what ranks have started and left behind */
    output_finish(job, &result, &masks);
    others_await(job, &masks);
    run_coordinator_end();
    for (int i = 0; i < 2; i++) { /* the ranks went on */
        if (lines_sinks[i].error == 0) continue;
        lines_tell("gf-run: cannot write to %s: %s; what ranks wrote after that was dropped\n",
                   (i == 0) ? "stdout" : "stderr", strerror(lines_sinks[i].error));
        if (result == 0) result = 1;
    }
    if (!was_ended) output_finish(job, &result, &masks);
    for (uint32_t rank = 0; rank < job->rank_max; rank++) {
        if (ranks[rank].pid > 0) (void)waitpid(ranks[rank].pid, NULL, 0);
    }
    for (uint32_t i = 0; i < 2u * job->rank_max; i++) free(sources[i].data);
    return result;
}
