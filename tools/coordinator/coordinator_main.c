/* gf-coordinator --listen ADDRESS --job ID --world N: decides who is in the job, in a process of
 * its own, so that the job survives any of its ranks. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "config/config.h"
#include "drivers/identity.h"
#include "tools/common/tool_args.h"
#include "tools/common/tool_output.h"
#include "tools/coordinator/coordinator_serve.h"

static const int signals[] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP};
static volatile sig_atomic_t signal_number;

static void signal_handle(int number)
{
    signal_number = number;
}

/* Under nohup it outlives its terminal. What it was started with blocks none of them. */
static void signals_catch(void)
{
    sigset_t none;
    sigemptyset(&none);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct sigaction before;
        const struct sigaction action = {.sa_handler = signal_handle};
        if ((sigaction(signals[i], NULL, &before) != 0) || (before.sa_handler != SIG_IGN))
            (void)sigaction(signals[i], &action, NULL);
    }
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* ---- what it prints ---- */

/* A line an event, with the time. A reader that is slow must not stop it: a line for which a pipe
 * has no room is dropped, and counted. */
static void line_print(const char *text)
{
    static unsigned dropped;
    char line[512];
    char when[32] = "";
    char lost[64] = "";
    struct tm utc;
    time_t seconds = time(NULL);
    struct pollfd ready = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (tool_quiet) return;
    if (poll(&ready, 1, 0) != 1) {
        dropped++;
        return;
    }
    if (gmtime_r(&seconds, &utc) != NULL) (void)strftime(when, sizeof when, "%FT%TZ ", &utc);
    if (dropped > 0) (void)snprintf(lost, sizeof lost, " (%u lines before were not read)", dropped);
    dropped = 0;
    int bytes = snprintf(line, sizeof line, "%s%.400s%s\n", when, text, lost);
    if ((bytes > 0) && (write(STDOUT_FILENO, line, (size_t)bytes) < 0)) dropped++;
}

static void log_print(void *user, gf_log_level level, const char *text)
{
    (void)user;
    if (level <= GF_LOG_INFO) line_print(text);
}

static int fail(const char *text)
{
    (void)fprintf(stderr, "gf-coordinator: %s\n", text);
    return EXIT_FAILURE;
}

/* It ends as by the signal, so that whoever sent it sees that. */
static int end_by_signal(const struct coordinator_job *job)
{
    char text[200];
    (void)snprintf(text, sizeof text,
                   "ended by SIG%s: the ranks train on, and dial %s until join_timeout",
                   sigabbrev_np(signal_number), job->config.rendezvous.address);
    line_print(text);
    (void)fflush(NULL);
    (void)signal(signal_number, SIG_DFL);
    (void)raise(signal_number);
    return 128 + signal_number;
}

static int serve(const struct coordinator_job *job)
{
    char text[256] = "";
    char line[400];
    struct gf_fault fault = {0};
    struct coordinator_server *server = coordinator_open(job, &fault);
    if (server == NULL) return fail(fault.text);
    (void)snprintf(line, sizeof line, "listens at %s for %u ranks, at most %u",
                   job->config.rendezvous.address, job->world, job->world_max);
    line_print(line);
    gf_status status = coordinator_run(server, &signal_number, text, sizeof text);
    coordinator_close(server);
    if (status == GF_AGAIN) return end_by_signal(job);
    if (status < 0) {
        (void)snprintf(line, sizeof line, "the job has ended: %s", text);
        return fail(line);
    }
    line_print("all ranks have left in good order");
    return EXIT_SUCCESS;
}

/* ---- options ---- */

/* False, and said: nobody would agree with it on which job this is. */
static bool job_id_find(const char *given, struct coordinator_job *job)
{
    const char *text = (given != NULL) ? given : getenv("GF_JOB");
    if ((text == NULL) || (text[0] == '\0')) {
        job->id = job->config.job.id;
        if (job->id != 0) return true;
        (void)fprintf(stderr,
                      "gf-coordinator: --job is missing, and GF_JOB is not set: expected is the "
                      "same one as on all ranks\n");
        return false;
    }
    job->id = gf_identity_job(text);
    if (job->id != 0) return true;
    (void)fprintf(stderr,
                  "gf-coordinator: %s '%.40s': expected " GF_IDENTITY_JOB_ALLOWED ", not 0\n",
                  (given != NULL) ? "--job" : "GF_JOB", text);
    return false;
}

