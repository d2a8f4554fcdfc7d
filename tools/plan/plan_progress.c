/* How far a long table is: on a terminal, or where --progress asks for it. */
#include <unistd.h>

#include "tools/common/tool_clock.h"
#include "tools/plan/plan.h"

#define SILENT_S 2.0 /* a short run needs no such line */

void plan_progress_begin(struct plan_progress *progress, bool is_asked, uint32_t row_count)
{
    bool terminal = isatty(STDERR_FILENO) == 1;
    *progress = (struct plan_progress){.shows = terminal || is_asked, .is_asked = is_asked,
                                       .row_count = row_count, .begin_ns = tool_clock_ns()};
}

/* Each of n ranks sends to the others in turn: a row takes about as n^2. */
void plan_progress_expect(struct plan_progress *progress, uint32_t gpus) { progress->all += (double)gpus * gpus; }

void plan_progress_row(struct plan_progress *progress, uint32_t gpus)
{
    double passed_s = (double)(tool_clock_ns() - progress->begin_ns) * 1e-9, left_s;
    progress->done += (double)gpus * gpus;
    progress->rows++;
    left_s = passed_s * (progress->all / progress->done - 1) + 0.5;
    if (!progress->shows || ((passed_s < SILENT_S) && !progress->is_asked)) return;
    (void)fprintf(stderr, "gf-plan: %u of %u rows, about %.0f:%02u left\n", progress->rows, progress->row_count,
                  (left_s - (double)((uint64_t)left_s % 60)) / 60, (unsigned)((uint64_t)left_s % 60));
}
