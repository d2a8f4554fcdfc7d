/* Checkpoints of a training run: a file a rank, FILE.ID, and the one before it, FILE.ID.before. A
 * member id is the rank in the first epoch (gf_first_rank()), which nobody takes over; the rank of
 * the epoch is in the file. Each is written whole under another name and renamed, so that whenever
 * ranks are killed, one complete set is left. All functions that return a status are called by all
 * ranks at the same point; after a negative one `error` says why, or, where it is empty, the
 * library does.
 *
 * What is not in a file follows from it: the order of images and the learning rate are functions of
 * seed and step. */
#ifndef GF_TRAIN_CHECKPOINT_H
#define GF_TRAIN_CHECKPOINT_H

#include "gradientflow.h"
#include "tools/common/tool_file.h"

#define CHECKPOINT_PATH_BYTES TOOL_FILE_PATH_BYTES
#define CHECKPOINT_MODEL_BYTES 32u

/* What a run is; a checkpoint of another one is refused. */
struct checkpoint_run {
    char model[CHECKPOINT_MODEL_BYTES];
    uint64_t seed;
    uint64_t batch;
    uint64_t image_count;
};

struct checkpoint {
    const char *path; /* NULL: none */
    gf_context *gf;
    struct checkpoint_run run;
    void *extra; /* of the appliance: saved and loaded as bytes; a multiple of 8 */
    uint64_t extra_bytes;
    uint32_t rank, world;    /* of this epoch */
    uint32_t member_id, ids; /* of the first one */
    /* of this run of the program: files of two runs are no set; a later run's is larger. Above 32
     * bits a number, one more than that of the newest file that is there; below them a random
     * one */
    uint64_t id;
    uint64_t saved;        /* this step is the newest that all ranks of this world have saved */
    struct tool_file file; /* the one being written */
    unsigned char *buffer; /* a whole file */
    uint64_t buffer_bytes;
    char error[2 * CHECKPOINT_PATH_BYTES];
    bool agreed; /* all ranks fail for that, and know */
    /* what is wrong with files that were passed over; empty: nothing */
    char note[2 * CHECKPOINT_PATH_BYTES];
    /* files that were there as this run began: of this rank, of how many ranks, of any id */
    bool own_is_there, any_is_there;
    uint64_t ranks_there;
    bool is_refused; /* by checkpoint_begin_anew() */
};

/* path, run, extra and extra_bytes are set by the caller before. Nothing is done where path is
 * NULL. */
gf_status checkpoint_open(struct checkpoint *checkpoint, gf_context *gf);
void checkpoint_close(struct checkpoint *checkpoint);

/* Between steps, `step` of them done. Where a rank cannot write its file, it says so and no rank
 * saves: GF_OK, and `saved` is not that step. */
gf_status checkpoint_save(struct checkpoint *checkpoint, uint64_t step);
/* For a run that begins at step 0: refused on all ranks where any rank's files are there, as a save
 * would replace them. Only in the first epoch. */
gf_status checkpoint_begin_anew(struct checkpoint *checkpoint);
/* Loads the newest set that is whole on all ranks; of another number of ranks by the rule at
 * gf_state_load(). Only in the first epoch, and where any_is_there. */
gf_status checkpoint_load(struct checkpoint *checkpoint, uint64_t *step_out);

#endif