/* False, and said. */
static bool worlds_find(uint64_t world, uint64_t world_max, struct coordinator_job *job)
{
    job->world = (world != 0) ? (uint32_t)world : job->config.job.world;
    job->world_max = (world_max != 0) ? (uint32_t)world_max : job->config.job.world_max;
    if (job->world_max == 0) job->world_max = job->world;
    if (job->world == 0)
        (void)fprintf(stderr,
                      "gf-coordinator: --world is missing: with how many ranks does the job "
                      "begin?\n");
    else if (job->world_max < job->world)
        (void)fprintf(stderr, "gf-coordinator: --world-max %u: allowed is --world (%u) and more\n",
                      job->world_max, job->world);
    return (job->world != 0) && (job->world_max >= job->world);
}

#define STATUS_PATIENCE_NS UINT64_C(5000000000) /* somebody sits and waits */

static int program(int argc, char **argv)
{
    static char error[GF_CONFIG_ERROR_BYTES];
    static struct coordinator_job job = {.log = {.fn = log_print}};
    static struct coordinator_given given;
    static const char *id, *status;
    static uint64_t world, world_max;
    static bool asks;
    static const struct tool_option options[] = {
        {"listen", TOOL_TEXT, &given.listen, "ADDRESS",
         .help = "IP:port or host:port of this host: rendezvous.address of the ranks"},
        {"job", TOOL_TEXT, &id, "ID", .help = "of this run: GF_JOB of the ranks (default: GF_JOB)"},
        {"world", TOOL_NUMBER, &world, "N", .help = "ranks that the job begins with", .low = 1,
         .high = GF_WORLD_MAX},
        {"world-max", TOOL_NUMBER, &world_max, "N",
         .help = "ranks that it may grow to (default: --world)", .low = 1, .high = GF_WORLD_MAX},
        {"key-file", TOOL_TEXT, &given.key_file, "FILE",
         .help = "secret that ranks prove: rendezvous.key_file"},
        {"insecure", TOOL_FLAG, &given.insecure, NULL,
         .help = "listen beyond loopback without one"},
        {"join-timeout", TOOL_TEXT, &given.join_timeout, "TIME",
         .help = "how long the first rank is awaited (default: 1 min); then the ranks' own counts"},
        {"keepalive", TOOL_TEXT, &given.keepalive, "TIME",
         .help = "TCP keepalive period (default: 5 s)"},
        {"config", TOOL_TEXT, &given.config_path, "FILE",
         .help = "the ranks' configuration: what is not said here is taken from it"},
        {"status", TOOL_TEXT, &status, "ADDRESS",
         .help = "ask the coordinator there (default: that of --config): generation, who is here, "
                 "the last fault",
         .given_out = &asks, .optional = true},
    };
    static const struct tool_args args = {
        .program = "gf-coordinator",
        .usage = "--listen ADDRESS --job ID --world N [--key-file FILE | --insecure] [options]\n"
                 "       gf-coordinator --status ADDRESS --job ID [--key-file FILE | --insecure]\n"
                 "       gf-coordinator --status [ADDRESS] --job ID --config FILE",
        .about =
            "Decides who is in a job, in a process of its own, so that the job survives any of "
            "its ranks,\nwhich are told so by rendezvous.coordinator = \"separate\" or "
            "GF_COORDINATOR=separate.",
        .options = options,
        .option_count = sizeof options / sizeof *options,
    };
    uint32_t operand_count = 0;
    int read = tool_args_read(&args, argc, argv, NULL, &operand_count);
    if (read != 0) return tool_args_exit(read);
    if (asks && (given.listen != NULL)) {
        (void)fprintf(stderr, "gf-coordinator: --listen and --status: one of them is allowed\n");
        return TOOL_EXIT_USAGE;
    }
    if (status != NULL) given.listen = status;
    if ((given.listen == NULL) && (given.config_path == NULL)) {
        (void)fprintf(stderr, "gf-coordinator: %s is missing\nusage: gf-coordinator %s\n",
                      asks ? "ADDRESS of --status, or --config," : "--listen", args.usage);
        return TOOL_EXIT_USAGE;
    }
    given.patience_ns = asks ? STATUS_PATIENCE_NS : 0;
    if ((read = coordinator_config(&given, &job.config, error)) != 0) {
        (void)fail(error);
        return tool_args_exit(read);
    }
    signals_catch(); /* not before: a name may be asked for until join_timeout */
    if (!job_id_find(id, &job)) return TOOL_EXIT_USAGE;
    job.first_ns = job.config.rendezvous.join_timeout_ns;
    if (asks) return coordinator_show(&job);
    if (!worlds_find(world, world_max, &job)) return TOOL_EXIT_USAGE;
    return serve(&job);
}

TOOL_MAIN("gf-coordinator", program)
