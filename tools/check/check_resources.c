/* What this very program can open: other programs, ucx_info among them, may be linked with more or less. */
#include "tools/check/check_preflight.h"

#include <stdio.h>
#include <string.h>

#include "lib/modules/modules.h"

struct list {
    char *text;
    size_t text_bytes, used;
    char last[32]; /* transport */
};

static void add(struct list *list, const char *before, const char *name)
{
    int length = snprintf(list->text + list->used, list->text_bytes - list->used, "%s%s", before, name);
    if ((length > 0) && (list->used + (size_t)length < list->text_bytes)) list->used += (size_t)length;
    else list->text[list->used] = '\0';
}

static void resource_add(void *user, const char *transport, const char *device)
{
    struct list *list = user;
    const char *separator = (list->used != 0) ? "; " : "";
    bool again = strcmp(list->last, transport) == 0;
    (void)snprintf(list->last, sizeof list->last, "%s", transport);
    if (device[0] == '\0') {
        add(list, separator, "no device for ");
        add(list, "", transport);
    } else if (again) {
        add(list, ", ", device);
    } else {
        add(list, separator, transport);
        if (strncmp(device, "memory", 6) != 0) add(list, " on ", device);
    }
}

void check_resources_text(char *text_out, size_t text_bytes)
{
    const struct gf_link_driver *driver = gf_modules_all.drivers.link;
    struct list list = {.text = text_out, .text_bytes = text_bytes};
    text_out[0] = '\0';
    if ((driver != NULL) && (driver->resources != NULL)) driver->resources(resource_add, &list);
    if (list.used == 0) add(&list, "", "no transport");
}
