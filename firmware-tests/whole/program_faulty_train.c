/* gf-train with faulty hardware: linked from its objects, with a link driver that lies between the
 * library and the sockets, and with gf_tensor_ready(), gf_close() and recvmsg() wrapped by the
 * linker. The environment says what goes wrong on this rank:
 *     GF_FAULT_NAN=STEP      a gradient of this step (from 1) is not a number
 *     GF_FAULT_CORRUPT=N     a bit flips in what the N-th recvmsg() of 1 KiB or more brings
 *     GF_FAULT_DIE=N         the process kills itself in its N-th call to connect to a rank or to
 *                            send
 * What has gone wrong is said on stderr as "fault: ..". A rank that ends without an error says whom
 * it waited for: "slowest: rank R, late by N ms in all, in N % of the steps". */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "drivers/drivers.h"
#include "gradientflow.h"

#define BYTES_MIN 1024

gf_status __real_gf_tensor_ready(gf_context *gf, uint32_t tensor, gf_queue_handle queue);
gf_status __real_gf_close(gf_context *gf);
ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);

static uint64_t fault_at(const char *name)
{
    const char *text = getenv(name);
    return (text != NULL) ? strtoull(text, NULL, 10) : 0;
}

gf_status __wrap_gf_tensor_ready(gf_context *gf, uint32_t tensor, gf_queue_handle queue)
{
    static bool done;
    uint64_t step = fault_at("GF_FAULT_NAN");
    if (!done && (step != 0) && (gf_steps(gf) + 1u == step)) {
        ((float *)(uintptr_t)gf_gradient(gf, tensor))[7] = NAN;
        fprintf(stderr, "fault: tensor %u of step %llu is not a number\n", tensor,
                (unsigned long long)step);
        done = true;
    }
    return __real_gf_tensor_ready(gf, tensor, queue);
}

gf_status __wrap_gf_close(gf_context *gf)
{
    struct gf_stats stats = {.size_bytes = sizeof stats};
    if ((gf != NULL) && (gf_error_last(gf)->code == GF_OK) && (gf_stats_read(gf, &stats) == GF_OK))
        fprintf(stderr, "slowest: rank %d, late by %llu ms in all, in %u %% of the steps\n",
                (int)stats.slowest_peer, (unsigned long long)(stats.slowest_late_ns / 1000000u),
                stats.slowest_share_percent);
    return __real_gf_close(gf);
}

static void die_perhaps(void)
{
    static uint64_t count;
    if (++count != fault_at("GF_FAULT_DIE")) return;
    fprintf(stderr, "fault: dies in call %llu of the link\n", (unsigned long long)count);
    (void)raise(SIGKILL);
}

/* What a network that damages bytes behind TCP's own checksum would bring. */
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
    static uint64_t count;
    ssize_t got = __real_recvmsg(fd, message, flags);
    if ((got < BYTES_MIN) || (++count != fault_at("GF_FAULT_CORRUPT"))) return got;
    ((unsigned char *)message->msg_iov[0].iov_base)[0] ^= 0x40;
    fprintf(stderr, "fault: a bit of %zd bytes that came has flipped\n", got);
    return got;
}

static gf_status faulty_connect(struct gf_link *link, uint32_t peer, const void *endpoint,
                                size_t size_bytes)
{
    die_perhaps();
    return gf_link_tcp.connect(link, peer, endpoint, size_bytes);
}

static gf_status faulty_send_post(struct gf_link *link, uint32_t to, uint64_t tag, gf_mem data,
                                  size_t size_bytes, struct gf_req *req)
{
    die_perhaps();
    return gf_link_tcp.send_post(link, to, tag, data, size_bytes, req);
}

static struct gf_link_driver faulty_link; /* the sockets', but for what is below */
static struct gf_drivers faulty_drivers;  /* all, but for that link */
const struct gf_drivers *const gf_drivers_default = &faulty_drivers;

__attribute__((constructor)) static void faulty_link_make(void)
{
    faulty_link = gf_link_tcp;
    faulty_link.connect = faulty_connect;
    faulty_link.send_post = faulty_send_post;
    faulty_drivers = gf_drivers_all;
    faulty_drivers.link = &faulty_link;
}
