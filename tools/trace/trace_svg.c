/* A picture that needs nothing but a browser: for each rank its own thread, and below it what was
 * on the wire. At a page's full width letters are 14 px high. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "tools/trace/trace.h"

#define LEFT 90.0   /* of the time axis */
#define WIDTH 880.0 /* of the axis */
#define TOP 116.0
#define ROW 22.0
#define GAP 10.0     /* between ranks */
#define LEGEND 118.0 /* from one entry to the next */
#define LETTER 7.8   /* a letter's width, about */

static const struct {
    const char *name, *colour;
} looks[] = {
    [TRACE_COMPUTE] = {"compute", "#c9dbec"}, [TRACE_WAIT] = {"wait", "#d1495b"},
    [TRACE_PACK] = {"pack", "#edb458"},       [TRACE_BUFFER] = {"buffer", "#5fa777"},
    [TRACE_VOTE] = {"vote", "#8e6bbf"},       [TRACE_CHECKPOINT] = {"checkpoint", "#4f7cac"},
    [TRACE_OTHER] = {"other", "#9a9a9a"},
};
#define LOOKS (sizeof looks / sizeof looks[0])

struct picture {
    const struct trace *trace;
    FILE *out;
    uint64_t begin_ns, end_ns;
    double y; /* of the rank's first lane */
};

/* Requests between steps may be far away (a test after the last step); the picture is of steps. */
static void range_add(void *user, const struct trace_file *file, const struct trace_span *span)
{
    struct picture *picture = user;
    (void)file;
    if (span->kind == TRACE_OTHER) return;
    if (span->begin_ns < picture->begin_ns) picture->begin_ns = span->begin_ns;
    if (span->end_ns > picture->end_ns) picture->end_ns = span->end_ns;
}

static double x_of(const struct picture *picture, uint64_t time_ns)
{
    double span = (double)(picture->end_ns - picture->begin_ns);
    return LEFT + WIDTH * (double)(time_ns - picture->begin_ns) / ((span > 0) ? span : 1);
}

/* The longest name of the bar that fits it; empty where none does. */
static void label_fit(const struct trace_span *span, const char *whole, double width,
                      char label[static TRACE_LABEL_BYTES])
{
    const struct gf_trace_record *record = span->record;
    for (int length = 0; length < 3; length++) {
        label[0] = '\0';
        if (span->kind == TRACE_COMPUTE) {
            static const char *const forms[] = {"compute, step %" PRIu64, "step %" PRIu64,
                                                "%" PRIu64};
            (void)snprintf(label, TRACE_LABEL_BYTES, forms[length], record->step);
        } else if (length == 0) {
            (void)snprintf(label, TRACE_LABEL_BYTES, "%s", whole);
        } else if ((span->kind == TRACE_BUFFER) || (span->kind == TRACE_PACK)) {
            static const char *const forms[] = {"", "buffer %u", "%u"};
            (void)snprintf(label, TRACE_LABEL_BYTES, forms[length], record->buffer);
        }
        if (LETTER * (double)strlen(label) + 5 < width) return;
    }
    label[0] = '\0';
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return (a > b) ? a : b;
}
static uint64_t earlier(uint64_t a, uint64_t b)
{
    return (a < b) ? a : b;
}

/* The part of a wait in which something was on the wire: a black line along the foot of its bar. */
static void exposed_draw(const struct picture *picture, const struct trace_file *file,
                         const struct trace_span *wait)
{
    const struct gf_trace_record *first = wait->record;
    const struct gf_trace_record *end = file->records + file->head.record_count;
    while ((first > file->records) && (first[-1].step == wait->record->step)) first--;
    for (const struct gf_trace_record *at = first; (at < end) && (at->step == wait->record->step);
         at++) {
        uint64_t begin_ns = trace_time(picture->trace, file, at->begin_ns);
        uint64_t end_ns = trace_time(picture->trace, file, at->end_ns);
        begin_ns = later(begin_ns, later(wait->begin_ns, picture->begin_ns));
        end_ns = earlier(end_ns, earlier(wait->end_ns, picture->end_ns));
        if (!trace_is_exchange(at) || (end_ns <= begin_ns)) continue;
        double left = x_of(picture, begin_ns);
        (void)fprintf(
            picture->out,
            "<rect class=\"exposed\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"3\"/>\n", left,
            picture->y + ROW - 5, x_of(picture, end_ns) - left);
    }
}

