/* From a configuration file, or text, to an open context, for a program that sets little of its
 * own. */
#include <string.h>

#include "config/config_source.h"
#include "drivers/base/fault.h"
#include "lib/settings/settings.h"
#include "lib/settings/with_error.h"
#include "drivers/base/arithmetic.h"

/* Each row of the table, and what no file has. */
static void own_take(const struct gf_config *own, struct gf_config *config)
{
    static const char nothing[GF_PATH_MAX_BYTES];
    for (uint32_t i = 0; i < gf_setting_count; i++) {
        const struct gf_setting *setting = &gf_settings[i];
        const char *value = (const char *)own + setting->offset;
        GF_ASSERT(setting->size <= sizeof nothing);
        if (memcmp(value, nothing, setting->size) != 0)
            memcpy((char *)config + setting->offset, value, setting->size);
    }
    config->size_bytes = own->size_bytes;
    config->log = own->log;
    config->log_user = own->log_user;
    config->drivers = own->drivers;
    config->state_extra = own->state_extra;
    config->state_extra_count = own->state_extra_count;
    config->pool_order = own->pool_order;
    if (own->resolve != NULL) config->resolve = own->resolve;
}

/* A configuration to a context. Why it failed is in error_out[GF_CONFIG_ERROR_BYTES]; not logged
 * where no context has failed. */
static gf_status config_open(const struct gf_config *config, const char *origin, uint32_t needs,
                             const struct gf_tensor *tensors, uint32_t tensor_count,
                             gf_memory_take take, char *error_out, void **memory_out,
                             gf_context **gf_out)
{
    struct gf_footprint footprint;
    char why[256] = "";
    gf_status status;
    if (gf_config_need(config, needs, why) != GF_OK)
        return gf_source_refuse(error_out, origin, 0, "%s", why);
    status = gf_measure_with_error(config, tensors, tensor_count, why, &footprint);
    if (status == GF_OK) {
        *memory_out = take(64, footprint.control_bytes);
        if (*memory_out == NULL)
            return gf_config_refuse(error_out, GF_ERR_SYSTEM, "%s: no memory was given", origin);
        status = gf_open_with_error(config, tensors, tensor_count, *memory_out,
                                    footprint.control_bytes, why, gf_out);
    }
    if (status != GF_OK)
        (void)snprintf(error_out, GF_CONFIG_ERROR_BYTES, "%s",
                       (*gf_out != NULL) ? gf_error_text(*gf_out) : why);
    return status;
}

/* What no context has logged. */
static gf_status say(const struct gf_config *config, gf_status status, const char *text,
                     const gf_context *gf)
{
    if ((status != GF_OK) && (gf == NULL) && (config->log != NULL))
        config->log(config->log_user, GF_LOG_ERROR, text);
    return status;
}

gf_status gf_open_file(const char *path, const struct gf_config *own, uint32_t needs,
                       const struct gf_tensor *tensors, uint32_t tensor_count, gf_memory_take take,
                       void **memory_out, gf_context **gf_out)
{
    GF_COMPUTES();
    struct gf_config config;
    char error[GF_CONFIG_ERROR_BYTES];
    gf_status status;
    if (memory_out != NULL) *memory_out = NULL;
    if (gf_out != NULL) *gf_out = NULL;
    if (own == NULL) return GF_ERR_PARAM;
    if ((take == NULL) || (memory_out == NULL) || (gf_out == NULL))
        return say(own, GF_ERR_PARAM, "gf_open_file: take, memory_out or gf_out is NULL", NULL);
    status = gf_config_load(path, &config, error);
    if (status == GF_OK) {
        own_take(own, &config);
        status = config_open(&config, path, needs, tensors, tensor_count, take, error, memory_out,
                             gf_out);
    }
    return say(own, status, error, *gf_out);
}

/* ---- without a struct ---- */

static const char call[] = "gf_open_text";

static gf_status texts_take(struct gf_config *config, const char *const *texts, uint32_t count,
                            char *error_out)
{
    for (uint32_t i = 0; i < count; i++)
        if ((texts == NULL) || (texts[i] == NULL))
            return gf_config_refuse(error_out, GF_ERR_PARAM, "%s: text %u of %u is NULL", call, i,
                                    count);
    return gf_config_set_all(config, texts, count, call, error_out);
}

gf_status gf_open_text(const char *path, const char *const *texts, uint32_t text_count,
                       uint32_t needs, const struct gf_tensor *tensors, uint32_t tensor_count,
                       const uint32_t *pool_order, const struct gf_state_extra *state_extra,
                       uint32_t state_extra_count, gf_log_fn log, void *log_user,
                       gf_memory_take take, char *error_out, void **memory_out, gf_context **gf_out)
{
    GF_COMPUTES();
    static const struct gf_config defaults;
    struct gf_config config = defaults;
    gf_status status = GF_OK;
    if (memory_out != NULL) *memory_out = NULL;
    if (gf_out != NULL) *gf_out = NULL;
    config.log = log;
    config.log_user = log_user;
    if (error_out == NULL)
        return say(&config, GF_ERR_PARAM, "gf_open_text: error_out is NULL", NULL);
    error_out[0] = '\0';
    if ((take == NULL) || (memory_out == NULL) || (gf_out == NULL)) {
        (void)gf_config_refuse(error_out, GF_ERR_PARAM, "%s: take, memory_out or gf_out is NULL",
                               call);
        return say(&config, GF_ERR_PARAM, error_out, NULL);
    }
    if (path != NULL) status = gf_config_load(path, &config, error_out);
    if (status == GF_OK) status = texts_take(&config, texts, text_count, error_out);
    config.log = log;
    config.log_user = log_user;
    config.pool_order = pool_order;
    config.state_extra = state_extra;
    config.state_extra_count = state_extra_count;
    if (status == GF_OK)
        status = config_open(&config, (path != NULL) ? path : call, needs, tensors, tensor_count,
                             take, error_out, memory_out, gf_out);
    return say(&config, status, error_out, *gf_out);
}
