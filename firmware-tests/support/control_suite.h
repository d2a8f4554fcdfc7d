/* What suites of a coordinator and its members begin with: a world in one thread (control_world.h),
 * and what several of them ask of it. */
#ifndef CONTROL_SUITE_H
#define CONTROL_SUITE_H

#include "firmware-tests/support/suite.h"

#include "firmware-tests/support/control_world.h"

#define SECOND (1000 * CONTROL_MS)

/* What a member says whose step stands still. */
extern const struct gf_error control_stuck;

/* All that live are members of one generation, and there are `count` of them. */
void control_all_work(const struct control_world *world, uint32_t count);
/* Until a process is in this state, or 20 s of its clock. */
void control_wait_for(struct control_world *world, uint32_t proc, gf_member_state state);
/* The first processes and the coordinator are polled until a list is out; no time passes. */
void control_gather(struct control_world *world, uint32_t procs);
/* One that was stopped is polled again: its clock went on meanwhile. */
void control_wake(struct control_world *world, uint32_t proc);
/* No process is polled for so long. */
void control_all_stop(struct control_world *world, uint64_t for_ns);
/* For so long no step ends, and nobody says FAULT. */
void control_all_compute(struct control_world *world, uint64_t for_ns);
/* A process is not polled for so long, and its connection breaks as that begins. */
void control_away(struct control_world *world, uint32_t proc, uint64_t for_ns);

#endif
