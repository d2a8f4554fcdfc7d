/* What saving and loading share. */
#ifndef GF_TRAIN_CHECKPOINT_FILE_H
#define GF_TRAIN_CHECKPOINT_FILE_H

#include "tools/train/train_checkpoint.h"

#define CHECKPOINT_MAGIC UINT64_C(0x0a4e494152544647) /* "GFTRAIN\n" */
#define CHECKPOINT_VERSION 2u
#define CHECKPOINT_GENERATIONS 2u /* FILE.ID and FILE.ID.before */
extern const char *const checkpoint_endings[CHECKPOINT_GENERATIONS];

/* Little-endian, like the state after it. */
struct checkpoint_head {
    uint64_t magic;
    uint32_t version;
    uint32_t crc; /* zlib's, of the whole file with this as 0 */
    uint64_t total_bytes;
    uint64_t extra_bytes;
    uint64_t id;
    uint64_t step;
    uint32_t world, rank;    /* of the epoch that saved it */
    uint32_t ids, member_id; /* of the first epoch */
    struct checkpoint_run run;
};
_Static_assert(sizeof(struct checkpoint_head) % 8 == 0, "the state after it is aligned");

/* FILE.ID and the ending, into path_out[CHECKPOINT_PATH_BYTES]. */
void checkpoint_path_of(const struct checkpoint *checkpoint, uint32_t member_id, const char *ending,
                        char *path_out);
uint32_t checkpoint_crc(const unsigned char *data, uint64_t bytes);
/* Its head, where it is a checkpoint of this format, of whatever run. */
bool checkpoint_head_read(const char *path, struct checkpoint_head *head_out);
/* Sets `id`: the same on all ranks, larger than that of each file which is there. And what is
 * there. */
gf_status checkpoint_number(struct checkpoint *checkpoint);
/* Puts what errno says into `error`. */
gf_status checkpoint_fail(struct checkpoint *checkpoint, const char *path, const char *call);

#endif
