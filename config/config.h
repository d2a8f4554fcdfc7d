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
 * device.driver, or for rendezvous.address on the launcher). GF_OK, or GF_ERR_CONFIG with one line
 * in error_out[GF_CONFIG_ERROR_BYTES]: file, line, key, what is allowed. Unknown keys, wrong types,
 * values out of range, a directory, a file over 1 MiB, NUL bytes are refused. A host name in
 * rendezvous.address is resolved here (may block as getaddrinfo does); one that is not known yet
 * stays, and config.resolve, which all of these calls set, lets gf_open() ask again. *config_out is
 * untouched on failure. NULL is GF_ERR_PARAM. */
gf_status gf_config_load(const char *path, struct gf_config *config_out, char *error_out);

/* One "group.key=value" over a loaded configuration, checked like a line of a file; `origin` stands
 * in the error for the file ("--wire", "gf-train"). NULL for any of them is GF_ERR_PARAM. */
gf_status gf_config_set(struct gf_config *config, const char *key, const char *value,
                        const char *origin, char *error_out);
/* texts[count] "group.key=value", in their order; what is asked of keys together is asked once all
 * are set. NULL, also in texts[], is GF_ERR_PARAM. */
gf_status gf_config_set_all(struct gf_config *config, const char *const *texts, uint32_t count,
                            const char *origin, char *error_out);

/* From a file to a context, for gf_open_wait() or gf_open_poll() next: gf_config_load(), *own over
 * it, gf_config_need(), gf_measure() and gf_open() in one; blocks as the first and the last of them
 * do, and gives what they give.
 * path: a file that is there: GF_ERR_CONFIG where it is missing, GF_ERR_PARAM where it is NULL.
 * own: what the program sets itself. Each member that is not zero stands over the file's; what no
 * file has (log, drivers, state_extra, pool_order) is taken from it. So it cannot set a value to
 * zero or false. What would be wrong in silence has a flag of its own or a number that is not zero:
 *     optimizer.kind none           GF_NEED_OWN_OPTIMIZER
 *     loss_scale.enabled false      GF_NEED_NO_LOSS_SCALE
 *     sparse.enabled false          GF_NEED_DENSE
 *     exchange.average sum          GF_AVERAGE_SUM is 1
 *     device.ordinal 0              GF_ORDINAL(0) is 1
 * Any other (a wire of fp32, a clip_norm of 0, a constant rate, not elastic ..) is for the operator
 * to choose; where it is not, gf_config_load(), gf_config_set() and gf_open() are called instead.
 * Read during the call only.
 * needs: GF_NEED_.., or 0.
 * take(): memory, size_bytes of it and so aligned, or NULL, which is GF_ERR_SYSTEM; aligned_alloc()
 * is such a function. It is called once at most, and *memory_out is what it gave, the program's
 * again after gf_close(), also where this call fails; NULL if it was not called.
 * Why it failed is logged by own->log, and not given back. GF_ERR_PARAM: a pointer is NULL. */
typedef void *(*gf_memory_take)(size_t alignment, size_t size_bytes);
gf_status gf_open_file(const char *path, const struct gf_config *own, uint32_t needs,
                       const struct gf_tensor *tensors, uint32_t tensor_count, gf_memory_take take,
                       void **memory_out, gf_context **gf_out);

/* gf_open_file() for a program that has no struct gf_config: settings are text, and why it failed
 * is an output. For bindings of other languages; see gf_struct_bytes(), gf_error_text() and the
 * waits with a bound.
 * path: a file, or NULL: none, each key has its default.
 * texts[text_count]: "group.key=value", as gf_config_set_all() takes them; NULL where text_count is
 * 0. They stand over the file, a later one over an earlier one. Rank, world, job and address of the
 * environment stand over both, unless "job.ignore_environment=true" is among them. The file must be
 * valid by itself.
 * needs: GF_NEED_.., or 0.
 * tensors[tensor_count], pool_order[tensor_count] or NULL, state_extra[state_extra_count] or NULL:
 * as in gf_open() and struct gf_config; the tables are read during the call only, what
 * state_extra[].data points to stays the program's, in place until gf_close().
 * log, log_user: as in struct gf_config, until gf_close(); log may be NULL.
 * take(), memory_out: as in gf_open_file().
 * error_out[GF_CONFIG_ERROR_BYTES]: why this call failed, one line; "" where it has not.
 * Blocks: for the file, for names in rendezvous.address as getaddrinfo() does, and as gf_open().
 * Valid at any time, in any thread.
 * Returns GF_OK: *gf_out is a context for gf_open_wait_for() and its like. GF_ERR_PARAM: a pointer
 * is NULL, or as gf_open(); GF_ERR_CONFIG: file, text, combination or needs; GF_ERR_SYSTEM: take()
 * gave NULL, or as gf_open(); the others as gf_open(). Each is logged, too. Where *gf_out is not
 * NULL after an error it is a failed context, for gf_close(). */
gf_status gf_open_text(const char *path, const char *const *texts, uint32_t text_count,
                       uint32_t needs, const struct gf_tensor *tensors, uint32_t tensor_count,
                       const uint32_t *pool_order, const struct gf_state_extra *state_extra,
                       uint32_t state_extra_count, gf_log_fn log, void *log_user,
                       gf_memory_take take, char *error_out, void **memory_out,
                       gf_context **gf_out);

/* The effective configuration as a libconfig file, each key with what is allowed, defaults filled
 * in. What the file at `path` sets is marked; NULL: nothing is. Prints nothing where config or out
 * is NULL. */
void gf_config_print(const struct gf_config *config, const char *path, FILE *out);
/* The key table as a Markdown table. Prints nothing where out is NULL. */
void gf_config_print_table(FILE *out);

#ifdef __cplusplus
}
#endif
#endif
