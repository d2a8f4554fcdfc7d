/* SIMT emulator: runs the kernels of ops/ .cu files, compiled by the host compiler, with a grid,
 * blocks and threads in a seeded random order between barriers. Blocks run one behind the other, so
 * a kernel that waits for another block is refused by a deadlock. Every access to memory is looked
 * at: two threads that meet in a byte without a barrier in between, at least one of them writing
 * and not both atomically, are a conflict, which ends the launch with an error. Addresses are the
 * CPU's own. Not reentrant: one launch at a time in a process. Allocates (tests only). */
#ifndef GF_SIMT_H
#define GF_SIMT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GF_SIMT_THREADS_MAX 1024u /* of a block */

/* Each kernel takes one argument, a struct by value of args_bytes: args[0] of a launch points to
 * it, and whoever runs work late copies just that. */
struct gf_simt_kernel {
    const char *name;
    size_t args_bytes;
    void (*run)(const void *args); /* the kernel as one thread */
};

/* By name, as cuModuleGetFunction() asks for it; NULL: no kernel has it. All kernels of the library
 * are known, those that a test adds (static storage; the name is new) from then on. */
const struct gf_simt_kernel *gf_simt_find(const char *kernel_name);
void gf_simt_add(const struct gf_simt_kernel *kernel);

/* Runs it to its end. 0; or -1 with the reason in gf_simt_error(): unknown kernel, bad grid (0
 * blocks, 0 or more than GF_SIMT_THREADS_MAX threads), conflict, misaligned or forbidden access,
 * divergent barrier. */
int gf_simt_launch(const char *kernel_name, uint32_t blocks, uint32_t threads, size_t shared_bytes,
                   void **args);
const char *gf_simt_error(void); /* of the last launch that failed */

/* How many loops of a kernel that take as many packs at once as it ever does (of one with several,
 * as sum_n: for few sources and for many) some thread has entered since gf_simt_loops_forget(). */
uint32_t gf_simt_loops(const char *kernel_name);
void gf_simt_loops_forget(void);

/* From here on launches run only these blocks of theirs, which the caller keeps; NULL: all. For
 * grids and ranges that are too large to be run whole. */
void gf_simt_blocks(const uint32_t *blocks, uint32_t count);

/* Orders of all launches from here on; the same seed, the same orders. */
void gf_simt_seed(uint64_t seed);
/* false: what launches from here on access is not looked at. */
void gf_simt_watch(bool watches);

/* Asked before each access of a kernel to global memory (not its stack, not shared memory). False
 * ends the launch with an error that names address, size and thread. NULL: everything is allowed
 * that the process may touch. */
typedef bool (*gf_simt_allowed)(void *user, const void *address, size_t size_bytes, bool is_write);
void gf_simt_allow(gf_simt_allowed allowed, void *user);

#endif
