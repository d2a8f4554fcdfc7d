/* gf-run -n N [--merge] [--elastic] [--restart N] [--] PROGRAM ARGS: starts N ranks of a job on
 * this machine, shows what they print, and ends them all when one fails. On several nodes something
 * else starts a gf-run on each. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "config/config.h"
#include "drivers/identity.h"
#include "tools/coordinator/coordinator_serve.h"
#include "tools/run/run_ranks.h"
#include "tools/common/tool_args.h"
#include "tools/common/tool_output.h"
#include "tools/common/tool_port.h"

/* Between the well-known ports and the ones (21000 and up) that the link takes by default. */
#define PORT_FIRST 10000u
#define PORT_END 20000u
/* Ranks may read data for as long as they like before they join; then join_timeout counts. */
#define FIRST_NS (UINT64_C(86400) * 1000000000u)

/* 0 where none is free. Begins anywhere, so that two jobs at once seldom try the same. */
static unsigned port_find(uint32_t random)
{
    /* The kernel hands these to whoever connects, at any moment: not ours. */
    unsigned first = 32768;
    unsigned last = 60999;
    unsigned range = PORT_END - PORT_FIRST;
    (void)tool_ports_ephemeral(&first, &last);
    for (unsigned i = 0; i < range; i++) {
        unsigned port = PORT_FIRST + (random + i) % range;
        if (((port < first) || (port > last)) && tool_port_is_free(port)) return port;
    }
    return 0;
}

/* False, and said: mpirun, srun, torchrun or a gf-run has started this gf-run as one of several.
 * Each would begin a job of its own, which nobody notices. Where that is no more than likely a job
 * by itself may be what was meant, so it is only said. */
static bool begins_one_job(void)
{
    char around[GF_IDENTITY_SIGN_BYTES];
    if (gf_identity_hint(around))
        (void)fprintf(stderr,
                      "gf-run: warning: %s: where that starts several gf-run, each begins a job of "
                      "its own; --nodes makes one job of them\n",
                      around);
    if (!gf_identity_around(around)) return true;
    (void)fprintf(stderr,
                  "gf-run: %s: another launcher starts this gf-run several times, and each would "
                  "begin a job of its own\n"
                  "gf-run: let that launcher start the program itself, or one gf-run a node with "
                  "--nodes; where jobs of their own are meant, unset the first of these\n",
                  around);
    return false;
}

/* The coordinator's own settings; its ranks dial it where it listens. On one node that is a
 * loopback address of this job's own. False: why was said, *exit_out is what gf-run exits with. */
static bool coordinator_plan(struct run_job *job, const struct coordinator_given *given,
                             uint32_t random, int *exit_out)
{
    static char error[GF_CONFIG_ERROR_BYTES];
    static char address[GF_TEXT_MAX];
    static struct coordinator_job plan;
    struct coordinator_given own = *given;
    const char *address_given = getenv("GF_ADDRESS");
    unsigned port = ((job->nodes == 1) && (own.listen == NULL)) ? port_find(random) : 1;
    *exit_out = EXIT_FAILURE;
    if (port == 0) {
        (void)fprintf(stderr, "gf-run: no port from %u to %u is free on 127.0.0.1\n", PORT_FIRST,
                      PORT_END - 1u);
        return false;
    }
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", port);
    if ((own.listen == NULL) && (job->nodes == 1)) own.listen = address;
    if ((own.listen == NULL) && (address_given != NULL) && (address_given[0] != '\0'))
        own.listen = address_given;
    job->address = own.listen;
    if (job->node > 0) return true;
    *exit_out = TOOL_EXIT_USAGE;
    if ((own.listen == NULL) && (own.config_path == NULL)) {
        (void)fprintf(stderr, "gf-run: --nodes: node 0 runs the coordinator: --config with the "
                              "configuration of the ranks, or --listen ADDRESS, is missing\n");
        return false;
    }
    int read = coordinator_config(&own, &plan.config, error);
    if (read != 0) {
        (void)fprintf(stderr, "gf-run: %s\n", error);
        *exit_out = tool_args_exit(read);
        return false;
    }
    plan.id = gf_identity_job(job->id);
    plan.world = job->nodes * job->rank_count;
    plan.world_max = (job->rank_max > plan.world) ? job->rank_max : plan.world;
    if (plan.config.job.world_max > plan.world_max) plan.world_max = plan.config.job.world_max;
    plan.first_ns = FIRST_NS;
    plan.is_first = (job->nodes == 1); /* ranks of other nodes outlive a gf-run */
    job->coordinator = &plan;
    return true;
}

