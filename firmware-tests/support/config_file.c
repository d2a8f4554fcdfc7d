/* See config_file.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/config_file.h"

#include <unistd.h>

static char folder[] = "/tmp/gf-test-config-XXXXXX";
char file_path[64];
char file_error[GF_CONFIG_ERROR_BYTES];

void file_write(const void *bytes, size_t size)
{
    FILE *file = fopen(file_path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

void file_error_check(int line, const char *part)
{
    char where[80];
    (void)snprintf(where, sizeof where, line ? "%s:%d: " : "%s: ", file_path, line);
    if ((strncmp(file_error, where, strlen(where)) != 0) || (strstr(file_error, part) == NULL) ||
        (strchr(file_error, '\n') != NULL))
        fail_msg("wanted \"%s\" and \"%s\", got \"%s\"", where, part, file_error);
}

int file_folder_make(void **state)
{
    if (mkdtemp(folder) == NULL) return -1;
    (void)snprintf(file_path, sizeof file_path, "%s/a.cfg", folder);
    return 0;
}

int file_folder_remove(void **state)
{
    (void)unlink(file_path);
    return rmdir(folder);
}
