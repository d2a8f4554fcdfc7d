/* Training and testing with all ranks of the job. Every function is called by all ranks at the same
 * point; a negative status is the library's and gf_error_last() tells it whole. */
#ifndef GF_TRAIN_LOOP_H
#define GF_TRAIN_LOOP_H

#include "tools/train/train_checkpoint.h"
#include "tools/train/train_device.h"
#include "tools/train/train_net.h"
#include "tools/train/train_options.h"
#include "tools/train/train_report.h"
#include "tools/train/train_split.h"

#define TRAIN_SERIES_MAX 65536u /* the newest steps, for medians */
#define TRAIN_LIVE_STEPS 25u    /* steps between two looks at the loss of all ranks */

struct train {
    bool left; /* the others go on without this rank */
    const struct train_options *options;
    const struct gf_config *config;
    gf_context *gf;
    struct data_set images, tests;
    struct net net;
    struct gf_tensor tensors[NET_TENSORS_MAX]; /* as the library is told of them */
    struct net_split split;                    /* of --split */
    float *weight_copy[NET_TENSORS_MAX];       /* with --precision (train_weights.h) */
    float *gradient_copy[NET_TENSORS_MAX];
    /* weights and gradients are the GPU's; net's weights are copies, fresh after train_steps() */
    bool on_device;
    struct device device;
    uint32_t rank, world;
    struct gf_schedule schedule;
    uint64_t step, step_count, epoch_steps;
    uint64_t shuffled;   /* order is that of this epoch, the first being 1; 0: of none */
    uint64_t step_first; /* 0, or where the checkpoint was */
    uint64_t loop_first; /* the same, or where this process came in */
    bool joins;          /* comes into a running job, and was not told its values yet */
    /* why the run ends: its loss is no number any more; empty: it is one */
    char diverged[128];
    struct checkpoint checkpoint;
    uint32_t *order;     /* [images.image_count] of the epoch under way */
    float *hash_limbs;   /* [world][8] */
    float *step_seconds; /* [series_max] rings */
    float *exchange_seconds;
    uint64_t *step_bytes;
    float *sorted; /* [series_max] */
    uint64_t series_max;
    struct gf_stats stats;         /* as of the last step */
    struct gf_stats stats_trained; /* as the first step began */
    uint64_t loop_ns;              /* the training steps took */
    struct report report;
    struct report_result result;
};

/* Steps that the options ask for and what is wrong with them; NULL if nothing is. */
const char *train_plan(struct train *train);
/* The workspace's size in bytes, and its layout at base if that is not NULL; base is 64-byte
 * aligned. */
size_t train_layout(struct train *train, char *base);
/* Prepares for checkpoints and, where it is asked for, goes back to the newest, if there is one.
 * Where it is not asked for, one that is there is an error. */
gf_status train_resume(struct train *train);
gf_status train_checkpoint_begin(struct train *train); /* its first part */
gf_status train_steps(struct train *train);
/* A checkpoint after this step, where there is none of it and one is asked for. */
gf_status train_save(struct train *train, uint64_t step);
gf_status train_test(struct train *train);
/* Sums up over all ranks into train->result. */
gf_status train_end(struct train *train);

/* Of count things, the first that rank takes: contiguous, in rank order, equal up to one. */
uint32_t train_share_first(uint32_t count, uint32_t rank, uint32_t world);

#endif
