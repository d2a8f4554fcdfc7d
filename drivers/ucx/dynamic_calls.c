/* A UCX that is a library of its own is led to the same places as a static one (ucx.mk: --wrap). UCX's libraries
 * reach these functions by name, also ucp_ep_err_pending_purge() of their own, and the first definition that the
 * loader meets is the program's. Where it is not (the library in an object that was opened by dlopen()), nothing is
 * seen to listen, and gf_ucx_guard_check() says so. A libucp linked with -Bsymbolic-functions would call its own
 * ucp_ep_err_pending_purge(), unseen: Debian's is not, nor one that is built from source. */
#if GF_UCX_DYNAMIC
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <uct/api/uct.h>

#include "drivers/ucx/connection_proof.h"

#define LEAD(type, name, parameters, arguments)                                                          \
    type __real_##name parameters;                                                                       \
    type __wrap_##name parameters;                                                                       \
    type name parameters { return __wrap_##name arguments; }                                             \
    type __real_##name parameters                                                                        \
    {                                                                                                    \
        static void *real;                                                                               \
        void *next = __atomic_load_n(&real, __ATOMIC_RELAXED);                                           \
        if (next == NULL) __atomic_store_n(&real, next = dlsym(RTLD_NEXT, #name), __ATOMIC_RELAXED);     \
        return ((type(*) parameters)next)arguments;                                                      \
    }

void ucp_ep_err_pending_purge(uct_pending_req_t *self, void *status); /* no installed header has it */

LEAD(int, listen, (int fd, int backlog), (fd, backlog))
LEAD(int, accept, (int fd, struct sockaddr *address, socklen_t *bytes), (fd, address, bytes))
LEAD(int, connect, (int fd, const struct sockaddr *address, socklen_t bytes), (fd, address, bytes))
LEAD(ssize_t, send, (int fd, const void *data, size_t bytes, int flags), (fd, data, bytes, flags))
LEAD(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
LEAD(ssize_t, recv, (int fd, void *data, size_t bytes, int flags), (fd, data, bytes, flags))
LEAD(int, epoll_ctl, (int set, int op, int fd, struct epoll_event *event), (set, op, fd, event))
LEAD(int, epoll_wait, (int set, struct epoll_event *events, int count, int timeout), (set, events, count, timeout))
LEAD(int, close, (int fd), (fd))
LEAD(int, shm_open, (const char *name, int flags, mode_t mode), (name, flags, mode))
LEAD(int, shm_unlink, (const char *name), (name))
LEAD(ucs_status_t, uct_md_query_tl_resources, (uct_md_h domain, uct_tl_resource_desc_t **out, unsigned *count_out),
     (domain, out, count_out))
LEAD(ucs_status_t, uct_rkey_unpack, (uct_component_h component, const void *key, uct_rkey_bundle_t *out),
     (component, key, out))
LEAD(void, ucp_ep_err_pending_purge, (uct_pending_req_t *self, void *status), (self, status))
#endif
