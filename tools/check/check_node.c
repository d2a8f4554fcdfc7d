/* The node: environment, GPU, limits, huge pages and memory against what this configuration asks
 * for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tools/check/check_preflight.h"
#include "drivers/drivers.h"
#include "drivers/identity.h"
#include "drivers/node.h"
#include "drivers/variables.h"
#include "lib/settings/settings.h"

extern char **environ;

/* The pages between regions. */
#define REGION_PAD_BYTES (3ull * 4096)

static void environment_list(char *text, size_t text_bytes)
{
    size_t at = 0;
    for (char **variable = environ; *variable != NULL; variable++) {
        size_t length = strcspn(*variable, "=");
        if ((strncmp(*variable, "UCX_", 4) != 0) || (at + length + 3 > text_bytes)) continue;
        at += (size_t)snprintf(text + at, text_bytes - at, "%s%.*s", at ? ", " : "", (int)length,
                               *variable);
    }
}

/* A warning, as another program may have names like ours. */
static void variables_say(struct check_report *report)
{
    char text[GF_VARIABLE_TEXT_BYTES];
    uint32_t at = 0;
    for (int i = 0; (i < GF_VARIABLES_SAID_MAX) && gf_variable_odd(&at, text); i++)
        check_say(report, "environment", CHECK_WARN,
                  "set what is read (gradientflow.cfg(5)), and unset what was not meant", "%s",
                  text);
}

/* Of two launchers one was read. */
static void launcher_over_say(struct check_report *report)
{
    char text[GF_IDENTITY_SIGN_BYTES];
    if (gf_identity_over(text))
        check_say(report, "launcher", CHECK_WARN, "unset those that did not start this rank", "%s",
                  text);
}

void check_environment(struct check_report *report, const struct check_job *job)
{
    char variables[256] = "";
    char most[32] = "";
    if (job->config.job.world_max > job->config.job.world)
        (void)snprintf(most, sizeof most, ", at most %u", job->config.job.world_max);
    if (job->has_sign)
        check_say(report, "launcher", CHECK_FAIL, "a job so started is N jobs of one rank", "%s",
                  job->sign);
    else if ((job->config.job.world == 1) && !gf_ip_loopback(job->config.rendezvous.address))
        check_say(report, "launcher", CHECK_FAIL,
                  "say how many ranks there are (GF_RANK and GF_WORLD), or a loopback address",
                  "a world of 1, and rendezvous.address %s is for several",
                  job->config.rendezvous.address);
    else if (job->launched)
        check_say(report, "launcher", CHECK_OK, NULL, "%s: rank %u of %u%s", job->launcher,
                  job->config.job.rank, job->config.job.world, most);
    else
        check_say(report, "launcher", CHECK_OK, NULL,
                  "none in the environment; looked at for a world of %u", job->config.job.world);
    if (job->reads_environment) {
        launcher_over_say(report);
        variables_say(report);
    }
    environment_list(variables, sizeof variables);
    if (variables[0] == '\0') return;
    check_say(
        report, "environment", CHECK_WARN,
        "unset what was not meant; TLS, NET_DEVICES and TCP_PORT_RANGE come from the file anyway",
        "UCX reads these beside the file: %s", variables);
}

/* ---- the GPU: opened as a rank opens it, with as little memory as there is ---- */

