/* Device memory as UCX sees it. A UCX without CUDA takes a device's address for one of the host: it
 * would read there, or accept it. So none reaches UCP unless all of this holds:
 *     link.transports names one for CUDA (cuda_copy), because UCX leaves out what is not named,
 *         whatever it was built with
 *     CUDA is among the memory types of the context that was opened with it
 *     UCX has registered the arena that it was given at open, as CUDA memory; a UCX that cannot
 *         would stage each message in memory of its own
 *     the address is one of that arena
 * A registration succeeds as soon as one of UCX's memory domains gives one, which may be the one
 * that copies and not the card's (openucx/ucx issue 7989), and UCX 1.18.1 may register by dmabuf
 * and not use it (issue 10929): what is measured decides then (gf-perf). 1.17 warns that it cannot
 * set SYNC_MEMOPS for memory of cuMemCreate() (issue 9895), which only copies that block would
 * need. `gf-check --preflight` looks for what a card needs.
 * Each message carries the memory type, because in a static link nothing hooks the allocations by
 * which UCX would find it. UCX copies in the CUDA context that is current on the calling thread, so
 * the device is entered around each call that may move data. Without device memory none of this
 * costs anything. */
#include "drivers/ucx/link_ucx.h"

bool gf_ucx_may_reach_device(const struct gf_link_setup *setup)
{
    return (setup->transports != NULL) && gf_ucx_any(setup->transports, GF_UCX_CUDA);
}

static bool is_registered(struct gf_ucx *ucx)
{
    ucs_status_t status =
        gf_ucx_register(ucx, (void *)(uintptr_t)ucx->setup.device, ucx->setup.device_bytes,
                        UCS_MEMORY_TYPE_CUDA, &ucx->arena);
    if (status == UCS_OK) return true;
    gf_log_line(
        &ucx->setup.log, GF_LOG_WARN,
        "link: transports %s: UCX %s cannot register %zu bytes of device memory (%s): it goes "
        "through the host's; gf-check --preflight tells whether nvidia_peermem or dmabuf is there",
        ucx->setup.transports, ucp_get_version_string(), (size_t)ucx->setup.device_bytes,
        ucs_status_string(status));
    return false;
}

void gf_ucx_device_types(struct gf_ucx *ucx, uint64_t memory_types)
{
    bool knows = (memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
    ucx->link.reaches_device = knows && is_registered(ucx);
    if (knows && !ucx->link.reaches_device) return;
    gf_log_line(&ucx->setup.log, ucx->link.reaches_device ? GF_LOG_INFO : GF_LOG_WARN,
                "link: transports %s: UCX %s %s (memory types 0x%llx)", ucx->setup.transports,
                ucp_get_version_string(),
                ucx->link.reaches_device ? "reaches device memory"
                                         : "knows no CUDA: device memory goes through the host's",
                (unsigned long long)memory_types);
}

gf_status gf_ucx_device_enter(struct gf_ucx *ucx)
{
    const struct gf_fault *fault = &ucx->setup.gpu->fault;
    if ((ucx->setup.gpu->driver->enter == NULL) ||
        (ucx->setup.gpu->driver->enter(ucx->setup.gpu) >= 0))
        return GF_OK;
    return gf_ucx_fault(ucx, GF_ERR_DEVICE, GF_RANK_NONE, fault->foreign_call, UCS_OK,
                        "the device cannot be made current for UCX: %s", fault->text);
}

void gf_ucx_device_leave(struct gf_ucx *ucx)
{
    if (ucx->setup.gpu->driver->leave == NULL) return;
    (void)ucx->setup.gpu->driver->leave(ucx->setup.gpu); /* what is wrong the next call meets too */
}

ucs_memory_type_t gf_ucx_memory_type(const struct gf_ucx *ucx, gf_mem data)
{
    bool is_device =
        ucx->link.reaches_device && (data - ucx->setup.device < ucx->setup.device_bytes);
    return is_device ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
}
