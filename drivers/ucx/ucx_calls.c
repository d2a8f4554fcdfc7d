/* Where UCX's calls are led. A static link leads them here by --wrap (ucx.mk), a dynamic UCX by the
 * last part of this file. Sockets are connection_proof.c's and connection.c's; the rest mends what
 * UCX does to a job. */
#include <stdlib.h>
#include <string.h>

#include <uct/api/uct.h>

#include "drivers/ucx/link_ucx.h"

#define UCX_CALLS_EACH(X)                                                      \
    X(ucs_status_t, uct_md_query_tl_resources,                                 \
      (uct_md_h domain, uct_tl_resource_desc_t * *out, unsigned *count_out),   \
      (domain, out, count_out))                                                \
    X(ucs_status_t, uct_iface_open,                                            \
      (uct_md_h domain, uct_worker_h worker, const uct_iface_params_t *params, \
       const uct_iface_config_t *config, uct_iface_h *out),                    \
      (domain, worker, params, config, out))                                   \
    X(void, ucp_ep_err_pending_purge, (uct_pending_req_t * self, void *status), (self, status))
UCX_CALLS_EACH(GF_LED_DECLARE)

/* ---- sockets ---- */

#define HAND_ON(type, name, parameters, arguments) \
    type __wrap_##name parameters                  \
    {                                              \
        return gf_conn_##name arguments;           \
    }
GF_PROOF_CALLS_EACH(HAND_ON)

/* ---- network devices in one order on every host ---- UCX up to 1.15 takes them as the kernel
 * lists them, which differs from host to host: of two equally fast ones it then connects a host's
 * first with another's second, and the kernel sends both connections through one. Newer UCX sorts
 * them itself. */

static int by_name(const void *a, const void *b)
{
    const uct_tl_resource_desc_t *first = a;
    const uct_tl_resource_desc_t *second = b;
    int transports = strcmp(first->tl_name, second->tl_name);
    return (transports != 0) ? transports : strcmp(first->dev_name, second->dev_name);
}

ucs_status_t __wrap_uct_md_query_tl_resources(uct_md_h domain,
                                              uct_tl_resource_desc_t **resources_out,
                                              unsigned *count_out)
{
    ucs_status_t status = __real_uct_md_query_tl_resources(domain, resources_out, count_out);
    if ((status == UCS_OK) && (*count_out > 1))
        qsort(*resources_out, *count_out, sizeof **resources_out, by_name);
    return status;
}

/* ---- what an interface is opened with, settings of its transport (link_ucx_settings.c) ---- */

ucs_status_t __wrap_uct_iface_open(uct_md_h domain, uct_worker_h worker,
                                   const uct_iface_params_t *params,
                                   const uct_iface_config_t *config, uct_iface_h *iface_out)
{
    if (((params->field_mask & UCT_IFACE_PARAM_FIELD_DEVICE) != 0) && (config != NULL))
        gf_ucx_iface_opens(params->mode.device.tl_name, (void *)(uintptr_t)config);
    return __real_uct_iface_open(domain, worker, params, config, iface_out);
}

/* ---- where UCX would end the process because of a peer ---- */

/* A worker that is destroyed hands what still waits to be sent to ucp_ep_err_pending_purge(), which
 * asserts that none of it is a message with which UCX sets up a connection ("got REQ message", 1.13
 * to 1.23). One waits, where a peer has two ways (rc and tcp), from the first large message over
 * the one until the other is connected. It is dropped here; its few hundred bytes stay allocated,
 * for only UCX knows where they begin. */
ucs_status_t ucp_wireup_msg_progress(uct_pending_req_t *self) __attribute__((weak));
void __wrap_ucp_ep_err_pending_purge(uct_pending_req_t *self, void *status)
{
    if (self->func != ucp_wireup_msg_progress) __real_ucp_ep_err_pending_purge(self, status);
}

/* ---- a UCX that is a library of its own ---- Its libraries reach these functions by name, also
 * ucp_ep_err_pending_purge() of their own, and the first definition that the loader meets is the
 * program's. Where it is not (the library in an object that was opened by dlopen()), nothing is
 * seen to listen, and gf_ucx_guard_check() says so. A libucp linked with -Bsymbolic-functions would
 * call its own ucp_ep_err_pending_purge(), unseen: Debian's is not, nor one that is built from
 * source. */
#if GF_UCX_DYNAMIC
#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>

/* no installed header has it */
void ucp_ep_err_pending_purge(uct_pending_req_t *self, void *status);

#define LEAD(type, name, parameters, arguments)                                        \
    type name parameters                                                               \
    {                                                                                  \
        return __wrap_##name arguments;                                                \
    }                                                                                  \
    type __real_##name parameters                                                      \
    {                                                                                  \
        static void *real;                                                             \
        void *next = __atomic_load_n(&real, __ATOMIC_RELAXED);                         \
        if (next == NULL)                                                              \
            __atomic_store_n(&real, next = dlsym(RTLD_NEXT, #name), __ATOMIC_RELAXED); \
        return ((type(*) parameters)next)arguments;                                    \
    }
GF_PROOF_CALLS_EACH(LEAD)
UCX_CALLS_EACH(LEAD)
#endif