void check_gpu(struct check_report *report, const struct check_job *job)
{
    const struct gf_gpu_driver *driver = gf_drivers_all.gpu;
    const struct gf_gpu_kernels *kernels = gf_drivers_all.gpu_kernels;
    struct gf_gpu_setup setup = {.library = job->config.device.library,
                                 .ordinal = job->config.device.ordinal,
                                 .local = job->local,
                                 .device_bytes = 1};
    struct gf_fault fault = {0};
    struct gf_gpu *gpu = NULL;
    if (!gf_gpu_is_device(job->config.device.driver)) {
        check_say(report, "gpu", CHECK_OK, NULL, "none needed: device.driver is \"host\"");
        return;
    }
    if (driver == NULL) {
        check_say(report, "gpu", CHECK_FAIL, "build it where cuda.h is",
                  "device.driver is \"cuda\", which is not in this program");
        return;
    }
    if (kernels->image == NULL) {
        check_say(report, "gpu", CHECK_FAIL, "build it where nvcc is",
                  "this program has no GPU kernels");
        return;
    }
    setup.kernels = *kernels;
    void *state = calloc(1, driver->state_bytes(&setup));
    if ((state == NULL) || (driver->open(&setup, state, &gpu, &fault) != GF_OK)) {
        check_say(report, "gpu", CHECK_FAIL,
                  "does nvidia-smi work here? in a container, was the GPU handed in? else look at "
                  "device.library",
                  "%s", (state != NULL) ? fault.text : "there is no memory to look at it");
    } else {
        check_say(report, "gpu", CHECK_OK, NULL,
                  "%s, number %u of %u, driver for CUDA %u.%u (%s); memory shared in a node: %s",
                  gpu->name, gpu->ordinal, gpu->count, gpu->version / 1000,
                  gpu->version % 1000 / 10, setup.library,
                  gpu->exports ? "by descriptors" : "none, it has no descriptors");
        driver->close(gpu);
    }
    free(state);
}

/* ---- what a rank asks for ---- */

void check_footprint(struct check_report *report, const struct check_job *job)
{
    double mib = 1024.0 * 1024;
    if (job->need.control_bytes == 0)
        check_say(report, "footprint", CHECK_FAIL, "correct what it names in the file", "%s",
                  job->need_fault);
    else
        check_say(report, "footprint", CHECK_OK, NULL,
                  "a rank takes %.1f MiB control, %.1f exchange, %.1f device",
                  (double)job->need.control_bytes / mib, (double)job->need.exchange_bytes / mib,
                  (double)job->need.device_bytes / mib);
}

/* ---- limits ---- */

void check_stack(struct check_report *report)
{
    struct rlimit stack = {0};
    if (getrlimit(RLIMIT_STACK, &stack) != 0) return;
    if (stack.rlim_cur >= GF_STACK_BYTES)
        check_say(report, "stack", CHECK_OK, NULL, "%u KiB of the main thread's are needed",
                  GF_STACK_BYTES / 1024);
    else
        check_say(report, "stack", CHECK_FAIL, "raise it (ulimit -s)",
                  "may grow to %llu KiB; %u KiB are needed",
                  (unsigned long long)stack.rlim_cur / 1024, GF_STACK_BYTES / 1024);
}

/* The number in the first line of a file that has this form; 0: there is none. */
static unsigned long long number_of(const char *path, const char *form)
{
    unsigned long long number = 0;
    char line[128];
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, form, &number) == 1) break;
    (void)fclose(file);
    return number;
}

/* Past RLIMIT_MEMLOCK by privilege (bit 14 of the effective set). */
static bool may_lock_all(void)
{
    return ((number_of("/proc/self/status", "CapEff: %llx") >> 14) & 1) != 0;
}

/* What UCX registers besides, in its first steps: buffers to receive into and to send from, rc's
 * and those of the ud it connects over (measured: firmware-tests/results/ucx.md). */
#define UCX_LOCKED_BYTES (UINT64_C(80) << 20)

/* RDMA transports lock what they register; memory pinned for a GPU is locked by its driver, past
 * the limit. */
void check_memlock(struct check_report *report, const struct check_job *job)
{
    char need[GF_UNITS_BYTES];
    char limit[GF_UNITS_BYTES];
    struct rlimit lock = {0};
    uint64_t locked_bytes = job->need.exchange_bytes + UCX_LOCKED_BYTES;
    if (getrlimit(RLIMIT_MEMLOCK, &lock) != 0) lock.rlim_cur = RLIM_INFINITY;
    (void)gf_units_bytes(locked_bytes, need);
    if ((lock.rlim_cur == RLIM_INFINITY) || may_lock_all())
        check_say(report, "memlock", CHECK_OK, NULL, "no limit%s",
                  (lock.rlim_cur == RLIM_INFINITY) ? "" : " for this process (CAP_IPC_LOCK)");
    else if (!job->fabric)
        check_say(report, "memlock", CHECK_OK, NULL, "limit %s; sockets lock no memory",
                  gf_units_bytes(lock.rlim_cur, limit));
    else
        check_say(report, "memlock", (lock.rlim_cur < locked_bytes) ? CHECK_FAIL : CHECK_OK,
                  (lock.rlim_cur < locked_bytes)
                      ? "ulimit -l unlimited (limits.conf, LimitMEMLOCK= of slurmd, docker "
                        "--ulimit memlock=-1)"
                      : NULL,
                  "limit %s, to be registered with the network: %s",
                  gf_units_bytes(lock.rlim_cur, limit), need);
}

