/* The log for a program that has none of its own. No other file of the library refers to it;
 * `make audit` checks that. */
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "gradientflow.h"

static gf_log_level level_asked_for(void)
{
    const char *asked = getenv("GF_DEBUG");
    if ((asked != NULL) && (strcmp(asked, "info") == 0)) return GF_LOG_INFO;
    return ((asked != NULL) && (strcmp(asked, "debug") == 0)) ? GF_LOG_DEBUG : GF_LOG_WARN;
}

static struct iovec part(const char *text)
{
    return (struct iovec){.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
}

void gf_log_stderr(void *user, gf_log_level level, const char *text)
{
    static const char *const names[] = {"error: ", "warning: ", "info: ", "debug: "};
    if ((text == NULL) || ((uint32_t)level >= sizeof names / sizeof *names)) return;
    const char *program = (user != NULL) ? user : "";
    const struct iovec parts[] = {part(program), part((user != NULL) ? ": " : ""),
                                  part(names[level]), part(text), part("\n")};
    if (level > level_asked_for()) return;
    /* in one call: lines stay whole */
    ssize_t written = writev(STDERR_FILENO, parts, sizeof parts / sizeof *parts);
    (void)written; /* nobody is left to be told */
}
