/* Where UCX would end the process because of a peer: its own calls are led here (ucx.mk, dynamic_calls.c). */
#include <uct/api/uct.h>

/* UCX 1.13 gives back a key that it could not unpack, and crashes: a peer that dies while this rank connects to it is
 * enough. Here UCX hears that such a peer's memory is not reached. */
ucs_status_t __real_uct_rkey_unpack(uct_component_h component, const void *buffer, uct_rkey_bundle_t *bundle_out)
    __attribute__((weak));
ucs_status_t __wrap_uct_rkey_unpack(uct_component_h component, const void *buffer, uct_rkey_bundle_t *bundle_out);
ucs_status_t __wrap_uct_rkey_unpack(uct_component_h component, const void *buffer, uct_rkey_bundle_t *bundle_out)
{
    return (__real_uct_rkey_unpack(component, buffer, bundle_out) == UCS_OK) ? UCS_OK : UCS_ERR_UNREACHABLE;
}

/* A worker that is destroyed hands what still waits to be sent to ucp_ep_err_pending_purge(), which asserts that none of
 * it is a message with which UCX sets up a connection ("got REQ message", 1.13 to 1.23). One waits, where a peer has two
 * ways (posix and tcp), from the first large message over the one until the other is connected. It is dropped here;
 * its few hundred bytes stay allocated, for only UCX knows where they begin. */
ucs_status_t ucp_wireup_msg_progress(uct_pending_req_t *self) __attribute__((weak));
void __real_ucp_ep_err_pending_purge(uct_pending_req_t *self, void *status) __attribute__((weak));
void __wrap_ucp_ep_err_pending_purge(uct_pending_req_t *self, void *status);
void __wrap_ucp_ep_err_pending_purge(uct_pending_req_t *self, void *status)
{
    if (self->func != ucp_wireup_msg_progress) __real_ucp_ep_err_pending_purge(self, status);
}
