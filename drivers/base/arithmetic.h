/* Floating point as the library computes it: rounded to nearest, subnormals kept, no exception
 * trapped. A program may have set its thread otherwise (a library linked with -ffast-math flushes
 * to zero as soon as it is loaded, fesetround(), -ffpe-trap), and ranks that computed so would end
 * with other bits than the others, or with SIGFPE in the middle of an operation.
 *
 * Every public function but those that only read begins with GF_COMPUTES(): it looks at the
 * thread's control word, replaces it where it is not the default, and at the end gives word and
 * sticky flags back as they were. Calls that a call makes, the log callback and other functions of
 * the program's among them, run with the default word. test_rules calls every public function with
 * the most hostile word, and test_tidy.sh finds one that lacks the line.
 *
 * x86-64 has the SSE unit's MXCSR alone: nothing here computes on the x87 (no long double). 64-bit
 * ARM has FPCR and FPSR. What it costs: firmware-tests/results/element-ops.md. */
#ifndef GF_ARITHMETIC_H
#define GF_ARITHMETIC_H

#include <stdint.h>

#define GF_COMPUTES()                                                                          \
    __attribute__((cleanup(gf_float_leave), unused)) const struct gf_float_mode float_before = \
        gf_float_enter()

/* As the program had it. */
struct gf_float_mode {
    uint64_t control, flags;
};

#if defined(__x86_64__)
#include <xmmintrin.h>

#define GF_MXCSR_DEFAULT 0x1f80u /* all masked, to nearest, neither FTZ nor DAZ */
#define GF_MXCSR_FLAGS 0x3fu

static inline struct gf_float_mode gf_float_enter(void)
{
    const uint32_t word = _mm_getcsr();
    const uint32_t flags = word & GF_MXCSR_FLAGS;
    if (word != (GF_MXCSR_DEFAULT | flags)) _mm_setcsr(GF_MXCSR_DEFAULT | flags);
    __asm__ volatile("" ::: "memory"); /* what is computed from memory is so from here on */
    return (struct gf_float_mode){word, flags};
}

/* Writing a word takes longer than looking whether it has to be. */
static inline void gf_float_leave(const struct gf_float_mode *theirs)
{
    __asm__ volatile("" ::: "memory");
    if (_mm_getcsr() != theirs->control) _mm_setcsr((uint32_t)theirs->control);
}
#elif defined(__aarch64__)
static inline struct gf_float_mode gf_float_enter(void)
{
    struct gf_float_mode theirs;
    __asm__ volatile("mrs %0, fpcr" : "=r"(theirs.control));
    __asm__ volatile("mrs %0, fpsr" : "=r"(theirs.flags));
    if (theirs.control != 0) __asm__ volatile("msr fpcr, xzr");
    __asm__ volatile("" ::: "memory");
    return theirs;
}

static inline void gf_float_leave(const struct gf_float_mode *theirs)
{
    uint64_t flags;
    __asm__ volatile("mrs %0, fpsr" : "=r"(flags)::"memory");
    if (flags != theirs->flags) __asm__ volatile("msr fpsr, %0" ::"r"(theirs->flags));
    if (theirs->control != 0) __asm__ volatile("msr fpcr, %0" ::"r"(theirs->control));
}
#else
#error "how is this processor's floating point set?"
#endif

#endif
