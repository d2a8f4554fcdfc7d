/* Names of the public enums, and sizes that a program may ask for. */
#include <string.h>

#include "lib/settings/settings.h"
#include "ops/ops.h"

#define NAME_OF(names, number, unknown)                                                      \
    (((unsigned)(number) < sizeof(names) / sizeof((names)[0])) ? (names)[(unsigned)(number)] \
                                                               : (unknown))

const char *gf_status_name(gf_status status)
{
    static const char *const names[] = {
        "GF_FULL",         "GF_AGAIN",      "GF_OK",          "GF_ERR_PARAM",   "GF_ERR_STATE",
        "GF_ERR_ARENA",    "GF_ERR_DEVICE", "GF_ERR_LINK",    "GF_ERR_TIMEOUT", "GF_ERR_PEER",
        "GF_ERR_MISMATCH", "GF_ERR_SYSTEM", "GF_ERR_NUMERIC", "GF_ERR_ABORTED", "unknown status",
        "GF_ERR_CONFIG",   "GF_ERR_DATA"};
    _Static_assert(sizeof names / sizeof names[0] == GF_FULL - GF_ERR_DATA + 1,
                   "each status has a name, downwards");
    return NAME_OF(names, (unsigned)GF_FULL - (unsigned)status, "unknown status");
}

const char *gf_operation_name(gf_operation operation)
{
    static const char *const names[] = {[GF_OPERATION_NONE] = "none",
                                        [GF_OPERATION_JOIN] = "join",
                                        [GF_OPERATION_STEP] = "step",
                                        [GF_OPERATION_VOTE] = "vote",
                                        [GF_OPERATION_ALLREDUCE] = "allreduce",
                                        [GF_OPERATION_BROADCAST] = "broadcast",
                                        [GF_OPERATION_REDUCE_SCATTER] = "reduce_scatter",
                                        [GF_OPERATION_ALLGATHER] = "allgather",
                                        [GF_OPERATION_BARRIER] = "barrier",
                                        [GF_OPERATION_UPDATE] = "update",
                                        [GF_OPERATION_STATE] = "state",
                                        [GF_OPERATION_REGROUP] = "regroup",
                                        [GF_OPERATION_CLOSE] = "close",
                                        [GF_OPERATION_WAIT] = "wait"};
    _Static_assert(sizeof names / sizeof names[0] == GF_OPERATION_COUNT,
                   "each operation has a name");
    return NAME_OF(names, operation, "unknown operation");
}

const char *const gf_algorithm_names[GF_ALGORITHM_COUNT] = {
    [GF_ALGORITHM_AUTO] = "auto",       [GF_ALGORITHM_RING] = "ring",
    [GF_ALGORITHM_HALVING] = "halving", [GF_ALGORITHM_DOUBLING] = "doubling",
    [GF_ALGORITHM_TREE] = "tree",       [GF_ALGORITHM_SERVER] = "server",
    [GF_ALGORITHM_DIRECT] = "direct",   [GF_ALGORITHM_HIERARCHY] = "hierarchy"};

const char *gf_algorithm_name(gf_algorithm algorithm)
{
    return NAME_OF(gf_algorithm_names, algorithm, "unknown algorithm");
}

const char *gf_path_name(gf_path path)
{
    static const char *const names[] = {[GF_PATH_HOST] = "in host memory",
                                        [GF_PATH_STAGED] = "through host memory",
                                        [GF_PATH_PEERS] = "from device to device",
                                        [GF_PATH_WIRE] = "from device memory straight to the wire"};
    _Static_assert(sizeof names / sizeof names[0] == GF_PATH_COUNT, "each path has a name");
    return NAME_OF(names, path, "unknown path");
}

size_t gf_type_size_bytes(gf_type type)
{
    return gf_type_bytes(type);
}

uint32_t gf_struct_bytes(const char *name)
{
    static const struct {
        const char *name;
        uint32_t bytes;
    } structs[] = {
#define STRUCT(name) {#name, (uint32_t)sizeof(struct name)}
        STRUCT(gf_tensor), STRUCT(gf_state_extra), STRUCT(gf_footprint),    STRUCT(gf_request),
        STRUCT(gf_error),  STRUCT(gf_stats),       STRUCT(gf_trace_record), STRUCT(gf_trace_head),
        STRUCT(gf_config), STRUCT(gf_schedule),
#undef STRUCT
    };
    for (size_t i = 0; (name != NULL) && (i < sizeof structs / sizeof structs[0]); i++)
        if (strcmp(name, structs[i].name) == 0) return structs[i].bytes;
    return 0;
}

const char *gf_reduction_name(gf_reduction reduction)
{
    static const char *const names[GF_REDUCTION_COUNT] = {"sum", "min", "max"};
    return NAME_OF(names, reduction, "unknown reduction");
}
