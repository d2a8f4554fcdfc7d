/* A ring of fixed-size records, always on: the newest overwrite the oldest. */
#include "lib/context.h"
#include "lib/modules/modules.h"

uint32_t gf_trace_read(gf_context *gf, struct gf_trace_record *records, uint32_t record_max)
{
    struct gf_trace *trace;
    uint32_t count = 0;
    if ((gf == NULL) || (records == NULL)) return 0;
    trace = &gf->observed.trace;
    if (trace->written - trace->read > trace->record_max) trace->read = trace->written - trace->record_max;
    while ((count < record_max) && (trace->read < trace->written))
        records[count++] = trace->records[trace->read++ % trace->record_max];
    return count;
}

const struct gf_observe_module gf_module_observe = {
    .link_times_tell = gf_link_times_tell,
    .link_times_learn = gf_link_times_learn,
};
