/* A libconfig file to struct gf_config. The only code that sees libconfig; the library itself does not need it. */
#ifndef GF_CONFIG_H
#define GF_CONFIG_H

#include <stdio.h>

#include "gradientflow.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GF_CONFIG_ERROR_BYTES 512
#define GF_CONFIG_FILE_BYTES_MAX (1u << 20)

/* Reads path into *config_out (whole; defaults where the file is silent, but 0 where they depend on device.driver).
 * GF_OK, or GF_ERR_CONFIG with one line in error_out[GF_CONFIG_ERROR_BYTES]: file, line, key, what is allowed. Unknown
 * keys, wrong types, values out of range, a directory, a file over 1 MiB, NUL bytes are refused. Host names in
 * rendezvous.address are resolved here (may block as getaddrinfo does). *config_out is untouched on failure. */
gf_status gf_config_load(const char *path, struct gf_config *config_out, char *error_out);

/* One "group.key=value" over a loaded configuration, checked like a line of a file; `origin` stands in the error for
 * the file ("--wire", "gf-train"). */
gf_status gf_config_set(struct gf_config *config, const char *key, const char *value, const char *origin,
                        char *error_out);
/* texts[count] "group.key=value", in their order; what is asked of keys together is asked once all are set. */
gf_status gf_config_set_all(struct gf_config *config, const char *const *texts, uint32_t count, const char *origin,
                            char *error_out);

/* The effective configuration as a libconfig file, each key with what is allowed, defaults filled in. What the file at
 * `path` sets is marked; NULL: nothing is. */
void gf_config_print(const struct gf_config *config, const char *path, FILE *out);
/* The key table as a Markdown table. */
void gf_config_print_table(FILE *out);

/* tensors = ( { name = "fc1"; shape = [512, 3136]; flags = ["dense", "no_decay"]; type = "fp32" }, .. ), backward
 * order. Fills tensors[tensor_max] and names[tensor_max][48]; GF_ERR_CONFIG with a line as above. */
gf_status gf_config_tensors(const char *path, struct gf_tensor *tensors, char (*names)[48], uint32_t tensor_max,
                            uint32_t *tensor_count_out, char *error_out);

/* What a layer computes for one image or sequence, a multiply and an add being 2. It stands at the tensor that ends
 * with it in backward: when that one is ready, so much has been computed since the last tensor that has any. */
struct gf_config_flops {
    uint64_t forward, backward;
    uint64_t inputs;  /* values that enter the layer. Where `input` is not given: those of a fully connected layer, or of a
                       * convolution that keeps the size of its picture; 0 where there are no flops */
};
/* The same table with its optional `flops = [forward, backward]` and `input = N` in flops[tensor_max], 0 where there is none; flops may
 * be NULL. */
gf_status gf_config_model(const char *path, struct gf_tensor *tensors, char (*names)[48],
                          struct gf_config_flops *flops, uint32_t tensor_max, uint32_t *tensor_count_out,
                          char *error_out);

#ifdef __cplusplus
}
#endif
#endif
