/* Loading the newest checkpoint that is whole on all ranks. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/train/train_checkpoint_file.h"
#include "tools/train/train_ranks.h"

#define CHECKPOINT_SETS_MAX 4u

/* Which set is looked for: what the ranks of one epoch saved after one step. */
struct checkpoint_set {
    uint64_t id, step;
    uint64_t world, ids; /* world 0: none */
};

typedef enum checkpoint_vote {
    CHECKPOINT_WHOLE = 0,
    CHECKPOINT_UNUSABLE,
    CHECKPOINT_FOREIGN
} checkpoint_vote;

static void checkpoint_note(struct checkpoint *checkpoint, const char *path, const char *text)
{
    size_t used = strlen(checkpoint->note);
    char *seen = strstr(checkpoint->note, path);
    /* files are looked at more than once */
    if ((seen != NULL) && (seen[strlen(path)] == ':')) return;
    snprintf(checkpoint->note + used, sizeof checkpoint->note - used, "%s%s: %s",
             (used > 0) ? "; " : "", path, text);
}

static checkpoint_vote foreign(struct checkpoint *checkpoint, const char *path, const char *what,
                               uint64_t there, uint64_t here)
{
    snprintf(checkpoint->error, sizeof checkpoint->error,
             "checkpoint %s is of another run: %s %llu there, %llu here", path, what,
             (unsigned long long)there, (unsigned long long)here);
    return CHECKPOINT_FOREIGN;
}

static checkpoint_vote run_check(struct checkpoint *checkpoint, const char *path,
                                 const struct checkpoint_head *head)
{
    const struct checkpoint_run *here = &checkpoint->run;
    if (memcmp(head->run.model, here->model, sizeof here->model) != 0) {
        snprintf(checkpoint->error, sizeof checkpoint->error,
                 "checkpoint %s is of another run: model %.*s there, %s "
                 "here",
                 path, (int)sizeof head->run.model, head->run.model, here->model);
        return CHECKPOINT_FOREIGN;
    }
    if (head->run.seed != here->seed)
        return foreign(checkpoint, path, "seed", head->run.seed, here->seed);
    if (head->run.batch != here->batch)
        return foreign(checkpoint, path, "batch", head->run.batch, here->batch);
    if (head->run.image_count != here->image_count)
        return foreign(checkpoint, path, "images", head->run.image_count, here->image_count);
    if (head->total_bytes != checkpoint->buffer_bytes)
        return foreign(checkpoint, path, "bytes of state", head->total_bytes,
                       checkpoint->buffer_bytes);
    return CHECKPOINT_WHOLE;
}

/* Brings a file into the buffer and looks at all of it; what is wrong with it is noted. */
static checkpoint_vote checkpoint_take(struct checkpoint *checkpoint, const char *path,
                                       struct checkpoint_head *head_out)
{
    char text[TOOL_FILE_WHY_BYTES] = "";
    int64_t bytes = tool_file_read(path, checkpoint->buffer, checkpoint->buffer_bytes + 1, text);
    if (bytes < 0) {
        if (errno == ENOENT) return CHECKPOINT_UNUSABLE; /* each generation alone may be missing */
    } else if ((uint64_t)bytes < sizeof *head_out) {
        snprintf(text, sizeof text, "%lld bytes, less than a head", (long long)bytes);
    } else {
        memcpy(head_out, checkpoint->buffer, sizeof *head_out);
        if (head_out->magic != CHECKPOINT_MAGIC) {
            snprintf(text, sizeof text, "this is no checkpoint of gf-train");
        } else if (head_out->version != CHECKPOINT_VERSION) {
            (void)foreign(checkpoint, path, "format version", head_out->version,
                          CHECKPOINT_VERSION);
            return CHECKPOINT_FOREIGN;
        } else {
            uint32_t crc = head_out->crc;
            memset(checkpoint->buffer + offsetof(struct checkpoint_head, crc), 0, sizeof crc);
            if ((uint64_t)bytes == checkpoint->buffer_bytes)
                crc = checkpoint_crc(checkpoint->buffer, checkpoint->buffer_bytes);
            if (crc != head_out->crc)
                snprintf(text, sizeof text, "corrupt: its checksum is %08x, its bytes give %08x",
                         head_out->crc, crc);
            else if (run_check(checkpoint, path, head_out) != CHECKPOINT_WHOLE)
                return CHECKPOINT_FOREIGN;
            else if ((uint64_t)bytes != checkpoint->buffer_bytes)
                snprintf(text, sizeof text, "%s than the %llu bytes it should have",
                         ((uint64_t)bytes < checkpoint->buffer_bytes) ? "shorter" : "longer",
                         (unsigned long long)checkpoint->buffer_bytes);
        }
    }
    if (text[0] == '\0') return CHECKPOINT_WHOLE;
    checkpoint_note(checkpoint, path, text);
    return CHECKPOINT_UNUSABLE;
}

