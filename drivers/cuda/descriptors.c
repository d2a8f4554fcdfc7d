/* See descriptors.h. A socket whose name the kernel makes up and forgets with the process; a
 * descriptor waits in it until it is taken, also when its sender has died. Who is at the other end
 * the kernel says of both ends. */
#include "drivers/cuda/descriptors.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define NAME_AT offsetof(struct sockaddr_un, sun_path)

static gf_status refused(struct gf_fault *fault_out, const char *call)
{
    int code = errno;
    return gf_fault_set(fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, call, code,
                        "a descriptor of device memory cannot be passed to another process: %s: %s",
                        call, strerror(code));
}

/* Its process, if that is this user's; 0. */
static uint32_t peer_of(int connection)
{
    struct ucred peer = {0};
    socklen_t bytes = sizeof peer;
    if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return 0;
    return (peer.uid == geteuid()) ? (uint32_t)peer.pid : 0;
}

gf_status gf_descriptors_open(struct gf_descriptors *descriptors, char *name_out,
                              struct gf_fault *fault_out)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof name;
    descriptors->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (descriptors->listener < 0) return refused(fault_out, "socket");
    /* no name: the kernel's */
    if ((bind(descriptors->listener, (struct sockaddr *)&name, NAME_AT) != 0) ||
        (listen(descriptors->listener, (int)GF_DESCRIPTORS_MAX) != 0) ||
        (getsockname(descriptors->listener, (struct sockaddr *)&name, &bytes) != 0) ||
        (bytes > NAME_AT + GF_DESCRIPTORS_NAME_BYTES)) {
        (void)refused(fault_out, "bind");
        gf_descriptors_close(descriptors);
        return GF_ERR_SYSTEM;
    }
    memset(name_out, 0, GF_DESCRIPTORS_NAME_BYTES);
    memcpy(name_out, name.sun_path, bytes - NAME_AT);
    return GF_OK;
}

/* Descriptors beside the bytes of a message: one is sent, and what is aligned has room for two. */
#define CARRIED_MAX 2u
union carried {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
};
_Static_assert(CMSG_SPACE(sizeof(int)) <= CMSG_LEN(CARRIED_MAX * sizeof(int)), "no more come");

gf_status gf_descriptors_send(const char *name, uint32_t process, int descriptor, uint64_t what,
                              struct gf_fault *fault_out)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    /* its first byte is 0 */
    socklen_t name_bytes = 1 + (socklen_t)strnlen(name + 1, GF_DESCRIPTORS_NAME_BYTES - 1);
    struct iovec word = {.iov_base = &what, .iov_len = sizeof what};
    union carried carried = {.bytes = {0}};
    struct msghdr message = {.msg_iov = &word,
                             .msg_iovlen = 1,
                             .msg_control = carried.bytes,
                             .msg_controllen = sizeof carried.bytes};
    int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    gf_status status = GF_OK;
    if (connection < 0) return refused(fault_out, "socket");
    memcpy(to.sun_path, name, name_bytes);
    carried.head = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof descriptor), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&carried.head), &descriptor, sizeof descriptor);
    if (connect(connection, (struct sockaddr *)&to, NAME_AT + name_bytes) != 0) {
        status = refused(fault_out, "connect");
    } else if (peer_of(connection) != process) {
        errno = EPERM;
        status = refused(fault_out, "getsockopt");
    } else if (sendmsg(connection, &message, MSG_NOSIGNAL) != (ssize_t)sizeof what) {
        status = refused(fault_out, "sendmsg");
    }
    (void)close(connection);
    return status;
}

/* What has come on this connection, if it is one descriptor of this user's. */
static void receive(struct gf_descriptors *descriptors, int connection)
{
    uint64_t what = 0;
    struct iovec word = {.iov_base = &what, .iov_len = sizeof what};
    union carried carried = {.bytes = {0}};
    struct msghdr message = {.msg_iov = &word,
                             .msg_iovlen = 1,
                             .msg_control = carried.bytes,
                             .msg_controllen = sizeof carried.bytes};
    uint32_t process = peer_of(connection);
    uint32_t at = descriptors->count;
    ssize_t bytes;
    if ((process == 0) || ((bytes = recvmsg(connection, &message, MSG_CMSG_CLOEXEC)) < 0)) return;
    if ((message.msg_controllen < sizeof carried.head) || (carried.head.cmsg_level != SOL_SOCKET) ||
        (carried.head.cmsg_type != SCM_RIGHTS))
        return;
    int come[CARRIED_MAX];
    size_t count = (carried.head.cmsg_len - CMSG_LEN(0)) / sizeof *come;
    memcpy(come, CMSG_DATA(&carried.head), count * sizeof *come);
    if ((bytes != (ssize_t)sizeof what) || (count != 1)) {
        while (count > 0) (void)close(come[--count]);
        return;
    }
    descriptors->come[at].descriptor = come[0];
    descriptors->come[at].process = process;
    descriptors->come[at].what = what;
    descriptors->count++;
}

int gf_descriptors_take(struct gf_descriptors *descriptors, uint32_t process, uint64_t what)
{
    for (uint32_t i = 0; (i < 4 * GF_DESCRIPTORS_MAX) && (descriptors->count < GF_DESCRIPTORS_MAX);
         i++) {
        if (descriptors->listener < 0) break;
        int connection = accept4(descriptors->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (connection < 0) break;
        receive(descriptors, connection);
        (void)close(connection);
    }
    for (uint32_t i = 0; i < descriptors->count; i++) {
        int descriptor = descriptors->come[i].descriptor;
        bool found =
            (descriptors->come[i].process == process) && (descriptors->come[i].what == what);
        if (!found || (descriptor < 0)) continue;
        descriptors->come[i].descriptor = -1;
        return descriptor;
    }
    return -1;
}

void gf_descriptors_close(struct gf_descriptors *descriptors)
{
    for (uint32_t i = 0; i < descriptors->count; i++)
        if (descriptors->come[i].descriptor >= 0) (void)close(descriptors->come[i].descriptor);
    if (descriptors->listener >= 0) (void)close(descriptors->listener);
    descriptors->listener = -1;
    descriptors->count = 0;
}
