/* The file that gf-train --trace leaves and gf-trace reads, little-endian:
 *     head, 128 bytes;  tensor_count names of 48 bytes, NUL-terminated;  record_count records of 64
 *                       bytes, oldest first.
 * The records are the library's own (struct gf_trace_record), times are the rank's
 * CLOCK_MONOTONIC. */
#ifndef TOOL_TRACE_H
#define TOOL_TRACE_H

#include "gradientflow.h"

/* Beside what the library records: a checkpoint that the appliance wrote has operation 0
 * (GF_OPERATION_NONE), and a vote has in first_tensor the bits of its step's loss scale as fp32, or
 * GF_TENSOR_NONE. */
#define TOOL_TRACE_CHECKPOINT GF_OPERATION_NONE
#define TOOL_TRACE_MAGIC "GFTRACE\n"
#define TOOL_TRACE_VERSION 1u
#define TOOL_TRACE_NAME_BYTES 48u

struct tool_trace_head {
    char magic[8];
    uint32_t version;
    uint32_t record_bytes; /* sizeof(struct gf_trace_record) */
    uint32_t rank, world;
    uint32_t tensor_count;
    uint32_t reserved;
    uint64_t record_count;
    uint64_t lost_count; /* older records that the writer had no room for */
    uint64_t begin_ns;   /* the writer's clock before its first step */
    uint64_t reserved_more;
    char clock[40]; /* the system's boot id: ranks with the same one share a clock */
    char node[24];  /* the host's name, for people */
};
_Static_assert(sizeof(struct tool_trace_head) == 128, "as in files");
_Static_assert(sizeof(struct gf_trace_record) == 64, "as in files");

#endif
