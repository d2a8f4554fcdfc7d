/* What this very program can open: other programs, ucx_info among them, may be linked with more or less. */
#include "tools/check/check_preflight.h"
#include "drivers/link.h"

#include <stdio.h>
#include <string.h>


struct list {
    char *text;
    size_t text_bytes, used;
    uint32_t more; /* that did not fit */
    char last[32]; /* transport */
};

static void resource_add(void *user, const char *transport, const char *device)
{
    struct list *list = user;
    char item[128];
    bool again = strcmp(list->last, transport) == 0, on = !again && (strncmp(device, "memory", 6) != 0);
    if (device[0] == '\0') (void)snprintf(item, sizeof item, "; no device for %s", transport);
    else if (again) (void)snprintf(item, sizeof item, ", %s", device);
    else (void)snprintf(item, sizeof item, "; %s%s%s", transport, on ? " on " : "", on ? device : "");
    (void)snprintf(list->last, sizeof list->last, "%s", transport);
    const char *from = (list->used == 0) ? item + 2 : item;
    if ((list->more > 0) || (list->used + strlen(from) + sizeof ", and 1234567890 more" > list->text_bytes))
        list->more++;
    else list->used += (size_t)snprintf(list->text + list->used, list->text_bytes - list->used, "%s", from);
}

void check_resources_text(char *text_out, size_t text_bytes)
{
    struct list list = {.text = text_out, .text_bytes = text_bytes};
    (void)snprintf(text_out, text_bytes, "no transport");
#if GF_WITH_UCX
    gf_ucx_resources(resource_add, &list);
#endif
    if (list.more > 0) (void)snprintf(text_out + list.used, text_bytes - list.used, ", and %u more", list.more);
}
