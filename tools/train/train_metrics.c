/* See train_metrics.h. */
#include "tools/train/train_metrics.h"

#include <stdio.h>
#include <string.h>

#include "tools/train/train_report.h"

#define PERIOD_NS UINT64_C(5000000000)
#define METRICS_BYTES 8192u

void train_metrics_write(struct train_metrics *metrics, const gf_context *gf, uint64_t now_ns, bool now)
{
    static char text[METRICS_BYTES], path[1024], error[1280];
    const char *ending = (metrics->path != NULL) ? strrchr(metrics->path, '.') : NULL;
    if ((metrics->path == NULL) || metrics->failed) return;
    if (!now && (metrics->last_ns != 0) && (now_ns - metrics->last_ns < PERIOD_NS)) return;
    if ((ending == NULL) || (strcmp(ending, ".prom") != 0)) ending = metrics->path + strlen(metrics->path);
    int used = snprintf(path, sizeof path, "%.*s.%u%s", (int)(ending - metrics->path), metrics->path,
                        metrics->rank, ending);
    uint64_t length = gf_metrics(gf, text, sizeof text);
    const struct report_part part = {text, length};
    metrics->last_ns = now_ns;
    if ((used < 0) || ((size_t)used >= sizeof path)) snprintf(error, sizeof error, "%.200s: too long", metrics->path);
    else if ((length < sizeof text) && (report_dump(path, &part, 1, error, sizeof error) == 0)) return;
    metrics->failed = true;
    fprintf(stderr, "warning: metrics: %s\n", error);
}