static void bar_draw(void *user, const struct trace_file *file, const struct trace_span *span)
{
    const struct picture *picture = user;
    uint64_t begin_ns = (span->begin_ns > picture->begin_ns) ? span->begin_ns : picture->begin_ns;
    uint64_t end_ns = (span->end_ns < picture->end_ns) ? span->end_ns : picture->end_ns;
    double left = x_of(picture, begin_ns);
    double width = x_of(picture, end_ns) - left;
    double y = picture->y + ROW * span->lane;
    char label[TRACE_LABEL_BYTES];
    char fit[TRACE_LABEL_BYTES];
    if (begin_ns > end_ns) return;
    trace_label(file, span, label);
    label_fit(span, label, width, fit);
    (void)fprintf(picture->out,
                  "<g><title>rank %u, %s, step %" PRIu64 ": %.3f ms from %.3f ms</title>"
                  "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\" "
                  "stroke=\"#fff\" stroke-width=\"0.7\"/>",
                  file->head.rank, label, span->record->step,
                  (double)(span->end_ns - span->begin_ns) * 1e-6,
                  ((double)span->begin_ns - (double)picture->begin_ns) * 1e-6, left, y,
                  (width < 0.4) ? 0.4 : width, ROW - 2, looks[span->kind].colour);
    if (fit[0] != '\0')
        (void)fprintf(picture->out, "<text x=\"%.2f\" y=\"%.1f\">%s</text>", left + 3, y + ROW - 7,
                      fit);
    (void)fprintf(picture->out, "</g>\n");
    if (span->kind == TRACE_WAIT) exposed_draw(picture, file, span);
}

/* A line at each 1, 2 or 5 times a power of ten; about ten of them. */
static void axis_draw(const struct picture *picture, double bottom)
{
    double span = (double)(picture->end_ns - picture->begin_ns) * 1e-6;
    double step = pow(10, floor(log10(span / 10)));
    if (span / step > 50)
        step *= 10;
    else if (span / step > 20)
        step *= 5;
    else if (span / step > 10)
        step *= 2;
    for (unsigned i = 0; (double)i * step <= span; i++) {
        double x = LEFT + WIDTH * (double)i * step / span;
        (void)fprintf(picture->out,
                      "<line x1=\"%.2f\" y1=\"%.1f\" x2=\"%.2f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
                      "<text x=\"%.2f\" y=\"%.1f\" text-anchor=\"middle\">%g ms</text>\n",
                      x, TOP - 6, x, bottom, x, TOP - 10, (double)i * step);
    }
}

static void legend_draw(const struct picture *picture, uint64_t first, uint64_t last)
{
    if (last != TRACE_NONE)
        (void)fprintf(picture->out,
                      "<text x=\"8\" y=\"26\" font-size=\"17\">What each rank did in steps %" PRIu64
                      " to %" PRIu64 ", and below it what was on the wire</text>\n",
                      first, last);
    for (size_t i = 0; i < LOOKS; i++)
        (void)fprintf(picture->out,
                      "<rect x=\"%.1f\" y=\"40\" width=\"13\" height=\"13\" fill=\"%s\"/>"
                      "<text x=\"%.1f\" y=\"52\">%s</text>\n",
                      LEFT + LEGEND * (double)i, looks[i].colour, LEFT + LEGEND * (double)i + 19,
                      looks[i].name);
    (void)fprintf(picture->out,
                  "<rect x=\"%.1f\" y=\"67\" width=\"20\" height=\"3\"/>"
                  "<text x=\"%.1f\" y=\"74\">exposed: waits while the wire is busy</text>\n",
                  LEFT, LEFT + 26);
}

void trace_svg(const struct trace *trace, uint64_t first, uint64_t last, FILE *out)
{
    struct picture picture = {.trace = trace, .out = out, .begin_ns = UINT64_MAX, .y = TOP};
    double bottom = TOP;
    for (uint32_t f = 0; f < trace->file_count; f++)
        bottom +=
            ROW * trace_spans(trace, &trace->files[f], first, last, range_add, &picture) + GAP;
    if (picture.begin_ns >= picture.end_ns) picture.end_ns = (picture.begin_ns = 0) + 1;
    (void)fprintf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
                  "font-family=\"sans-serif\" "
                  "font-size=\"14\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
                  LEFT + WIDTH + 30, bottom + 10);
    legend_draw(&picture, first, last);
    axis_draw(&picture, bottom);
    for (uint32_t f = 0; f < trace->file_count; f++) {
        const struct trace_file *file = &trace->files[f];
        (void)fprintf(out,
                      "<text x=\"8\" y=\"%.1f\" font-weight=\"bold\">rank %u</text>"
                      "<text x=\"8\" y=\"%.1f\" fill=\"#666\">%s</text>\n",
                      picture.y + ROW - 7, file->head.rank, picture.y + 2 * ROW - 7,
                      file->head.node);
        picture.y += ROW * trace_spans(trace, file, first, last, bar_draw, &picture) + GAP;
    }
    (void)fprintf(out, "</svg>\n");
}
