/* What a context has done and who was slow, for callers that ask. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/context.h"
#include "lib/core/accessors.h"

/* Host memory of this process that is not shared: what foreign libraries take shows as its growth. */
uint64_t gf_resident_bytes(void)
{
    char text[128];
    char *rest = text;
    uint64_t resident, shared;
    ssize_t length;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    length = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (length <= 0) return 0;
    text[length] = '\0';
    (void)strtoull(rest, &rest, 10);
    resident = strtoull(rest, &rest, 10);
    shared = strtoull(rest, &rest, 10);
    return (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE); /* the kernel's: 64 KiB on some ARM hosts */
}

void gf_opened_count(gf_context *gf)
{
    uint64_t now_bytes = gf_resident_bytes(), ours_bytes = gf->opening.foreign_before + gf->link->private_bytes;
    gf->observed.stats.foreign_bytes = (now_bytes > ours_bytes) ? now_bytes - ours_bytes : 0;
}

/* The one whose link cost most; and who has as much of that as if it always were the other end. */
static void slowest_link(const gf_context *gf, struct gf_stats *stats)
{
    uint32_t most = GF_RANK_NONE, next = GF_RANK_NONE;
    for (uint32_t r = 0; r < gf->world; r++) {
        uint64_t ns = gf->observed.peers[r].link_ns;
        if (ns == 0) continue;
        if ((most == GF_RANK_NONE) || (ns > gf->observed.peers[most].link_ns)) {
            next = most;
            most = r;
        } else if ((next == GF_RANK_NONE) || (ns > gf->observed.peers[next].link_ns)) {
            next = r;
        }
    }
    if ((next != GF_RANK_NONE) && (gf->observed.peers[next].link_ns < gf->observed.peers[most].link_ns / 20 * 19)) next = GF_RANK_NONE;
    stats->slowest_link = most;
    stats->slowest_link_other = next;
    stats->slowest_link_ns = (most == GF_RANK_NONE) ? 0 : gf->observed.peers[most].link_ns;
    stats->slowest_link_share_percent =
        (most == GF_RANK_NONE) ? 0 : (uint32_t)(100 * gf->observed.peers[most].link_steps / gf->observed.epoch_steps);
}

gf_status gf_stats(const gf_context *gf, struct gf_stats *stats_out)
{
    struct gf_stats stats;
    uint32_t size_bytes, slowest = GF_RANK_NONE;
    if (gf == NULL) return GF_ERR_PARAM;
    size_bytes = (stats_out != NULL) ? stats_out->size_bytes : 0;
    if ((size_bytes < offsetof(struct gf_stats, steps)) || (size_bytes > sizeof stats)) {
        gf_log_line(&gf->log, GF_LOG_ERROR, "rank %u: gf_stats: size_bytes = %u: allowed are %zu to %zu", gf->rank,
                    size_bytes, offsetof(struct gf_stats, steps), sizeof stats);
        return GF_ERR_PARAM;
    }
    stats = gf->observed.stats;
    stats.size_bytes = size_bytes;
    if (gf->link != NULL) {
        stats.wire_bytes = gf->link->sent_bytes - gf->opening.wire_base;
        stats.messages = gf->link->sent_messages - gf->opening.message_base;
    }
    if (gf->rendezvous != NULL) stats.control_bytes = gf->rendezvous->sent_bytes;
    for (uint32_t r = 0; r < gf->world; r++)
        if ((gf->observed.peers[r].steps_last > 0) &&
            ((slowest == GF_RANK_NONE) || (gf->observed.peers[r].late_ns > gf->observed.peers[slowest].late_ns)))
            slowest = r;
    stats.slowest_peer = slowest;
    stats.slowest_share_percent =
        (slowest == GF_RANK_NONE) ? 0 : (uint32_t)(100 * gf->observed.peers[slowest].steps_last / gf->observed.epoch_steps);
    stats.slowest_late_ns = (slowest == GF_RANK_NONE) ? 0 : gf->observed.peers[slowest].late_ns;
    slowest_link(gf, &stats);
    stats.loss_scale = gf->loss_scale.value;
    stats.buffer_count = gf->buffers.dense_count;
    stats.path = gf_path_of(gf);
    memcpy(stats_out, &stats, size_bytes); /* an older caller gets what it knows */
    return GF_OK;
}

gf_status gf_peer_stats(const gf_context *gf, uint32_t rank, struct gf_peer_stats *stats_out)
{
    if (gf == NULL) return GF_ERR_PARAM;
    if ((stats_out == NULL) || (gf->observed.peers == NULL) || (rank >= gf->world)) {
        gf_log_line(&gf->log, GF_LOG_ERROR, "rank %u: gf_peer_stats: rank %u of %u, output at %p", gf->rank, rank,
                    gf->world, (void *)stats_out);
        return GF_ERR_PARAM;
    }
    *stats_out = gf->observed.peers[rank];
    return GF_OK;
}
