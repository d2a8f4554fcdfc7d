/* A libconfig file to struct gf_config. The library itself does not need libconfig. */
#ifndef GF_CONFIG_H
#define GF_CONFIG_H

#include <stdio.h>

#include "gradientflow.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GF_CONFIG_ERROR_BYTES 512
#define GF_CONFIG_FILE_BYTES_MAX (1u << 20)

/* Reads path into *config_out (whole; defaults where the file is silent, but 0 where they depend on
 * device.driver). GF_OK, or GF_ERR_CONFIG with one line in error_out[GF_CONFIG_ERROR_BYTES]: file,
 * line, key, what is allowed. Unknown keys, wrong types, values out of range, a directory, a file
 * over 1 MiB, NUL bytes are refused. Host names in rendezvous.address are resolved here (may block
 * as getaddrinfo does). *config_out is untouched on failure. NULL is GF_ERR_PARAM. */
gf_status gf_config_load(const char *path, struct gf_config *config_out, char *error_out);

/* One "group.key=value" over a loaded configuration, checked like a line of a file; `origin` stands
 * in the error for the file ("--wire", "gf-train"). */
gf_status gf_config_set(struct gf_config *config, const char *key, const char *value,
                        const char *origin, char *error_out);
/* texts[count] "group.key=value", in their order; what is asked of keys together is asked once all
 * are set. */
gf_status gf_config_set_all(struct gf_config *config, const char *const *texts, uint32_t count,
                            const char *origin, char *error_out);

/* The effective configuration as a libconfig file, each key with what is allowed, defaults filled
 * in. What the file at `path` sets is marked; NULL: nothing is. */
void gf_config_print(const struct gf_config *config, const char *path, FILE *out);
/* The key table as a Markdown table. */
void gf_config_print_table(FILE *out);

#ifdef __cplusplus
}
#endif
#endif
