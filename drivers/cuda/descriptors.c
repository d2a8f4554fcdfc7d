/* See descriptors.h. A socket whose name the kernel makes up and forgets with the process; a
 * descriptor waits in it until it is taken, also when its sender has died. Who is at the other end
 * the kernel says of both ends. */
#include "drivers/cuda/descriptors.h"

#include "drivers/carried.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

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
    descriptors->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (descriptors->listener < 0) return refused(fault_out, "socket");
    if (!gf_carried_bind(descriptors->listener, name_out) ||
        (listen(descriptors->listener, (int)GF_DESCRIPTORS_MAX) != 0)) {
        (void)refused(fault_out, "bind");
        gf_descriptors_close(descriptors);
        return GF_ERR_SYSTEM;
    }
    return GF_OK;
}

gf_status gf_descriptors_send(const char *name, uint32_t process, int descriptor, uint64_t what,
                              struct gf_fault *fault_out)
{
    const struct gf_carried message = {
        .bytes = &what, .size_bytes = sizeof what, .descriptor = descriptor};
    struct sockaddr_un to;
    unsigned to_bytes = gf_carried_address(name, &to);
    int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    gf_status status = GF_OK;
    if (connection < 0) return refused(fault_out, "socket");
    if (connect(connection, (struct sockaddr *)&to, to_bytes) != 0) {
        status = refused(fault_out, "connect");
    } else if (peer_of(connection) != process) {
        errno = EPERM;
        status = refused(fault_out, "getsockopt");
    } else if ((errno = gf_carried_send(connection, &message)) != 0) {
        status = refused(fault_out, "sendmsg");
    }
    (void)close(connection);
    return status;
}

/* What has come on this connection, if it is one descriptor of this user's. */
static void receive(struct gf_descriptors *descriptors, int connection)
{
    uint64_t what = 0;
    struct gf_carried message = {.bytes = &what, .size_bytes = sizeof what};
    uint32_t process = peer_of(connection);
    uint32_t at = descriptors->count;
    if ((process == 0) || !gf_carried_receive(connection, &message) || (message.descriptor < 0))
        return;
    if (message.size_bytes != sizeof what) {
        (void)close(message.descriptor);
        return;
    }
    descriptors->come[at].descriptor = message.descriptor;
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
