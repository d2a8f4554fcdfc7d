/* See forked.h. The list is this process's; a child begins with an empty one. */
#include "drivers/base/forked.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

uint32_t gf_forks;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gf_forked *opened;
static bool watches;

void gf_forked_lock(void)
{
    (void)pthread_mutex_lock(&lock);
}

void gf_forked_unlock(void)
{
    (void)pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    for (struct gf_forked *each = opened; each != NULL; each = each->next) each->close(each);
    opened = NULL;
    gf_forks++;
    gf_forked_unlock();
}

/* Under the lock. No fork() that is under way knows these three, so none waits for the lock while
 * this waits for libc's list of them. */
static void watch(void)
{
    if (!watches) watches = pthread_atfork(gf_forked_lock, gf_forked_unlock, in_child) == 0;
}

void gf_forked_watch(void)
{
    gf_forked_lock();
    watch();
    gf_forked_unlock();
}

void gf_forked_add(struct gf_forked *forked)
{
    gf_forked_lock();
    watch();
    forked->next = opened;
    opened = forked;
    gf_forked_unlock();
}

void gf_forked_remove(const struct gf_forked *forked)
{
    struct gf_forked **at = &opened;
    gf_forked_lock();
    while ((*at != NULL) && (*at != forked)) at = &(*at)->next;
    if (*at != NULL) *at = forked->next;
    gf_forked_unlock();
}
