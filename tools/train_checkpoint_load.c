/* Finding the newest checkpoint that is whole on all ranks, and loading it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "train_checkpoint_file.h"
#include "train_ranks.h"

/* Which set is looked for. */
struct set {
    uint64_t id, step, world;
};

typedef enum verdict { WHOLE = 0, UNUSABLE, FOREIGN } verdict;

static void note(struct checkpoint *checkpoint, const char *path, const char *text)
{
    size_t used = strlen(checkpoint->note);
    char *seen = strstr(checkpoint->note, path);
    if ((seen != NULL) && (seen[strlen(path)] == ':')) return; /* files are looked at more than once */
    snprintf(checkpoint->note + used, sizeof checkpoint->note - used, "%s%s: %s", (used > 0) ? "; " : "", path, text);
}

/* Up to max bytes of the file; -1: errno says why. */
static int64_t file_read(const char *path, unsigned char *data, uint64_t max)
{
    uint64_t got = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    while (got < max) {
        ssize_t more = read(file, data + got, max - got);
        if ((more < 0) && (errno == EINTR)) continue;
        if (more < 0) {
            close(file);
            return -1;
        }
        if (more == 0) break;
        got += (uint64_t)more;
    }
    close(file);
    return (int64_t)got;
}

static verdict foreign(struct checkpoint *checkpoint, const char *path, const char *what, uint64_t there, uint64_t here)
{
    snprintf(checkpoint->error, sizeof checkpoint->error,
             "checkpoint %s is of another run: %s %llu there, %llu here", path, what, (unsigned long long)there,
             (unsigned long long)here);
    return FOREIGN;
}

static verdict run_check(struct checkpoint *checkpoint, const char *path, const struct checkpoint_head *head)
{
    const struct checkpoint_run *here = &checkpoint->run;
    if (memcmp(head->run.model, here->model, sizeof here->model) != 0) {
        snprintf(checkpoint->error, sizeof checkpoint->error, "checkpoint %s is of another run: model %.*s there, %s "
                 "here", path, (int)sizeof head->run.model, head->run.model, here->model);
        return FOREIGN;
    }
    if (head->run.seed != here->seed) return foreign(checkpoint, path, "seed", head->run.seed, here->seed);
    if (head->run.batch != here->batch) return foreign(checkpoint, path, "batch", head->run.batch, here->batch);
    if (head->run.image_count != here->image_count)
        return foreign(checkpoint, path, "images", head->run.image_count, here->image_count);
    if (head->total_bytes != checkpoint->buffer_bytes)
        return foreign(checkpoint, path, "bytes of state", head->total_bytes, checkpoint->buffer_bytes);
    return WHOLE;
}

/* Brings a file into the buffer and looks at all of it. */
static verdict file_take(struct checkpoint *checkpoint, const char *path, struct checkpoint_head *head_out)
{
    char text[96];
    uint32_t crc;
    int64_t bytes = file_read(path, checkpoint->buffer, checkpoint->buffer_bytes + 1);
    text[0] = '\0';
    if (bytes < 0) {
        if (errno == ENOENT) return UNUSABLE; /* each generation alone may be missing */
        snprintf(text, sizeof text, "%s", strerror(errno));
    } else if ((uint64_t)bytes < sizeof *head_out) {
        snprintf(text, sizeof text, "%lld bytes, less than a head", (long long)bytes);
    } else {
        memcpy(head_out, checkpoint->buffer, sizeof *head_out);
        if (head_out->magic != CHECKPOINT_MAGIC) {
            snprintf(text, sizeof text, "this is no checkpoint of gf-train");
        } else if (head_out->version != CHECKPOINT_VERSION) {
            (void)foreign(checkpoint, path, "format version", head_out->version, CHECKPOINT_VERSION);
            return FOREIGN;
        } else if (run_check(checkpoint, path, head_out) != WHOLE) {
            return FOREIGN;
        } else if ((uint64_t)bytes != checkpoint->buffer_bytes) {
            snprintf(text, sizeof text, "%s than the %llu bytes it should have",
                     ((uint64_t)bytes < checkpoint->buffer_bytes) ? "shorter" : "longer",
                     (unsigned long long)checkpoint->buffer_bytes);
        } else {
            memset(checkpoint->buffer + offsetof(struct checkpoint_head, crc), 0, sizeof head_out->crc);
            crc = checkpoint_crc(checkpoint->buffer, checkpoint->buffer_bytes);
            if (crc != head_out->crc)
                snprintf(text, sizeof text, "corrupt: its checksum is %08x, its bytes give %08x", head_out->crc, crc);
        }
    }
    if (text[0] == '\0') return WHOLE;
    note(checkpoint, path, text);
    return UNUSABLE;
}

