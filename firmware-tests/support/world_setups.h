/* Worlds that several suites start from. */
#ifndef WORLD_SETUPS_H
#define WORLD_SETUPS_H

#include "firmware-tests/support/world.h"

/* ---- for what a step leaves behind: tensors of every awkward size ---- */

static const struct gf_tensor mixed[] = {
    {.name = "empty.first", .elem_count = 0}, {.name = "one", .elem_count = 1},
    {.name = "odd", .elem_count = 301},       {.name = "round", .elem_count = 4096},
    {.name = "five", .elem_count = 5},        {.name = "empty", .elem_count = 0},
    {.name = "large", .elem_count = 10007},   {.name = "gap", .elem_count = 257},
    {.name = "small", .elem_count = 64},      {.name = "last", .elem_count = 3001},
};

static inline struct world_setup mixed_setup(uint32_t world)
{
    return (struct world_setup){
        .world = world, .tensors = mixed, .tensor_count = LENGTH(mixed), .sim = world_network};
}

/* ---- for what befalls a step: short deadlines, several buffers of several slices ---- */

#define TIMEOUT_NS UINT64_C(200000000)
#define DETECT_NS UINT64_C(50000000)
#define ANSWER_NS UINT64_C(1000000000)  /* an inquiry ends within this, */
#define SILENCE_NS UINT64_C(4000000000) /* who waits for the coordinator gives it up */
#define DRAIN_NS UINT64_C(200000000)    /* and what is under way within that */

static const struct gf_tensor brief[] = {{.name = "a", .elem_count = 3000},
                                         {.name = "b", .elem_count = 10},
                                         {.name = "c", .elem_count = 2000}};

static inline struct world_setup brief_setup(uint32_t world)
{
    struct world_setup setup = {
        .world = world, .tensors = brief, .tensor_count = LENGTH(brief), .sim = world_network};
    setup.sim.detect_ns = DETECT_NS;
    setup.config.exchange.timeout_ns = TIMEOUT_NS;
    setup.config.exchange.fuse_bytes = 8192;
    setup.config.exchange.slice_bytes = 4096;
    setup.config.link.window = 2;
    return setup;
}

#endif
