/* When UCX's own start-up code runs.
 *
 * UCX's constructors patch mmap() and related functions of libc (UCM) and install signal
 * handlers. In a static link they run when this library first needs UCX, once a process, and
 * never in a process that does not need it: ucx.mk takes them out of what runs before main(). If
 * its constructors have run, UCX's destructors run after all of atexit(), as in any program. A
 * shared UCX runs its own when it is loaded. */
#include "drivers/ucx/link_ucx.h"

#include "drivers/base/forked.h"

#include <stdlib.h>
#include <string.h>

#if GF_UCX_DYNAMIC

void gf_ucx_start_locked(void)
{
}

#else

typedef void (*ucx_call)(void);

/* ucx_start.ld. Where UCX is not in one object with its driver (tests) there are none, and libc
 * runs UCX's constructors. */
extern const ucx_call gf_ucx_starts[] __attribute__((weak));
extern const ucx_call gf_ucx_starts_end[] __attribute__((weak));
extern const ucx_call gf_ucx_ends[] __attribute__((weak));
extern const ucx_call gf_ucx_ends_end[] __attribute__((weak));

static bool started; /* under gf_forked_lock() */

/* Instead of the handlers that UCX would install: for SIGSEGV and the like, and for SIGHUP. */
static const struct unset {
    const char *key;
    char value[8];
} unset[] = {{GF_UCX_SIGNALS_KEY, "none"}, {"UCX_DEBUG_SIGNO", "0"}};

/* UCX reads its environment by this function (`ld --wrap`), so no environment is changed. A value
 * that the user set stays. */
char *__real_getenv(const char *name);
char *__wrap_getenv(const char *name);
char *__wrap_getenv(const char *name)
{
    char *value = __real_getenv(name);
    for (size_t i = 0; (value == NULL) && (i < sizeof unset / sizeof unset[0]); i++)
        if (strcmp(name, unset[i].key) == 0) return (char *)(uintptr_t)unset[i].value;
    return value;
}

/* A fork() waits, so that no child has half of it. */
void gf_ucx_start_locked(void)
{
    if (started) return;
    started = true;
    for (const ucx_call *call = gf_ucx_starts; call != gf_ucx_starts_end; call++) (*call)();
}

/* As libc would: the last first. */
__attribute__((destructor)) static void ucx_end(void)
{
    if (!started) return;
    for (const ucx_call *call = gf_ucx_ends_end; call != gf_ucx_ends; call--) call[-1]();
}

#endif

void gf_ucx_start(void)
{
    gf_forked_lock();
    gf_ucx_start_locked();
    gf_forked_unlock();
}
