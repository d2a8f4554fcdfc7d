/* Reading a file and looking it over before libconfig does.
 *
 * libconfig 1.5 cuts numbers to 32 bits without a word, takes an unended comment for the end of the
 * file, follows @include anywhere and recurses as deep as the text says. One pass over the text
 * refuses all of that by line. */
#include "config/config_source.h"
#include "config/config_syntax.h"
#include "drivers/base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

gf_status gf_source_refuse(char *error_out, const char *origin, int line, const char *format, ...)
{
    char where[16] = "";
    va_list arguments;
    int used;
    if (line > 0) (void)snprintf(where, sizeof where, ":%d", line);
    used = snprintf(error_out, GF_CONFIG_ERROR_BYTES, "%.160s%s: ", origin, where);
    va_start(arguments, format);
    (void)vsnprintf(error_out + used, GF_CONFIG_ERROR_BYTES - (size_t)used, format, arguments);
    va_end(arguments);
    for (char *at = error_out; *at != '\0'; at++)
        if (((unsigned char)*at < 0x20) || (*at == 0x7f)) *at = '?'; /* a quoted value; one line */
    return GF_ERR_CONFIG;
}

/* Reads the open regular file; the text is one byte longer than asked for if the file grew
 * meanwhile. */
static gf_status file_read(int file, const char *path, size_t bytes_max, char *text,
                           size_t *bytes_out, char *error_out)
{
    size_t used = 0;
    for (;;) {
        ssize_t got = read(file, text + used, bytes_max + 1 - used);
        if ((got < 0) && (errno == EINTR)) continue;
        if (got < 0)
            return gf_source_refuse(error_out, path, 0, "cannot be read: %s", strerror(errno));
        used += (size_t)got;
        if (used > bytes_max)
            return gf_source_refuse(error_out, path, 0,
                                    "is larger than %zu bytes, the most allowed", bytes_max);
        if (got == 0) break;
    }
    /* libconfig takes a comment in the last line only with a line end */
    memcpy(text + used, "\n", 2);
    *bytes_out = used;
    return GF_OK;
}

/* The file's text with a NUL after it, malloc'd, the caller's to free. */
static gf_status source_read(const char *path, size_t bytes_max, char **text_out, size_t *bytes_out,
                             char *error_out)
{
    struct stat about;
    gf_status status;
    char *text;
    /* a FIFO without a writer would block */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return gf_source_refuse(error_out, path, 0, "cannot be opened: %s", strerror(errno));
    if (fstat(file, &about) != 0) {
        status = gf_source_refuse(error_out, path, 0, "cannot be looked at: %s", strerror(errno));
    } else if (S_ISDIR(about.st_mode)) {
        status = gf_source_refuse(error_out, path, 0, "is a directory; allowed is a regular file");
    } else if (!S_ISREG(about.st_mode)) {
        status = gf_source_refuse(error_out, path, 0, "is not a regular file");
    } else if ((uint64_t)about.st_size > bytes_max) {
        status = gf_source_refuse(error_out, path, 0, "has %lld bytes; allowed are at most %zu",
                                  (long long)about.st_size, bytes_max);
    } else if ((text = malloc(bytes_max + 2)) == NULL) {
        status = gf_source_refuse(error_out, path, 0, "no memory to read it");
    } else {
        status = file_read(file, path, bytes_max, text, bytes_out, error_out);
        if (status == GF_OK)
            *text_out = text;
        else
            free(text);
    }
    (void)close(file);
    return status;
}

struct scan {
    const char *at, *end;
    int line;
    int depth;
    const char *origin;
    char *error_out;
};

/* Over a comment or a string, which may hold line ends; `length` is its opening's. */
static gf_status enclosed_skip(struct scan *scan, size_t length, const char *closing)
{
    const int line = scan->line;
    size_t closing_length = strlen(closing);
    bool escapes = closing[0] == '"';
    for (scan->at += length; scan->at < scan->end; scan->at++) {
        if (escapes && (scan->at[0] == '\\')) {
            if ((scan->at[1] == '\\') || (scan->at[1] == '"'))
                scan->at++;
            else if (((scan->at[1] | 0x20) == 'x') && (scan->at[2] == '0') && (scan->at[3] == '0'))
                return gf_source_refuse(scan->error_out, scan->origin, scan->line,
                                        "\\x00 would end the string early");
            continue;
        }
        if (strncmp(scan->at, closing, closing_length) == 0) {
            scan->at += closing_length;
            return GF_OK;
        }
        if (scan->at[0] == '\n') scan->line++;
    }
    return gf_source_refuse(scan->error_out, scan->origin, line,
                            "the %s that begins here has no end", escapes ? "string" : "comment");
}

