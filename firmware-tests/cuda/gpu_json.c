/* See gpu_program.h. What was found before a program failed is written too. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "firmware-tests/cuda/gpu_program.h"

static const char *path, *status = "failed";
static FILE *rows;
static char *text;
static size_t text_bytes;
static bool is_begun;

static void write_out(void)
{
    if (path == NULL) return;
    FILE *file = fopen(path, "w");
    if ((fclose(rows) != 0) || (file == NULL) ||
        (fprintf(file, "%s],\"status\":\"%s\"}\n", text, status) < 0) || (fclose(file) != 0))
        fprintf(stderr, "%s: cannot be written\n", path);
    free(text);
}

void gpu_json_open(const char *to, const char *program)
{
    if (to == NULL) return;
    path = to;
    rows = open_memstream(&text, &text_bytes);
    if ((rows == NULL) || (atexit(write_out) != 0)) abort();
    fprintf(rows, "{\"program\":\"%s\",\"rows\":[", program);
}

void gpu_json_row(const char *format, ...)
{
    va_list arguments;
    if (path == NULL) return;
    va_start(arguments, format);
    fprintf(rows, "%s{", is_begun ? "," : "");
    vfprintf(rows, format, arguments);
    fprintf(rows, "}");
    va_end(arguments);
    is_begun = true;
}

void gpu_json_forget(void)
{
    path = NULL;
}

void gpu_json_status(const char *said)
{
    status = said;
}
