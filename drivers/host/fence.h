/* The fence between a store to one address and a load from another, in memory that processes
 * share. */
#ifndef GF_FENCE_H
#define GF_FENCE_H

/* A locked instruction is a full fence, as mfence is. */
static inline void gf_full_fence(void)
{
#if defined(__x86_64__)
    __asm__ volatile("lock orq $0, (%%rsp)" : : : "memory", "cc");
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

#endif
