/* Random jobs on the simulator, each from one 64-bit seed: the real library on every rank, a random
 * world, tensors, configuration, appliance and faults, and what must hold in each of them. The same
 * seed is the same job.
 *
 * soak_plan*.c draw the job, soak_values.c its gradients; soak_job.c runs it, soak_faults.c does
 * what befalls it, soak_requests.c posts the public collectives, soak_model.c knows what a step
 * must do, soak_weights.c what an optimizer must, soak_ends.c looks at how everybody ended;
 * soak_kernel.c saves system calls. Checks are cmocka's. */
#ifndef SOAK_H
#define SOAK_H

#include <stdio.h>

#include "lib/context.h"
#include "firmware-tests/cuda/late_gpu.h"
#include "firmware-tests/support/generation_log.h"
#include "firmware-tests/support/world.h"

#define SOAK_RANKS_MAX 16u
#define SOAK_TENSORS_MAX 16u
#define SOAK_ELEMS_MAX 40000u /* of a tensor */
#define SOAK_ACTS_MAX 4u
#define SOAK_GROWTH_MAX 2u
#define SOAK_REQUESTS_MAX 4u
#define SOAK_GENERATIONS_MAX 64u

/* whoever waits for a word of the coordinator gives it up within this, an inquiry included */
#define SOAK_SILENCE_NS UINT64_C(6000000000)

/* What befalls a rank, or the job, at one of a rank's turns. */
typedef enum soak_act_kind {
    SOAK_ACT_KILL = 0, /* started again after delay_ns; 0: never */
    SOAK_ACT_STOP,     /* for delay_ns; 0: for ever */
    SOAK_ACT_CUT,      /* from the ranks in `others`, for delay_ns; 0: for ever */
    SOAK_ACT_ABORT,
    SOAK_ACT_CLOSE,
    SOAK_ACT_DRAWN,                 /* those above are drawn by their number */
    SOAK_ACT_GROW = SOAK_ACT_DRAWN, /* the member id in `others` is started, as a new one */
    SOAK_ACT_COUNT
} soak_act_kind;

struct soak_act {
    soak_act_kind kind;
    uint32_t rank;
    uint64_t turn;
    uint64_t delay_ns;
    uint32_t others; /* a bit for each rank */
};

/* How strictly the ends are judged. */
typedef enum soak_hope {
    SOAK_HOPE_OK = 0, /* nothing happens that may be noticed: everybody ends well */
    SOAK_HOPE_NAMED,  /* whoever fails names `culprit` */
    SOAK_HOPE_AGREED, /* those that fail tell the same */
    SOAK_HOPE_TOLD,   /* they all know what the one that saw it says */
    /* elastic: all but `culprit` go on to the end, it too where it is started again */
    SOAK_HOPE_ON,
    SOAK_HOPE_ENDED /* everybody ends */
} soak_hope;

struct soak_plan {
    uint64_t seed;
    struct world_setup setup;
    uint32_t ids; /* member ids: the first world and what the job may grow by */
    struct gf_tensor tensors[SOAK_TENSORS_MAX];
    char names[SOAK_TENSORS_MAX][12];
    uint32_t pool_order[SOAK_TENSORS_MAX]; /* where setup.config says so */
    bool small, large;                     /* small: by the seed's top bit (SOAK_SMALL) */
    uint32_t steps;
    uint32_t passes; /* micro-batches: 1, 2 or 4 */
    bool noise;      /* gradients of any value, else small whole numbers */
    float rate;
    world_order order;
    uint32_t skip_percent;    /* of tensors */
    uint32_t bad_permille;    /* of steps of a rank: one value of one tensor is not finite */
    uint32_t request_percent; /* of gaps between steps in which requests are posted */
    uint32_t heartbeat_percent;
    uint32_t save_percent;   /* of gaps in which the state is saved and loaded */
    uint32_t linger_percent; /* of ranks that keep a failed context open */
    uint64_t pause_ns;       /* what a layer computes, at most */
    struct soak_act acts[SOAK_ACTS_MAX + SOAK_GROWTH_MAX + 1];
    uint32_t act_count;
    bool elastic; /* who fails regroups, who waits is let in */
    /* elastic: this rank calls gf_leave() after a step; GF_RANK_NONE: nobody */
    uint32_t leaver;
    uint64_t leave_step;
    bool lossy; /* messages meet random faults beside sim.faults */
    soak_hope hope;
    uint32_t culprit;
    const char *says; /* part of what they tell */
    const char *what; /* the kind of fault, for counting */
};

