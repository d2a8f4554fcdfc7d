/* See tool_output.h. */
#include "tools/common/tool_output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drivers/base/bytes.h"

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

size_t tool_letter(const char *text, char letter_out[static TOOL_LETTER_BYTES])
{
    const size_t bytes = gf_utf8_bytes(text, strnlen(text, TOOL_LETTER_BYTES - 1));
    if (bytes > 0) {
        memcpy(letter_out, text, bytes);
        letter_out[bytes] = '\0';
        return bytes;
    }
    (void)snprintf(letter_out, TOOL_LETTER_BYTES, "\\x%02x", (unsigned char)text[0]);
    return 1;
}

void tool_plain_text(const char *text, char *out, size_t out_bytes)
{
    char letter[TOOL_LETTER_BYTES];
    size_t used = 0;
    while (*text != '\0') {
        text += tool_letter(text, letter);
        const size_t bytes = strlen(letter);
        if (used + bytes >= out_bytes) break;
        memcpy(out + used, letter, bytes);
        used += bytes;
    }
    out[used] = '\0';
}

void tool_json_text(FILE *out, const char *text)
{
    char letter[TOOL_LETTER_BYTES];
    (void)fputc('"', out);
    while (*text != '\0') {
        text += tool_letter(text, letter);
        if ((letter[0] == '"') || (letter[0] == '\\')) (void)fputc('\\', out);
        (void)fputs(letter, out);
    }
    (void)fputc('"', out);
}
