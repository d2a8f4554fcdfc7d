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
    switch (operation) {
    case GF_OPERATION_NONE:           return "none";
    case GF_OPERATION_JOIN:           return "join";
    case GF_OPERATION_STEP:           return "step";
    case GF_OPERATION_VOTE:        return "vote";
    case GF_OPERATION_ALLREDUCE:      return "allreduce";
    case GF_OPERATION_BROADCAST:      return "broadcast";
    case GF_OPERATION_REDUCE_SCATTER: return "reduce_scatter";
    case GF_OPERATION_ALLGATHER:      return "allgather";
    case GF_OPERATION_BARRIER:        return "barrier";
    case GF_OPERATION_NORMS:          return "norms";
    case GF_OPERATION_UPDATE:         return "update";
    case GF_OPERATION_STATE:          return "state";
    case GF_OPERATION_SHRINK:         return "shrink";
    case GF_OPERATION_CLOSE:          return "close";
    case GF_OPERATION_WAIT:           return "wait";
    case GF_OPERATION_COUNT:          break;
    }
    return "unknown operation";
}

const char *gf_algorithm_name(gf_algorithm algorithm)
{
    switch (algorithm) {
    case GF_ALGORITHM_AUTO:      return "auto";
    case GF_ALGORITHM_RING:      return "ring";
    case GF_ALGORITHM_HALVING:   return "halving";
    case GF_ALGORITHM_DOUBLING:  return "doubling";
    case GF_ALGORITHM_TREE:      return "tree";
    case GF_ALGORITHM_SERVER:    return "server";
    case GF_ALGORITHM_DIRECT:    return "direct";
    case GF_ALGORITHM_HIERARCHY: return "hierarchy";
    case GF_ALGORITHM_ALLTOALL:  return "alltoall";
    case GF_ALGORITHM_COUNT:     break;
    }
    return "unknown algorithm";
}

const char *gf_path_name(gf_path path)
{
    switch (path) {
    case GF_PATH_HOST:   return "in host memory";
    case GF_PATH_STAGED: return "through host memory";
    case GF_PATH_PEERS:  return "from device to device";
    case GF_PATH_WIRE:   return "from device memory straight to the wire";
    case GF_PATH_COUNT:  break;
    }
    return "unknown path";
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