/* The file of old rank `rank` in this set, into the buffer. *ending_out is how its name ends. */
static verdict member_take(struct checkpoint *checkpoint, const struct set *set, uint32_t rank, uint32_t *ending_out)
{
    char path[CHECKPOINT_PATH_BYTES];
    bool other = false;
    for (uint32_t i = 0; i < CHECKPOINT_GENERATIONS; i++) {
        struct checkpoint_head head;
        checkpoint_path_of(checkpoint, rank, checkpoint_endings[i], path);
        verdict found = file_take(checkpoint, path, &head);
        if (found == FOREIGN) return FOREIGN;
        if (found == UNUSABLE) continue;
        if ((head.id == set->id) && (head.step == set->step) && (head.world == set->world) && (head.rank == rank)) {
            *ending_out = i;
            return WHOLE;
        }
        other = true;
    }
    checkpoint_path_of(checkpoint, rank, "", path);
    note(checkpoint, path, other ? "of another save" : "no file of this save");
    return UNUSABLE;
}

/* What this rank inherits: old ranks rank, rank + world, ..; one that inherits nothing takes old rank 0's. */
static uint32_t inherits_first(const struct checkpoint *checkpoint, const struct set *set)
{
    return (checkpoint->rank < set->world) ? checkpoint->rank : 0;
}

static uint64_t inherits_step(const struct checkpoint *checkpoint, const struct set *set)
{
    return (checkpoint->rank < set->world) ? checkpoint->world : set->world;
}

static verdict set_check(struct checkpoint *checkpoint, const struct set *set)
{
    verdict worst = WHOLE;
    for (uint64_t old = inherits_first(checkpoint, set); old < set->world; old += inherits_step(checkpoint, set)) {
        uint32_t ending;
        verdict found = member_take(checkpoint, set, (uint32_t)old, &ending);
        if (found > worst) worst = found;
    }
    return worst;
}

static gf_status set_load(struct checkpoint *checkpoint, const struct set *set)
{
    uint32_t ending = 0, kept = 0;
    const unsigned char *state = checkpoint->buffer + sizeof(struct checkpoint_head) + checkpoint->extra_bytes;
    uint64_t state_bytes = gf_state_bytes(checkpoint->gf), first = inherits_first(checkpoint, set);
    char newest[CHECKPOINT_PATH_BYTES], before[CHECKPOINT_PATH_BYTES];
    for (uint64_t old = first; old < set->world; old += inherits_step(checkpoint, set)) {
        gf_status status = GF_ERR_DATA;
        if (member_take(checkpoint, set, (uint32_t)old, &ending) != WHOLE) {
            snprintf(checkpoint->error, sizeof checkpoint->error, "checkpoint changed while it was read");
            return status;
        }
        if (old == first) {
            status = gf_state_load(checkpoint->gf, state, state_bytes);
            if (checkpoint->extra_bytes > 0)
                memcpy(checkpoint->extra, checkpoint->buffer + sizeof(struct checkpoint_head), checkpoint->extra_bytes);
            kept = ending;
        } else {
            status = gf_state_add(checkpoint->gf, state, state_bytes);
            if (status == GF_ERR_STATE) status = GF_OK; /* nothing waits anywhere: there is nothing to inherit */
        }
        if (status < 0) return status;
    }
    if ((kept == 0) || (first != checkpoint->rank)) return GF_OK;
    /* The newer file is of no use. Left where it is, the next save would put it in the place of the good one. */
    checkpoint_path_of(checkpoint, checkpoint->rank, checkpoint_endings[0], newest);
    checkpoint_path_of(checkpoint, checkpoint->rank, checkpoint_endings[1], before);
    if ((rename(before, newest) != 0) || (checkpoint_folder_sync(newest) != 0))
        return checkpoint_fail(checkpoint, before, "rename");
    return GF_OK;
}

