/* Writing checkpoints. A file is a head, the appliance's own bytes, the library's state. */
#include "tools/train/train_checkpoint_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tools/train/train_ranks.h"

gf_status checkpoint_fail(struct checkpoint *checkpoint, const char *path, const char *call)
{
    int code = errno;
    snprintf(checkpoint->error, sizeof checkpoint->error, "checkpoint %s: %s: %s", path, call,
             strerror(code));
    return GF_ERR_SYSTEM;
}

void checkpoint_path_of(const struct checkpoint *checkpoint, uint32_t member_id, const char *ending,
                        char *path_out)
{
    snprintf(path_out, CHECKPOINT_PATH_BYTES, "%s.%u%s", checkpoint->path, member_id, ending);
}

const char *const checkpoint_endings[CHECKPOINT_GENERATIONS] = {"", ".before"};

uint32_t checkpoint_crc(const unsigned char *data, uint64_t bytes)
{
    uLong crc = crc32(0, NULL, 0);
    for (uint64_t done = 0, part; done < bytes; done += part) {
        part = (bytes - done < (1u << 30)) ? bytes - done : 1u << 30;
        crc = crc32(crc, data + done, (uInt)part);
    }
    return (uint32_t)crc;
}

static gf_status file_fail(struct checkpoint *checkpoint)
{
    snprintf(checkpoint->error, sizeof checkpoint->error, "checkpoint %s", checkpoint->file.error);
    return GF_ERR_SYSTEM;
}

gf_status checkpoint_open(struct checkpoint *checkpoint, gf_context *gf)
{
    char newest[CHECKPOINT_PATH_BYTES];
    char before[CHECKPOINT_PATH_BYTES];
    gf_status status;
    if (checkpoint->path == NULL) return GF_OK;
    checkpoint->gf = gf;
    checkpoint->rank = gf_rank(gf);
    checkpoint->world = gf_world(gf);
    checkpoint->member_id = gf_first_rank(gf);
    checkpoint->ids = gf_world_max(gf);
    if (strlen(checkpoint->path) + 32 > CHECKPOINT_PATH_BYTES) {
        errno = ENAMETOOLONG;
        return checkpoint_fail(checkpoint, checkpoint->path, "open");
    }
    if (!gf_rejoined(gf) && ((status = checkpoint_number(checkpoint)) < 0)) return status;
    /* a place where nothing can be written shows now, not after hours */
    checkpoint_path_of(checkpoint, checkpoint->member_id, checkpoint_endings[0], newest);
    checkpoint_path_of(checkpoint, checkpoint->member_id, checkpoint_endings[1], before);
    if ((tool_file_check(&checkpoint->file, newest) != 0) ||
        (tool_file_check(&checkpoint->file, before) != 0))
        return file_fail(checkpoint);
    checkpoint->buffer_bytes =
        sizeof(struct checkpoint_head) + checkpoint->extra_bytes + gf_state_bytes(gf);
    /* one more shows that a file is longer */
    checkpoint->buffer = malloc(checkpoint->buffer_bytes + 1);
    if (checkpoint->buffer == NULL)
        return checkpoint_fail(checkpoint, checkpoint->path, "memory for it");
    return GF_OK;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    free(checkpoint->buffer);
    checkpoint->buffer = NULL;
}

/* ---- saving ---- */

static gf_status part_write(struct checkpoint *checkpoint, const char *path)
{
    struct tool_file *file = &checkpoint->file;
    if (tool_file_begin(file, path) != 0) return file_fail(checkpoint);
    /* an error is the stream's, and close() finds it */
    (void)fwrite(checkpoint->buffer, 1, checkpoint->buffer_bytes, file->stream);
    return (tool_file_close(file) != 0) ? file_fail(checkpoint) : GF_OK;
}

/* A file takes the place of the one before only where all ranks have theirs: else the set before
 * stays the newest one, and training goes on. */
static gf_status file_write(struct checkpoint *checkpoint, uint64_t step)
{
    char newest[CHECKPOINT_PATH_BYTES];
    char before[CHECKPOINT_PATH_BYTES];
    uint64_t failed;
    gf_status status;
    checkpoint_path_of(checkpoint, checkpoint->member_id, checkpoint_endings[0], newest);
    checkpoint_path_of(checkpoint, checkpoint->member_id, checkpoint_endings[1], before);
    failed = (part_write(checkpoint, newest) < 0) ? 1 : 0;
    if (failed != 0)
        fprintf(stderr, "error: rank %u: %s; step %llu is not saved, training goes on\n",
                checkpoint->rank, checkpoint->error, (unsigned long long)step);
    checkpoint->error[0] = '\0';
    status = ranks_sum_u64(checkpoint->gf, &failed, 1);
    if ((status < 0) || (failed != 0)) {
        tool_file_drop(&checkpoint->file);
        return (status < 0) ? status : GF_OK;
    }
    if ((rename(newest, before) != 0) && (errno != ENOENT)) {
        status = checkpoint_fail(checkpoint, newest, "rename");
        tool_file_drop(&checkpoint->file);
        return status;
    }
    if (tool_file_rename(&checkpoint->file) != 0) return file_fail(checkpoint);
    checkpoint->saved = step;
    return GF_OK;
}

/* A rank begins the next file only after steps that need all ranks: sets of two ranks are never
 * more than one apart. */
gf_status checkpoint_save(struct checkpoint *checkpoint, uint64_t step)
{
    struct checkpoint_head head = {.magic = CHECKPOINT_MAGIC,
                                   .version = CHECKPOINT_VERSION,
                                   .total_bytes = checkpoint->buffer_bytes,
                                   .extra_bytes = checkpoint->extra_bytes,
                                   .id = checkpoint->id,
                                   .step = step,
                                   .world = checkpoint->world,
                                   .rank = checkpoint->rank,
                                   .ids = checkpoint->ids,
                                   .member_id = checkpoint->member_id,
                                   .run = checkpoint->run};
    unsigned char *state = checkpoint->buffer + sizeof head + checkpoint->extra_bytes;
    gf_status status = gf_state_save(checkpoint->gf, state, gf_state_bytes(checkpoint->gf));
    if (status < 0) return status;
    memcpy(checkpoint->buffer, &head, sizeof head);
    if (checkpoint->extra_bytes > 0)
        memcpy(checkpoint->buffer + sizeof head, checkpoint->extra, checkpoint->extra_bytes);
    head.crc = checkpoint_crc(checkpoint->buffer, checkpoint->buffer_bytes);
    memcpy(checkpoint->buffer, &head, sizeof head);
    return file_write(checkpoint, step);
}
