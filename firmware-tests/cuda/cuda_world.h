/* Whole contexts on the real CUDA driver, over a CUDA library without a GPU, beside the same contexts on the host. All
 * ranks are in one thread; the appliance computes on the host, and the default stream brings its gradients to the
 * device. */
#ifndef CUDA_WORLD_H
#define CUDA_WORLD_H

#include "firmware-tests/cuda/cuda_fixture.h"
#include "firmware-tests/support/state_world.h"

/* Without one kind of wait: what that call answers is a lie from here on. LACKS_FLAGS: flags of other ranks but the
 * first of an operation seem to be up, and streams wait for none. LACKS_PACKED, _FOLDED: reached() lies before, and
 * while, a collective runs. */
typedef enum cuda_lack {
    LACKS_NOTHING, LACKS_FOLLOW, LACKS_LEAD, LACKS_REACHED, LACKS_FINISHED, LACKS_FLAGS,
    LACKS_PACKED, LACKS_FOLDED, LACKS_COUNT
} cuda_lack;
const char *cuda_lack_name(cuda_lack lack);

struct cuda_world {
    struct cuda_fixture fixture;
    cuda_lack lack;
    uint64_t wire_ranks;     /* ranks whose messages lie in device memory, a bit each; 0: none */
    uint32_t devices;        /* 1: all ranks on one, and it is meant; 2: as device.ordinal = auto has it */
    uint32_t import_wrong;   /* the so-many-th such time it gets its own memory instead; 0: never */
    uint32_t export_refused, send_refused; /* the so-many-th time that a rank would export, or send to another */
    uint32_t import_refused; /* the so-many-th time that a rank would reach another's memory, it cannot; 0: never */
    uint64_t summed[STATE_RANKS_MAX]; /* the last operation that each rank's stream of sums got, in this epoch */
    uint32_t disordered;     /* so often it was before the one that it had got */
    struct world host, cuda;
};
extern struct cuda_world cuda_world;

/* A new fake, of that seed; second: "NAME=VALUE" for its environment, or NULL. */
void cuda_world_begin(uint32_t seed, const char *second);
struct world_setup cuda_world_setup(const struct world_setup *host); /* the same on CUDA */
/* Both worlds, with the same weights. */
void cuda_world_open(const struct world_setup *host);
/* Closes both, and nothing is left of them on the fake; what it told of a wait that was lacking is forgotten. */
void cuda_world_close(void);
void cuda_world_open_alone(const struct world_setup *cuda); /* without the host's */
void cuda_world_close_alone(void);
/* Steps 1 to `steps` in both, after each of which they are the same. */
void cuda_world_steps(uint32_t steps, const char *name);
/* Steps without that kind of wait, until the close: the fake tells of work that met, or (unless `told`) values are wrong. */
void cuda_world_expect_found(cuda_lack lack, uint32_t steps, bool told);
bool cuda_world_same(void); /* all that the ranks would save */
void cuda_world_halves_expect_equal(void);
void cuda_world_gradients_expect_equal(void); /* those of all ranks after a step, bit by bit */

/* What a step that fails must not change. */
#define CUDA_ELEMS_MAX 1024u
struct cuda_kept {
    float weights[STATE_TENSORS][CUDA_ELEMS_MAX], momentum[CUDA_ELEMS_MAX], history[CUDA_ELEMS_MAX];
};
void cuda_kept_read(gf_context *gf, struct cuda_kept *kept);
void cuda_world_read(gf_context *gf, gf_mem from, uint64_t bytes, void *to); /* at most CUDA_ELEMS_MAX floats */

#endif
