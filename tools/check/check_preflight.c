/* See check_preflight.h. First what concerns this rank by itself; then, if it was launched, a
 * conversation over the control channel, so that a rank with a failing line still tells the others
 * and all end with the same answer; then what depends on how many ranks a node has; last the real
 * join. */
#include "tools/check/check_preflight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drivers/identity.h"
#include "lib/settings/settings.h"
#include "tools/common/tool_args.h"

static int refuse(int code, const char *text)
{
    (void)fprintf(stderr, "gf-check: %s\n", text);
    return code;
}

static void fault_keep(void *user, gf_log_level level, const char *text)
{
    if (level <= GF_LOG_ERROR)
        (void)snprintf(user, sizeof((struct check_job *)0)->need_fault, "%s", text);
}

void check_world_assume(struct gf_config *config, uint32_t world)
{
    if (world != 0) config->job.world = world;
    if (config->job.world == 0)
        config->job.world = (config->job.world_max == 1) ? 1 : CHECK_WORLD_ASSUMED;
    config->job.rank = 0;
}

bool check_name_is_open(const struct gf_config *config)
{
    return gf_address_named(config->rendezvous.address);
}

/* As gf_open() does, but for no longer than the ranks would be waited for. */
static void name_find(struct check_job *job)
{
    struct gf_config *config = &job->config;
    char numeric[GF_TEXT_MAX];
    char why[256];
    if (!check_name_is_open(config) || (config->resolve == NULL)) return;
    if (config->resolve(config->rendezvous.address, job->deadline_ns, numeric, why) == GF_OK)
        memcpy(config->rendezvous.address, numeric, GF_TEXT_MAX);
    else
        (void)snprintf(job->name_fault, sizeof job->name_fault, "%.100s: %.140s",
                       config->rendezvous.address, why);
}

int check_job_fill(const struct gf_config *config, const struct gf_tensor *tensors,
                   uint32_t tensor_count, uint32_t world, uint32_t local_count,
                   uint64_t deadline_ns, struct check_job *job_out)
{
    struct check_job job = {.tensors = tensors,
                            .tensor_count = tensor_count,
                            .deadline_ns = deadline_ns,
                            .node_count = 1};
    struct gf_identity identity = {0};
    struct gf_fault fault = {0};
    char error[256];
    bool is_launched = !config->job.ignore_environment && gf_identity_get(&identity, &fault);
    if (fault.code < 0) return refuse(EXIT_FAILURE, fault.text);
    job.config = *config;
    job.launched = is_launched || (config->job.world > 1);
    job.launcher = is_launched ? identity.source : "job.world";
    if (job.launched && ((world != 0) || (local_count != 0)))
        return refuse(TOOL_EXIT_USAGE,
                      "--world and --local are for a node by itself; here the launcher says");
    if (!job.launched) check_world_assume(&job.config, world);
    job.config.log = fault_keep;
    job.config.log_user = job.need_fault;
    if (gf_measure(&job.config, tensors, tensor_count, &job.need) == GF_OK)
        job.need_fault[0] = '\0';
    job.config.log = NULL;
    job.address_name = gf_identity_address_name(&identity, config->rendezvous.address);
    /* as gf_measure() has taken it from the environment, or has refused it */
    if (is_launched) {
        job.config.job.world = identity.world;
        job.config.job.rank = identity.rank;
        if (identity.world_max != 0) job.config.job.world_max = identity.world_max;
        if (config->job.id == 0) job.config.job.id = identity.job_id;
        const char *address = gf_identity_address(&identity, config->rendezvous.address);
        (void)snprintf(job.config.rendezvous.address, GF_TEXT_MAX, "%s", address);
        job.coordinator_of_file = job.config.rendezvous.coordinator;
        if (identity.coordinator_set)
            job.config.rendezvous.coordinator =
                identity.is_separate ? GF_COORDINATOR_SEPARATE : GF_COORDINATOR_AT_RANK0;
    }
    job.reads_environment = !config->job.ignore_environment;
    if (job.reads_environment)
        job.has_sign = job.launched ? gf_identity_alone(job.sign) : gf_identity_sign(job.sign);
    job.local = is_launched ? identity.local : job.config.job.rank;
    job.config.job.ignore_environment = true;
    name_find(&job);
    if (gf_config_effective(&job.config, &job.config, error) != GF_OK)
        return refuse(EXIT_FAILURE, error);
    if (job.config.job.rank >= job.config.job.world)
        return refuse(
            EXIT_FAILURE,
            "--preflight is for the ranks at the start; this one comes in later (world_max)");
    /* A job whose control address is loopback has all of its ranks here. */
    job.local_count = (local_count != 0)                              ? local_count
                      : gf_ip_loopback(job.config.rendezvous.address) ? job.config.job.world
                                                                      : 1;
    *job_out = job;
    return 0;
}

