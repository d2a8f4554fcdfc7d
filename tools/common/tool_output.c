/* See tool_output.h. */
#include "tools/common/tool_output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void tool_output_begin(void)
{
    for (int number = 0; number <= 2; number++) /* read-only: writing there fails, as it does on what is closed */
        if ((fcntl(number, F_GETFD) < 0) && (open("/dev/null", O_RDONLY) < 0)) return;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
}

int tool_output_end(const char *program, int code)
{
    errno = 0;
    if ((fflush(stdout) == 0) && !ferror(stdout)) return code;
    (void)fprintf(stderr, "%s: cannot write to stdout%s%s\n", program, (errno != 0) ? ": " : "",
                  (errno != 0) ? strerror(errno) : "");
    return (code == EXIT_SUCCESS) ? EXIT_FAILURE : code;
}
