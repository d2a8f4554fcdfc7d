/* A configuration file of a test's own, and what an error about it looks like. */
#ifndef CONFIG_FILE_H
#define CONFIG_FILE_H

#include "config/config_keys.h"

extern char file_path[64];
extern char file_error[GF_CONFIG_ERROR_BYTES]; /* where tests have errors written */

void file_write(const void *bytes, size_t size);
/* The error begins with the file (and line, unless 0), holds `part`, and is one line. */
void file_error_check(int line, const char *part);
/* What gf_config_load() says of a file with this text. */
gf_status file_load(const char *text, struct gf_config *config_out);
/* It refuses it, with such an error, and leaves the configuration alone. */
void file_refused(const char *text, int line, const char *part);
/* Set-up and teardown of a group: a folder for it. */
int file_folder_make(void **state);
int file_folder_remove(void **state);

#endif
