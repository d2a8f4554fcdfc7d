/* gf-train whose UCX fails once: the calls that the driver makes are met on the way to UCX
 * (--wrap), and so are requests that are under way. GF_UCX_FAIL=7 or 7:1: the seventh of them
 * fails, on rank 1 (0); GF_UCX_FAIL= says how many there were. test_link_ucx_calls.c is linked with
 * this file too and counts by itself. */
#include "firmware-tests/ucx/ucx_faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ucp/api/ucp.h>
#include <uct/api/uct.h>

uint32_t ucx_faults_countdown, ucx_faults_calls;
const char *ucx_faults_met;
static bool by_environment;

__attribute__((constructor)) static void environment_read(void)
{
    const char *text = getenv("GF_UCX_FAIL");
    const char *rank = getenv("GF_RANK");
    const char *of;
    if (text == NULL) return;
    of = strchr(text, ':');
    if (strcmp((rank != NULL) ? rank : "0", (of != NULL) ? of + 1 : "0") != 0) return;
    by_environment = true;
    ucx_faults_countdown = (uint32_t)strtoul(text, NULL, 10);
}

__attribute__((destructor)) static void calls_say(void)
{
    const char *met = (ucx_faults_met != NULL) ? ucx_faults_met : "none";
    if (by_environment) fprintf(stderr, "ucx faults: %u calls, failed %s\n", ucx_faults_calls, met);
}

static bool fails(const char *call)
{
    ucx_faults_calls++;
    if ((ucx_faults_countdown == 0) || (--ucx_faults_countdown != 0)) return false;
    ucx_faults_met = call;
    return true;
}

#define STATUS_CALL(name, parameters, arguments)                          \
    ucs_status_t __real_##name parameters;                                \
    ucs_status_t __wrap_##name parameters                                 \
    {                                                                     \
        return fails(#name) ? UCS_ERR_IO_ERROR : __real_##name arguments; \
    }

STATUS_CALL(ucp_config_read, (const char *prefix, const char *file, ucp_config_t **out),
            (prefix, file, out))
STATUS_CALL(ucp_config_modify, (ucp_config_t * config, const char *key, const char *value),
            (config, key, value))
STATUS_CALL(ucp_init_version,
            (unsigned major, unsigned minor, const ucp_params_t *params, const ucp_config_t *config,
             ucp_context_h *out),
            (major, minor, params, config, out))
STATUS_CALL(ucp_context_query, (ucp_context_h context, ucp_context_attr_t *out), (context, out))
STATUS_CALL(ucp_mem_map,
            (ucp_context_h context, const ucp_mem_map_params_t *params, ucp_mem_h *out),
            (context, params, out))
STATUS_CALL(ucp_worker_create,
            (ucp_context_h context, const ucp_worker_params_t *params, ucp_worker_h *out),
            (context, params, out))
STATUS_CALL(ucp_worker_get_efd, (ucp_worker_h worker, int *out), (worker, out))
STATUS_CALL(ucp_worker_get_address, (ucp_worker_h worker, ucp_address_t **out, size_t *bytes),
            (worker, out, bytes))
STATUS_CALL(ucp_worker_arm, (ucp_worker_h worker), (worker))
STATUS_CALL(ucp_ep_create, (ucp_worker_h worker, const ucp_ep_params_t *params, ucp_ep_h *out),
            (worker, params, out))
STATUS_CALL(uct_query_components, (uct_component_h * *out, unsigned *count), (out, count))
STATUS_CALL(uct_md_open,
            (uct_component_h component, const char *name, const uct_md_config_t *config,
             uct_md_h *out),
            (component, name, config, out))
/* A request is refused, or ends with an error. */
static ucp_send_nbx_callback_t send_ended;
static ucp_tag_recv_nbx_callback_t recv_ended;
static void send_breaks(void *handle, ucs_status_t status, void *user_data)
{
    send_ended(handle, UCS_ERR_CONNECTION_RESET, user_data);
}
static void recv_breaks(void *handle, ucs_status_t status, const ucp_tag_recv_info_t *info,
                        void *user_data)
{
    recv_ended(handle, UCS_ERR_CONNECTION_RESET, info, user_data);
}

WRAPPED(ucs_status_ptr_t, ucp_tag_send_nbx, ucp_ep_h ep, const void *data, size_t count,
        ucp_tag_t tag, const ucp_request_param_t *param)
{
    ucp_request_param_t changed = *param;
    if (fails("ucp_tag_send_nbx")) return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    if (fails("a send under way")) {
        send_ended = param->cb.send;
        changed.cb.send = send_breaks;
        changed.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    }
    return __real_ucp_tag_send_nbx(ep, data, count, tag, &changed);
}

WRAPPED(ucs_status_ptr_t, ucp_tag_recv_nbx, ucp_worker_h worker, void *data, size_t count,
        ucp_tag_t tag, ucp_tag_t mask, const ucp_request_param_t *param)
{
    ucp_request_param_t changed = *param;
    if (fails("ucp_tag_recv_nbx")) return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    if (fails("a receive under way")) {
        recv_ended = param->cb.recv;
        changed.cb.recv = recv_breaks;
    }
    return __real_ucp_tag_recv_nbx(worker, data, count, tag, mask, &changed);
}

WRAPPED(ucs_status_ptr_t, ucp_worker_flush_nbx, ucp_worker_h worker,
        const ucp_request_param_t *param)
{
    if (fails("ucp_worker_flush_nbx")) return UCS_STATUS_PTR(UCS_ERR_IO_ERROR);
    return __real_ucp_worker_flush_nbx(worker, param);
}