/* Rank 0's files say which sets there may be. */
static gf_status sets_find(struct checkpoint *checkpoint, struct set *sets_out)
{
    uint64_t words[3 * CHECKPOINT_GENERATIONS] = {0};
    char path[CHECKPOINT_PATH_BYTES];
    gf_status status;
    for (uint32_t i = 0; (i < CHECKPOINT_GENERATIONS) && (checkpoint->rank == 0); i++) {
        struct checkpoint_head head;
        checkpoint_path_of(checkpoint, 0, checkpoint_endings[i], path);
        verdict found = file_take(checkpoint, path, &head);
        if (found == FOREIGN) break;
        if ((found == UNUSABLE) || (head.world == 0) || (head.world > GF_WORLD_MAX)) continue;
        words[3 * i] = head.id;
        words[3 * i + 1] = head.step;
        words[3 * i + 2] = head.world;
    }
    checkpoint_path_of(checkpoint, 0, "", path);
    if ((checkpoint->rank == 0) && (words[2] == 0) && (words[5] == 0) && (checkpoint->error[0] == '\0'))
        note(checkpoint, path, "there is no checkpoint to resume from");
    if ((status = ranks_sum_u64(checkpoint->gf, words, 3 * CHECKPOINT_GENERATIONS)) < 0) return status;
    for (uint32_t i = 0; i < CHECKPOINT_GENERATIONS; i++)
        sets_out[i] = (struct set){.id = words[3 * i], .step = words[3 * i + 1], .world = words[3 * i + 2]};
    return GF_OK;
}

gf_status checkpoint_load(struct checkpoint *checkpoint, uint64_t *step_out)
{
    struct set sets[CHECKPOINT_GENERATIONS];
    gf_status status = sets_find(checkpoint, sets);
    for (uint32_t i = 0; (status == GF_OK) && (i < CHECKPOINT_GENERATIONS); i++) {
        uint64_t bad[2] = {0, checkpoint->error[0] != '\0'}; /* ranks that lack a file; that found a foreign one */
        if ((sets[i].world > 0) && (bad[1] == 0)) {
            verdict found = set_check(checkpoint, &sets[i]);
            bad[0] = (found == UNUSABLE) ? 1 : 0;
            bad[1] = (found == FOREIGN) ? 1 : 0;
        }
        if ((status = ranks_sum_u64(checkpoint->gf, bad, 2)) < 0) return status;
        if (bad[1] > 0) break;
        if ((sets[i].world == 0) || (bad[0] > 0)) continue;
        if ((status = set_load(checkpoint, &sets[i])) < 0) return status;
        *step_out = sets[i].step;
        return GF_OK;
    }
    if (status < 0) return status;
    checkpoint->agreed = true;
    if ((checkpoint->error[0] == '\0') && (checkpoint->note[0] != '\0'))
        snprintf(checkpoint->error, sizeof checkpoint->error, "checkpoint: no set of files is whole: %.1800s",
                 checkpoint->note);
    else if (checkpoint->error[0] == '\0')
        snprintf(checkpoint->error, sizeof checkpoint->error,
                 "checkpoint %.1000s: another rank could not read its files", checkpoint->path);
    return GF_ERR_DATA;
}