/* Seeds with this bit are jobs of few ranks, tensors and steps. */
#define SOAK_SMALL (UINT64_C(1) << 63)
void soak_plan_draw(struct soak_plan *plan, uint64_t seed);
void soak_plan_print(const struct soak_plan *plan, FILE *to);

/* 64 random bits that only depend on the seed and these, whatever the order in which they are asked
 * for. */
static inline uint64_t soak_scramble(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}
static inline uint64_t soak_draw_begin(const struct soak_plan *plan, uint32_t what, uint64_t a,
                                       uint64_t b)
{
    return soak_scramble((plan->seed + what * UINT64_C(0x9e3779b97f4a7c15)) ^ (a << 40) ^
                         (b << 20));
}
static inline uint64_t soak_draw_end(uint64_t begun, uint64_t c)
{
    return soak_scramble(begun + c * UINT64_C(0xd1342543de82ef95));
}
static inline uint64_t soak_draw(const struct soak_plan *plan, uint32_t what, uint64_t a,
                                 uint64_t b, uint64_t c)
{
    return soak_draw_end(soak_draw_begin(plan, what, a, b), c);
}
static inline uint32_t soak_below(uint64_t draw, uint32_t bound)
{
    return (uint32_t)((draw >> 32) * bound >> 32);
}
enum soak_what {
    SOAK_DRAW_VALUE = 1,
    SOAK_DRAW_SKIP,
    SOAK_DRAW_BAD,
    SOAK_DRAW_SAMPLES,
    SOAK_DRAW_PAUSE,
    SOAK_DRAW_REQUEST,
    SOAK_DRAW_HEARTBEAT,
    SOAK_DRAW_LINGER,
    SOAK_DRAW_WEIGHT,
    SOAK_DRAW_POLL,
    SOAK_DRAW_SAVE,
    SOAK_DRAW_EAGER
};

/* ---- what the appliance of a rank does; pure functions of the plan ---- */
bool soak_skips(const struct soak_plan *plan, uint64_t step, uint32_t rank, uint32_t tensor);
/* A value that is not finite: where, in this step of this rank. False: none. */
bool soak_bad(const struct soak_plan *plan, uint64_t step, uint32_t rank, uint32_t *tensor_out,
              uint64_t *elem_out);
uint64_t soak_samples(const struct soak_plan *plan, uint64_t step, uint32_t rank);
/* What the gradient holds once so many micro-batches were added, but for what is not finite; until
 * the next call. */
const float *soak_values(const struct soak_plan *plan, uint64_t step, uint32_t rank,
                         uint32_t tensor, float scale, uint32_t done);
/* Writes the gradient of one micro-batch. */
void soak_fill(const struct soak_plan *plan, gf_context *gf, uint64_t step, uint32_t tensor,
               uint32_t pass);

/* ---- the model ---- */

/* A late device's work is done before its memory is looked at or written to, as an appliance's
 * stream would wait. */
static inline void soak_drain(const gf_context *gf)
{
    if (gf->on_device) late_gpu_drain(gf->gpu);
}

/* What a step that was whole left behind, bit by bit: the same on all ranks. */
struct soak_mark {
    bool known, skipped;
    uint64_t gradient, weight, half, momentum, moment2, selection; /* hashes */
    float gradient_scale, loss_scale;
};

struct soak_model {
    const struct soak_plan *plan;
    uint64_t elem_count;     /* of the pool, gaps included */
    uint64_t step;           /* the newest one that a rank has ended */
    struct soak_mark mark;   /* of that */
    struct soak_mark before; /* of the one before */
    uint32_t members; /* a bit for each rank (by its first number) of the newest generation */
    uint32_t generation_count;
    /* the newest generation was begun again by other processes once all that had begun it were
     * dead */
    bool beside;
    bool given_up;  /* who was behind when it began has lost what it had sent */
    bool unapplied; /* the newest generation began behind a step that nobody had applied */
    struct soak_generation {
        uint32_t generation, members;
        uint64_t steps; /* behind which it began */
    } generations
        [SOAK_GENERATIONS_MAX]; /* that began, in that order; the first is the job's first world */
    uint64_t samples_before;
    bool local_begun;
    bool skipped;            /* that step was */
    bool exact;              /* history holds whole numbers */
    float scale;             /* the loss scale of the step after `step` */
    uint64_t updates;        /* steps that were applied */
    double *history, *local; /* [world][elem_count] */
    /* the same, of all terms that went into them, whatever has cancelled since */
    double *history_size, *local_size;
    float *kept, *kept_local; /* the same, bit by bit as the rank had it behind its newest step */
    uint32_t *kept_world;     /* [ids]; of how many ranks that step was */
    /* [elem_count]; sum and size: of what the step sent */
    double *weight, *momentum, *moment2, *applied, *sum, *size;
};

