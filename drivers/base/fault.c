/* Log lines and fault records. */
#include "drivers/base/fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void gf_log_line(const struct gf_log *log, gf_log_level level, const char *format, ...)
{
    char text[400];
    va_list arguments;
    if ((log == NULL) || (log->fn == NULL)) return;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    log->fn(log->user, level, text);
}

gf_status gf_fault_set(struct gf_fault *fault, gf_status code, uint32_t peer,
                       const char *foreign_call, int64_t foreign_code, const char *format, ...)
{
    va_list arguments;
    if ((fault == NULL) || (fault->code != GF_OK)) return code;
    fault->code = code;
    fault->peer = peer;
    fault->foreign_code = foreign_code;
    (void)snprintf(fault->foreign_call, sizeof fault->foreign_call, "%s",
                   foreign_call ? foreign_call : "");
    va_start(arguments, format);
    (void)vsnprintf(fault->text, sizeof fault->text, format, arguments);
    va_end(arguments);
    return code;
}

void gf_error_take(struct gf_error *error, const struct gf_fault *fault)
{
    error->foreign_code = fault->foreign_code;
    (void)snprintf(error->foreign_call, sizeof error->foreign_call, "%s", fault->foreign_call);
    (void)snprintf(error->text, sizeof error->text, "%s", fault->text);
}

void gf_broken(const char *where)
{
    char text[256];
    int length = snprintf(text, sizeof text, "gradientflow: broken invariant at %s\n", where);
    if (length > (int)sizeof text - 1) length = (int)sizeof text - 1;
    ssize_t written = write(STDERR_FILENO, text, (size_t)length);
    (void)written; /* nothing more can be done */
    __builtin_trap();
}