static void node_lines(struct check_report *report, const struct check_job *job)
{
    check_interfaces(report, job);
    /* the rest is the node's, and probing it at once would disturb each other */
    if (job->local_index != 0) return;
    check_devices(report, job);
    check_gpudirect(report, job);
    check_ports(report, job);
    if (job->need.control_bytes == 0) return;
    check_limits(report, job);
    check_memory(report, job);
}

/* False, and said: the address is a name that nobody knows here. */
static bool name_is_known(struct check_report *report, const struct check_job *job)
{
    if (job->name_fault[0] == '\0') return true;
    check_say(report, "control", CHECK_FAIL,
              "a name server's record, /etc/hosts; ranks ask again until rendezvous.join_timeout",
              "%s %s", job->address_name, job->name_fault);
    return false;
}

static void launched_lines(struct check_report *report, struct check_job *job)
{
    if (!name_is_known(report, job)) {
        node_lines(report, job);
        check_say(report, "join", CHECK_SKIP, NULL, "not tried: the ranks did not meet");
        return;
    }
    struct check_peers *peers = check_peers_meet(report, job);
    check_met met = CHECK_NOT_TRIED;
    node_lines(report, job);
    if (peers == NULL)
        check_say(report, "join", CHECK_SKIP, NULL, "not tried: the ranks did not meet");
    else if (!check_peers_agree(report, peers))
        check_say(report, "join", CHECK_SKIP, NULL, "not tried before what fails is put right");
    else
        met = check_join(report, job);
    check_interfaces_reach(report, job, met);
}

static void alone_lines(struct check_report *report, const struct check_job *job)
{
    static const char why[] = "started alone; srun, mpirun or gf-run start it on all ranks";
    if (name_is_known(report, job)) check_control_alone(report, job);
    node_lines(report, job);
    check_say(report, "peers", CHECK_SKIP, NULL, "%s", why);
    check_say(report, "configuration", CHECK_SKIP, NULL, "%s to compare this hash: 0x%016llx", why,
              (unsigned long long)gf_config_hash(&job->config));
    check_say(report, "join", CHECK_SKIP, NULL, "%s", why);
}

int check_preflight(struct check_job *job, bool json)
{
    static struct check_report report;
    report = (struct check_report){
        .json = json, .rank = job->config.job.rank, .world = job->config.job.world};
    if (!job->launched) report.rank = 0; /* nobody else is there to show all lines */
    if (gethostname(report.host, sizeof report.host - 1) != 0)
        (void)snprintf(report.host, sizeof report.host, "?");
    check_environment(&report, job);
    check_gpu(&report, job);
    check_link(&report, job);
    check_footprint(&report, job);
    check_stack(&report);
    check_memlock(&report, job);
    check_huge_pages(&report, job);
    if (job->launched)
        launched_lines(&report, job);
    else
        alone_lines(&report, job);
    check_report_end(&report);
    return report.counts[CHECK_FAIL] != 0;
}
