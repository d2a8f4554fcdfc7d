/* Who this process is in the job, from the environment that launchers set. */
#include "drivers/identity.h"

#include "drivers/base/fnv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define WORLDS_MAX 4
#define JOBS_MAX 3

/* A launcher that another one has started (mpirun or torchrun in a job of Slurm's) hands on what
 * that has set: the inner one stands before the outer one. So one row is read, by one rule, which
 * launcher_find() follows and gradientflow.cfg(5) states:
 *
 * 1. Ours, if any of its names is set.
 * 2. Else the first row whose rank and world are set: a script may set WORLD_SIZE alone.
 * 3. If that row has no local rank, a script may have written it, and a shell may have kept it from
 *    another job. Then each later row is asked what it says to these two numbers (say_of()):
 *    - nothing, as it is the batch script's or of one rank, in which several were started. A row of
 *      one rank gives way to one of several likewise.
 *    - the same (PMI under srun), and it is read if it has a local rank;
 *    - others. If it has a local rank a launcher has set it, and it is read, with a warning that
 *      names both: RANK of a script for sbatch is 0 in all that srun starts, and a pod's RANK is
 *      alike in all that mpirun starts in it. If no later row has one, that is refused.
 * 4. If no row has both, the first that has one of them, and that is refused.
 *
 * job: what the launcher says alike to all ranks of a job and to no other job. What one of them
 * says may be no id (is_id()), and a word that a user chose may be in use twice (--rdzv-id=100 of a
 * tutorial), so all that are set are hashed together. Never a process's number: ranks that ssh or a
 * container has started have other parents. */
