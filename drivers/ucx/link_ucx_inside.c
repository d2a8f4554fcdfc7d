/* What UCX's public header (ucp.h) has no call for, and the link needs: all of it is here.
 *
 *     ucs_log_push_handler, _pop_handler   UCX writes its log to stdout, which is the program's
 *     ucs_global_opts_get_value, _set_     with UCX_LOG_LEVEL=error UCX is silent about a transport
 *                                          that it lacks, and opens without it
 *     ucs_debug_disable_signals            a dynamic UCX has installed handlers for SIGSEGV and its
 *                                          like before main()
 *
 * libucs exports them. The headers of the first four are installed; the last one is in none. Seen
 * to work with UCX 1.13.1 and 1.23.0, static and dynamic (firmware-tests/results/ucx.md). A release
 * without one of them does not link. */
#include "drivers/ucx/link_ucx.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <ucs/config/global_opts.h>
#include <ucs/debug/log_def.h>

/* ---- the log ---- */

static gf_log_level level_of(ucs_log_level_t level)
{
    if (level <= UCS_LOG_LEVEL_ERROR) return GF_LOG_ERROR;
    if (level == UCS_LOG_LEVEL_WARN) return GF_LOG_WARN;
    return (level <= UCS_LOG_LEVEL_INFO) ? GF_LOG_INFO : GF_LOG_DEBUG;
}

static ucs_log_func_rc_t log_from_ucx(const char *file, unsigned line, const char *function,
                                      ucs_log_level_t level,
                                      const ucs_log_component_config_t *component,
                                      const char *message, va_list arguments)
{
    char text[GF_UCX_LINE_BYTES];
    size_t used;
    (void)file;
    (void)line;
    (void)component;
    (void)snprintf(text, sizeof text, "UCX %.60s: ", function);
    used = strlen(text);
    (void)vsnprintf(text + used, sizeof text - used, message, arguments);
    gf_ucx_line_heard(level_of(level), text, text + used);
    return UCS_LOG_FUNC_RC_STOP; /* never on to UCX's own handler, which writes to stdout */
}

void gf_ucx_log_take(void)
{
    ucs_log_push_handler(log_from_ucx);
}

void gf_ucx_log_give(void)
{
    ucs_log_pop_handler();
}

/* ---- its level ---- */

static bool says_too_little(const char *level)
{
    return (strcasecmp(level, "error") == 0) || (strcasecmp(level, "fatal") == 0);
}

void gf_ucx_warnings_begin(char was_out[32])
{
    was_out[0] = '\0';
    (void)ucs_global_opts_get_value("LOG_LEVEL", was_out, 32);
    if (says_too_little(was_out)) (void)ucs_global_opts_set_value("LOG_LEVEL", "warn");
}

void gf_ucx_warnings_end(const char *was)
{
    if (says_too_little(was)) (void)ucs_global_opts_set_value("LOG_LEVEL", was);
}

/* ---- signals ---- */

#if GF_UCX_DYNAMIC

void ucs_debug_disable_signals(void);

/* libucs has installed handlers for SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGHUP. A value that the
 * user set stays. */
__attribute__((constructor(101))) static void signals_are_the_programs(void)
{
    if (getenv(GF_UCX_SIGNALS_KEY) == NULL) ucs_debug_disable_signals();
}

#endif
