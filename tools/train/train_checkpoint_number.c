/* Which run of the program a checkpoint is of. No clock says which of two is newer: one that was
 * set back between them would have a resumed run take the older one and drop the newer. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "tools/train/train_checkpoint_file.h"
#include "tools/train/train_ranks.h"

#define NUMBER_MAX UINT32_MAX

bool checkpoint_head_read(const char *path, struct checkpoint_head *head_out)
{
    char why[TOOL_FILE_WHY_BYTES];
    struct checkpoint_head head;
    if (tool_file_read(path, &head, sizeof head, why) != (int64_t)sizeof head) return false;
    if ((head.magic != CHECKPOINT_MAGIC) || (head.version != CHECKPOINT_VERSION)) return false;
    *head_out = head;
    return true;
}

struct newest {
    uint32_t number;
    bool is_there; /* a file, of whatever kind */
    char path[CHECKPOINT_PATH_BYTES];
};

static void number_of(const char *path, struct newest *newest)
{
    struct checkpoint_head head;
    struct stat about;
    newest->is_there = newest->is_there || (lstat(path, &about) == 0) || (errno != ENOENT);
    if (!checkpoint_head_read(path, &head) || ((head.id >> 32) <= newest->number)) return;
    newest->number = (uint32_t)(head.id >> 32);
    (void)snprintf(newest->path, sizeof newest->path, "%s", path);
}

/* FILE.ID or FILE.ID.before? */
static bool name_fits(const char *name, const char *file)
{
    const size_t length = strlen(file);
    if ((strncmp(name, file, length) != 0) || (name[length] != '.')) return false;
    const char *id = name + length + 1;
    const char *ending = id + strspn(id, "0123456789");
    if (ending == id) return false;
    for (uint32_t i = 0; i < CHECKPOINT_GENERATIONS; i++)
        if (strcmp(ending, checkpoint_endings[i]) == 0) return true;
    return false;
}

/* Of all ids: a run with fewer ranks, or another model, leaves files of an older one behind. */
static void folder_look(const struct checkpoint *checkpoint, struct newest *newest)
{
    char folder[CHECKPOINT_PATH_BYTES] = ".";
    char path[CHECKPOINT_PATH_BYTES];
    const char *slash = strrchr(checkpoint->path, '/');
    const size_t length = (slash != NULL) ? (size_t)(slash - checkpoint->path) + 1 : 0;
    if (length > 0) (void)snprintf(folder, sizeof folder, "%.*s", (int)length, checkpoint->path);
    DIR *all = opendir(folder);
    if (all == NULL) return; /* that nothing can be written there is said next */
    for (const struct dirent *one; (one = readdir(all)) != NULL;) {
        if (!name_fits(one->d_name, checkpoint->path + length)) continue;
        int used =
            snprintf(path, sizeof path, "%.*s%s", (int)length, checkpoint->path, one->d_name);
        if ((used > 0) && ((size_t)used < sizeof path)) number_of(path, newest);
    }
    (void)closedir(all);
}

gf_status checkpoint_number(struct checkpoint *checkpoint)
{
    char path[CHECKPOINT_PATH_BYTES];
    struct newest own = {.number = 0};
    uint32_t newest;
    uint32_t random = 0;
    uint64_t words[3] = {0};
    gf_status status;
    /* each its own, which may be on a disk of its host; rank 0 what else is there */
    for (uint32_t i = 0; i < CHECKPOINT_GENERATIONS; i++) {
        checkpoint_path_of(checkpoint, checkpoint->member_id, checkpoint_endings[i], path);
        number_of(path, &own);
    }
    checkpoint->own_is_there = own.is_there;
    if (checkpoint->rank == 0) folder_look(checkpoint, &own);
    newest = own.number;
    if ((status = ranks_max_u32(checkpoint->gf, &newest)) < 0) return status;
    if (newest == NUMBER_MAX) {
        checkpoint->agreed = true;
        snprintf(checkpoint->error, sizeof checkpoint->error,
                 "checkpoint %.1000s%s has the number %u, after which there is none: remove it",
                 (own.number == newest) ? own.path : checkpoint->path,
                 (own.number == newest) ? "" : ": a file of another rank", NUMBER_MAX);
        return GF_ERR_DATA;
    }
    /* Of two runs that do not see each other's files the numbers are the same. */
    if ((checkpoint->rank == 0) && (getrandom(&random, sizeof random, 0) != sizeof random))
        return checkpoint_fail(checkpoint, checkpoint->path, "getrandom");
    words[0] = random; /* the others have 0 */
    words[1] = checkpoint->own_is_there ? 1 : 0;
    words[2] = own.is_there ? 1 : 0;
    if ((status = ranks_sum_u64(checkpoint->gf, words, 3)) < 0) return status;
    checkpoint->id = words[0] | (uint64_t)(newest + 1) << 32;
    checkpoint->ranks_there = words[1];
    checkpoint->any_is_there = (words[2] > 0);
    return GF_OK;
}

gf_status checkpoint_begin_anew(struct checkpoint *checkpoint)
{
    char path[CHECKPOINT_PATH_BYTES];
    struct stat about;
    if (checkpoint->ranks_there == 0) return GF_OK;
    checkpoint_path_of(checkpoint, checkpoint->member_id, checkpoint_endings[0], path);
    if (lstat(path, &about) != 0)
        checkpoint_path_of(checkpoint, checkpoint->member_id, checkpoint_endings[1], path);
    checkpoint->agreed = checkpoint->is_refused = true;
    snprintf(checkpoint->error, sizeof checkpoint->error,
             "checkpoint %.1000s is there%s: say --resume to go on from it, or remove it",
             checkpoint->own_is_there ? path : checkpoint->path,
             checkpoint->own_is_there ? "" : ", a file of another rank");
    return GF_ERR_STATE;
}
