/* A device that works late: queued copies and ops are done only when somebody asks whether they
 * are, a few at a time, in order. Its memory is ordinary, so a test can look into it; what the host
 * was told of too early it finds poisoned or old. Hand `late_gpu` in as config.drivers->gpu; the
 * ops it does are the host's. */
#ifndef LATE_GPU_H
#define LATE_GPU_H

#include "drivers/gpu.h"

extern const struct gf_gpu_driver late_gpu;
extern uint32_t late_gpu_most; /* pieces of work at a look, at most; 3 */

void late_gpu_drain(struct gf_gpu *gpu);             /* all that was queued */
uint32_t late_gpu_waiting(const struct gf_gpu *gpu); /* still queued */

#endif
