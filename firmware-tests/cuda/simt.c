/* SIMT emulator: launches, and the turns of the threads. Each is a fiber that runs until it waits
 * at a barrier or in a shuffle, or ends; which one goes on is drawn. */
#include "firmware-tests/cuda/simt.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "ops/element/cuda/kernels.h"
#include "firmware-tests/cuda/simt_device.h"
#include "firmware-tests/cuda/simt_state.h"

#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#endif
#ifdef SIMT_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

#define SHUFFLE_FROM (1u << 31) /* in delta: it is the lane that all of the width read */
enum fiber_state { FIBER_READY, FIBER_BARRIER, FIBER_SHUFFLE, FIBER_ENDED };

struct fiber {
    ucontext_t begin;
    void *at[5];      /* where it goes on */
    bool begun, idle; /* idle: it waits for its next block */
    char *stack;
    enum fiber_state state;
    uint32_t mask, value, delta, width; /* of a shuffle */
    void *fake_stack;
};

struct simt_now simt_now;
static struct fiber fibers[GF_SIMT_THREADS_MAX];
static char *stacks; /* of all fibers, one behind the other; made once */
static void *scheduler_at[5];
#ifdef SIMT_ASAN
static void *scheduler_fake_stack;
static const void *scheduler_stack;
static size_t scheduler_stack_bytes;
#endif
static const struct gf_simt_kernel *kernel;
static const void *kernel_args;
static uint64_t random_state = 1;
static char error_text[400];
static bool failed;
static bool watched = true;

#define SIMT_ADDED_MAX 32u
static const struct gf_simt_kernel *added[SIMT_ADDED_MAX];
static uint32_t added_count;

#define SIMT_EXTERN(name) extern const struct gf_simt_kernel gf_simt_kernel_##name;
#define SIMT_ENTRY(name) &gf_simt_kernel_##name,
GF_KERNELS(SIMT_EXTERN)
static const struct gf_simt_kernel *const own[] = {GF_KERNELS(SIMT_ENTRY)};

const struct gf_simt_kernel *gf_simt_find(const char *kernel_name)
{
    for (size_t k = 0; k < sizeof own / sizeof own[0]; k++)
        if (strcmp(own[k]->name, kernel_name) == 0) return own[k];
    for (uint32_t k = 0; k < added_count; k++)
        if (strcmp(added[k]->name, kernel_name) == 0) return added[k];
    return NULL;
}

void gf_simt_add(const struct gf_simt_kernel *test_kernel)
{
    if (gf_simt_find(test_kernel->name) == test_kernel) return;
    if (added_count == SIMT_ADDED_MAX) abort();
    added[added_count++] = test_kernel;
}

const char *gf_simt_error(void)
{
    return error_text;
}

void gf_simt_seed(uint64_t seed)
{
    random_state = seed * 2u + 1u;
}

void gf_simt_watch(bool watches)
{
    watched = watches;
}

static uint32_t draw(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 32) * below >> 32);
}

/* ---- switching ---- */

/* ASan puts a call before what does not return, which would look for the stack that is left. */
#define SWITCHES __attribute__((noinline, no_sanitize("address")))

SWITCHES _Noreturn static void go_on(void **at)
{
    __builtin_longjmp(at, 1);
}

/* swapcontext() without its two system calls: signals are the same in all fibers. begin: it has not
 * begun yet. */
SWITCHES static void swap(void **from, void **to, const ucontext_t *begin)
{
    if (__builtin_setjmp(from) != 0) return;
    if (begin != NULL) (void)setcontext(begin);
    go_on(to);
}

static void switch_to_fiber(struct fiber *fiber)
{
    bool begun = fiber->begun;
    fiber->begun = true;
#ifdef SIMT_ASAN
    __sanitizer_start_switch_fiber(&scheduler_fake_stack, fiber->stack, SIMT_STACK_BYTES);
#endif
    simt_now.running = watched;
    swap(scheduler_at, fiber->at, begun ? NULL : &fiber->begin);
    simt_now.running = false;
#ifdef SIMT_ASAN
    __sanitizer_finish_switch_fiber(scheduler_fake_stack, NULL, NULL);
#endif
}

