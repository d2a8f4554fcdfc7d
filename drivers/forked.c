/* See forked.h. The list is this process's; a child begins with an empty one. */
#include "drivers/forked.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

static struct gf_forked *opened;

static void in_child(void)
{
    for (struct gf_forked *each = opened; each != NULL; each = each->next) each->close(each);
    opened = NULL;
}

void gf_forked_add(struct gf_forked *forked)
{
    static bool watches;
    if (!watches) watches = pthread_atfork(NULL, NULL, in_child) == 0;
    forked->next = opened;
    __atomic_store_n(&opened, forked, __ATOMIC_RELEASE);
}

void gf_forked_remove(const struct gf_forked *forked)
{
    struct gf_forked **at = &opened;
    while ((*at != NULL) && (*at != forked)) at = &(*at)->next;
    if (*at != NULL) *at = forked->next;
}
