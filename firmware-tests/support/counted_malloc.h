/* An allocator in front of libc's, for every object of the program that includes this: it calls
 * count() with its caller and goes on to libc's. count() is the program's own. */
#ifndef GF_TESTS_COUNTED_MALLOC_H
#define GF_TESTS_COUNTED_MALLOC_H

#include <errno.h>
#include <stddef.h>

static void count(void *caller);

void *__libc_malloc(size_t size_bytes);
void *__libc_calloc(size_t elem_count, size_t size_bytes);
void *__libc_realloc(void *old, size_t size_bytes);
void *__libc_memalign(size_t align_bytes, size_t size_bytes);

#define COUNTED(call) (count(__builtin_return_address(0)), call)
void *malloc(size_t size_bytes)
{
    return COUNTED(__libc_malloc(size_bytes));
}
void *calloc(size_t elem_count, size_t size_bytes)
{
    return COUNTED(__libc_calloc(elem_count, size_bytes));
}
void *realloc(void *old, size_t size_bytes)
{
    return COUNTED(__libc_realloc(old, size_bytes));
}
void *memalign(size_t align_bytes, size_t size_bytes)
{
    return COUNTED(__libc_memalign(align_bytes, size_bytes));
}
void *aligned_alloc(size_t align_bytes, size_t size_bytes)
{
    return COUNTED(__libc_memalign(align_bytes, size_bytes));
}
int posix_memalign(void **out, size_t align_bytes, size_t size_bytes)
{
    void *taken = COUNTED(__libc_memalign(align_bytes, size_bytes));
    if (taken != NULL) *out = taken;
    return (taken != NULL) ? 0 : ENOMEM;
}

#endif
