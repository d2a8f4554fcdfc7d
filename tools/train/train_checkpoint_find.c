/* Which checkpoints there may be. Ranks that died left older files than the survivors, so those of all ids count. */
#include <stdio.h>
#include <string.h>

#include "tools/train/train_checkpoint_file.h"
#include "tools/train/train_ranks.h"

#define SET_WORDS 4u
_Static_assert(SET_WORDS * CHECKPOINT_SETS_MAX <= RANKS_SUMS_MAX, "all sets travel at once");

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
    struct checkpoint_set set = {.id = head->id, .step = head->step, .world = head->world, .ids = head->ids};
    uint32_t at = 0;
    while ((at < CHECKPOINT_SETS_MAX) && !newer(&set, &sets[at]) && !checkpoint_of_set(head, &sets[at])) at++;
    if ((at == CHECKPOINT_SETS_MAX) || checkpoint_of_set(head, &sets[at])) return;
    memmove(&sets[at + 1], &sets[at], (CHECKPOINT_SETS_MAX - 1 - at) * sizeof *sets);
    sets[at] = set;
}

/* Files of id 0 are looked at whole, for what is wrong with them; of the others the heads say which sets there are. */
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
    if (sets[0].world == 0) checkpoint_note(checkpoint, path, "there is no checkpoint to resume from");
}

gf_status checkpoint_sets_find(struct checkpoint *checkpoint, struct checkpoint_set sets_out[CHECKPOINT_SETS_MAX])
{
    uint64_t words[SET_WORDS * CHECKPOINT_SETS_MAX] = {0};
    struct checkpoint_set sets[CHECKPOINT_SETS_MAX] = {{0}};
    if (checkpoint->rank == 0) sets_look(checkpoint, sets);
    for (uint32_t i = 0; i < CHECKPOINT_SETS_MAX; i++)
        memcpy(&words[SET_WORDS * i], (uint64_t[]){sets[i].id, sets[i].step, sets[i].world, sets[i].ids},
               SET_WORDS * sizeof *words);
    gf_status status = ranks_sum_u64(checkpoint->gf, words, SET_WORDS * CHECKPOINT_SETS_MAX);
    if (status < 0) return status;
    for (uint32_t i = 0; i < CHECKPOINT_SETS_MAX; i++)
        sets_out[i] = (struct checkpoint_set){.id = words[SET_WORDS * i], .step = words[SET_WORDS * i + 1],
                                              .world = words[SET_WORDS * i + 2], .ids = words[SET_WORDS * i + 3]};
    return GF_OK;
}
