/* Speed-up and, beside it, efficiency against GPUs: a line a mode, each with marks of its own and
 * its name at its end, so that nobody needs the colours. Needs nothing but a browser; at a page's
 * full width letters are 14 px high. */
#include <math.h>

#include "tools/common/tool_output.h"
#include "tools/plan/plan.h"

#define TOP 86.0
#define HEIGHT 400.0
#define DASHED "stroke=\"#555\" stroke-width=\"1.5\" stroke-dasharray=\"6 5\""
#define NAME_STEP 17.0 /* between the names at the ends of lines, at least */

static const char *const colours[PLAN_MODE_COUNT] = {"#6b6b6b", "#8c6d46", "#c0392b", "#b7791f",
                                                     "#2e7d4f", "#2e86ab", "#30486b", "#7b52ab"};

struct panel {
    double left, width;
    bool shows_speedup; /* in powers of two; else efficiency in percent */
    double gpus_top, speedup_low;
};

static double x_of(const struct panel *panel, double gpus)
{
    return panel->left + panel->width * log2(gpus) / panel->gpus_top;
}

static double y_at(double share)
{
    return TOP + HEIGHT * (1 - share);
}

static double y_of(const struct panel *panel, const struct plan_row *row)
{
    if (!panel->shows_speedup) return y_at(fmin(row->speedup / row->gpus, 1.02));
    return y_at((log2(row->speedup) - panel->speedup_low) / (panel->gpus_top - panel->speedup_low));
}

static bool shown(const struct plan_row *row, plan_mode mode)
{
    return row->known && (row->mode == mode) && (row->speedup > 0);
}

static void frame_fit(const struct plan_table *table, struct panel *panel)
{
    panel->gpus_top = 1;
    panel->speedup_low = 0;
    for (uint32_t i = 0; i < table->row_count; i++) {
        const struct plan_row *row = &table->rows[i];
        if (!row->known || (row->speedup <= 0)) continue;
        panel->gpus_top = fmax(panel->gpus_top, ceil(log2((double)row->gpus)));
        panel->speedup_low = fmin(panel->speedup_low, floor(log2(row->speedup)));
    }
}

/* Names are the user's own. */
static void text_print(FILE *out, const char *text)
{
    char letter[TOOL_LETTER_BYTES];
    while (*text != '\0') {
        text += tool_letter(text, letter);
        switch (letter[0]) {
        case '<': (void)fputs("&lt;", out); break;
        case '>': (void)fputs("&gt;", out); break;
        case '&': (void)fputs("&amp;", out); break;
        default: (void)fputs(letter, out); break;
        }
    }
}

static void line_draw(FILE *out, double x1, double y1, double x2, double y2, const char *more)
{
    (void)fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2,
                  y2, more);
}

static void axes_draw(const struct panel *panel, FILE *out)
{
    double right = panel->left + panel->width;
    double low = panel->shows_speedup ? panel->speedup_low : 0;
    double top = panel->shows_speedup ? panel->gpus_top : 5;
    double every = (panel->gpus_top > 7) ? 2 : 1;
    for (double g = 0; g <= panel->gpus_top; g++) {
        line_draw(out, x_of(panel, exp2(g)), TOP, x_of(panel, exp2(g)), TOP + HEIGHT,
                  "stroke=\"#ddd\"");
        if (fmod(g, every) > 0) continue;
        (void)fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%g</text>\n",
                      x_of(panel, exp2(g)), TOP + HEIGHT + 20, exp2(g));
    }
    for (double s = low; s <= top; s++) {
        double y = y_at((s - low) / (top - low));
        line_draw(out, panel->left, y, right, y, "stroke=\"#ddd\"");
        (void)fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%g%s</text>\n",
                      panel->left - 7, y + 5, panel->shows_speedup ? exp2(s) : 20 * s,
                      panel->shows_speedup ? "" : " %");
    }
    line_draw(out, x_of(panel, 1), panel->shows_speedup ? y_at(-low / (top - low)) : TOP, right,
              TOP, DASHED);
    (void)fprintf(out,
                  "<text x=\"%.1f\" y=\"%.1f\" font-weight=\"bold\">%s</text>\n"
                  "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">GPUs</text>\n",
                  panel->left, TOP - 14,
                  panel->shows_speedup ? "Times as fast as one GPU" : "Share of ideal speed-up",
                  panel->left + panel->width / 2, TOP + HEIGHT + 42);
}

