/* Text on its way to libconfig, and errors on their way back. For config/, its fuzzer, and the
 * tools that read files of their own. */
#ifndef GF_CONFIG_SOURCE_H
#define GF_CONFIG_SOURCE_H

#include <libconfig.h>

#include "config/config.h"

#define GF_CONFIG_DEPTH_MAX 8 /* nested brackets; a valid file needs 3 */

/* Fills error_out[GF_CONFIG_ERROR_BYTES] with "origin:line: ..", without the line where it is 0;
 * GF_ERR_CONFIG. */
__attribute__((format(printf, 4, 5))) gf_status gf_source_refuse(char *error_out,
                                                                 const char *origin, int line,
                                                                 const char *format, ...);

/* Refuses what libconfig 1.5 would misread in silence, run away with, or open by itself.
 * text[bytes] is followed by a NUL. */
gf_status gf_source_check(const char *text, size_t bytes, const char *origin, char *error_out);

/* A tree for config_destroy(), of text that it let pass, or of a file. */
gf_status gf_tree_parse(const char *text, const char *origin, config_t *tree_out, char *error_out);
gf_status gf_tree_read(const char *path, size_t bytes_max, config_t *tree_out, char *error_out);

/* The rest of gf_config_load(), from text that gf_source_check() let pass. */
gf_status gf_config_load_text(const char *text, const char *origin, struct gf_config *config_out,
                              char *error_out);

#endif
