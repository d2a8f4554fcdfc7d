/* Names and sizes of the public enums. */
#include "lib/settings/settings.h"

const char *gf_status_name(gf_status status)
{
    switch (status) {
    case GF_OK:           return "GF_OK";
    case GF_AGAIN:        return "GF_AGAIN";
    case GF_ERR_PARAM:    return "GF_ERR_PARAM";
    case GF_ERR_STATE:    return "GF_ERR_STATE";
    case GF_ERR_ARENA:    return "GF_ERR_ARENA";
    case GF_ERR_DEVICE:   return "GF_ERR_DEVICE";
    case GF_ERR_LINK:     return "GF_ERR_LINK";
    case GF_ERR_TIMEOUT:  return "GF_ERR_TIMEOUT";
    case GF_ERR_PEER:     return "GF_ERR_PEER";
    case GF_ERR_MISMATCH: return "GF_ERR_MISMATCH";
    case GF_ERR_SYSTEM:   return "GF_ERR_SYSTEM";
    case GF_ERR_NUMERIC:  return "GF_ERR_NUMERIC";
    case GF_ERR_ABORTED:  return "GF_ERR_ABORTED";
    case GF_ERR_QUORUM:   return "GF_ERR_QUORUM";
    case GF_ERR_CONFIG:   return "GF_ERR_CONFIG";
    case GF_ERR_DATA:     return "GF_ERR_DATA";
    }
    return "unknown status";
}

const char *gf_operation_name(gf_operation operation)
{
    static const char *const names[] = {
        [GF_OPERATION_NONE] = "none", [GF_OPERATION_JOIN] = "join", [GF_OPERATION_STEP] = "step",
        [GF_OPERATION_VOTE] = "vote", [GF_OPERATION_ALLREDUCE] = "allreduce", [GF_OPERATION_BROADCAST] = "broadcast",
        [GF_OPERATION_REDUCE_SCATTER] = "reduce_scatter", [GF_OPERATION_ALLGATHER] = "allgather",
        [GF_OPERATION_BARRIER] = "barrier", [GF_OPERATION_NORMS] = "norms", [GF_OPERATION_UPDATE] = "update",
        [GF_OPERATION_STATE] = "state", [GF_OPERATION_SHRINK] = "shrink", [GF_OPERATION_CLOSE] = "close",
        [GF_OPERATION_WAIT] = "wait"};
    _Static_assert(sizeof names / sizeof names[0] == GF_OPERATION_COUNT, "each operation has a name");
    return ((unsigned)operation < GF_OPERATION_COUNT) ? names[operation] : "unknown operation";
}

const char *const gf_algorithm_names[GF_ALGORITHM_COUNT] = {
    [GF_ALGORITHM_AUTO] = "auto", [GF_ALGORITHM_RING] = "ring", [GF_ALGORITHM_HALVING] = "halving",
    [GF_ALGORITHM_DOUBLING] = "doubling", [GF_ALGORITHM_TREE] = "tree", [GF_ALGORITHM_SERVER] = "server",
    [GF_ALGORITHM_DIRECT] = "direct", [GF_ALGORITHM_HIERARCHY] = "hierarchy", [GF_ALGORITHM_ALLTOALL] = "alltoall"};

const char *gf_algorithm_name(gf_algorithm algorithm)
{
    return ((unsigned)algorithm < GF_ALGORITHM_COUNT) ? gf_algorithm_names[algorithm] : "unknown algorithm";
}

const char *gf_path_name(gf_path path)
{
    static const char *const names[] = {
        [GF_PATH_HOST] = "in host memory", [GF_PATH_STAGED] = "through host memory",
        [GF_PATH_PEERS] = "from device to device", [GF_PATH_WIRE] = "from device memory straight to the wire"};
    _Static_assert(sizeof names / sizeof names[0] == GF_PATH_COUNT, "each path has a name");
    return ((unsigned)path < GF_PATH_COUNT) ? names[path] : "unknown path";
}

size_t gf_type_size_bytes(gf_type type)
{
    switch (type) {
    case GF_TYPE_F32:   return 4;
    case GF_TYPE_F16:   return 2;
    case GF_TYPE_BF16:  return 2;
    case GF_TYPE_COUNT: break;
    }
    return 0; /* no such type */
}

const char *const gf_type_names[GF_TYPE_COUNT] = {"fp32", "fp16", "bf16"};

const char *gf_reduction_name(gf_reduction reduction)
{
    static const char *const names[GF_REDUCTION_COUNT] = {"sum", "min", "max", "prod", "avg"};
    return (reduction < GF_REDUCTION_COUNT) ? names[reduction] : "unknown reduction";
}
