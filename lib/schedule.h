/* Learning rates by step. gradientflow.h brings this with it; nothing else is needed to use it. */
#ifndef GF_SCHEDULE_H
#define GF_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gf_schedule_kind {
    GF_SCHEDULE_CONSTANT = 0,
    GF_SCHEDULE_STEP,       /* times `factor` every so many steps */
    GF_SCHEDULE_POLYNOMIAL, /* end + (highest - end) (1 - t)^power */
    GF_SCHEDULE_COSINE      /* end + (highest - end) (1 + cos(pi t)) / 2 */
} gf_schedule_kind;

/* t goes from 0 after the warm-up to 1 at step_count. Zeroes mean what the comments say. */
struct gf_schedule {
    gf_schedule_kind kind;
    /* the highest rate where batch is 0, else times batch / base_batch, or its root */
    float base_rate;
    uint32_t batch;        /* of all ranks; 0: no scaling */
    bool root_scaling;     /* highest = base_rate sqrt(batch / base_batch): of Adam */
    uint32_t base_batch;   /* 0: 256 */
    uint64_t warmup_steps; /* step s of these has highest (s + 1) / (warmup_steps + 1) */
    uint64_t step_count;   /* polynomial, cosine: from here on the rate is end_rate */
    float end_rate;
    float power;    /* polynomial; above 0; 0: 1 */
    float factor;   /* step; 0: 0.1 */
    uint64_t every; /* step: times factor after each so many steps; 0: never */
};

/* The learning rate of step `step`, counted from 0: the same bits on every machine. Needs no
 * context. 0 for NULL. */
float gf_schedule_rate(const struct gf_schedule *schedule, uint64_t step);

#ifdef __cplusplus
}
#endif
#endif