/* ---- huge pages ---- */

/* Which of "always [advise] never" is in brackets. */
static bool choice_read(const char *path, char *choice_out, size_t choice_bytes)
{
    char line[128] = "";
    char *first;
    char *last;
    FILE *file = fopen(path, "r");
    if (file == NULL) return false;
    first = fgets(line, sizeof line, file);
    (void)fclose(file);
    if ((first == NULL) || ((first = strchr(line, '[')) == NULL) ||
        ((last = strchr(first, ']')) == NULL))
        return false;
    *last = '\0';
    (void)snprintf(choice_out, choice_bytes, "%s", first + 1);
    return true;
}

void check_huge_pages(struct check_report *report, const struct check_job *job)
{
    bool shared = !job->config.link.private_memory;
    const char *path = shared ? "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
                              : "/sys/kernel/mm/transparent_hugepage/enabled";
    char choice[32];
    if (!job->config.link.huge_pages) {
        check_say(report, "huge pages", CHECK_OK, NULL, "not asked for (link.huge_pages)");
    } else if (!choice_read(path, choice, sizeof choice)) {
        check_say(report, "huge pages", CHECK_WARN,
                  "a kernel with transparent huge pages, or link.huge_pages = false",
                  "%s cannot be read: there will be small pages", path);
    } else if ((strcmp(choice, "never") == 0) || (strcmp(choice, "deny") == 0)) {
        char todo[128];
        (void)snprintf(todo, sizeof todo, "echo advise > %s", path);
        check_say(report, "huge pages", CHECK_WARN, todo,
                  "asked for, but %s says \"%s\": there will be small pages", path, choice);
    } else {
        check_say(report, "huge pages", CHECK_OK, NULL, "%s says \"%s\"", path, choice);
    }
}

/* ---- memory ---- */

void check_memory(struct check_report *report, const struct check_job *job)
{
    double gib = 1024.0 * 1024 * 1024;
    double need = (double)(job->need.control_bytes + job->need.exchange_bytes) * job->local_count;
    double there = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    double available = (double)number_of("/proc/meminfo", "MemAvailable: %llu kB") * 1024;
    check_state state = (need > there) ? CHECK_FAIL : (need > available) ? CHECK_WARN : CHECK_OK;
    check_say(report, "memory", state,
              (state != CHECK_OK) ? "fewer ranks a node, smaller exchange.user_bytes or model"
                                  : NULL,
              "%.2f GiB for %u rank%s of this node; it has %.1f GiB, %.1f available", need / gib,
              job->local_count, (job->local_count == 1) ? "" : "s", there / gib, available / gib);
}

void check_limits(struct check_report *report, const struct check_job *job)
{
    size_t bytes = (size_t)job->need.exchange_bytes + REGION_PAD_BYTES;
    bool shared = !job->config.link.private_memory;
    char text[200];
    if (gf_node_limits_text(bytes, shared, text, sizeof text)[0] != '\0')
        check_say(report, "limits", CHECK_FAIL,
                  "raise it, or fewer ranks a node, smaller exchange.user_bytes or model",
                  "for an exchange region of %.1f MiB: %s", (double)bytes / (1024.0 * 1024), text);
    else
        check_say(report, "limits", CHECK_OK, NULL,
                  "nothing is in the way of an exchange region of %.1f MiB",
                  (double)bytes / (1024.0 * 1024));
}
