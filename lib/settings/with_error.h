/* gf_measure() and gf_open() for a caller that reports the reason itself
 * (config/config_open.c). */
#ifndef GF_WITH_ERROR_H
#define GF_WITH_ERROR_H

#include "gradientflow.h"

/* gf_measure() and gf_open() without the log line: the reason of a refusal is in error_out[256],
 * which stays as it was on success. If a context was opened and has failed, gf_error_last() has the
 * reason. No pointer is NULL. */
gf_status gf_measure_with_error(const struct gf_config *config, const struct gf_tensor *tensors,
                                uint32_t tensor_count, char *error_out,
                                struct gf_footprint *footprint_out);
gf_status gf_open_with_error(const struct gf_config *config, const struct gf_tensor *tensors,
                             uint32_t tensor_count, void *memory, uint64_t memory_bytes,
                             char *error_out, gf_context **gf_out);

#endif
