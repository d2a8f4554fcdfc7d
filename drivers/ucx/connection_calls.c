/* UCX's calls, led here by --wrap or by dynamic_calls.c. In a program with the authentication module connection.c and
 * connection_proof.c have them; the references are weak, so that another one has the calls as they are. */
#include "drivers/ucx/connection_proof.h"

#pragma weak gf_conn_listen
#pragma weak gf_conn_accepted
#pragma weak gf_conn_connect
#pragma weak gf_conn_send
#pragma weak gf_conn_sendmsg
#pragma weak gf_conn_recv
#pragma weak gf_conn_watch
#pragma weak gf_conn_ready
#pragma weak gf_conn_close

int __wrap_listen(int fd, int backlog)
{
    return (gf_conn_listen != NULL) ? gf_conn_listen(fd, backlog) : __real_listen(fd, backlog);
}

int __wrap_accept(int fd, struct sockaddr *address, unsigned *bytes)
{
    return (gf_conn_accepted != NULL) ? gf_conn_accepted(fd, address, bytes) : __real_accept(fd, address, bytes);
}

int __wrap_connect(int fd, const struct sockaddr *address, unsigned bytes)
{
    return (gf_conn_connect != NULL) ? gf_conn_connect(fd, address, bytes) : __real_connect(fd, address, bytes);
}

ssize_t __wrap_send(int fd, const void *data, size_t bytes, int flags)
{
    return (gf_conn_send != NULL) ? gf_conn_send(fd, data, bytes, flags) : __real_send(fd, data, bytes, flags);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
    return (gf_conn_sendmsg != NULL) ? gf_conn_sendmsg(fd, message, flags) : __real_sendmsg(fd, message, flags);
}

ssize_t __wrap_recv(int fd, void *data, size_t bytes, int flags)
{
    return (gf_conn_recv != NULL) ? gf_conn_recv(fd, data, bytes, flags) : __real_recv(fd, data, bytes, flags);
}

int __wrap_epoll_ctl(int set, int op, int fd, struct epoll_event *event)
{
    if (gf_conn_watch != NULL) gf_conn_watch(op, fd, event);
    return __real_epoll_ctl(set, op, fd, event);
}

int __wrap_epoll_wait(int set, struct epoll_event *events, int count, int timeout)
{
    int ready = __real_epoll_wait(set, events, count, timeout);
    return ((ready > 0) && (gf_conn_ready != NULL)) ? gf_conn_ready(events, ready) : ready;
}

int __wrap_close(int fd)
{
    return (gf_conn_close != NULL) ? gf_conn_close(fd) : __real_close(fd);
}
