/* Whole contexts on the real CUDA driver, over a CUDA library without a GPU, beside the same
 * contexts on the host. All ranks are in one thread; the appliance computes on the host, and the
 * default stream brings its gradients to the device. */
#ifndef CUDA_WORLD_H
#define CUDA_WORLD_H

#include "firmware-tests/cuda/cuda_fixture.h"
#include "firmware-tests/support/state_runs.h"

struct cuda_world {
    struct cuda_fixture fixture;
    uint64_t wire_ranks; /* ranks whose messages lie in device memory, a bit each; 0: none */
    bool ucx_registers;  /* exchange regions, before the library does */
    struct {
        struct gf_gpu *gpu;
        void *base;
    } by_ucx[STATE_RANKS_MAX];
    /* 1: all ranks on one, and it is meant; 2: as device.ordinal = auto has it */
    uint32_t devices;
    uint32_t import_wrong;   /* the so-many-th such time it gets its own memory instead; 0: never */
    uint32_t export_refused; /* the so-many-th time that a rank would export */
    /* the so-many-th time that a rank would reach another's memory, it cannot; 0: never */
    uint32_t import_refused;
    struct world host, cuda;
};
extern struct cuda_world cuda_world;

/* A new fake, of that seed; second: "NAME=VALUE" for its environment, or NULL. */
void cuda_world_begin(uint32_t seed, const char *second);
struct world_setup cuda_world_setup(const struct world_setup *host); /* the same on CUDA */
/* Both worlds, with the same weights. */
void cuda_world_open(const struct world_setup *host);
/* Closes both, and nothing is left of them on the fake. */
void cuda_world_close(void);
void cuda_world_open_alone(const struct world_setup *cuda); /* without the host's */
void cuda_world_close_alone(void);
/* Steps 1 to `steps` in both, after each of which they are the same; copies of weights in 16 bits
 * at the end. */
void cuda_world_steps(uint32_t steps, const char *name);
bool cuda_world_same(void);                /* all that the ranks would save */
void cuda_world_expect_path(gf_path path); /* of all ranks; the host's have theirs */

/* A step in which the victim's process dies once that is due, its kernels with it: for
 * world_run(). */
struct cuda_death {
    struct world_step step;
    uint32_t victim, at; /* at: for `due` */
    bool (*due)(struct world *w, struct cuda_death *death);
    bool done;
};
/* It goes on, whoever dies. */
void cuda_world_elastic(struct world_setup *setup);
gf_status cuda_world_dying(struct world *w, uint32_t rank, void *death);
/* Makes it: the survivors fail, name the victim, and have what they had before. */
void cuda_world_dies(struct cuda_death *death);
/* The survivors shrink, and make that step on the same path: with the same weights. */
void cuda_world_goes_on(struct cuda_death *death, gf_path path);
/* A step in which the named call fails the so-many-th time: its rank says so, all can be closed and
 * nothing is left. `opened` (or NULL) is called once the world is. How many collectives met it. */
uint32_t cuda_world_fails(const char *call, uint32_t times, struct world_setup setup,
                          void (*opened)(struct world *w));

/* What a step that fails must not change. */
#define CUDA_ELEMS_MAX 1024u
struct cuda_kept {
    float weights[STATE_TENSORS][CUDA_ELEMS_MAX], momentum[CUDA_ELEMS_MAX], history[CUDA_ELEMS_MAX];
};
void cuda_kept_read(gf_context *gf, struct cuda_kept *kept);
/* at most CUDA_ELEMS_MAX floats */
void cuda_world_read(gf_context *gf, gf_mem from, uint64_t bytes, void *to);

#endif
