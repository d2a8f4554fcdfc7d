/* Inside the SIMT emulator: the launch under way (simt.c), and who looks at its accesses
 * (simt_access.c). */
#ifndef GF_SIMT_STATE_H
#define GF_SIMT_STATE_H

#include "firmware-tests/cuda/simt.h"

#define SIMT_STACK_BYTES ((size_t)64 << 10)
#define SIMT_WARP 32u

/* One launch at a time. Stamps only rise: at a launch, at each of its blocks, at each barrier. */
struct simt_now {
    bool running; /* a thread of a kernel is: its accesses count */
    uint32_t thread, block, threads, blocks;
    uint32_t launch_stamp, block_stamp, stamp;
    const char *kernel;
    /* of the kernel: constants, whether the compiler copied them to the stack or not */
    const char *args;
    size_t args_bytes;
    char *stack; /* of the thread, SIMT_STACK_BYTES */
};
extern struct simt_now simt_now;

/* Gives up the launch; does not return. What is not about a thread is reported by the scheduler
 * itself. */
_Noreturn __attribute__((format(printf, 1, 2))) void simt_fail(const char *format, ...);

/* Rubbish in shared memory, which is nobody's: before each block. */
void simt_shared_begin(void);
/* Before an access: is it allowed, aligned, without conflict? */
void simt_access(const void *address, size_t size_bytes, bool is_write, bool is_atomic);

#endif