/* for_good: this fiber does not come back, its frames are forgotten. */
static void switch_to_scheduler(struct fiber *fiber, bool for_good)
{
#ifdef SIMT_ASAN
    __sanitizer_start_switch_fiber(for_good ? NULL : &fiber->fake_stack, scheduler_stack,
                                   scheduler_stack_bytes);
#endif
    swap(fiber->at, scheduler_at, NULL);
#ifdef SIMT_ASAN
    __sanitizer_finish_switch_fiber(fiber->fake_stack, &scheduler_stack, &scheduler_stack_bytes);
#endif
}

static void fiber_main(void)
{
    struct fiber *fiber = &fibers[simt_now.thread];
#ifdef SIMT_ASAN
    __sanitizer_finish_switch_fiber(NULL, &scheduler_stack, &scheduler_stack_bytes);
#endif
    for (;;) {
        fiber->idle = false;
        kernel->run(kernel_args);
        fiber->state = FIBER_ENDED;
        fiber->idle = true;
        switch_to_scheduler(fiber, false);
    }
}

static void fail_say(const char *format, va_list arguments)
{
    int used;
    if (failed) return;
    failed = true;
    used = snprintf(error_text, sizeof error_text, "%s, block %u of %u: ", simt_now.kernel,
                    simt_now.block, simt_now.blocks);
    if (used < (int)sizeof error_text)
        (void)vsnprintf(error_text + used, sizeof error_text - (size_t)used, format, arguments);
}

_Noreturn void simt_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail_say(format, arguments);
    va_end(arguments);
    switch_to_scheduler(&fibers[simt_now.thread], true);
    abort(); /* nobody switches to it any more */
}

__attribute__((format(printf, 1, 2))) static void scheduler_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail_say(format, arguments);
    va_end(arguments);
}

/* ---- what kernels call ---- */

struct simt_dim simt_thread(void)
{
    return (struct simt_dim){simt_now.thread, 0, 0};
}
struct simt_dim simt_block(void)
{
    return (struct simt_dim){simt_now.block, 0, 0};
}
struct simt_dim simt_block_size(void)
{
    return (struct simt_dim){simt_now.threads, 1, 1};
}
struct simt_dim simt_grid_size(void)
{
    return (struct simt_dim){simt_now.blocks, 1, 1};
}

void simt_barrier(void)
{
    fibers[simt_now.thread].state = FIBER_BARRIER;
    switch_to_scheduler(&fibers[simt_now.thread], false);
}

uint32_t simt_shuffle_down(uint32_t mask, uint32_t value, uint32_t delta, uint32_t width)
{
    struct fiber *fiber = &fibers[simt_now.thread];
    if ((mask & (1u << simt_now.thread % SIMT_WARP)) == 0)
        simt_fail("thread %u takes part in a shuffle whose mask 0x%08x leaves it out",
                  simt_now.thread, mask);
    if ((width == 0) || (width > SIMT_WARP) || ((width & (width - 1)) != 0))
        simt_fail("thread %u shuffles over a width of %u", simt_now.thread, width);
    fiber->mask = mask;
    fiber->value = value;
    fiber->delta = delta;
    fiber->width = width;
    fiber->state = FIBER_SHUFFLE;
    switch_to_scheduler(fiber, false);
    return fiber->value;
}

uint32_t simt_shuffle(uint32_t mask, uint32_t value, uint32_t lane, uint32_t width)
{
    return simt_shuffle_down(mask, value, SHUFFLE_FROM | lane, width);
}

unsigned long long simt_atomic_add(unsigned long long *at, unsigned long long value)
{
    unsigned long long before;
    simt_access(at, sizeof *at, true, true);
    before = *at;
    *at = before + value;
    return before;
}