/* soak_mark.c */
__attribute__((format(printf, 3, 4))) void soak_step_fail(const gf_context *gf, uint64_t step,
                                                          const char *format, ...);
struct soak_mark soak_mark_of(const struct soak_model *model, gf_context *gf);
void soak_mark_check(const gf_context *gf, uint64_t step, const struct soak_mark *a,
                     const struct soak_mark *b);
void soak_selection_check(const struct soak_model *model, const gf_context *gf, uint64_t step);

void soak_model_open(struct soak_model *model, const struct soak_plan *plan);
void soak_model_close(struct soak_model *model);
/* The rank's context is open: its weights get their first values, the same on all. */
void soak_model_begin(struct soak_model *model, gf_context *gf);
/* The same values again: of a new generation behind no step. A rank that is late gets them, too;
 * nobody hears of it. */
void soak_model_weights(struct soak_model *model, gf_context *gf);
/* `step` is whole on this rank: checks gradients, applies them with gf_update(), checks what came
 * of it. */
void soak_model_step(struct soak_model *model, gf_context *gf, uint64_t step);
bool soak_is_local(const gf_context *gf); /* sparse momentum is each rank's own */
/* back: it was not sent */
bool soak_is_held(const gf_context *gf, const struct gf_pool_tensor *tensor, uint64_t elem);
double soak_decay_of(const gf_context *gf, const struct gf_pool_tensor *tensor);
/* soak_weights.c: the step was applied; the model goes on from what was found right. */
void soak_weights_check(struct soak_model *model, gf_context *gf, uint64_t step);
/* May `step` end with GF_ERR_NUMERIC? */
bool soak_model_may_be_bad(const struct soak_model *model, uint64_t step);

static inline bool soak_is_member(const struct soak_model *model, uint32_t rank)
{
    return (model->members >> rank & 1u) != 0;
}

/* soak_generation.c: a new generation has begun on this rank; done[rank] steps had each ended
 * before, those of `loose` (bits) the last of them without gf_update(). */
void soak_model_generation(struct soak_model *model, gf_context *gf, const uint64_t *done,
                           uint32_t loose, bool joiner);
/* This rank's own part of the state, to be found again behind a shrink. */
void soak_model_keep(struct soak_model *model, const gf_context *gf);
/* of a generation that is over */
bool soak_model_is_late(const struct soak_model *model, const gf_context *gf);

/* ---- public collectives between steps ---- */
struct soak_requests {
    uint32_t count, ended;
    struct soak_request {
        struct gf_request request;
        gf_operation operation;
        gf_type type;
        uint32_t root;
        uint64_t elem_count;
        unsigned char *memory; /* between guards; NULL: of the exchange region */
        void *data;
        bool done;
    } all[SOAK_REQUESTS_MAX];
};
void soak_requests_draw(const struct soak_plan *plan, uint64_t gap, struct soak_requests *requests);
gf_status soak_requests_post(const struct soak_plan *plan, gf_context *gf, uint64_t gap,
                             void *region, struct soak_requests *requests);
gf_status soak_requests_poll(const struct soak_plan *plan, gf_context *gf, uint64_t gap,
                             struct soak_requests *requests);
/* After the context was closed: guards, memory. */
void soak_requests_free(struct soak_requests *requests);

/* ---- a job ---- */
typedef enum soak_stage {
    SOAK_OPEN = 0,
    SOAK_GAP,
    SOAK_REQUESTS,
    SOAK_BEGIN,
    SOAK_DECLARE,
    SOAK_WAIT,
    SOAK_LAST,
    SOAK_CLOSE,
    SOAK_FAILING,
    SOAK_SHRINK,
    SOAK_END
} soak_stage;