static int program(int argc, char **argv)
{
    static char id_random[24];
    static struct coordinator_given given;
    struct run_job job = {0};
    uint64_t rank_count = 0;
    uint64_t restarts = 0;
    uint64_t most = 0;
    uint64_t nodes = 1;
    uint64_t node = 0;
    int exit_code = 0;
    uint64_t random[2];
    uint32_t operand_count = 0;
    bool has_ranks = false, merge = false, elastic = false;
    const struct tool_option options[] = {
        {"ranks", TOOL_NUMBER, &rank_count, "N", .help = "how many ranks", .low = 1,
         .high = RUN_RANKS_MAX, .given_out = &has_ranks, .letter = 'n'},
        {"merge", TOOL_FLAG, &merge, NULL,
         .help = "show the lines of all ranks as they are, without \"[rank] \""},
        {"elastic", TOOL_FLAG, &elastic, NULL,
         .help = "let the others go on when some ranks fail; exits 0 if any rank succeeds"},
        {"restart", TOOL_NUMBER, &restarts, "N",
         .help = "start a rank that fails again, with GF_REJOIN=1, at most N times each; implies "
                 "--elastic",
         .low = 0, .high = 1000},
        {"max", TOOL_NUMBER, &most, "N",
         .help = "let SIGUSR1 start one more rank each time, up to N in all; implies --elastic",
         .low = 1, .high = RUN_RANKS_MAX},
        {"nodes", TOOL_NUMBER, &nodes, "N",
         .help = "a gf-run on each of N nodes, with -n ranks there; wants --job", .low = 1,
         .high = RUN_RANKS_MAX},
        {"node-rank", TOOL_NUMBER, &node, "R", .help = "which of them this is, from 0", .low = 0,
         .high = RUN_RANKS_MAX - 1},
        {"job", TOOL_TEXT, &job.id, "ID",
         .help = "of this run, the same on all nodes: a number or a name (default: random)"},
        {"config", TOOL_TEXT, &given.config_path, "FILE",
         .help = "the ranks' configuration: where the coordinator listens, and its key (--nodes)"},
        {"listen", TOOL_TEXT, &given.listen, "ADDRESS",
         .help = "IP:port or host:port of node 0, in place of that of --config"},
        {"key-file", TOOL_TEXT, &given.key_file, "FILE",
         .help = "the ranks' rendezvous.key_file, in place of that of --config"},
        {"insecure", TOOL_FLAG, &given.insecure, NULL,
         .help = "listen beyond loopback without a key"},
    };
    const struct tool_args args = {
        .program = "gf-run",
        .usage = "-n N [--merge] [--elastic] [--restart N] [--max N] [--nodes N --node-rank R "
                 "--job ID --config F]\n"
                 "              [--] PROGRAM [ARGUMENT ..]",
        .about = "Starts N ranks of PROGRAM on this machine (GF_RANK, GF_WORLD, GF_JOB and "
                 "GF_ADDRESS say who\n"
                 "they are) and ends all when one fails. Exits as the first that failed: its code, "
                 "or 128 plus\n"
                 "its signal.",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .operands_min = 1,
        .operands_end = true,
    };
    int result = tool_args_read(&args, argc, argv, NULL, &operand_count);
    if (result > 0) return EXIT_SUCCESS;
    if ((result == 0) && !has_ranks)
        (void)fprintf(stderr, "gf-run: -n N is missing\nusage: gf-run %s\n", args.usage);
    if ((result < 0) || !has_ranks) return TOOL_EXIT_USAGE;
    const char *wrong = (node >= nodes) ? "--node-rank: allowed is below --nodes"
                        : (nodes * rank_count > RUN_RANKS_MAX)
                            ? "--nodes: allowed are 1024 ranks on all nodes"
                        : (most != 0) && (most < rank_count) ? "--max: allowed is -n and more"
                        : (job.id != NULL) && (gf_identity_job(job.id) == 0)
                            ? "--job: expected " GF_IDENTITY_JOB_ALLOWED ", not 0"
                        : (nodes == 1)     ? NULL
                        : (job.id == NULL) ? "--job is missing: all nodes give the same one"
                        : (most > 0)       ? "--max: allowed on one node alone"
                                           : NULL;
    if (wrong != NULL) (void)fprintf(stderr, "gf-run: %s\n", wrong);
    if (wrong != NULL) return TOOL_EXIT_USAGE;
    if ((nodes == 1) && !begins_one_job()) return TOOL_EXIT_USAGE;

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        (void)fprintf(stderr, "gf-run: getrandom: %s\n", strerror(errno));
        return EXIT_FAILURE;
    }
    job.rank_count = (uint32_t)rank_count;
    (void)snprintf(id_random, sizeof id_random, "%llu", (unsigned long long)(random[0] | 1u));
    if (job.id == NULL) job.id = id_random;
    job.nodes = (uint32_t)nodes;
    job.node = (uint32_t)node;
    job.rank_max = (uint32_t)((most > rank_count) ? most : rank_count);
    job.elastic = elastic || (restarts > 0) || (most > 0);
    job.restarts = (uint32_t)restarts;
    job.prefix = !merge;
    job.arguments = argv + argc - operand_count;
    if (!coordinator_plan(&job, &given, (uint32_t)random[1], &exit_code)) return exit_code;
    return run_job(&job);
}

TOOL_MAIN("gf-run", program)
