/* See train_trace.h. */
#include "tools/train/train_trace.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/common/tool_trace.h"
#include "tools/train/train_net.h"

void train_trace_drain(struct train_trace *trace, gf_context *gf)
{
    uint32_t count;
    if (trace->path == NULL) return;
    do {
        uint32_t at = (uint32_t)(trace->taken % TRAIN_TRACE_RECORDS);
        count = gf_trace_read(gf, trace->records + at, TRAIN_TRACE_RECORDS - at);
        trace->taken += count;
        for (uint32_t i = at; i < at + count; i++)
            if (trace->records[i].operation == GF_OPERATION_VOTE)
                memcpy(&trace->records[i].first_tensor, &trace->loss_scale, sizeof(float));
    } while (count > 0);
    trace->loss_scale = gf_loss_scale(gf); /* of the next step */
}

void train_trace_checkpoint(struct train_trace *trace, uint64_t step, uint64_t begin_ns,
                            uint64_t end_ns)
{
    if (trace->path == NULL) return;
    trace->records[trace->taken++ % TRAIN_TRACE_RECORDS] =
        (struct gf_trace_record){.begin_ns = begin_ns,
                                 .end_ns = end_ns,
                                 .step = step,
                                 .operation = TOOL_TRACE_CHECKPOINT,
                                 .first_tensor = GF_TENSOR_NONE,
                                 .waited_for = GF_RANK_NONE};
}

/* Two ranks have one clock where the kernel was booted once. Without an id a rank is alone with its
 * own. */
static void clock_name(uint32_t rank, char name_out[static 40])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    size_t length = (file != NULL) ? fread(name_out, 1, 36, file) : 0;
    if (file != NULL) fclose(file);
    name_out[length] = '\0';
    if (length != 36) (void)snprintf(name_out, 40, "unknown clock of rank %u", rank);
}

int train_trace_write(const struct train_trace *trace, uint32_t rank, uint32_t world,
                      const struct gf_tensor *tensors, uint32_t tensor_count,
                      struct tool_file *file)
{
    static char names[NET_TENSORS_MAX][TOOL_TRACE_NAME_BYTES];
    struct tool_trace_head head = {.magic = TOOL_TRACE_MAGIC,
                                   .version = TOOL_TRACE_VERSION,
                                   .record_bytes = sizeof *trace->records,
                                   .rank = rank,
                                   .world = world,
                                   .tensor_count = tensor_count,
                                   .begin_ns = trace->begin_ns};
    uint64_t max = TRAIN_TRACE_RECORDS;
    uint64_t at = trace->taken % max;
    char path[TOOL_FILE_PATH_BYTES + 16u];
    (void)snprintf(path, sizeof path, "%s.%u", trace->path, rank);
    head.record_count = (trace->taken < max) ? trace->taken : max;
    head.lost_count = trace->taken - head.record_count;
    clock_name(rank, head.clock);
    if (gethostname(head.node, sizeof head.node - 1) != 0) head.node[0] = '\0';
    for (uint32_t i = 0; i < tensor_count; i++)
        (void)snprintf(names[i], sizeof names[i], "%.47s", tensors[i].name);
    bool full = head.lost_count > 0; /* then the oldest lies at `at` */
    if (tool_file_begin(file, path) != 0) return -1;
    (void)fwrite(&head, sizeof head, 1, file->stream);
    (void)fwrite(names, sizeof names[0], tensor_count, file->stream);
    if (full) (void)fwrite(trace->records + at, sizeof *trace->records, max - at, file->stream);
    (void)fwrite(trace->records, sizeof *trace->records, full ? at : head.record_count,
                 file->stream);
    return tool_file_end(file);
}