/* Only the head: is it there, and of this run? */
static bool checkpoint_peek(const struct checkpoint *checkpoint, uint32_t member_id,
                            uint32_t generation, struct checkpoint_head *head_out)
{
    char path[CHECKPOINT_PATH_BYTES];
    struct checkpoint_head head;
    checkpoint_path_of(checkpoint, member_id, checkpoint_endings[generation], path);
    if (!checkpoint_head_read(path, &head)) return false;
    if ((memcmp(&head.run, &checkpoint->run, sizeof head.run) != 0) ||
        (head.total_bytes != checkpoint->buffer_bytes))
        return false;
    if ((head.world == 0) || (head.world > head.ids) || (head.ids > GF_WORLD_MAX)) return false;
    *head_out = head;
    return true;
}

static bool checkpoint_of_set(const struct checkpoint_head *head, const struct checkpoint_set *set)
{
    return (head->id == set->id) && (head->step == set->step) && (head->world == set->world);
}

/* ---- which sets there may be ----
 * Ranks that died left older files than the survivors, so those of all ids count. */

#define SET_WORDS 4u
_Static_assert(SET_WORDS *CHECKPOINT_SETS_MAX <= RANKS_SUMS_MAX, "all sets travel at once");

static bool newer(const struct checkpoint_set *a, const struct checkpoint_set *b)
{
    if (b->world == 0) return true;
    if (a->id != b->id) return a->id > b->id;
    if (a->step != b->step) return a->step > b->step;
    return a->world > b->world;
}

/* The newest first; the oldest falls off. */
static void sets_put(struct checkpoint_set *sets, const struct checkpoint_head *head)
{
    struct checkpoint_set set = {
        .id = head->id, .step = head->step, .world = head->world, .ids = head->ids};
    uint32_t at = 0;
    while ((at < CHECKPOINT_SETS_MAX) && !newer(&set, &sets[at]) &&
           !checkpoint_of_set(head, &sets[at]))
        at++;
    if ((at == CHECKPOINT_SETS_MAX) || checkpoint_of_set(head, &sets[at])) return;
    memmove(&sets[at + 1], &sets[at], (CHECKPOINT_SETS_MAX - 1 - at) * sizeof *sets);
    sets[at] = set;
}

/* Files of id 0 are looked at whole, for what is wrong with them; of the others the heads say which
 * sets there are. */
static void sets_look(struct checkpoint *checkpoint, struct checkpoint_set *sets)
{
    struct checkpoint_head head;
    char path[CHECKPOINT_PATH_BYTES];
    uint32_t ids = 0;
    for (uint32_t i = 0; i < CHECKPOINT_GENERATIONS; i++) {
        checkpoint_path_of(checkpoint, 0, checkpoint_endings[i], path);
        checkpoint_vote found = checkpoint_take(checkpoint, path, &head);
        if (found == CHECKPOINT_FOREIGN) return;
        if ((found == CHECKPOINT_UNUSABLE) || !checkpoint_peek(checkpoint, 0, i, &head)) continue;
        sets_put(sets, &head);
        if (head.ids > ids) ids = head.ids;
    }
    for (uint32_t member_id = 1; member_id < ((ids > 0) ? ids : GF_WORLD_MAX); member_id++) {
        for (uint32_t i = 0; i < CHECKPOINT_GENERATIONS; i++) {
            if (!checkpoint_peek(checkpoint, member_id, i, &head)) continue;
            sets_put(sets, &head);
            if (head.ids > ids) ids = head.ids;
        }
    }
    checkpoint_path_of(checkpoint, 0, "", path);
    if (sets[0].world == 0)
        checkpoint_note(checkpoint, path, "there is no checkpoint to resume from");
}

