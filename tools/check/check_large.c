/* A large sum behind the small one of the join: packets as large as the hosts' devices send, which
 * a network between them may not take, and what of it each device of link.devices carries. */
#include "tools/check/check_preflight.h"

#include <ifaddrs.h>
#include <linux/if_link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "drivers/devices.h"
#include "drivers/networks.h"

#define LARGE_BYTES (2u << 20)
#define DEVICES_MAX 8u
#define UNEVEN 4u /* the least may carry so much less than the most */

/* What has left by each device of a list; modulo 2^32. */
struct sent {
    uint32_t count;
    char names[DEVICES_MAX][64];
    uint32_t bytes[DEVICES_MAX];
};

static uint32_t bytes_sent(const struct ifaddrs *all, const char *name)
{
    for (; all != NULL; all = all->ifa_next) {
        struct rtnl_link_stats stats;
        if ((all->ifa_addr == NULL) || (all->ifa_data == NULL)) continue;
        if ((all->ifa_addr->sa_family != AF_PACKET) || (strcmp(all->ifa_name, name) != 0)) continue;
        memcpy(&stats, all->ifa_data, sizeof stats);
        return stats.tx_bytes;
    }
    return 0;
}

static void sent_read(const char *devices, struct sent *sent_out)
{
    struct ifaddrs *all = NULL;
    sent_out->count = 0;
    if (getifaddrs(&all) != 0) return;
    while ((sent_out->count < DEVICES_MAX) &&
           gf_devices_next(&devices, sent_out->names[sent_out->count], 64)) {
        sent_out->bytes[sent_out->count] = bytes_sent(all, sent_out->names[sent_out->count]);
        sent_out->count++;
    }
    freeifaddrs(all);
}

static gf_status large_sum(gf_context *gf, float *values)
{
    struct gf_request request = {0};
    gf_status status = gf_allreduce(gf, (gf_mem)(uintptr_t)values, LARGE_BYTES / sizeof *values,
                                    GF_TYPE_F32, &request);
    return (status == GF_OK) ? gf_request_wait(gf, &request) : status;
}

/* Of ranks that share all they send nothing leaves. */
static void devices_carry(struct check_report *report, const struct sent *before,
                          const struct sent *after)
{
    char text[CHECK_TEXT_BYTES / 4] = "";
    size_t used = 0;
    uint32_t least = UINT32_MAX;
    uint32_t most = 0;
    for (uint32_t i = 0; i < after->count; i++) {
        uint32_t bytes = after->bytes[i] - before->bytes[i];
        least = (bytes < least) ? bytes : least;
        most = (bytes > most) ? bytes : most;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.20s %.1f MiB",
                                 (i > 0) ? ", " : "", after->names[i], bytes / 1048576.0);
    }
    if ((after->count < 2) || (after->count != before->count) || (most < LARGE_BYTES / 8)) return;
    if (least >= most / UNEVEN)
        check_say(report, "devices", CHECK_OK, NULL, "each carries: a large sum sent by %s", text);
    else
        check_say(report, "devices", CHECK_WARN,
                  "a network for each, or net.ipv4.conf.all.arp_ignore=1, .arp_announce=2, "
                  ".rp_filter=2; else name one device",
                  "link.devices do not all carry: a large sum sent by %s", text);
}

void check_large(struct check_report *report, const struct check_job *job, gf_context *gf)
{
    struct sent before;
    struct sent after;
    float *values = calloc(1, LARGE_BYTES);
    gf_status status;
    if (values == NULL) return; /* the others then say that this rank did not come */
    sent_read(job->config.link.devices, &before);
    status = large_sum(gf, values);
    sent_read(job->config.link.devices, &after);
    free(values);
    if (status != GF_OK) {
        check_say(report, "large", CHECK_FAIL,
                  "give hosts and all switches between them one MTU (ip link); ping -M do -s 8972 "
                  "tries it",
                  "a small sum came, one of %u MiB did not: %s: %s", LARGE_BYTES >> 20,
                  gf_status_name(status), gf_error_last(gf)->text);
        return;
    }
    check_say(report, "large", CHECK_OK, NULL, "a sum of %u MiB came", LARGE_BYTES >> 20);
    if (!job->fabric) devices_carry(report, &before, &after);
}
