/* See check_report.h. */
#include "tools/check/check_report.h"
#include "drivers/base/fault.h"
#include "tools/common/tool_output.h"

#include <stdarg.h>
#include <stdio.h>

static const char *const state_names[CHECK_STATE_COUNT] = {"ok", "warn", "fail", "skip"};

static void line_show(const struct check_report *report, const struct check_line *line)
{
    char who[CHECK_HOST_BYTES + 32] = "";
    if (report->rank != 0) {
        if (report->shared || ((line->state != CHECK_WARN) && (line->state != CHECK_FAIL))) return;
        (void)snprintf(who, sizeof who, "rank %u on %s: ", report->rank, report->host);
    }
    (void)printf("%-5s %-14s %s%s\n", state_names[line->state], line->name, who, line->text);
    if (line->todo[0] != '\0') (void)printf("%-20s -> %s\n", "", line->todo);
    (void)fflush(stdout); /* what follows may wait for other ranks */
}

void check_say(struct check_report *report, const char *name, check_state state, const char *todo,
               const char *format, ...)
{
    struct check_line *line = &report->lines[report->line_count++];
    va_list arguments;
    GF_ASSERT(report->line_count <= CHECK_LINES_MAX); /* check_preflight.h counts them */
    report->counts[state]++;
    report->shared_fails += report->shared && (state == CHECK_FAIL);
    line->name = name;
    line->state = state;
    va_start(arguments, format);
    (void)vsnprintf(line->text, sizeof line->text, format, arguments);
    va_end(arguments);
    (void)snprintf(line->todo, sizeof line->todo, "%s", (todo != NULL) ? todo : "");
    if (!report->json) line_show(report, line);
}

static void json_text(const char *name, const char *text)
{
    (void)printf("\"%s\":", name);
    tool_json_text(stdout, text);
}

static void json_show(const struct check_report *report)
{
    check_state worst = (report->counts[CHECK_FAIL] != 0)   ? CHECK_FAIL
                        : (report->counts[CHECK_WARN] != 0) ? CHECK_WARN
                                                            : CHECK_OK;
    (void)printf("{\"rank\":%u,\"world\":%u,", report->rank, report->world);
    json_text("host", report->host);
    (void)printf(",\"result\":\"%s\",\"lines\":[", state_names[worst]);
    for (uint32_t i = 0; i < report->line_count; i++) {
        const struct check_line *line = &report->lines[i];
        (void)printf("%s{\"check\":\"%s\",\"state\":\"%s\",", (i != 0) ? "," : "", line->name,
                     state_names[line->state]);
        json_text("text", line->text);
        (void)putchar(',');
        json_text("todo", line->todo);
        (void)putchar('}');
    }
    (void)printf("]}\n");
}

void check_report_end(const struct check_report *report)
{
    if (report->json)
        json_show(report);
    else if (report->rank == 0)
        (void)printf("preflight: %u ok, %u warn, %u fail, %u skipped\n", report->counts[CHECK_OK],
                     report->counts[CHECK_WARN], report->counts[CHECK_FAIL],
                     report->counts[CHECK_SKIP]);
}