static const struct launcher {
    const char *rank;
    const char *world[WORLDS_MAX]; /* the first that is set */
    /* local rank, perhaps that of a larger job around this one; rank where it is not set */
    const char *local;
    const char *job[JOBS_MAX];
    const char *part;  /* within that job: a number, also 0 */
    const char *wants; /* the row counts with this alone; or NULL */
    const char *advice;
} launchers[] = {
    {.rank = "GF_RANK", .world = {"GF_WORLD"}, .local = "GF_LOCAL_RANK"}, /* GF_JOB: below */
    {.rank = "RANK",
     .world = {"WORLD_SIZE"},
     .local = "LOCAL_RANK",
     .job = {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"}},
    {.rank = "OMPI_COMM_WORLD_RANK",
     .world = {"OMPI_COMM_WORLD_SIZE"},
     .local = "OMPI_COMM_WORLD_LOCAL_RANK",
     .job = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}}, /* of Open MPI 5, 4 */
    {.rank = "PMI_RANK",
     .world = {"PMI_SIZE"},
     .local = "MPI_LOCALRANKID",
     .job = {"PMI_JOBID"}}, /* Slurm's; MPICH's own mpirun has none */
    {.rank = "SLURM_PROCID",
     .world = {"SLURM_NTASKS"},
     .local = "SLURM_LOCALID",
     .job = {"SLURM_JOB_ID"},
     .part = "SLURM_STEP_ID",
     .advice = ": in a script for sbatch, or in salloc, srun starts the ranks; for one process by "
               "itself unset it"},
    {.rank = "PMIX_RANK", /* PMIx says no size itself */
     .world = {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "PMI_SIZE"},
     .local = "SLURM_LOCALID",
     .job = {"PMIX_NAMESPACE"},
     .wants = "PMIX_NAMESPACE"},
};
#define LAUNCHER_COUNT (sizeof launchers / sizeof launchers[0])
#define LAUNCHER_OWN (&launchers[0])
#define LAUNCHER_TORCH (&launchers[1])
#define LAUNCHER_SLURM (&launchers[4])

/* Signs of launchers that are not read: whoever has one of them and nothing of the above is one of
 * several, and would train by itself. size: what says how many, or NULL. */
static const struct sign {
    const char *variable;
    const char *size;
    const char *launcher;
} signs[] = {
    {"PMIX_RANK", NULL, "PMIx, without a size"},
    {"HOROVOD_RANK", "HOROVOD_SIZE", "horovodrun"},
    {"FLUX_TASK_RANK", "FLUX_JOB_SIZE", "Flux"},
    {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "jsrun"},
    {"PALS_RANKID", NULL, "PALS"},
    {"ALPS_APP_PE", NULL, "aprun"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MVAPICH"},
    {"MPIRUN_RANK", "MPIRUN_NPROCS", "mpirun_rsh"},
    {"PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "Paddle"},
    {"DMLC_WORKER_ID", "DMLC_NUM_WORKER", "MXNet or BytePS"},
    {"JOB_COMPLETION_INDEX", NULL, "an indexed job of Kubernetes"},
    {"VC_TASK_INDEX", NULL, "Volcano"},
    {"TF_CONFIG", NULL, "an operator for TensorFlow"},
    {"SM_CURRENT_HOST", NULL, "SageMaker"},
    {"AWS_BATCH_JOB_NODE_INDEX", "AWS_BATCH_JOB_NUM_NODES", "AWS Batch"},
    {"BATCH_TASK_INDEX", "BATCH_TASK_COUNT", "Google Batch"},
    {"CLOUD_RUN_TASK_INDEX", "CLOUD_RUN_TASK_COUNT", "Cloud Run"},
    {"SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES", "SkyPilot"},
    {"LOCAL_RANK", NULL, "a launcher of PyTorch, without RANK"},
    {"MASTER_ADDR", NULL, "a launcher of PyTorch, without RANK"},
    {"GF_LOCAL_RANK", NULL, "a rank of this library, without GF_RANK"},
    {"GF_ADDRESS", NULL, "a rank of this library, without GF_RANK"},
    {"GF_JOB", NULL, "a rank of this library, without GF_RANK"},
};

/* Set and not empty, else NULL. */
static const char *variable(const char *name)
{
    const char *value = (name != NULL) ? getenv(name) : NULL;
    return ((value != NULL) && (value[0] != 0)) ? value : NULL;
}

static bool decimal_parse(const char *text, uint64_t max, uint64_t *value_out)
{
    uint64_t value = 0;
    if (text[0] == 0) return false;
    for (; *text != 0; text++) {
        uint64_t digit = (uint64_t)(unsigned char)*text - '0';
        if ((digit > 9) || (digit > max) || (value > (max - digit) / 10)) return false;
        value = value * 10 + digit;
    }
    *value_out = value;
    return true;
}

static gf_status refuse(struct gf_fault *fault_out, const char *name, const char *value,
                        const char *allowed)
{
    return gf_fault_set(fault_out, GF_ERR_CONFIG, GF_RANK_NONE, "", 0,
                        "environment %s='%.40s': expected %s", name, value, allowed);
}

/* *value stays as it is where the variable is not set. */
static gf_status number_get(const char *name, const char *what, uint64_t least, uint64_t most,
                            uint64_t *value, struct gf_fault *fault_out)
{
    const char *text = variable(name);
    uint64_t number = 0;
    if ((text != NULL) && (!decimal_parse(text, most, &number) || (number < least)))
        return gf_fault_set(fault_out, GF_ERR_CONFIG, GF_RANK_NONE, "", 0,
                            "environment %s='%.40s': expected %s from %llu to %llu", name, text,
                            what, (unsigned long long)least, (unsigned long long)most);
    if (text != NULL) *value = number;
    return GF_OK;
}

/* Words that a launcher says where it has no id; torchrun says "none" in each job that was given no
 * --rdzv-id. */
static bool is_id(const char *text)
{
    static const char *const nothing[] = {"none", "null", "nil", "default"};
    for (size_t i = 0; i < sizeof nothing / sizeof nothing[0]; i++)
        if (strcasecmp(text, nothing[i]) == 0) return false;
    return text[strspn(text, "0")] != 0;
}

/* Never 0: 0 means "no job id". */
static uint64_t job_hash(uint64_t hash, const char *text)
{
    if (hash == 0) hash = GF_FNV_START;
    hash = gf_fnv_byte(gf_fnv_bytes(hash, text, strlen(text)), 0xff); /* "1","23" is not "12","3" */
    return (hash != 0) ? hash : 1;
}

#define JOB_NAME_MAX 100u

uint64_t gf_identity_job(const char *text)
{
    uint64_t number = 0;
    size_t length = strlen(text);
    if (text[strspn(text, "0123456789")] == 0)
        return decimal_parse(text, UINT64_MAX, &number) ? number : 0;
    if ((length > JOB_NAME_MAX) || !is_id(text)) return 0;
    for (size_t i = 0; i < length; i++)
        if ((text[i] <= ' ') || (text[i] > '~')) return 0; /* a blank that one of two has */
    return job_hash(0, text);
}

static uint64_t job_of(const struct launcher *launcher)
{
    const char *part = variable(launcher->part);
    uint64_t hash = 0;
    for (int i = 0; i < JOBS_MAX; i++) {
        const char *text = variable(launcher->job[i]);
        if ((text != NULL) && is_id(text)) hash = job_hash(hash, text);
    }
    return ((hash != 0) && (part != NULL)) ? job_hash(hash, part) : hash;
}

/* The name that says how many ranks there are: the first where none is set. */
static const char *world_of(const struct launcher *launcher)
{
    for (int i = 0; i < WORLDS_MAX; i++)
        if (variable(launcher->world[i]) != NULL) return launcher->world[i];
    return launcher->world[0];
}

/* A script for sbatch is a process with the number of ranks that srun is to start: it is of no
 * step, or of one whose number is above all that steps have. */
static bool is_batch_script(const struct launcher *launcher)
{
    const char *step = variable("SLURM_STEP_ID");
    uint64_t number = 0;
    return (launcher == LAUNCHER_SLURM) && (variable("SLURM_JOB_ID") != NULL) &&
           (variable("SLURM_PROCID") != NULL) && (strcmp(variable("SLURM_PROCID"), "0") == 0) &&
           ((step == NULL) || !decimal_parse(step, UINT32_MAX - 16, &number));
}

/* Are rank and world set? */
static bool is_complete(const struct launcher *launcher)
{
    return ((launcher->wants == NULL) || (variable(launcher->wants) != NULL)) &&
           (variable(launcher->rank) != NULL) && (variable(world_of(launcher)) != NULL);
}

static bool same_number(const char *a, const char *b)
{
    uint64_t first = 0;
    uint64_t second = 0;
    return decimal_parse(a, UINT32_MAX, &first) && decimal_parse(b, UINT32_MAX, &second) &&
           (first == second);
}

static bool is_of_one(const struct launcher *launcher)
{
    return same_number(variable(world_of(launcher)), "1");
}

/* What a later row says to one that has no local rank, both complete. */
typedef enum launcher_say { SAYS_NOTHING, SAYS_SAME, SAYS_SEVERAL, SAYS_OTHERS } launcher_say;

static launcher_say say_of(const struct launcher *later, const struct launcher *first)
{
    if (is_batch_script(later)) return SAYS_NOTHING;
    if (same_number(variable(later->rank), variable(first->rank)) &&
        same_number(variable(world_of(later)), variable(world_of(first))))
        return SAYS_SAME;
    if (is_of_one(later)) return SAYS_NOTHING;
    return is_of_one(first) ? SAYS_SEVERAL : SAYS_OTHERS;
}

/* The row that is read, or NULL. *against_out: the one that says other numbers, or NULL. Where the
 * row that is read has a local rank it goes before that one, else neither does. */
static const struct launcher *launcher_find(const struct launcher **against_out)
{
    const struct launcher *found = NULL;
    const struct launcher *partial = NULL;
    *against_out = NULL;
    for (size_t i = 0; i < LAUNCHER_COUNT; i++) {
        const struct launcher *one = &launchers[i];
        bool is_set = (variable(one->rank) != NULL) || (variable(world_of(one)) != NULL);
        if (is_set && (one == LAUNCHER_OWN)) return one;
        if (!is_complete(one)) {
            if ((partial == NULL) && is_set && (one->wants == NULL)) partial = one;
            continue;
        }
        launcher_say say = (found != NULL) ? say_of(one, found) : SAYS_SEVERAL;
        bool has_local = variable(one->local) != NULL;
        if (say == SAYS_OTHERS) *against_out = has_local ? found : one;
        if ((say == SAYS_SEVERAL) || ((say != SAYS_NOTHING) && has_local)) found = one;
        if (variable(found->local) != NULL) return found;
    }
    return (found != NULL) ? found : partial;
}

/* Rank and world of the launcher's. */
static gf_status launcher_check(const struct launcher *launcher, struct gf_fault *fault_out)
{
    const char *world = world_of(launcher);
    bool has_rank = variable(launcher->rank) != NULL;
    if (!has_rank || (variable(world) == NULL))
        return gf_fault_set(fault_out, GF_ERR_CONFIG, GF_RANK_NONE, "", 0,
                            "environment: %s is set and %s is not; expected both or neither%s",
                            has_rank ? launcher->rank : world, has_rank ? world : launcher->rank,
                            (launcher->advice != NULL) ? launcher->advice : "");
    if (!is_batch_script(launcher) || (strcmp(variable(world), "1") == 0)) return GF_OK;
    return gf_fault_set(fault_out, GF_ERR_CONFIG, GF_RANK_NONE, "", 0,
                        "environment: SLURM_PROCID=0 and SLURM_NTASKS=%.10s are set and "
                        "SLURM_STEP_ID is not: this is the batch script itself, and srun starts "
                        "the ranks; for one process alone unset SLURM_PROCID and SLURM_NTASKS",
                        variable(world));
}

static gf_status numbers_refuse(const struct launcher *launcher, const struct launcher *against,
                                struct gf_fault *fault_out)
{
    return gf_fault_set(fault_out, GF_ERR_CONFIG, GF_RANK_NONE, "", 0,
                        "environment: %s=%.10s and %s=%.10s are set, and %s=%.10s and %s=%.10s, "
                        "too: unset those that did not start this rank, or set GF_RANK and "
                        "GF_WORLD",
                        launcher->rank, variable(launcher->rank), world_of(launcher),
                        variable(world_of(launcher)), against->rank, variable(against->rank),
                        world_of(against), variable(world_of(against)));
}

/* Never torchrun's own port, where its store listens. */
static uint32_t master_port(uint64_t store_port, uint64_t job_id)
{
    const uint32_t count = GF_MASTER_PORT_LAST - GF_MASTER_PORT_FIRST + 1;
    uint32_t offset = (uint32_t)(gf_fnv_u64(gf_fnv_u64(GF_FNV_START, store_port), job_id) % count);
    if (GF_MASTER_PORT_FIRST + offset == store_port) offset = (offset + 1) % count;
    return GF_MASTER_PORT_FIRST + offset;
}

/* Rank 0 runs where torchrun says that its store is. Where it has started all ranks itself they are
 * on one host, whatever that is called. */
static gf_status master_get(struct gf_identity *identity, struct gf_fault *fault_out)
{
    const char *host = variable("MASTER_ADDR");
    const char *here = variable("LOCAL_WORLD_SIZE");
    uint64_t port = 0;
    uint64_t local_count = 0;
    if ((host == NULL) || (variable("MASTER_PORT") == NULL)) return GF_OK;
    if (number_get("MASTER_PORT", "a port", 1, UINT16_MAX, &port, fault_out) < 0)
        return GF_ERR_CONFIG;
    if ((here != NULL) && decimal_parse(here, GF_WORLD_MAX, &local_count) &&
        (local_count == identity->world))
        host = "127.0.0.1";
    int bytes = snprintf(identity->master, sizeof identity->master,
                         (strchr(host, ':') != NULL) ? "[%s]:%u" : "%s:%u", host,
                         master_port(port, identity->job_id));
    if ((size_t)bytes < sizeof identity->master) return GF_OK;
    return refuse(fault_out, "MASTER_ADDR", host, "a host of fewer than 120 bytes");
}

static gf_status own_job_get(struct gf_identity *identity, struct gf_fault *fault_out)
{
    const char *job = variable("GF_JOB");
    if ((job == NULL) || (job[strspn(job, "0")] == 0)) return GF_OK;
    identity->job_id = gf_identity_job(job);
    if (identity->job_id != 0) return GF_OK;
    return refuse(fault_out, "GF_JOB", job, GF_IDENTITY_JOB_ALLOWED);
}

static gf_status truth_get(const char *name, bool *value_out, struct gf_fault *fault_out)
{
    const char *text = variable(name);
    *value_out = (text != NULL) && (strcmp(text, "1") == 0);
    if ((text == NULL) || *value_out || (strcmp(text, "0") == 0)) return GF_OK;
    return refuse(fault_out, name, text, "0 or 1");
}

/* What is ours, whoever has started the ranks. */
static gf_status own_get(struct gf_identity *identity, struct gf_fault *fault_out)
{
    const char *coordinator = variable("GF_COORDINATOR");
    const char *address = variable("GF_ADDRESS");
    if (address != NULL) {
        if (strlen(address) >= sizeof identity->address)
            return refuse(fault_out, "GF_ADDRESS", address,
                          "host:port or IP:port of fewer than 128 bytes");
        (void)snprintf(identity->address, sizeof identity->address, "%s", address);
    }
    if ((truth_get("GF_REJOIN", &identity->rejoin, fault_out) < 0) ||
        (truth_get("GF_ELASTIC", &identity->elastic, fault_out) < 0))
        return GF_ERR_CONFIG;
    identity->coordinator_set = coordinator != NULL;
    identity->is_separate = (coordinator != NULL) && (strcmp(coordinator, "separate") == 0);
    if ((coordinator != NULL) && !identity->is_separate && (strcmp(coordinator, "rank0") != 0))
        return refuse(fault_out, "GF_COORDINATOR", coordinator, "rank0 or separate");
    return GF_OK;
}

bool gf_identity_get(struct gf_identity *identity_out, struct gf_fault *fault_out)
{
    static const char ranks[] = "a number of ranks";
    const struct launcher *against = NULL;
    const struct launcher *launcher = launcher_find(&against);
    struct gf_identity identity = {0};
    uint64_t rank = 0;
    uint64_t world = 0;
    uint64_t most = 0;
    *fault_out = (struct gf_fault){0};
    if (launcher == NULL) return false;
    if ((against != NULL) && (variable(launcher->local) == NULL) &&
        (numbers_refuse(launcher, against, fault_out) < 0))
        return false;
    if (launcher_check(launcher, fault_out) < 0) return false;
    if ((number_get(world_of(launcher), ranks, 1, GF_WORLD_MAX, &world, fault_out) < 0) ||
        (number_get("GF_WORLD_MAX", ranks, world, GF_WORLD_MAX, &most, fault_out) < 0))
        return false;
    identity.world_max = (uint32_t)most;
    if (most < world) most = world;
    if (number_get(launcher->rank, "a rank", 0, most - 1, &rank, fault_out) < 0) return false;
    identity.rank = (uint32_t)rank;
    if ((number_get(launcher->local, "a local rank", 0, GF_WORLD_MAX - 1, &rank, fault_out) < 0) ||
        (own_job_get(&identity, fault_out) < 0))
        return false;
    identity.local = (uint32_t)rank;
    identity.world = (uint32_t)world;
    identity.source = launcher->rank;
    if (identity.job_id == 0) identity.job_id = job_of(launcher);
    identity.nameless = (launcher != LAUNCHER_OWN) && (identity.job_id == 0) && (world > 1);
    if ((launcher == LAUNCHER_TORCH) && (master_get(&identity, fault_out) < 0)) return false;
    if (own_get(&identity, fault_out) < 0) return false;
    *identity_out = identity;
    return true;
}

const char *gf_identity_address(const struct gf_identity *identity, const char *given)
{
    if (identity->address[0] != 0) return identity->address;
    return (given[0] != 0) ? given : identity->master;
}

const char *gf_identity_address_name(const struct gf_identity *identity, const char *given)
{
    if (identity->address[0] != 0) return "GF_ADDRESS";
    return ((given[0] != 0) || (identity->master[0] == 0)) ? "rendezvous.address" : "MASTER_ADDR";
}

/* Shells often have MASTER_ADDR=localhost: that is no sign of other ranks. */
static bool is_sign(const char *name, const char *value)
{
    if (value == NULL) return false;
    if (strcmp(name, "MASTER_ADDR") != 0) return true;
    return (strcmp(value, "localhost") != 0) && (strncmp(value, "127.", 4) != 0) &&
           (strcmp(value, "::1") != 0);
}

static bool is_ours(const struct sign *sign)
{
    return strncmp(sign->variable, "GF_", 3) == 0;
}

/* The first sign that is set, of ours or of other launchers' alone; or NULL. */
static const struct sign *sign_find(bool of_others)
{
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        if (!(of_others && is_ours(&signs[i])) &&
            is_sign(signs[i].variable, variable(signs[i].variable)))
            return &signs[i];
    return NULL;
}

bool gf_identity_sign(char text_out[GF_IDENTITY_SIGN_BYTES])
{
    const struct sign *sign = sign_find(false);
    if (sign == NULL) return false;
    (void)snprintf(text_out, GF_IDENTITY_SIGN_BYTES,
                   "%s=%.20s is of %s, which is not read: set GF_RANK and GF_WORLD%s%s",
                   sign->variable, variable(sign->variable), sign->launcher,
                   (sign->size != NULL) ? ", the latter to " : "",
                   (sign->size != NULL) ? sign->size : "");
    return true;
}

bool gf_identity_hint(char text_out[GF_IDENTITY_SIGN_BYTES])
{
    const struct launcher *against = NULL;
    const struct sign *sign = sign_find(true);
    if ((launcher_find(&against) != NULL) || (sign == NULL)) return false;
    (void)snprintf(text_out, GF_IDENTITY_SIGN_BYTES, "%s=%.20s is of %s", sign->variable,
                   variable(sign->variable), sign->launcher);
    return true;
}

bool gf_identity_around(char text_out[GF_IDENTITY_SIGN_BYTES])
{
    const struct launcher *against = NULL;
    const struct launcher *found = launcher_find(&against);
    uint64_t world = 0;
    if ((found == NULL) || (variable(found->rank) == NULL)) return false;
    if (is_batch_script(found)) return false;
    const char *count = variable(world_of(found));
    if ((count == NULL) || !decimal_parse(count, UINT32_MAX, &world) || (world < 2)) return false;
    (void)snprintf(text_out, GF_IDENTITY_SIGN_BYTES, "%s=%.10s and %s=%.10s are set", found->rank,
                   variable(found->rank), world_of(found), count);
    return true;
}

/* Of a process that `found` calls the only one: does this sign say that there are several? */
static bool sign_says_several(const struct sign *sign, const struct launcher *found)
{
    const char *value = variable(sign->variable);
    const char *size = variable(sign->size);
    uint64_t number = 0;
    if ((value == NULL) || is_ours(sign)) return false;
    if ((strcmp(sign->variable, found->rank) == 0) || (strcmp(sign->variable, found->local) == 0))
        return false;
    if ((size != NULL) && decimal_parse(size, UINT32_MAX, &number) && (number > 1)) return true;
    return decimal_parse(value, UINT32_MAX, &number) && (number > 0);
}

static bool alone_say(char *text_out, const struct launcher *found, const char *name)
{
    (void)snprintf(text_out, GF_IDENTITY_SIGN_BYTES,
                   "%s=%.20s is set, and %s=%.10s and %s=1 were read: set GF_RANK and GF_WORLD to "
                   "what is meant",
                   name, variable(name), found->rank, variable(found->rank), world_of(found));
    return true;
}

bool gf_identity_alone(char text_out[GF_IDENTITY_SIGN_BYTES])
{
    const struct launcher *against = NULL;
    const struct launcher *found = launcher_find(&against);
    if ((found == NULL) || (found == LAUNCHER_OWN) || (against != NULL)) return false;
    if (!is_complete(found) || !is_of_one(found)) return false;
    for (size_t i = 0; i < LAUNCHER_COUNT; i++)
        if (is_complete(&launchers[i]) && (say_of(&launchers[i], found) == SAYS_SEVERAL))
            return alone_say(text_out, found, world_of(&launchers[i]));
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        if (sign_says_several(&signs[i], found))
            return alone_say(text_out, found, signs[i].variable);
    return false;
}

bool gf_identity_over(char text_out[GF_IDENTITY_SIGN_BYTES])
{
    const struct launcher *against = NULL;
    const struct launcher *found = launcher_find(&against);
    if ((found == NULL) || (against == NULL) || (variable(found->local) == NULL)) return false;
    (void)snprintf(text_out, GF_IDENTITY_SIGN_BYTES,
                   "%s=%.10s and %s=%.10s are set, and %s=%.10s and %s=%.10s, with a local rank, "
                   "were read",
                   against->rank, variable(against->rank), world_of(against),
                   variable(world_of(against)), found->rank, variable(found->rank), world_of(found),
                   variable(world_of(found)));
    return true;
}

uint32_t gf_identity_local(uint32_t rank)
{
    struct gf_identity identity;
    struct gf_fault fault;
    return gf_identity_get(&identity, &fault) ? identity.local : rank;
}
