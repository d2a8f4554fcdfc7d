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
    /* read-only: writing there fails, as it does on what is closed */
    for (int number = 0; number <= 2; number++)
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

int tool_letter_bytes(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    int bytes = (at[0] < 0x80)   ? (at[0] >= 0x20) && (at[0] != 0x7f)
                : (at[0] < 0xc2) ? 0
                : (at[0] < 0xe0) ? 2
                : (at[0] < 0xf0) ? 3
                : (at[0] < 0xf5) ? 4
                                 : 0;
    for (int i = 1; i < bytes; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    if ((at[0] == 0xe0) && (at[1] < 0xa0)) return 0;         /* longer than need be */
    return ((at[0] == 0xed) && (at[1] >= 0xa0)) ? 0 : bytes; /* half of a pair of UTF-16 */
}

void tool_json_text(FILE *out, const char *text)
{
    (void)fputc('"', out);
    for (; *text != '\0'; text++) {
        int bytes = tool_letter_bytes(text);
        if ((*text == '"') || (*text == '\\')) (void)fputc('\\', out);
        (void)fprintf(out, "%.*s", (bytes > 0) ? bytes : 1, (bytes > 0) ? text : "?");
        if (bytes > 1) text += bytes - 1;
    }
    (void)fputc('"', out);
}
