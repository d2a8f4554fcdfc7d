/* See carried.h. */
#include "drivers/base/carried.h"
#include "drivers/base/descriptors.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define NAME_AT offsetof(struct sockaddr_un, sun_path)

/* Descriptors beside the bytes of a message: one is sent, and what is aligned has room for two. */
#define ROOM 2u
union parts {
    struct cmsghdr head; /* for its alignment */
    char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
};
_Static_assert(CMSG_SPACE(sizeof(int)) <= CMSG_LEN(ROOM * sizeof(int)), "no more come");

unsigned gf_carried_address(const char name[GF_CARRIED_NAME_BYTES], struct sockaddr_un *to_out)
{
    size_t name_bytes = 1 + strnlen(name + 1, GF_CARRIED_NAME_BYTES - 1);
    to_out->sun_family = AF_UNIX;
    memcpy(to_out->sun_path, name, name_bytes);
    return (unsigned)(NAME_AT + name_bytes);
}

static void name_take(char name_out[GF_CARRIED_NAME_BYTES], const struct sockaddr_un *from,
                      socklen_t bytes)
{
    memset(name_out, 0, GF_CARRIED_NAME_BYTES);
    if ((bytes <= NAME_AT) || (bytes > NAME_AT + GF_CARRIED_NAME_BYTES)) return;
    if (from->sun_path[0] == '\0') memcpy(name_out, from->sun_path, bytes - NAME_AT);
}

bool gf_carried_bind(int socket, char name_out[GF_CARRIED_NAME_BYTES])
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof name;
    if (bind(socket, (struct sockaddr *)&name, NAME_AT) != 0) return false; /* no name: its own */
    if (getsockname(socket, (struct sockaddr *)&name, &bytes) != 0) return false;
    name_take(name_out, &name, bytes);
    errno = ENAMETOOLONG;
    return name_out[1] != '\0';
}

static void part_add(struct msghdr *message, int type, const void *data, size_t bytes)
{
    char *at = (char *)message->msg_control + message->msg_controllen;
    struct cmsghdr *part = (struct cmsghdr *)(void *)at;
    *part =
        (struct cmsghdr){.cmsg_len = CMSG_LEN(bytes), .cmsg_level = SOL_SOCKET, .cmsg_type = type};
    memcpy(CMSG_DATA(part), data, bytes);
    message->msg_controllen += CMSG_SPACE(bytes);
}

int gf_carried_send(int socket, const struct gf_carried *carried)
{
    const struct ucred own = {.pid = getpid(), .uid = geteuid(), .gid = getegid()};
    struct sockaddr_un to;
    struct iovec bytes = {.iov_base = carried->bytes, .iov_len = carried->size_bytes};
    union parts parts = {.bytes = {0}};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = parts.bytes};
    ssize_t sent;
    if (carried->name[1] != '\0') {
        message.msg_name = &to;
        message.msg_namelen = gf_carried_address(carried->name, &to);
    }
    if (carried->says_user) part_add(&message, SCM_CREDENTIALS, &own, sizeof own);
    if (carried->descriptor >= 0)
        part_add(&message, SCM_RIGHTS, &carried->descriptor, sizeof carried->descriptor);
    sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    return (sent == (ssize_t)carried->size_bytes) ? 0 : errno;
}

bool gf_carried_receive(int socket, struct gf_carried *carried)
{
    struct sockaddr_un from = {.sun_family = AF_UNIX};
    struct iovec bytes = {.iov_base = carried->bytes, .iov_len = carried->size_bytes};
    union parts parts = {.bytes = {0}};
    struct msghdr message = {.msg_name = &from,
                             .msg_namelen = sizeof from,
                             .msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = parts.bytes,
                             .msg_controllen = sizeof parts.bytes};
    struct ucred user = {.uid = UINT32_MAX};
    int come[2 * ROOM];
    uint32_t count = 0;
    bool whole;
    ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) return false;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part != NULL;
         part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_level != SOL_SOCKET) continue;
        if (part->cmsg_type == SCM_CREDENTIALS) memcpy(&user, CMSG_DATA(part), sizeof user);
        if (part->cmsg_type != SCM_RIGHTS) continue;
        for (size_t at = CMSG_LEN(0);
             (at < part->cmsg_len) && (count < sizeof come / sizeof come[0]); at += sizeof(int))
            memcpy(&come[count++], (const char *)part + at, sizeof(int));
    }
    whole = ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0) && (count <= 1);
    carried->size_bytes = whole ? (size_t)got : 0;
    carried->descriptor = (whole && (count == 1)) ? gf_descriptor_keep(come[--count]) : -1;
    while (count > 0) (void)close(come[--count]);
    carried->user = user.uid;
    name_take(carried->name, &from, message.msg_namelen);
    return true;
}