unsigned long long simt_atomic_min(unsigned long long *at, unsigned long long value)
{
    unsigned long long before;
    simt_access(at, sizeof *at, true, true);
    before = *at;
    if (value < before) *at = value;
    return before;
}

/* ---- main loops ---- */

#define SIMT_LOOPS_MAX 256u
static struct {
    const struct gf_simt_kernel *of;
    uint32_t line;
} loops[SIMT_LOOPS_MAX];
static uint32_t loop_count;

void simt_loop(uint32_t line)
{
    uint32_t l = 0;
    while ((l < loop_count) && ((loops[l].of != kernel) || (loops[l].line != line))) l++;
    if (l < loop_count) return;
    if (loop_count == SIMT_LOOPS_MAX) abort();
    loops[loop_count].of = kernel;
    loops[loop_count++].line = line;
}

uint32_t gf_simt_loops(const char *kernel_name)
{
    uint32_t count = 0;
    for (uint32_t l = 0; l < loop_count; l++) count += strcmp(loops[l].of->name, kernel_name) == 0;
    return count;
}

void gf_simt_loops_forget(void)
{
    loop_count = 0;
}

/* ---- a block ---- */

/* Whether all that the mask names wait in the same shuffle; the first of a warp that cannot come is
 * an error. */
static bool shuffle_whole(uint32_t warp, const struct fiber *asked)
{
    for (uint32_t lane = 0; lane < SIMT_WARP; lane++) {
        const struct fiber *fiber = &fibers[warp + lane];
        if ((asked->mask & (1u << lane)) == 0) continue;
        if ((warp + lane >= simt_now.threads) || (fiber->state == FIBER_ENDED)) {
            scheduler_fail("a shuffle's mask 0x%08x names thread %u, which has ended", asked->mask,
                           warp + lane);
            return false;
        }
        if (fiber->state != FIBER_SHUFFLE) return false;
        if ((fiber->mask != asked->mask) || (fiber->delta != asked->delta) ||
            (fiber->width != asked->width)) {
            scheduler_fail("threads of one warp are in different shuffles, masks 0x%08x and 0x%08x",
                           asked->mask, fiber->mask);
            return false;
        }
    }
    return true;
}

/* What a lane reads from one that takes no part is rubbish, as on a GPU. */
static void shuffle_do(uint32_t warp, uint32_t mask)
{
    uint32_t values[SIMT_WARP];
    for (uint32_t lane = 0; lane < SIMT_WARP; lane++)
        values[lane] = ((mask & (1u << lane)) != 0) ? fibers[warp + lane].value : 0xdeadbeefu;
    for (uint32_t lane = 0; lane < SIMT_WARP; lane++) {
        struct fiber *fiber = &fibers[warp + lane];
        if ((mask & (1u << lane)) == 0) continue;
        if (fiber->delta & SHUFFLE_FROM)
            fiber->value = values[lane - lane % fiber->width + (fiber->delta & 31u)];
        else if (lane % fiber->width + fiber->delta < fiber->width)
            fiber->value = values[lane + fiber->delta];
        fiber->state = FIBER_READY;
    }
}

/* Fills ready[] anew; 0: nobody can go on. */
static uint32_t ready_list(uint32_t *ready)
{
    uint32_t count = 0;
    uint32_t at_barrier = 0;
    uint32_t ended = 0;
    for (uint32_t t = 0; (t < simt_now.threads) && !failed; t++)
        if (fibers[t].state == FIBER_SHUFFLE) {
            uint32_t warp = t / SIMT_WARP * SIMT_WARP;
            if (shuffle_whole(warp, &fibers[t])) shuffle_do(warp, fibers[t].mask);
        }
    for (uint32_t t = 0; t < simt_now.threads; t++) {
        at_barrier += fibers[t].state == FIBER_BARRIER;
        ended += fibers[t].state == FIBER_ENDED;
    }
    if (at_barrier == simt_now.threads) {
        simt_now.stamp++;
        for (uint32_t t = 0; t < simt_now.threads; t++) fibers[t].state = FIBER_READY;
    }
    for (uint32_t t = 0; t < simt_now.threads; t++)
        if (fibers[t].state == FIBER_READY) ready[count++] = t;
    if ((count == 0) && (ended < simt_now.threads))
        scheduler_fail("divergent: %u of %u threads wait at a barrier, %u have ended, the others "
                       "are in shuffles",
                       at_barrier, simt_now.threads, ended);
    return failed ? 0 : count;
}