/* The newest first; rank 0 looks, all learn it. */
static gf_status checkpoint_sets_find(struct checkpoint *checkpoint,
                                      struct checkpoint_set sets_out[CHECKPOINT_SETS_MAX])
{
    uint64_t words[SET_WORDS * CHECKPOINT_SETS_MAX] = {0};
    struct checkpoint_set sets[CHECKPOINT_SETS_MAX] = {{0}};
    if (checkpoint->rank == 0) sets_look(checkpoint, sets);
    for (uint32_t i = 0; i < CHECKPOINT_SETS_MAX; i++)
        memcpy(&words[SET_WORDS * i],
               (uint64_t[]){sets[i].id, sets[i].step, sets[i].world, sets[i].ids},
               SET_WORDS * sizeof *words);
    gf_status status = ranks_sum_u64(checkpoint->gf, words, SET_WORDS * CHECKPOINT_SETS_MAX);
    if (status < 0) return status;
    for (uint32_t i = 0; i < CHECKPOINT_SETS_MAX; i++)
        sets_out[i] = (struct checkpoint_set){.id = words[SET_WORDS * i],
                                              .step = words[SET_WORDS * i + 1],
                                              .world = words[SET_WORDS * i + 2],
                                              .ids = words[SET_WORDS * i + 3]};
    return GF_OK;
}

/* ---- one of them ---- */

/* Behind a shrink a rank is not its member id: its file has another one's number. */
static checkpoint_vote elsewhere_take(struct checkpoint *checkpoint,
                                      const struct checkpoint_set *set, uint32_t rank)
{
    char path[CHECKPOINT_PATH_BYTES];
    struct checkpoint_head head;
    for (uint32_t i = 0; i < CHECKPOINT_GENERATIONS * set->ids; i++) {
        uint32_t member_id = i / CHECKPOINT_GENERATIONS;
        uint32_t generation = i % CHECKPOINT_GENERATIONS;
        if ((member_id == rank) || !checkpoint_peek(checkpoint, member_id, generation, &head))
            continue;
        if (!checkpoint_of_set(&head, set) || (head.rank != rank)) continue;
        checkpoint_path_of(checkpoint, member_id, checkpoint_endings[generation], path);
        return checkpoint_take(checkpoint, path, &head);
    }
    return CHECKPOINT_UNUSABLE;
}

/* The file of old rank `rank` in this set, into the buffer. */
static checkpoint_vote member_take(struct checkpoint *checkpoint, const struct checkpoint_set *set,
                                   uint32_t rank)
{
    char path[CHECKPOINT_PATH_BYTES];
    bool other = false;
    for (uint32_t i = 0; i < CHECKPOINT_GENERATIONS; i++) {
        struct checkpoint_head head;
        checkpoint_path_of(checkpoint, rank, checkpoint_endings[i], path);
        checkpoint_vote found = checkpoint_take(checkpoint, path, &head);
        if (found == CHECKPOINT_FOREIGN) return CHECKPOINT_FOREIGN;
        if (found == CHECKPOINT_UNUSABLE) continue;
        if (checkpoint_of_set(&head, set) && (head.rank == rank)) return CHECKPOINT_WHOLE;
        other = true;
    }
    if (elsewhere_take(checkpoint, set, rank) == CHECKPOINT_WHOLE) return CHECKPOINT_WHOLE;
    checkpoint_path_of(checkpoint, rank, "", path);
    checkpoint_note(checkpoint, path, other ? "of another save" : "no file of this save");
    return CHECKPOINT_UNUSABLE;
}

