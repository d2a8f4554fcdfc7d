/* What a context has done, and which rank was slow, for a program that asks. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/context.h"
#include "lib/core/accessors.h"

/* Host memory of this process that is not shared: what foreign libraries take shows as its
 * growth. */
uint64_t gf_resident_bytes(void)
{
    char text[128];
    char *rest = text;
    uint64_t resident;
    uint64_t shared;
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
    /* the kernel's: 64 KiB on some ARM hosts */
    return (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
}

void gf_opened_count(gf_context *gf)
{
    uint64_t now_bytes = gf_resident_bytes();
    uint64_t ours_bytes = gf->opening.foreign_before + gf->link->private_bytes;
    gf->observed.stats.foreign_bytes = (now_bytes > ours_bytes) ? now_bytes - ours_bytes : 0;
}

gf_status gf_stats_read(const gf_context *gf, struct gf_stats *stats_out)
{
    struct gf_stats stats;
    uint32_t size_bytes;
    if (gf == NULL) return GF_ERR_PARAM;
    size_bytes = (stats_out != NULL) ? stats_out->size_bytes : 0;
    if ((size_bytes < offsetof(struct gf_stats, steps)) || (size_bytes > sizeof stats)) {
        gf_log_line(&gf->log, GF_LOG_ERROR,
                    "rank %u: gf_stats_read: size_bytes = %u: allowed are %zu to %zu", gf->rank,
                    size_bytes, offsetof(struct gf_stats, steps), sizeof stats);
        return GF_ERR_PARAM;
    }
    stats = gf->observed.stats;
    stats.size_bytes = size_bytes;
    if (gf->link != NULL) {
        stats.wire_bytes = gf->link->sent_bytes - gf->opening.wire_base;
        stats.messages = gf->link->sent_messages - gf->opening.message_base;
    }
    if (gf->control != NULL) stats.control_bytes = gf_control_sent_bytes(gf->control);
    stats.slowest_peer = GF_RANK_NONE;
    for (uint32_t r = 0; r < gf->world; r++) {
        const struct gf_late *late = &gf->observed.late[r];
        if ((late->steps == 0) ||
            ((stats.slowest_peer != GF_RANK_NONE) && (late->ns <= stats.slowest_late_ns)))
            continue;
        stats.slowest_peer = r;
        stats.slowest_late_ns = late->ns;
        stats.slowest_share_percent = (uint32_t)(100 * late->steps / gf->observed.generation_steps);
    }
    stats.loss_scale = gf->loss_scale.value;
    stats.buffer_count = gf->buffers.dense_count;
    stats.path = gf_path_of(gf);
    memcpy(stats_out, &stats, size_bytes); /* an older caller gets what it knows */
    return GF_OK;
}