/* Over a number; whole ones must fit what libconfig keeps of them. */
static gf_status number_skip(struct scan *scan)
{
    const char *digits = scan->at;
    const char *end;
    bool hex = (digits[0] == '0') && ((digits[1] | 0x20) == 'x');
    if (hex) digits += 2;
    end = digits + strspn(digits, hex ? "0123456789abcdefABCDEF" : "0123456789");
    if (!hex && ((*end == '.') || (*end == 'e') || (*end == 'E'))) {
        scan->at = end + strspn(end, "0123456789.eE+-");
        return GF_OK;
    }
    if (strtoull(digits, NULL, hex ? 16 : 10) > ((*end == 'L') ? INT64_MAX
                                                 : hex         ? UINT32_MAX
                                                               : INT32_MAX))
        return gf_source_refuse(scan->error_out, scan->origin, scan->line,
                                "the number %.*s does not fit %s",
                                (int)((end - digits > 40) ? 40 : end - digits), digits,
                                (*end == 'L') ? "64 bits" : "32 bits; write an L after it");
    scan->at = end + strspn(end, "L");
    return GF_OK;
}

static gf_status token_skip(struct scan *scan)
{
    static const char name[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_*-";
    char c = scan->at[0];
    char next = scan->at[1];
    int line = scan->line;
    if ((c == '#') || ((c == '/') && (next == '/'))) {
        scan->at += strcspn(scan->at, "\n");
    } else if ((c == '/') && (next == '*')) {
        return enclosed_skip(scan, 2, "*/");
    } else if (c == '"') {
        return enclosed_skip(scan, 1, "\"");
    } else if ((c >= '0') && (c <= '9')) {
        return number_skip(scan);
    } else if (c == '.') { /* a float such as .5 */
        scan->at += strspn(scan->at, "0123456789.eE+-");
    } else if (strchr("({[", c) != NULL) {
        if (++scan->depth > GF_CONFIG_DEPTH_MAX)
            return gf_source_refuse(scan->error_out, scan->origin, line,
                                    "more than %d brackets deep", GF_CONFIG_DEPTH_MAX);
        scan->at++;
    } else if (strchr(")}]", c) != NULL) {
        scan->depth--;
        scan->at++;
    } else if (c == '@') {
        return gf_source_refuse(scan->error_out, scan->origin, line,
                                "@include is not allowed: one file says it all");
    } else if ((c != '-') && (c != '*') && (strchr(name, c) != NULL)) {
        scan->at += strspn(scan->at, name);
    } else {
        scan->line += (c == '\n');
        scan->at++;
    }
    return GF_OK;
}

/* What the library and its recipes write, which is easily handed over in a configuration's
 * place. */
static const char *made_of(const char *text)
{
    if (strncmp(text, "GFSTATE\n", 8) == 0) return "; it is a saved state, for gf_state_load()";
    if (strncmp(text, GF_TRACE_MAGIC, 8) == 0) return "; it is a trace, for gf-trace";
    return "";
}

gf_status gf_source_check(const char *text, size_t bytes, const char *origin, char *error_out)
{
    struct scan scan = {
        .at = text, .end = text + bytes, .line = 1, .origin = origin, .error_out = error_out};
    gf_status status = GF_OK;
    int line = 1;
    if (strncmp(text, "\xef\xbb\xbf", 3) == 0)
        return gf_source_refuse(error_out, origin, line,
                                "begins with a byte order mark: save it as UTF-8 without one");
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        line += (c == '\n');
        /* a comment would not end there; two before a line feed are harmless */
        if ((c == '\r') && (text[i + 1] != '\n') && (text[i + 1] != '\r'))
            return gf_source_refuse(error_out, origin, line,
                                    "a carriage return stands without a line feed: save it with "
                                    "the line ends of Unix or Windows");
        if (((c < 0x20) && (strchr("\t\n\r\f", c) == NULL)) || (c == 0) || (c == 0x7f))
            return gf_source_refuse(error_out, origin, line,
                                    "is not a text file: it holds a byte 0x%02x%s", c,
                                    made_of(text));
    }
    if (strspn(text, " \t\n\r\f") >= bytes)
        return gf_source_refuse(error_out, origin, 0, "is empty");
    while ((status == GF_OK) && (scan.at < scan.end)) status = token_skip(&scan);
    return status;
}

gf_status gf_tree_parse(const char *text, const char *origin, config_t *tree_out, char *error_out)
{
    gf_status status = GF_OK;
    /* libconfig reads under the C locale and puts the global one back, not the thread's own */
    locale_t before = uselocale((locale_t)0);
    config_init(tree_out);
    int read = config_read_string(tree_out, text);
    (void)uselocale(before);
    if (read != CONFIG_TRUE) {
        char why[GF_SYNTAX_BYTES];
        int line = config_error_line(tree_out);
        gf_syntax_explain(text, line, why);
        status = gf_source_refuse(error_out, origin, line, "%s%s%s", config_error_text(tree_out),
                                  (why[0] != '\0') ? ": " : "", why);
        config_destroy(tree_out);
    }
    return status;
}

gf_status gf_tree_read(const char *path, size_t bytes_max, config_t *tree_out, char *error_out)
{
    char *text = NULL;
    size_t bytes = 0;
    gf_descriptors_hold();
    gf_status status = source_read(path, bytes_max, &text, &bytes, error_out);
    if (status != GF_OK) return status;
    status = gf_source_check(text, bytes, path, error_out);
    if (status == GF_OK) status = gf_tree_parse(text, path, tree_out, error_out);
    free(text);
    return status;
}
