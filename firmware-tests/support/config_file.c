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

gf_status file_load(const char *text, struct gf_config *config_out)
{
    file_write(text, strlen(text));
    file_error[0] = '\0';
    return gf_config_load(file_path, config_out, file_error);
}

void file_refused(const char *text, int line, const char *part)
{
    struct gf_config config;
    memset(&config, 0x5a, sizeof config);
    if (file_load(text, &config) != GF_ERR_CONFIG) fail_msg("not refused: %s", text);
    file_error_check(line, part);
    for (size_t i = 0; i < sizeof config; i++)
        assert_int_equal(((unsigned char *)&config)[i], 0x5a);
}
