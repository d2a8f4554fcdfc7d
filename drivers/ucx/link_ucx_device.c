/* Device memory as UCX sees it. To a UCX without CUDA a device's address is one of the host's: it would read there, or
 * call it good. So none reaches UCP unless all of this holds:
 *     link.transports names one for CUDA (cuda_copy): UCX leaves out what is not named, whatever it was built with
 *     CUDA is among the memory types of the context that came of it
 *     the address is one of the arena that was told at open
 * The type is said with each message, for in a static link nothing hooks the allocations by which UCX would find it.
 * UCX copies in the CUDA context that is current on the calling thread, so the device is entered around each call that
 * may move something. Where no device memory is reached nothing of this costs anything. */
#include "drivers/ucx/link_ucx.h"

static bool names_cuda(const char *transports)
{
    for (size_t i = 0; i < GF_UCX_CUDA_NAMES; i++)
        if (gf_ucx_list_has(transports, gf_ucx_cuda_names[i])) return true;
    return false;
}

const char *const gf_ucx_cuda_names[GF_UCX_CUDA_NAMES] = {"cuda", "cuda_copy", "cuda_ipc", "gdr_copy"};

bool gf_ucx_may_reach_device(const struct gf_link_setup *setup)
{
    return (setup->transports != NULL) && names_cuda(setup->transports);
}

void gf_ucx_device_ask(struct gf_ucx *ucx, const struct gf_link_setup *setup)
{
    if ((setup->gpu == NULL) || (setup->device_bytes == 0) || !gf_ucx_may_reach_device(setup)) return;
    ucx->gpu = setup->gpu;
    ucx->device = setup->device;
    ucx->device_bytes = setup->device_bytes;
}

void gf_ucx_device_types(struct gf_ucx *ucx, uint64_t memory_types)
{
    if (ucx->gpu == NULL) return;
    ucx->link.reaches_device = (memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
    if (ucx->link.reaches_device) {
        gf_log_line(&ucx->log, GF_LOG_INFO, "link: UCX reaches device memory (memory types 0x%llx)",
                    (unsigned long long)memory_types);
        return;
    }
    gf_log_line(&ucx->log, GF_LOG_WARN, "link: transports %s, but UCX %s knows no CUDA (memory types 0x%llx): "
                "device memory goes through the host's", ucx->transports, ucp_get_version_string(),
                (unsigned long long)memory_types);
}

void gf_ucx_device_forget(struct gf_ucx *ucx)
{
    if (!ucx->link.reaches_device) ucx->gpu = NULL;
}

gf_status gf_ucx_device_enter(struct gf_ucx *ucx)
{
    const struct gf_fault *fault = &ucx->gpu->fault;
    if ((ucx->gpu->driver->enter == NULL) || (ucx->gpu->driver->enter(ucx->gpu) >= 0)) return GF_OK;
    return gf_ucx_fault(ucx, GF_ERR_DEVICE, GF_RANK_NONE, fault->foreign_call, UCS_OK,
                        "the device cannot be made current for UCX: %s", fault->text);
}

void gf_ucx_device_leave(struct gf_ucx *ucx)
{
    if (ucx->gpu->driver->leave == NULL) return;
    (void)ucx->gpu->driver->leave(ucx->gpu); /* what is wrong the next call meets too */
}

ucs_memory_type_t gf_ucx_memory_type(const struct gf_ucx *ucx, gf_mem data)
{
    bool is_device = ucx->link.reaches_device && (data - ucx->device < ucx->device_bytes);
    return is_device ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
}