static void block_run(void)
{
    uint32_t ready[GF_SIMT_THREADS_MAX];
    uint32_t count;
    simt_now.block_stamp = ++simt_now.stamp;
    simt_shared_begin();
    for (uint32_t t = 0; t < simt_now.threads; t++) {
        struct fiber *fiber = &fibers[t];
        fiber->stack = stacks + t * SIMT_STACK_BYTES;
        fiber->state = FIBER_READY;
        if (fiber->idle) continue;
        fiber->begun = false;
        (void)getcontext(&fiber->begin);
        fiber->begin.uc_stack.ss_sp = fiber->stack;
        fiber->begin.uc_stack.ss_size = SIMT_STACK_BYTES;
        fiber->begin.uc_link = NULL;
        makecontext(&fiber->begin, fiber_main, 0);
    }
    while ((count = ready_list(ready)) > 0) {
        while ((count > 0) && !failed) {
            uint32_t drawn = draw(count);
            simt_now.thread = ready[drawn];
            ready[drawn] = ready[--count];
            simt_now.stack = fibers[simt_now.thread].stack;
            switch_to_fiber(&fibers[simt_now.thread]);
        }
    }
}

static const uint32_t *chosen; /* blocks that are to be run; NULL: all */
static uint32_t chosen_count;

void gf_simt_blocks(const uint32_t *blocks, uint32_t count)
{
    chosen = blocks;
    chosen_count = count;
}

/* The factor of a walk over all blocks that looks random: has no divisor in common with their
 * number. */
static uint32_t coprime(uint32_t count)
{
    for (;;) {
        uint32_t factor = draw(count) + 1;
        uint32_t a = factor;
        uint32_t b = count;
        while (b != 0) {
            uint32_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1) return factor;
    }
}

int gf_simt_launch(const char *kernel_name, uint32_t blocks, uint32_t threads, size_t shared_bytes,
                   void **args)
{
    uint32_t count = (chosen != NULL) ? chosen_count : blocks;
    uint32_t factor;
    uint32_t offset;
    failed = false;
    kernel = gf_simt_find(kernel_name);
    simt_now.kernel = kernel_name;
    simt_now.blocks = blocks;
    simt_now.threads = threads;
    simt_now.block = 0;
    if (kernel == NULL)
        scheduler_fail("no kernel has this name");
    else if ((blocks == 0) || (threads == 0) || (threads > GF_SIMT_THREADS_MAX))
        scheduler_fail("%u threads a block; 1 block to 2^32 - 1 and 1 thread to %u are valid",
                       threads, GF_SIMT_THREADS_MAX);
    else if (shared_bytes != 0)
        scheduler_fail("%zu bytes of dynamic shared memory; no kernel here takes any",
                       shared_bytes);
    if (failed) return -1;
    if (stacks == NULL) {
        stacks = mmap(NULL, GF_SIMT_THREADS_MAX * SIMT_STACK_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED) abort();
    }
    kernel_args = simt_now.args = args[0];
    simt_now.args_bytes = kernel->args_bytes;
    simt_now.launch_stamp = ++simt_now.stamp;
    factor = coprime(count);
    offset = draw(count);
    for (uint32_t b = 0; (b < count) && !failed; b++) {
        uint32_t number = (uint32_t)(((uint64_t)factor * b + offset) % count);
        simt_now.block = (chosen != NULL) ? chosen[number] : number;
        block_run();
    }
    return failed ? -1 : 0;
}
