/* From a configuration file to an open context, for a program that sets little of its own. */
#include <string.h>

#include "config/config_source.h"
#include "drivers/fault.h"
#include "lib/settings/settings.h"

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
}

static gf_status refuse(const struct gf_config *own, gf_status status, const char *text)
{
    if (own->log != NULL) own->log(own->log_user, GF_LOG_ERROR, text);
    return status;
}

gf_status gf_open_file(const char *path, const struct gf_config *own, uint32_t needs,
                       const struct gf_tensor *tensors, uint32_t tensor_count, gf_memory_take take,
                       void **memory_out, gf_context **gf_out)
{
    struct gf_config config;
    struct gf_footprint footprint;
    char error[GF_CONFIG_ERROR_BYTES];
    char why[256];
    gf_status status;
    if (memory_out != NULL) *memory_out = NULL;
    if (gf_out != NULL) *gf_out = NULL;
    if (own == NULL) return GF_ERR_PARAM;
    if ((take == NULL) || (memory_out == NULL) || (gf_out == NULL))
        return refuse(own, GF_ERR_PARAM, "gf_open_file: take, memory_out or gf_out is NULL");
    if ((status = gf_config_load(path, &config, error)) != GF_OK) return refuse(own, status, error);
    own_take(own, &config);
    if (gf_config_need(&config, needs, why) != GF_OK)
        return refuse(own, gf_source_refuse(error, path, 0, "%s", why), error);
    if ((status = gf_measure(&config, tensors, tensor_count, &footprint)) != GF_OK) return status;
    *memory_out = take(64, footprint.control_bytes);
    if (*memory_out == NULL) return refuse(own, GF_ERR_SYSTEM, "gf_open_file: no memory was given");
    return gf_open(&config, tensors, tensor_count, *memory_out, footprint.control_bytes, gf_out);
}