struct soak_rank {
    soak_stage stage;
    uint64_t turns;
    uint64_t step;          /* under way; the gap before it has the same number */
    uint32_t place, pass;   /* how far declaring is */
    uint64_t busy_until_ns; /* computing: no call */
    uint64_t began_ns;      /* the operation that is waited for */
    void *region;           /* from gf_exchange_take() */
    struct soak_requests requests;
    gf_status end;         /* how its last operation ended */
    bool joiner, is_new;   /* it was started again, or is one that the job grows by */
    bool admits;           /* its regroup began between steps, because gf_regroup_due() was not 0 */
    bool leaves, left;     /* it has called gf_leave(); a generation has begun without it */
    bool excused;          /* it aborted, closed early, died or was stopped by the plan */
    struct gf_error error; /* the record at the end */
    uint64_t end_step;
    soak_stage end_stage;
};

struct soak_job {
    struct soak_plan plan;
    struct soak_model model;
    struct generation_log generations; /* of all ranks, checked at each turn */
    struct world w;
    struct soak_rank ranks[SOAK_RANKS_MAX];
    bool acted[SOAK_ACTS_MAX + SOAK_GROWTH_MAX + 1];
    uint64_t acted_ns[SOAK_ACTS_MAX + SOAK_GROWTH_MAX + 1]; /* when; then when it ended */
    uint64_t bound_ns;                                      /* no operation may take longer */
    uint64_t hash;                                          /* of everything that came out */
    bool met;                                               /* a fault was met */
    uint64_t done[SOAK_RANKS_MAX];                          /* steps that each rank has ended */
    /* a bit for each rank: of these the last without gf_update() */
    uint32_t loose;
    /* elastic: steps to go, and when a joiner may be given another */
    uint64_t goal, goal_ns;
    bool late; /* something befell the job when ranks had begun to leave */
    bool died; /* somebody was killed by an act */
    uint32_t shrinks, rejoins, grown, leaves;
    bool sparse;  /* a step was */
    bool on_wire; /* some rank's buffers went from device memory straight to the wire */
};

/* Draws and runs the job; fails the test that is under way if anything does not hold. job is then
 * as it was. */
void soak_run(struct soak_job *job, uint64_t seed);
void soak_job_print(const struct soak_job *job, FILE *to);

/* ---- soak_seed.c ---- */
#define SOAK_CHANGES_MAX 12u
#define SOAK_SEED_BYTES (32u + SOAK_CHANGES_MAX * 32u)
struct soak_seed {
    uint64_t seed;
    /* draws of the plan that are something else: the index-th of all is `value` */
    uint32_t change_count;
    struct soak_change {
        uint32_t index;
        uint64_t value;
    } changes[SOAK_CHANGES_MAX];
};
void soak_run_seed(struct soak_job *job, const struct soak_seed *seed);
uint32_t soak_rolls(void); /* of the newest soak_run_seed() */
bool soak_seed_read(const char *text, struct soak_seed *seed_out);
/* False: that was all. A line that is no job fails the test. */
bool soak_corpus_next(FILE *corpus, struct soak_seed *seed_out);
const char *soak_seed_text(const struct soak_seed *seed, char *text, size_t size);

/* ---- soak_elastic.c ---- */
void soak_enter(struct soak_job *job, uint32_t rank, soak_stage stage);
void soak_finish(struct soak_job *job, uint32_t rank, gf_status status);
void soak_give_up(struct soak_job *job, uint32_t rank, gf_status status);
/* A turn of a rank that has failed: true where it shrinks now. */
bool soak_shrink_begin(struct soak_job *job, uint32_t rank, bool drained);
void soak_turn_shrink(struct soak_job *job, uint32_t rank);
void soak_turn_last(struct soak_job *job, uint32_t rank);
void soak_generation_begun(struct soak_job *job, uint32_t rank);
void soak_restart(struct soak_job *job, uint32_t rank);
void soak_grow(struct soak_job *job, uint32_t id);
void soak_late_look(struct soak_job *job); /* has somebody begun to leave? */

/* ---- soak_faults.c ---- */
void soak_faults_progress(struct soak_job *job, uint32_t rank); /* before each turn of a rank */
/* A stop that ends later, after everybody else is done. False: there is none. */
bool soak_faults_resume(struct soak_job *job);

/* ---- soak_ends.c ---- */
void soak_ends_check(struct soak_job *job);

#endif