/* Whose file this rank loads: its own; one that was not in the save takes old rank 0's. */
static uint32_t old_rank(const struct checkpoint *checkpoint, const struct checkpoint_set *set)
{
    return (checkpoint->rank < set->world) ? checkpoint->rank : 0;
}

static gf_status set_load(struct checkpoint *checkpoint, const struct checkpoint_set *set)
{
    const unsigned char *state =
        checkpoint->buffer + sizeof(struct checkpoint_head) + checkpoint->extra_bytes;
    if (member_take(checkpoint, set, old_rank(checkpoint, set)) != CHECKPOINT_WHOLE) {
        snprintf(checkpoint->error, sizeof checkpoint->error,
                 "checkpoint changed while it was read");
        return GF_ERR_SYSTEM; /* only this rank saw it */
    }
    if (checkpoint->extra_bytes > 0)
        memcpy(checkpoint->extra, checkpoint->buffer + sizeof(struct checkpoint_head),
               checkpoint->extra_bytes);
    return gf_state_load(checkpoint->gf, state, gf_state_bytes(checkpoint->gf));
}

/* A newer file than the set's is of no use. Left where it is, the next save would put it in the
 * place of the good one. */
static gf_status newest_drop(struct checkpoint *checkpoint, const struct checkpoint_set *set)
{
    char newest[CHECKPOINT_PATH_BYTES];
    char before[CHECKPOINT_PATH_BYTES];
    struct checkpoint_head head;
    if (checkpoint_peek(checkpoint, checkpoint->member_id, 0, &head) &&
        checkpoint_of_set(&head, set))
        return GF_OK;
    if (!checkpoint_peek(checkpoint, checkpoint->member_id, 1, &head) ||
        !checkpoint_of_set(&head, set))
        return GF_OK;
    checkpoint_path_of(checkpoint, checkpoint->member_id, checkpoint_endings[0], newest);
    checkpoint_path_of(checkpoint, checkpoint->member_id, checkpoint_endings[1], before);
    if ((rename(before, newest) != 0) || (tool_file_folder_sync(newest) != 0))
        return checkpoint_fail(checkpoint, before, "rename");
    return GF_OK;
}

gf_status checkpoint_load(struct checkpoint *checkpoint, uint64_t *step_out)
{
    struct checkpoint_set sets[CHECKPOINT_SETS_MAX];
    gf_status status = checkpoint_sets_find(checkpoint, sets);
    for (uint32_t i = 0; (status == GF_OK) && (i < CHECKPOINT_SETS_MAX); i++) {
        /* ranks that lack a file; that found a foreign one */
        uint64_t bad[2] = {0, checkpoint->error[0] != '\0'};
        if ((sets[i].world > 0) && (bad[1] == 0)) {
            checkpoint_vote found =
                member_take(checkpoint, &sets[i], old_rank(checkpoint, &sets[i]));
            bad[0] = (found == CHECKPOINT_UNUSABLE) ? 1 : 0;
            bad[1] = (found == CHECKPOINT_FOREIGN) ? 1 : 0;
        }
        if ((status = ranks_sum_u64(checkpoint->gf, bad, 2)) < 0) return status;
        if (bad[1] > 0) break;
        if ((sets[i].world == 0) || (bad[0] > 0)) continue;
        if ((status = set_load(checkpoint, &sets[i])) < 0) return status;
        bad[0] = 0; /* nobody renames what another still reads */
        if ((status = ranks_sum_u64(checkpoint->gf, bad, 1)) < 0) return status;
        if ((status = newest_drop(checkpoint, &sets[i])) < 0) return status;
        *step_out = checkpoint->saved = sets[i].step;
        return GF_OK;
    }
    if (status < 0) return status;
    checkpoint->agreed = true;
    if ((checkpoint->error[0] == '\0') && (checkpoint->note[0] != '\0'))
        snprintf(checkpoint->error, sizeof checkpoint->error,
                 "checkpoint: no set of files is whole: %.1800s", checkpoint->note);
    else if (checkpoint->error[0] == '\0')
        snprintf(checkpoint->error, sizeof checkpoint->error,
                 "checkpoint %.1000s: another rank could not read its files", checkpoint->path);
    return GF_ERR_DATA;
}
