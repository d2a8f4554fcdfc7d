/* See tool_metrics.h. */
#include "tools/common/tool_metrics.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define NS_PER_S 1000000000u

static const struct metric {
    const char *name, *type, *help;
    size_t offset;
} metrics[] = {
#define FIELD(member) offsetof(struct gf_stats, member)
    {"steps_total", "counter", "Whole steps, skipped ones included.", FIELD(steps)},
    {"steps_skipped_total", "counter", "Steps that all ranks skipped.", FIELD(steps_skipped)},
    {"sent_bytes_total", "counter", "Payload this rank sent through the network link.",
     FIELD(wire_bytes)},
    {"mapped_bytes_total", "counter", "Bytes read from and written to shared memory.",
     FIELD(mapped_bytes)},
    {"control_bytes_total", "counter", "Bytes sent on the control channel.", FIELD(control_bytes)},
    {"messages_total", "counter", "Messages posted to the network link.", FIELD(messages)},
    {"gradient_bytes_total", "counter", "Gradients declared ready, as fp32.",
     FIELD(produced_bytes)},
    {"copied_bytes_total", "counter", "Gradients copied within this rank's memory.",
     FIELD(copied_bytes)},
    {"operations_total", "counter", "Collectives ended.", FIELD(operations)},
    {"wait_seconds_total", "counter", "Time blocked waiting for steps.", FIELD(wait_ns)},
    {"exchange_seconds_total", "counter",
     "Time from the first post of each step to its last completion.", FIELD(exchange_ns)},
    {"last_wait_seconds", "gauge", "The same of the last step: blocked.", FIELD(last_wait_ns)},
    {"last_exchange_seconds", "gauge", "The same of the last step: exchange.",
     FIELD(last_exchange_ns)},
    {"slowest_late_seconds_total", "counter", "What the slowest rank cost the others.",
     FIELD(slowest_late_ns)},
#undef FIELD
};

struct text {
    char *at;
    uint64_t bytes, used;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...)
{
    va_list arguments;
    uint64_t room = (text->used < text->bytes) ? text->bytes - text->used : 0;
    va_start(arguments, format);
    int length = vsnprintf((room > 0) ? text->at + text->used : NULL, room, format, arguments);
    va_end(arguments);
    if (length > 0) text->used += (uint64_t)length;
}

static void head_add(struct text *text, const char *name, const char *type, const char *help)
{
    add(text, "# HELP gradientflow_%s %s\n# TYPE gradientflow_%s %s\n", name, help, name, type);
}

uint64_t tool_metrics(const gf_context *gf, char *text_out, uint64_t bytes)
{
    struct gf_stats stats = {.size_bytes = sizeof stats};
    struct text text = {text_out, bytes, 0};
    uint32_t rank = gf_rank(gf);
    if (gf_stats(gf, &stats) != GF_OK) return 0;
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++) {
        const struct metric *metric = &metrics[i];
        unsigned long long value =
            *(const uint64_t *)(const void *)((const char *)&stats + metric->offset);
        head_add(&text, metric->name, metric->type, metric->help);
        add(&text, "gradientflow_%s{rank=\"%u\"} ", metric->name, rank);
        /* Of ns, not as a real number: that has the locale's point, and 53 bits. */
        if (strstr(metric->name, "_seconds") != NULL)
            add(&text, "%llu.%09llu\n", value / NS_PER_S, value % NS_PER_S);
        else
            add(&text, "%llu\n", value);
    }
    head_add(&text, "world", "gauge", "Ranks of this epoch.");
    add(&text, "gradientflow_world{rank=\"%u\"} %u\n", rank, gf_world(gf));
    head_add(&text, "loss_scale", "gauge", "What the loss is multiplied with.");
    add(&text, "gradientflow_loss_scale{rank=\"%u\"} %.9g\n", rank, (double)stats.loss_scale);
    if (stats.slowest_peer == GF_RANK_NONE) return text.used;
    head_add(&text, "slowest_rank", "gauge", "The rank that has cost the others most.");
    add(&text, "gradientflow_slowest_rank{rank=\"%u\"} %u\n", rank, stats.slowest_peer);
    return text.used;
}
