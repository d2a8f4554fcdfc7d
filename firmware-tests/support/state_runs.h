/* Runs that are saved and loaded: a world, what its ranks saved, and steps whose values depend on
 * step and rank. */
#ifndef STATE_RUNS_H
#define STATE_RUNS_H

#include "lib/state/state_format.h"
#include "firmware-tests/support/world.h"

#define STATE_RANKS_MAX 8u
#define STATE_TENSORS 4u

/* What is different from run to run. */
struct state_run {
    const char *name;
    uint32_t world;
    bool sparse, scaled, nesterov;
    gf_sparse_momentum momentum;
    gf_average average;
    gf_optimizer optimizer;
    gf_type wire, half;
    float beta;
};
#define STATE_RUNS 9
extern const struct state_run state_runs[STATE_RUNS]; /* one of each kind */
extern const struct gf_tensor state_tensors[STATE_TENSORS];
struct world_setup state_setup_of(const struct state_run *run);

/* What each rank saved. */
struct state_save {
    uint32_t world;
    uint64_t bytes; /* of each */
    unsigned char *data[STATE_RANKS_MAX];
};
struct state_save state_save_take(struct world *w);
void state_save_free(struct state_save *save);
void state_save_expect_equal(const struct state_save *a, const struct state_save *b);
/* what their ranks would save, byte by byte; as many ranks */
bool state_worlds_same(struct world *a, struct world *b);
/* Each rank loads as gradientflow.h says. */
void state_save_load(struct world *w, const struct state_save *save);
struct gf_state_head state_head_of(const struct state_save *save, uint32_t rank);

struct state_moment {
    uint64_t step; /* 1 is the first */
    bool broken;   /* a value that is not finite */
};
/* For struct world_step; arg is a struct state_moment. state_fill() multiplies by the loss scale,
 * state_fill_whole() writes small whole numbers. */
void state_fill(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg);
void state_fill_whole(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg);
/* A step and its update. Steps 4, 7 and 8 are broken where fill is state_fill(). */
void state_step_run(struct world *w, uint64_t number,
                    void (*fill)(struct world *w, uint32_t rank, uint32_t tensor, void *gradient,
                                 void *arg));
/* Weights before the first step. */
void state_weights_begin(struct world *w);
/* Steps `first` to `last` in both worlds: after each they are the same, and have skipped it both or
 * neither. */
void state_steps_same(struct world *a, struct world *b, uint64_t first, uint64_t last,
                      void (*fill)(struct world *w, uint32_t rank, uint32_t tensor, void *gradient,
                                   void *arg),
                      const char *name);
/* their 16-bit weights, in host memory or on a late device */
void state_halves_same(struct world *a, struct world *b);

#endif
