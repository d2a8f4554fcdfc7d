/* What rank 0 says: a live line while it trains, a table at the end, and JSON for programs. */
#ifndef GF_TRAIN_REPORT_H
#define GF_TRAIN_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradientflow.h"
#include "tools/common/tool_file.h"

struct report {
    bool terminal; /* stderr is one: the line is written over itself */
    bool written;  /* there is a line that wants to be ended */
    uint64_t begin_ns, begin_step, last_ns, last_wait_ns, last_step;
};

/* A moment of the training. */
struct report_moment {
    uint64_t now_ns, step, step_count, epoch_steps;
    uint32_t batch;
    double loss;
    double wire_bytes; /* of all ranks */
    uint64_t wait_ns;  /* of this rank, since it began */
};

struct report_result {
    const char *model, *precision, *wire, *algorithm;
    const char *path; /* how gradients on a device travel; NULL: they are the host's */
    uint32_t ranks, batch;
    uint64_t seed, steps, steps_skipped, images;
    double loss_first, loss_last; /* means over the global batch of that step */
    double test_accuracy;         /* percent */
    uint64_t *weights_hash;       /* [ranks] */
    uint64_t wire_bytes;          /* of all ranks, in the training steps */
    /* the layer that is divided between the ranks; NULL: none. Then: */
    const char *split;
    /* of all ranks, for its activations and their gradients, in the training steps */
    uint64_t split_bytes;
    uint64_t split_weight_bytes; /* what data parallelism reduces in a step: FireCaffe's W */
    uint64_t split_input_bytes;  /* what enters it in a step: FireCaffe's D */
    /* a step, over the last half of the steps and none before the target share of sparse
     * communication; not a number if there is none */
    double wire_bytes_steady;
    uint64_t produced_bytes;             /* gradients of all ranks as fp32, in the training steps */
    uint64_t messages;                   /* of all ranks, in the training steps */
    double keep_share;                   /* of the chunks; 1 where all is sent */
    uint32_t tensor_count, buffer_count; /* a dense step */
    uint64_t wire_bytes_setup;           /* of all ranks, before the first step */
    uint64_t mapped_bytes;               /* of all ranks, in the training steps */
    uint64_t control_bytes;              /* of all ranks, from the start */
    double train_seconds;  /* all steps of this process, which may have come in late */
    uint64_t images_timed; /* of these */
    double step_seconds;   /* medians, this rank's */
    double exchange_seconds;
    uint32_t slowest;         /* rank that cost the others most; GF_RANK_NONE */
    uint32_t slowest_percent; /* of the steps in which it was the last */
    double slowest_seconds;   /* all steps */
    /* 1 - time blocked in waits / time of exchanges, over all ranks */
    double hidden_share;
};

/* step: the first to come */
void report_begin(struct report *report, uint64_t now_ns, uint64_t step);
/* Writes the line if it is time: a tenth of a second on a terminal, else 5 seconds. */
void report_live(struct report *report, const struct report_moment *moment);
/* Ends the line, if there is one, so that what follows begins on its own. */
void report_end(struct report *report);
/* The table, and as its last line "test accuracy NN.NN %". */
void report_table(const struct report_result *result);
/* 0, or -1 with why in file->error. */
int report_json(const char *path, const struct report_result *result, struct tool_file *file);
bool report_hashes_equal(const struct report_result *result);
#endif