/* Four shapes, filled and hollow. */
static void mark_draw(FILE *out, plan_mode mode, double x, double y)
{
    static const char *const shapes[] = {"M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", "M-4 -4h8v8h-8z",
                                         "M0 -5l5 9h-10z", "M0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z"};
    (void)fprintf(out,
                  "<path d=\"%s\" transform=\"translate(%.1f %.1f)\" fill=\"%s\" stroke=\"%s\" "
                  "stroke-width=\"1.8\"",
                  shapes[mode % 4], x, y, (mode < 4) ? "#fff" : colours[mode], colours[mode]);
}

/* Returns the row where its line ends. */
static const struct plan_row *mode_draw(const struct plan_table *table, const struct panel *panel,
                                        plan_mode mode, FILE *out)
{
    const struct plan_row *last = NULL;
    (void)fprintf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"",
                  colours[mode]);
    for (uint32_t i = 0; i < table->row_count; i++) {
        const struct plan_row *row = &table->rows[i];
        if (!shown(row, mode)) continue;
        (void)fprintf(out, "%.1f,%.1f ", x_of(panel, row->gpus), y_of(panel, row));
        last = row;
    }
    (void)fprintf(out, "\"/>\n");
    for (uint32_t i = 0; i < table->row_count; i++) {
        const struct plan_row *row = &table->rows[i];
        if (!shown(row, mode)) continue;
        mark_draw(out, mode, x_of(panel, row->gpus), y_of(panel, row));
        (void)fprintf(
            out,
            "><title>%s, %u GPUs: %.2fx, %.3f ms a step, %.3f ms of it exposed</title></path>\n",
            plan_mode_name(mode), row->gpus, row->speedup, row->step_s * 1e3, row->exposed_s * 1e3);
    }
    return last;
}

/* Each name beside the end of its line, or as near as the others leave room, with its mark. */
static void names_draw(const struct panel *panel, const struct plan_row *const *ends, FILE *out)
{
    plan_mode order[PLAN_MODE_COUNT];
    double y[PLAN_MODE_COUNT];
    double floor_y = TOP - 4;
    uint32_t count = 0;
    for (uint32_t mode = 0; mode < PLAN_MODE_COUNT; mode++) {
        uint32_t at = count;
        if (ends[mode] == NULL) continue;
        for (; (at > 0) && (y_of(panel, ends[mode]) < y_of(panel, ends[order[at - 1]])); at--)
            order[at] = order[at - 1];
        order[at] = (plan_mode)mode;
        count++;
    }
    for (uint32_t i = 0; i < count; i++)
        floor_y = y[i] = fmax(y_of(panel, ends[order[i]]), floor_y + NAME_STEP);
    for (double ceiling = TOP + HEIGHT + NAME_STEP; count > 0; count--) {
        plan_mode mode = order[count - 1];
        double x = panel->left + panel->width;
        double at = fmin(y[count - 1], ceiling - NAME_STEP);
        ceiling = at;
        (void)fprintf(out, "<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"%s\" opacity=\"0.5\"/>\n",
                      x_of(panel, ends[mode]->gpus), y_of(panel, ends[mode]), x + 14, at,
                      colours[mode]);
        mark_draw(out, mode, x + 19, at);
        (void)fprintf(out, "/><text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 28, at + 5,
                      plan_mode_name(mode));
    }
}

void plan_svg(const struct plan_table *table, FILE *out)
{
    struct panel panels[] = {{.left = 56, .width = 340, .shows_speedup = true},
                             {.left = 560, .width = 330}};
    (void)fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1000 560\" "
                       "font-family=\"sans-serif\" "
                       "font-size=\"14\">\n<rect width=\"1000\" height=\"560\" fill=\"#fff\"/>\n"
                       "<text x=\"56\" y=\"26\" font-size=\"17\">Training ");
    text_print(out, table->model->name);
    (void)fprintf(out, " on ");
    text_print(out, table->cluster->name);
    (void)fprintf(out, ": what more GPUs bring (predicted)</text>\n");
    for (int i = 0; i < 2; i++) {
        const struct plan_row *ends[PLAN_MODE_COUNT];
        frame_fit(table, &panels[i]);
        axes_draw(&panels[i], out);
        for (uint32_t mode = 0; mode < PLAN_MODE_COUNT; mode++)
            ends[mode] = mode_draw(table, &panels[i], (plan_mode)mode, out);
        names_draw(&panels[i], ends, out);
    }
    line_draw(out, 56, TOP + HEIGHT + 62, 96, TOP + HEIGHT + 62, DASHED);
    (void)fprintf(out, "<text x=\"104\" y=\"%.1f\">ideal: every GPU counts whole</text>\n</svg>\n",
                  TOP + HEIGHT + 67);
}
