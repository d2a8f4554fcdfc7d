/* Speed-up against GPUs, a line a mode, both axes in powers of two. Needs nothing but a browser. */
#include <math.h>

#include "tools/plan/plan.h"

#define LEFT 80.0
#define TOP 50.0
#define WIDTH 720.0
#define HEIGHT 460.0
#define RIGHT 130.0 /* for the names of the lines */

static const char *const colours[PLAN_MODE_COUNT] = {"#9a9a9a", "#8c6d46", "#d1495b", "#edb458",
                                                     "#5fa777", "#2e86ab", "#30486b", "#8e6bbf"};

struct frame {
    double gpus_top, speedup_low, speedup_top; /* as powers of two */
};

static double x_of(const struct frame *frame, double gpus) { return LEFT + WIDTH * log2(gpus) / frame->gpus_top; }

static double y_of(const struct frame *frame, double speedup)
{
    double share = (log2(speedup) - frame->speedup_low) / (frame->speedup_top - frame->speedup_low);
    return TOP + HEIGHT * (1 - share);
}

static struct frame frame_of(const struct plan_table *table)
{
    struct frame frame = {.gpus_top = 1, .speedup_low = 0, .speedup_top = 1};
    for (uint32_t i = 0; i < table->row_count; i++) {
        const struct plan_row *row = &table->rows[i];
        double gpus = ceil(log2((double)row->gpus));
        if (!row->known) continue;
        if (gpus > frame.gpus_top) frame.gpus_top = gpus;
        if (floor(log2(row->speedup)) < frame.speedup_low) frame.speedup_low = floor(log2(row->speedup));
    }
    frame.speedup_top = frame.gpus_top;
    return frame;
}

/* Names are the user's own. */
static void text_print(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '<') (void)fputs("&lt;", out);
        else if (*text == '&') (void)fputs("&amp;", out);
        else (void)fputc(*text, out);
    }
}

static void axes_draw(const struct frame *frame, FILE *out)
{
    for (double g = 0; g <= frame->gpus_top; g++)
        (void)fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
                           "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%g</text>\n",
                      x_of(frame, exp2(g)), TOP, x_of(frame, exp2(g)), TOP + HEIGHT, x_of(frame, exp2(g)),
                      TOP + HEIGHT + 16, exp2(g));
    for (double s = frame->speedup_low; s <= frame->speedup_top; s++)
        (void)fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
                           "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                      LEFT, y_of(frame, exp2(s)), LEFT + WIDTH, y_of(frame, exp2(s)), LEFT - 6, y_of(frame, exp2(s)) + 4,
                      exp2(s));
    (void)fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#bbb\" stroke-dasharray=\"4 4\"/>\n",
                  x_of(frame, 1), y_of(frame, 1), x_of(frame, exp2(frame->gpus_top)), y_of(frame, exp2(frame->speedup_top)));
    (void)fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">GPUs</text>\n"
                       "<text x=\"20\" y=\"%.1f\" text-anchor=\"middle\" transform=\"rotate(-90 20 %.1f)\">speed-up</text>\n",
                  LEFT + WIDTH / 2, TOP + HEIGHT + 36, TOP + HEIGHT / 2, TOP + HEIGHT / 2);
}

static void mode_draw(const struct plan_table *table, const struct frame *frame, plan_mode mode, uint32_t place, FILE *out)
{
    const struct plan_row *last = NULL;
    (void)fprintf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colours[mode]);
    for (uint32_t i = 0; i < table->row_count; i++) {
        const struct plan_row *row = &table->rows[i];
        if (!row->known || (row->mode != mode)) continue;
        (void)fprintf(out, "%.1f,%.1f ", x_of(frame, row->gpus), y_of(frame, row->speedup));
        last = row;
    }
    (void)fprintf(out, "\"/>\n");
    if (last == NULL) return;
    for (uint32_t i = 0; i < table->row_count; i++) {
        const struct plan_row *row = &table->rows[i];
        if (!row->known || (row->mode != mode)) continue;
        (void)fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"><title>%s, %u GPUs: %.2fx, "
                           "%.3f ms a step, %.3f ms of it exposed</title></circle>\n",
                      x_of(frame, row->gpus), y_of(frame, row->speedup), colours[mode], plan_mode_name(mode), row->gpus,
                      row->speedup, row->step_s * 1e3, row->exposed_s * 1e3);
    }
    (void)fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"%s\"/>"
                       "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                  LEFT + WIDTH + 16, TOP + 20.0 * place, colours[mode], LEFT + WIDTH + 34, TOP + 20.0 * place + 10,
                  plan_mode_name(mode));
}

void plan_svg(const struct plan_table *table, FILE *out)
{
    struct frame frame = frame_of(table);
    (void)fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\" "
                       "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text x=\"%.1f\" y=\"26\" "
                       "font-size=\"15\">", LEFT + WIDTH + RIGHT, TOP + HEIGHT + 50, LEFT);
    text_print(out, table->model->name);
    (void)fprintf(out, " on ");
    text_print(out, table->cluster->name);
    (void)fprintf(out, ", predicted</text>\n");
    axes_draw(&frame, out);
    for (uint32_t mode = 0; mode < PLAN_MODE_COUNT; mode++) mode_draw(table, &frame, (plan_mode)mode, mode, out);
    (void)fprintf(out, "</svg>\n");
}
