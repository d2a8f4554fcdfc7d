/* Who this process is in the job, from the environment that launchers set. */
#include "drivers/identity.h"

#include "drivers/fnv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A launcher that another one has started (mpirun or torchrun in a job of Slurm's) hands on what
 * that has set: the inner one stands before the outer one. Ours decides by any of its names. Of the
 * others it is the first of which most are set: a script may set WORLD_SIZE alone, and PMI under
 * srun has no place in the node. */
static const struct launcher {
    const char *rank;
    const char *world;
    /* place in the node, perhaps that of a larger job around this one; rank where it is not set */
    const char *local;
    const char *job[2]; /* those that are set are hashed together */
} launchers[] = {
    {"GF_RANK", "GF_WORLD", "GF_LOCAL_RANK", {NULL, NULL}}, /* GF_JOB is a number, below */
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", {"TORCHELASTIC_RUN_ID", NULL}},
    {"OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}}, /* of Open MPI 5, 4 */
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", {"PMI_JOBID", NULL}},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};
#define LAUNCHER_COUNT (sizeof launchers / sizeof launchers[0])

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

/* Never 0: 0 means "no job id". */
static uint64_t job_hash(uint64_t hash, const char *text)
{
    hash = gf_fnv_byte(gf_fnv_bytes(hash, text, strlen(text)), 0xff); /* "1","23" is not "12","3" */
    return (hash != 0) ? hash : 1;
}

static const struct launcher *launcher_find(void)
{
    const struct launcher *found = NULL;
    int most = 0;
    for (size_t i = 0; (i < LAUNCHER_COUNT) && (found != launchers); i++) {
        int set = (variable(launchers[i].rank) != NULL) + (variable(launchers[i].world) != NULL);
        if (set == 2) set += (variable(launchers[i].local) != NULL);
        if (set <= most) continue;
        found = &launchers[i];
        most = set;
    }
    return found;
}

gf_status gf_identity_get(struct gf_identity *identity_out, struct gf_fault *fault_out)
{
    static const char ranks[] = "a number of ranks";
    const struct launcher *launcher = launcher_find();
    struct gf_identity identity = {0};
    uint64_t rank = 0;
    uint64_t world = 0;
    uint64_t most = 0;
    if (launcher == NULL) return GF_AGAIN;
    bool has_rank = variable(launcher->rank) != NULL;
    if (!has_rank || (variable(launcher->world) == NULL)) {
        return gf_fault_set(fault_out, GF_ERR_CONFIG, GF_RANK_NONE, "", 0,
                            "environment: %s is set and %s is not; "
                            "expected both or neither",
                            has_rank ? launcher->rank : launcher->world,
                            has_rank ? launcher->world : launcher->rank);
    }
    if ((number_get(launcher->world, ranks, 1, GF_WORLD_MAX, &world, fault_out) < 0) ||
        (number_get("GF_WORLD_MAX", ranks, world, GF_WORLD_MAX, &most, fault_out) < 0))
        return GF_ERR_CONFIG;
    identity.world_max = (uint32_t)most;
    if (most < world) most = world;
    if (number_get(launcher->rank, "a rank", 0, most - 1, &rank, fault_out) < 0)
        return GF_ERR_CONFIG;
    identity.rank = (uint32_t)rank;
    if ((number_get(launcher->local, "a place in the node", 0, GF_WORLD_MAX - 1, &rank, fault_out) <
         0) ||
        (number_get("GF_JOB", "a number of 64 bits", 0, UINT64_MAX, &identity.job_id, fault_out) <
         0))
        return GF_ERR_CONFIG;
    identity.local = (uint32_t)rank;
    identity.world = (uint32_t)world;
    identity.source = launcher->rank;
    const char *address = variable("GF_ADDRESS");
    const char *part;
    for (int i = 0; (variable("GF_JOB") == NULL) && (i < 2); i++)
        if ((part = variable(launcher->job[i])) != NULL)
            identity.job_id =
                job_hash((identity.job_id == 0) ? GF_FNV_START : identity.job_id, part);
    if (address != NULL) {
        if (strlen(address) >= sizeof identity.address)
            return refuse(fault_out, "GF_ADDRESS", address,
                          "a numeric IP:port of fewer than 128 bytes");
        (void)snprintf(identity.address, sizeof identity.address, "%s", address);
    }
    const char *rejoin = variable("GF_REJOIN");
    if ((rejoin != NULL) && (strcmp(rejoin, "0") != 0) && (strcmp(rejoin, "1") != 0))
        return refuse(fault_out, "GF_REJOIN", rejoin, "0 or 1");
    identity.rejoin = (rejoin != NULL) && (rejoin[0] == '1');
    *identity_out = identity;
    return GF_OK;
}

uint32_t gf_identity_local(uint32_t rank)
{
    struct gf_identity identity;
    struct gf_fault fault;
    return (gf_identity_get(&identity, &fault) == GF_OK) ? identity.local : rank;
}

int gf_identity_ended_fd(void)
{
    uint64_t fd = 0;
    const char *text = variable("GF_ENDED_FD");
    return ((text != NULL) && decimal_parse(text, INT32_MAX, &fd)) ? (int)fd : -1;
}

/* A program between the launcher and this one may have closed it (Python's subprocess does), and
 * any file may have its number since: the bits of that would be deaths. */
bool gf_identity_ended_read(int fd, unsigned char *bits_out, size_t bytes)
{
    static const char launchers_own[] = "/memfd:gf-ended (deleted)";
    char path[32];
    char file[sizeof launchers_own];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    memset(bits_out, 0, bytes);
    return (readlink(path, file, sizeof file) == (ssize_t)sizeof file - 1) &&
           (memcmp(file, launchers_own, sizeof file - 1) == 0) &&
           (pread(fd, bits_out, bytes, 0) > 0);
}
