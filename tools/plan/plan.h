/* What the parts of gf-plan share: a model on so many GPUs of a cluster, in one of the modes, and
 * what comes of it.
 *
 *     plan_main.c     options
 *     plan_case.c     model, cluster and mode to a simulation (plan_world.c) and its row
 *     plan_table.c    rows of many cases as text and CSV, and how far they are; plan_svg.c as a
 *                     picture
 *     plan_cache.c    rows that are kept between runs
 *     plan_paper.c    the published results beside their predictions, and what moves these
 *     plan_transformer.c  tensor tables of language models
 *     plan_advise.c   what to choose: configuration, parallelism, batch and learning rate */
#ifndef PLAN_H
#define PLAN_H

#include <stdio.h>

#include "tools/common/tool_model.h"
#include "tools/plan/plan_world.h"

/* Each is the one before it and something more, from PLAN_RING on. */
typedef enum plan_mode {
    PLAN_SERVER = 0, /* fp32, tensor by tensor after backward, through rank 0 */
    PLAN_TREE,       /* the same up and down a reduction tree */
    PLAN_RING,       /* the same around the ring */
    PLAN_FP16,       /* 16-bit gradients */
    PLAN_OVERLAP,    /* each posted when backward ends it, several at once */
    PLAN_LAZY,       /* fused */
    PLAN_SPARSE,     /* only the chunks that matter; which ones is synthetic */
    PLAN_HIERARCHY,  /* direct in the nodes, ring between them */
    PLAN_MODE_COUNT
} plan_mode;
const char *plan_mode_name(plan_mode mode);

struct plan_model {
    char name[256];            /* the file's, without folder and .cfg */
    struct gf_tensor *tensors; /* [tensor_count], fp32 */
    struct tool_flops *flops;
    char (*names)[48];
    uint32_t tensor_count;
    uint64_t elem_count;
    double forward_flops, backward_flops; /* a sample: an image, or a sequence */
    struct tool_sample sample;
};
/* 0, or -1 and said why on stderr. Memory is kept until the end. */
int plan_model_load(const char *path, struct plan_model *model_out);

/* What is chosen beside the mode; zeroes: the defaults below. */
struct plan_choice {
    uint64_t fuse_bytes; /* lazy and later */
    uint64_t slice_bytes;
    double keep_share;      /* sparse and later */
    uint32_t batch;         /* a GPU */
    gf_algorithm algorithm; /* GF_ALGORITHM_AUTO: the mode's, unless */
    bool is_auto;           /* it was asked for */
    /* exchange and sparse settings as they are; the mode is then just its name */
    const struct gf_config *config;
    double compute_s; /* of a step; 0: from the cluster's rate */
};
#define PLAN_FUSE_BYTES (UINT64_C(16) << 20)
#define PLAN_CUT_NEVER (UINT64_C(64) << 30)
#define PLAN_KEEP_SHARE 0.15

struct plan_row {
    bool known; /* false: this build or this cluster has no such thing */
    plan_mode mode;
    uint32_t gpus;
    double compute_s, step_s, exposed_s;
    double images_per_second, speedup, efficiency;
    double wire_bytes; /* of the rank that sends most */
    double messages;   /* of all ranks */
    double buffers;
};

/* One GPU's time for a step, nothing exchanged. 0: the cluster knows no rate for the model. */
double plan_compute_s(const struct plan_model *model, const struct tool_cluster *cluster,
                      const struct plan_choice *choice);
uint32_t plan_batch(const struct plan_model *model, const struct tool_cluster *cluster,
                    const struct plan_choice *choice);
/* A hierarchy needs several nodes of several GPUs each. */
bool plan_mode_is_there(plan_mode mode, uint32_t gpus, const struct tool_cluster *cluster);
/* The configuration that a mode stands for. */
void plan_mode_config(plan_mode mode, const struct plan_choice *choice,
                      struct gf_config *config_out);
/* 0, -1, or PLAN_NO_ROOM where a GPU's memory is too small, and said why on stderr. */
#define PLAN_NO_ROOM 1
int plan_case_run(const struct plan_model *model, const struct tool_cluster *cluster,
                  plan_mode mode, uint32_t gpus, const struct plan_choice *choice,
                  struct plan_row *row_out);

/* ---- plan_cache.c: a line a case in a file, by everything that it depends on ---- */
struct plan_cache {
    const char *path; /* NULL: none is kept */
};
/* plan_case_run(), or what the file has; a new row is added to it at once. */
int plan_cache_run(const struct plan_cache *cache, const struct plan_model *model,
                   const struct tool_cluster *cluster, plan_mode mode, uint32_t gpus,
                   const struct plan_choice *choice, struct plan_row *row_out);

/* ---- plan_table.c, plan_svg.c ---- */
struct plan_table {
    const struct plan_model *model;
    const struct tool_cluster *cluster;
    struct plan_row *rows;
    uint32_t row_count;
};
void plan_table_head(const struct plan_table *table, const struct plan_choice *choice, FILE *out);
void plan_table_row(const struct plan_table *table, const struct plan_row *row, FILE *out);
void plan_table_foot(const struct plan_table *table, FILE *out); /* what a row of dashes means */
double plan_tokens(const struct plan_model *model, const struct plan_row *row);
/* FLOPs that the model has, a second, over the peak of the GPUs (arXiv 2204.02311, appendix B); 0:
 * it is not known. */
double plan_mfu(const struct plan_model *model, const struct tool_cluster *cluster,
                const struct plan_row *row);
void plan_csv(const struct plan_table *table, FILE *out);
void plan_svg(const struct plan_table *table, FILE *out);

/* "layers,width,heads,vocabulary[,sequence length]" to a model file, of GPT-2's form or Llama's. 0
 * or -1. */
int plan_transformer(const char *text, bool is_llama, FILE *out);
/* Lines on stderr, where it takes longer than 2 s, or where it is asked for; none with --quiet. */
struct plan_progress {
    bool shows, is_asked;
    uint32_t rows, row_count;
    double done, all;
    uint64_t begin_ns;
};
void plan_progress_begin(struct plan_progress *progress, bool shows, bool is_asked);
/* So many rows to come, or, of those expected, not to come. */
void plan_progress_expect(struct plan_progress *progress, uint32_t gpus, int rows);
void plan_progress_row(struct plan_progress *progress, uint32_t gpus); /* it is there */

/* 0 or -1, as main() answers. brief: without the sensitivity. */
int plan_paper(bool brief, const struct plan_cache *cache);
int plan_advise(const struct plan_model *model, const struct tool_cluster *cluster, uint32_t gpus,
                const struct plan_choice *choice, const struct plan_cache *cache,
                const char *config_path, bool progress);

/* a line on stderr; -1 */
__attribute__((format(printf, 1, 2))) int plan_refuse(const char *format, ...);

#endif
