/* A thread whose floating point is set as badly as can be, in which the library is called: towards
 * plus infinity, subnormals flushed where the processor can, every exception trapped (a SIGFPE ends
 * the test), and some flag already up. */
#ifndef HOSTILE_H
#define HOSTILE_H

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
/* FTZ, up, no mask, DAZ, and of the flags that of a result that was not exact */
#define HOSTILE_WORD 0xc060u
static inline uint64_t hostile_get(void)
{
    return _mm_getcsr();
}
static inline void hostile_put(uint64_t word)
{
    __asm__ volatile("" ::: "memory");
    _mm_setcsr((uint32_t)word);
    __asm__ volatile("" ::: "memory");
}
#elif defined(__aarch64__)
#define HOSTILE_WORD 0x1400000u /* FZ, up; most of these processors trap nothing */
static inline uint64_t hostile_get(void)
{
    uint64_t word;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word)::"memory");
    return word;
}
static inline void hostile_put(uint64_t word)
{
    __asm__ volatile("msr fpcr, %0" ::"r"(word) : "memory");
}
#endif

/* CALL in such a thread; *kept_out turns false unless word and flags were as before after it. */
#define HOSTILE(kept_out, CALL)                                       \
    do {                                                              \
        const uint64_t before_hostile = hostile_get();                \
        hostile_put(HOSTILE_WORD);                                    \
        CALL;                                                         \
        *(kept_out) = *(kept_out) && (hostile_get() == HOSTILE_WORD); \
        hostile_put(before_hostile);                                  \
    } while (0)

#endif
